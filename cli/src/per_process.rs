//! What a command did for each of several processes: a line for each, or one JSON object, and why not for the others.

use serde::Serialize;

use crate::exit::Exit;
use crate::output;
use crate::process::below;
use crate::process::identity::Identity;
use crate::refusal::Refusal;

#[derive(Serialize)]
struct Report<Line> {
    schema: u32,
    status: u8,
    /// Why not, in sentences.
    errors: Vec<String>,
    /// Those for which it was done.
    processes: Vec<Line>,
}

/// Of those that use no CUDA themselves: who below them does, and what to do then. The library is in a launcher too, to no effect.
pub fn tell_launchers(processes: &[Identity], then: &str) {
    for remark in processes.iter().filter_map(below::remark) {
        output::complain(format_args!("{remark}: {then}"));
    }
}

/// Says what was done, and complains of what was not.
pub fn report<Line: Serialize>(
    lines: Vec<Line>,
    refusals: Vec<Refusal>,
    exit: Exit,
    json: bool,
    text: impl Fn(&Line) -> String,
) -> Exit {
    let errors: Vec<String> = refusals.into_iter().map(|refusal| refusal.text).collect();
    errors.iter().for_each(output::complain);
    if json {
        let report = Report {
            schema: 1,
            status: exit.status(),
            errors,
            processes: lines,
        };
        return output::say_json(&report, exit);
    }
    let text: Vec<String> = lines.iter().map(text).collect();
    if text.is_empty() {
        return exit;
    }
    output::say(&text.join("\n"), exit)
}
