//! The value of `LD_PRELOAD`: our library first, once, and what is there already kept as it is written.
//!
//! The loader takes blanks and colons as separators and has no way to quote them; it expands `$ORIGIN` and the like.

use std::ffi::{OsStr, OsString};
use std::ops::Range;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::Path;

/// The environment variable.
pub const VARIABLE: &str = "LD_PRELOAD";

/// The list that the loader obeys: of two variables with this name, the last one.
pub fn in_force(environment: impl Iterator<Item = (OsString, OsString)>) -> Option<OsString> {
    let lists = environment.filter(|(name, _)| name == VARIABLE);
    lists.map(|(_, list)| list).last()
}

/// What an element of the list is to our library.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kin {
    /// Something else.
    Other,
    /// The same file.
    Same,
    /// Another copy of it: two in one process would both answer the driver.
    Copy,
}

/// The library in front of the list. The list is returned unchanged when the library stands in front already, and only there.
pub fn with_first(list: &OsStr, library: &Path, kin: &dyn Fn(&OsStr) -> Kin) -> OsString {
    let elements = elements(list);
    let kins: Vec<Kin> = elements.iter().map(|range| kin(at(list, range))).collect();
    let others_follow = kins.iter().skip(1).all(|kin| *kin == Kin::Other);
    if kins.first() == Some(&Kin::Same) && others_follow {
        return list.to_os_string();
    }
    let rest = without(list, kin);
    let mut value = library.as_os_str().to_os_string();
    if !rest.is_empty() {
        value.push(":");
        value.push(rest);
    }
    value
}

/// The list without the library and its copies; every other byte stays, but for separators that lost their element.
pub fn without(list: &OsStr, kin: &dyn Fn(&OsStr) -> Kin) -> OsString {
    let elements = elements(list);
    let ours = |range: &&Range<usize>| kin(at(list, range)) != Kin::Other;
    let bytes = list.as_bytes();
    let mut rest = Vec::new();
    let mut done = 0;
    for range in elements.iter().filter(ours) {
        rest.extend_from_slice(&bytes[done..range.start]);
        let next = bytes[range.end..]
            .iter()
            .position(|byte| !is_separator(*byte));
        done = range.end + next.unwrap_or(bytes.len() - range.end);
    }
    let cut_the_last = done == bytes.len();
    rest.extend_from_slice(&bytes[done..]);
    while cut_the_last && rest.last().is_some_and(|byte| is_separator(*byte)) {
        rest.pop();
    }
    OsString::from_vec(rest)
}

/// The elements of a list, in their order.
pub fn names(list: &OsStr) -> Vec<&OsStr> {
    elements(list).iter().map(|range| at(list, range)).collect()
}

/// Whether the loader would read this path as one element, and as it stands.
pub fn can_name(path: &Path) -> bool {
    let bytes = path.as_os_str().as_bytes();
    !bytes
        .iter()
        .any(|byte| is_separator(*byte) || *byte == b'$')
}

/// What is to be said of a path that the loader would not read as one.
pub const UNNAMEABLE: &str = "a path with blanks, colons or dollar signs cannot be preloaded";

fn is_separator(byte: u8) -> bool {
    byte == b' ' || byte == b':'
}

fn at<'a>(list: &'a OsStr, range: &Range<usize>) -> &'a OsStr {
    OsStr::from_bytes(&list.as_bytes()[range.clone()])
}

