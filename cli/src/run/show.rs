//! `--dry-run`: what would be executed.

use std::borrow::Cow;
use std::ffi::OsStr;
use std::fmt::Write as _;

use serde::Serialize;

use super::plan::Plan;
use super::preload;
use crate::foreign_text::printable;

#[derive(Serialize)]
struct Shown<'a> {
    schema: u32,
    arguments: Vec<Cow<'a, str>>,
    /// The files on the way to what is loaded.
    files: Vec<Cow<'a, str>>,
    library: Option<Cow<'a, str>>,
    active: bool,
    in_children: bool,
    obstacle: Option<String>,
    environment: serde_json::Map<String, serde_json::Value>,
    warnings: &'a [String],
}

/// As one JSON object.
pub fn json(plan: &Plan) -> String {
    let mut environment: serde_json::Map<String, serde_json::Value> = plan
        .settings
        .iter()
        .map(|(name, value)| (name.to_string(), value.to_string_lossy().into()))
        .collect();
    if plan.unset_preload {
        environment.insert(preload::VARIABLE.into(), serde_json::Value::Null);
    }
    let shown = Shown {
        schema: 1,
        arguments: plan
            .arguments
            .iter()
            .map(|text| text.to_string_lossy())
            .collect(),
        files: plan
            .program
            .files
            .iter()
            .map(|path| path.to_string_lossy())
            .collect(),
        library: plan.library.as_ref().map(|path| path.to_string_lossy()),
        active: plan.obstacle.is_none(),
        in_children: plan.in_children,
        obstacle: plan.obstacle.as_ref().map(ToString::to_string),
        environment,
        warnings: &plan.warnings,
    };
    serde_json::to_string(&shown).unwrap_or_default() + "\n"
}

/// For people.
pub fn text(plan: &Plan) -> String {
    let mut lines = vec![
        ("command", command(plan)),
        ("program", plan.program.to_string()),
    ];
    if let Some(library) = &plan.library {
        lines.push(("library", library.display().to_string()));
    }
    let verdict = plan
        .why_not()
        .or_else(|| plan.about_obstacle(false))
        .unwrap_or_else(|| "it can be active in the program".into());
    lines.push(("verdict", verdict));
    for (name, value) in &plan.settings {
        lines.push(("sets", format!("{name}={}", quoted(value))));
    }
    if plan.unset_preload {
        lines.push(("unsets", preload::VARIABLE.into()));
    }
    let mut text = String::new();
    for (name, value) in lines {
        let _ = writeln!(text, "{name:<8} {}", printable(&value));
    }
    text
}

fn command(plan: &Plan) -> String {
    let words: Vec<_> = plan.arguments.iter().map(|word| quoted(word)).collect();
    words.join(" ")
}

/// As a shell would take it.
pub fn quoted(word: &OsStr) -> Cow<'_, str> {
    let text = word.to_string_lossy();
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_./:=,+@%".contains(&byte);
    if !text.is_empty() && text.bytes().all(plain) {
        return text;
    }
    format!("'{}'", text.replace('\'', r"'\''")).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_quoted_for_a_shell() {
        for (word, shown) in [
            ("--port=80", "--port=80"),
            ("", "''"),
            ("a b", "'a b'"),
            ("it's", r"'it'\''s'"),
            ("$HOME", "'$HOME'"),
        ] {
            assert_eq!(quoted(OsStr::new(word)), shown);
        }
    }
}
