//! Shows the steps while they go on: a bar per process on stderr where that is a terminal, fed from the library's records; and
//! keeps what the records said about each step.

use std::io::Write;
use std::time::{Duration, Instant};

use indicatif::{MultiProgress, ProgressBar, ProgressStyle};

use super::engine::Show;
use super::plan::Step;
use super::shim::{Part, Progress, Shim};
use crate::units;

/// Longest name in front of a bar: with it a line fits 80 columns.
const NAME: usize = 12;

/// A process that is shown.
#[derive(Debug)]
struct Shown {
    title: String,
    shim: Shim,
    bar: Option<Bar>,
    parts: Vec<(Step, Part)>,
}

#[derive(Debug)]
struct Bar {
    step: Step,
    bar: ProgressBar,
    since: Instant,
    first: Option<(Instant, u64)>,
}

/// The bars of all processes.
#[derive(Debug)]
pub struct Watcher {
    bars: MultiProgress,
    shown: Vec<Shown>,
    verbose: bool,
}

impl Watcher {
    /// For these processes (id, name, record). On anything but a terminal there are no bars.
    pub fn new(processes: impl Iterator<Item = (i32, String, Shim)>, verbose: bool) -> Self {
        let shown = processes.map(|(pid, name, shim)| Shown {
            title: format!("{pid:>7} {:<NAME$.NAME$}", name),
            shim,
            bar: None,
            parts: Vec::new(),
        });
        Watcher {
            // Hidden by itself where stderr is no terminal.
            bars: MultiProgress::new(),
            shown: shown.collect(),
            verbose,
        }
    }

    /// The record of a process.
    pub fn shim(&self, who: usize) -> &Shim {
        &self.shown[who].shim
    }

    /// What the records said about the steps of a process.
    pub fn into_parts(self) -> Vec<Vec<(Step, Part)>> {
        self.shown.into_iter().map(|shown| shown.parts).collect()
    }
}

impl Show for Watcher {
    fn began(&mut self, who: usize, step: Step, undoing: bool) {
        if self.verbose {
            let again = if undoing { " (undoing)" } else { "" };
            self.say(&format!("{}: {step}{again}", self.shown[who].title.trim()));
        }
        let shown = &mut self.shown[who];
        if step.copies() {
            shown.shim.began();
        }
        // In its form before it is added: that draws it.
        let bar = ProgressBar::no_length()
            .with_style(style(false))
            .with_prefix(format!("{} {step:<10}", shown.title));
        let bar = self.bars.add(bar);
        shown.bar = Some(Bar {
            step,
            bar,
            since: Instant::now(),
            first: None,
        });
    }

    fn tick(&mut self) {
        if self.bars.is_hidden() {
            return;
        }
        for shown in &mut self.shown {
            if let Some(bar) = &mut shown.bar {
                bar.draw(&shown.shim);
            }
        }
    }

    fn ended(&mut self, who: usize) {
        let shown = &mut self.shown[who];
        let Some(bar) = shown.bar.take() else { return };
        bar.bar.finish_and_clear();
        if bar.step.copies() {
            shown.parts.push((bar.step, shown.shim.ended(bar.step)));
        }
    }

    fn say(&mut self, text: &str) {
        self.bars.suspend(|| {
            // A stderr that nobody reads is no reason to stop.
            let _ = writeln!(std::io::stderr(), "cudasnap: {text}");
        });
    }
}

impl Bar {
    fn draw(&mut self, shim: &Shim) {
        let progress = if self.step.copies() {
            shim.progress(self.step)
        } else {
            None
        };
        let known = progress.filter(|progress| progress.expected > 0);
        if let Some(progress) = known {
            if self.bar.length().is_none() {
                self.bar.set_style(style(true));
            }
            self.bar.set_length(progress.expected);
            self.bar.set_position(progress.copied);
            if progress.copied > 0 {
                self.first.get_or_insert((Instant::now(), progress.copied));
            }
        }
        let message = match known {
            Some(progress) => copying(progress, self.rate(progress.copied)),
            None => waiting(self.step, self.since.elapsed(), progress.is_some()),
        };
        self.bar.set_message(message);
        self.bar.tick();
    }

    /// Bytes and time since the first bytes were seen, else since the step began.
    fn rate(&self, copied: u64) -> (u64, Duration) {
        match self.first {
            Some((since, first)) if copied > first => (copied - first, since.elapsed()),
            _ => (copied, self.since.elapsed()),
        }
    }
}

fn style(with_bar: bool) -> ProgressStyle {
    let template = if with_bar {
        "{prefix} {bar:12} {wide_msg}"
    } else {
        "{prefix} {spinner} {wide_msg}"
    };
    ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar())
}

fn copying(progress: Progress, (bytes, time): (u64, Duration)) -> String {
    let phase = match progress {
        Progress { over: true, .. } => "driver finishes",
        Progress { copied: 0, .. } => "prefault",
        _ => "copying",
    };
    let (done, all) = (
        units::bytes(progress.copied),
        units::bytes(progress.expected),
    );
    if progress.over || progress.copied == 0 {
        return format!("{done}/{all} {phase}");
    }
    format!("{done}/{all} {} {phase}", units::rate(bytes, time))
}

fn waiting(step: Step, time: Duration, with_shim: bool) -> String {
    let what = match (step.copies(), with_shim) {
        (true, true) => "driver prepares",
        (true, false) => "at the driver's own speed",
        (false, _) => "waiting for work under way",
    };
    let what = if step == Step::Unlock { "" } else { what };
    format!("{:.1} s {what}", time.as_secs_f64())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bar_tells_bytes_rate_and_phase() {
        let progress = |copied, over| Progress {
            expected: 26_300_000_000,
            copied,
            prefaulted: 1,
            over,
        };
        let second = Duration::from_secs(1);
        for (progress, text) in [
            (progress(0, false), "0 B/26.3 GB prefault"),
            (
                progress(12_300_000_000, false),
                "12.3 GB/26.3 GB 24.1 GB/s copying",
            ),
            (
                progress(26_300_000_000, true),
                "26.3 GB/26.3 GB driver finishes",
            ),
        ] {
            assert_eq!(copying(progress, (24_100_000_000, second)), text);
        }
        assert_eq!(
            waiting(Step::Lock, 2 * second, false),
            "2.0 s waiting for work under way"
        );
        assert!(waiting(Step::Restore, second, false).contains("own speed"));
    }

    #[test]
    fn the_templates_are_sound() {
        for template in [
            "{prefix} {bar:12} {wide_msg}",
            "{prefix} {spinner} {wide_msg}",
        ] {
            ProgressStyle::with_template(template).unwrap();
        }
    }
}
