//! The table of all CUDA processes: what each looks like in the four stages (running, locked, checkpointed, restored). `columns` are its
//! columns, `room` chooses those for which a terminal has room.

mod columns;
mod room;

use comfy_table::{presets, Attribute, Cell, CellAlignment, Color, ContentArrangement, Table};

use super::facts::{Process, Round};
use super::judge::{Activity, State, Verdict};
use super::notes;
use super::text::Paper;

use columns::{Column, COLUMNS};
use room::{fitting, GAP};

/// The table, the warnings below it, the notes below those.
pub fn text(round: &Round, verdicts: &[Verdict], paper: Paper) -> String {
    let mut text = String::new();
    if round.processes.is_empty() {
        text += "no CUDA process\n";
    } else {
        let rows: Vec<(&Process, &Verdict)> = round.processes.iter().zip(verdicts).collect();
        for line in table(&rows, paper).lines() {
            text += line.trim_end();
            text.push('\n');
        }
        text += &warnings(&rows, paper);
    }
    text + &notes::text(round, paper)
}

fn table(rows: &[(&Process, &Verdict)], paper: Paper) -> String {
    let mut cells: Vec<Vec<String>> = COLUMNS
        .iter()
        .map(|column| {
            rows.iter()
                .map(|(process, verdict)| (column.value)(process, verdict))
                .collect()
        })
        .collect();
    let shown = fitting(&mut cells, paper);
    let mut table = Table::new();
    table
        .load_style(presets::NOTHING)
        .set_content_arrangement(ContentArrangement::Disabled)
        .force_no_tty();
    if paper.colour {
        table.enforce_styling();
    }
    table.set_header(shown.iter().map(|at| {
        aligned(Cell::new(COLUMNS[*at].head), &COLUMNS[*at]).add_attribute(Attribute::Bold)
    }));
    for (row, (_, verdict)) in rows.iter().enumerate() {
        table.add_row(shown.iter().map(|at| {
            let cell = Cell::new(&cells[*at][row]);
            aligned(tinted(cell, COLUMNS[*at].head, verdict), &COLUMNS[*at])
        }));
    }
    let last = shown.len().saturating_sub(1);
    for column in table.column_iter_mut() {
        // Nothing after the last one: in colour, blanks at the end of a line are not the last characters of it.
        let gap = if column.index == last { 0 } else { GAP as u16 };
        column.set_padding((0, gap));
    }
    table.to_string()
}

fn aligned(cell: Cell, column: &Column) -> Cell {
    let alignment = if column.right {
        CellAlignment::Right
    } else {
        CellAlignment::Left
    };
    cell.set_alignment(alignment)
}

fn tinted(cell: Cell, head: &str, verdict: &Verdict) -> Cell {
    let colour = match (head, verdict.state, verdict.activity) {
        ("STATE", State::Running, _) => Color::Green,
        ("STATE", State::Checkpointed, _) => Color::Cyan,
        ("STATE", State::Checkpointing | State::Restoring, _) => Color::Blue,
        ("STATE", State::Unknown, _) => Color::Yellow,
        ("LIBRARY", _, Activity::Active) => Color::Green,
        ("LIBRARY", _, Activity::NotEffective | Activity::Unreadable) => Color::Yellow,
        _ => return cell,
    };
    cell.fg(colour)
}

fn warnings(rows: &[(&Process, &Verdict)], paper: Paper) -> String {
    let mut text = String::new();
    for (process, verdict) in rows {
        for warning in &verdict.warnings {
            let head = format!("{} ", process.identity.pid);
            let lines = paper.wrap(&format!("warning: {}", warning.text), head.len() + 2);
            for (number, line) in lines.iter().enumerate() {
                let head = if number == 0 {
                    head.clone()
                } else {
                    " ".repeat(head.len() + 2)
                };
                text += &format!("{head}{}\n", paper.warning(line));
            }
        }
    }
    if text.is_empty() {
        text
    } else {
        format!("\n{text}")
    }
}

#[cfg(test)]
mod tests {
    use super::super::facts::tests::{process, round, with_record};
    use super::super::facts::{Relative, SeenByNvml};
    use super::*;
    use console::measure_text_width;
    use std::sync::atomic::Ordering::Relaxed;

    fn shown(round: &Round, paper: Paper) -> String {
        let verdicts: Vec<Verdict> = round
            .processes
            .iter()
            .map(|process| Verdict::of(process, round.unix_ns))
            .collect();
        text(round, &verdicts, paper)
    }

    fn narrow(width: usize) -> Paper {
        Paper {
            width: Some(width),
            colour: false,
        }
    }

