//! The first line of a script: which program the kernel starts for it.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

/// What the kernel reads of a file to find out how to execute it.
pub const HEAD: usize = 256;

/// An interpreter, as named in a `#!` line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Shebang {
    /// The interpreter's file.
    pub interpreter: PathBuf,
    /// All that follows, in one piece, as the kernel hands it over.
    pub argument: Option<OsString>,
}

/// Reads the `#!` line at the beginning of a file.
pub fn shebang(head: &[u8]) -> Option<Shebang> {
    let line = head.strip_prefix(b"#!")?;
    let line = line
        .split(|byte| matches!(byte, b'\n' | 0))
        .next()?
        .trim_ascii();
    let end = line.iter().position(|byte| matches!(byte, b' ' | b'\t'));
    let (interpreter, rest) = line.split_at(end.unwrap_or(line.len()));
    let argument = rest.trim_ascii();
    (!interpreter.is_empty()).then(|| Shebang {
        interpreter: OsStr::from_bytes(interpreter).into(),
        argument: (!argument.is_empty()).then(|| OsString::from_vec(argument.to_vec())),
    })
}

/// Whether the shell would take a file without `#!` as a script: no zero byte in its first line.
pub fn is_text(head: &[u8]) -> bool {
    let line = head.split(|byte| *byte == b'\n').next().unwrap_or_default();
    !line.contains(&0)
}

impl Shebang {
    /// The program that `env` executes for this line, by name; `None` when it is another interpreter, or `env` is given
    /// options.
    pub fn by_env(&self) -> Option<OsString> {
        if self.interpreter.file_name() != Some(Path::new("env").as_os_str()) {
            return None;
        }
        let argument = self.argument.as_ref()?.as_bytes();
        let Some(split) = argument.strip_prefix(b"-S") else {
            // One word: env gets it in one piece.
            let name = OsStr::from_bytes(argument);
            return (!argument.starts_with(b"-") && !argument.contains(&b'=')).then(|| name.into());
        };
        let words = split.split(u8::is_ascii_whitespace);
        let mut words = words.filter(|word| !word.is_empty() && !word.contains(&b'='));
        let name = words.next().filter(|word| !word.starts_with(b"-"))?;
        Some(OsString::from_vec(name.to_vec()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Option<(String, Option<String>)> {
        let found = shebang(text.as_bytes())?;
        let argument = found
            .argument
            .map(|argument| argument.into_string().unwrap());
        Some((found.interpreter.display().to_string(), argument))
    }

    #[test]
    fn lines_are_read_as_the_kernel_reads_them() {
        let some = |name: &str, argument: Option<&str>| {
            Some((name.to_string(), argument.map(String::from)))
        };
        assert_eq!(read("#!/bin/sh\necho"), some("/bin/sh", None));
        assert_eq!(read("#! /bin/sh -e x \n"), some("/bin/sh", Some("-e x")));
        assert_eq!(read("#!\t/bin/sh"), some("/bin/sh", None));
        assert_eq!(
            read("#!/usr/bin/env python3\r\n"),
            some("/usr/bin/env", Some("python3"))
        );
        for none in ["", "#", "#!", "#!\n/bin/sh", "#!  \n", "echo", "\x7fELF"] {
            assert_eq!(read(none), None, "{none:?}");
        }
    }

    #[test]
    fn env_names_the_program_behind_it() {
        let by_env = |line: &str| {
            let found = shebang(line.as_bytes()).unwrap().by_env();
            found.map(|name| name.into_string().unwrap())
        };
        assert_eq!(
            by_env("#!/usr/bin/env python3\n").as_deref(),
            Some("python3")
        );
        assert_eq!(
            by_env("#!/usr/bin/env -S python3 -u\n").as_deref(),
            Some("python3")
        );
        assert_eq!(
            by_env("#!/usr/bin/env -SA=1 B=2 python3 -u\n").as_deref(),
            Some("python3")
        );
        for line in [
            "#!/bin/sh",
            "#!/usr/bin/env",
            "#!/usr/bin/env -i sh",
            "#!/usr/bin/env -S -i sh",
            "#!/usr/bin/env -S",
        ] {
            assert_eq!(by_env(line), None, "{line}");
        }
    }

    #[test]
    fn text_has_no_zero_in_its_first_line() {
        assert!(is_text(b"echo hi\n\0") && is_text(b"") && !is_text(b"MZ\0\n"));
    }
}
