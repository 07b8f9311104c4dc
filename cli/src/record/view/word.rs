//! Numbers of the record that have names.

use std::fmt;
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::Relaxed;

use cudasnap_wire as wire;
use serde::{Serialize, Serializer};

/// A numbered name: the word when this build knows the number, the number itself otherwise.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Word {
    /// The number in the record.
    pub number: u32,
    /// Its word, if known.
    pub word: Option<&'static str>,
}

impl Word {
    /// What a word of the record holds.
    pub(super) fn new(cell: &AtomicU32, name: impl Fn(u32) -> Option<&'static str>) -> Self {
        let number = cell.load(Relaxed);
        Word {
            number,
            word: name(number),
        }
    }

    /// Whether it is this word.
    pub fn is(&self, word: &str) -> bool {
        self.word == Some(word)
    }
}

impl fmt::Display for Word {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.word {
            Some(word) => out.pad(word),
            None => write!(out, "unknown number {}", self.number),
        }
    }
}

impl Serialize for Word {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        match self.word {
            Some(word) => to.serialize_str(word),
            None => to.serialize_u32(self.number),
        }
    }
}

macro_rules! words {
    ($($function:ident: $name:ident),*) => {
        $(pub(super) fn $function(cell: &AtomicU32) -> Word {
            Word::new(cell, |number| wire::$name::from_number(number).map(wire::$name::word))
        })*
    };
}

words!(mode: Mode, strategy: Strategy, pages: PageKind, direction: Direction, end: End, slot_state: SlotState);
