//! Text in a buffer on the stack, for paths, messages and report lines where nothing may be allocated.

use core::fmt;

/// Up to `N` bytes of text. What does not fit is cut and remembered.
pub struct Text<const N: usize> {
    bytes: [u8; N],
    used: usize,
    cut: bool,
}

impl<const N: usize> Text<N> {
    /// No text.
    pub const fn new() -> Self {
        Text {
            bytes: [0; N],
            used: 0,
            cut: false,
        }
    }

    /// The text so far.
    pub fn as_bytes(&self) -> &[u8] {
        self.bytes.get(..self.used).unwrap_or_default()
    }

    /// Whether something did not fit.
    pub const fn is_cut(&self) -> bool {
        self.cut
    }

    /// Length, for [`Text::truncate`].
    pub const fn len(&self) -> usize {
        self.used
    }

    /// Takes back everything after `len`, and with it what did not fit.
    pub fn truncate(&mut self, len: usize) {
        self.cut &= len > self.used;
        self.used = self.used.min(len);
    }

    /// Appends bytes.
    pub fn push(&mut self, more: &[u8]) {
        let room = N - self.used;
        let taken = more.len().min(room);
        self.cut |= taken < more.len();
        let target = self.bytes.get_mut(self.used..self.used + taken);
        if let (Some(target), Some(source)) = (target, more.get(..taken)) {
            target.copy_from_slice(source);
            self.used += taken;
        }
    }
}

impl<const N: usize> fmt::Write for Text<N> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.push(text.as_bytes());
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::fmt::Write;
    use proptest::prelude::*;

    proptest! {
        /// Whatever is appended and taken back, it holds the beginning of what a plain string would, and says when it cuts.
        #[test]
        fn it_is_a_string_that_ends(pieces in proptest::collection::vec((any::<bool>(), proptest::collection::vec(any::<u8>(), 0..12), 0usize..40), 0..12)) {
            let mut text = Text::<24>::new();
            let mut whole: Vec<u8> = Vec::new();
            for (takes_back, piece, length) in pieces {
                if takes_back {
                    text.truncate(length);
                    whole.truncate(length.min(text.len()));
                } else {
                    let cut = text.is_cut();
                    text.push(&piece);
                    whole.extend_from_slice(&piece);
                    prop_assert_eq!(text.is_cut(), cut || whole.len() > 24);
                    whole.truncate(24);
                }
                prop_assert_eq!(text.as_bytes(), &whole[..]);
                prop_assert_eq!(text.len(), whole.len());
            }
        }
    }

    #[test]
    fn what_does_not_fit_is_cut_and_said() {
        let mut text = Text::<8>::new();
        write!(text, "{}-abc", 12).unwrap();
        assert_eq!(text.as_bytes(), b"12-abc");
        assert!(!text.is_cut());
        text.push(b"defg");
        assert_eq!(text.as_bytes(), b"12-abcde");
        assert!(text.is_cut());
        text.truncate(2);
        assert_eq!(text.as_bytes(), b"12");
        assert!(!text.is_cut());
    }
}
