//! A file that is there whole or not at all: written beside its place and renamed, so that whoever reads at any moment finds the old one
//! or the new one.

use std::fs::Permissions;
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// Not `*.prom`: a node exporter would read it too.
const PREFIX: &str = ".cudasnap-metrics-";
/// What a new file may be, less what the umask takes away: the exporter is another user.
const MODE: u32 = 0o666;

/// Writes it.
///
/// # Errors
/// It cannot be written, or something else than a file has its name. What was there stays.
pub fn write(path: &Path, text: &str) -> io::Result<()> {
    let path = place(path)?;
    let folder = match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    };
    let mut builder = tempfile::Builder::new();
    builder
        .prefix(PREFIX)
        .permissions(Permissions::from_mode(MODE));
    let mut file = builder.tempfile_in(folder)?;
    file.write_all(text.as_bytes())?;
    if let Ok(before) = path.metadata() {
        file.as_file().set_permissions(before.permissions())?;
    }
    file.persist(&path).map_err(|error| error.error)?;
    Ok(())
}

/// Where the file really lies: a link stays a link.
fn place(path: &Path) -> io::Result<PathBuf> {
    let real = match path.canonicalize() {
        Ok(real) => real,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(path.to_path_buf()),
        Err(error) => return Err(error),
    };
    if real.metadata()?.is_file() {
        Ok(real)
    } else {
        Err(io::Error::other("it is there, and is no file"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::symlink;

    #[test]
    fn nothing_is_left_beside_it_and_everybody_may_read_it() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x.prom");
        write(&path, "one\n").unwrap();
        let mode = |path: &Path| path.metadata().unwrap().permissions().mode() & 0o777;
        assert_ne!(mode(&path) & 0o400, 0);
        assert_eq!(mode(&path) & 0o111, 0);
        fs::set_permissions(&path, Permissions::from_mode(0o604)).unwrap();
        write(&path, "two\n").unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "two\n");
        assert_eq!(mode(&path), 0o604, "as it was");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }

    #[test]
    fn a_link_stays_one_and_a_folder_too() {
        let folder = tempfile::tempdir().unwrap();
        let (path, link) = (folder.path().join("x.prom"), folder.path().join("link"));
        fs::write(&path, "old").unwrap();
        symlink(&path, &link).unwrap();
        write(&link, "new").unwrap();
        assert!(link.symlink_metadata().unwrap().is_symlink());
        assert_eq!(fs::read_to_string(&path).unwrap(), "new");
        assert!(write(folder.path(), "x")
            .unwrap_err()
            .to_string()
            .contains("no file"));
        assert!(write(&folder.path().join("none/x.prom"), "x").is_err());
    }

    #[test]
    fn what_was_there_stays_when_it_cannot_be_written() {
        // A folder that nobody can write to, not even root.
        let error = write(Path::new("/proc/cudasnap.prom"), "x");
        assert!(error.is_err());
    }
}
