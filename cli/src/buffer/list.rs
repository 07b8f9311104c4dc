//! `cudasnap buffer PID list`: whether there is a buffer, where, and on which pages.

use std::io::Write as _;

use comfy_table::presets::NOTHING;
use comfy_table::{CellAlignment, Table};
use serde::Serialize;

use super::appeared::{candidates, usage_of, Usage};
use super::locate::{Found, Looked, Place};
use super::stop::Stop;
use super::verdict::Verdict;
use super::words::Span;
use crate::foreign_text::printable;
use crate::process::below;
use crate::units;

/// Arguments.
#[derive(Debug, Default, clap::Args)]
pub struct ListArgs {
    /// One JSON object
    #[arg(long)]
    json: bool,
}

/// What is known.
#[derive(Debug, Serialize)]
struct Listing {
    schema: u32,
    pid: i32,
    name: String,
    /// `checkpointed`, `not checkpointed`, `unknown`, or the phase that goes on.
    state: String,
    /// `record`, `command line`, or how else the buffer was found.
    found_by: &'static str,
    buffers: Vec<Row>,
    notes: Vec<String>,
}

/// A buffer, or what could be one.
#[derive(Debug, PartialEq, Eq, Serialize)]
struct Row {
    /// `buffer`, `kept`, `candidate`.
    kind: &'static str,
    address: u64,
    length: u64,
    resident: u64,
    huge_pages: u64,
}

/// In place of it, when the process cannot be looked into.
#[derive(Debug, Serialize)]
struct Refusal {
    schema: u32,
    pid: i32,
    /// The command's exit status.
    status: u8,
    /// Why not, in sentences.
    errors: Vec<String>,
}

impl Refusal {
    fn of(pid: i32, stop: &Stop) -> Self {
        Refusal {
            schema: 1,
            pid,
            status: stop.exit.status(),
            errors: stop.text.iter().cloned().collect(),
        }
    }
}

/// Prints it. With `--json` there is an object in every case.
///
/// # Errors
/// The process cannot be looked into.
pub fn run(pid: i32, place: &Place, args: &ListArgs) -> Result<(), Stop> {
    let listing = Looked::at(pid).and_then(|looked| listing(&looked, place));
    match listing {
        Ok(listing) if args.json => write(&json(&listing)),
        Ok(listing) => write(&listing.to_text()),
        Err(stop) => {
            if args.json {
                write(&json(&Refusal::of(pid, &stop)))?;
            }
            Err(stop)
        }
    }
}

fn json(value: &impl Serialize) -> String {
    serde_json::to_string(value).unwrap_or_default() + "\n"
}

fn write(text: &str) -> Result<(), Stop> {
    let mut out = std::io::stdout().lock();
    let written = out.write_all(text.as_bytes()).and_then(|()| out.flush());
    written.map_err(|error| Stop::stdout(&error))
}

fn listing(looked: &Looked, place: &Place) -> Result<Listing, Stop> {
    let usages = looked.usages()?;
    let mut listing = Listing {
        schema: 1,
        pid: looked.identity.pid,
        name: looked.identity.name.clone(),
        state: "not checkpointed".into(),
        found_by: "record",
        buffers: Vec::new(),
        notes: Vec::new(),
    };
    match looked.verdict() {
        Ok(Verdict::There { .. }) => {
            listing.state = "checkpointed".into();
            listing.add(&usages, looked.buffer(place)?);
        }
        Ok(Verdict::Kept(span)) => listing.buffers.push(row("kept", span, &usages)),
        Ok(Verdict::UnderWay(direction)) => {
            listing.state = format!("in the middle of a {direction}");
        }
        Ok(Verdict::None | Verdict::Blind(_)) => {}
        Err(_) if place.at.is_some() || place.before.is_some() => {
            listing.state = "unknown".into();
            listing.found_by = "command line";
            listing.add(&usages, looked.buffer(place)?);
        }
        Err(why) => {
            listing.state = "unknown".into();
            listing.found_by = "size";
            listing.guess(&usages, &why);
        }
    }
    let launcher = below::remark(&looked.identity);
    let launcher = launcher.map(|remark| format!("{remark}: name that one"));
    listing.notes.extend(launcher);
    Ok(listing)
}

