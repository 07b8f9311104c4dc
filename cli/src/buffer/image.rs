//! Pure: the head of a saved buffer. The file is [`HEAD`] bytes of text that people may read (`head -n 2 FILE`), then the
//! buffer's bytes as they were.

use serde::{Deserialize, Serialize};

use super::origin::Origin;

/// Bytes of the head: a page, so that the contents can be mapped.
pub const HEAD: usize = 4096;
const MAGIC: &str = "CUDASNAPBUF 1";

/// What the head says.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Head {
    /// Bytes of the buffer.
    pub length: u64,
    /// blake3 of the buffer's bytes, in hexadecimal.
    pub blake3: String,
    /// Where they came from.
    #[serde(flatten)]
    pub origin: Origin,
    /// Where the buffer lay in that process.
    pub address: u64,
    /// Version of the library in it; empty without one.
    pub library_version: String,
    /// Build id of that library; empty without one.
    pub build_id: String,
    /// When it was saved, in milliseconds since 1970.
    pub saved_unix_ms: u64,
}

impl Head {
    /// The head as it stands in the file, padded with blanks; `None` when it does not fit.
    pub fn to_bytes(&self) -> Option<Vec<u8>> {
        let json = serde_json::to_string(self).ok()?;
        let mut bytes = format!("{MAGIC}\n{json}\n").into_bytes();
        if bytes.len() >= HEAD {
            return None;
        }
        bytes.resize(HEAD - 1, b' ');
        bytes.push(b'\n');
        Some(bytes)
    }

    /// Reads the head of a file that is `file_length` bytes long.
    ///
    /// # Errors
    /// It is no saved buffer, one that was not finished, or damaged.
    pub fn parse(bytes: &[u8], file_length: u64) -> Result<Self, String> {
        let text = std::str::from_utf8(bytes).unwrap_or_default();
        let mut lines = text.lines();
        match lines.next() {
            Some(MAGIC) => {}
            Some(line) if line.starts_with("CUDASNAPBUF ") => {
                return Err(format!("layout {line:?} is not known to this version"));
            }
            _ => return Err("no buffer that `save` finished".into()),
        }
        let head: Head = serde_json::from_str(lines.next().unwrap_or_default())
            .map_err(|error| format!("its head is damaged: {error}"))?;
        if head.length.checked_add(HEAD as u64) != Some(file_length) {
            return Err(format!(
                "damaged: its head tells of {} bytes, the file holds {}",
                head.length,
                file_length.saturating_sub(HEAD as u64)
            ));
        }
        Ok(head)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn head() -> Head {
        Head {
            length: 1000,
            blake3: "ab".into(),
            origin: Origin {
                pid: 7,
                started: 8,
                boot_id: "b".into(),
                name: "pt_main_thread".into(),
            },
            address: 0x7f00_0000_0000,
            library_version: "0.1.0".into(),
            build_id: "cd".into(),
            saved_unix_ms: 9,
        }
    }

    #[test]
    fn a_head_goes_there_and_back_and_fills_a_page() {
        let bytes = head().to_bytes().unwrap();
        assert_eq!(bytes.len(), HEAD);
        assert_eq!(Head::parse(&bytes, HEAD as u64 + 1000), Ok(head()));
    }

    #[test]
    fn what_is_no_finished_file_is_refused() {
        let bytes = head().to_bytes().unwrap();
        for (bytes, length, words) in [
            (
                vec![0; HEAD],
                HEAD as u64 + 1000,
                "no buffer that `save` finished",
            ),
            (vec![], 0, "no buffer that `save` finished"),
            (vec![0xff; 10], 10, "no buffer that `save` finished"),
            (bytes.clone(), HEAD as u64 + 999, "damaged"),
            (bytes[..40].to_vec(), 40, "its head is damaged"),
            (
                b"CUDASNAPBUF 2\n{}".to_vec(),
                16,
                "not known to this version",
            ),
        ] {
            let why = Head::parse(&bytes, length).unwrap_err();
            assert!(why.contains(words), "{why}");
        }
        let mut huge = head();
        huge.length = u64::MAX;
        let bytes = huge.to_bytes().unwrap();
        assert!(Head::parse(&bytes, 5).unwrap_err().contains("damaged"));
        huge.origin.name = "x".repeat(HEAD);
        assert_eq!(huge.to_bytes(), None);
    }
}
