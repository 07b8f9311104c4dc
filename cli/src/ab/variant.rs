//! Variants: what the command line says of one, which combinations mean nothing, and which can share a process. `grid` makes many of a few words.

pub mod grid;

use std::collections::BTreeMap;
use std::ffi::OsString;

use crate::ab::data::Variant;
use crate::foreign_text::printable;
use crate::run::{contradiction, options};
use crate::values;

/// The mode of a program that is started without the library.
pub const STOCK: &str = "stock";
/// Stock behaviour, timed from inside.
pub const OBSERVE: &str = "observe";
/// The library answers the request and makes the copies.
pub const ON: &str = "on";
/// Setting that the record's word `thread_cap` switches.
pub const THREADS: &str = "threads";
const BUFFER: &str = "CUDASNAP_BUFFER";
const KEEP_MAX: &str = "CUDASNAP_KEEP_MAX";

/// Words of the command line, the variables that they stand for, and the settings' names in the model.
const KEYS: [(&str, &str, &str); 7] = [
    ("mode", "CUDASNAP", "mode"),
    ("threads", "CUDASNAP_THREADS", THREADS),
    ("pages", "CUDASNAP_PAGES", "CUDASNAP_PAGES"),
    ("buffer", BUFFER, BUFFER),
    ("strategy", "CUDASNAP_STRATEGY", "CUDASNAP_STRATEGY"),
    ("sparse", "CUDASNAP_SPARSE", "CUDASNAP_SPARSE"),
    ("keep-max", KEEP_MAX, KEEP_MAX),
];

/// Reads `name:KEY=VALUE,...`, or a mode alone.
///
/// # Errors
/// What it takes.
pub fn parse(text: &str) -> Result<Variant, String> {
    let (name, pairs) = text.split_once(':').unwrap_or((text, ""));
    let is_mode = is_mode(text);
    let named = !name.is_empty() && (is_mode || text.contains(':'));
    if !named {
        return Err(shape());
    }
    if printable(name) != name {
        return Err(format!(
            "the name has a character that cannot be shown: {}",
            printable(name)
        ));
    }
    let mut variant = Variant {
        name: name.into(),
        mode: if is_mode { name } else { ON }.into(),
        settings: BTreeMap::new(),
    };
    let mut seen = Vec::new();
    for pair in pairs.split(',').filter(|_| !pairs.is_empty()) {
        let (key, value) = pair.split_once('=').ok_or_else(shape)?;
        set(&mut variant, known(key)?, &checked(key, value)?);
        if seen.contains(&key) {
            return Err(format!("{key} is given twice; {}", shape()));
        }
        seen.push(key);
    }
    contradiction(&variant)?;
    Ok(variant)
}

fn shape() -> String {
    let keys: Vec<&str> = KEYS.iter().map(|(key, _, _)| *key).collect();
    values::takes(format_args!(
        "NAME:KEY=VALUE,... with the keys {}; or a mode alone: stock, observe, on, off",
        keys.join(", ")
    ))
}

fn is_mode(word: &str) -> bool {
    word == STOCK || ["on", "observe", "off"].contains(&word)
}

fn known(key: &str) -> Result<&'static str, String> {
    let found = KEYS.iter().find(|(word, _, _)| *word == key);
    found.map(|(word, _, _)| *word).ok_or_else(shape)
}

/// The value in the form that the library documents, if it understands it.
fn checked(key: &str, value: &str) -> Result<String, String> {
    let known = known(key)?;
    let (_, variable, _) = KEYS
        .iter()
        .find(|(word, _, _)| *word == known)
        .ok_or_else(shape)?;
    let lower = value.to_ascii_lowercase();
    if known == "mode" && lower == STOCK || options::understands(variable, value.as_bytes()) {
        return Ok(lower);
    }
    let takes = options::what_it_takes(variable).unwrap_or_default();
    let more = if known == "mode" { ", or stock" } else { "" };
    Err(format!("{known}: {takes}{more}"))
}

fn set(variant: &mut Variant, key: &str, value: &str) {
    match KEYS.iter().find(|(word, _, _)| *word == key) {
        Some((_, _, "mode")) => variant.mode = value.into(),
        Some((_, _, name)) => {
            variant.settings.insert((*name).into(), value.into());
        }
        None => {}
    }
}