fn row(kind: &'static str, span: Span, usages: &[Usage]) -> Row {
    let (resident, huge_pages) = usage_of(usages, span);
    Row {
        kind,
        address: span.start,
        length: span.length(),
        resident,
        huge_pages,
    }
}

impl Listing {
    fn add(&mut self, usages: &[Usage], found: Found) {
        self.buffers.push(row("buffer", found.span, usages));
        self.notes.extend(found.doubts);
    }

    /// Shows what could be the buffer, where nothing says what is.
    fn guess(&mut self, usages: &[Usage], why: &str) {
        let could = candidates(usages, None);
        let rows = could.iter().map(|one| row("candidate", one.span, usages));
        self.buffers.extend(rows);
        self.notes.push(format!(
            "{why}: large filled memory is shown; give --at ADDRESS, or --before FILE, a copy of /proc/PID/maps from before \
             the checkpoint"
        ));
    }

    fn to_text(&self) -> String {
        let mut text = format!(
            "process {} ({}): {}\n",
            self.pid,
            printable(&self.name),
            self.state
        );
        if self.buffers.is_empty() {
            text.push_str("no buffer\n");
        } else {
            text.push_str(&format!("{}\n", self.table()));
        }
        for note in &self.notes {
            text.push_str(&format!("note: {note}\n"));
        }
        text
    }

    fn table(&self) -> String {
        let mut table = Table::new();
        table.load_style(NOTHING).set_header([
            "what",
            "addresses",
            "length",
            "bytes",
            "memory",
            "huge",
        ]);
        for row in &self.buffers {
            let span = Span {
                start: row.address,
                end: row.address.saturating_add(row.length),
            };
            table.add_row([
                row.kind.to_string(),
                span.to_string(),
                units::bytes(row.length),
                row.length.to_string(),
                share(row.resident, row.length),
                share(row.huge_pages, row.length),
            ]);
        }
        for column in table.column_iter_mut() {
            column.set_padding((0, 2));
            if column.index > 1 {
                column.set_cell_alignment(CellAlignment::Right);
            }
        }
        let lines: Vec<String> = table.lines().map(|line| line.trim_end().into()).collect();
        lines.join("\n")
    }
}

/// A share in per cent. Rounding of pages can make it a little more than everything.
fn share(part: u64, whole: u64) -> String {
    let per_cent = u128::from(part) * 100 / u128::from(whole.max(1));
    format!("{} %", per_cent.min(100))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_is_an_object_too() {
        let text = json(&Refusal::of(7, &Stop::refused("no \"right\"")));
        let object: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert_eq!((&object["schema"], &object["pid"]), (&1.into(), &7.into()));
        assert_eq!(
            (&object["status"], &object["errors"][0]),
            (&4.into(), &"no \"right\"".into())
        );
    }

    #[test]
    fn the_table_fits_eighty_columns() {
        let listing = Listing {
            schema: 1,
            pid: 4242,
            name: "python3".into(),
            state: "checkpointed".into(),
            found_by: "record",
            buffers: vec![Row {
                kind: "buffer",
                address: 0x7f2c_0000_0000,
                length: 9_145_044_112,
                resident: 9_145_044_992,
                huge_pages: 9_100_000_000,
            }],
            notes: vec!["x".into()],
        };
        let text = listing.to_text();
        assert!(
            text.contains("9145044112") && text.contains("100 %"),
            "{text}"
        );
        assert!(text.lines().all(|line| line.len() <= 80), "{text}");
        assert!(text.ends_with("note: x\n"));
    }
}
