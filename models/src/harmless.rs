//! Accesses that can be made weaker without harm to what the models check, and why.

use crate::mutate::Kind;

pub struct Harmless {
    /// Part of the path of the source file.
    pub file: &'static str,
    /// Part of the source line.
    pub line: &'static str,
    pub kind: Kind,
    pub why: &'static str,
}

pub const LIST: &[Harmless] = &[
    Harmless {
        file: "src/crew/helper.rs",
        line: "tid.fetch_or(NAMED, Ordering::Release);",
        kind: Kind::Weak,
        why: "the name lies in the kernel, which is asked later",
    },
    Harmless {
        file: "src/crew/helper.rs",
        line: "tid.fetch_or(NAMED, Ordering::Release);",
        kind: Kind::Torn,
        why: "nobody else writes the word of a thread that lives",
    },
    Harmless {
        file: "src/exclusive.rs",
        line: "self.place.store(0, Ordering::Release);",
        kind: Kind::Weak,
        why: "a hint for the same thread's signal handler, for whom the compiler must keep the order",
    },
    Harmless {
        file: "src/exclusive.rs",
        line: "self.place.store(place.address(), Ordering::Release);",
        kind: Kind::Weak,
        why: "for the same thread's signal handler, for whom the compiler must keep the order",
    },
    Harmless {
        file: "src/exclusive.rs",
        line: "let place = self.place.load(Ordering::Acquire);",
        kind: Kind::Weak,
        why: "for the same thread's signal handler, for whom the compiler must keep the order",
    },
    Harmless {
        file: "src/exclusive.rs",
        line: "self.place.mark.store(0, Ordering::Release);",
        kind: Kind::Weak,
        why: "for the same thread's signal handler, for whom the compiler must keep the order",
    },
    Harmless {
        file: "src/board.rs",
        line: "word.store(generation << 8 | FREE, Ordering::Release);",
        kind: Kind::Weak,
        why: "who claims a part has read the generation, whose own release comes later",
    },
    Harmless {
        file: "src/board.rs",
        line: "word.compare_exchange(from, to, Ordering::AcqRel, Ordering::Relaxed)",
        kind: Kind::Weak,
        why: "the generation's acquire comes before it and the release of `finish` after it",
    },
    Harmless {
        file: "src/board.rs",
        line: "let index = self.hint.fetch_add(1, Ordering::Relaxed);",
        kind: Kind::Torn,
        why: "the counter is a hint: what it hands out twice is claimed once, what it skips is found by the last look",
    },
    Harmless {
        file: "src/pages/prefault.rs",
        line: "match self.refused.load(Ordering::Acquire) {",
        kind: Kind::Weak,
        why: "asked after `is_done`, whose acquire orders it",
    },
    Harmless {
        file: "src/pages/mod.rs",
        line: "let units = self.units.load(Ordering::Acquire);",
        kind: Kind::Weak,
        why: "the second look at `units` acquires too",
    },
    Harmless {
        file: "src/pages/mod.rs",
        line: "let still = self.units.load(Ordering::Acquire) == units;",
        kind: Kind::Weak,
        why: "the first look at `units` acquires too",
    },
    Harmless {
        file: "src/crew/helper.rs",
        line: "while CREW.epoch.load(Ordering::Acquire) == epoch {",
        kind: Kind::Weak,
        why: "who leaves reads nothing afterwards",
    },
    Harmless {
        file: "src/crew/job.rs",
        line: "self.copying.store(",
        kind: Kind::Weak,
        why: "a helper asks it only whether to stay",
    },
    Harmless {
        file: "src/crew/mod.rs",
        line: "self.epoch.fetch_add(1, Ordering::SeqCst);",
        kind: Kind::Weak,
        why: "nothing is published with it",
    },
    Harmless {
        file: "src/crew/mod.rs",
        line: "self.epoch.fetch_add(1, Ordering::SeqCst);",
        kind: Kind::Torn,
        why: "two that end a phase at once may count one: the number is another one all the same",
    },
    Harmless {
        file: "src/crew/mod.rs",
        line: ".any(|tid| tid.load(Ordering::Acquire) == 0);",
        kind: Kind::Weak,
        why: "looked at again before a stack is taken",
    },
    Harmless {
        file: "src/crew/mod.rs",
        line: "loop {\nlet id = tid.load(Ordering::Acquire);",
        kind: Kind::Weak,
        why: "only a wait: `alive` looks again before anything is unmapped",
    },
    Harmless {
        file: "src/crew/death.rs",
        line: "let _ = tid.compare_exchange(id, 0, Ordering::AcqRel, Ordering::Relaxed);",
        kind: Kind::Weak,
        why: "the proof is the kernel's answer before it",
    },
    Harmless {
        file: "src/crew/death.rs",
        line: "let _ = tid.compare_exchange(id, 0, Ordering::AcqRel, Ordering::Relaxed);",
        kind: Kind::Blind,
        why: "of a thread that does not exist the word changes only to 0, and only its recruiter gives it a new one",
    },
    Harmless {
        file: "src/crew/helper.rs",
        line: "left.compare_exchange(running, why.number(), Ordering::AcqRel, Ordering::Relaxed);",
        kind: Kind::Weak,
        why: "no model reads the word: it is the record's account of a phase, which src/phase.rs tests",
    },
    Harmless {
        file: "src/crew/helper.rs",
        line: "left.compare_exchange(running, why.number(), Ordering::AcqRel, Ordering::Relaxed);",
        kind: Kind::Torn,
        why: "no model reads the word: it is the record's account of a phase, which src/phase.rs tests",
    },
    Harmless {
        file: "src/crew/helper.rs",
        line: "left.compare_exchange(running, why.number(), Ordering::AcqRel, Ordering::Relaxed);",
        kind: Kind::Blind,
        why: "no model reads the word: it is the record's account of a phase, which src/phase.rs tests",
    },
    Harmless {
        file: "src/pages/mod.rs",
        line: "self.units.store(0, Ordering::Release);",
        kind: Kind::Weak,
        why: "the fence follows it, and nothing is published with it",
    },
    Harmless {
        file: "src/region.rs",
        line: "let start = self.start.load(Ordering::Acquire);",
        kind: Kind::Weak,
        why: "the version was acquired before it, and is looked at again",
    },
    Harmless {
        file: "src/region.rs",
        line: "cell.start.store(0, Ordering::Release);",
        kind: Kind::Weak,
        why: "nothing is published with it",
    },
    Harmless {
        file: "wire/src/seq.rs",
        line: "self.0.store(odd.wrapping_add(1), Ordering::Release);",
        kind: Kind::Weak,
        why: "needed, but loom cannot see it: it takes what a thread does between two switches for one step",
    },
    Harmless {
        file: "wire/src/seq.rs",
        line: "self.0.load(Ordering::Acquire)",
        kind: Kind::Weak,
        why: "needed, but loom cannot see it: it takes what a thread does between two switches for one step",
    },
    Harmless {
        file: "src/crew/helper.rs",
        line: "if self.copying.load(Ordering::Acquire) != 0 {",
        kind: Kind::Weak,
        why: "asked only whether to stay",
    },
    Harmless {
        file: "src/crew/mod.rs",
        line: "if tid.load(Ordering::Acquire) != 0 {",
        kind: Kind::Weak,
        why: "with one helper the look before it acquires; with more it is needed",
    },
    Harmless {
        file: "src/crew/flush.rs",
        line: "self.by.fetch_or(1 << helper, Ordering::AcqRel);",
        kind: Kind::Weak,
        why: "the part's report, which comes after it, releases it",
    },
    #[cfg(not(feature = "random"))]
    Harmless {
        file: "src/crew/flush.rs",
        line: "self.by.fetch_or(1 << helper, Ordering::AcqRel);",
        kind: Kind::Torn,
        why: "needed with two helpers, where the random orders find it; loom's model has one",
    },
    #[cfg(not(feature = "random"))]
    Harmless {
        file: "src/crew/flush.rs",
        line: "self.by.fetch_and(!(1 << helper), Ordering::AcqRel);",
        kind: Kind::Torn,
        why: "needed with two helpers, where the random orders find it; loom's model has one",
    },
];
