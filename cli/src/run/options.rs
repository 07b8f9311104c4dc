//! The library's options: given as arguments, set as the environment variables that the library reads, checked beforehand.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use clap::builder::{OsStringValueParser, PossibleValuesParser, TypedValueParser};
use clap::ValueHint;
use cudasnap_wire::{Choice, Mode, OptionSpec, PageKind, Rest, OPTIONS};

use super::contradiction;
use crate::shim_library;
use crate::values;

/// Longest report path that the library takes, its terminating zero included.
const PATH_MAX: usize = 512;
/// Most threads that can be asked for.
const THREADS_MAX: u64 = 32;
const SWITCH: [&str; 2] = ["off", "on"];
const LEVELS: [&str; 4] = ["off", "warn", "info", "debug"];

/// The library's options as arguments.
#[derive(Debug, Default, clap::Args)]
#[command(next_help_heading = "Options of the library (each sets an environment variable)")]
pub struct OptionArgs {
    /// CUDASNAP: answer the driver's buffer request, only time it, or do nothing
    #[arg(long, value_name = "MODE", value_parser = words(Mode::ALL.iter().map(|mode| mode.word())), ignore_case = true)]
    mode: Option<String>,
    /// CUDASNAP_THREADS: threads that copy at most, 1 to 32; 0 is automatic
    #[arg(long, value_name = "N", value_parser = understood("CUDASNAP_THREADS"))]
    threads: Option<String>,
    /// CUDASNAP_PAGES: kind of page that the buffer asks for
    #[arg(long, value_name = "KIND", value_parser = words(pages()), ignore_case = true)]
    pages: Option<String>,
    /// CUDASNAP_BUFFER: give the buffer back after a restore, keep it for the next checkpoint, or keep its addresses, for `cudasnap reserve`
    #[arg(long, value_name = "WHAT", value_parser = words(rests()), ignore_case = true)]
    buffer: Option<String>,
    /// CUDASNAP_KEEP_MAX: memory that a kept or reserved buffer holds at most, in bytes or with K, M, G, T; 0 is all of it
    #[arg(long, value_name = "BYTES", value_parser = understood("CUDASNAP_KEEP_MAX"))]
    keep_max: Option<String>,
    /// CUDASNAP_REPORT: file to which one JSON line per phase is appended
    #[arg(long, value_name = "PATH", value_hint = ValueHint::FilePath, value_parser = OsStringValueParser::new().try_map(report))]
    report: Option<OsString>,
    /// CUDASNAP_LOG: what the library writes to stderr
    #[arg(long, value_name = "LEVEL", value_parser = words(LEVELS.into_iter()), ignore_case = true)]
    log: Option<String>,
    /// CUDASNAP_STRATEGY: how copies are made: as fixed, the best of several tried in each phase, or one of them
    #[arg(long, value_name = "HOW", value_parser = words(Choice::all().map(Choice::word)), ignore_case = true)]
    strategy: Option<String>,
    /// CUDASNAP_SPARSE: what is zero on the GPU takes no memory in the buffer
    #[arg(long, value_name = "SWITCH", value_parser = words(SWITCH.into_iter()), ignore_case = true)]
    sparse: Option<String>,
}

/// A variable to set, and its value.
pub type Setting = (&'static str, OsString);

impl OptionArgs {
    /// The variables that these arguments stand for.
    pub fn settings(&self) -> Vec<Setting> {
        let texts = [
            ("CUDASNAP", &self.mode),
            ("CUDASNAP_THREADS", &self.threads),
            ("CUDASNAP_PAGES", &self.pages),
            ("CUDASNAP_BUFFER", &self.buffer),
            ("CUDASNAP_KEEP_MAX", &self.keep_max),
            ("CUDASNAP_LOG", &self.log),
            ("CUDASNAP_STRATEGY", &self.strategy),
            ("CUDASNAP_SPARSE", &self.sparse),
        ];
        let texts = texts
            .into_iter()
            .filter_map(|(name, value)| Some((name, OsString::from(value.as_ref()?))));
        let report = self
            .report
            .iter()
            .map(|path| ("CUDASNAP_REPORT", path.clone()));
        texts.chain(report).collect()
    }
}

fn pages() -> impl Iterator<Item = &'static str> {
    let asked_for = |kind: &&PageKind| **kind != PageKind::Driver;
    PageKind::ALL
        .iter()
        .filter(asked_for)
        .map(|kind| kind.word())
}

fn rests() -> impl Iterator<Item = &'static str> {
    Rest::ALL.iter().map(|rest| rest.word())
}

fn words(all: impl Iterator<Item = &'static str>) -> impl TypedValueParser<Value = String> {
    values::read(PossibleValuesParser::new(all))
}

/// Whether the library has an option of this name.
pub fn is_one(name: &str) -> bool {
    spec(name).is_some()
}

/// A variable of the library's with its value; `None` when the library has no option of this name.
pub fn setting(name: &OsStr, value: &OsStr) -> Option<Setting> {
    let option = name.to_str().and_then(spec)?;
    Some((option.name, value.to_os_string()))
}

