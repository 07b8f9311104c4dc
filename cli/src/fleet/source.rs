//! Where lines come from: files, with the name of the host in front where it is told.

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use crate::foreign_text::printable;

/// A file on the command line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Source {
    /// Name of the host.
    pub label: String,
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
            path: (path != "-").then(|| file.to_path_buf()),
        }
    }

    /// What it is called in messages.
    pub fn shown(&self) -> String {
        match &self.path {
            Some(path) => printable(&path.to_string_lossy()),
            None => "stdin".into(),
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
}
