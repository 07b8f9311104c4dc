//! Options that make sense one by one and not together.

use std::ffi::{OsStr, OsString};

/// Two options, and why they do not go together.
struct Pair {
    one: (&'static str, &'static str),
    other: (&'static str, &'static str),
    why: &'static str,
}

/// What is asked for cannot be had: one of the two would do nothing, whatever happens.
const EXCLUDE: [Pair; 1] = [Pair {
    one: ("CUDASNAP_BUFFER", "reserve"),
    other: ("CUDASNAP_PAGES", "hugetlb"),
    why: "pages of the hugetlb pool are not reserved, since they might not be had again. Give --pages thp (or 4k), or --buffer keep",
}];

/// One of the two does less than its name says.
const HINDER: [Pair; 1] = [Pair {
    one: ("CUDASNAP_SPARSE", "on"),
    other: ("CUDASNAP_PAGES", "hugetlb"),
    why: "pages of the hugetlb pool are taken for the whole buffer beforehand: zeros save no memory there",
}];

/// Pairs in the environment that exclude each other, in sentences.
pub fn excluding(environment: &[(OsString, OsString)]) -> Vec<String> {
    told(&EXCLUDE, "exclude each other", environment)
}

/// Pairs of which one keeps the other from its best.
pub fn hindering(environment: &[(OsString, OsString)]) -> Vec<String> {
    told(&HINDER, "do not help each other", environment)
}

fn told(pairs: &[Pair], how: &str, environment: &[(OsString, OsString)]) -> Vec<String> {
    let is_set = |(name, value): (&str, &str)| {
        let mut all = environment.iter();
        all.any(|(set, to)| set == name && to.eq_ignore_ascii_case(OsStr::new(value)))
    };
    let both = pairs
        .iter()
        .filter(|pair| is_set(pair.one) && is_set(pair.other));
    both.map(|pair| {
        let ((one, what), (other, kind)) = (pair.one, pair.other);
        format!("{one}={what} and {other}={kind} {how}: {}", pair.why)
    })
    .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::options::understands;

    fn environment(line: &str) -> Vec<(OsString, OsString)> {
        let pairs = line.split(' ').filter_map(|word| word.split_once('='));
        pairs
            .map(|(name, value)| (name.into(), value.into()))
            .collect()
    }

    #[test]
    fn what_excludes_each_other_is_told_and_nothing_else_is() {
        let told = excluding(&environment(
            "CUDASNAP_PAGES=HugeTLB CUDASNAP_BUFFER=reserve",
        ));
        assert_eq!(told.len(), 1);
        assert!(told[0].starts_with(
            "CUDASNAP_BUFFER=reserve and CUDASNAP_PAGES=hugetlb exclude each other: "
        ));
        assert!(told[0].contains("--pages thp") && told[0].contains("--buffer keep"));
        for fine in [
            "CUDASNAP_BUFFER=reserve CUDASNAP_PAGES=4k",
            "CUDASNAP_BUFFER=keep CUDASNAP_PAGES=hugetlb",
            "CUDASNAP_BUFFER=reserve CUDASNAP_SPARSE=on",
            "CUDASNAP_PAGES=hugetlb CUDASNAP_SPARSE=off",
        ] {
            let environment = environment(fine);
            assert!(
                excluding(&environment).is_empty() && hindering(&environment).is_empty(),
                "{fine}"
            );
        }
        let less = environment("CUDASNAP_PAGES=hugetlb CUDASNAP_SPARSE=on");
        assert!(excluding(&less).is_empty() && hindering(&less).len() == 1);
    }

    #[test]
    fn the_table_names_values_that_the_library_understands() {
        for pair in EXCLUDE.iter().chain(&HINDER) {
            for (name, value) in [pair.one, pair.other] {
                assert!(understands(name, value.as_bytes()), "{name}={value}");
            }
        }
    }
}
