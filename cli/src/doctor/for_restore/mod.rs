//! `cudasnap doctor --for-restore IMAGES`: before `criu restore`, whether the files that dumped processes had mapped are here too.
//!
//! CRIU maps libraries anew from their paths. Another build of the library there would run with the data of the old one; CRIU
//! itself refuses what it can see to be different, but only in the middle of the restore.

pub mod images;
pub mod messages;

use std::path::Path;

use crate::doctor::elf_file::{build_id_of, hex};
use crate::doctor::finding::{Finding, Group};
use crate::driver::kernel_driver_version;
use crate::foreign_file;
use crate::foreign_text::printable;
use crate::shim_library;
use images::{mapped_files, ImagesError, MappedFile};

/// A file as it is on this machine.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Here {
    size: u64,
    build_id: Option<Vec<u8>>,
}

/// Compares what the images say with what is below `root`.
///
/// # Errors
/// What is wrong with the images.
pub fn look(folder: &Path, root: Option<&Path>) -> Result<Group, ImagesError> {
    let files = mapped_files(folder)?;
    let named = |is: fn(&str) -> bool| {
        let name = move |file: &&MappedFile| is(file.path.rsplit('/').next().unwrap_or_default());
        files.iter().filter(name).collect::<Vec<_>>()
    };
    let (shims, drivers) = (named(is_shim), named(is_libcuda));
    let look_at = |file: &MappedFile| find(root, &file.path);
    let mut findings: Vec<Finding> = Vec::new();
    for file in &shims {
        findings.push(compare("library", file, look_at(file).as_ref()));
    }
    if shims.is_empty() {
        findings.push(Finding::unknown(
            "library",
            format!(
                "no process of these images had {} mapped",
                shim_library::FILE
            ),
        ));
    }
    for file in &drivers {
        findings.push(compare("libcuda", file, look_at(file).as_ref()));
        findings.extend(kernel(file, kernel_driver_version().as_deref()));
    }
    Ok(Group {
        name: "restore",
        findings,
    })
}

fn is_shim(name: &str) -> bool {
    name.starts_with("libcudasnap") && name.contains(".so")
}

fn is_libcuda(name: &str) -> bool {
    name.starts_with("libcuda.so")
}

/// The images name the path: whatever lies there is looked at only when it is a file, and links do not lead out of the root.
fn find(root: Option<&Path>, path: &str) -> Option<Here> {
    let opened = match root {
        Some(root) => foreign_file::open_below(root, Path::new(path)),
        None => foreign_file::open(Path::new(path)),
    };
    let (file, data) = opened.ok()??;
    Some(Here {
        size: data.len(),
        build_id: build_id_of(file),
    })
}

fn compare(check: &'static str, file: &MappedFile, here: Option<&Here>) -> Finding {
    let path = &printable(&file.path);
    let failed = |found: String| {
        let mend = match check {
            "library" => format!("install the same build at the same path, {path}"),
            _ => format!("install the same driver, with the same file at {path}"),
        };
        Finding::failed(check, found, mend)
    };
    if file.carried {
        return Finding::ok(check, format!("{path}: its contents are in the images"));
    }
    let Some(here) = here else {
        return failed(format!("{path} is missing{}", users(file)));
    };
    if let Some(size) = file.size.filter(|size| *size != here.size) {
        return failed(format!(
            "{path} is another file: {} bytes here, {size} in the images{}",
            here.size,
            users(file)
        ));
    }
    if file.build_id.is_empty() {
        return Finding::ok(
            check,
            format!("{path}: same size (the images hold no build id)"),
        );
    }
    match &here.build_id {
        Some(id) if is_same_id(id, &file.build_id) => {
            Finding::ok(check, format!("{path}: same size and build id"))
        }
        id => failed(format!(
            "{path} is another build: {} here, {} in the images{}",
            id.as_deref().map_or("none".into(), hex),
            hex(&file.build_id),
            users(file)
        )),
    }
}

/// The images hold whole words.
fn is_same_id(here: &[u8], words: &[u8]) -> bool {
    here.len() <= words.len()
        && words.len() - here.len() < 4
        && words.starts_with(here)
        && words[here.len()..].iter().all(|byte| *byte == 0)
}

fn users(file: &MappedFile) -> String {
    let pids: Vec<String> = file.pids.iter().take(8).map(i32::to_string).collect();
    let more = if file.pids.len() > pids.len() {
        ", ..."
    } else {
        ""
    };
    format!(" (for process {}{more})", pids.join(", "))
}

