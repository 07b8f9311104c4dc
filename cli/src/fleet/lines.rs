//! Lines of a file, one at a time and none longer than a report's can be: a file without line ends takes no memory.

use std::io::{self, BufRead, BufReader, Read};

/// Longest line that is looked at: the library writes 4 KiB at most.
pub const LONGEST: usize = 64 << 10;
const BUFFER: usize = 256 << 10;

/// A line.
#[derive(Debug, PartialEq, Eq)]
pub enum Line<'a> {
    /// Without its end.
    Whole(&'a [u8]),
    /// The last one, which has no end: it may be half written.
    Unended(&'a [u8]),
    /// It is longer than [`LONGEST`].
    TooLong,
}

/// Reads lines.
pub struct Lines<R> {
    from: BufReader<R>,
    line: Vec<u8>,
}

impl<R: Read> Lines<R> {
    /// From this.
    pub fn new(from: R) -> Self {
        Lines {
            from: BufReader::with_capacity(BUFFER, from),
            line: Vec::new(),
        }
    }

    /// What comes first, without the mark of UTF-8 that some editors put there, which is skipped. Before the first line is read.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn beginning(&mut self) -> io::Result<&[u8]> {
        const MARK: &[u8] = b"\xef\xbb\xbf";
        let marked = loop {
            match self.from.fill_buf() {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                bytes => break bytes?.starts_with(MARK),
            }
        };
        if marked {
            self.from.consume(MARK.len());
        }
        Ok(self.from.buffer())
    }

    /// The next one; `None` at the end.
    ///
    /// # Errors
    /// The file cannot be read on.
    pub fn read(&mut self) -> io::Result<Option<Line<'_>>> {
        self.line.clear();
        let limit = LONGEST as u64 + 1;
        let mut rest = self.from.by_ref().take(limit);
        rest.read_until(b'\n', &mut self.line)?;
        let has_end = self.line.last() == Some(&b'\n');
        if !has_end && self.line.len() > LONGEST {
            self.skip()?;
            return Ok(Some(Line::TooLong));
        }
        Ok(match self.line.split_last() {
            None => None,
            Some((b'\n', line)) => Some(Line::Whole(line)),
            Some(_) => Some(Line::Unended(&self.line)),
        })
    }

    /// To the end of the line.
    fn skip(&mut self) -> io::Result<()> {
        loop {
            let bytes = match self.from.fill_buf() {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                bytes => bytes?,
            };
            let end = memchr::memchr(b'\n', bytes);
            let used = end.map_or(bytes.len(), |end| end + 1);
            self.from.consume(used);
            if end.is_some() || used == 0 {
                return Ok(());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(text: &[u8]) -> Vec<String> {
        let mut lines = Lines::new(text);
        let mut found = Vec::new();
        while let Some(line) = lines.read().unwrap() {
            found.push(match line {
                Line::Whole(line) => String::from_utf8_lossy(line).into_owned(),
                Line::Unended(line) => format!("half {}", String::from_utf8_lossy(line)),
                Line::TooLong => "long".into(),
            });
        }
        found
    }

    #[test]
    fn lines_are_whole_half_or_too_long() {
        assert_eq!(all(b"a\n\nb"), ["a", "", "half b"]);
        assert_eq!(all(b""), [""; 0]);
        let at_most = "x".repeat(LONGEST);
        assert_eq!(
            all(format!("{at_most}\nb\n").as_bytes()),
            [at_most.as_str(), "b"]
        );
        assert_eq!(all(format!("{at_most}x\nb\n").as_bytes()), ["long", "b"]);
        let longer = "x".repeat(3 * LONGEST);
        assert_eq!(
            all(format!("{longer}\nb\n{longer}").as_bytes()),
            ["long", "b", "long"]
        );
    }
}
