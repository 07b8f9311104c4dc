//! What all benches share.

use std::time::Duration;

use criterion::Criterion;

/// Enough for a difference of a few per cent; all benches together take a minute or two.
pub fn brief() -> Criterion {
    Criterion::default()
        .warm_up_time(Duration::from_millis(500))
        .measurement_time(Duration::from_secs(2))
}
