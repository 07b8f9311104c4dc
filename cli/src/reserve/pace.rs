//! So many bytes per second, without bursts: time that was lost (a busy machine, SIGSTOP) is not made up for.

use std::time::Duration;

/// So far behind it may be and still catch up.
const LAG: Duration = Duration::from_millis(20);

/// When the next part is due.
#[derive(Debug, Clone, Copy)]
pub struct Pace {
    /// Bytes per second; 0 = no limit.
    rate: u64,
    due: Duration,
}

impl Pace {
    /// The first part is due now.
    pub fn new(rate: u64, now: Duration) -> Self {
        Pace { rate, due: now }
    }

    /// How long to wait for the next part.
    pub fn wait(&mut self, now: Duration) -> Duration {
        self.due = self.due.max(now.saturating_sub(LAG));
        self.due.saturating_sub(now)
    }

    /// A part was done.
    pub fn took(&mut self, bytes: u64) {
        let nanos = (u128::from(bytes) * 1_000_000_000).checked_div(u128::from(self.rate));
        let nanos = u64::try_from(nanos.unwrap_or(0)).unwrap_or(u64::MAX);
        self.due = self.due.saturating_add(Duration::from_nanos(nanos));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn ms(count: u64) -> Duration {
        Duration::from_millis(count)
    }

    #[test]
    fn parts_come_at_the_rate() {
        let mut pace = Pace::new(1000, ms(7));
        assert_eq!(pace.wait(ms(7)), ms(0));
        pace.took(50);
        assert_eq!(pace.wait(ms(7)), ms(50));
        assert_eq!(pace.wait(ms(40)), ms(17));
        // A little late: caught up with.
        assert_eq!(pace.wait(ms(60)), ms(0));
        pace.took(50);
        assert_eq!(pace.wait(ms(60)), ms(47));
    }

    #[test]
    fn time_that_was_lost_is_not_made_up_for() {
        let mut pace = Pace::new(1000, ms(0));
        pace.took(50);
        assert_eq!(pace.wait(ms(10_000)), ms(0));
        pace.took(50);
        assert_eq!(pace.wait(ms(10_000)), ms(30));
    }

    #[test]
    fn no_rate_is_no_wait_and_numbers_do_not_overflow() {
        let mut pace = Pace::new(0, ms(0));
        pace.took(u64::MAX);
        assert_eq!(pace.wait(ms(0)), ms(0));
        let mut slow = Pace::new(1, ms(0));
        slow.took(u64::MAX);
        slow.took(u64::MAX);
        assert!(slow.wait(ms(0)) > ms(1_000_000));
    }
}
