//! Steps down that a test must account for. Slow huge pages are the machine's, whose memory is in pieces after hours of builds and
//! tests, and no cycle's: they never count here, whoever tells of them.

use cudasnap_cli::record::view::RecordView;
use cudasnap_wire::Step;
use serde_json::Value;

fn is_the_machines(name: &str) -> bool {
    name == Step::SlowHugePages.word()
}

/// All that a record counts, but for those that a test expects: one that expects none says so with `&[]`.
#[must_use]
pub fn taken(record: &RecordView, expected: &[Step]) -> Vec<(&'static str, u32)> {
    let steps = record.counters.steps.iter();
    steps
        .filter(|step| step.value > 0 && !is_the_machines(step.name))
        .filter(|step| {
            expected
                .iter()
                .all(|step_down| step_down.word() != step.name)
        })
        .map(|step| (step.name, step.value))
        .collect()
}

/// All that JSON lists: the tool's, as objects with a name and a value, or the report's, as an object of names and values.
///
/// # Panics
/// When it is no such list.
#[must_use]
pub fn listed(steps: &Value) -> Vec<(&str, u64)> {
    let count = |value: &Value| value.as_u64().expect("a count");
    let all: Vec<(&str, u64)> = match steps {
        Value::Object(steps) => steps
            .iter()
            .map(|(name, value)| (name.as_str(), count(value)))
            .collect(),
        Value::Array(steps) => steps
            .iter()
            .map(|step| {
                let name = step["name"].as_str().expect("a name");
                (name, count(&step["value"]))
            })
            .collect(),
        other => panic!("no list of steps down: {other}"),
    };
    all.into_iter()
        .filter(|(name, _)| !is_the_machines(name))
        .collect()
}

/// The lines of what the tool said, without those that tell of nothing else.
#[must_use]
pub fn lines(text: &str) -> Vec<&str> {
    let names = |line: &str, machines: bool| {
        let of_kind = Step::ALL
            .iter()
            .map(|step| step.word())
            .filter(|name| is_the_machines(name) == machines);
        of_kind.into_iter().any(|name| line.contains(name))
    };
    let lines = text.lines();
    lines
        .filter(|line| !names(line, true) || names(line, false))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_the_machines_is_left_out_in_every_form() {
        let list = serde_json::json!([
            {"name": "slow-huge-pages", "value": 1},
            {"name": "no-thread", "value": 2},
        ]);
        assert_eq!(listed(&list), [("no-thread", 2)]);
        let object = serde_json::json!({"no-thread": 2, "slow-huge-pages": 1});
        assert_eq!(listed(&object), [("no-thread", 2)]);
        let text = "7: stepped down: slow-huge-pages 1 (...)\n7: stepped down: slow-huge-pages 1 (...), no-thread 2 (...)\nelse";
        assert_eq!(lines(text), text.lines().skip(1).collect::<Vec<_>>());
    }
}
