//! One line of `/proc/self/maps`.

use crate::lines::parse_number;

/// One line of `/proc/self/maps`, without its path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mapping {
    /// First address.
    pub start: usize,
    /// Address after the last.
    pub end: usize,
    /// `r`
    pub readable: bool,
    /// `w`
    pub writable: bool,
    /// `x`
    pub executable: bool,
    /// `s`: what is written there others see.
    pub shared: bool,
    /// Offset in the file.
    pub offset: u64,
    /// Device and inode; an inode of 0 means anonymous memory. In a container, files of two file systems may share an inode.
    pub file: (u64, u64),
}

impl Mapping {
    /// Whether it is a file's.
    pub const fn is_file(&self) -> bool {
        self.file.1 != 0
    }

    /// Whether the address lies inside.
    pub const fn contains(&self, address: usize) -> bool {
        self.start <= address && address < self.end
    }
}

/// Parses one line; `None` when it has another form.
pub fn parse_line(line: &[u8]) -> Option<Mapping> {
    let mut fields = line
        .split(|&byte| byte == b' ')
        .filter(|field| !field.is_empty());
    let range = fields.next()?;
    let perms = fields.next()?;
    let offset = parse_number(fields.next()?, 16)?;
    let device = parse_device(fields.next()?)?;
    let inode = parse_number(fields.next()?, 10)?;
    let dash = range.iter().position(|&byte| byte == b'-')?;
    let (start, end) = (range.get(..dash)?, range.get(dash + 1..)?);
    Some(Mapping {
        start: parse_number(start, 16)? as usize,
        end: parse_number(end, 16)? as usize,
        readable: perms.first() == Some(&b'r'),
        writable: perms.get(1) == Some(&b'w'),
        executable: perms.get(2) == Some(&b'x'),
        shared: perms.get(3) == Some(&b's'),
        offset,
        file: (device, inode),
    })
}

/// `major:minor`, in hex.
fn parse_device(text: &[u8]) -> Option<u64> {
    let colon = text.iter().position(|&byte| byte == b':')?;
    let major = parse_number(text.get(..colon)?, 16)?;
    let minor = parse_number(text.get(colon + 1..)?, 16)?;
    Some(major << 32 | minor)
}

/// The path of a line of `/proc/self/maps`: what follows the inode; empty for anonymous memory.
pub fn path_of(line: &[u8]) -> &[u8] {
    let mut rest = line;
    for _ in 0..5 {
        rest = rest.trim_ascii_start();
        let end = rest
            .iter()
            .position(|&byte| byte == b' ')
            .unwrap_or(rest.len());
        rest = rest.get(end..).unwrap_or_default();
    }
    rest.trim_ascii()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_line_of_the_kernel_is_understood() {
        let line = b"7f2e58e9b000-7f2e58ebd000 r-xp 00001000 fe:00 12345                      /usr/lib/lib with space.so";
        let mapping = parse_line(line).unwrap();
        assert_eq!(mapping.start, 0x7f2e58e9b000);
        assert_eq!(mapping.end, 0x7f2e58ebd000);
        assert!(mapping.readable && !mapping.writable && mapping.executable && !mapping.shared);
        assert_eq!(
            (mapping.offset, mapping.file),
            (0x1000, (0xfe << 32, 12345))
        );
        assert!(!parse_line(b"7fff0-7fff1 rw-p 0 00:00 0").unwrap().is_file());
    }

    #[test]
    fn a_path_is_what_follows_the_inode() {
        assert_eq!(
            path_of(b"1-2 r--p 0 fe:00 12    /usr/lib/with space.so"),
            b"/usr/lib/with space.so"
        );
        assert_eq!(path_of(b"1-2 rw-p 0 00:00 0"), b"");
        assert_eq!(path_of(b""), b"");
    }

    proptest! {
        #[test]
        fn no_line_makes_it_fall_over(line in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = parse_line(&line);
        }

        #[test]
        fn what_is_printed_is_read_back(start in any::<u32>(), len in 1u32.., offset in any::<u32>(), inode in any::<u32>()) {
            let (start, end) = (start as usize, start as usize + len as usize);
            let line = format!("{start:08x}-{end:08x} rw-p {offset:08x} 00:00 {inode} ");
            let expected = Mapping {
                start, end, readable: true, writable: true, executable: false, shared: false,
                offset: offset.into(), file: (0, inode.into()),
            };
            prop_assert_eq!(parse_line(line.as_bytes()), Some(expected));
        }
    }
}
