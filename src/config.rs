//! The options: read once, by the constructor, from the table in `cudasnap_wire::OPTIONS`.

use core::ffi::CStr;
use core::sync::atomic::Ordering::Relaxed;

use cudasnap_wire::{Choice, Mode, PageKind, Record, Rest, OPTIONS};

/// Longest report path that is taken.
pub const PATH_MAX: usize = 512;
/// Most threads that an option can ask for.
pub const THREADS_MAX: u32 = 32;

/// Options in force.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// `CUDASNAP`
    pub mode: Mode,
    /// `CUDASNAP_THREADS`, 0 = automatic.
    pub threads: u32,
    /// `CUDASNAP_PAGES`
    pub pages: PageKind,
    /// `CUDASNAP_BUFFER`
    pub buffer: Rest,
    /// `CUDASNAP_KEEP_MAX` in bytes, 0 = as long as the last buffer.
    pub keep_max: u64,
    /// `CUDASNAP_REPORT`, zero-terminated; the length excludes the zero, 0 = none.
    pub report: ([u8; PATH_MAX], usize),
    /// `CUDASNAP_LOG`
    pub log: log::LevelFilter,
    /// `CUDASNAP_STRATEGY`
    pub strategy: Choice,
    /// `CUDASNAP_SPARSE`
    pub sparse: bool,
}

impl Config {
    /// The defaults.
    pub const fn new() -> Self {
        Config {
            mode: Mode::On,
            threads: 0,
            pages: PageKind::Thp,
            buffer: Rest::Fresh,
            keep_max: 0,
            report: ([0; PATH_MAX], 0),
            log: log::LevelFilter::Off,
            strategy: Choice::Fixed,
            sparse: false,
        }
    }

    /// Takes option number `index` of [`OPTIONS`]; false when the value is not understood (and nothing was changed).
    fn take(&mut self, index: usize, value: &[u8]) -> bool {
        match index {
            0 => set(&mut self.mode, parse_word(value, Mode::ALL, Mode::word)),
            1 => set(&mut self.threads, parse_threads(value)),
            2 => set(
                &mut self.pages,
                parse_word(value, &PageKind::ALL[..3], PageKind::word),
            ),
            3 => set(&mut self.buffer, parse_word(value, Rest::ALL, Rest::word)),
            4 => set(&mut self.keep_max, parse_size(value)),
            5 => set(&mut self.report, parse_path(value)),
            6 => set(&mut self.log, parse_level(value)),
            7 => set(&mut self.strategy, parse_choice(value)),
            8 => set(&mut self.sparse, parse_switch(value)),
            _ => false,
        }
    }
}

fn set<T>(place: &mut T, value: Option<T>) -> bool {
    match value {
        Some(value) => {
            *place = value;
            true
        }
        None => false,
    }
}

fn parse_word<T: Copy>(value: &[u8], all: &[T], word: fn(T) -> &'static str) -> Option<T> {
    all.iter()
        .copied()
        .find(|&candidate| word(candidate).as_bytes().eq_ignore_ascii_case(value))
}

fn parse_threads(value: &[u8]) -> Option<u32> {
    let number = crate::lines::parse_number(value, 10)?;
    u32::try_from(number)
        .ok()
        .filter(|&threads| threads <= THREADS_MAX)
}

fn parse_size(value: &[u8]) -> Option<u64> {
    let (digits, shift) = match value.split_last()? {
        (b'K' | b'k', digits) => (digits, 10),
        (b'M' | b'm', digits) => (digits, 20),
        (b'G' | b'g', digits) => (digits, 30),
        (b'T' | b't', digits) => (digits, 40),
        _ => (value, 0),
    };
    crate::lines::parse_number(digits, 10)?.checked_mul(1 << shift)
}

fn parse_path(value: &[u8]) -> Option<([u8; PATH_MAX], usize)> {
    let mut path = [0u8; PATH_MAX];
    if value.first() != Some(&b'/') || value.len() >= PATH_MAX {
        return None;
    }
    path.get_mut(..value.len())?.copy_from_slice(value);
    Some((path, value.len()))
}

fn parse_level(value: &[u8]) -> Option<log::LevelFilter> {
    use log::LevelFilter::{Debug, Info, Off, Warn};
    parse_word(value, &[Off, Warn, Info, Debug], |level| match level {
        Warn => "warn",
        Info => "info",
        Debug => "debug",
        _ => "off",
    })
}

fn parse_switch(value: &[u8]) -> Option<bool> {
    parse_word(value, &[false, true], |on| if on { "on" } else { "off" })
}

