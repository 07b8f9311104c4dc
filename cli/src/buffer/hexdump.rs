//! Bytes as lines for people.

use std::fmt::Write;

/// Bytes on a line.
pub const WIDTH: usize = 16;

/// Hexadecimal digits that the offsets of a buffer of this length take, at least 8.
pub fn digits(length: u64) -> usize {
    let bits = u64::BITS - length.leading_zeros();
    (bits as usize).div_ceil(4).max(8)
}

/// A line: offset, up to 16 bytes, the same as characters.
pub fn line(offset: u64, digits: usize, bytes: &[u8]) -> String {
    let mut text = format!("0x{offset:0digits$x} ");
    for column in 0..WIDTH {
        if column % 8 == 0 {
            text.push(' ');
        }
        match bytes.get(column) {
            // Writing into a string cannot fail.
            Some(byte) => drop(write!(text, "{byte:02x} ")),
            None => text.push_str("   "),
        }
    }
    text.push_str(" |");
    text.extend(bytes.iter().take(WIDTH).map(|byte| character(*byte)));
    text.push('|');
    text
}

fn character(byte: u8) -> char {
    if byte == b' ' || byte.is_ascii_graphic() {
        byte.into()
    } else {
        '.'
    }
}

/// Lines over a stream of pieces; lines that repeat the one before are told as one `*`, as hexdump does.
#[derive(Debug)]
pub struct Dump {
    digits: usize,
    squeeze: bool,
    last: Vec<u8>,
    starred: bool,
}

impl Dump {
    /// Lines with offsets of so many digits; `squeeze`: repeated lines as `*`.
    pub fn new(digits: usize, squeeze: bool) -> Self {
        Dump {
            digits,
            squeeze,
            last: Vec::new(),
            starred: false,
        }
    }

    /// The lines of a piece that begins at `offset`. Every piece but the last must be a multiple of [`WIDTH`] long.
    pub fn lines(&mut self, offset: u64, piece: &[u8]) -> String {
        let mut text = String::new();
        for (number, bytes) in piece.chunks(WIDTH).enumerate() {
            if self.squeeze && bytes == self.last {
                if !self.starred {
                    text.push_str("*\n");
                    self.starred = true;
                }
                continue;
            }
            self.starred = false;
            self.last.clear();
            self.last.extend_from_slice(bytes);
            text.push_str(&line(offset + (number * WIDTH) as u64, self.digits, bytes));
            text.push('\n');
        }
        text
    }
}

/// Old and new bytes side by side, eight to a line; at most `lines` of them, then how many bytes more.
pub fn change(offset: u64, digits: usize, old: &[u8], new: &[u8], lines: usize) -> String {
    const EACH: usize = 8;
    let mut text = String::new();
    let pairs = old.chunks(EACH).zip(new.chunks(EACH));
    for (number, (old, new)) in pairs.enumerate().take(lines) {
        let at = offset + (number * EACH) as u64;
        let (old, new) = (spaced(old), spaced(new));
        let _ = writeln!(text, "0x{at:0digits$x}  {old:<23}  ->  {new}");
    }
    let shown = lines.saturating_mul(EACH);
    if old.len() > shown {
        let _ = writeln!(text, "... and {} bytes more", old.len() - shown);
    }
    text
}

fn spaced(bytes: &[u8]) -> String {
    let words: Vec<String> = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    words.join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_has_offset_bytes_and_characters() {
        assert_eq!(
            line(0x1f0, 8, b"0123456789abcdef"),
            "0x000001f0  30 31 32 33 34 35 36 37  38 39 61 62 63 64 65 66  |0123456789abcdef|"
        );
        assert_eq!(
            line(0, 8, &[0, 0x7f]),
            "0x00000000  00 7f                                             |..|"
        );
        assert!(line(0, 8, &[0; 16]).len() <= 80);
    }

    #[test]
    fn digits_grow_with_the_buffer() {
        assert_eq!(digits(0), 8);
        assert_eq!(digits(u64::from(u32::MAX)), 8);
        assert_eq!(digits(1 << 32), 9);
        assert_eq!(digits(u64::MAX), 16);
    }

    #[test]
    fn repeated_lines_are_one_star_also_over_pieces() {
        let mut dump = Dump::new(8, true);
        let text = dump.lines(0, &[0; 48]) + &dump.lines(48, &[0; 16]) + &dump.lines(64, &[1; 4]);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines.len(), 3, "{text}");
        assert_eq!(lines[1], "*");
        assert!(lines[2].starts_with("0x00000040"));
        let all = Dump::new(8, false).lines(0, &[0; 48]);
        assert_eq!(all.lines().count(), 3);
    }

    #[test]
    fn a_change_is_told_side_by_side_and_not_for_ever() {
        assert_eq!(
            change(16, 8, &[1, 2], &[3, 4], 4),
            "0x00000010  01 02                    ->  03 04\n"
        );
        let long = change(0, 8, &[0; 40], &[1; 40], 2);
        assert!(long.ends_with("... and 24 bytes more\n"), "{long}");
        assert_eq!(long.lines().count(), 3);
    }
}
