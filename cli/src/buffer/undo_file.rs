//! Pure: the file from which a write is undone. It is JSON: people may read it.

use serde::{Deserialize, Serialize};

use super::origin::Origin;
use super::words::{hex, to_hex};

const KIND: &str = "cudasnap-undo";

/// A write, with what was there before.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Undo {
    /// Whose buffer.
    pub origin: Origin,
    /// The buffer's length.
    pub buffer_length: u64,
    /// Where, counted from the buffer's start.
    pub offset: u64,
    /// The bytes before.
    pub old: Vec<u8>,
    /// The bytes that were written, as many.
    pub new: Vec<u8>,
}

#[derive(Serialize, Deserialize)]
struct Text {
    kind: String,
    schema: u32,
    #[serde(flatten)]
    origin: Origin,
    buffer_length: u64,
    offset: u64,
    old: String,
    new: String,
}

impl Undo {
    /// As it stands in the file.
    pub fn to_text(&self) -> String {
        let text = Text {
            kind: KIND.into(),
            schema: 1,
            origin: self.origin.clone(),
            buffer_length: self.buffer_length,
            offset: self.offset,
            old: to_hex(&self.old),
            new: to_hex(&self.new),
        };
        // Numbers and strings: there is nothing in it that JSON could refuse.
        serde_json::to_string_pretty(&text).unwrap_or_default() + "\n"
    }

    /// Whether these bytes can be what the write has left there: each the old one or the new one. The kernel copies page by page,
    /// so a tool that was killed in the middle leaves some of each.
    pub fn left(&self, now: &[u8]) -> bool {
        let pairs = self.old.iter().zip(&self.new);
        let mut each = now.iter().zip(pairs);
        now.len() == self.old.len() && each.all(|(now, (old, new))| now == old || now == new)
    }

    /// Reads a file.
    ///
    /// # Errors
    /// It is no undo file, or damaged.
    pub fn parse(text: &str) -> Result<Self, String> {
        let text: Text =
            serde_json::from_str(text).map_err(|error| format!("no undo file: {error}"))?;
        if text.kind != KIND || text.schema != 1 {
            return Err(format!(
                "no undo file of this version, but {} {}",
                text.kind, text.schema
            ));
        }
        let (old, new) = (hex(&text.old)?, hex(&text.new)?);
        if old.len() != new.len() || old.is_empty() {
            return Err("damaged: old and new bytes are not as many".into());
        }
        Ok(Undo {
            origin: text.origin,
            buffer_length: text.buffer_length,
            offset: text.offset,
            old,
            new,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn undo(old: Vec<u8>, new: Vec<u8>, offset: u64) -> Undo {
        Undo {
            origin: Origin {
                pid: 7,
                started: 9,
                boot_id: "b".into(),
                name: "a \"b\" \u{1}".into(),
            },
            buffer_length: u64::MAX,
            offset,
            old,
            new,
        }
    }

    proptest! {
        #[test]
        fn it_goes_there_and_back(
            pairs in proptest::collection::vec(any::<(u8, u8)>(), 1..50), offset in any::<u64>(),
        ) {
            let (old, new) = pairs.into_iter().unzip();
            let undo = undo(old, new, offset);
            prop_assert_eq!(Undo::parse(&undo.to_text()), Ok(undo));
        }

        #[test]
        fn a_cut_file_is_refused(cut in 0usize..200) {
            let text = undo(vec![1, 2], vec![3, 4], 5).to_text();
            prop_assume!(cut < text.trim_end().len());
            prop_assert!(Undo::parse(&text[..cut]).is_err());
        }
    }

    #[test]
    fn a_write_that_was_cut_off_is_known() {
        let undo = undo(vec![1, 2, 3], vec![4, 5, 6], 0);
        for now in [[1, 2, 3], [4, 5, 6], [4, 2, 3], [1, 5, 6]] {
            assert!(undo.left(&now), "{now:?}");
        }
        assert!(!undo.left(&[4, 5, 7]) && !undo.left(&[4, 5]) && !undo.left(&[1, 2, 3, 0]));
    }

    #[test]
    fn other_files_are_refused() {
        assert!(Undo::parse("{}").is_err());
        let text = undo(vec![1], vec![2], 0).to_text();
        assert!(Undo::parse(&text.replace("cudasnap-undo", "x")).is_err());
        assert!(Undo::parse(&text.replace("\"schema\": 1", "\"schema\": 2")).is_err());
        let uneven = text.replace("\"old\": \"01\"", "\"old\": \"0102\"");
        assert!(Undo::parse(&uneven).unwrap_err().contains("damaged"));
    }
}
