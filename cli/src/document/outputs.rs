//! The files of a report: each is written whole or not at all, and one that cannot be written is told before anything is measured.

use std::fs::{File, OpenOptions, Permissions};
use std::io::{self, IsTerminal, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use crate::document::{html, markdown, png, Document};
use crate::foreign_text::printable;

/// Which files are wanted.
#[derive(Debug, Clone, Default, PartialEq, Eq, clap::Args)]
#[command(next_help_heading = "Reports")]
pub struct OutputArgs {
    /// Write all that was measured as JSON; `-` is stdout
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
    /// Write the rows behind the tables as CSV
    #[arg(long, value_name = "FILE")]
    pub csv: Option<PathBuf>,
    /// Write the report as Markdown, for a pull request
    #[arg(long, value_name = "FILE")]
    pub markdown: Option<PathBuf>,
    /// Write the report as one HTML file with plots, which needs no network
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,
    /// Write the plots as a PNG picture
    #[arg(long, value_name = "FILE")]
    pub png: Option<PathBuf>,
}

/// Kinds of files.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Json,
    Csv,
    Markdown,
    Html,
    Png,
}

/// Where something is written.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Place {
    Stdout,
    /// A file that is made or replaced.
    File(PathBuf),
    /// A device or a pipe, which is written to.
    Stream(PathBuf),
}

impl OutputArgs {
    /// Whether one of them goes to stdout, which then is for nothing else.
    pub fn takes_stdout(&self) -> bool {
        self.wanted().any(|(_, path)| is_stdout(path))
    }

    /// Looks whether all files can be written, and leaves nothing behind.
    ///
    /// # Errors
    /// A sentence for each that cannot.
    pub fn check(&self) -> Result<(), String> {
        self.check_beside(None)
    }

    /// The same, with a file beside them that somebody writes to from its beginning, of any name.
    ///
    /// # Errors
    /// A sentence for each that cannot be written, or whose place is that of another one.
    pub fn check_beside(&self, other: Option<&Path>) -> Result<(), String> {
        let mut places: Vec<Place> = Vec::new();
        let mut complaints = Vec::new();
        for (kind, path) in self.wanted() {
            let tried = |place: Place| {
                let tried = place.try_out().map(|()| place);
                tried.map_err(|error| named(path, &error))
            };
            match place(path).and_then(tried) {
                Ok(Place::Stdout) if kind == Kind::Png && io::stdout().is_terminal() => {
                    complaints.push("a picture is not written to a terminal".to_owned());
                }
                Ok(place) if places.contains(&place) => {
                    complaints.push(told_of(path, "two reports cannot go there"));
                }
                Ok(place) => places.push(place),
                Err(complaint) => complaints.push(complaint),
            }
        }
        if let Some(path) = other {
            complaints.extend(check_other(path, &places).err());
        }
        told((), complaints)
    }

    /// That none of them replaces a file that is read for it.
    ///
    /// # Errors
    /// A sentence for each that would.
    pub fn check_apart_from<'a>(
        &self,
        inputs: impl Iterator<Item = &'a Path>,
    ) -> Result<(), String> {
        let identity = |path: &Path| {
            let found = std::fs::metadata(path).ok().filter(|found| found.is_file());
            found.map(|found| (found.dev(), found.ino()))
        };
        let inputs: Vec<_> = inputs.filter_map(identity).collect();
        let replaces = |path: &Path| identity(path).is_some_and(|file| inputs.contains(&file));
        let complaints = self.wanted().filter(|(_, path)| replaces(path));
        let complaints = complaints.map(|(_, path)| {
            told_of(
                path,
                "the report is made of this file, and would replace it",
            )
        });
        told((), complaints.collect())
    }

    /// Writes the wanted files, and returns their names. One that fails does not keep the others from being written.
    ///
    /// # Errors
    /// A sentence for each that was not written.
    pub fn write(
        &self,
        json: &str,
        csv: &str,
        document: &Document,
    ) -> Result<Vec<PathBuf>, String> {
        let (mut written, mut complaints) = (Vec::new(), Vec::new());
        for (kind, path) in self.wanted() {
            let content = match kind {
                Kind::Json => Ok(ended(json)),
                Kind::Csv => Ok(csv.as_bytes().to_vec()),
                Kind::Markdown => Ok(markdown(document).into_bytes()),
                Kind::Html => Ok(html(document).into_bytes()),
                Kind::Png => png(document).map_err(|error| told_of(path, &error)),
            };
            let put = |content: Vec<u8>| {
                let put = place(path)?.put(&content);
                put.map_err(|error| named(path, &error))
            };
            match content.and_then(put) {
                Ok(()) => written.push(path.to_owned()),
                Err(complaint) => complaints.push(complaint),
            }
        }
        told(written, complaints)
    }

    fn wanted(&self) -> impl Iterator<Item = (Kind, &Path)> {
        let all = [
            (Kind::Json, &self.json),
            (Kind::Csv, &self.csv),
            (Kind::Markdown, &self.markdown),
            (Kind::Html, &self.html),
            (Kind::Png, &self.png),
        ];
        all.into_iter()
            .filter_map(|(kind, path)| Some((kind, path.as_deref()?)))
    }
}

/// A file that is written to as it is, not replaced.
fn check_other(path: &Path, places: &[Place]) -> Result<(), String> {
    // No name means stdout here.
    let there = place(&Path::new(".").join(path))
        .map_err(|complaint| complaint.trim_start_matches("./").to_owned())?;
    let written = match &there {
        Place::File(file) if file.exists() => OpenOptions::new().write(true).open(file).map(drop),
        there => there.try_out(),
    };
    written.map_err(|error| named(path, &error))?;
    let is_same = |place: &Place| {
        let same_file = there.file().is_some() && place.file() == there.file();
        *place == there || same_file
    };
    match places.iter().any(is_same) {
        true => Err(told_of(
            path,
            "a report and the program's output cannot both go there",
        )),
        false => Ok(()),
    }
}

