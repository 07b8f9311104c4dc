//! How the outcome is told: a line per process on stdout, what went wrong on stderr; or one JSON object.

use std::io::{self, Write};
use std::time::Duration;

use serde::Serialize;

use super::failure::ILLEGAL_STATE;
use super::outcome::{Library, Outcome, Row, StepRow, Trouble};
use crate::driver::State;
use crate::exit::Exit;
use crate::foreign_text::printable;
use crate::output;
use crate::status::steps::meaning;
use crate::units;

/// Everything that a call came to.
#[derive(Debug, Serialize)]
pub struct Report<'a> {
    /// Version of this object's form.
    pub schema: u32,
    /// The verb.
    pub command: &'a str,
    /// Exit status.
    pub status: u8,
    /// The signal that came, if any.
    pub signal: Option<i32>,
    /// Why nothing was done, or what is wrong with the numbers on the command line.
    pub errors: &'a [String],
    /// What the looks beforehand found.
    pub notes: &'a [String],
    /// The processes.
    pub processes: &'a [Row],
}

impl Report<'_> {
    /// Writes the object to stdout.
    pub fn print(&self) -> io::Result<()> {
        let mut out = io::stdout().lock();
        serde_json::to_writer(&mut out, self)?;
        writeln!(out)?;
        out.flush()
    }
}

/// A stdout that nobody reads any more has been told enough.
pub fn after_writing(result: io::Result<()>, exit: Exit) -> Exit {
    match result {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            complain(&[format!("the result cannot be written: {error}")]);
            if exit == Exit::Done {
                Exit::Failed
            } else {
                exit
            }
        }
        _ => exit,
    }
}

/// Writes sentences to stderr, each with the program's name in front.
pub fn complain(sentences: &[String]) {
    sentences.iter().for_each(output::complain);
}

/// Writes lines to stdout.
pub fn print_lines(lines: &[String]) -> io::Result<()> {
    let mut out = io::stdout().lock();
    for line in lines {
        writeln!(out, "{line}")?;
    }
    out.flush()
}

/// The states that were read: the word alone when one process was asked for, else with its id in front.
pub fn states(rows: &[Row], one: bool) -> Vec<String> {
    let known = rows.iter().filter_map(|row| Some((row.pid, row.state?)));
    known
        .map(|(pid, state)| {
            if one {
                state.to_string()
            } else {
                format!("{pid} {state}")
            }
        })
        .collect()
}

/// A line per process.
pub fn lines(rows: &[Row]) -> Vec<String> {
    let width = |text: &dyn Fn(&Row) -> String| {
        let widths = rows.iter().map(|row| text(row).chars().count());
        widths.max().unwrap_or(0)
    };
    let (pids, names) = (width(&|row| row.pid.to_string()), width(&name));
    let states = width(&state);
    rows.iter()
        .map(|row| {
            format!(
                "{:>pids$} {:<names$}  {:<states$}  {}",
                row.pid,
                name(row),
                state(row),
                result(row)
            )
            .trim_end()
            .to_owned()
        })
        .collect()
}

fn name(row: &Row) -> String {
    if row.namespace_pid == row.pid {
        printable(&row.name)
    } else {
        format!(
            "{} ({} in its container)",
            printable(&row.name),
            row.namespace_pid
        )
    }
}

fn state(row: &Row) -> String {
    row.state
        .map_or_else(|| "-".into(), |state| state.to_string())
}

fn result(row: &Row) -> String {
    match row.outcome {
        Outcome::Done => {
            let copy = row.steps.iter().find(|step| step.step.copies());
            let step = copy.or(row.steps.last());
            step.map_or_else(String::new, numbers)
        }
        Outcome::Already => "already so".into(),
        Outcome::Undone => "brought back".into(),
        Outcome::NoCuda => "does not use CUDA".into(),
        Outcome::Untouched => "nothing was done".into(),
        Outcome::Failed => failed(row.troubles.first()),
    }
}

fn failed(first: Option<&Trouble>) -> String {
    match first {
        Some(Trouble {
            step: Some(step), ..
        }) => format!("{step} failed"),
        Some(Trouble {
            code: ILLEGAL_STATE,
            ..
        }) => "not possible".into(),
        _ => "failed".into(),
    }
}