fn parse_choice(value: &[u8]) -> Option<Choice> {
    Choice::all().find(|choice| choice.word().as_bytes().eq_ignore_ascii_case(value))
}

/// Reads the environment, writes options and complaints to the record. An empty value counts as absent.
pub fn read_environment(record: &Record) -> Config {
    let mut name = crate::text::Text::<32>::new();
    read_from(record, |option| {
        name.truncate(0);
        name.push(option.as_bytes());
        name.push(b"\0");
        let name = CStr::from_bytes_with_nul(name.as_bytes()).ok()?;
        // SAFETY: called by the constructor, before the program's own code could change the environment.
        let value = unsafe { libc::getenv(name.as_ptr()) };
        if value.is_null() {
            return None;
        }
        // SAFETY: getenv returned a terminated string of the environment.
        Some(unsafe { CStr::from_ptr(value) }.to_bytes())
    })
}

/// The same from any environment.
pub fn read_from<'a>(record: &Record, mut lookup: impl FnMut(&str) -> Option<&'a [u8]>) -> Config {
    let mut config = Config::new();
    let mut complaints = record.complaints.iter();
    for (index, option) in OPTIONS.iter().enumerate() {
        let value = lookup(option.name).filter(|value| !value.is_empty());
        let Some(value) = value else { continue };
        if !config.take(index, value) {
            if let Some(place) = complaints.next() {
                complain(place, index, value);
            }
        }
    }
    publish(record, &config);
    config
}

fn complain(place: &cudasnap_wire::Complaint, index: usize, value: &[u8]) {
    let mut length = 0;
    for (cell, &byte) in place.value.iter().zip(value) {
        cell.store(byte, Relaxed);
        length += 1;
    }
    place.length.store(length, Relaxed);
    place.option.store(index as u32 + 1, Relaxed);
}

