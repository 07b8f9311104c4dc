//! Processes that do a step at the same time: each leaves a file in a common folder and looks until all are there.

use std::path::PathBuf;
use std::time::{Duration, Instant};

/// Between two looks.
const LOOK: Duration = Duration::from_micros(100);

/// A folder where `count` processes meet.
#[derive(Debug, Clone)]
pub struct Meet {
    folder: PathBuf,
    count: usize,
    limit: Duration,
}

impl Meet {
    /// Takes `FOLDER:COUNT`; a meeting that has not come about after `limit` is an error.
    ///
    /// # Errors
    /// Text for what is wrong with it.
    pub fn parse(text: &str, limit: Duration) -> Result<Self, String> {
        let (folder, count) = text.rsplit_once(':').ok_or("not FOLDER:COUNT")?;
        let count = count.parse().map_err(|_| "not FOLDER:COUNT")?;
        Ok(Meet {
            folder: folder.into(),
            count,
            limit,
        })
    }

    /// Returns when all processes have come to the meeting of this name.
    ///
    /// # Errors
    /// Text, when they did not, or when the folder cannot be written.
    pub fn wait(&self, name: &str) -> Result<(), String> {
        let folder = self.folder.join(name);
        std::fs::create_dir_all(&folder)
            .and_then(|()| std::fs::write(folder.join(std::process::id().to_string()), ""))
            .map_err(|error| format!("{}: {error}", folder.display()))?;
        let deadline = Instant::now() + self.limit;
        loop {
            let there = std::fs::read_dir(&folder).map_or(0, Iterator::count);
            if there >= self.count {
                return Ok(());
            }
            if Instant::now() > deadline {
                return Err(format!("{there} of {} came to {name}", self.count));
            }
            std::thread::sleep(LOOK);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_waits_for_the_other_and_not_for_ever() {
        let folder = std::env::temp_dir().join(format!("cudasnap-meet-{}", std::process::id()));
        let text = format!("{}:2", folder.display());
        let limit = Duration::from_millis(50);
        let alone = Meet::parse(&text, limit).unwrap().wait("alone");
        assert_eq!(alone.unwrap_err(), "1 of 2 came to alone");
        std::fs::create_dir_all(folder.join("both")).unwrap();
        std::fs::write(folder.join("both/another"), "").unwrap();
        assert_eq!(Meet::parse(&text, limit).unwrap().wait("both"), Ok(()));
        assert!(Meet::parse("folder", limit).is_err() && Meet::parse("folder:x", limit).is_err());
        std::fs::remove_dir_all(folder).unwrap();
    }
}