fn numbers(step: &StepRow) -> String {
    let time = Duration::from_secs_f64(step.seconds.max(0.0));
    let plain = format!("in {}", units::duration(time));
    let Some(recorded) = &step.recorded else {
        return match step.library {
            Some(Library::NotLoaded) => {
                format!("{plain}, library not loaded (\"cudasnap run\" loads it)")
            }
            Some(Library::NotEffective) => format!("{plain}, library saw nothing of it"),
            Some(Library::Unknown) => format!("{plain}, library's record not readable"),
            Some(Library::Effective) | None => plain,
        };
    };
    let bytes = format!(
        "{} {plain} ({})",
        units::bytes(recorded.bytes),
        units::rate(recorded.bytes, time)
    );
    if step.library != Some(Library::Effective) {
        let percent = u128::from(recorded.copied) * 100 / u128::from(recorded.bytes.max(1));
        return if recorded.mode == "observe" {
            format!("{bytes}, the driver's own copies, observed ({percent} % of them)")
        } else {
            format!(
                "{bytes}, library not effective (mode {}, {percent} % of the copies)",
                recorded.mode
            )
        };
    }
    let threads = match recorded.threads {
        1 => "1 thread".into(),
        count => format!("{count} threads"),
    };
    let kept = if recorded.kept { ", buffer kept" } else { "" };
    format!("{bytes}, {threads}, {}{kept}", recorded.pages)
}

/// What is to be said about the processes besides their lines.
pub fn remarks(rows: &[Row], signal: Option<i32>) -> Vec<String> {
    let mut remarks = Vec::new();
    for row in rows {
        let who = format!("process {} ({})", row.pid, printable(&row.name));
        for trouble in &row.troubles {
            remarks.push(format!("{who}: {}", trouble.text));
            remarks.extend(trouble.hints.iter().map(|hint| format!("  {hint}")));
        }
        if row.outcome == Outcome::NoCuda {
            let below = row.below.as_ref();
            let below = below.map_or_else(String::new, |below| format!("; {below}: --tree"));
            remarks.push(format!("{who} does not use CUDA: left alone{below}"));
        }
        remarks.extend(row.steps.iter().filter_map(|step| steps_down(&who, step)));
        remarks.extend(left_behind(row, &who, signal));
    }
    remarks
}

fn steps_down(who: &str, step: &StepRow) -> Option<String> {
    let steps = &step.recorded.as_ref()?.steps_down;
    let told: Vec<String> = steps
        .iter()
        .map(|named| format!("{} {} ({})", named.name, named.value, meaning(named.name)))
        .collect();
    (!told.is_empty()).then(|| {
        format!(
            "{who}: in the {} the library stepped down: {}",
            step.step,
            told.join(", ")
        )
    })
}

/// The state in which a process was left, when nobody would expect it.
fn left_behind(row: &Row, who: &str, signal: Option<i32>) -> Option<String> {
    if row.is_stuck_locked() {
        return Some(format!(
            "{who} IS STILL LOCKED, its CUDA calls wait: \"cudasnap unlock {}\" lets it run",
            row.pid
        ));
    }
    let checkpointed =
        row.state == Some(State::Checkpointed) && row.before != Some(State::Checkpointed);
    let unexpected = matches!(row.outcome, Outcome::Failed | Outcome::Undone)
        || (signal.is_some() && row.outcome == Outcome::Done);
    (checkpointed && unexpected).then(|| {
        format!(
            "{who} is checkpointed: \"cudasnap restore {}\" brings it back",
            row.pid
        )
    })
}

#[cfg(test)]
mod tests {
    use super::super::outcome::tests::row;
    use super::super::plan::Step;
    use super::super::shim::Numbers;
    use super::*;
    use crate::record::view::Named;

    fn step(library: Library, recorded: Option<Numbers>) -> StepRow {
        StepRow {
            step: Step::Checkpoint,
            seconds: 1.03,
            undoing: false,
            library: Some(library),
            recorded,
        }
    }

