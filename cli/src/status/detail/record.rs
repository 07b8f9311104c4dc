//! What is told from the library's record: options, the buffer, the last phases, steps down.

use super::Line;
use crate::record::view::{OptionsView, RecordView};
use crate::status::facts::Process;
use crate::status::pages::Pages;
use crate::status::text::count;
use crate::status::{phases, steps};
use crate::units;

pub fn lines(process: &Process, record: &RecordView, now: u64) -> Vec<Line> {
    let mut lines = vec![
        ("options", options(&record.options, record)),
        ("buffer", buffer(process, record)),
    ];
    if process.identity.own_pid() != record.pid as i32 && record.pid != 0 {
        lines.push((
            "",
            format!(
                "the record was begun by process {}: this one was forked from it",
                record.pid
            ),
        ));
    }
    for (number, phase) in record.history.iter().rev().take(4).enumerate() {
        let label = if number == 0 { "last phases" } else { "" };
        lines.push((label, phases::line(phase, now)));
        lines.push(("", phases::split(phase)));
    }
    for (number, step) in steps::lines(record).into_iter().enumerate() {
        lines.push((if number == 0 { "steps down" } else { "" }, step));
    }
    lines
}

fn options(options: &OptionsView, record: &RecordView) -> String {
    const LOG: [&str; 4] = ["off", "warn", "info", "debug"];
    let number = |value: u32, zero: &str| {
        if value == 0 {
            zero.to_owned()
        } else {
            value.to_string()
        }
    };
    let word = match (options.keep, options.reserve) {
        (true, _) => "keep",
        (_, true) => "reserve",
        _ => "fresh",
    };
    let keep = match options.keep_max {
        most if most > 0 && word != "fresh" => format!("{word}, at most {}", units::bytes(most)),
        _ => word.into(),
    };
    let log = LOG
        .get(options.log as usize)
        .map_or_else(|| options.log.to_string(), ToString::to_string);
    let mut text = format!(
        "mode {}, threads {}, pages {}, buffer {keep}, strategy {}{}, log {log}, {} report",
        record.mode,
        number(options.threads, "automatic"),
        options.pages,
        options.strategy,
        if options.sparse { ", sparse" } else { "" },
        if options.report { "a" } else { "no" },
    );
    if record.mode != options.mode {
        text += &format!("; started with mode {}", options.mode);
    }
    if record.thread_cap != 0 {
        text += &format!(
            "; at most {} for now",
            count(record.thread_cap as usize, "thread", "threads")
        );
    }
    text
}

fn buffer(process: &Process, record: &RecordView) -> String {
    let buffer = &record.buffer;
    if buffer.state.is("none") {
        return "none".into();
    }
    let length = units::bytes(buffer.length);
    let mut text = format!("{}, {length} at {:#x}", buffer.state, buffer.address);
    if !process.buffer_is_mapped {
        return text + ", not mapped in this process";
    }
    if let Some(pages) = &process.buffer_pages {
        let (asked, taken) = (
            record.options.pages.to_string(),
            record.current.pages.to_string(),
        );
        let stepped = match asked == taken {
            true => String::new(),
            false => format!(", settled for: {taken}"),
        };
        text += &format!("; {} (asked for: {asked}{stepped})", granted(pages));
    }
    if buffer.state.is("kept") {
        text += "; it holds what was in GPU memory; `cudasnap drop` frees it";
    }
    if buffer.state.is("reserved") {
        text += "; it holds no contents; `cudasnap reserve` fills it, `cudasnap drop` frees it";
    }
    text
}

/// `9.15 GB resident, 99 % of it on transparent huge pages`
fn granted(pages: &Pages) -> String {
    let percent = |part: u64| {
        let hundredfold = part.min(pages.resident).saturating_mul(100);
        hundredfold.checked_div(pages.resident).unwrap_or(0)
    };
    let mut text = format!(
        "{} resident, {} % of it on transparent huge pages",
        units::bytes(pages.resident),
        percent(pages.huge)
    );
    if pages.hugetlb > 0 {
        text += &format!(", {} % from the hugetlb pool", percent(pages.hugetlb));
    }
    text
}

#[cfg(test)]
mod tests {
    use crate::status::detail::tests::shown;
    use crate::status::facts::tests::with_record;
    use crate::status::text::Paper;
    use std::sync::atomic::Ordering::Relaxed;

    #[test]
    fn options_have_the_words_that_set_them() {
        let said = |most: u64| {
            let process = with_record(7, |record| {
                record.options.keep.store(1, Relaxed);
                record.options.keep_max.store(most, Relaxed);
            });
            shown(process, Paper::plain())
        };
        assert!(
            said(0).contains(", buffer keep, strategy fixed, log"),
            "{}",
            said(0)
        );
        let most = said(1 << 30);
        assert!(
            most.contains(", buffer keep, at most 1.07 GB, strategy fixed, log"),
            "{most}"
        );
    }
}
