//! What samples are made of: labels and numbers.

use crate::metrics::exposition::{Sample, Value};
use crate::metrics::gather::Seen;
use crate::record::view::Word;

/// Labels that a sample has beside those of its process.
pub type More = Vec<(&'static str, String)>;
/// What a process, or a phase, has to say of one family.
pub type Samples = Vec<(More, Value)>;

/// A sample of a process.
pub fn sample(process: &Seen, more: More, value: Value) -> Sample {
    let mut labels = vec![
        ("pid", process.pid.to_string()),
        ("name", process.name.clone()),
    ];
    labels.extend(more);
    Sample { labels, value }
}

/// A whole number without labels.
pub fn plain(number: u64) -> Samples {
    vec![(Vec::new(), Value::Whole(number))]
}

/// A number without labels.
pub fn real(number: f64) -> Samples {
    vec![(Vec::new(), Value::Real(number))]
}

/// A sample for each word; one for a number that this build has no word for.
pub fn one_of(
    label: &'static str,
    word: &Word,
    all: impl Iterator<Item = &'static str>,
) -> Samples {
    let known = all.map(|each| (each.to_owned(), word.is(each)));
    let unknown = word.word.is_none().then(|| (word.to_string(), true));
    known
        .chain(unknown)
        .map(|(text, is)| (vec![(label, text)], Value::Whole(u64::from(is))))
        .collect()
}

/// From the record's nanoseconds.
pub fn seconds(nanoseconds: u64) -> f64 {
    nanoseconds as f64 / 1e9
}
