//! Words of the command line: offsets and sizes, address ranges, bytes.

use std::fmt;
use std::str::FromStr;

use crate::values;

/// A number of bytes: decimal, or hexadecimal with `0x`; K, M, G, T stand for powers of 1024.
///
/// # Errors
/// What is wrong with the text.
pub fn size(text: &str) -> Result<u64, String> {
    let (number, unit) = match text.as_bytes().last() {
        Some(letter) if letter.is_ascii() => {
            let shift = match letter.to_ascii_uppercase() {
                b'K' => 10,
                b'M' => 20,
                b'G' => 30,
                b'T' => 40,
                _ => 0,
            };
            (&text[..text.len() - usize::from(shift > 0)], shift)
        }
        _ => (text, 0),
    };
    let wrong = || values::takes("bytes, such as 4096, 0x1000 or 4K");
    let bytes = unsigned(number).and_then(|number| number.checked_mul(1 << unit));
    bytes.ok_or_else(wrong)
}

/// A number, decimal or hexadecimal with `0x`.
fn unsigned(text: &str) -> Option<u64> {
    let (digits, radix) = match text.strip_prefix("0x").or(text.strip_prefix("0X")) {
        Some(digits) => (digits, 16),
        None => (text, 10),
    };
    // from_str_radix would take a sign.
    let plain = digits.bytes().all(|byte| byte.is_ascii_alphanumeric());
    u64::from_str_radix(digits, radix).ok().filter(|_| plain)
}

/// A range of addresses, half open.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Span {
    /// First address.
    pub start: u64,
    /// First address after it.
    pub end: u64,
}

impl Span {
    /// Bytes.
    pub fn length(&self) -> u64 {
        self.end.saturating_sub(self.start)
    }
}

impl fmt::Display for Span {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{:#x}-{:#x}", self.start, self.end)
    }
}

/// Where the buffer is said to begin and, optionally, end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct At {
    /// First address.
    pub start: u64,
    /// First address after it; `None`: where the mapping ends.
    pub end: Option<u64>,
}

impl FromStr for At {
    type Err = String;

    /// Hexadecimal as in `/proc/PID/maps`, with or without `0x`: `START` or `START-END`.
    fn from_str(text: &str) -> Result<Self, String> {
        let address = |text: &str| {
            let digits = text.strip_prefix("0x").unwrap_or(text);
            let plain = digits.bytes().all(|byte| byte.is_ascii_hexdigit());
            u64::from_str_radix(digits, 16).ok().filter(|_| plain)
        };
        let (start, end) = match text.split_once('-') {
            Some((start, end)) => (address(start), Some(address(end))),
            None => (address(text), None),
        };
        match (start, end) {
            (Some(start), None) => Ok(At { start, end: None }),
            (Some(start), Some(Some(end))) if start < end => Ok(At {
                start,
                end: Some(end),
            }),
            _ => Err(values::takes(
                "hexadecimal START or START-END, as in /proc/PID/maps",
            )),
        }
    }
}

/// Bytes to look for or to write.
#[derive(Debug, Clone, PartialEq, clap::Args)]
#[group(required = true, multiple = false)]
pub struct BytesArgs {
    /// Bytes in hexadecimal, in the order of memory; blanks between them are allowed
    #[arg(value_name = "HEX", value_parser = values::text())]
    hex: Vec<String>,
    /// These characters, in UTF-8
    #[arg(long, value_name = "STRING", value_parser = values::text())]
    text: Option<String>,
    /// A 32-bit number, little endian
    #[arg(long, value_name = "N", value_parser = values::read(number::<u32>))]
    u32: Option<u32>,
    /// A 64-bit number, little endian
    #[arg(long, value_name = "N", value_parser = values::read(number::<u64>))]
    u64: Option<u64>,
    /// A 32-bit floating point number, little endian
    #[arg(long, value_name = "X", allow_negative_numbers = true, value_parser = values::read(float))]
    f32: Option<f32>,
}

impl BytesArgs {
    /// The bytes, at least one.
    ///
    /// # Errors
    /// What is wrong with them.
    pub fn bytes(&self) -> Result<Vec<u8>, String> {
        let bytes = match (&self.text, self.u32, self.u64, self.f32) {
            (Some(text), ..) => text.as_bytes().to_vec(),
            (_, Some(number), ..) => number.to_le_bytes().to_vec(),
            (_, _, Some(number), _) => number.to_le_bytes().to_vec(),
            (.., Some(number)) => number.to_le_bytes().to_vec(),
            _ => hex(&self.hex.join(" "))?,
        };
        if bytes.is_empty() {
            return Err("no bytes were given".into());
        }
        Ok(bytes)
    }
}