    /// The widest words that there are.
    fn widest() -> Round {
        let mut process = with_record(4_194_303, |record| {
            record.buffer.state.store(1, Relaxed);
            record.current.direction.store(1, Relaxed);
            record.current.expected.store(100, Relaxed);
            record.current.copied.store(99, Relaxed);
            record.counters.requests.store(1, Relaxed);
            record.history_count.store(1, Relaxed);
            record.history[0].direction.store(1, Relaxed);
            // Of a buffer before the one that is being filled.
            record.current.buffer.store(2, Relaxed);
            record.history[0].total_ns.store(7, Relaxed);
            record.history[0].expected.store(1000, Relaxed);
            record.history[0].copied.store(147, Relaxed);
        });
        process.buffer_is_mapped = true;
        process.identity.name = "VLLM::EngineCor".into();
        process.user = "somebody-with-a-long-name".into();
        process.rss_anon = 99_900_000_000;
        process.nvml = Some(SeenByNvml {
            gpus: vec![0],
            memory: Some(140_000_000_000),
        });
        round(vec![process])
    }

    #[test]
    fn everything_is_shown_where_there_is_room() {
        let text = shown(&widest(), Paper::plain());
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(
            lines[0],
            "    PID  NAME             USER          STATE              RSSANON  MAPS  FDS  NVML  GPU MEM  LIBRARY        LAST PHASE"
        );
        assert_eq!(
            lines[1],
            "4194303  VLLM::EngineCor  somebody-wi…  checkpointing 99%  99.9 GB     0    0  yes    140 GB  not effective  checkpoint 21.0 GB/s"
        );
    }

    #[test]
    fn lines_fit_ordinary_terminals() {
        let mut never_used = round(vec![process(12_345), with_record(54_321, |_| {})]);
        never_used.processes[0].user = "nobody".into();
        let mut both = widest();
        both.processes.extend(never_used.processes.clone());
        for round in [widest(), never_used, both] {
            for (width, colour) in (40..=130).flat_map(|width| [(width, false), (width, true)]) {
                let paper = Paper {
                    width: Some(width),
                    colour,
                };
                for line in shown(&round, paper).lines() {
                    assert!(measure_text_width(line) <= width, "{width}: {line}");
                    assert_eq!(line.trim_end(), line);
                }
            }
        }
    }

    #[test]
    fn a_narrow_terminal_loses_the_rate_first_then_cuts_names() {
        let text = shown(&widest(), narrow(100));
        assert!(
            text.contains("VLLM::EngineCor") && !text.contains("LAST PHASE"),
            "{text}"
        );
        let text = shown(&widest(), narrow(86));
        assert!(
            text.contains("VLLM::E…") && !text.contains("USER"),
            "{text}"
        );
        let text = shown(&widest(), narrow(85));
        assert!(
            text.contains("GPU MEM") && !text.contains("NVML  "),
            "{text}"
        );
        let mut usual = widest();
        usual.processes[0] = process(12345);
        let text = shown(&usual, narrow(80));
        assert!(
            text.contains("python3") && text.contains("LIBRARY"),
            "{text}"
        );
        assert!(!text.contains("LAST PHASE"), "{text}");
    }

    #[test]
    fn names_cannot_command_the_terminal_and_warnings_follow() {
        let mut round = round(vec![process(7), process(8)]);
        round.processes[0].identity.name = "\u{1b}[31mred\nx".into();
        round.processes[1].library_above = Some(Relative {
            pid: 7,
            name: "up".into(),
            library: Some(true),
        });
        let text = shown(&round, Paper::plain());
        assert!(!text.contains('\u{1b}'), "{text}");
        assert!(
            text.contains("\n8 warning: process 7 (up) above it has the library"),
            "{text}"
        );
        assert!(text.contains("\nnote: no word from NVML"), "{text}");
    }

    #[test]
    fn nothing_to_show_is_said() {
        let mut empty = round(Vec::new());
        empty.named = false;
        empty.unreadable = vec![4, 5, 6];
        let text = shown(&empty, Paper::plain());
        assert!(text.starts_with("no CUDA process\n"));
        assert!(text.contains("3 processes (4, 5, 6) may not be looked into"));
    }

    #[test]
    fn colours_are_there_only_when_wanted() {
        let colour = Paper {
            width: Some(120),
            colour: true,
        };
        assert!(shown(&widest(), colour).contains('\u{1b}'));
        assert!(!shown(&widest(), narrow(120)).contains('\u{1b}'));
    }
}
