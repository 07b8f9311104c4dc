//! Metrics from records; docs/fleet.md has the same tables for people. `process` is what every process has, `phase` what every last phase has,
//! `values` what samples are made of.

mod phase;
mod process;
mod values;

use std::time::Duration;

use super::exposition::{Family, Kind, Sample, Value};
use super::gather::Harvest;

/// All families. `now` is the time since 1970.
pub fn of(harvest: &Harvest, now: Duration) -> Vec<Family> {
    let mut families = process::families(&harvest.seen);
    families.extend(phase::families(&harvest.seen));
    families.extend(own(harvest, now));
    families
}

/// About this look itself.
fn own(harvest: &Harvest, now: Duration) -> [Family; 2] {
    let counts = [
        ("read", harvest.seen.len()),
        ("ended", harvest.ended),
        ("failed", harvest.refusals.len()),
    ];
    let processes = counts.map(|(result, count)| Sample {
        labels: vec![("result", result.to_owned())],
        value: Value::Whole(count as u64),
    });
    [
        Family {
            name: "cudasnap_scrape_processes",
            help:
                "Processes that were looked at: read, ended before they were read, or not readable.",
            kind: Kind::Gauge,
            samples: processes.to_vec(),
        },
        Family {
            name: "cudasnap_scrape_timestamp_seconds",
            help: "Time of this look, seconds since 1970.",
            kind: Kind::Gauge,
            samples: vec![Sample {
                labels: Vec::new(),
                value: Value::Real(now.as_secs_f64()),
            }],
        },
    ]
}

#[cfg(test)]
mod tests {
    use super::super::exposition::text;
    use super::super::gather::Seen;
    use super::*;
    use cudasnap_wire::{Direction, Mode, Record, Step};
    use std::collections::HashSet;
    use std::sync::atomic::Ordering::Relaxed;

    fn seen(change: impl FnOnce(&Record)) -> Seen {
        let record = Record::new(0x0001_0203);
        change(&record);
        Seen {
            pid: 7,
            name: "python3".into(),
            initialised: true,
            record: crate::record::view::RecordView::new(&record),
        }
    }

    fn shown(seen: Vec<Seen>) -> String {
        let harvest = Harvest {
            seen,
            ended: 2,
            refusals: Vec::new(),
        };
        text(&of(&harvest, Duration::from_millis(1500)))
    }

    #[test]
    fn counters_and_states_are_there_from_the_beginning() {
        let text = shown(vec![seen(|record| {
            record.counters.requests.store(3, Relaxed);
            record.counters.steps[Step::NoThread as usize].store(4, Relaxed);
            record.mode.store(Mode::Observe.number(), Relaxed);
            record.buffer.length.store(99, Relaxed);
        })]);
        for line in [
            "cudasnap_library_info{pid=\"7\",name=\"python3\",version=\"1.2.3\",build_id=\"\"} 1",
            "cudasnap_buffer_requests_total{pid=\"7\",name=\"python3\"} 3",
            "cudasnap_steps_down_total{pid=\"7\",name=\"python3\",reason=\"no-thread\"} 4",
            "cudasnap_steps_down_total{pid=\"7\",name=\"python3\",reason=\"panic\"} 0",
            "cudasnap_mode{pid=\"7\",name=\"python3\",mode=\"on\"} 0",
            "cudasnap_mode{pid=\"7\",name=\"python3\",mode=\"observe\"} 1",
            "cudasnap_buffer_state{pid=\"7\",name=\"python3\",state=\"none\"} 1",
            "cudasnap_buffer_bytes{pid=\"7\",name=\"python3\"} 0",
            "cudasnap_scrape_processes{result=\"ended\"} 2",
            "cudasnap_scrape_timestamp_seconds 1.5",
        ] {
            assert!(text.contains(&format!("{line}\n")), "{line}\n{text}");
        }
        assert!(!text.contains("last_phase"), "there was none");
    }

    #[test]
    fn the_last_phase_of_each_direction_is_shown() {
        let text = shown(vec![seen(|record| {
            record.history_count.store(2, Relaxed);
            for (place, copied) in [(0, 1), (1, 990)] {
                let phase = &record.history[place];
                phase.direction.store(Direction::Restore.number(), Relaxed);
                phase.expected.store(1000, Relaxed);
                phase.copied.store(copied, Relaxed);
                phase.total_ns.store(500_000_000, Relaxed);
                phase.pages.store(77, Relaxed);
            }
        })]);
        let labels = "{pid=\"7\",name=\"python3\",direction=\"restore\"";
        for line in [
            format!("cudasnap_last_phase_bytes{labels}}} 1000"),
            format!("cudasnap_last_phase_bytes_per_second{labels}}} 1980"),
            format!("cudasnap_last_phase_effective{labels}}} 1"),
            format!("cudasnap_last_phase_piece_seconds{labels},piece=\"mmap\"}} 0"),
            format!("cudasnap_last_phase_pages{labels},pages=\"unknown number 77\"}} 1"),
        ] {
            assert!(text.contains(&format!("{line}\n")), "{line}\n{text}");
        }
        assert!(!text.contains("direction=\"checkpoint\""));
    }

    #[test]
    fn what_was_only_watched_is_not_effective() {
        let text = shown(vec![seen(|record| {
            record.history_count.store(1, Relaxed);
            let phase = &record.history[0];
            phase.direction.store(1, Relaxed);
            phase.expected.store(1000, Relaxed);
            phase.copied.store(1000, Relaxed);
            phase.mode.store(Mode::Observe.number(), Relaxed);
        })]);
        let line = "cudasnap_last_phase_effective{pid=\"7\",name=\"python3\",direction=\"checkpoint\"} 0\n";
        assert!(text.contains(line), "{text}");
        assert!(!text.contains("bytes_per_second"), "there was no time");
    }

    /// Prometheus' rules for names: a prefix, base units, `_total` for counters and for nothing else.
    #[test]
    fn names_follow_the_conventions() {
        let families = of(&Harvest::default(), Duration::ZERO);
        let names: HashSet<_> = families.iter().map(|family| family.name).collect();
        assert_eq!(names.len(), families.len(), "each name once");
        for family in families {
            let name = family.name;
            let fits = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
            assert!(
                name.starts_with("cudasnap_") && name.chars().all(fits),
                "{name}"
            );
            assert_eq!(
                name.ends_with("_total"),
                family.kind == Kind::Counter,
                "{name}"
            );
            assert!(family.help.ends_with('.'), "{name}");
        }
    }

    /// The documentation lists what there is, and nothing else.
    #[test]
    fn every_metric_is_in_the_documentation() {
        let document = include_str!("../../../docs/fleet.md");
        let rows = document
            .lines()
            .filter_map(|line| line.strip_prefix("| `cudasnap_"));
        let listed: HashSet<String> = rows
            .filter_map(|row| Some(format!("cudasnap_{}", row.split_once('`')?.0)))
            .collect();
        let families = of(&Harvest::default(), Duration::ZERO);
        let there: HashSet<String> = families.iter().map(|f| f.name.to_owned()).collect();
        assert_eq!(listed, there);
    }
}
