//! The arms of a run.

use serde::Serialize;

/// What the shim is to do in an arm.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Arm {
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

impl Arm {
    /// All arms, by name.
    pub const NAMES: [(&'static str, Arm); 5] = [
        ("stock", Arm::Stock),
        ("shim", Arm::Shim),
        ("keep", Arm::Keep),
        ("observe", Arm::Observe),
        ("off", Arm::Off),
    ];

    /// Its name.
    pub fn name(self) -> &'static str {
        Self::NAMES
            .iter()
            .find(|(_, arm)| *arm == self)
            .map_or("", |(name, _)| name)
    }

    /// The arm of this name.
    pub fn from_name(name: &str) -> Option<Arm> {
        Self::NAMES
            .iter()
            .find(|(known, _)| *known == name)
            .map(|(_, arm)| *arm)
    }

    /// The variable that makes the shim do so.
    pub(super) fn options(self) -> Option<(&'static str, &'static str)> {
        match self {
            Arm::Stock | Arm::Shim => None,
            Arm::Keep => Some(("CUDASNAP_BUFFER", "keep")),
            Arm::Observe => Some(("CUDASNAP", "observe")),
            Arm::Off => Some(("CUDASNAP", "off")),
        }
    }

    /// Whether the driver's own loop copies: cycles take many times longer.
    pub fn is_slow(self) -> bool {
        !self.answers()
    }

    /// Whether the shim answers the driver's requests.
    pub(super) fn answers(self) -> bool {
        matches!(self, Arm::Shim | Arm::Keep)
    }
}