fn number<T: TryFrom<u64>>(text: &str) -> Result<T, String> {
    let number = unsigned(text).and_then(|number| T::try_from(number).ok());
    let most = u64::MAX >> (u64::BITS as usize - 8 * size_of::<T>());
    number.ok_or_else(|| {
        values::takes(format_args!(
            "a number from 0 to {most}, such as 42 or 0x2a"
        ))
    })
}

fn float(text: &str) -> Result<f32, String> {
    let number = text.parse();
    number.map_err(|_| values::takes("a number, such as -1.5 or 1e-3"))
}

/// Bytes in hexadecimal, pairs of digits with or without blanks between them.
///
/// # Errors
/// What is wrong with the text.
pub fn hex(text: &str) -> Result<Vec<u8>, String> {
    let mut bytes = Vec::new();
    for word in text.split_whitespace() {
        if word.starts_with("0x") || word.starts_with("0X") {
            return Err(format!(
                "{word}: HEX is bytes in the order of memory, without 0x; for a number use --u32 or --u64"
            ));
        }
        if word.len() % 2 != 0 {
            return Err(format!("{word}: each byte takes two digits"));
        }
        for pair in word.as_bytes().chunks_exact(2) {
            let digit = |byte: u8| char::from(byte).to_digit(16);
            match (digit(pair[0]), digit(pair[1])) {
                (Some(high), Some(low)) => bytes.push((high << 4 | low) as u8),
                _ => return Err(format!("{word}: not hexadecimal")),
            }
        }
    }
    Ok(bytes)
}

/// Bytes as hexadecimal digits without blanks.
pub fn to_hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn sizes_have_units_and_do_not_overflow() {
        for (text, expected) in [
            ("0", Some(0)),
            ("4096", Some(4096)),
            ("0x1f", Some(31)),
            ("0X1F", Some(31)),
            ("4k", Some(4096)),
            ("3M", Some(3 << 20)),
            ("0x10M", Some(16 << 20)),
            ("2G", Some(2 << 30)),
            ("1T", Some(1 << 40)),
            ("18446744073709551615", Some(u64::MAX)),
            ("0xffffffffffffffff", Some(u64::MAX)),
            ("18446744073709551616", None),
            ("16777216T", None),
            ("", None),
            ("K", None),
            ("-1", None),
            ("+1", None),
            ("0x+1", None),
            ("1.5G", None),
            ("1é", None),
            ("é", None),
        ] {
            assert_eq!(size(text).ok(), expected, "{text}");
        }
    }

    #[test]
    fn ranges_are_those_of_maps() {
        let at = |text: &str| text.parse::<At>().ok().map(|at| (at.start, at.end));
        assert_eq!(at("7f00a000"), Some((0x7f00_a000, None)));
        assert_eq!(at("0x7f00a000"), Some((0x7f00_a000, None)));
        assert_eq!(at("1000-0x3000"), Some((0x1000, Some(0x3000))));
        for wrong in [
            "",
            "-",
            "1000-",
            "3000-1000",
            "1000-1000",
            "+10",
            "x",
            "1-2-3",
        ] {
            assert_eq!(at(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn hexadecimal_is_bytes_in_order() {
        assert_eq!(hex("de ad beEF"), Ok(vec![0xde, 0xad, 0xbe, 0xef]));
        assert!(hex("0x2a").unwrap_err().contains("--u32"));
        assert!(hex("abc").unwrap_err().contains("two digits"));
        assert!(hex("zz").unwrap_err().contains("not hexadecimal"));
        assert!(hex("é").unwrap_err().contains("not hexadecimal"));
        assert_eq!(hex("  "), Ok(vec![]));
    }

    #[test]
    fn numbers_are_little_endian() {
        let none = BytesArgs {
            hex: vec![],
            text: None,
            u32: None,
            u64: None,
            f32: None,
        };
        let bytes = |args: BytesArgs| args.bytes().unwrap();
        assert_eq!(
            bytes(BytesArgs {
                u32: Some(1),
                ..none.clone()
            }),
            [1, 0, 0, 0]
        );
        assert_eq!(
            bytes(BytesArgs {
                u64: Some(2),
                ..none.clone()
            })[0],
            2
        );
        assert_eq!(
            bytes(BytesArgs {
                f32: Some(-1.5),
                ..none.clone()
            }),
            (-1.5f32).to_le_bytes()
        );
        assert_eq!(
            bytes(BytesArgs {
                text: Some("hi".into()),
                ..none.clone()
            }),
            b"hi"
        );
        assert!(none.bytes().is_err());
        assert_eq!(number::<u32>("0x2a"), Ok(42));
        assert!(number::<u32>("4294967296").is_err());
    }

    proptest! {
        #[test]
        fn hexadecimal_goes_there_and_back(bytes in proptest::collection::vec(any::<u8>(), 0..64)) {
            prop_assert_eq!(hex(&to_hex(&bytes)), Ok(bytes));
        }
    }
}
