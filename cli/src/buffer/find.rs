//! `cudasnap buffer PID find`: the places where bytes occur.

use std::fmt::Write as _;
use std::io::{self, Write};
use std::time::Instant;

use serde::Serialize;

use super::hexdump::{digits, line, WIDTH};
use super::opened::{Buffer, Contents};
use super::progress::{Interrupts, Progress};
use super::scan::{scan, Hits, SLICE};
use super::stop::Stop;
use super::words::BytesArgs;
use crate::exit::Exit;
use crate::units;

/// Arguments.
#[derive(Debug, clap::Args)]
pub struct FindArgs {
    #[command(flatten)]
    pattern: BytesArgs,
    /// Show at most so many places
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = crate::values::whole::<usize>(0, usize::MAX as u64))]
    limit: usize,
    /// One JSON object
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct Json<'a> {
    schema: u32,
    pid: i32,
    buffer_length: u64,
    count: u64,
    offsets: &'a std::collections::BTreeSet<u64>,
}

/// Looks for them. The exit status says whether there was any, as grep's does.
///
/// # Errors
/// The buffer cannot be read.
pub fn run(buffer: &Buffer, args: &FindArgs) -> Result<Exit, Stop> {
    let pattern = args
        .pattern
        .bytes()
        .map_err(|why| Stop::with(Exit::Usage, why))?;
    let interrupts = Interrupts::watch()?;
    let progress = Progress::begin("searching", buffer.length());
    let started = Instant::now();
    let hits = scan(buffer, &pattern, args.limit, SLICE, &|bytes| {
        progress.add(bytes);
        interrupts.stop("the search was not finished")
    })?;
    let time = started.elapsed();
    drop(progress);
    let text = if args.json {
        json(buffer, &hits)
    } else {
        lines(buffer, &hits)?
    };
    buffer.check()?;
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes())
        .and_then(|()| out.flush())
        .map_err(|error| Stop::stdout(&error))?;
    crate::output::complain(format!(
        "{} in {}, {}",
        counted(&hits),
        units::bytes(buffer.length()),
        units::rate(buffer.length(), time)
    ));
    Ok(if hits.count > 0 {
        Exit::Done
    } else {
        Exit::Failed
    })
}

fn lines(buffer: &Buffer, hits: &Hits) -> Result<String, Stop> {
    let mut text = String::new();
    for offset in &hits.first {
        let mut around = [0; WIDTH];
        let length = (buffer.length() - offset).min(WIDTH as u64) as usize;
        buffer.read_at(*offset, &mut around[..length])?;
        // Writing into a string cannot fail.
        let _ = writeln!(
            text,
            "{}",
            line(*offset, digits(buffer.length()), &around[..length])
        );
    }
    Ok(text)
}

fn json(buffer: &Buffer, hits: &Hits) -> String {
    let object = Json {
        schema: 1,
        pid: buffer.identity.pid,
        buffer_length: buffer.length(),
        count: hits.count,
        offsets: &hits.first,
    };
    // Numbers alone: there is nothing in it that JSON could refuse.
    serde_json::to_string(&object).unwrap_or_default() + "\n"
}

fn counted(hits: &Hits) -> String {
    let shown = hits.first.len() as u64;
    match hits.count {
        0 => "not found".into(),
        1 => "1 place".into(),
        count if count > shown => format!("{count} places, the first {shown} shown (--limit)"),
        count => format!("{count} places"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_count_says_when_not_all_are_shown() {
        let hits = |count, shown: u64| Hits {
            first: (0..shown).collect(),
            count,
        };
        assert_eq!(counted(&hits(0, 0)), "not found");
        assert_eq!(counted(&hits(1, 1)), "1 place");
        assert_eq!(counted(&hits(3, 3)), "3 places");
        assert_eq!(
            counted(&hits(9, 3)),
            "9 places, the first 3 shown (--limit)"
        );
    }
}
