//! A strict reader of Prometheus' text format, version 0.0.4: what a scraper would forgive is an error here.

use std::collections::{BTreeMap, BTreeSet};

/// A sample.
#[derive(Debug, Clone, PartialEq)]
pub struct Sample {
    /// Labels.
    pub labels: BTreeMap<String, String>,
    /// Number.
    pub value: f64,
}

/// A family.
#[derive(Debug, Clone, PartialEq)]
pub struct Family {
    /// `counter` or `gauge`.
    pub kind: String,
    /// Help.
    pub help: String,
    /// Samples.
    pub samples: Vec<Sample>,
}

/// All families of a text, by name.
#[derive(Debug, Clone, PartialEq)]
pub struct Exposition(pub BTreeMap<String, Family>);

impl Exposition {
    /// Reads a text.
    ///
    /// # Errors
    /// The line that is wrong, and why.
    pub fn read(text: &str) -> Result<Self, String> {
        let mut families: BTreeMap<String, Family> = BTreeMap::new();
        let mut open: Option<String> = None;
        if !text.ends_with('\n') {
            return Err("the last line has no end".into());
        }
        let mut lines = text.lines().peekable();
        while let Some(line) = lines.next() {
            let wrong = |why: &str| format!("{why}: {line}");
            if let Some(rest) = line.strip_prefix("# HELP ") {
                let (name, help) = rest.split_once(' ').ok_or_else(|| wrong("no help"))?;
                let next = lines.next().ok_or_else(|| wrong("no type after it"))?;
                let kind = next
                    .strip_prefix(&format!("# TYPE {name} "))
                    .ok_or_else(|| wrong("no type of the same name after it"))?;
                if !["counter", "gauge"].contains(&kind) || !is_name(name, true) || help.is_empty()
                {
                    return Err(wrong("odd name, help or type"));
                }
                let family = Family {
                    kind: kind.into(),
                    help: help.into(),
                    samples: Vec::new(),
                };
                if families.insert(name.into(), family).is_some() {
                    return Err(wrong("a second time"));
                }
                open = Some(name.into());
                continue;
            }
            let (name, sample) = sample(line).ok_or_else(|| wrong("no sample"))?;
            if open.as_deref() != Some(name) {
                return Err(wrong("not in its family"));
            }
            let family = families.get_mut(name).ok_or_else(|| wrong("no family"))?;
            let same = |other: &Sample| other.labels == sample.labels;
            if family.samples.iter().any(same) {
                return Err(wrong("the same labels a second time"));
            }
            if family.kind == "counter" && (sample.value < 0.0 || !name.ends_with("_total")) {
                return Err(wrong("an odd counter"));
            }
            family.samples.push(sample);
        }
        match families
            .iter()
            .find(|(_, family)| family.samples.is_empty())
        {
            Some((name, _)) => Err(format!("{name} has no samples")),
            None => Ok(Exposition(families)),
        }
    }

    /// The number of the sample with these labels among its own.
    ///
    /// # Panics
    /// When there is none, or more than one.
    #[must_use]
    pub fn value(&self, name: &str, labels: &[(&str, &str)]) -> f64 {
        let found = self.find(name, labels);
        assert_eq!(found.len(), 1, "{name} {labels:?}: {found:?}");
        found[0]
    }

    /// The numbers of all samples with these labels among their own.
    #[must_use]
    pub fn find(&self, name: &str, labels: &[(&str, &str)]) -> Vec<f64> {
        let samples = self.0.get(name).map(|family| family.samples.iter());
        let fits = |sample: &&Sample| {
            let mut labels = labels.iter();
            labels.all(|(name, value)| sample.labels.get(*name).is_some_and(|has| has == value))
        };
        let found = samples.into_iter().flatten().filter(fits);
        found.map(|sample| sample.value).collect()
    }

    /// Values of a label, of all samples.
    #[must_use]
    pub fn values_of(&self, label: &str) -> BTreeSet<&str> {
        let samples = self.0.values().flat_map(|family| &family.samples);
        samples
            .filter_map(|sample| sample.labels.get(label))
            .map(String::as_str)
            .collect()
    }
}

fn is_name(name: &str, colons: bool) -> bool {
    let fits = |(place, byte): (usize, u8)| match byte {
        b'a'..=b'z' | b'A'..=b'Z' | b'_' => true,
        b':' => colons,
        b'0'..=b'9' => place > 0,
        _ => false,
    };
    !name.is_empty() && name.bytes().enumerate().all(fits)
}

fn sample(line: &str) -> Option<(&str, Sample)> {
    let end = line.find(['{', ' '])?;
    let (name, mut rest) = line.split_at(end);
    let mut labels = BTreeMap::new();
    if let Some(inside) = rest.strip_prefix('{') {
        rest = inside;
        loop {
            let (label, after) = rest.split_once("=\"")?;
            let (value, after) = quoted(after)?;
            if !is_name(label, false) || labels.insert(label.to_owned(), value).is_some() {
                return None;
            }
            match after.as_bytes().first()? {
                b',' => rest = &after[1..],
                b'}' => {
                    rest = &after[1..];
                    break;
                }
                _ => return None,
            }
        }
    }
    // No time stamp: a node exporter takes no file with one.
    let number = rest.strip_prefix(' ')?;
    let value = match number {
        "NaN" => f64::NAN,
        "+Inf" => f64::INFINITY,
        "-Inf" => f64::NEG_INFINITY,
        _ if number
            .bytes()
            .all(|byte| byte.is_ascii_digit() || b"+-.eE".contains(&byte)) =>
        {
            number.parse().ok()?
        }
        _ => return None,
    };
    is_name(name, true).then_some((name, Sample { labels, value }))
}

/// A value up to its closing quote, and what follows.
fn quoted(text: &str) -> Option<(String, &str)> {
    let mut value = String::new();
    let mut characters = text.char_indices();
    while let Some((at, character)) = characters.next() {
        match character {
            '"' => return Some((value, &text[at + 1..])),
            '\\' => value.push(match characters.next()?.1 {
                'n' => '\n',
                escaped @ ('\\' | '"') => escaped,
                _ => return None,
            }),
            '\n' => return None,
            other => value.push(other),
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = "# HELP a_total Things.\n# TYPE a_total counter\na_total{x=\"1\\\"\\\\\\n\"} 3\na_total 4\n";

    #[test]
    fn a_sound_text_is_read() {
        let read = Exposition::read(GOOD).unwrap();
        assert_eq!(read.value("a_total", &[("x", "1\"\\\n")]), 3.0);
        assert_eq!(read.find("a_total", &[]), [3.0, 4.0]);
        assert_eq!(read.0["a_total"].kind, "counter");
    }

    #[test]
    fn what_is_wrong_is_an_error() {
        for (from, to) in [
            ("a_total 4\n", "a_total 4"),
            ("a_total 4\n", "a_total 4 1700000000\n"),
            ("a_total 4\n", "b_total 4\n"),
            ("a_total 4\n", "a_total{} 4\n"),
            ("a_total 4\n", "a_total{x=\"1\\\"\\\\\\n\"} 3\n"),
            ("a_total 4\n", "a_total -1\n"),
            ("a_total 4\n", "a_total 0x4\n"),
            ("a_total 4\n", "\n"),
            ("\\\"", "\\t"),
            ("\\\"", "\""),
            ("# TYPE a_total counter\n", ""),
            ("counter", "histogram"),
            ("x=", "x-y="),
        ] {
            let text = GOOD.replacen(from, to, 1);
            assert!(Exposition::read(&text).is_err(), "{text}");
        }
        assert!(Exposition::read(&GOOD.repeat(2)).is_err());
    }
}
