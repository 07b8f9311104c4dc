//! Settings of the whole machine: changed by one test at a time, whichever process it runs in, and put back at its end.

use std::fs::{self, File};
use std::path::PathBuf;

use crate::simdriver::repository;

/// Settings that were changed, with what was there before. While it lives no other test changes any.
#[derive(Debug)]
pub struct Machine {
    before: Vec<(String, String)>,
    // Released when everything has been put back: fields go after `drop`.
    _turn: File,
}

impl Machine {
    /// Waits for its turn.
    ///
    /// # Panics
    /// When the lock's file cannot be made.
    #[must_use]
    pub fn take() -> Self {
        let target = std::env::var_os("CARGO_TARGET_DIR")
            .map_or_else(|| repository().join("target"), PathBuf::from);
        let folder = target.join("tmp");
        fs::create_dir_all(&folder).expect("a folder");
        let turn = File::create(folder.join("machine.lock")).expect("the lock's file");
        turn.lock().expect("the lock");
        Machine {
            before: Vec::new(),
            _turn: turn,
        }
    }

    /// Changes a setting.
    ///
    /// # Panics
    /// When the kernel refuses: this needs root.
    pub fn set(&mut self, path: &str, value: &str) {
        let before = fs::read_to_string(path).unwrap_or_else(|error| panic!("{path}: {error}"));
        self.before.push((path.to_string(), chosen(&before)));
        fs::write(path, value).unwrap_or_else(|error| panic!("{path} = {value}: {error}"));
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        for (path, value) in self.before.iter().rev() {
            if let Err(error) = fs::write(path, value) {
                eprintln!("{path} stays changed, it was {value}: {error}");
            }
        }
    }
}

/// What to write to get a setting back: of a list with the choice in brackets the choice, else all of it.
fn chosen(text: &str) -> String {
    let choice = text
        .split_once('[')
        .and_then(|(_, rest)| rest.split_once(']'));
    choice.map_or(text, |(choice, _)| choice).trim().to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_setting_is_put_back_even_after_a_panic() {
        let path = std::env::temp_dir().join(format!("cudasnap-setting-{}", std::process::id()));
        fs::write(&path, "always [madvise] never\n").unwrap();
        let name = path.to_str().unwrap().to_string();
        let outcome = std::panic::catch_unwind(|| {
            let mut machine = Machine::take();
            machine.set(&name, "never");
            assert_eq!(fs::read_to_string(&name).unwrap(), "never");
            machine.set(&name, "always");
            panic!("as a test that fails");
        });
        assert!(outcome.is_err());
        assert_eq!(fs::read_to_string(&path).unwrap(), "madvise");
        fs::remove_file(&path).unwrap();
        drop(Machine::take());
    }
}
