//! Whether the process that was meant still lives, and how it ended.

use std::time::Duration;

use crate::process::ending::{Ending, Watch};
use crate::process::identity::{Identity, IdentityError};

/// What the steps need to know about a process's life.
pub trait Life: Send + Sync {
    /// Whether the id still means the process that was selected.
    ///
    /// # Errors
    /// What became of it.
    fn check(&self) -> Result<(), IdentityError>;

    /// Waits at most so long for its end; `None`: it still lives.
    fn ended_within(&self, limit: Duration) -> Option<Ending>;
}

/// A process under watch. Where the kernel gives no pidfd (before 5.3, some seccomp filters) its id is looked up instead, and
/// nobody can say how it ended.
#[derive(Debug)]
pub struct Watched {
    identity: Identity,
    watch: Option<Watch>,
}

impl Watched {
    /// Begins to watch.
    pub fn new(identity: Identity) -> Self {
        let watch = Watch::of(&identity).ok();
        Watched { identity, watch }
    }
}

impl Life for Watched {
    fn check(&self) -> Result<(), IdentityError> {
        self.identity.check()
    }

    fn ended_within(&self, limit: Duration) -> Option<Ending> {
        if let Some(watch) = &self.watch {
            return watch.ended_within(limit);
        }
        std::thread::sleep(limit);
        let gone = self.identity.check().is_err_and(|error| {
            // An unreadable /proc is no proof.
            !matches!(error, IdentityError::Unreadable(..))
        });
        gone.then_some(Ending::Unknown)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_a_descriptor_the_end_is_still_noticed() {
        let mut child = std::process::Command::new("sleep")
            .arg("60")
            .spawn()
            .unwrap();
        let life = Watched {
            identity: Identity::of(child.id() as i32).unwrap(),
            watch: None,
        };
        assert_eq!(life.ended_within(Duration::ZERO), None);
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(life.ended_within(Duration::ZERO), Some(Ending::Unknown));
    }
}
