//! The arms of a run: the same program in other circumstances.

use std::fmt;
use std::str::FromStr;

use cudasnap_wire::{Choice, PageKind};
use serde::{Serialize, Serializer};

/// What the shim is to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// No shim.
    Stock,
    /// The shim with its defaults.
    Shim,
    /// The shim, keeping its buffer.
    Keep,
    /// The shim, keeping the addresses of its buffer, which `cudasnap reserve` fills before each cycle but the first.
    Reserve,
    /// The shim, only watching.
    Observe,
    /// The shim, switched off.
    Off,
}

impl Kind {
    const NAMES: [(&'static str, Kind); 6] = [
        ("stock", Kind::Stock),
        ("shim", Kind::Shim),
        ("keep", Kind::Keep),
        ("reserve", Kind::Reserve),
        ("observe", Kind::Observe),
        ("off", Kind::Off),
    ];

    fn name(self) -> &'static str {
        let found = Self::NAMES.iter().find(|(_, kind)| *kind == self);
        found.map_or("", |(name, _)| name)
    }
}

/// The word for `CUDASNAP_SPARSE=on`.
const SPARSE: &str = "sparse";

/// An arm: `KIND`, or `KIND:WORD+WORD...` where the shim copies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Arm {
    /// What the shim is to do.
    pub kind: Kind,
    /// `CUDASNAP_STRATEGY`, if not the default.
    pub strategy: Option<Choice>,
    /// Whether zeros are left out: `CUDASNAP_SPARSE=on`.
    pub sparse: bool,
    /// `CUDASNAP_PAGES`, if not the default.
    pub pages: Option<PageKind>,
}

impl From<Kind> for Arm {
    fn from(kind: Kind) -> Self {
        Arm {
            kind,
            strategy: None,
            sparse: false,
            pages: None,
        }
    }
}

impl Arm {
    /// Whether it is of this kind, whatever its words.
    #[must_use]
    pub fn is(self, kind: Kind) -> bool {
        self.kind == kind
    }

    /// Variables of its program.
    pub fn options(self) -> impl Iterator<Item = (&'static str, &'static str)> {
        let kind = match self.kind {
            Kind::Stock | Kind::Shim => None,
            Kind::Keep => Some(("CUDASNAP_BUFFER", "keep")),
            Kind::Reserve => Some(("CUDASNAP_BUFFER", "reserve")),
            Kind::Observe => Some(("CUDASNAP", "observe")),
            Kind::Off => Some(("CUDASNAP", "off")),
        };
        let strategy = self
            .strategy
            .map(|choice| ("CUDASNAP_STRATEGY", choice.word()));
        let sparse = self.sparse.then_some(("CUDASNAP_SPARSE", "on"));
        let pages = self.pages.map(|pages| ("CUDASNAP_PAGES", pages.word()));
        [kind, strategy, sparse, pages].into_iter().flatten()
    }

    /// Whether the driver's own loop copies: cycles take many times longer.
    #[must_use]
    pub fn is_slow(self) -> bool {
        !self.answers()
    }

    /// Whether the shim answers the driver's request.
    #[must_use]
    pub fn answers(self) -> bool {
        matches!(self.kind, Kind::Shim | Kind::Keep | Kind::Reserve)
    }

    /// Its words, in the order in which its name has them.
    fn words(self) -> impl Iterator<Item = &'static str> {
        [
            self.strategy.map(Choice::word),
            self.sparse.then_some(SPARSE),
            self.pages.map(PageKind::word),
        ]
        .into_iter()
        .flatten()
    }

    /// Takes a word of a name, in any order, but each thing once.
    fn take(&mut self, word: &str) -> Result<(), String> {
        let choice = Choice::all().find(|choice| choice.word() == word);
        let pages = PageKind::ALL[..3]
            .iter()
            .copied()
            .find(|pages| pages.word() == word);
        let twice = match (choice, pages) {
            (Some(choice), _) => self.strategy.replace(choice).is_some(),
            (_, Some(pages)) => self.pages.replace(pages).is_some(),
            _ if word == SPARSE => std::mem::replace(&mut self.sparse, true),
            _ => return Err(format!("{word} is no strategy, {SPARSE} or kind of page")),
        };
        if twice {
            return Err(format!("{word} is one too many"));
        }
        Ok(())
    }
}

impl fmt::Display for Arm {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut name = self.kind.name().to_owned();
        for (number, word) in self.words().enumerate() {
            name.push(if number == 0 { ':' } else { '+' });
            name.push_str(word);
        }
        out.pad(&name)
    }
}

impl FromStr for Arm {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (kind, words) = match text.split_once(':') {
            Some((kind, words)) => (kind, Some(words)),
            None => (text, None),
        };
        let names = || Kind::NAMES.map(|(name, _)| name).join(", ");
        let found = Kind::NAMES.iter().find(|(known, _)| *known == kind);
        let kind = found.ok_or_else(|| format!("not one of {}", names()))?.1;
        let mut arm = Arm::from(kind);
        for word in words.into_iter().flat_map(|words| words.split('+')) {
            arm.take(word)?;
        }
        if words.is_some() && !arm.answers() {
            return Err("where the driver's own loop copies there is nothing to choose".into());
        }
        if arm.is(Kind::Reserve) && arm.pages == Some(PageKind::Hugetlb) {
            return Err("pages of the hugetlb pool are not reserved".into());
        }
        Ok(arm)
    }
}

impl Serialize for Arm {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_and_written() {
        for name in [
            "stock",
            "keep",
            "reserve",
            "keep:tune",
            "shim:flush-within",
            "shim:sparse",
            "shim:hugetlb",
            "reserve:plain+sparse+4k",
        ] {
            assert_eq!(name.parse::<Arm>().unwrap().to_string(), name);
        }
        // Words in another order are the same arm, and have one name.
        let arm = "keep:thp+sparse+tune".parse::<Arm>().unwrap();
        assert_eq!(arm.to_string(), "keep:tune+sparse+thp");
        assert_eq!(arm.to_string().parse::<Arm>(), Ok(arm));
        for bad in [
            "",
            "Stock",
            "keep:",
            "keep:driver",
            "keep:sparse+",
            "keep:sparse+sparse",
            "keep:tune+fixed",
            "keep:4k+thp",
            "keep:tune:sparse",
            "observe:tune",
            "stock:fixed",
            "off:sparse",
            "observe:4k",
            "reserve:hugetlb",
        ] {
            assert!(bad.parse::<Arm>().is_err(), "{bad}");
        }
    }

    #[test]
    fn words_become_variables() {
        let options = |name: &str| name.parse::<Arm>().unwrap().options().collect::<Vec<_>>();
        assert_eq!(
            options("keep:tune+sparse"),
            [
                ("CUDASNAP_BUFFER", "keep"),
                ("CUDASNAP_STRATEGY", "tune"),
                ("CUDASNAP_SPARSE", "on")
            ]
        );
        assert_eq!(
            options("reserve:4k"),
            [("CUDASNAP_BUFFER", "reserve"), ("CUDASNAP_PAGES", "4k")]
        );
        assert_eq!(options("shim:hugetlb"), [("CUDASNAP_PAGES", "hugetlb")]);
        assert_eq!(options("shim"), []);
    }
}
