//! Whether a program gains privileges when it is executed: then the loader ignores preloads with a path, and says nothing.

use std::fs::Metadata;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use rustix::fs::{statvfs, StatVfsMountFlags};

const SETUID: u32 = 0o4000;
const SETGID: u32 = 0o2000;
const GROUP_EXECUTES: u32 = 0o10;

/// What makes the kernel tell the loader to be careful.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Privilege {
    /// The setuid bit, and another owner than the user who runs it.
    Setuid,
    /// The setgid bit, and another group.
    Setgid,
    /// Capabilities of the file.
    Capabilities,
}

impl Privilege {
    /// For people.
    pub fn words(self) -> &'static str {
        match self {
            Privilege::Setuid => "the setuid bit",
            Privilege::Setgid => "the setgid bit",
            Privilege::Capabilities => "file capabilities",
        }
    }
}

/// Who runs the program.
#[derive(Debug, Clone, Copy)]
struct Runner {
    uid: u32,
    gid: u32,
}

/// Looks at a file that this process is about to execute.
pub fn gained(path: &Path) -> Option<Privilege> {
    let nosuid =
        || statvfs(path).is_ok_and(|volume| volume.f_flag.contains(StatVfsMountFlags::NOSUID));
    let runner = Runner {
        uid: rustix::process::getuid().as_raw(),
        gid: rustix::process::getgid().as_raw(),
    };
    let metadata = path.metadata().ok()?;
    let capabilities = xattr::get_deref(path, "security.capability").ok().flatten();
    let found = decide(runner, &metadata.into(), capabilities.as_deref())?;
    // What no privilege can come from is executed as any other program.
    let powerless = rustix::thread::no_new_privs().unwrap_or(false) || nosuid();
    (!powerless).then_some(found)
}

/// Mode, owner and group of a file.
#[derive(Debug, Clone, Copy)]
struct Owned {
    mode: u32,
    uid: u32,
    gid: u32,
}

impl From<Metadata> for Owned {
    fn from(metadata: Metadata) -> Self {
        Owned {
            mode: metadata.mode(),
            uid: metadata.uid(),
            gid: metadata.gid(),
        }
    }
}

fn decide(runner: Runner, file: &Owned, capabilities: Option<&[u8]>) -> Option<Privilege> {
    if file.mode & SETUID != 0 && file.uid != runner.uid {
        return Some(Privilege::Setuid);
    }
    // Without the group's execute bit, setgid once meant mandatory locking.
    if file.mode & SETGID != 0 && file.mode & GROUP_EXECUTES != 0 && file.gid != runner.gid {
        return Some(Privilege::Setgid);
    }
    // Root has them anyway.
    (runner.uid != 0 && capabilities.is_some_and(gives_any)).then_some(Privilege::Capabilities)
}

/// `struct vfs_cap_data`: magic with the effective flag, then permitted and inheritable in turns, 32 bits each.
fn gives_any(attribute: &[u8]) -> bool {
    let effective = attribute.first().is_some_and(|flags| flags & 1 != 0);
    let permitted = |at: usize| attribute.get(at..at + 4).is_some_and(|word| word != [0; 4]);
    effective || permitted(4) || permitted(12)
}

#[cfg(test)]
mod tests {
    use super::*;

    const USER: Runner = Runner {
        uid: 1000,
        gid: 1000,
    };

    fn file(mode: u32, uid: u32, gid: u32) -> Owned {
        Owned { mode, uid, gid }
    }

    #[test]
    fn set_id_bits_count_when_the_id_changes() {
        let decided = |mode, uid, gid| decide(USER, &file(mode, uid, gid), None);
        assert_eq!(decided(0o4755, 0, 0), Some(Privilege::Setuid));
        assert_eq!(decided(0o4755, 1000, 0), None);
        assert_eq!(decided(0o2755, 0, 42), Some(Privilege::Setgid));
        assert_eq!(decided(0o2745, 0, 42), None);
        assert_eq!(decided(0o2755, 0, 1000), None);
        assert_eq!(decided(0o755, 0, 0), None);
        // Root in a container that runs a setuid root program gains nothing.
        let root = Runner { uid: 0, gid: 0 };
        assert_eq!(decide(root, &file(0o4755, 0, 0), None), None);
        assert_eq!(
            decide(root, &file(0o4755, 7, 0), None),
            Some(Privilege::Setuid)
        );
    }

    #[test]
    fn file_capabilities_count_for_all_but_root() {
        // cap_net_raw=ep, as setcap writes it.
        let ping = [
            1, 0, 0, 2, 0, 0x20, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,
        ];
        let plain = file(0o755, 0, 0);
        assert_eq!(
            decide(USER, &plain, Some(&ping)),
            Some(Privilege::Capabilities)
        );
        let root = Runner { uid: 0, gid: 0 };
        assert_eq!(decide(root, &plain, Some(&ping)), None);
        let mut none = [0; 20];
        none[3] = 2;
        assert_eq!(decide(USER, &plain, Some(&none)), None);
        assert_eq!(decide(USER, &plain, Some(&[])), None);
    }
}
