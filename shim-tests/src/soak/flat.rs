//! Whether something grows over the life of a host: by its slope, not by its ends. Pure.

/// Cycles that a slope needs.
pub const ENOUGH: usize = 60;
/// Parts of a life that are compared.
const PARTS: usize = 6;

/// Steady growth per measurement: the median of the steps from one part's median to the next one's. A leak grows in every part, a
/// jump in one. `None` when there is less than one measurement for each part.
#[must_use]
pub fn slope(values: &[f64]) -> Option<f64> {
    let length = values.len() / PARTS;
    let parts = values.chunks_exact(length.max(1)).take(PARTS);
    let medians: Vec<f64> = parts.filter_map(median).collect();
    let steps: Vec<f64> = medians.windows(2).map(|two| two[1] - two[0]).collect();
    (length > 0).then_some(median(&steps)? / length as f64)
}

fn median(values: &[f64]) -> Option<f64> {
    let mut values = values.to_vec();
    values.sort_unstable_by(f64::total_cmp);
    values.get(values.len() / 2).copied()
}

/// What a host held after each of its cycles.
#[derive(Debug, Clone, Default)]
pub struct Series {
    /// Resident private memory, less what a kept buffer holds, in bytes.
    pub anonymous: Vec<f64>,
    /// Address space, less a kept buffer's, in bytes.
    pub address_space: Vec<f64>,
    /// Mappings, less a kept buffer's.
    pub mappings: Vec<f64>,
}

/// Growth per cycle.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Slopes {
    /// Bytes of resident private memory.
    pub anonymous: f64,
    /// Bytes of address space.
    pub address_space: f64,
    /// Mappings.
    pub mappings: f64,
}

/// Resident bytes per cycle that are still flat, in a program whose only activity are the cycles: half a page.
const FLAT_BYTES: f64 = 2048.0;
/// The same with other threads that allocate: malloc's arenas fill up.
const FLAT_BYTES_BUSY: f64 = 4096.0;
/// Mappings per cycle: one in fifty.
const FLAT_MAPPINGS: f64 = 0.02;

impl Series {
    /// Growth per cycle without the first cycles, in which the program itself still grows; `None` when there are too few.
    #[must_use]
    pub fn slopes(&self) -> Option<Slopes> {
        if self.anonymous.len() < ENOUGH {
            return None;
        }
        let rest = |values: &[f64]| slope(&values[values.len() / 4..]);
        Some(Slopes {
            anonymous: rest(&self.anonymous)?,
            address_space: rest(&self.address_space)?,
            mappings: rest(&self.mappings)?,
        })
    }
}

impl Slopes {
    /// What grows; `busy`: other threads allocate in the program.
    #[must_use]
    pub fn complaints(&self, busy: bool) -> Vec<String> {
        let bytes = if busy { FLAT_BYTES_BUSY } else { FLAT_BYTES };
        let mut complaints = Vec::new();
        let mut check = |what: &str, slope: f64, flat: f64| {
            if slope > flat {
                complaints.push(format!(
                    "{what} grow by {slope:.2} per cycle, flat is up to {flat}"
                ));
            }
        };
        check("resident bytes", self.anonymous, bytes);
        check("bytes of address space", self.address_space, bytes);
        check("mappings", self.mappings, FLAT_MAPPINGS);
        complaints
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn series(value: impl Fn(usize) -> f64) -> Series {
        let values: Vec<f64> = (0..100).map(value).collect();
        Series {
            anonymous: values.clone(),
            address_space: values,
            mappings: vec![60.0; 100],
        }
    }

    #[test]
    fn a_jump_is_flat_and_a_page_per_cycle_is_not() {
        let noise = |at: usize| ((at * 7919) % 13) as f64 * 4096.0;
        let jump = series(|at| 5e6 + noise(at) + if at > 60 { 1e6 } else { 0.0 });
        assert!(jump.slopes().unwrap().complaints(false).is_empty());
        let leak = series(|at| 5e6 + noise(at) + at as f64 * 4096.0);
        assert_eq!(leak.slopes().unwrap().complaints(false).len(), 2);
        let slow = series(|at| 5e6 + noise(at) + at as f64 * 8192.0);
        assert_eq!(slow.slopes().unwrap().complaints(true).len(), 2);
    }

    #[test]
    fn a_mapping_in_ten_cycles_is_not_flat() {
        let mut leak = series(|_| 0.0);
        leak.mappings = (0..100).map(|at| 60.0 + f64::from(at / 10)).collect();
        assert_eq!(leak.slopes().unwrap().complaints(true).len(), 1);
    }

    #[test]
    fn a_short_life_has_no_slope() {
        let mut short = series(|at| at as f64);
        short.anonymous.truncate(ENOUGH - 1);
        assert_eq!(short.slopes(), None);
        assert_eq!(slope(&[1.0]), None);
        assert_eq!(slope(&[0.0, 2.0, 4.0, 6.0, 8.0, 10.0]), Some(2.0));
    }
}
