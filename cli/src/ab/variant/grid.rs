//! Many variants of a few words: `--grid`, and the variants of a run altogether.

use std::collections::BTreeMap;

use super::{checked, contradiction, known, parse, set, settings, OBSERVE, ON};
use crate::ab::data::Variant;
use crate::values;

/// The values that a key takes in turn.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Axis {
    key: &'static str,
    values: Vec<String>,
}

/// Axes of one `--grid`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Grid(pub Vec<Axis>);

/// Reads `KEY=V1|V2,...`.
///
/// # Errors
/// What it takes.
pub fn parse_grid(text: &str) -> Result<Grid, String> {
    let axes = text.split(',').map(|axis| {
        let (key, list) = axis.split_once('=').ok_or_else(|| {
            values::takes("KEY=VALUE|VALUE,..., such as threads=4|8,pages=thp|4k")
        })?;
        let mut found: Vec<String> = Vec::new();
        for value in list.split('|') {
            let value = checked(key, value)?;
            if !found.contains(&value) {
                found.push(value);
            }
        }
        Ok(Axis {
            key: known(key)?,
            values: found,
        })
    });
    axes.collect::<Result<_, String>>().map(Grid)
}

/// The variants of a run, the baseline first: those that are named, those of the grids, or stock behaviour and the library.
///
/// # Errors
/// Two have the same name, or a combination means nothing.
pub fn all(named: &[Variant], grids: &[Grid]) -> Result<Vec<Variant>, String> {
    let mut variants = named.to_vec();
    let axes: Vec<&Axis> = grids.iter().flat_map(|grid| &grid.0).collect();
    let compares_modes = axes.iter().any(|axis| axis.key == "mode");
    if variants.is_empty() && !compares_modes {
        variants.push(parse(OBSERVE)?);
    }
    if named.is_empty() && axes.is_empty() {
        variants.push(parse(ON)?);
    }
    for variant in factorial(&axes)? {
        let is_there = |other: &Variant| {
            other.name == variant.name
                && other.mode == variant.mode
                && other.settings == variant.settings
        };
        if !variants.iter().any(is_there) {
            variants.push(variant);
        }
    }
    for (at, variant) in variants.iter().enumerate() {
        if variants[..at]
            .iter()
            .any(|other| other.name == variant.name)
        {
            return Err(format!(
                "two variants have the name {}: give each its own",
                variant.name
            ));
        }
    }
    Ok(variants)
}

/// Every combination. Where the driver does everything by itself the other keys mean nothing: all of those are one variant.
fn factorial(axes: &[&Axis]) -> Result<Vec<Variant>, String> {
    for (at, axis) in axes.iter().enumerate() {
        if axes[..at].iter().any(|other| other.key == axis.key) {
            return Err(format!(
                "--grid has {} twice: give all its values at once",
                axis.key
            ));
        }
    }
    if axes.is_empty() {
        return Ok(Vec::new());
    }
    let mut all: Vec<Vec<(&'static str, &str)>> = vec![Vec::new()];
    for axis in axes {
        let longer = all.iter().flat_map(|pairs| {
            axis.values.iter().map(move |value| {
                let mut pairs = pairs.clone();
                pairs.push((axis.key, value.as_str()));
                pairs
            })
        });
        all = longer.collect();
    }
    all.iter().map(|pairs| combination(pairs)).collect()
}

fn combination(pairs: &[(&'static str, &str)]) -> Result<Variant, String> {
    let mode = pairs.iter().find(|(key, _)| *key == "mode");
    let mode = mode.map_or(ON, |(_, mode)| *mode);
    if mode != ON {
        return parse(mode);
    }
    let mut variant = Variant {
        name: String::new(),
        mode: mode.into(),
        settings: BTreeMap::new(),
    };
    let set_pairs = pairs.iter().filter(|(key, _)| *key != "mode");
    for (key, value) in set_pairs {
        set(&mut variant, key, value);
    }
    variant.name = match settings(&variant) {
        text if text.is_empty() => mode.into(),
        text => text,
    };
    contradiction(&variant)?;
    Ok(variant)
}

#[cfg(test)]
mod tests {
    use super::super::groups;
    use super::*;

    fn names(variants: &[Variant]) -> Vec<&str> {
        variants.iter().map(|variant| &variant.name[..]).collect()
    }

    fn parsed(texts: &[&str]) -> Vec<Variant> {
        texts.iter().map(|text| parse(text).unwrap()).collect()
    }

    #[test]
    fn without_any_it_is_stock_behaviour_against_the_library() {
        let variants = all(&[], &[]).unwrap();
        assert_eq!(names(&variants), ["observe", "on"]);
        assert_eq!(groups(&variants), [[0, 1]]);
    }

    #[test]
    fn a_grid_is_every_combination_once() {
        let grid = |text: &str| parse_grid(text).unwrap();
        let variants = all(&[], &[grid("threads=4|8,pages=thp|4k")]).unwrap();
        assert_eq!(
            names(&variants),
            [
                "observe",
                "threads=4,pages=thp",
                "threads=4,pages=4k",
                "threads=8,pages=thp",
                "threads=8,pages=4k"
            ]
        );
        assert_eq!(groups(&variants), [vec![0], vec![1, 3], vec![2, 4]]);
        let variants = all(&[], &[grid("mode=stock|on"), grid("threads=4|8|8")]).unwrap();
        assert_eq!(names(&variants), ["stock", "threads=4", "threads=8"]);
        let named = parsed(&["observe"]);
        let variants = all(&named, &[grid("mode=observe|on")]).unwrap();
        assert_eq!(names(&variants), ["observe", "on"]);
        assert!(all(&[], &[grid("threads=4"), grid("threads=8")])
            .unwrap_err()
            .contains("twice"));
        assert!(all(&[], &[grid("keep-max=1G")]).is_err());
    }

    #[test]
    fn names_are_told_apart() {
        let twice = parsed(&["a:threads=4", "a:threads=5"]);
        assert!(all(&twice, &[]).unwrap_err().contains("the name a"));
    }

    #[test]
    fn an_axis_is_a_key_and_its_values() {
        for text in ["threads", "threads=", "x=1|2", "threads=1|99"] {
            assert!(parse_grid(text).is_err(), "{text}");
        }
    }
}
