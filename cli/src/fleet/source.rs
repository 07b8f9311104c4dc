//! Where lines come from: files, with the name of the host in front where it is told.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use crate::foreign_text::printable;

/// A file on the command line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Source {
    /// Name of the host.
    pub label: String,
    /// Whether that name was given.
    pub is_labelled: bool,
    /// The file; `None` is stdin.
    pub path: Option<PathBuf>,
}

impl Source {
    /// From `FILE`, `LABEL=FILE` or `-`. A file that is there under the whole text is that file.
    pub fn new(text: &str, is_there: impl Fn(&Path) -> bool) -> Self {
        if is_there(Path::new(text)) {
            return Source::named(None, text);
        }
        match text.split_once('=') {
            Some((label, path)) if !label.is_empty() && !path.is_empty() => {
                Source::named(Some(label), path)
            }
            _ => Source::named(None, text),
        }
    }

    fn named(label: Option<&str>, path: &str) -> Self {
        let file = Path::new(path);
        let stem = match path {
            "-" => "stdin".into(),
            _ => file
                .file_name()
                .unwrap_or(file.as_os_str())
                .to_string_lossy(),
        };
        Source {
            label: printable(label.unwrap_or(&stem)),
            is_labelled: label.is_some(),
            path: (path != "-").then(|| file.to_path_buf()),
        }
    }

    /// All of them. Files of the same name get as much of their paths for a name as tells them apart.
    pub fn all(texts: &[String]) -> Vec<Self> {
        let mut all: Vec<Self> = texts
            .iter()
            .map(|text| Source::new(text, |path| path.exists()))
            .collect();
        tell_apart(&mut all);
        all
    }

    /// Which file it is, whatever its name: device and inode.
    pub fn identity(&self) -> Option<(u64, u64)> {
        let found = match &self.path {
            Some(path) => rustix::fs::stat(path),
            None => rustix::fs::fstat(io::stdin()),
        };
        found.ok().map(|found| (found.st_dev, found.st_ino))
    }

    /// The last parts of its path, so many.
    fn tail(&self, parts: usize) -> Option<String> {
        let path = self.path.as_ref().filter(|_| !self.is_labelled)?;
        let all: Vec<_> = path.components().collect();
        let last: PathBuf = all[all.len().saturating_sub(parts)..].iter().collect();
        Some(printable(&last.to_string_lossy()))
    }

    /// What it is called in messages.
    pub fn shown(&self) -> String {
        match &self.path {
            Some(path) => printable(&path.to_string_lossy()),
            None => "stdin".into(),
        }
    }

    /// The same, with the host's name where it was given.
    pub fn as_given(&self) -> String {
        match self.is_labelled {
            true => format!("{}={}", self.label, self.shown()),
            false => self.shown(),
        }
    }

    /// Opens it.
    ///
    /// # Errors
    /// It is not there, may not be read, or is a folder.
    pub fn open(&self) -> io::Result<Box<dyn Read>> {
        let Some(path) = &self.path else {
            return Ok(Box::new(io::stdin().lock()));
        };
        let file = File::open(path)?;
        if file.metadata()?.is_dir() {
            return Err(io::Error::other("it is a folder: name the files in it"));
        }
        Ok(Box::new(file))
    }
}

fn tell_apart(all: &mut [Source]) {
    let mut of_name: BTreeMap<String, Vec<usize>> = BTreeMap::new();
    for (at, source) in all.iter().enumerate() {
        if let Some(name) = source.tail(1) {
            of_name.entry(name).or_default().push(at);
        }
    }
    for same in of_name.into_values() {
        let paths: BTreeSet<&Option<PathBuf>> = same.iter().map(|at| &all[*at].path).collect();
        let longest = paths.iter().flat_map(|path| path.as_ref());
        let longest = longest.map(|path| path.components().count()).max();
        let differ = |parts: &usize| {
            let tails: BTreeSet<_> = same.iter().map(|at| all[*at].tail(*parts)).collect();
            tails.len() == paths.len()
        };
        let parts = (1..=longest.unwrap_or(1)).find(differ);
        for at in same {
            if let Some(name) = all[at].tail(parts.unwrap_or(usize::MAX)) {
                all[at].label = name;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_is_named_by_label_or_file() {
        let of = |text: &str, there: &str| {
            let source = Source::new(text, |path| path == Path::new(there));
            let shown = source.shown();
            (source.label, shown)
        };
        let pair = |label: &str, path: &str| (label.to_owned(), path.to_owned());
        assert_eq!(of("/x/a.jsonl", ""), pair("a.jsonl", "/x/a.jsonl"));
        assert_eq!(of("node7=/x/a.jsonl", ""), pair("node7", "/x/a.jsonl"));
        assert_eq!(of("a=b.jsonl", "a=b.jsonl"), pair("a=b.jsonl", "a=b.jsonl"));
        assert_eq!(of("-", ""), pair("stdin", "stdin"));
        assert_eq!(of("node7=-", ""), pair("node7", "stdin"));
        assert_eq!(of("=b", ""), pair("=b", "=b"));
        assert_eq!(of("a\u{1b}=b", ""), pair("a\\u{1b}", "b"));
    }

    fn names(texts: &[&str]) -> Vec<String> {
        let texts: Vec<String> = texts.iter().map(|text| (*text).to_owned()).collect();
        let all = Source::all(&texts).into_iter();
        all.map(|source| source.label).collect()
    }

    #[test]
    fn files_of_one_name_are_told_apart_by_their_folders() {
        assert_eq!(
            names(&["n1/rep.jsonl", "n2/rep.jsonl", "n2/other.jsonl"]),
            ["n1/rep.jsonl", "n2/rep.jsonl", "other.jsonl"]
        );
        assert_eq!(
            names(&["/logs/n1/x/rep", "/logs/n2/x/rep", "rep"]),
            ["n1/x/rep", "n2/x/rep", "rep"]
        );
        // A name that was given stays.
        assert_eq!(names(&["n=a/rep", "n=b/rep", "c/rep"]), ["n", "n", "rep"]);
        // One file twice is one host.
        assert_eq!(names(&["a/rep", "a/rep"]), ["rep", "rep"]);
        assert_eq!(names(&["-", "stdin"]), ["stdin", "stdin"]);
    }

    #[test]
    fn a_file_is_itself_by_every_path() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        std::fs::write(path("a"), "").unwrap();
        std::fs::write(path("b"), "").unwrap();
        std::os::unix::fs::symlink(path("a"), path("link")).unwrap();
        let identity = |name: &str| {
            let source = Source::new(path(name).to_str().unwrap(), |_| true);
            source.identity()
        };
        assert!(identity("a").is_some());
        assert_eq!(identity("a"), identity("link"));
        assert_ne!(identity("a"), identity("b"));
        assert_eq!(identity("none"), None);
    }
}
