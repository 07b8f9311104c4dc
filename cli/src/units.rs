//! Sizes, rates and times in the words of people who run servers: decimal units, as GPU and bus makers use them.

use std::time::Duration;

/// Bytes with three digits: `9.14 GB`, `512 MB`, `12 B`.
pub fn bytes(count: u64) -> String {
    const UNITS: [&str; 6] = ["B", "kB", "MB", "GB", "TB", "PB"];
    let mut value = count as f64;
    let mut unit = 0;
    // 999.5 would be printed as 1000.
    while value >= 999.5 && unit + 1 < UNITS.len() {
        value /= 1000.0;
        unit += 1;
    }
    format!("{} {}", three_digits(value, unit > 0), UNITS[unit])
}

/// Bytes per second as `21.3 GB/s`; `-` when there was no time.
pub fn rate(count: u64, time: Duration) -> String {
    if time.is_zero() {
        return "-".into();
    }
    let per_second = count as f64 / time.as_secs_f64();
    format!("{} GB/s", three_digits(per_second / 1e9, true))
}

/// A duration as `1.03 s`, `72 ms`, `4.1 ms`, `310 us`.
pub fn duration(time: Duration) -> String {
    let seconds = time.as_secs_f64();
    if seconds >= 0.9995 {
        format!("{} s", three_digits(seconds, true))
    } else if seconds >= 0.000_999_5 {
        format!("{} ms", three_digits(seconds * 1e3, seconds < 0.0995))
    } else {
        format!("{:.0} us", seconds * 1e6)
    }
}

fn three_digits(value: f64, fraction: bool) -> String {
    let digits = match value {
        _ if !fraction => 0,
        v if v >= 99.95 => 0,
        v if v >= 9.995 => 1,
        _ => 2,
    };
    format!("{value:.digits$}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_have_three_digits() {
        for (count, text) in [
            (0, "0 B"),
            (999, "999 B"),
            (1000, "1.00 kB"),
            (999_499, "999 kB"),
            (999_999, "1.00 MB"),
            (9_145_044_112, "9.15 GB"),
            (26_300_000_000, "26.3 GB"),
            (u64::MAX, "18447 PB"),
        ] {
            assert_eq!(bytes(count), text);
        }
    }

    #[test]
    fn rates_and_times_are_short() {
        assert_eq!(rate(21_300_000_000, Duration::from_secs(1)), "21.3 GB/s");
        assert_eq!(rate(1, Duration::ZERO), "-");
        for (micros, text) in [
            (310, "310 us"),
            (4_100, "4.10 ms"),
            (72_000, "72.0 ms"),
            (420_000, "420 ms"),
            (1_030_000, "1.03 s"),
            (75_000_000, "75.0 s"),
        ] {
            assert_eq!(duration(Duration::from_micros(micros)), text);
        }
    }
}