/// The version in libcuda's name against the kernel's, where there is one.
fn kernel(file: &MappedFile, version: Option<&str>) -> Option<Finding> {
    const CHECK: &str = "kernel driver";
    let name = file.path.rsplit('/').next()?;
    let dumped = name
        .strip_prefix("libcuda.so.")
        .filter(|rest| rest.contains('.'))?;
    let here = version?;
    Some(if here == dumped {
        Finding::ok(CHECK, format!("{here}, as in the images"))
    } else {
        let dumped = printable(dumped);
        Finding::failed(
            CHECK,
            format!("{here} here, {dumped} in the images"),
            format!("install driver {dumped}"),
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::finding::Verdict::{self, Failed, Ok as Fine};

    fn file(size: Option<u64>, build_id: &[u8]) -> MappedFile {
        MappedFile {
            path: "/opt/libcudasnap.so".into(),
            size,
            build_id: build_id.to_vec(),
            carried: false,
            pids: [7, 9].into(),
        }
    }

    fn here(size: u64, build_id: Option<&[u8]>) -> Option<Here> {
        let build_id = build_id.map(<[u8]>::to_vec);
        Some(Here { size, build_id })
    }

    fn verdict(file: &MappedFile, here: Option<Here>) -> Verdict {
        compare("library", file, here.as_ref()).verdict
    }

    #[test]
    fn size_and_build_id_must_be_those_of_the_images() {
        let id = [1, 2, 3, 4, 5, 0, 0, 0];
        let noted = file(Some(10), &id);
        assert_eq!(verdict(&noted, here(10, Some(&id[..5]))), Fine);
        assert_eq!(verdict(&noted, here(10, Some(&id[..4]))), Failed);
        assert_eq!(verdict(&noted, here(10, Some(&[1, 2, 3, 4, 6]))), Failed);
        assert_eq!(verdict(&noted, here(10, None)), Failed);
        assert_eq!(verdict(&noted, here(11, Some(&id[..5]))), Failed);
        assert_eq!(verdict(&noted, None), Failed);
        assert_eq!(verdict(&file(Some(10), &[]), here(10, None)), Fine);
        let carried = MappedFile {
            carried: true,
            ..noted.clone()
        };
        assert_eq!(verdict(&carried, None), Fine);
        let missing = compare("library", &noted, None);
        assert_eq!(
            missing.found,
            "/opt/libcudasnap.so is missing (for process 7, 9)"
        );
        assert!(missing
            .mend
            .unwrap()
            .ends_with("at the same path, /opt/libcudasnap.so"));
    }

    #[test]
    fn what_the_images_name_is_not_waited_for_and_cannot_command_the_terminal() {
        let folder = std::env::temp_dir().join(format!("cudasnap-named-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let pipe = folder.join("libcuda.so.1");
        let name = std::ffi::CString::new(pipe.to_str().unwrap()).unwrap();
        // SAFETY: a terminated string, valid for the call.
        assert_eq!(unsafe { libc::mkfifo(name.as_ptr(), 0o600) }, 0);
        assert_eq!(find(None, pipe.to_str().unwrap()), None);
        assert_eq!(find(Some(&folder), "/libcuda.so.1"), None);
        std::os::unix::fs::symlink("/proc/self/exe", folder.join("out")).unwrap();
        assert_eq!(
            find(Some(&folder), "/out"),
            None,
            "it leads out of the root"
        );
        std::fs::remove_dir_all(folder).unwrap();
        let odd = MappedFile {
            path: "/\u{1b}[2J/libcudasnap.so".into(),
            ..file(None, &[])
        };
        let missing = compare("library", &odd, None);
        assert!(!(missing.found + &missing.mend.unwrap()).contains('\u{1b}'));
    }

    #[test]
    fn the_drivers_version_is_in_its_librarys_name() {
        let libcuda = |path: &str| MappedFile {
            path: path.into(),
            ..file(None, &[])
        };
        let new = libcuda("/usr/lib/libcuda.so.580.159.04");
        assert_eq!(kernel(&new, Some("580.159.04")).unwrap().verdict, Fine);
        assert_eq!(kernel(&new, Some("570.1")).unwrap().verdict, Failed);
        assert_eq!(kernel(&new, None), None);
        assert_eq!(kernel(&libcuda("/x/libcuda.so.1"), Some("570.1")), None);
    }

    #[test]
    fn files_are_looked_for_below_the_root() {
        let own = std::env::current_exe().unwrap();
        let (folder, name) = (
            own.parent().unwrap(),
            own.file_name().unwrap().to_str().unwrap(),
        );
        assert!(find(None, own.to_str().unwrap()).is_some());
        assert!(find(Some(folder), &format!("/{name}")).is_some());
        assert_eq!(find(Some(folder), own.to_str().unwrap()), None);
        assert_eq!(find(None, "/dev/null"), None);
        assert!(
            is_shim("libcudasnap.so") && !is_shim("cudasnap") && !is_libcuda("libcudart.so.12")
        );
    }
}
