//! `cudasnap workload`: a process that holds device memory with known contents, for measuring and for trying out, through the driver's
//! API alone: neither a compiler for GPUs nor CUDA's runtime.
//!
//! | file | job |
//! |---|---|
//! | [`size`] | how much, from the command line |
//! | [`pattern`] | pure: the known contents |
//! | [`holding`] | the memory: filled, compared, filled anew |
//! | [`threads`] | the same work on many chunks by several threads, which are gone afterwards |
//! | [`answers`] | what is asked on stdin |

pub mod answers;
pub mod holding;
pub mod pattern;
pub mod size;
pub mod threads;

use std::io;

use crate::driver::{Driver, DriverError};
use crate::exit::Exit;
use crate::output;
use crate::values;

use holding::{Holding, Trouble};
use size::Size;

/// Name of the process (`comm`): by it `status` knows it from the tool's other processes, which have nothing to save.
pub const NAME: &str = "workload";
/// What the line begins with that says that all of it is there; its id follows.
pub const READY: &str = "ready ";
/// The whole line, as an expression.
pub const READY_LINE: &str = r"/^ready \d+$/";

/// Arguments.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "It prints `ready PID` and then answers lines on stdin: `sum` with `bad N` (words of 8 bytes that are wrong), `rewrite` \
                  with `ok`, `quit` or the end of input by ending.\n\
                  cudasnap run -- cudasnap workload --gib 8 puts it under the library."
)]
pub struct Args {
    /// GiB of device memory to hold
    #[arg(long, value_name = "N", required_unless_present = "mib", allow_negative_numbers = true, value_parser = values::whole::<u64>(0, u64::MAX))]
    gib: Option<u64>,
    /// MiB to hold, in addition
    #[arg(long, value_name = "N", allow_negative_numbers = true, value_parser = values::whole::<u64>(0, u64::MAX))]
    mib: Option<u64>,
    /// MiB of zeros beside that, which nothing rewrites, as a cache that nobody has used yet
    #[arg(long, value_name = "MIB", default_value = "0", value_parser = values::whole::<u64>(0, u64::MAX))]
    zeros: u64,
    /// Number of the GPU, as CUDA counts
    #[arg(long, value_name = "K", default_value = "0", value_parser = values::whole::<u32>(0, 4095))]
    gpu: u32,
    /// Which contents: another number, other contents
    #[arg(long, value_name = "S", default_value = "1", value_parser = values::whole::<u64>(0, u64::MAX))]
    seed: u64,
}

/// Holds it until told to end.
pub fn run(args: &Args) -> Exit {
    let size = Size::new(args.gib.unwrap_or(0), args.mib.unwrap_or(0), args.zeros);
    let size = match size {
        Ok(size) => size,
        Err(text) => {
            output::complain(text);
            return Exit::Usage;
        }
    };
    rename();
    let driver = match Driver::load() {
        Ok(driver) => driver,
        Err(error) => return refuse(error.no_gpu().unwrap_or_else(|| error.to_string())),
    };
    if let Err(text) = known(&driver, args.gpu) {
        return refuse(text);
    }
    match hold(&driver, args, &size) {
        Ok(exit) => exit,
        Err(Trouble::Full(text)) => refuse(text),
        Err(Trouble::Driver(error)) => {
            output::complain(error);
            Exit::Failed
        }
    }
}

fn hold(driver: &Driver, args: &Args, size: &Size) -> Result<Exit, Trouble> {
    let device = driver
        .open(args.gpu)
        .map_err(|error| opened(args.gpu, error))?;
    let mut holding = Holding::new(&device, size, args.seed)?;
    holding.fill()?;
    let ready = format!("{READY}{}", std::process::id());
    match output::say(&ready, Exit::Done) {
        Exit::Done => answers::serve(&mut holding, io::stdin().lock()),
        exit => Ok(exit),
    }
}

fn opened(gpu: u32, error: DriverError) -> Trouble {
    if error.is_out_of_memory() {
        return Trouble::Full(format!(
            "GPU {gpu} is full: there is no room for a context ({error})"
        ));
    }
    Trouble::Driver(error)
}

fn known(driver: &Driver, gpu: u32) -> Result<(), String> {
    let count = driver.device_count().map_err(|error| error.to_string())?;
    match count {
        _ if gpu < count => Ok(()),
        0 => Err("there is no GPU here".into()),
        1 => Err(format!(
            "there is no GPU {gpu}: this process sees one, number 0"
        )),
        _ => Err(format!(
            "there is no GPU {gpu}: this process sees {count}, numbers 0 to {}",
            count - 1
        )),
    }
}

fn refuse(text: String) -> Exit {
    output::complain(text);
    Exit::Refused
}

/// Names that begin with `cuda` belong to the driver's threads.
fn rename() {
    let mut name = [0u8; 16];
    name[..NAME.len()].copy_from_slice(NAME.as_bytes());
    // SAFETY: a terminated name of at most 16 bytes, valid for the call.
    unsafe { libc::prctl(libc::PR_SET_NAME, name.as_ptr()) };
}
