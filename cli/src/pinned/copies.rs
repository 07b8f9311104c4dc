//! The copies, in the child process: from pinned memory to the device and back, each timed, the bytes checked.

use std::time::{Duration, Instant};

use crate::ab::data::Limit;
use crate::driver::memory::{Block, Device, Pinned};
use crate::driver::{Driver, DriverError};
use crate::units;

use super::Choice;

/// Copies of fewer bytes tell more about their start than about the link.
pub const LEAST: u64 = 16 << 20;
/// So much of what is free is left alone.
const SPARE: u64 = 64 << 20;

/// Measures.
///
/// # Errors
/// No GPU, no memory for it, or a word that came back wrong.
pub fn measure(choice: &Choice, bytes: u64, repeats: u32) -> Result<Limit, String> {
    let driver =
        Driver::load().map_err(|error| error.no_gpu().unwrap_or_else(|| error.to_string()))?;
    let told = |error: DriverError| error.to_string();
    let count = driver.device_count().map_err(told)?;
    let uuids: Vec<_> = (0..count).map(|number| driver.uuid(number)).collect();
    let device = driver.open(choice.among(&uuids)?).map_err(told)?;
    let (block, mut host) = memory(&device, bytes)?;
    let rates = copies(&device, &block, &mut host, repeats);
    rates.map_err(told)?.ok_or_else(|| {
        "bytes came back wrong from the GPU: its rates are not worth anything".into()
    })
}

fn whole_mib(bytes: u64) -> u64 {
    (bytes >> 20) << 20
}

/// As many bytes as are asked for, or as there are.
fn memory<'a>(device: &'a Device<'a>, bytes: u64) -> Result<(Block, Pinned<'a>), String> {
    let room = device.room().map_err(|error| error.to_string())?;
    let mut bytes = whole_mib(bytes.min(room.free.saturating_sub(SPARE)));
    while bytes >= LEAST {
        let host = device.pinned((bytes / 8) as usize);
        let both = host.and_then(|host| Ok((device.allocate(bytes)?, host)));
        match both {
            Ok(both) => return Ok(both),
            Err(error) if error.is_out_of_memory() => bytes = whole_mib(bytes / 2),
            Err(error) => return Err(error.to_string()),
        }
    }
    Err(format!(
        "no room for pinned copies: {} of the GPU's {} are free, and {} pinned bytes are needed too",
        units::bytes(room.free),
        units::bytes(room.total),
        LEAST
    ))
}

/// `None`: the bytes came back wrong.
fn copies(
    device: &Device<'_>,
    block: &Block,
    host: &mut Pinned<'_>,
    repeats: u32,
) -> Result<Option<Limit>, DriverError> {
    let mark = |number: usize| (number as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    for (number, word) in host.iter_mut().enumerate() {
        *word = mark(number);
    }
    let to_device = times(repeats, || {
        device.write(block, 0, host)?;
        device.finish()
    })?;
    host.fill(0);
    let to_host = times(repeats, || {
        device.read(block, 0, host)?;
        device.finish()
    })?;
    let right = |(number, word): (usize, &u64)| *word == mark(number);
    if !host.iter().enumerate().all(right) {
        return Ok(None);
    }
    let rate = |times| block.bytes() as f64 / median(times).as_secs_f64().max(1e-9) / 1e9;
    Ok(Some(Limit {
        to_host: rate(to_host),
        to_device: rate(to_device),
        bytes: block.bytes(),
        repeats,
    }))
}

/// The first copy, which wakes the link up, is not counted.
fn times(
    repeats: u32,
    mut copy: impl FnMut() -> Result<(), DriverError>,
) -> Result<Vec<Duration>, DriverError> {
    copy()?;
    let timed = (0..repeats).map(|_| {
        let start = Instant::now();
        copy()?;
        Ok(start.elapsed())
    });
    timed.collect()
}

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort_unstable();
    let middle = times.len() / 2;
    let upper = times.get(middle).copied().unwrap_or_default();
    if times.len() % 2 == 1 || middle == 0 {
        return upper;
    }
    (times[middle - 1] + upper) / 2
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_middle_is_the_median() {
        let of =
            |times: &[u64]| median(times.iter().map(|ms| Duration::from_millis(*ms)).collect());
        assert_eq!(of(&[9, 1, 5]), Duration::from_millis(5));
        assert_eq!(of(&[9, 1, 5, 7]), Duration::from_millis(6));
        assert_eq!(of(&[4]), Duration::from_millis(4));
        assert_eq!(of(&[]), Duration::ZERO);
    }

    #[test]
    fn the_first_copy_is_not_counted() {
        let mut made = 0;
        let timed = times(3, || {
            made += 1;
            Ok(())
        });
        assert_eq!((timed.unwrap().len(), made), (3, 4));
    }
}
