//! Folders for files of a test.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use crate::simdriver::repository;

/// A folder of a test, removed when dropped; everybody may read it.
#[derive(Debug)]
pub struct Folder(PathBuf);

impl Folder {
    /// A new, empty one in the temporary folder of the machine: short paths, which any user may reach.
    ///
    /// # Panics
    /// When it cannot be made.
    #[must_use]
    pub fn new() -> Self {
        Self::below(&std::env::temp_dir(), "cudasnap-test")
    }

    /// A new, empty one in the target's temporary folder: for what is large.
    ///
    /// # Panics
    /// When it cannot be made.
    #[must_use]
    pub fn in_target() -> Self {
        let target = std::env::var_os("CARGO_TARGET_DIR")
            .map_or_else(|| repository().join("target"), PathBuf::from);
        Self::below(&target.join("tmp"), "test")
    }

    fn below(parent: &Path, kind: &str) -> Self {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let path = parent.join(format!("{kind}-{}-{number}", std::process::id()));
        fs::create_dir_all(&path).expect("a folder");
        Folder(path)
    }

    /// Its path.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// A file in it, which need not be there.
    #[must_use]
    pub fn file(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    /// Writes a file in it, and the folders that lead there; its path.
    ///
    /// # Panics
    /// When it cannot be written.
    pub fn write(&self, name: &str, text: &str) -> PathBuf {
        let path = self.file(name.trim_start_matches('/'));
        fs::create_dir_all(path.parent().expect("a folder")).expect("a folder");
        fs::write(&path, text).expect("a file");
        path
    }
}

impl Default for Folder {
    fn default() -> Self {
        Self::new()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // Nothing depends on it: the next test makes its own.
        let _ = fs::remove_dir_all(&self.0);
    }
}
