//! One access of the shipped source made weaker: the model that runs over it must fail, or the reason why it need not stands
//! in `harmless.rs`.

use std::collections::BTreeSet;
use std::fmt;
use std::panic::Location;
use std::str::FromStr;
use std::sync::atomic::Ordering;
use std::sync::{Mutex, OnceLock};

/// How an access is made weaker.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// Its order becomes `Relaxed`; a fence is left out.
    Weak,
    /// A read-modify-write becomes a load and a store.
    Torn,
    /// A compare-exchange does not compare.
    Blind,
}

/// A place of the source, and what is done there.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Site {
    pub file: String,
    pub line: u32,
    pub column: u32,
    pub kind: Kind,
}

impl fmt::Display for Site {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Site {
            file,
            line,
            column,
            kind,
        } = self;
        write!(out, "{file}:{line}:{column}:{kind:?}")
    }
}

impl FromStr for Site {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut parts = text.split(':');
        let mut next = || parts.next().ok_or_else(|| format!("{text}: no site"));
        let file = next()?.to_string();
        let number = |text: &str| text.parse::<u32>().map_err(|error| error.to_string());
        let (line, column) = (number(next()?)?, number(next()?)?);
        let kind = match next()? {
            "Weak" => Kind::Weak,
            "Torn" => Kind::Torn,
            "Blind" => Kind::Blind,
            other => return Err(format!("{other}: no kind")),
        };
        Ok(Site {
            file,
            line,
            column,
            kind,
        })
    }
}

static CHOSEN: OnceLock<Site> = OnceLock::new();
static SEEN: Mutex<BTreeSet<Site>> = Mutex::new(BTreeSet::new());
static LISTING: OnceLock<()> = OnceLock::new();

/// Chooses the access that is made weaker in this process.
pub fn choose(site: Site) {
    CHOSEN.set(site).expect("one mutation a process");
}

/// Remembers every place from now on.
pub fn list() {
    LISTING.get_or_init(|| ());
}

/// The places that a model came by.
pub fn seen() -> Vec<Site> {
    SEEN.lock().unwrap().iter().cloned().collect()
}

fn file_of(at: &'static Location<'static>) -> &'static str {
    at.file().rsplit("../").next().unwrap_or_default()
}

/// Whether this is the place that was chosen, for this.
pub fn is(at: &'static Location<'static>, kind: Kind) -> bool {
    let Some(chosen) = CHOSEN.get() else {
        return false;
    };
    let same = chosen.kind == kind && chosen.line == at.line() && chosen.column == at.column();
    same && chosen.file == file_of(at)
}

/// Remembers a place. Those of the models themselves are none.
pub fn note(at: &'static Location<'static>, kind: Kind) {
    if LISTING.get().is_none() || !at.file().contains("../") {
        return;
    }
    let (file, line, column) = (file_of(at).to_string(), at.line(), at.column());
    SEEN.lock().unwrap().insert(Site {
        file,
        line,
        column,
        kind,
    });
}

fn order(at: &'static Location<'static>, order: Ordering) -> Ordering {
    if order == Ordering::Relaxed {
        return order;
    }
    note(at, Kind::Weak);
    if is(at, Kind::Weak) {
        Ordering::Relaxed
    } else {
        order
    }
}

pub fn load(at: &'static Location<'static>, wanted: Ordering) -> Ordering {
    order(at, wanted)
}

pub fn store(at: &'static Location<'static>, wanted: Ordering) -> Ordering {
    order(at, wanted)
}

pub fn exchange(at: &'static Location<'static>, wanted: Ordering) -> Ordering {
    note(at, Kind::Torn);
    order(at, wanted)
}