fn spec(name: &str) -> Option<&'static OptionSpec> {
    OPTIONS.iter().find(|option| option.name == name)
}

/// A value of an argument, if the library would understand it.
fn understood(name: &'static str) -> impl TypedValueParser<Value = String> {
    values::read(move |text: &str| {
        let is_understood = understands(name, text.as_bytes());
        is_understood
            .then(|| text.to_string())
            .ok_or_else(|| what_it_takes(name).unwrap_or_default())
    })
}

/// The values of an option, in words; `None` when there is no such option.
pub fn what_it_takes(name: &str) -> Option<String> {
    spec(name).map(|option| values::takes(option.values))
}

/// The library wants an absolute path, since its process may change its folder; people at a terminal need not.
fn report(path: OsString) -> Result<OsString, String> {
    const NAME: &str = "CUDASNAP_REPORT";
    let path = std::path::absolute(path).ok();
    let path = path.filter(|path| understands(NAME, path.as_os_str().as_bytes()));
    path.map(PathBuf::into_os_string)
        .ok_or_else(|| what_it_takes(NAME).unwrap_or_default())
}

/// Whether the library understands this value of this variable. The same rules as in the library's own `config.rs`; a test
/// compares both.
pub fn understands(name: &str, value: &[u8]) -> bool {
    let is_one = |mut all: Box<dyn Iterator<Item = &'static str>>| {
        all.any(|word| word.as_bytes().eq_ignore_ascii_case(value))
    };
    match name {
        "CUDASNAP" => is_one(Box::new(Mode::ALL.iter().map(|mode| mode.word()))),
        "CUDASNAP_THREADS" => number(value).is_some_and(|threads| threads <= THREADS_MAX),
        "CUDASNAP_PAGES" => is_one(Box::new(pages())),
        "CUDASNAP_BUFFER" => is_one(Box::new(rests())),
        "CUDASNAP_KEEP_MAX" => size(value).is_some(),
        "CUDASNAP_REPORT" => value.first() == Some(&b'/') && value.len() < PATH_MAX,
        "CUDASNAP_LOG" => is_one(Box::new(LEVELS.into_iter())),
        "CUDASNAP_SPARSE" => is_one(Box::new(SWITCH.into_iter())),
        "CUDASNAP_STRATEGY" => is_one(Box::new(Choice::all().map(Choice::word))),
        _ => false,
    }
}

/// Digits only: no sign, no blank.
fn number(digits: &[u8]) -> Option<u64> {
    let text = std::str::from_utf8(digits).ok()?;
    text.bytes()
        .all(|byte| byte.is_ascii_digit())
        .then(|| text.parse().ok())?
}

/// Bytes, with K, M, G or T for binary multiples.
pub(crate) fn size(value: &[u8]) -> Option<u64> {
    let (last, before) = value.split_last()?;
    let (digits, shift) = match last.to_ascii_uppercase() {
        b'K' => (before, 10),
        b'M' => (before, 20),
        b'G' => (before, 30),
        b'T' => (before, 40),
        _ => (value, 0),
    };
    number(digits)?.checked_mul(1 << shift)
}

/// What is wrong, or doubtful, with the variables that the program would get.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Complaints {
    /// Values that the library would not understand, and those that exclude each other.
    pub wrong: Vec<String>,
    /// What has no effect, or not the one that was meant.
    pub doubtful: Vec<String>,
}

/// Looks at the environment as the program gets it.
pub fn check(environment: &[(OsString, OsString)]) -> Complaints {
    let mut complaints = Complaints::default();
    for (name, value) in environment {
        let Some(name) = name.to_str().filter(|name| name.starts_with("CUDASNAP")) else {
            continue;
        };
        match spec(name) {
            // An empty value counts as absent.
            Some(_) if value.is_empty() || understands(name, value.as_bytes()) => {}
            Some(option) => complaints.wrong.push(format!(
                "{name} is {value:?}, which the library does not understand: {}",
                values::takes(option.values)
            )),
            None if name.starts_with("CUDASNAP_") && name != shim_library::VARIABLE => {
                complaints.doubtful.push(unknown(name));
            }
            None => {}
        }
    }
    complaints
        .wrong
        .extend(contradiction::excluding(environment));
    complaints.doubtful.extend(doubts(environment));
    complaints
        .doubtful
        .extend(contradiction::hindering(environment));
    complaints
}

fn unknown(name: &str) -> String {
    let names: Vec<&str> = OPTIONS.iter().map(|option| option.name).collect();
    format!(
        "{name} means nothing to the library; its variables are {}",
        names.join(", ")
    )
}

fn doubts(environment: &[(OsString, OsString)]) -> impl Iterator<Item = String> {
    let value = |wanted: &str| {
        let found = environment.iter().find(|(name, _)| name == wanted);
        found
            .map(|(_, value)| value.as_os_str())
            .filter(|value| !value.is_empty())
    };
    let keeps = value("CUDASNAP_BUFFER").is_some_and(|what| !what.eq_ignore_ascii_case("fresh"));
    let limit = value("CUDASNAP_KEEP_MAX").filter(|_| !keeps);
    let limit = limit.map(|_| {
        "a limit for the kept buffer is given, but no buffer is kept: add --buffer keep".into()
    });
    let folder = value("CUDASNAP_REPORT").and_then(no_file);
    limit.into_iter().chain(folder)
}

