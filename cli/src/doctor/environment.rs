//! The library's options in the doctor's own environment: a value that nobody understands, or two that exclude each other.

use std::ffi::OsString;

use crate::doctor::finding::Finding;
use crate::run::options::{self, Complaints};

/// Looks at the environment.
pub fn look() -> Finding {
    judge(&std::env::vars_os().collect::<Vec<_>>())
}

fn judge(environment: &[(OsString, OsString)]) -> Finding {
    const CHECK: &str = "options";
    let Complaints { wrong, doubtful } = options::check(environment);
    if !wrong.is_empty() {
        let mend = "correct or unset them: cudasnap run refuses to start a program with these";
        return Finding::warning(CHECK, wrong.join("; "), mend);
    }
    if !doubtful.is_empty() {
        return Finding::warning(CHECK, doubtful.join("; "), "correct or unset them");
    }
    let set = environment.iter().filter(|(name, value)| {
        let name = name.to_str();
        name.is_some_and(options::is_one) && !value.is_empty()
    });
    let set: Vec<String> = set
        .map(|(name, value)| format!("{}={}", name.display(), value.display()))
        .collect();
    match set.is_empty() {
        true => Finding::ok(CHECK, "none is set in this environment"),
        false => Finding::ok(CHECK, set.join(" ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::finding::Verdict;

    fn judged(line: &str) -> Finding {
        let pairs = line.split(' ').filter_map(|word| word.split_once('='));
        let pairs = pairs.map(|(name, value)| (name.into(), value.into()));
        judge(&pairs.collect::<Vec<_>>())
    }

    #[test]
    fn options_that_would_be_refused_are_told() {
        for (line, verdict, found) in [
            ("HOME=/root CUDASNAP_PAGES=", Verdict::Ok, "none is set"),
            ("CUDASNAP_PAGES=4k HOME=/", Verdict::Ok, "CUDASNAP_PAGES=4k"),
            ("CUDASNAP_PAGES=1g", Verdict::Warning, "thp, 4k, hugetlb"),
            (
                "CUDASNAP_PAGES=hugetlb CUDASNAP_BUFFER=reserve",
                Verdict::Warning,
                "exclude each other",
            ),
            (
                "CUDASNAP_KEEP_MAX=4G",
                Verdict::Warning,
                "no buffer is kept",
            ),
        ] {
            let finding = judged(line);
            assert_eq!(finding.verdict, verdict, "{line}");
            assert!(finding.found.contains(found), "{finding:?}");
        }
    }
}
