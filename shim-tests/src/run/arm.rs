//! The arms of a run: the same program in other circumstances.

use std::fmt;
use std::str::FromStr;

use cudasnap_wire::Choice;
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
    /// The shim, only watching.
    Observe,
    /// The shim, switched off.
    Off,
}

impl Kind {
    const NAMES: [(&'static str, Kind); 5] = [
        ("stock", Kind::Stock),
        ("shim", Kind::Shim),
        ("keep", Kind::Keep),
        ("observe", Kind::Observe),
        ("off", Kind::Off),
    ];

    fn name(self) -> &'static str {
        let found = Self::NAMES.iter().find(|(_, kind)| *kind == self);
        found.map_or("", |(name, _)| name)
    }
}

/// An arm: `KIND`, or `KIND:STRATEGY` where the shim copies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Arm {
    /// What the shim is to do.
    pub kind: Kind,
    /// `CUDASNAP_STRATEGY`, if not the default.
    pub strategy: Option<Choice>,
}

impl From<Kind> for Arm {
    fn from(kind: Kind) -> Self {
        Arm {
            kind,
            strategy: None,
        }
    }
}

impl Arm {
    /// Whether it is of this kind, whatever its strategy.
    #[must_use]
    pub fn is(self, kind: Kind) -> bool {
        self.kind == kind
    }

    /// Variables of its program.
    pub fn options(self) -> impl Iterator<Item = (&'static str, &'static str)> {
        let kind = match self.kind {
            Kind::Stock | Kind::Shim => None,
            Kind::Keep => Some(("CUDASNAP_BUFFER", "keep")),
            Kind::Observe => Some(("CUDASNAP", "observe")),
            Kind::Off => Some(("CUDASNAP", "off")),
        };
        let strategy = self
            .strategy
            .map(|choice| ("CUDASNAP_STRATEGY", choice.word()));
        kind.into_iter().chain(strategy)
    }

    /// Whether the driver's own loop copies: cycles take many times longer.
    #[must_use]
    pub fn is_slow(self) -> bool {
        !self.answers()
    }

    /// Whether the shim answers the driver's request.
    #[must_use]
    pub fn answers(self) -> bool {
        matches!(self.kind, Kind::Shim | Kind::Keep)
    }
}

impl fmt::Display for Arm {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.strategy {
            None => out.pad(self.kind.name()),
            Some(choice) => out.pad(&format!("{}:{}", self.kind.name(), choice.word())),
        }
    }
}

impl FromStr for Arm {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (kind, strategy) = match text.split_once(':') {
            Some((kind, strategy)) => (kind, Some(strategy)),
            None => (text, None),
        };
        let names = || Kind::NAMES.map(|(name, _)| name).join(", ");
        let found = Kind::NAMES.iter().find(|(known, _)| *known == kind);
        let kind = found.ok_or_else(|| format!("not one of {}", names()))?.1;
        let choice = |word: &str| Choice::all().find(|choice| choice.word() == word);
        let strategy = match strategy {
            Some(word) => Some(choice(word).ok_or_else(|| format!("{word} is no strategy"))?),
            None => None,
        };
        let arm = Arm { kind, strategy };
        if strategy.is_some() && !arm.answers() {
            return Err("where the driver's own loop copies there is no strategy".into());
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
        for name in ["stock", "keep", "keep:tune", "shim:flush-within"] {
            assert_eq!(name.parse::<Arm>().unwrap().to_string(), name);
        }
        for bad in [
            "",
            "Stock",
            "keep:",
            "keep:driver",
            "observe:tune",
            "stock:fixed",
        ] {
            assert!(bad.parse::<Arm>().is_err(), "{bad}");
        }
        let options: Vec<_> = "keep:tune".parse::<Arm>().unwrap().options().collect();
        assert_eq!(
            options,
            [("CUDASNAP_BUFFER", "keep"), ("CUDASNAP_STRATEGY", "tune")]
        );
    }
}
