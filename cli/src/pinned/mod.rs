//! Rates of pinned copies: what a GPU's link gives at best, the limit that checkpoint and restore are compared with.
//!
//! The copies are made in a child process, a hidden command of this program, so that no context of ours stays on the GPU while others
//! are measured.
//!
//! | file | job |
//! |---|---|
//! | [`choice`] | which GPU |
//! | [`copies`] | the copies, in the child |
//! | [`child`] | the child, from outside: started, limited in time, understood |

pub mod child;
pub mod choice;
pub mod copies;

use crate::ab::data::Limit;
use crate::exit::Exit;
use crate::output;
use crate::values;

pub use choice::Choice;

/// Most bytes of one copy.
const MOST_BYTES: u64 = 64 << 30;

/// Arguments of the hidden command.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Number of the GPU, as CUDA counts
    #[arg(long, value_name = "K", default_value = "0", value_parser = values::whole::<u32>(0, 4095))]
    gpu: u32,
    /// UUID of the GPU, which goes before its number
    #[arg(long, value_name = "GPU-UUID", value_parser = values::text())]
    uuid: Option<String>,
    /// Bytes of each copy
    #[arg(long, value_name = "N", default_value = "1073741824", value_parser = values::whole::<u64>(copies::LEAST, MOST_BYTES))]
    bytes: u64,
    /// Copies each way
    #[arg(long, value_name = "N", default_value = "10", value_parser = values::whole::<u32>(1, 1000))]
    repeats: u32,
}

/// The hidden command: measures, and prints a [`Limit`] as JSON.
pub fn run(args: &Args) -> Exit {
    let choice = Choice {
        number: args.gpu,
        uuid: args.uuid.clone(),
        keep_visible: false,
    };
    match copies::measure(&choice, args.bytes, args.repeats) {
        Ok(limit) => output::say_json(&limit, Exit::Done),
        Err(text) => {
            output::complain_plainly(text);
            Exit::Failed
        }
    }
}

/// Measures the GPU that a process uses, the first of several, or the first of the machine where NVML does not tell: `repeats` copies of
/// `bytes` each way, of fewer bytes where the GPU has not so many free.
///
/// # Errors
/// Why there are no rates.
pub fn measure(pid: i32, bytes: u64, repeats: u32) -> Result<Limit, String> {
    child::measure(
        &child::own_program(),
        &Choice::of_process(pid),
        bytes,
        repeats,
    )
}
