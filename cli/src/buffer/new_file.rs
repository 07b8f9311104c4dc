//! Files that hold what was in GPU memory: readable by their owner only, never over a file that is there, never left half done.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use super::stop::Stop;
use crate::units;

/// A new file, which is removed again unless it is finished.
#[derive(Debug)]
pub struct NewFile {
    file: File,
    path: PathBuf,
    finished: bool,
}

impl NewFile {
    /// Makes it.
    ///
    /// # Errors
    /// A file of this name is there, or it cannot be made.
    pub fn create(path: &Path) -> Result<Self, Stop> {
        let made = OpenOptions::new()
            .read(true)
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(path);
        match made {
            Ok(file) => Ok(NewFile {
                file,
                path: path.to_owned(),
                finished: false,
            }),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Err(Stop::refused(
                format!("{} is there already and is not overwritten", path.display()),
            )),
            Err(error) => Err(Stop::refused(format!("{}: {error}", path.display()))),
        }
    }

    /// The file.
    pub fn file(&self) -> &File {
        &self.file
    }

    /// Its name.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// An error of this file.
    pub fn error(&self, error: &io::Error) -> Stop {
        Stop::file(&self.path, error)
    }

    /// Brings everything to the disk, its name too. From here on the file stays.
    ///
    /// # Errors
    /// The disk did not take it.
    pub fn finish(mut self) -> Result<(), Stop> {
        self.file.sync_all().map_err(|error| self.error(&error))?;
        sync_folder(folder_of(&self.path)).map_err(|error| self.error(&error))?;
        self.finished = true;
        Ok(())
    }
}

impl Drop for NewFile {
    fn drop(&mut self) {
        if !self.finished {
            // It cannot be told any more when even this fails; a file without its header is refused by `load`.
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

/// Brings the names in a folder to the disk, where that can be done: some may be written to and not read, and some file systems
/// (of a network, FUSE) know no such thing. The file itself is on the disk by then.
fn sync_folder(folder: &Path) -> io::Result<()> {
    let synced = File::open(folder).and_then(|folder| folder.sync_all());
    match synced.as_ref().map_err(io::Error::raw_os_error) {
        Err(Some(libc::EACCES | libc::EINVAL | libc::EOPNOTSUPP | libc::ENOSYS | libc::EBADF)) => {
            Ok(())
        }
        _ => synced,
    }
}

fn folder_of(path: &Path) -> &Path {
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    }
}

/// Looks whether the disk on which `path` would lie has so many bytes left.
///
/// # Errors
/// It has not.
pub fn has_room(path: &Path, bytes: u64) -> Result<(), Stop> {
    let folder = folder_of(path);
    let free = free_bytes(folder)
        .map_err(|error| Stop::refused(format!("{}: {error}", folder.display())))?;
    if free >= bytes {
        return Ok(());
    }
    Err(Stop::refused(format!(
        "{}: {} are needed and {} are free on this disk",
        path.display(),
        units::bytes(bytes),
        units::bytes(free)
    )))
}

fn free_bytes(folder: &Path) -> io::Result<u64> {
    let name = std::ffi::CString::new(folder.as_os_str().as_bytes())?;
    // SAFETY: all zeros are a valid statvfs, which is plain numbers.
    let mut answer: libc::statvfs = unsafe { std::mem::zeroed() };
    // SAFETY: `name` ends with a zero byte, `answer` is valid for the call.
    if unsafe { libc::statvfs(name.as_ptr(), &mut answer) } != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok((answer.f_bavail as u64).saturating_mul(answer.f_frsize as u64))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    fn folder(name: &str) -> PathBuf {
        let folder = std::env::temp_dir().join(format!("cudasnap-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        folder
    }

    #[test]
    fn it_is_private_and_goes_unless_finished() {
        let folder = folder("new-file");
        let path = folder.join("x");
        drop(NewFile::create(&path).unwrap());
        assert!(!path.exists());
        NewFile::create(&path).unwrap().finish().unwrap();
        let mode = std::fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        let stop = NewFile::create(&path).unwrap_err();
        assert!(stop.text.unwrap().contains("is not overwritten"));
        assert!(path.exists());
        std::fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn a_link_is_not_followed() {
        let folder = folder("new-link");
        let path = folder.join("x");
        std::os::unix::fs::symlink(folder.join("elsewhere"), &path).unwrap();
        assert!(NewFile::create(&path).is_err());
        assert!(!folder.join("elsewhere").exists());
        std::fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn room_is_looked_for() {
        has_room(Path::new("x"), 1).unwrap();
        let stop = has_room(Path::new("x"), u64::MAX).unwrap_err();
        assert!(stop.text.unwrap().contains("are free on this disk"));
        assert!(has_room(Path::new("/no/such/folder/x"), 1).is_err());
    }
}