fn elements(list: &OsStr) -> Vec<Range<usize>> {
    let bytes = list.as_bytes();
    let mut found = Vec::new();
    let mut start = 0;
    for part in bytes.split(|byte| is_separator(*byte)) {
        if !part.is_empty() {
            found.push(start..start + part.len());
        }
        start += part.len() + 1;
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const OURS: &str = "/o/libcudasnap.so";

    fn kin(element: &OsStr) -> Kin {
        match element.to_str() {
            Some(OURS | "/link/libcudasnap.so") => Kin::Same,
            Some("/old/libcudasnap.so") => Kin::Copy,
            _ => Kin::Other,
        }
    }

    fn first(list: &str) -> String {
        with_first(list.as_ref(), Path::new(OURS), &kin)
            .into_string()
            .unwrap()
    }

    #[test]
    fn ours_comes_first_and_the_rest_stays_as_written() {
        for (before, after) in [
            ("", "/o/libcudasnap.so"),
            (" : ", "/o/libcudasnap.so: : "),
            ("/a.so", "/o/libcudasnap.so:/a.so"),
            ("/a.so /b.so", "/o/libcudasnap.so:/a.so /b.so"),
            ("/a.so:/b.so", "/o/libcudasnap.so:/a.so:/b.so"),
            (
                "libjemalloc.so.2  libx.so",
                "/o/libcudasnap.so:libjemalloc.so.2  libx.so",
            ),
        ] {
            assert_eq!(first(before), after);
        }
    }

    #[test]
    fn it_is_there_once() {
        for (before, after) in [
            (OURS, OURS),
            ("/link/libcudasnap.so:/a.so", "/link/libcudasnap.so:/a.so"),
            (" /o/libcudasnap.so", " /o/libcudasnap.so"),
            ("/a.so:/o/libcudasnap.so", "/o/libcudasnap.so:/a.so"),
            (
                "/a.so /o/libcudasnap.so  /b.so",
                "/o/libcudasnap.so:/a.so /b.so",
            ),
            (
                "/o/libcudasnap.so:/a.so:/link/libcudasnap.so",
                "/o/libcudasnap.so:/a.so",
            ),
            ("/old/libcudasnap.so:/a.so", "/o/libcudasnap.so:/a.so"),
            ("/o/libcudasnap.so:/old/libcudasnap.so", OURS),
        ] {
            assert_eq!(first(before), after);
        }
    }

    #[test]
    fn of_two_lists_the_loader_takes_the_last() {
        let variable = |name: &str, value: &str| (name.into(), value.into());
        let twice = [
            variable(VARIABLE, "/a.so"),
            variable("A", "1"),
            variable(VARIABLE, "/b.so"),
        ];
        assert_eq!(in_force(twice.into_iter()), Some("/b.so".into()));
        assert_eq!(in_force([variable("A", "1")].into_iter()), None);
    }

    #[test]
    fn it_can_be_taken_out() {
        for (before, after) in [
            ("", ""),
            (OURS, ""),
            ("/a.so /b.so:", "/a.so /b.so:"),
            ("/o/libcudasnap.so:/a.so", "/a.so"),
            ("/a.so:/o/libcudasnap.so:/b.so", "/a.so:/b.so"),
        ] {
            assert_eq!(without(before.as_ref(), &kin), after);
        }
    }

    #[test]
    fn paths_that_the_loader_would_take_apart() {
        assert!(can_name(Path::new("/opt/cudasnap/0.1.0/libcudasnap.so")));
        for bad in ["/my libs/x.so", "/a:b/x.so", "/$LIB/x.so"] {
            assert!(!can_name(Path::new(bad)), "{bad}");
        }
    }

    proptest! {
        #[test]
        fn any_list_keeps_its_other_elements_in_their_order(
            list in proptest::collection::vec(
                prop_oneof![Just("/a.so"), Just(OURS), Just("/old/libcudasnap.so"), Just(":"), Just(" "), Just("b")], 0..12)
        ) {
            let list = OsString::from(list.concat());
            let others = |list: &OsStr| -> Vec<OsString> {
                names(list).into_iter().filter(|name| kin(name) == Kin::Other).map(OsStr::to_os_string).collect()
            };
            let merged = with_first(&list, Path::new(OURS), &kin);
            prop_assert_eq!(names(&merged)[0], OsStr::new(OURS));
            prop_assert_eq!(names(&merged).len(), others(&list).len() + 1);
            prop_assert_eq!(others(&merged), others(&list));
            // Nested: nothing changes any more.
            prop_assert_eq!(with_first(&merged, Path::new(OURS), &kin), merged.clone());
            let taken = without(&merged, &kin);
            prop_assert_eq!(names(&taken).len(), others(&list).len());
            prop_assert_eq!(others(&taken), others(&list));
        }
    }
}
