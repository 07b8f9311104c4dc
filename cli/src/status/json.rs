//! The JSON form: one object on one line.

use serde::Serialize;

use crate::gpus::Gpu;

use super::facts::{Process, Round};
use super::judge::Verdict;

/// Number of the form; raised when a field changes its meaning or is taken away.
const SCHEMA: u32 = 1;

#[derive(Serialize)]
struct Whole<'a> {
    schema: u32,
    /// Nanoseconds since 1970.
    time_unix_ns: u64,
    nvml: Nvml<'a>,
    processes: Vec<One<'a>>,
    /// Ids that were named and belong to processes without CUDA.
    without_cuda: Vec<i32>,
    /// What is wrong with the ids that were named.
    errors: Vec<String>,
    /// Processes that may not be looked into.
    unreadable: usize,
}

#[derive(Serialize)]
struct Nvml<'a> {
    available: bool,
    driver: Option<&'a str>,
    /// Why it is not available.
    reason: Option<&'a str>,
    gpus: &'a [Gpu],
}

#[derive(Serialize)]
struct One<'a> {
    #[serde(flatten)]
    process: &'a Process,
    #[serde(flatten)]
    verdict: &'a Verdict,
}

/// The object, with a newline at its end.
pub fn line(round: &Round, verdicts: &[Verdict]) -> String {
    let gpus = round.nvml.as_ref().ok();
    let whole = Whole {
        schema: SCHEMA,
        time_unix_ns: round.unix_ns,
        nvml: Nvml {
            available: gpus.is_some(),
            driver: gpus.map(|gpus| gpus.driver.as_str()),
            reason: round.nvml.as_ref().err().map(String::as_str),
            gpus: gpus.map_or(&[], |gpus| &gpus.gpus),
        },
        processes: round
            .processes
            .iter()
            .zip(verdicts)
            .map(|(process, verdict)| One { process, verdict })
            .collect(),
        without_cuda: round
            .without_cuda
            .iter()
            .map(|plain| plain.identity.pid)
            .collect(),
        errors: round.errors.iter().map(ToString::to_string).collect(),
        unreadable: round.unreadable.len(),
    };
    let text = serde_json::to_string(&whole);
    // Plain values with text keys always serialise.
    text.map_or_else(
        |error| format!("{{\"schema\":{SCHEMA},\"error\":\"{error}\"}}\n"),
        |text| text + "\n",
    )
}

#[cfg(test)]
mod tests {
    use super::super::facts::tests::{process, round, with_record};
    use super::super::facts::Plain;
    use super::*;
    use crate::process::identity::IdentityError;
    use crate::selection::SelectionError;

    #[test]
    fn the_object_has_what_scripts_look_for() {
        let mut round = round(vec![process(7), with_record(8, |_| {})]);
        round
            .errors
            .push(SelectionError::Identity(IdentityError::NoSuchProcess(9)));
        round.without_cuda.push(Plain {
            identity: process(10).identity,
            below: None,
        });
        round.processes[0].identity.name = "a\u{1b}b\n".into();
        let verdicts: Vec<Verdict> = round
            .processes
            .iter()
            .map(|process| Verdict::of(process, round.unix_ns))
            .collect();
        let text = line(&round, &verdicts);
        assert_eq!(text.lines().count(), 1);
        assert!(!text.contains('\u{1b}'));
        let json: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert_eq!(json["schema"], 1);
        assert_eq!(json["nvml"]["available"], false);
        let (stock, shimmed) = (&json["processes"][0], &json["processes"][1]);
        assert_eq!(
            (&stock["pid"], &stock["state"]),
            (&7.into(), &"unknown".into())
        );
        assert_eq!(
            (&stock["library"]["seen"], &stock["activity"]),
            (&"absent".into(), &"absent".into())
        );
        assert_eq!(stock["name"], "a\u{1b}b\n");
        assert_eq!(shimmed["library"]["record"]["library_version"], "0.1.0");
        assert_eq!(shimmed["library"]["file"]["state"], "same");
        assert_eq!(shimmed["activity"], "never-used");
        assert_eq!(json["without_cuda"], serde_json::json!([10]));
        assert_eq!(
            json["errors"][0],
            "no process has the id 9: \"cudasnap status\" lists those that use CUDA"
        );
    }
}