/// Why nothing could be written there, as things are now.
fn no_file(report: &OsStr) -> Option<String> {
    let path = Path::new(report);
    if path.is_dir() || report.as_bytes().ends_with(b"/") {
        return Some(format!(
            "{} is a folder: name a file in it for the report",
            path.display()
        ));
    }
    let folder = path.parent()?;
    (!folder.is_dir()).then(|| {
        format!(
            "there is no folder {} (yet) for the report",
            folder.display()
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        options: OptionArgs,
    }

    fn settings(line: &str) -> Result<Vec<(&'static str, String)>, String> {
        let parsed = Line::try_parse_from(format!("x {line}").split_whitespace());
        let parsed = parsed.map_err(|error| error.to_string())?;
        let settings = parsed.options.settings().into_iter();
        Ok(settings
            .map(|(name, value)| (name, value.into_string().unwrap()))
            .collect())
    }

    fn checked(pairs: &[(&str, &str)]) -> Complaints {
        let pairs: Vec<_> = pairs
            .iter()
            .map(|(name, value)| (name.into(), value.into()))
            .collect();
        check(&pairs)
    }

    #[test]
    fn every_option_of_the_table_has_an_argument_and_a_rule() {
        let line = "--mode observe --threads 5 --pages 4k --buffer keep --keep-max 3G --report /tmp/x --log info --strategy tune --sparse on";
        let mut names: Vec<_> = settings(line)
            .unwrap()
            .into_iter()
            .map(|(name, _)| name)
            .collect();
        let mut table: Vec<_> = OPTIONS.iter().map(|option| option.name).collect();
        names.sort_unstable();
        table.sort_unstable();
        assert_eq!(names, table);
        for option in OPTIONS {
            let default = option.default;
            assert!(
                default.is_empty() || understands(option.name, default.as_bytes()),
                "{}",
                option.name
            );
            assert!(!understands(option.name, b"nonsense"), "{}", option.name);
        }
    }

    #[test]
    fn arguments_that_the_library_would_not_understand_are_refused() {
        for line in [
            "--mode yes",
            "--threads 33",
            "--threads +1",
            "--threads -1",
            "--pages driver",
            "--buffer kept",
            "--keep-max 1.5G",
            "--keep-max 99999999999T",
            "--log loud",
        ] {
            assert!(settings(line).is_err(), "{line}");
        }
        let long = format!("--report /{}", "x".repeat(511));
        assert!(settings(&long).unwrap_err().contains("up to 511 bytes"));
        assert!(settings("--threads 33").unwrap_err().contains("0 to 32"));
    }

    #[test]
    fn a_report_path_is_made_absolute() {
        let (_, path) = settings("--report out.json").unwrap().remove(0);
        assert!(
            path.starts_with('/') && path.ends_with("/out.json"),
            "{path}"
        );
    }

    #[test]
    fn variables_in_the_environment_are_checked_too() {
        assert_eq!(
            checked(&[("CUDASNAP_THREADS", ""), ("CUDASNAP", "OFF"), ("HOME", "x")]),
            Complaints::default()
        );
        let bad = checked(&[
            ("CUDASNAP_THREADS", "many"),
            ("CUDASNAP_REPORT", "relative"),
        ]);
        assert_eq!(
            bad.wrong,
            [
                "CUDASNAP_THREADS is \"many\", which the library does not understand: it takes 0 to 32",
                "CUDASNAP_REPORT is \"relative\", which the library does not understand: it takes an absolute path, up to 511 bytes"
            ]
        );
    }

    #[test]
    fn what_has_no_effect_is_told() {
        let typo = checked(&[
            ("CUDASNAP_THREDS", "4"),
            ("CUDASNAP_LIB", "/x"),
            ("CUDASNAPPY", "1"),
        ]);
        assert_eq!(typo.doubtful.len(), 1);
        assert!(typo.doubtful[0].starts_with("CUDASNAP_THREDS means nothing"));
        let limit = checked(&[("CUDASNAP_KEEP_MAX", "4G")]);
        assert!(limit.doubtful[0].contains("--buffer keep"));
        let kept = checked(&[("CUDASNAP_KEEP_MAX", "4G"), ("CUDASNAP_BUFFER", "keep")]);
        assert_eq!(kept, Complaints::default());
        let folder = checked(&[("CUDASNAP_REPORT", "/no/such/folder/r.json")]);
        assert!(folder.doubtful[0].contains("/no/such/folder"));
        for path in ["/tmp", "/tmp/", "/no/such/folder/"] {
            let folder = checked(&[("CUDASNAP_REPORT", path)]);
            let words = format!("{path} is a folder: name a file in it");
            assert!(folder.doubtful[0].starts_with(&words), "{folder:?}");
        }
        let file = checked(&[("CUDASNAP_REPORT", "/tmp/report.json")]);
        assert_eq!(file, Complaints::default());
    }
}
