//! Reads contents in windows: one thread fills the next with all CPUs while another uses the last.

use crossbeam_channel::{bounded, Receiver, Sender};
use rayon::prelude::*;

use super::opened::Contents;
use super::scan::SLICE;
use super::stop::Stop;

/// Bytes of a window. Two of them are all the memory that reading takes.
const WINDOW: usize = 32 << 20;
/// Windows.
const COUNT: usize = 2;

/// A window and its offset.
type Filled = Result<(u64, Vec<u8>), Stop>;

/// Reads everything in order and hands each window, with its offset, to `used`.
///
/// # Errors
/// The contents cannot be read, or `used` said stop.
pub fn each(
    contents: &impl Contents,
    used: impl FnMut(u64, &[u8]) -> Result<(), Stop>,
) -> Result<(), Stop> {
    each_of(contents, WINDOW, used)
}

/// The same, with windows of `window` bytes.
fn each_of(
    contents: &impl Contents,
    window: usize,
    mut used: impl FnMut(u64, &[u8]) -> Result<(), Stop>,
) -> Result<(), Stop> {
    let (give_full, take_full) = bounded::<Filled>(COUNT);
    let (give_empty, take_empty) = bounded::<Vec<u8>>(COUNT);
    for _ in 0..COUNT {
        // The channel has room for all of them.
        let _ = give_empty.send(Vec::new());
    }
    std::thread::scope(|scope| {
        scope.spawn(move || read_windows(contents, window, &take_empty, &give_full));
        // Both ends of this side go away with this closure, before the scope waits for the reader.
        let (take_full, give_empty) = (take_full, give_empty);
        for filled in &take_full {
            let (offset, bytes) = filled?;
            used(offset, &bytes)?;
            // The reader may have read everything already.
            let _ = give_empty.send(bytes);
        }
        Ok(())
    })
}

/// Reads everything, a window into each empty vector that comes. Ends when the other side hangs up.
fn read_windows(
    contents: &impl Contents,
    window: usize,
    take_empty: &Receiver<Vec<u8>>,
    give_full: &Sender<Filled>,
) {
    let length = contents.length();
    let mut offset = 0;
    while offset < length {
        let Ok(mut bytes) = take_empty.recv() else {
            return;
        };
        bytes.resize((length - offset).min(window as u64) as usize, 0);
        let step = bytes.len() as u64;
        let filled = fill(contents, offset, &mut bytes).map(|()| (offset, bytes));
        let ends = filled.is_err();
        if give_full.send(filled).is_err() || ends {
            return;
        }
        offset += step;
    }
}

/// Fills `into` from `offset` on, with all CPUs.
///
/// # Errors
/// The contents cannot be read.
pub fn fill(contents: &impl Contents, offset: u64, into: &mut [u8]) -> Result<(), Stop> {
    into.par_chunks_mut(SLICE)
        .enumerate()
        .try_for_each(|(number, slice)| contents.read_at(offset + (number * SLICE) as u64, slice))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn windows_come_in_order_and_cover_everything() {
        for length in [0usize, 1, 99, 100, 101, 1000] {
            let contents: Vec<u8> = (0..length).map(|number| number as u8).collect();
            let mut seen = Vec::new();
            each_of(&contents, 100, |offset, bytes| {
                assert_eq!(offset, seen.len() as u64);
                seen.extend_from_slice(bytes);
                Ok(())
            })
            .unwrap();
            assert_eq!(seen, contents);
        }
    }

    #[test]
    fn it_stops_on_either_side() {
        let contents = vec![1u8; 1000];
        let stop = each_of(&contents, 10, |offset, _| match offset {
            50 => Err(Stop::failed("enough")),
            _ => Ok(()),
        });
        assert_eq!(stop.unwrap_err().text.as_deref(), Some("enough"));
        struct Broken;
        impl Contents for Broken {
            fn length(&self) -> u64 {
                100
            }
            fn read_at(&self, _: u64, _: &mut [u8]) -> Result<(), Stop> {
                Err(Stop::failed("gone"))
            }
        }
        let stop = each_of(&Broken, 10, |_, _| Ok(()));
        assert_eq!(stop.unwrap_err().text.as_deref(), Some("gone"));
    }
}