fn told<Value>(value: Value, complaints: Vec<String>) -> Result<Value, String> {
    if complaints.is_empty() {
        Ok(value)
    } else {
        Err(complaints.join("; "))
    }
}

fn is_stdout(path: &Path) -> bool {
    path == Path::new("-")
}

fn told_of(path: &Path, what: &str) -> String {
    format!("{}: {what}", printable(&path.to_string_lossy()))
}

/// The text with a line end.
fn ended(text: &str) -> Vec<u8> {
    format!("{}\n", text.trim_end_matches('\n')).into_bytes()
}

fn place(path: &Path) -> Result<Place, String> {
    if is_stdout(path) {
        return Ok(Place::Stdout);
    }
    match std::fs::metadata(path) {
        Ok(found) if found.is_dir() => Err(told_of(path, "is a folder")),
        // What a link leads to is replaced, not the link.
        Ok(found) if found.is_file() => {
            let real = path.canonicalize().map_err(|error| named(path, &error))?;
            Ok(Place::File(real))
        }
        Ok(_) => Ok(Place::Stream(path.to_owned())),
        Err(error) if error.kind() == io::ErrorKind::NotFound => new_place(path),
        Err(error) => Err(named(path, &error)),
    }
}

/// A file that is not there yet.
fn new_place(path: &Path) -> Result<Place, String> {
    if path.symlink_metadata().is_ok() {
        return Err(told_of(path, "is a link that leads nowhere"));
    }
    let name = path
        .file_name()
        .ok_or_else(|| told_of(path, "has no name"))?;
    let folder = folder_of(path)
        .canonicalize()
        .map_err(|error| named(folder_of(path), &error))?;
    Ok(Place::File(folder.join(name)))
}

fn folder_of(path: &Path) -> &Path {
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    }
}

impl Place {
    /// Device and inode of a regular file, whatever its name.
    fn file(&self) -> Option<(u64, u64)> {
        let found = match self {
            Place::Stdout => rustix::fs::fstat(io::stdout()),
            Place::File(path) | Place::Stream(path) => rustix::fs::stat(path),
        };
        let found = found.ok()?;
        let kind = rustix::fs::FileType::from_raw_mode(found.st_mode);
        (kind == rustix::fs::FileType::RegularFile).then_some((found.st_dev, found.st_ino))
    }

    fn try_out(&self) -> io::Result<()> {
        match self {
            Place::Stdout => Ok(()),
            Place::File(path) => try_file(path),
            // Opened when there is something to write: opening a pipe twice would end it for its reader.
            Place::Stream(path) => can_write(path),
        }
    }

    fn put(&self, content: &[u8]) -> io::Result<()> {
        match self {
            Place::Stdout => {
                let mut stdout = io::stdout().lock();
                without_reader(stdout.write_all(content).and_then(|()| stdout.flush()))
            }
            Place::File(path) => replace(path, content),
            Place::Stream(path) => without_reader(stream(path, content)),
        }
    }
}

/// A complaint about a file by the name that it was given, not that of the file beside it.
fn named(path: &Path, error: &io::Error) -> String {
    let inner = error.get_ref().and_then(|error| error.source());
    let name = if is_stdout(path) {
        "stdout".into()
    } else {
        path.to_string_lossy()
    };
    match inner {
        Some(inner) => format!("{}: {inner}", printable(&name)),
        None => format!("{}: {error}", printable(&name)),
    }
}

/// A reader who has closed the pipe has seen enough.
fn without_reader(written: io::Result<()>) -> io::Result<()> {
    match written {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        written => written,
    }
}

fn try_file(path: &Path) -> io::Result<()> {
    // Renaming would replace a file that may not be written to.
    match OpenOptions::new().write(true).open(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    beside(path).map(drop)
}

fn can_write(path: &Path) -> io::Result<()> {
    rustix::fs::access(path, rustix::fs::Access::WRITE_OK)?;
    Ok(())
}

/// A file in the same folder under a name of its own, which is removed unless it gets another one.
fn beside(path: &Path) -> io::Result<tempfile::NamedTempFile> {
    tempfile::Builder::new()
        .prefix(".cudasnap-")
        .suffix(".part")
        // As any file that a program makes; the umask takes its part.
        .permissions(Permissions::from_mode(0o666))
        .tempfile_in(folder_of(path))
}

fn replace(path: &Path, content: &[u8]) -> io::Result<()> {
    let mut file = beside(path)?;
    file.write_all(content)?;
    if let Ok(old) = std::fs::metadata(path) {
        file.as_file().set_permissions(old.permissions())?;
    }
    // The name must not lead to an empty file after a power cut.
    file.as_file().sync_all()?;
    file.persist(path).map_err(|error| error.error)?;
    Ok(())
}

/// Opening a pipe that nobody reads is an error rather than a wait.
fn stream(path: &Path, content: &[u8]) -> io::Result<()> {
    let mut file: File = OpenOptions::new()
        .write(true)
        .custom_flags(libc::O_NONBLOCK)
        .open(path)?;
    let flags = rustix::fs::fcntl_getfl(&file)?;
    rustix::fs::fcntl_setfl(&file, flags - rustix::fs::OFlags::NONBLOCK)?;
    file.write_all(content)
}

#[cfg(test)]
mod tests;
