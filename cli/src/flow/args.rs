//! The options of the verbs, and what they come to.

use std::time::Duration;

use super::plan::Verb;
use crate::driver::GpuPair;
use crate::selection::Selection;
use crate::values;

/// What every verb takes.
#[derive(Debug, clap::Args)]
pub struct Common {
    /// The processes.
    #[command(flatten)]
    pub selection: Selection,
    /// Print one JSON object instead of lines
    #[arg(long)]
    pub json: bool,
    /// Say what was looked at before
    #[arg(long, short)]
    pub verbose: bool,
    /// Skip the looks at rights and at the room in main memory and on the GPUs
    #[arg(long)]
    pub force: bool,
    /// How long the driver may take to answer before it is given up
    #[arg(long, value_name = "SECONDS", default_value = "10", value_parser = values::read(patience))]
    pub patience: Duration,
}

/// What the verbs that change a state take.
#[derive(Debug, clap::Args)]
pub struct Changing {
    /// What every verb takes.
    #[command(flatten)]
    pub common: Common,
    /// When one process fails, go on with the others and leave them where they are
    #[arg(long)]
    pub keep_going: bool,
    /// A process that is already in the state asked for is a success
    #[arg(long)]
    pub already_ok: bool,
}

/// What the verbs that lock take.
#[derive(Debug, clap::Args)]
pub struct Locking {
    /// How long a lock may wait for work under way (fractions allowed); 0 = for ever
    #[arg(long, value_name = "SECONDS", default_value = "10", allow_negative_numbers = true, value_parser = values::read(lock_timeout))]
    pub timeout: LockTimeout,
}

/// What the verbs that restore take.
#[derive(Debug, clap::Args)]
pub struct Restoring {
    /// Restore to other GPUs: every GPU that the process uses, by UUID (nvidia-smi -L)
    #[arg(long, value_name = "OLD=NEW,...", value_parser = values::read(GpuPair::parse), value_delimiter = ',')]
    pub device_map: Vec<GpuPair>,
}

/// Arguments of `cudasnap lock`.
#[derive(Debug, clap::Args)]
pub struct LockArgs {
    #[command(flatten)]
    changing: Changing,
    #[command(flatten)]
    locking: Locking,
}

/// Arguments of `cudasnap checkpoint`.
#[derive(Debug, clap::Args)]
pub struct CheckpointArgs {
    #[command(flatten)]
    changing: Changing,
    #[command(flatten)]
    locking: Locking,
}

/// Arguments of `cudasnap restore`.
#[derive(Debug, clap::Args)]
pub struct RestoreArgs {
    #[command(flatten)]
    changing: Changing,
    #[command(flatten)]
    restoring: Restoring,
}

/// Arguments of `cudasnap unlock`.
#[derive(Debug, clap::Args)]
pub struct UnlockArgs {
    #[command(flatten)]
    changing: Changing,
}

/// Arguments of `cudasnap toggle`.
#[derive(Debug, clap::Args)]
pub struct ToggleArgs {
    #[command(flatten)]
    changing: Changing,
    #[command(flatten)]
    locking: Locking,
    #[command(flatten)]
    restoring: Restoring,
}

/// Arguments of `cudasnap state`.
#[derive(Debug, clap::Args)]
pub struct StateArgs {
    /// What every verb takes.
    #[command(flatten)]
    pub common: Common,
}

/// How long a lock may take; `None`: for ever.
/// (An alias, since clap takes a field of type `Option` as an option that may be left out.)
pub type LockTimeout = Option<Duration>;

/// A call of a verb that changes states.
#[derive(Debug)]
pub struct Request<'a> {
    /// The verb.
    pub verb: Verb,
    /// What every verb takes.
    pub common: &'a Common,
    /// One process's failure does not bring the others back.
    pub keep_going: bool,
    /// A process that is there already is a success.
    pub already_ok: bool,
    /// How long a lock may take; `None`: for ever.
    pub lock_timeout: Option<Duration>,
    /// Which GPU takes the place of which in a restore.
    pub device_map: &'a [GpuPair],
}

impl<'a> Request<'a> {
    fn new(verb: Verb, changing: &'a Changing) -> Self {
        Request {
            verb,
            common: &changing.common,
            keep_going: changing.keep_going,
            already_ok: changing.already_ok,
            lock_timeout: Some(Duration::ZERO),
            device_map: &[],
        }
    }
}

impl<'a> From<&'a LockArgs> for Request<'a> {
    fn from(args: &'a LockArgs) -> Self {
        Request {
            lock_timeout: args.locking.timeout,
            ..Request::new(Verb::Lock, &args.changing)
        }
    }
}

impl<'a> From<&'a CheckpointArgs> for Request<'a> {
    fn from(args: &'a CheckpointArgs) -> Self {
        Request {
            lock_timeout: args.locking.timeout,
            ..Request::new(Verb::Checkpoint, &args.changing)
        }
    }
}

impl<'a> From<&'a RestoreArgs> for Request<'a> {
    fn from(args: &'a RestoreArgs) -> Self {
        Request {
            device_map: &args.restoring.device_map,
            ..Request::new(Verb::Restore, &args.changing)
        }
    }
}

impl<'a> From<&'a UnlockArgs> for Request<'a> {
    fn from(args: &'a UnlockArgs) -> Self {
        Request::new(Verb::Unlock, &args.changing)
    }
}

impl<'a> From<&'a ToggleArgs> for Request<'a> {
    fn from(args: &'a ToggleArgs) -> Self {
        Request {
            lock_timeout: args.locking.timeout,
            device_map: &args.restoring.device_map,
            ..Request::new(Verb::Toggle, &args.changing)
        }
    }
}

/// Longest time that the driver's milliseconds hold.
const LONGEST: f64 = (u32::MAX / 1000) as f64;

/// 0 means "for ever", and nothing else does.
pub(crate) fn lock_timeout(text: &str) -> Result<LockTimeout, String> {
    let what = format!("seconds, with fractions, up to {LONGEST}; 0 = for ever");
    let time = values::seconds(text, |number| (0.0..=LONGEST).contains(&number), &what)?;
    let is_zero = text.parse::<f64>().is_ok_and(|number| number == 0.0);
    Ok((!is_zero).then_some(time))
}

fn patience(text: &str) -> Result<Duration, String> {
    let what = format!("seconds, with fractions, more than 0 and up to {LONGEST}");
    let time = values::seconds(text, |number| (0.0..=LONGEST).contains(&number), &what)?;
    match time.is_zero() {
        true => Err(values::takes(what)),
        false => Ok(time),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_seconds_with_fractions() {
        assert_eq!(lock_timeout("0"), Ok(None));
        assert_eq!(lock_timeout("0.0"), Ok(None));
        assert_eq!(lock_timeout("1.5"), Ok(Some(Duration::from_millis(1500))));
        // Too small for a Duration is still not "for ever".
        assert_eq!(lock_timeout("1e-12"), Ok(Some(Duration::ZERO)));
        for bad in ["", "x", "-1", "NaN", "inf", "1e9", "10ms"] {
            assert!(lock_timeout(bad).is_err(), "{bad}");
        }
        assert!(patience("0").is_err() && patience("0.5").is_ok());
    }
}