fn publish(record: &Record, config: &Config) {
    let options = &record.options;
    options.seq.write(|| {
        options.mode.store(config.mode.number(), Relaxed);
        options.threads.store(config.threads, Relaxed);
        options.pages.store(config.pages.number(), Relaxed);
        options.keep.store(config.buffer.number(), Relaxed);
        options.keep_max.store(config.keep_max, Relaxed);
        options.report_len.store(config.report.1 as u32, Relaxed);
        let level = match config.log {
            log::LevelFilter::Off | log::LevelFilter::Error => 0,
            log::LevelFilter::Warn => 1,
            log::LevelFilter::Info => 2,
            _ => 3,
        };
        options.log.store(level, Relaxed);
        options.strategy.store(config.strategy.number(), Relaxed);
        options.sparse.store(config.sparse.into(), Relaxed);
    });
    record.mode.store(config.mode.number(), Relaxed);
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn read(pairs: &[(&str, &'static str)]) -> (Config, Vec<(u32, String)>) {
        let record = Record::new(0);
        let config = read_from(&record, |name| {
            pairs
                .iter()
                .find(|(key, _)| *key == name)
                .map(|(_, value)| value.as_bytes())
        });
        let complaints = record
            .complaints
            .iter()
            .filter(|complaint| complaint.option.load(Relaxed) != 0)
            .map(|complaint| {
                let length = complaint.length.load(Relaxed) as usize;
                let bytes = complaint.value[..length]
                    .iter()
                    .map(|byte| byte.load(Relaxed))
                    .collect();
                (
                    complaint.option.load(Relaxed),
                    String::from_utf8(bytes).unwrap(),
                )
            })
            .collect();
        (config, complaints)
    }

    #[test]
    fn nothing_set_gives_the_defaults_of_the_table() {
        let (config, complaints) = read(&[]);
        assert_eq!(config, Config::new());
        assert!(complaints.is_empty());
        let mut from_table = Config {
            threads: 9,
            buffer: Rest::Keep,
            keep_max: 9,
            strategy: Choice::Tune,
            sparse: true,
            ..Config::new()
        };
        for (index, option) in OPTIONS.iter().enumerate() {
            if !option.default.is_empty() {
                assert!(
                    from_table.take(index, option.default.as_bytes()),
                    "{}",
                    option.name
                );
            }
        }
        assert_eq!(from_table, Config::new());
    }

    #[test]
    fn every_option_is_taken() {
        let (config, complaints) = read(&[
            ("CUDASNAP", "observe"),
            ("CUDASNAP_THREADS", "5"),
            ("CUDASNAP_PAGES", "hugetlb"),
            ("CUDASNAP_BUFFER", "keep"),
            ("CUDASNAP_KEEP_MAX", "3G"),
            ("CUDASNAP_REPORT", "/tmp/x"),
            ("CUDASNAP_LOG", "info"),
            ("CUDASNAP_STRATEGY", "No-Flush"),
            ("CUDASNAP_SPARSE", "on"),
        ]);
        assert!(complaints.is_empty());
        assert_eq!(
            config.strategy,
            Choice::Only(cudasnap_wire::Strategy::NoFlush)
        );
        assert!(config.sparse);
        assert_eq!(config.mode, Mode::Observe);
        assert_eq!(
            (config.threads, config.pages, config.buffer),
            (5, PageKind::Hugetlb, Rest::Keep)
        );
        assert_eq!(config.keep_max, 3 << 30);
        assert_eq!(&config.report.0[..config.report.1], b"/tmp/x");
        assert_eq!(config.log, log::LevelFilter::Info);
    }

    #[test]
    fn a_value_that_is_not_understood_means_the_default_and_is_told() {
        let bad = [
            ("CUDASNAP", "yes"),
            ("CUDASNAP_THREADS", "33"),
            ("CUDASNAP_PAGES", "driver"),
            ("CUDASNAP_BUFFER", "kept"),
            ("CUDASNAP_KEEP_MAX", "99999999999T"),
            ("CUDASNAP_REPORT", "relative"),
            ("CUDASNAP_LOG", "loud"),
            ("CUDASNAP_STRATEGY", "driver"),
            ("CUDASNAP_SPARSE", "yes"),
        ];
        let (config, complaints) = read(&bad);
        assert_eq!(config, Config::new());
        let expected: Vec<_> = (1..)
            .zip(bad)
            .map(|(number, (_, value))| (number, value.to_string()))
            .collect();
        assert_eq!(complaints, expected);
    }

    #[test]
    fn words_may_be_written_in_capitals() {
        let (config, complaints) = read(&[
            ("CUDASNAP", "OFF"),
            ("CUDASNAP_BUFFER", "Keep"),
            ("CUDASNAP_LOG", "INFO"),
        ]);
        assert!(complaints.is_empty());
        assert_eq!(
            (config.mode, config.buffer, config.log),
            (Mode::Off, Rest::Keep, log::LevelFilter::Info)
        );
    }

    proptest! {
        /// A value is taken, or it is told and the default holds; what is taken says the same when it is written out again.
        #[test]
        fn a_value_is_taken_or_told(index in 0..OPTIONS.len(), value in value()) {
            let record = Record::new(0);
            let name = OPTIONS[index].name;
            let config = read_from(&record, |asked| (asked == name).then_some(&value[..]));
            let told = record.complaints[0].option.load(Relaxed) as usize;
            let mut expected = Config::new();
            let taken = value.is_empty() || expected.take(index, &value);
            prop_assert_eq!(told, if taken { 0 } else { index + 1 });
            prop_assert_eq!(&config, &expected);
            prop_assert_eq!(record.complaints[1].option.load(Relaxed), 0);
            if !taken {
                prop_assert_eq!(config, Config::new());
            }
        }

        #[test]
        fn sizes_are_what_they_say(number in 0u64..1 << 24, unit in 0usize..5) {
            let (letter, shift) = [("", 0), ("K", 10), ("m", 20), ("G", 30), ("t", 40)][unit];
            prop_assert_eq!(parse_size(format!("{number}{letter}").as_bytes()), Some(number << shift));
            prop_assert_eq!(parse_size(format!("{}{letter}", u64::MAX).as_bytes()).is_some(), shift == 0);
        }
    }

    /// Bytes, and words that an option may understand.
    fn value() -> impl Strategy<Value = Vec<u8>> {
        prop_oneof![
            proptest::collection::vec(any::<u8>(), 0..80),
            "[0-9]{1,22}[kKmMgGtT]?".prop_map(String::into_bytes),
            "(on|observe|off|thp|4k|hugetlb|driver|fresh|keep|Reserve|tune|plain|warn|info|DEBUG|Off)"
                .prop_map(String::into_bytes),
            "/[a-z/]{0,600}".prop_map(String::into_bytes),
        ]
    }

    #[test]
    fn sizes_have_units() {
        assert_eq!(parse_size(b"0"), Some(0));
        assert_eq!(parse_size(b"4096"), Some(4096));
        assert_eq!(parse_size(b"2k"), Some(2048));
        assert_eq!(parse_size(b"1T"), Some(1 << 40));
        for bad in [&b""[..], b"K", b"-1", b"1.5G", b"1GB", b"0x10"] {
            assert_eq!(parse_size(bad), None);
        }
    }
}
