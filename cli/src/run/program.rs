//! The program that will run in our process: the file itself, or what its `#!` line leads to.

use std::ffi::OsStr;
use std::fmt;
use std::path::{Path, PathBuf};

use super::find::find;
use super::image::{Format, Image};
use super::script::Shebang;

/// The shell that runs text without a `#!` line, as `execvp` has it.
pub const SHELL: &str = "/bin/sh";
/// Interpreters of interpreters that the kernel follows.
const DEPTH: usize = 5;

/// A program, as it will be loaded.
#[derive(Debug, PartialEq, Eq)]
pub struct Program {
    /// The files on the way, first the one that was named, last the one that is loaded.
    pub files: Vec<PathBuf>,
    /// What the last one is.
    pub content: Content,
}

/// What could be learned about a program's last file.
#[derive(Debug, PartialEq, Eq)]
pub enum Content {
    /// It is an ELF image.
    Elf(Image),
    /// Nothing, for this reason.
    Unknown(String),
}

impl Program {
    /// Looks at a file and follows it through scripts, and through `env` in their first lines.
    pub fn of(path: &Path, search: Option<&OsStr>) -> Self {
        let mut files = vec![path.to_path_buf()];
        let mut by_env = None;
        loop {
            let last = files.last().map_or(path, PathBuf::as_path);
            let content = match Format::of(last) {
                Err(error) => Content::Unknown(format!("it cannot be read: {error}")),
                Ok(Format::Other) => {
                    Content::Unknown("it is neither an ELF image nor a script".into())
                }
                Ok(_) if files.len() > 2 * DEPTH => {
                    Content::Unknown("too many scripts lead to it".into())
                }
                Ok(Format::Script(line)) => {
                    by_env = behind_env(&line, search);
                    files.push(line.interpreter);
                    continue;
                }
                Ok(Format::Text) => {
                    files.push(SHELL.into());
                    continue;
                }
                Ok(Format::Elf(image)) => Content::Elf(image),
            };
            // `env` itself is looked at only as far as it can be followed.
            match by_env.take().filter(|_| matches!(content, Content::Elf(_))) {
                Some(next) => files.push(next),
                None => return Program { files, content },
            }
        }
    }

    /// The file that is loaded.
    pub fn file(&self) -> &Path {
        self.files.last().map_or(Path::new(""), PathBuf::as_path)
    }
}

fn behind_env(line: &Shebang, search: Option<&OsStr>) -> Option<PathBuf> {
    find(&line.by_env()?, search).ok()
}

impl fmt::Display for Program {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}", self.file().display())?;
        match self.files.first() {
            Some(first) if self.files.len() > 1 => write!(out, " (runs {})", first.display()),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    struct Folder(PathBuf);

    impl Folder {
        fn new(name: &str) -> Self {
            let path = std::env::temp_dir()
                .join(format!("cudasnap-program-{name}-{}", std::process::id()));
            fs::create_dir_all(&path).unwrap();
            Folder(path)
        }

        fn file(&self, name: &str, text: &str) -> PathBuf {
            use std::os::unix::fs::PermissionsExt;
            let path = self.0.join(name);
            fs::write(&path, text).unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
            path
        }
    }

    impl Drop for Folder {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn scripts_are_followed_to_what_is_loaded() {
        let folder = Folder::new("follow");
        let sh = folder.file("a", "#!/bin/sh\n");
        let sh_of_sh = folder.file("b", &format!("#!{} x\n", sh.display()));
        let by_env = folder.file("c", "#!/usr/bin/env tool\n");
        let tool = folder.file("tool", "#!/bin/sh\n");
        let text = folder.file("d", "echo\n");
        let search = Some(folder.0.as_os_str());
        let files = |path: &Path| Program::of(path, search).files;
        assert_eq!(files(&sh), [sh.clone(), SHELL.into()]);
        assert_eq!(
            files(&sh_of_sh),
            [sh_of_sh.clone(), sh.clone(), SHELL.into()]
        );
        assert_eq!(
            files(&by_env),
            [by_env.clone(), "/usr/bin/env".into(), tool, SHELL.into()]
        );
        assert_eq!(files(&text), [text.clone(), SHELL.into()]);
        // A program that env will not find: env is what can be looked at.
        let lost = folder.file("e", "#!/usr/bin/env no-such-tool\n");
        assert_eq!(files(&lost), [lost.clone(), "/usr/bin/env".into()]);
        let shown = Program::of(&sh, search).to_string();
        assert_eq!(shown, format!("/bin/sh (runs {})", sh.display()));
    }

    #[test]
    fn circles_and_nonsense_are_values() {
        let folder = Folder::new("circle");
        let circle = folder.0.join("circle");
        folder.file("circle", &format!("#!{}\n", circle.display()));
        assert!(matches!(
            Program::of(&circle, None).content,
            Content::Unknown(_)
        ));
        let broken = folder.file("broken", "\x7fELF\x02\x01\x01");
        assert!(matches!(
            Program::of(&broken, None).content,
            Content::Unknown(_)
        ));
        let missing = folder.file("missing", "#!/no/such/interpreter\n");
        assert!(matches!(
            Program::of(&missing, None).content,
            Content::Unknown(_)
        ));
    }

    #[test]
    fn an_image_tells_its_loader_and_libraries() {
        let own = std::env::current_exe().unwrap();
        let Content::Elf(image) = Program::of(&own, None).content else {
            panic!("a test is an ELF image");
        };
        assert_eq!(image.machine.bits, 64);
        assert!(image
            .loader
            .as_deref()
            .is_some_and(super::super::image::is_glibc_loader));
        assert!(
            image.needed.iter().any(|name| name == "libc.so.6"),
            "{image:?}"
        );
        let Content::Elf(loader) = Program::of(&image.loader.unwrap(), None).content else {
            panic!("a loader is an ELF image");
        };
        assert!(loader.is_loader());
    }
}
