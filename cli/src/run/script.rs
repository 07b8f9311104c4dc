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

/// Reads the `#!` line at the beginning of a file as the kernel does (`load_script`): a carriage return belongs to the name that it
/// follows, a line longer than [`HEAD`] is cut. `None`: the kernel takes the file for no script, also when the cut goes through the
/// interpreter's name.
pub fn shebang(head: &[u8]) -> Option<Shebang> {
    let head = &head[..head.len().min(HEAD)];
    let rest = head.strip_prefix(b"#!")?;
    let line = match rest.iter().position(|byte| *byte == b'\n') {
        Some(end) => &rest[..end],
        // What is shorter ends in zeros.
        None if head.len() < HEAD => rest,
        None => {
            // The last byte may end the name, and is never part of anything.
            trim_start(rest).iter().position(is_end)?;
            &rest[..rest.len() - 1]
        }
    };
    let line = trim_start(line);
    let end = line.iter().position(is_end).unwrap_or(line.len());
    let (interpreter, rest) = line.split_at(end);
    // A zero ends everything: the rest is no text any more.
    let rest = rest.split(|byte| *byte == 0).next().unwrap_or_default();
    let blanks = rest.iter().rev().take_while(|byte| is_blank(byte)).count();
    let argument = trim_start(&rest[..rest.len() - blanks]);
    (!interpreter.is_empty()).then(|| Shebang {
        interpreter: OsStr::from_bytes(interpreter).into(),
        argument: (!argument.is_empty()).then(|| OsString::from_vec(argument.to_vec())),
    })
}

fn is_blank(byte: &u8) -> bool {
    matches!(byte, b' ' | b'\t')
}

fn is_end(byte: &u8) -> bool {
    is_blank(byte) || *byte == 0
}

fn trim_start(bytes: &[u8]) -> &[u8] {
    let blanks = bytes.iter().take_while(|byte| is_blank(byte)).count();
    &bytes[blanks..]
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
            some("/usr/bin/env", Some("python3\r"))
        );
        assert_eq!(read("#!/bin/sh\r\n"), some("/bin/sh\r", None));
        assert_eq!(read("#!/bin/sh -e\t \n"), some("/bin/sh", Some("-e")));
        assert_eq!(read("#!/bin/sh\0x y\n"), some("/bin/sh", None));
        for none in ["", "#", "#!", "#!\n/bin/sh", "#!  \n", "echo", "\x7fELF"] {
            assert_eq!(read(none), None, "{none:?}");
        }
    }

    #[test]
    fn a_line_that_is_too_long_is_cut_as_the_kernel_cuts_it() {
        let name = |length: usize| format!("#!/{}", "x".repeat(length - 3));
        // As measured on Linux 6.18: a path of 253 bytes is the longest.
        for end in ["", "\n", " x\n", "\0"] {
            let found = read(&(name(HEAD - 1) + end)).unwrap();
            assert_eq!((found.0.len(), found.1), (253, None), "{end:?}");
            assert_eq!(read(&(name(HEAD) + end)), None, "{end:?}");
        }
        assert_eq!(read(&(name(HEAD - 2) + " x\n")).unwrap().1, None);
        assert_eq!(read(&name(4000)), None);
        let argument = format!("#!/bin/sh {}", "y".repeat(4000));
        let found = read(&argument).unwrap();
        assert_eq!(
            (found.0.as_str(), found.1.unwrap().len()),
            ("/bin/sh", HEAD - 11)
        );
        assert_eq!(read(&format!("#!{}", " ".repeat(4000))), None);
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
