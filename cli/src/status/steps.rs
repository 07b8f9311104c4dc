//! Steps down in words.

use cudasnap_wire::Step;

use crate::record::view::RecordView;

use super::text::count;

/// Those that happened, a line each.
pub fn lines(record: &RecordView) -> Vec<String> {
    let steps = record.counters.steps.iter();
    steps
        .map(|step| {
            let times = count(step.value as usize, "time", "times");
            format!("{}, {times}: {}", step.name, meaning(step.name))
        })
        .collect()
}

/// What a step down means, in one line.
pub fn meaning(step: &str) -> &'static str {
    let known = Step::ALL.iter().find(|known| known.word() == step);
    known.map_or("a step of a newer library", |step| explain(*step))
}

fn explain(step: Step) -> &'static str {
    match step {
        Step::LowMemory => "memory was short: the driver's own request went through, at the driver's speed",
        Step::MmapRefused => "the kernel refused the library's mapping: the driver's own request went through",
        Step::NoHugePages => "the kernel refused 2 MiB pages, or would not say whether it has them (no /sys): base pages were used, or what other sizes it gives",
        Step::NoHugetlb => "the pool of 2 MiB pages was too small: transparent huge pages were used",
        Step::SlowHugePages => "the kernel took too long to make room for huge pages: the rest is on base pages",
        Step::NoThread => "the kernel refused a thread (pids limit): fewer threads copied",
        Step::NoCopySlot => "libcuda's copies could not be taken over: the driver copied by itself",
        Step::NoMunmapSlot => "libcuda's munmap could not be taken over: memory was prefaulted before the answer",
        Step::SlotRetaken => "another library overwrote a slot of libcuda: it was taken again",
        Step::CallerByName => "the caller's stack could not be walked: its thread's name decided",
        Step::ForeignBuild => "the library's file is not of the build that was loaded: plain copies",
        Step::HelperLate => "a helper thread had not left at the end of its phase",
        Step::HelperDead => "a helper thread died: its part was copied again",
        Step::SecondBuffer => "a buffer was asked for while another lived: left to the driver",
        Step::Disturbed => "the buffer was unmapped in part, moved or mapped over: left to the driver",
        Step::CrewBusy => "a copy came while another thread was copying: done alone",
        Step::NotEffective => "less than 99 % of a buffer went through the library",
        Step::Panic => "a fault inside the library was caught: please report it",
        Step::KeptUnfit => "a kept buffer did not fit the new request: freed",
        Step::ReportFailed => "the report file (CUDASNAP_REPORT) could not be written",
        Step::NotUnderstood => "a request of the driver was not recognised: perhaps another preloaded library stands before this one, or /proc cannot be read",
        Step::NoPopulate => "the kernel refused to prefault the buffer: it was filled as the driver copied",
        Step::NotKept => "the kernel did not free what a kept buffer may not hold: all of it was freed",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_step_has_a_meaning_of_its_own() {
        let meanings: std::collections::BTreeSet<&str> =
            Step::ALL.iter().map(|step| meaning(step.word())).collect();
        assert_eq!(meanings.len(), Step::ALL.len());
        assert_eq!(meaning("of tomorrow"), "a step of a newer library");
    }
}
