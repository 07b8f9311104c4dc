//! What /proc tells of a thread.

use core::fmt::Write;

use crate::lines::{for_each_line, parse_number};
use crate::text::Text;

/// What /proc says of a thread of this process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Told {
    /// Its name, with zeros behind it.
    pub name: Option<[u8; 16]>,
    /// Its number in its own pid namespace (`NSpid`, Linux 4.1): /proc may be of another one, and count otherwise.
    pub id: Option<u32>,
    /// The signals that it blocks, a bit each.
    pub blocked: Option<u64>,
}

impl Told {
    /// Takes a line of `status` in; whether there is more to come.
    fn take(&mut self, line: &[u8]) -> bool {
        if let Some(text) = line.strip_prefix(b"Name:\t") {
            let mut name = [0u8; 16];
            if let Some(room) = name.get_mut(..text.len()) {
                room.copy_from_slice(text);
                self.name = Some(name);
            }
        } else if let Some(numbers) = line.strip_prefix(b"NSpid:\t") {
            let own = numbers.rsplit(|&byte| byte == b'\t').next();
            let own = own.and_then(|digits| parse_number(digits, 10));
            self.id = own.and_then(|own| u32::try_from(own).ok());
        } else if let Some(mask) = line.strip_prefix(b"SigBlk:\t") {
            self.blocked = parse_number(mask, 16);
            return false;
        }
        true
    }
}

/// What /proc says of the thread of this process that it lists with this number; nothing where it does not tell.
pub fn told_of_thread(tid: u32) -> Told {
    let mut told = Told::default();
    let mut path = Text::<40>::new();
    if write!(path, "/proc/self/task/{tid}/status\0").is_ok() {
        for_each_line(path.as_bytes(), |line| told.take(line));
    }
    told
}

#[cfg(test)]
mod tests {
    use super::super::{block_signals, gettid, restore_signals, thread_name, ALL_BLOCKED};
    use super::*;

    #[test]
    fn what_a_thread_is_called_and_blocks_is_told() {
        let mut told = Told::default();
        for (line, more) in [
            (&b"Name:\tcsnap-03"[..], true),
            (b"Umask:\t0022", true),
            (b"NSpid:\t4711\t12\t5", true),
            (b"SigPnd:\t0000000000000000", true),
            (b"SigBlk:\tfffffffffffbfeff", false),
        ] {
            assert_eq!(told.take(line), more);
        }
        assert_eq!(told.name, Some(*b"csnap-03\0\0\0\0\0\0\0\0"));
        assert_eq!(
            (told.id, told.blocked),
            (Some(5), Some(0xffff_ffff_fffb_feff))
        );
        let mut long = Told::default();
        long.take(b"Name:\tkworker/u8:0-events");
        assert_eq!(long.name, None);
    }

    #[test]
    fn the_kernel_tells_of_a_thread_of_ours_and_of_no_other() {
        let told = told_of_thread(gettid());
        assert_eq!(told.name, Some(thread_name()));
        assert_eq!(told.id, Some(gettid()));
        let mask = block_signals().unwrap();
        let all = told_of_thread(gettid()).blocked;
        restore_signals(mask);
        assert_eq!(all, Some(ALL_BLOCKED));
        assert_eq!(told_of_thread(1 << 30), Told::default());
    }
}