    fn recorded() -> Numbers {
        Numbers {
            bytes: 26_300_000_000,
            copied: 26_300_000_000,
            effective: true,
            threads: 16,
            pages: "thp".into(),
            kept: false,
            strategy: "flush-late".into(),
            tried: 0,
            zeros: 0,
            mode: "on".into(),
            nanoseconds: 1_000_000_000,
            steps_down: Vec::new(),
        }
    }

    #[test]
    fn a_result_is_one_line_in_columns() {
        let mut first = row(4711, Outcome::Done);
        first.state = Some(State::Checkpointed);
        first.steps = vec![step(Library::Effective, Some(recorded()))];
        let mut second = row(9, Outcome::Done);
        second.name = "sh".into();
        second.namespace_pid = 1;
        second.state = Some(State::Checkpointed);
        second.steps = vec![step(Library::NotLoaded, None)];
        assert_eq!(
            lines(&[first, second]),
            [
                "4711 python3                  checkpointed  26.3 GB in 1.03 s (25.5 GB/s), 16 threads, thp",
                "   9 sh (1 in its container)  checkpointed  in 1.03 s, library not loaded (\"cudasnap run\" loads it)",
            ]
        );
    }

    #[test]
    fn a_library_that_did_not_do_it_is_told() {
        let mut seen = recorded();
        seen.mode = "observe".into();
        seen.copied = 0;
        let told = numbers(&step(Library::NotEffective, Some(seen)));
        assert!(
            told.ends_with("the driver's own copies, observed (0 % of them)"),
            "{told}"
        );
        // A record that lies.
        let mut absurd = recorded();
        (absurd.bytes, absurd.copied) = (1, u64::MAX);
        absurd.mode = "on".into();
        let told = numbers(&step(Library::NotEffective, Some(absurd)));
        assert!(told.contains("1844674407370955161500 %"), "{told}");
        let told = numbers(&step(Library::NotEffective, None));
        assert_eq!(told, "in 1.03 s, library saw nothing of it");
    }

    #[test]
    fn what_is_left_behind_is_said_loudly() {
        let mut stuck = row(7, Outcome::Failed);
        stuck.state = Some(State::Locked);
        stuck.troubles.push(Trouble {
            step: Some(Step::Unlock),
            code: 304,
            text: "unlock failed".into(),
            hints: vec!["look here".into()],
        });
        let told = remarks(&[stuck], None);
        assert_eq!(
            told[..2],
            ["process 7 (python3): unlock failed", "  look here"]
        );
        assert!(told[2].contains("IS STILL LOCKED") && told[2].contains("cudasnap unlock 7"));
        let mut done = row(8, Outcome::Done);
        done.state = Some(State::Checkpointed);
        assert!(remarks(&[done.clone()], None).is_empty());
        assert!(remarks(&[done], Some(15))[0].contains("cudasnap restore 8"));
    }

    #[test]
    fn who_was_meant_by_a_launchers_id_is_told() {
        let mut launcher = row(7, Outcome::NoCuda);
        let told = |row: &Row| remarks(std::slice::from_ref(row), None);
        let alone = "process 7 (python3) does not use CUDA: left alone";
        assert_eq!(told(&launcher), [alone]);
        launcher.below = Some("8 (worker) below it does".into());
        let with = format!("{alone}; 8 (worker) below it does: --tree");
        assert_eq!(told(&launcher), [with]);
    }

    #[test]
    fn a_state_asked_for_alone_is_one_word() {
        let (one, mut other) = (row(7, Outcome::Done), row(8, Outcome::Failed));
        other.state = None;
        assert_eq!(states(std::slice::from_ref(&one), true), ["running"]);
        assert_eq!(states(&[one, other], false), ["7 running"]);
    }

    #[test]
    fn steps_down_are_named() {
        let mut low = recorded();
        low.steps_down = vec![Named {
            name: "no-thread",
            value: 2,
        }];
        let mut done = row(7, Outcome::Done);
        done.steps = vec![step(Library::Effective, Some(low))];
        assert!(remarks(&[done], None)[0]
            .contains("stepped down: no-thread 2 (the kernel refused a thread"));
    }
}
