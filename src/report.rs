//! What people get to read: one JSON line per phase in the report file, and messages on stderr where they are asked for.
//! Both are formatted on the stack and written with one call.

use core::fmt::Write;
use core::sync::atomic::Ordering::Relaxed;

use cudasnap_wire::{Direction, End, Mode, PageKind, Phase, Step, Strategy};

use crate::config::Config;
use crate::text::Text;
use crate::{phase, record, sys};

/// A line is appended in one write of at most this many bytes, which a file system does not tear.
const LINE: usize = 4096;

/// Without waiting: the path may be that of a pipe that nobody reads.
const APPEND: i32 =
    libc::O_WRONLY | libc::O_APPEND | libc::O_CREAT | libc::O_NONBLOCK | libc::O_NOCTTY;

/// Appends the phases of a buffer to the report file. Called when the buffer is unmapped: nothing is opened between a
/// checkpoint and the dump of the process.
pub fn write(config: &Config, buffer: u32) {
    let (path, length) = &config.report;
    let Some(path) = path.get(..length + 1).filter(|_| *length > 0) else {
        return;
    };
    let mut failed = None;
    match sys::open(path, APPEND, 0o600) {
        Ok(fd) => {
            phase::of_buffer(buffer, |block| {
                let line = json_line(block);
                match sys::write(fd, line.as_bytes()) {
                    Ok(written) if written == line.as_bytes().len() && !line.is_cut() => {}
                    Ok(_) => failed = Some(libc::EIO),
                    Err(errno) => failed = Some(errno),
                }
            });
            sys::close(fd);
        }
        Err(errno) => failed = Some(errno),
    }
    if let Some(errno) = failed {
        record::step(Step::ReportFailed);
        log::warn!("the report cannot be written: error {errno}");
    }
}

/// One phase as a line of JSON: numbers, and words that need no escaping.
fn json_line(block: &Phase) -> Text<LINE> {
    let mut line = Text::new();
    let word = |number: Option<&'static str>| number.unwrap_or("unknown");
    // Bytes per nanosecond are GB/s.
    let total_ns = block.total_ns.load(Relaxed).max(1);
    let copied = block.copied.load(Relaxed);
    let expected = block.expected.load(Relaxed);
    let _ = write!(
        line,
        concat!(
            r#"{{"schema":1,"pid":{},"unix_ns":{},"buffer":{},"phase":"{}","end":"{}","mode":"{}","pages":"{}","#,
            r#""kept":{},"threads":{},"strategy":"{}","tried":{},"bytes":{},"copied":{},"copies":{},"prefaulted":{},"zeros":{},"effective":{},"#,
        ),
        sys::getpid(),
        block.started_unix_ns.load(Relaxed),
        block.buffer.load(Relaxed),
        word(Direction::from_number(block.direction.load(Relaxed)).map(Direction::word)),
        word(End::from_number(block.end.load(Relaxed)).map(End::word)),
        word(Mode::from_number(block.mode.load(Relaxed)).map(Mode::word)),
        word(PageKind::from_number(block.pages.load(Relaxed)).map(PageKind::word)),
        block.kept.load(Relaxed) != 0,
        block.threads.load(Relaxed),
        word(Strategy::from_number(block.strategy.load(Relaxed)).map(Strategy::word)),
        block.tried.load(Relaxed),
        expected,
        copied,
        block.copies.load(Relaxed),
        block.prefaulted.load(Relaxed),
        block.zeros.load(Relaxed),
        is_effective(block),
    );
    let _ = write!(
        line,
        concat!(
            r#""mmap_ns":{},"prefault_ns":{},"first_copy_ns":{},"copying_ns":{},"waiting_ns":{},"longest_wait_ns":{},"#,
            r#""loop_ns":{},"total_ns":{},"munmap_ns":{},"gb_per_s":{}.{:02},"#,
        ),
        block.mmap_ns.load(Relaxed),
        block.prefault_ns.load(Relaxed),
        block.first_copy_ns.load(Relaxed),
        block.copying_ns.load(Relaxed),
        block.waiting_ns.load(Relaxed),
        block.longest_wait_ns.load(Relaxed),
        block.loop_ns.load(Relaxed),
        block.total_ns.load(Relaxed),
        block.munmap_ns.load(Relaxed),
        copied / total_ns,
        copied % total_ns * 100 / total_ns,
    );
    push_doubts(&mut line);
    let _ = line.write_str("}\n");
    line
}

