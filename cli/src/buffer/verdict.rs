//! Pure: what the library's record says about the buffer.

use cudasnap_wire::{Slot, Step};

use super::words::Span;
use crate::record::view::RecordView;

/// What the record says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// The process is checkpointed, and this is its buffer.
    There {
        /// The bytes that the driver asked for.
        span: Span,
        /// What must stay the same while the buffer is worked on.
        stamp: Stamp,
        /// A restore went over the buffer, ended, and did not unmap it.
        after_restore: bool,
    },
    /// The process runs; this buffer is kept for its next checkpoint.
    Kept(Span),
    /// A phase in this direction is going on.
    UnderWay(&'static str),
    /// There is no buffer: the process is not checkpointed.
    None,
    /// There is no buffer that the library knows of, for this reason, but the driver may have one.
    Blind(&'static str),
}

/// Tells one checkpoint of a process from every other one, and from a restore of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stamp {
    buffer: u32,
    direction: u32,
    started_unix_ns: u64,
}

impl Verdict {
    /// Reads it out of the record.
    pub fn of(record: &RecordView) -> Self {
        let buffer = &record.buffer;
        let span = Span {
            start: buffer.address,
            end: buffer.address.saturating_add(buffer.length),
        };
        if buffer.state.is("kept") {
            return Verdict::Kept(span);
        }
        if !(buffer.state.is("live") || buffer.state.is("observed")) {
            return without_buffer(record);
        }
        let phase = &record.current;
        let restores = phase.direction.is("restore");
        if phase.end.is("running") {
            return Verdict::UnderWay(if restores { "restore" } else { "checkpoint" });
        }
        Verdict::There {
            span,
            stamp: Stamp {
                buffer: phase.buffer,
                direction: phase.direction.number,
                started_unix_ns: phase.started_unix_ns,
            },
            after_restore: restores,
        }
    }
}

fn without_buffer(record: &RecordView) -> Verdict {
    // Each buffer that the library saw has a number; a request beyond the last one was passed on unseen.
    let unseen = record.counters.requests > u64::from(record.current.buffer);
    if record.mode.is("off") {
        Verdict::Blind("the library is off in it (cudasnap mode)")
    } else if !sees_unmap(record) {
        Verdict::Blind("the library in it cannot watch libcuda's munmap")
    } else if unseen || record.steps(Step::NotUnderstood) > 0 {
        Verdict::Blind("the library in it has not seen every request of the driver")
    } else {
        Verdict::None
    }
}

/// Whether the library learns of the buffer's end, and so keeps track of it at all.
fn sees_unmap(record: &RecordView) -> bool {
    let state = |slot: Slot| {
        let mut slots = record.slots.iter();
        slots
            .find(|named| named.name == slot.word())
            .and_then(|named| named.value.word)
    };
    let good = |word| matches!(word, Some("unknown" | "free" | "held"));
    good(state(Slot::Munmap))
        && (good(state(Slot::Mremap)) || state(Slot::Mremap) == Some("missing"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use cudasnap_wire::{Direction, End, Mode, Record, SlotState};
    use std::sync::atomic::Ordering::Relaxed;

    fn record(state: u32, direction: Direction, end: End) -> Record {
        let record = Record::new(0);
        record.buffer.state.store(state, Relaxed);
        record.buffer.address.store(0x1000, Relaxed);
        record.buffer.length.store(0x500, Relaxed);
        record.current.direction.store(direction.number(), Relaxed);
        record.current.end.store(end.number(), Relaxed);
        record.current.buffer.store(1, Relaxed);
        record
    }

    fn verdict(record: &Record) -> Verdict {
        Verdict::of(&RecordView::new(record))
    }

    const SPAN: Span = Span {
        start: 0x1000,
        end: 0x1500,
    };

    #[test]
    fn a_checkpoint_that_ended_has_a_buffer() {
        for state in [1, 3] {
            for end in [End::Covered, End::Idle, End::NoCopy] {
                let there = verdict(&record(state, Direction::Checkpoint, end));
                assert!(
                    matches!(
                        there,
                        Verdict::There {
                            span: SPAN,
                            after_restore: false,
                            ..
                        }
                    ),
                    "{there:?}"
                );
            }
        }
    }

    #[test]
    fn a_phase_that_goes_on_is_told_with_its_direction() {
        for (direction, word) in [
            (Direction::Checkpoint, "checkpoint"),
            (Direction::Restore, "restore"),
        ] {
            let going = verdict(&record(1, direction, End::Running));
            assert_eq!(going, Verdict::UnderWay(word));
        }
    }

    #[test]
    fn a_restore_that_failed_leaves_the_buffer_with_another_stamp() {
        let before = verdict(&record(1, Direction::Checkpoint, End::Covered));
        let after = verdict(&record(1, Direction::Restore, End::Idle));
        let (
            Verdict::There { stamp: before, .. },
            Verdict::There {
                stamp,
                after_restore,
                ..
            },
        ) = (before, after)
        else {
            panic!("both are there");
        };
        assert!(after_restore && stamp != before);
    }

    #[test]
    fn no_buffer_means_not_checkpointed_unless_the_library_could_not_see() {
        let plain = record(0, Direction::Restore, End::Covered);
        assert_eq!(verdict(&plain), Verdict::None);
        plain.mode.store(Mode::Off.number(), Relaxed);
        assert!(matches!(verdict(&plain), Verdict::Blind(_)));
        plain.mode.store(Mode::On.number(), Relaxed);
        plain.counters.requests.store(1, Relaxed);
        assert_eq!(verdict(&plain), Verdict::None);
        plain.counters.requests.store(2, Relaxed);
        assert!(matches!(verdict(&plain), Verdict::Blind(_)));
        plain.counters.requests.store(1, Relaxed);
        let munmap = &plain.slots.state[Slot::Munmap as usize];
        munmap.store(SlotState::Relro.number(), Relaxed);
        assert!(matches!(verdict(&plain), Verdict::Blind(_)));
        munmap.store(SlotState::Free.number(), Relaxed);
        plain.counters.steps[Step::NotUnderstood as usize].store(1, Relaxed);
        assert!(matches!(verdict(&plain), Verdict::Blind(_)));
    }

    #[test]
    fn a_kept_buffer_is_no_checkpoint_and_foreign_numbers_do_no_harm() {
        let kept = record(2, Direction::Restore, End::Covered);
        assert_eq!(verdict(&kept), Verdict::Kept(SPAN));
        let odd = record(77, Direction::Restore, End::Covered);
        assert_eq!(verdict(&odd), Verdict::None);
        let huge = record(1, Direction::Checkpoint, End::Covered);
        huge.buffer.address.store(u64::MAX, Relaxed);
        assert!(matches!(verdict(&huge), Verdict::There { .. }));
    }
}
