//! Text files of the kernel, line by line, in a small buffer on the stack.

use crate::sys;

/// Room for a line, and so what a look at the maps takes of the stack: it may be the 12 KiB one of a signal handler. What of a
/// longer line is cut is the end of a long path.
pub const LINE: usize = 768;

/// Calls `each` for every line of a file until it returns false. Lines longer than the buffer arrive cut, once. Returns
/// false when the file could not be opened or read.
pub fn for_each_line(path: &[u8], mut each: impl FnMut(&[u8]) -> bool) -> bool {
    let Ok(fd) = sys::open(path, libc::O_RDONLY, 0) else {
        return false;
    };
    let mut offset = 0;
    let read = |room: &mut [u8]| {
        let got = sys::read_at(fd, room, offset)?;
        offset += got;
        Ok(got)
    };
    let complete = read_lines(read, &mut each);
    sys::close(fd);
    complete
}

/// The same for whatever `read` fills a buffer with; it answers 0 at the end.
pub fn read_lines(
    mut read: impl FnMut(&mut [u8]) -> sys::SysResult,
    each: &mut impl FnMut(&[u8]) -> bool,
) -> bool {
    let mut buffer = [0u8; LINE];
    let mut filled = 0;
    // Set while the rest of a line that was longer than the buffer is thrown away.
    let mut cut = false;
    loop {
        let Some(room) = buffer.get_mut(filled..) else {
            return false;
        };
        let got = match read(room) {
            Ok(got) => got,
            Err(libc::EINTR) => continue,
            Err(_) => return false,
        };
        filled += got;
        let mut begin = 0;
        while let Some(rest) = buffer.get(begin..filled) {
            let Some(length) = rest.iter().position(|&byte| byte == b'\n') else {
                break;
            };
            let line = rest.get(..length).unwrap_or_default();
            if !core::mem::take(&mut cut) && !each(line) {
                return true;
            }
            begin += length + 1;
        }
        if got == 0 {
            // A last line without its newline.
            let line = buffer.get(begin..filled).unwrap_or_default();
            if !line.is_empty() && !cut {
                each(line);
            }
            return true;
        }
        if begin == 0 && filled == buffer.len() {
            if !cut && !each(&buffer) {
                return true;
            }
            cut = true;
            filled = 0;
        } else {
            buffer.copy_within(begin..filled, 0);
            filled -= begin;
        }
    }
}

/// Digits of the given base, nothing else, without overflow.
pub fn parse_number(digits: &[u8], base: u32) -> Option<u64> {
    if digits.is_empty() {
        return None;
    }
    digits.iter().try_fold(0u64, |sum, &digit| {
        let digit = (digit as char).to_digit(base)?;
        sum.checked_mul(u64::from(base))?
            .checked_add(u64::from(digit))
    })
}

/// The value of a `key value` line, if the key is one of these.
pub fn value_of(line: &[u8], keys: &[&[u8]]) -> Option<u64> {
    let space = line.iter().position(|&byte| byte == b' ')?;
    let is_meant = keys.contains(&line.get(..space)?);
    is_meant.then(|| parse_number(line.get(space + 1..)?, 10))?
}

/// Sum of the named lines of a `key value` file.
pub fn sum_of(text: &[u8], keys: &[&[u8]]) -> u64 {
    text.split(|&byte| byte == b'\n')
        .filter_map(|line| value_of(line, keys))
        .fold(0, u64::saturating_add)
}

/// Bytes, from what files such as `/proc/meminfo` say after a colon: `   1234 kB`.
pub fn parse_kib(rest: &[u8]) -> Option<u64> {
    let digits = rest.trim_ascii().split(|&byte| byte == b' ').next()?;
    Some(parse_number(digits, 10)?.saturating_mul(1024))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// However the kernel hands the text out, every line arrives once, and whole if it fits.
        #[test]
        fn lines_do_not_depend_on_the_pieces(piece in any::<u8>(), text in "([a-z ]{0,1600}\n){0,6}[a-z]{0,900}") {
            crate::fuzz::maps(&[&[piece], text.as_bytes()].concat());
        }

        #[test]
        fn numbers_are_read_back(number in any::<u64>()) {
            prop_assert_eq!(parse_number(format!("{number}").as_bytes(), 10), Some(number));
            prop_assert_eq!(parse_number(format!("{number:x}").as_bytes(), 16), Some(number));
            prop_assert_eq!(parse_number(format!("{number}0").as_bytes(), 10), number.checked_mul(10));
        }
    }

    #[test]
    fn every_line_of_a_long_file_arrives_once() {
        let path = std::env::temp_dir().join(format!("cudasnap-lines-{}", std::process::id()));
        let mut text = String::new();
        for number in 0..2000 {
            text += &format!("{number} {}\n", "x".repeat(number % 300));
        }
        text += &"y".repeat(10_000);
        text += "\nlast";
        std::fs::write(&path, &text).unwrap();
        let mut seen = Vec::new();
        let name = format!("{}\0", path.display());
        assert!(for_each_line(name.as_bytes(), |line| {
            seen.push(line.to_vec());
            true
        }));
        std::fs::remove_file(&path).unwrap();
        assert_eq!(seen.len(), 2002);
        assert_eq!(seen[1999], text.lines().nth(1999).unwrap().as_bytes());
        assert!(seen[2000].starts_with(b"yyyy"));
        assert_eq!(seen[2001], b"last");
    }

    #[cfg(not(miri))]
    #[test]
    fn a_handler_that_forks_between_two_reads_costs_no_line() {
        let path = std::env::temp_dir().join(format!("cudasnap-lines-{}", std::process::id()));
        let text: String = (0..500).map(|number| format!("line {number}\n")).collect();
        std::fs::write(&path, text).unwrap();
        let name = std::ffi::CString::new(path.to_str().unwrap()).unwrap();
        let (mut lines, mut child) = (0, -1);
        for_each_line(name.as_bytes_with_nul(), |_| {
            lines += 1;
            if lines == 1 {
                // SAFETY: the child makes system calls alone, and ends below.
                child = unsafe { libc::fork() };
                if child > 0 {
                    // SAFETY: waits for the child; its status is not asked for.
                    unsafe { libc::waitpid(child, core::ptr::null_mut(), 0) };
                }
            }
            true
        });
        if child == 0 {
            // SAFETY: ends the child here.
            unsafe { libc::_exit(0) };
        }
        std::fs::remove_file(&path).unwrap();
        assert!(child > 0 && lines == 500, "{child} {lines}");
    }

    #[test]
    fn named_lines_are_summed() {
        let stat = b"anon 5\ninactive_file 100\nactive_file 20\nshmem 7\n";
        assert_eq!(sum_of(stat, &[b"inactive_file", b"active_file"]), 120);
        assert_eq!(sum_of(b"", &[b"x"]), 0);
    }
}