/// Whether the shim made the copies: at least 99 % of the buffer went through it, into memory of its own.
fn is_effective(block: &Phase) -> bool {
    let on = block.mode.load(Relaxed) == Mode::On.number();
    phase::went_through(block) && on && block.pages.load(Relaxed) != PageKind::Driver.number()
}

/// The options that were not understood, and how often each step down was taken since the program started.
fn push_doubts(line: &mut Text<LINE>) {
    let _ = line.write_str(r#""not_understood":["#);
    let mut comma = "";
    for (option, _) in record::complaints() {
        let _ = write!(line, r#"{comma}"{}""#, option.name);
        comma = ",";
    }
    let _ = line.write_str(r#"],"steps_down":{"#);
    comma = "";
    for (step, counter) in Step::ALL.iter().zip(&record::get().counters.steps) {
        let count = counter.load(Relaxed);
        if count > 0 {
            let _ = write!(line, r#"{comma}"{}":{count}"#, step.word());
            comma = ",";
        }
    }
    let _ = line.write_str("}");
}

struct Stderr;

impl log::Log for Stderr {
    fn enabled(&self, metadata: &log::Metadata<'_>) -> bool {
        metadata.level() <= log::max_level()
    }

    fn log(&self, record: &log::Record<'_>) {
        let mut line = Text::<512>::new();
        let _ = writeln!(line, "cudasnap[{}]: {}", sys::getpid(), record.args());
        sys::write_if_wanted(2, line.as_bytes());
    }

    fn flush(&self) {}
}

/// Sends messages of this level and graver ones to stderr.
pub fn start_messages(level: log::LevelFilter) {
    if level != log::LevelFilter::Off && log::set_logger(&Stderr).is_ok() {
        log::set_max_level(level);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_only_watched_is_not_effective() {
        let block = Phase::new();
        assert!(is_effective(&block));
        block.mode.store(Mode::Observe.number(), Relaxed);
        assert!(!is_effective(&block));
        block.mode.store(Mode::On.number(), Relaxed);
        block.pages.store(PageKind::Driver.number(), Relaxed);
        assert!(!is_effective(&block));
    }

    #[test]
    fn a_line_is_one_json_object_with_the_rate() {
        let block = Phase::new();
        block.direction.store(1, Relaxed);
        block.end.store(1, Relaxed);
        block.expected.store(1000, Relaxed);
        block.copied.store(990, Relaxed);
        block.total_ns.store(396, Relaxed);
        let line = json_line(&block);
        let text = std::str::from_utf8(line.as_bytes()).unwrap();
        assert!(!line.is_cut() && text.ends_with("}\n"));
        let value: serde_json::Value = serde_json::from_str(text).unwrap();
        assert_eq!(value["phase"], "checkpoint");
        assert_eq!(value["end"], "covered");
        assert_eq!(value["gb_per_s"], 2.5);
        assert_eq!(value["effective"], true);
        block.copied.store(989, Relaxed);
        let line = json_line(&block);
        let value: serde_json::Value = serde_json::from_slice(line.as_bytes()).unwrap();
        assert_eq!(value["effective"], false);
    }

    #[test]
    fn the_longest_line_fits() {
        let block = Phase::new();
        for word in [
            &block.expected,
            &block.copied,
            &block.copies,
            &block.prefaulted,
            &block.total_ns,
            &block.loop_ns,
        ] {
            word.store(u64::MAX, Relaxed);
        }
        assert!(!json_line(&block).is_cut());
    }
}
