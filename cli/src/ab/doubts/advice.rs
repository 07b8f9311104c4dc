//! What to do about each doubt.

use super::Doubt;

impl Doubt {
    /// What to do about it.
    pub fn advice(&self) -> &'static str {
        match self {
            Doubt::Wrong { .. } => "trust no number of this run: report it, with the cycle's steps down and \"cudasnap status -v\" of the process",
            Doubt::Stopped { .. } => "what was measured until then stands; make the run again for the rest",
            Doubt::Failed { .. } => "the sentence says what was in the way; where it says nothing, \"cudasnap doctor\" may",
            Doubt::NotEffective { .. } => "\"cudasnap status PID\" says why; until then the numbers are not the library's",
            Doubt::OtherMode { .. } => "somebody else switched the mode meanwhile (cudasnap mode): make the run again alone",
            Doubt::KeptInSome { .. } => "compare variants that all keep a buffer (buffer=keep), or none",
            Doubt::NotKept { .. } => "the first cycle of a process makes the buffer: give --warm-up 1 or more; steps down say when the kernel took it away",
            Doubt::Dropped { .. } => "these are the times without a kept buffer; for those with one give the program behind --, and a variant with buffer=keep",
            Doubt::FreshPages { .. } => "leave --warm-up at 1 or more",
            Doubt::FewPairs { .. } => "more --cycles, or less --confidence",
            Doubt::SharedProcesses { .. } => "leave --rounds-per-visit at 1, so that each pair has processes of its own",
            Doubt::UnequalBytes { .. } => "let the program hold the same memory in every cycle: stop its load, or compare GB/s",
            Doubt::Noisy { .. } => "a quieter machine, or more --cycles: the interval says what can be told all the same",
            Doubt::Drift { .. } => "rounds are compared with each other, so ratios stand; single medians are of a machine that was changing (heat, memory in pieces)",
            Doubt::FirstOfRound { .. } => "orders are balanced, so ratios stand; --pause between cycles may make them alike",
            Doubt::Outliers { .. } => "they count, and medians hardly notice; the surroundings of these cycles in --json may say why",
            Doubt::OthersBusy { .. } => "stop what else runs, or give the program CPUs of its own (taskset, a cpuset)",
            Doubt::OthersOnGpu { .. } => "measure on a GPU that nobody else uses: they share its bus and its memory",
            Doubt::Frequency { .. } => "cpupower frequency-set -g performance, where the machine is yours; a longer --warm-up",
            Doubt::StepsDown { .. } => "docs/status.md says what each means; \"cudasnap doctor\" finds most of their causes",
            Doubt::ThpOff => "echo madvise > /sys/kernel/mm/transparent_hugepage/enabled; without huge pages the library is slower than it could be",
            Doubt::NoLimit { .. } => "without it nobody can tell how much is left to gain",
            Doubt::AboveLimit { .. } => "the limit was disturbed, or the buffer's bytes are not all copied (zeros): measure again on a quiet machine",
        }
    }
}
