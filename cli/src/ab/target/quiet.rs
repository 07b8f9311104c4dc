//! When a program's GPU memory is quiet: it has some, and has had as much for a while. Without NVML: the driver says that it runs, and it
//! uses hardly any CPU time. Pure: samples and moments come from outside.

use std::time::{Duration, Instant};

/// CPU time, as a share of one CPU, below which a process waits for work.
const IDLE: f64 = 0.1;

/// What was seen of a process at a moment.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Sample {
    /// Bytes of device memory, by NVML.
    Memory(u64),
    /// CPU time used since its start, and the driver says `running`.
    Running(Duration),
    /// Neither is to be had.
    Nothing,
}

/// Samples of a process.
#[derive(Debug, Default)]
pub struct Quiet {
    since: Option<Instant>,
    last: Option<(Instant, Sample)>,
}

impl Quiet {
    /// Takes a sample; whether it has been quiet for so long.
    pub fn has_been(&mut self, long: Duration, now: Instant, sample: Sample) -> bool {
        let is_same = match (self.last, sample) {
            (Some((_, Sample::Memory(before))), Sample::Memory(now)) => now > 0 && before == now,
            (Some((then, Sample::Running(before))), Sample::Running(used)) => {
                let time = now.saturating_duration_since(then).as_secs_f64();
                used.saturating_sub(before).as_secs_f64() <= time * IDLE
            }
            _ => false,
        };
        let began = self.last.map(|(then, _)| then);
        self.last = Some((now, sample));
        if !is_same {
            self.since = None;
            return false;
        }
        let since = *self.since.get_or_insert(began.unwrap_or(now));
        now.saturating_duration_since(since) >= long
    }

    /// What is missing, for people.
    pub fn told(&self) -> &'static str {
        match self.last {
            None => "it does not use CUDA yet",
            Some((_, Sample::Memory(0))) => "it has no GPU memory yet",
            Some((_, Sample::Memory(_))) => "its GPU memory still changes",
            Some((_, Sample::Running(_))) => "it is still busy",
            Some((_, Sample::Nothing)) => {
                "neither NVML nor the driver tells whether it is ready: use --ready-line, --ready-port or --ready-command"
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONG: Duration = Duration::from_secs(3);

    fn at(samples: &[(u64, Sample)]) -> Vec<bool> {
        let start = Instant::now();
        let mut quiet = Quiet::default();
        let samples = samples.iter();
        samples
            .map(|(second, sample)| {
                quiet.has_been(LONG, start + Duration::from_secs(*second), *sample)
            })
            .collect()
    }

    #[test]
    fn memory_must_stay_as_it_is() {
        use Sample::Memory;
        assert_eq!(
            at(&[
                (0, Memory(0)),
                (5, Memory(0)),
                (6, Memory(5)),
                (8, Memory(5)),
                (9, Memory(6)),
                (11, Memory(6)),
                (12, Memory(6))
            ]),
            [false, false, false, false, false, false, true]
        );
    }

    #[test]
    fn cpu_time_must_be_small() {
        let running = |ms| Sample::Running(Duration::from_millis(ms));
        assert_eq!(
            at(&[
                (0, running(0)),
                (1, running(900)),
                (2, running(950)),
                (3, running(1000)),
                (4, running(1000))
            ]),
            [false, false, false, false, true]
        );
    }

    #[test]
    fn a_change_of_witness_begins_anew() {
        use Sample::{Memory, Nothing};
        assert_eq!(
            at(&[
                (0, Memory(5)),
                (2, Nothing),
                (9, Memory(5)),
                (12, Memory(5))
            ]),
            [false, false, false, true]
        );
        assert_eq!(at(&[(0, Nothing), (9, Nothing)]), [false, false]);
    }
}
