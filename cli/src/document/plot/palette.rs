//! Colours by theme. Those of series are apart in brightness, for who cannot tell hues apart or reads a grey print, and neighbours are far
//! apart; each has a contrast of 3 to its ground at least, words 4.5.

use super::scene::Ink;

/// How many colours series have. Beyond them they start again, with other marks and patterns.
pub const SERIES: usize = 8;

/// Colours of a theme, as `#rrggbb`.
#[derive(Debug, Clone, Copy)]
pub struct Palette {
    /// The ground.
    pub ground: &'static str,
    /// Words.
    pub text: &'static str,
    /// Words that matter less.
    pub quiet: &'static str,
    /// Lines behind numbers.
    pub grid: &'static str,
    /// Limits.
    pub limit: &'static str,
    /// Series.
    pub series: [&'static str; SERIES],
}

/// For a light ground, and for print.
pub const LIGHT: Palette = Palette {
    ground: "#ffffff",
    text: "#1b2026",
    quiet: "#57606a",
    grid: "#d8dee4",
    limit: "#3f4a56",
    series: [
        "#d94049", "#17a48e", "#6420aa", "#c07301", "#045fb9", "#482f05", "#277c0b", "#a10174",
    ],
};

/// For a dark ground.
pub const DARK: Palette = Palette {
    ground: "#0f1318",
    text: "#e6edf3",
    quiet: "#9aa4af",
    grid: "#2f363e",
    limit: "#b9c4cf",
    series: [
        "#ed5359", "#43c8af", "#965ce5", "#fdc58f", "#4497fc", "#7e5d2b", "#66b853", "#c23391",
    ],
};

impl Palette {
    /// The colour of an ink.
    pub fn colour(&self, ink: Ink) -> &'static str {
        match ink {
            Ink::Text => self.text,
            Ink::Quiet => self.quiet,
            Ink::Grid => self.grid,
            Ink::Ground => self.ground,
            Ink::Limit => self.limit,
            Ink::Series(number) => self.series[number % SERIES],
        }
    }

    /// Custom properties for a style sheet.
    pub fn properties(&self) -> String {
        let named = self.named().into_iter();
        named
            .map(|(name, colour)| format!("--{name}:{colour};"))
            .collect()
    }

    fn named(&self) -> Vec<(String, &'static str)> {
        let single = [
            ("ground", self.ground),
            ("text", self.text),
            ("quiet", self.quiet),
            ("grid", self.grid),
            ("limit", self.limit),
        ];
        let single = single.map(|(name, colour)| (name.to_owned(), colour));
        let series = self.series.iter().enumerate();
        let series = series.map(|(number, colour)| (format!("s{number}"), *colour));
        single.into_iter().chain(series).collect()
    }
}

/// The rules that give the classes of [`class`] their colours, by custom properties.
pub fn rules() -> String {
    let names = LIGHT.named().into_iter();
    names
        .map(|(name, _)| format!(".{name}{{color:var(--{name})}}"))
        .collect()
}

/// The class of shapes of a colour.
pub fn class(ink: Ink) -> String {
    match ink {
        Ink::Text => "text".to_owned(),
        Ink::Quiet => "quiet".to_owned(),
        Ink::Grid => "grid".to_owned(),
        Ink::Ground => "ground".to_owned(),
        Ink::Limit => "limit".to_owned(),
        Ink::Series(number) => format!("s{}", number % SERIES),
    }
}

#[cfg(test)]
#[allow(missing_docs, reason = "tests")]
pub mod tests {
    use super::*;

    /// Relative luminance as WCAG 2 defines it.
    fn luminance(colour: &str) -> f64 {
        let part = |at: usize| {
            let value = f64::from(u8::from_str_radix(&colour[at..at + 2], 16).unwrap()) / 255.0;
            if value <= 0.040_45 {
                value / 12.92
            } else {
                ((value + 0.055) / 1.055).powf(2.4)
            }
        };
        0.2126 * part(1) + 0.7152 * part(3) + 0.0722 * part(5)
    }

    /// Contrast as WCAG 2 defines it.
    pub fn contrast(one: &str, other: &str) -> f64 {
        let (one, other) = (luminance(one), luminance(other));
        (one.max(other) + 0.05) / (one.min(other) + 0.05)
    }

    #[test]
    fn words_and_marks_stand_out_from_the_ground() {
        for palette in [LIGHT, DARK] {
            for ink in [palette.text, palette.quiet, palette.limit] {
                assert!(contrast(ink, palette.ground) >= 4.5, "{ink}");
            }
            for ink in palette.series {
                assert!(contrast(ink, palette.ground) >= 3.0, "{ink}");
            }
        }
    }

    #[test]
    fn series_are_apart_in_brightness_and_neighbours_far() {
        for palette in [LIGHT, DARK] {
            for (at, one) in palette.series.iter().enumerate() {
                for (distance, other) in palette.series[at + 1..].iter().enumerate() {
                    let least = if distance == 0 { 1.35 } else { 1.15 };
                    let seen = contrast(one, other);
                    assert!(seen >= least, "{one} and {other}: {seen}");
                }
            }
        }
    }

    #[test]
    fn a_class_has_the_colour_of_its_ink() {
        let inks = [Ink::Text, Ink::Quiet, Ink::Grid, Ink::Ground, Ink::Limit];
        let series = (0..2 * SERIES).map(Ink::Series);
        let (properties, rules) = (DARK.properties(), rules());
        for ink in inks.into_iter().chain(series) {
            let class = class(ink);
            assert!(rules.contains(&format!(".{class}{{color:var(--{class})}}")));
            assert!(properties.contains(&format!("--{class}:{};", DARK.colour(ink))));
        }
    }
}