/// Settings that mean nothing together.
fn contradiction(variant: &Variant) -> Result<(), String> {
    let name = &variant.name;
    if variant.mode != ON && !variant.settings.is_empty() {
        return Err(format!(
            "variant {name}: with mode {} the driver does everything by itself, and {} would change nothing: leave it out, or compare \
             with mode=on",
            variant.mode,
            settings(variant)
        ));
    }
    let keeps = keeps_buffer(variant);
    if variant.settings.contains_key(KEEP_MAX) && !keeps {
        return Err(format!(
            "variant {name}: keep-max limits a kept buffer, and none is kept: add buffer=keep, or leave it out"
        ));
    }
    let excluded = contradiction::excluding(&environment(variant));
    match excluded.first() {
        Some(text) => Err(format!("variant {name}: {text}")),
        None => Ok(()),
    }
}

/// Whether the process holds memory or addresses from one checkpoint to the next.
pub fn keeps_buffer(variant: &Variant) -> bool {
    let buffer = variant.settings.get(BUFFER);
    buffer.is_some_and(|what| what != "fresh")
}

/// What it sets, as on the command line.
pub fn settings(variant: &Variant) -> String {
    let words = KEYS.iter().filter_map(|(word, _, name)| {
        let value = variant.settings.get(*name)?;
        Some(format!("{word}={value}"))
    });
    words.collect::<Vec<_>>().join(",")
}

/// The variables that its process must be started with, without the mode.
pub fn environment(variant: &Variant) -> Vec<(OsString, OsString)> {
    let set = variant.settings.iter();
    set.filter(|(name, _)| *name != THREADS)
        .map(|(name, value)| (name.into(), value.into()))
        .collect()
}

/// Groups of variants that can take turns in one process, in the order of their first members. The record's words switch the mode and
/// the number of threads; everything else is read once when a program starts. A variant that keeps its buffer has a process to itself:
/// else the next variant would find the buffer, or drop it.
pub fn groups(variants: &[Variant]) -> Vec<Vec<usize>> {
    let mut groups: Vec<Vec<usize>> = Vec::new();
    for (at, variant) in variants.iter().enumerate() {
        let fits = |group: &&mut Vec<usize>| {
            let other = &variants[group[0]];
            !keeps_buffer(variant)
                && (variant.mode == STOCK) == (other.mode == STOCK)
                && environment(variant) == environment(other)
        };
        match groups.iter_mut().find(fits) {
            Some(group) => group.push(at),
            None => groups.push(vec![at]),
        }
    }
    groups
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(texts: &[&str]) -> Vec<Variant> {
        texts.iter().map(|text| parse(text).unwrap()).collect()
    }

    #[test]
    fn a_variant_is_a_name_and_settings() {
        let one = parse("four:threads=4,pages=4K").unwrap();
        assert_eq!((&one.name[..], &one.mode[..]), ("four", "on"));
        assert_eq!(one.settings["threads"], "4");
        assert_eq!(one.settings["CUDASNAP_PAGES"], "4k");
        assert_eq!(settings(&one), "threads=4,pages=4k");
        assert_eq!(environment(&one), [("CUDASNAP_PAGES".into(), "4k".into())]);
        for mode in ["stock", "observe", "on", "off"] {
            assert_eq!(parse(mode).unwrap().mode, mode);
        }
        assert_eq!(parse("base:mode=stock").unwrap().mode, "stock");
        assert_eq!(parse("x:").unwrap().mode, "on");
    }

    #[test]
    fn what_is_not_understood_is_told_with_what_is_taken() {
        for (text, part) in [
            ("", "it takes NAME:KEY=VALUE"),
            ("four", "stock, observe, on, off"),
            (":threads=4", "it takes NAME"),
            ("a:threads", "it takes NAME"),
            (
                "a:colour=red",
                "mode, threads, pages, buffer, strategy, sparse, keep-max",
            ),
            ("a:threads=33", "threads: it takes 0 to 32"),
            ("a:mode=fast", "or stock"),
            ("a:threads=4,threads=5", "threads is given twice"),
            ("a\u{1b}:threads=4", "cannot be shown: a\\u{1b}"),
            ("a:mode=observe,threads=4", "threads=4 would change nothing"),
            ("a:mode=stock,pages=4k", "pages=4k would change nothing"),
            ("a:keep-max=1G", "add buffer=keep"),
            ("a:buffer=reserve,pages=hugetlb", "exclude each other"),
        ] {
            let error = parse(text).unwrap_err();
            assert!(error.contains(part), "{text}: {error}");
        }
    }

    #[test]
    fn who_keeps_a_buffer_has_a_process_to_himself() {
        let variants = parsed(&[
            "observe",
            "on",
            "few:threads=2",
            "kept:buffer=keep",
            "kept2:buffer=keep,threads=2",
            "plain:pages=4k",
            "stock",
        ]);
        assert_eq!(
            groups(&variants),
            [vec![0, 1, 2], vec![3], vec![4], vec![5], vec![6]]
        );
    }
}
