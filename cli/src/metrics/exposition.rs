//! The text format of Prometheus, version 0.0.4: a family's help and type once, then its samples.

use std::fmt::Write as _;

/// Kind of a family.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// It only grows, until the process starts anew.
    Counter,
    /// It goes up and down.
    Gauge,
}

/// A number.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Value {
    /// Whole: written with all its digits.
    Whole(u64),
    /// With fractions.
    Real(f64),
}

/// A sample: its labels, in the order in which they are written, and its number.
#[derive(Debug, Clone, PartialEq)]
pub struct Sample {
    /// Name and value.
    pub labels: Vec<(&'static str, String)>,
    /// The number.
    pub value: Value,
}

/// All samples of one name.
#[derive(Debug, Clone, PartialEq)]
pub struct Family {
    /// Name.
    pub name: &'static str,
    /// What it counts or shows.
    pub help: &'static str,
    /// Kind.
    pub kind: Kind,
    /// Samples; no two have the same labels.
    pub samples: Vec<Sample>,
}

/// The families, one after the other. One without samples is left out.
pub fn text(families: &[Family]) -> String {
    let mut text = String::new();
    for family in families.iter().filter(|family| !family.samples.is_empty()) {
        let kind = match family.kind {
            Kind::Counter => "counter",
            Kind::Gauge => "gauge",
        };
        let help = family.help.replace('\\', "\\\\").replace('\n', "\\n");
        // Writing to a String cannot fail.
        let _ = writeln!(text, "# HELP {} {help}", family.name);
        let _ = writeln!(text, "# TYPE {} {kind}", family.name);
        for sample in &family.samples {
            line(&mut text, family.name, sample);
        }
    }
    text
}

fn line(text: &mut String, name: &str, sample: &Sample) {
    text.push_str(name);
    if !sample.labels.is_empty() {
        let labels = sample.labels.iter();
        let labels: Vec<String> = labels
            .map(|(name, value)| format!("{name}=\"{}\"", escaped(value)))
            .collect();
        let _ = write!(text, "{{{}}}", labels.join(","));
    }
    let _ = match sample.value {
        Value::Whole(number) => writeln!(text, " {number}"),
        Value::Real(number) if number.is_nan() => writeln!(text, " NaN"),
        Value::Real(number) if number.is_infinite() => {
            writeln!(text, " {}Inf", if number > 0.0 { '+' } else { '-' })
        }
        Value::Real(number) => writeln!(text, " {number}"),
    };
}

fn escaped(value: &str) -> String {
    let mut escaped = String::with_capacity(value.len());
    for character in value.chars() {
        match character {
            '\\' => escaped.push_str("\\\\"),
            '"' => escaped.push_str("\\\""),
            '\n' => escaped.push_str("\\n"),
            other => escaped.push(other),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    fn family(value: Value, labels: &[(&'static str, &str)]) -> Family {
        let labels = labels.iter();
        Family {
            name: "cudasnap_x",
            help: "A \\ and\na line.",
            kind: Kind::Gauge,
            samples: vec![Sample {
                labels: labels
                    .map(|(name, value)| (*name, (*value).to_owned()))
                    .collect(),
                value,
            }],
        }
    }

    #[test]
    fn what_would_end_a_value_is_escaped() {
        let odd = family(
            Value::Whole(u64::MAX),
            &[("name", "a\"b\\c\nd"), ("pid", "7")],
        );
        assert_eq!(
            text(&[odd]),
            "# HELP cudasnap_x A \\\\ and\\na line.\n# TYPE cudasnap_x gauge\n\
             cudasnap_x{name=\"a\\\"b\\\\c\\nd\",pid=\"7\"} 18446744073709551615\n"
        );
    }

    #[test]
    fn numbers_are_written_as_the_format_wants_them() {
        for (value, shown) in [
            (Value::Real(0.25), "0.25"),
            (Value::Real(1e-9), "0.000000001"),
            (Value::Real(f64::NAN), "NaN"),
            (Value::Real(f64::INFINITY), "+Inf"),
            (Value::Real(f64::NEG_INFINITY), "-Inf"),
            (Value::Real(21_300_000_000.0), "21300000000"),
        ] {
            let shown_line = format!("cudasnap_x {shown}\n");
            assert!(
                text(&[family(value, &[])]).ends_with(&shown_line),
                "{shown}"
            );
        }
    }

    #[test]
    fn a_family_without_samples_is_left_out() {
        let mut empty = family(Value::Whole(1), &[]);
        empty.samples.clear();
        assert_eq!(text(&[empty]), "");
    }
}
