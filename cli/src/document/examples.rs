//! Documents for tests and for looking at: the numbers are invented.

use super::{Column, Document, Doubt, Plot, Point, Points, Section, Series, Stacked, Table};

/// Text that wants to be more than text.
pub const HOSTILE: &str =
    "<script>alert('x')</script> \"q\" 'q' & | `code` \u{1b}[2J \u{202e}evil\u{202c} @all #1 <!-- \0 ]]> </style>";

/// Numbers that are scattered the same way each time.
struct Scatter(u64);

impl Scatter {
    /// Between -1 and 1, mostly near 0.
    fn next(&mut self) -> f64 {
        let mut sum = 0.0;
        for _ in 0..3 {
            self.0 = self
                .0
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            sum += (self.0 >> 33) as f64 / f64::from(1u32 << 30) - 1.0;
        }
        sum / 3.0
    }
}

/// Points of so many series, so many each, around these heights.
pub fn points(names: &[&str], heights: &[f64], cycles: u32) -> Points {
    let mut scatter = Scatter(7);
    let count = names.len() as u32;
    let series = names.iter().zip(heights).enumerate();
    let series = series.map(|(number, (name, height))| Series {
        name: (*name).to_owned(),
        points: (0..cycles)
            .map(|cycle| {
                let outlier = cycle % 17 == 9;
                let low = if outlier { 0.75 } else { 1.0 };
                Point {
                    x: f64::from(cycle * count + (number as u32 + cycle * 5) % count + 1),
                    y: height * low * (1.0 + 0.06 * scatter.next()),
                    spread: None,
                    outlier,
                }
            })
            .collect(),
    });
    Points {
        across: "cycle".into(),
        up: "checkpoint, GB/s".into(),
        series: series.collect(),
        limits: vec![
            ("pinned copies to host".into(), 55.3),
            ("pinned copies to device".into(), 54.6),
        ],
    }
}

/// As many names as wanted.
pub fn names(count: usize) -> Vec<String> {
    let pages = ["thp", "4k", "2m"];
    (0..count)
        .map(|number| format!("on:threads={},pages={}", 2 + number, pages[number % 3]))
        .collect()
}

/// Where time goes.
pub fn split() -> Stacked {
    let bar = |name: &str, pieces: [f64; 6]| (name.to_owned(), pieces.to_vec());
    Stacked {
        unit: "seconds".into(),
        pieces: [
            "mmap",
            "prefault",
            "first copy",
            "copying",
            "driver",
            "munmap",
        ]
        .map(String::from)
        .to_vec(),
        bars: vec![
            bar("checkpoint, observe", [0.01, 0.0, 0.0, 8.9, 1.3, 0.0]),
            bar("checkpoint, on", [0.02, 0.11, 0.18, 0.52, 0.21, 0.0]),
            bar(
                "checkpoint, on:threads=4,pages=4k",
                [0.02, 0.31, 0.18, 0.72, 0.22, 0.0],
            ),
            bar("restore, observe", [0.0, 0.0, 0.0, 6.1, 0.9, 1.4]),
            bar("restore, on", [0.0, 0.0, 0.1, 0.49, 0.19, 0.07]),
            bar(
                "restore, on:threads=4,pages=4k",
                [0.0, 0.0, 0.1, 0.53, 0.21, 0.09],
            ),
        ],
    }
}

/// How seconds grow with size.
pub fn scaling() -> Points {
    let series = [
        ("observe", 0.38),
        ("on", 0.024),
        ("on:threads=4,pages=4k", 0.031),
    ];
    Points {
        across: "size, GiB".into(),
        up: "checkpoint, seconds".into(),
        series: series
            .into_iter()
            .map(|(name, each)| Series {
                name: name.into(),
                points: [8.0, 16.0, 24.0, 32.0, 48.0]
                    .into_iter()
                    .map(|x: f64| Point {
                        x,
                        y: x * each + 0.1,
                        spread: Some((x * each * 0.9 + 0.08, x * each * 1.14 + 0.12)),
                        outlier: false,
                    })
                    .collect(),
            })
            .collect(),
        limits: Vec::new(),
    }
}

fn column(heading: &str, is_number: bool) -> Column {
    Column {
        heading: heading.into(),
        is_number,
    }
}

/// A table of medians.
pub fn medians() -> Table {
    let row = |cells: [&str; 8]| cells.map(String::from).to_vec();
    Table {
        columns: vec![
            column("variant", false),
            column("settings", false),
            column("cycles", true),
            column("checkpoint, GB/s", true),
            column("spread", true),
            column("restore, GB/s", true),
            column("spread", true),
            column("ratio, 95 % interval", true),
        ],
        rows: vec![
            row([
                "observe",
                "",
                "20",
                "2.52",
                "2.41-2.60",
                "3.07",
                "3.01-3.12",
                "",
            ]),
            row([
                "on",
                "",
                "20",
                "24.8",
                "24.1-25.0",
                "33.1",
                "32.2-33.9",
                "9.84 (9.71-9.93)",
            ]),
            row([
                "on:threads=4,pages=4k",
                "CUDASNAP_PAGES=4k threads=4",
                "19",
                "17.8",
                "16.9-18.8",
                "28.0",
                "27.1-29.0",
                "7.06 (6.80-7.31)",
            ]),
        ],
    }
}

