//! Tables of arms beside each other: zeros left out, memory reserved, other kinds of pages. A part that was not measured has no table.

use super::cycles::Run;
use super::data::{Call, Measured};
use super::reach::{loops, whole};
use super::tables::gib;
use crate::table::median;

const CALLS: [Call; 2] = [Call::Checkpoint, Call::Restore];

/// Kinds of steps with other pages, their arm, and what the pages were to be.
const PAGES: [(&str, &str, &str); 6] = [
    ("hugetlb", "shim", "2 MiB, transparent"),
    ("hugetlb", "shim:hugetlb", "2 MiB, hugetlb pool"),
    ("mthp1024", "shim", "2048 kB `never`, 1024 kB `madvise`"),
    ("mthp64", "shim", "2048 kB `never`, 64 kB `madvise`"),
    (
        "mthp1024always",
        "shim",
        "2048 kB `never`, 1024 kB `always`",
    ),
    ("mthp64always", "shim", "2048 kB `never`, 64 kB `always`"),
];

/// All of them.
///
/// # Errors
/// Text, when a result cannot be read.
pub fn variants(measured: &Measured) -> Result<String, String> {
    let mut out = String::new();
    for (title, text, columns, rows) in [
        (
            "Zeros left out",
            "`CUDASNAP_SPARSE=on` beside the same without. Seconds are medians, *ratio* is to the arm without; *left out* is by the record,\n\
             *in memory* the whole process's while it was checkpointed.",
            "process | arm | checkpoint | ratio | restore | ratio | left out | in memory",
            zeros(measured)?,
        ),
        (
            "Reserved memory",
            "Seconds, medians; in brackets the ratio to P, end to end and of the copy loop. *Fill* is what `cudasnap reserve --rate 0` took before\n\
             the cycle; it is no part of the checkpoint.",
            "process | arm | checkpoint | restore | fill",
            reserved(measured)?,
        ),
        (
            "Kinds of pages",
            "Fresh memory. Seconds, medians; in brackets the ratio to P. *Recorded* is what the library went on with.",
            "process | pages | recorded | checkpoint | restore",
            pages(measured)?,
        ),
    ] {
        if !rows.is_empty() {
            let rule = "|---".repeat(columns.split('|').count());
            let rows = rows.concat();
            out.push_str(&format!("### {title}\n\n{text}\n\n| {columns} |\n{rule}|\n{rows}\n"));
        }
    }
    Ok(out)
}

fn gigabytes(values: Vec<f64>) -> String {
    median(values).map_or("-".into(), |bytes| format!("{:.2} GB", bytes / 1e9))
}

fn zeros(measured: &Measured) -> Result<Vec<String>, String> {
    let mut rows = Vec::new();
    for kind in ["zeros", "nozeros"] {
        for (mib, run) in measured.runs(kind)? {
            let process = match run.option("--zeros") {
                Some(zeros) => format!("{}, {} of it zeros", gib(mib), gib(zeros)),
                None => format!("{}, no zeros", gib(mib)),
            };
            let row = |arm: &str| zeros_row(&process, arm, &run);
            rows.extend(run.arms().filter_map(row));
        }
    }
    Ok(rows)
}

fn zeros_row(process: &str, arm: &str, run: &Run) -> Option<String> {
    let without = arm.strip_suffix(":sparse");
    let mut cells = format!("| {process} | {arm} ");
    for call in CALLS {
        let time = median(run.seconds(arm, call))?;
        let beside = without.and_then(|without| median(run.seconds(without, call)));
        let ratio = beside.map_or("-".into(), |beside| format!("{:.2}", time / beside));
        cells += &format!("| {time:.3} | {ratio} ");
    }
    let left_out = gigabytes(run.zeros(arm));
    let resident = gigabytes(run.resident(arm));
    Some(cells + &format!("| {left_out} | {resident} |\n"))
}

fn reserved(measured: &Measured) -> Result<Vec<String>, String> {
    let mut rows = Vec::new();
    for (mib, run) in measured.runs("reserve")? {
        let row = |arm: &str| {
            let mut cells = format!("| {} | {arm} ", gib(mib));
            for call in CALLS {
                let time = median(run.seconds(arm, call))?;
                let part = median(whole(&run, arm, call))?;
                let of_loop = median(loops(&run, arm, call));
                let of_loop = of_loop.map_or("-".into(), |part| format!("{part:.2}"));
                cells += &format!("| {time:.3} ({part:.2}, loop {of_loop}) ");
            }
            let fill = median(run.fills(arm)).map_or("-".into(), |time| format!("{time:.3}"));
            Some(cells + &format!("| {fill} |\n"))
        };
        rows.extend(run.arms().filter_map(row));
    }
    Ok(rows)
}

fn pages(measured: &Measured) -> Result<Vec<String>, String> {
    let mut rows = Vec::new();
    for (kind, arm, pages) in PAGES {
        for (mib, run) in measured.runs(kind)? {
            let recorded = run.pages(arm).join(", ");
            let mut cells = format!("| {} | {pages} | {recorded} ", gib(mib));
            let mut is_there = true;
            for call in CALLS {
                let found = median(run.seconds(arm, call)).zip(median(whole(&run, arm, call)));
                is_there &= found.is_some();
                cells += &found.map_or("| - ".into(), |(time, part)| {
                    format!("| {time:.3} ({part:.2}) ")
                });
            }
            if is_there {
                rows.push(cells + "|\n");
            }
        }
    }
    Ok(rows)
}
