//! The mappings of files alone, asked of the kernel one by one (`PROCMAP_QUERY`, Linux 6.11). A process with tens of thousands of
//! anonymous mappings has few of files, and the text of all of them takes the kernel longer than everything else that is looked at.

use std::fs::File;
use std::os::fd::AsRawFd;

use super::target::Mapping;

/// `_IOWR('f', 17, struct procmap_query)`
const PROCMAP_QUERY: libc::c_ulong = 0xc068_6611;
const READABLE: u64 = 1;
const WRITABLE: u64 = 2;
const EXECUTABLE: u64 = 4;
const SHARED: u64 = 8;
const COVERING_OR_NEXT: u64 = 16;
const FILE_BACKED: u64 = 32;
/// The longest path that the kernel tells, with what it adds for a deleted file.
const NAME: usize = 4096 + 16;

/// `struct procmap_query` of `linux/fs.h`.
#[repr(C)]
#[derive(Debug, Default)]
struct Query {
    size: u64,
    flags: u64,
    address: u64,
    start: u64,
    end: u64,
    rights: u64,
    page_size: u64,
    offset: u64,
    inode: u64,
    device: [u32; 2],
    name_size: u32,
    build_id_size: u32,
    name_address: u64,
    build_id_address: u64,
}

const _: () = assert!(size_of::<Query>() == 104);

/// The mappings of files in an open `/proc/PID/maps`, in the order of their addresses. `None` when the kernel cannot be asked, or
/// the process has ended.
pub fn of(maps: &File) -> Option<Vec<Mapping>> {
    let mut found: Vec<Mapping> = Vec::new();
    let mut name = vec![0u8; NAME];
    let mut from = 0;
    loop {
        let mut query = Query {
            size: size_of::<Query>() as u64,
            flags: COVERING_OR_NEXT | FILE_BACKED,
            address: from,
            name_size: NAME as u32,
            name_address: name.as_mut_ptr() as u64,
            ..Query::default()
        };
        // SAFETY: `query` has the size that it says, and `name` the one that `query` says; both are valid for writes.
        let answer = unsafe { libc::ioctl(maps.as_raw_fd(), PROCMAP_QUERY, &raw mut query) };
        if answer != 0 {
            let error = std::io::Error::last_os_error();
            // No more of them.
            return (error.raw_os_error() == Some(libc::ENOENT)).then_some(found);
        }
        from = query.end;
        // The length counts the zero at the end.
        let length = (query.name_size as usize).saturating_sub(1);
        found.push(mapping(&query, name.get(..length).unwrap_or_default()));
    }
}

fn mapping(query: &Query, name: &[u8]) -> Mapping {
    let has = |right| query.rights & right != 0;
    Mapping {
        start: query.start,
        end: query.end,
        readable: has(READABLE),
        writable: has(WRITABLE),
        executable: has(EXECUTABLE),
        private: !has(SHARED),
        offset: query.offset,
        inode: query.inode,
        path: String::from_utf8_lossy(name).into_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::process::target::Target;

    #[test]
    fn it_is_what_the_text_says_of_files() {
        let own = std::process::id() as i32;
        let maps = File::open(format!("/proc/{own}/maps")).unwrap();
        // Other tests map and unmap at the same time: what was there before and after must be in it.
        let text = || Target::new(own).mappings().unwrap();
        let (before, asked, after) = (text(), of(&maps), text());
        let Some(asked) = asked else {
            eprintln!("this kernel has no PROCMAP_QUERY");
            return;
        };
        let stayed = before.iter().filter(|one| after.contains(one));
        let files: Vec<&Mapping> = stayed.filter(|one| one.inode != 0).collect();
        assert!(files.len() > 3);
        for file in files {
            assert!(asked.contains(file), "{file:?} is not in {asked:?}");
        }
        assert!(asked.iter().all(|mapping| !mapping.path.is_empty()));
    }

    #[test]
    fn another_file_cannot_be_asked() {
        assert!(of(&File::open("/dev/null").unwrap()).is_none());
    }
}