/// A report as `ab` makes it.
pub fn report() -> Document {
    let section = |heading: &str, text: &str, plot: Option<Plot>, table: Option<Table>| Section {
        heading: heading.into(),
        text: text.into(),
        plot,
        table,
    };
    let rates = points(
        &["observe", "on", "on:threads=4,pages=4k"],
        &[2.5, 24.8, 17.8],
        20,
    );
    Document {
        title: "Checkpoint and restore of 24 GiB: observe against on".into(),
        facts: [
            ("Host", "gpu-07, 64 CPUs, AMD EPYC 9554, 566 GB"),
            ("Kernel", "6.8.0-87-generic, transparent huge pages: madvise"),
            ("GPU", "NVIDIA H200, driver 580.159.04, PCIe 5 x16"),
            ("Started", "2026-11-30 15:10:17 UTC"),
            ("Seed", "4711"),
            ("Tool", "cudasnap 0.1.0"),
        ]
        .map(|(name, value)| (name.into(), value.into()))
        .to_vec(),
        findings: vec![
            "A checkpoint takes 1.04 s rather than 10.2 s: 9.84 times as fast (95 % interval 9.71 to 9.93).".into(),
            "A restore takes 0.78 s rather than 8.40 s: 10.8 times as fast (95 % interval 10.6 to 10.9).".into(),
            "The checkpoint reaches 45 % of what pinned copies reach on this GPU, the restore 61 %.".into(),
        ],
        doubts: vec![
            Doubt {
                what: "3 of 60 cycles are outliers.".into(),
                advice: "Look at what ran beside them (column others_busy of --csv), and repeat with more cycles.".into(),
            },
            Doubt {
                what: "CPU frequencies were between 1500 and 3700 MHz.".into(),
                advice: "Set the governor to performance (cpupower frequency-set -g performance).".into(),
            },
        ],
        sections: vec![
            section(
                "Results",
                "Medians over all cycles but warm-ups and outliers. Ratios are those of pairs of the same round.",
                None,
                Some(medians()),
            ),
            section(
                "Rate of each cycle",
                "Each mark is one checkpoint, in the order in which they were made. The dashed lines are pinned copies of the same GPU in the same run: nothing can be faster.",
                Some(Plot::Points(rates)),
                None,
            ),
            section(
                "Where the time goes",
                "The median cycle of each variant. Prefault runs beside other steps, so that only what others had to wait for is shown.",
                Some(Plot::Stacked(split())),
                None,
            ),
            section(
                "Scaling",
                "Medians by size; bands reach from the least to the most.\nA straight line means that time is in proportion to size.",
                Some(Plot::Lines(scaling())),
                None,
            ),
        ],
    }
}

/// A report all of whose words are [`HOSTILE`].
pub fn hostile() -> Document {
    let mut document = report();
    let word = || HOSTILE.to_owned();
    document.title = word();
    document.facts = vec![(word(), word())];
    document.findings = vec![word(), word()];
    document.doubts = vec![Doubt {
        what: word(),
        advice: word(),
    }];
    for section in &mut document.sections {
        section.heading = word();
        section.text = word();
        if let Some(table) = &mut section.table {
            table
                .columns
                .iter_mut()
                .for_each(|column| column.heading = word());
            table
                .rows
                .iter_mut()
                .flatten()
                .for_each(|cell| *cell = word());
        }
        match &mut section.plot {
            Some(Plot::Points(points) | Plot::Lines(points)) => {
                (points.across, points.up) = (word(), word());
                points
                    .series
                    .iter_mut()
                    .for_each(|series| series.name = word());
                points.limits.iter_mut().for_each(|limit| limit.0 = word());
            }
            Some(Plot::Stacked(stacked)) => {
                stacked.unit = word();
                stacked.pieces.iter_mut().for_each(|piece| *piece = word());
                stacked.bars.iter_mut().for_each(|bar| bar.0 = word());
            }
            None => {}
        }
    }
    document
}

/// Many series, many cycles, many sizes apart, nothing at all.
pub fn extremes() -> Document {
    let names = names(12);
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let heights: Vec<f64> = (0..12)
        .map(|number| 4.0 * f64::from(number) + 3.0)
        .collect();
    let mut gaps = points(&names[..2], &[1.0, 40.0], 1);
    gaps.series[0].points[0].y = f64::NAN;
    let wide = Points {
        series: vec![Series {
            name: "all sizes".into(),
            points: (-3..=5)
                .map(|power| Point {
                    x: 10f64.powi(power),
                    y: 10f64.powi(power),
                    spread: Some((10f64.powi(power) * 0.6, 10f64.powi(power) * 1.6)),
                    outlier: power == 0,
                })
                .collect(),
        }],
        limits: vec![("a limit".into(), 2e5)],
        ..scaling()
    };
    let mut tiny = split();
    tiny.bars = vec![
        ("one".into(), vec![0.001; 6]),
        ("none".into(), vec![0.0; 6]),
    ];
    let plots = [
        ("Twelve series", Plot::Points(points(&names, &heights, 42))),
        (
            "500 cycles",
            Plot::Points(points(&names[..2], &[3.0, 30.0], 250)),
        ),
        ("One point, one without a number", Plot::Points(gaps)),
        ("Nothing", Plot::Points(Points::default())),
        ("Sizes far apart", Plot::Lines(wide)),
        ("Short bars", Plot::Stacked(tiny)),
        ("No bars", Plot::Stacked(Stacked::default())),
    ];
    Document {
        title: "Extremes".into(),
        sections: plots
            .into_iter()
            .map(|(heading, plot)| Section {
                heading: heading.into(),
                plot: Some(plot),
                ..Section::default()
            })
            .collect(),
        ..Document::default()
    }
}
