//! `cudasnap doctor`: looks for what would keep checkpoints from working or from being fast, and says what mends it.
//!
//! A check is a pure function from a text or a number to a [`finding::Finding`], and a few lines that fetch the text. A file per
//! group: [`huge_pages`], [`memory`], [`processors`], [`rights`], [`driver`], [`libcuda`], [`library`] with [`environment`], [`tools`];
//! [`mod@for_restore`] is `--for-restore`. [`report`] shows them. Nothing is changed, and CUDA is initialised only for `--cuda`.

pub mod driver;
pub mod elf_file;
pub mod environment;
pub mod finding;
pub mod for_restore;
pub mod huge_pages;
pub mod libcuda;
pub mod library;
pub mod loader;
pub mod memory;
pub mod processors;
pub mod report;
pub mod rights;
pub mod tools;

use std::path::{Path, PathBuf};

use crate::driver::kernel_driver_version;
use crate::exit::Exit;
use crate::gpus::Gpus;
use crate::output;
use finding::{Counts, Group, Verdict};

/// Arguments.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Each line begins with ok, warning (works, but not as well as it could), failed (checkpoints cannot work) or \
                        unknown (cannot be said, or does not matter here). The line after -> says what to do.\n\n\
                        Exit status: 0 nothing failed, 1 something failed (with --strict: or is a warning); with --for-restore 4 \
                        when a file is missing or different, 1 when the images cannot be read."
)]
pub struct Args {
    /// Also initialise CUDA, which takes 0.3 s and more, to prove that it works
    #[arg(long, conflicts_with = "for_restore")]
    cuda: bool,
    /// Warnings make the exit status 1 too
    #[arg(long)]
    strict: bool,
    /// Before criu restore: whether the library and the driver's are the same here as in these images
    #[arg(long, value_name = "IMAGES")]
    for_restore: Option<PathBuf>,
    /// Folder that will be the root of the restored processes (criu restore --root)
    #[arg(long, value_name = "DIR", requires = "for_restore")]
    root: Option<PathBuf>,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

/// Runs it.
pub fn run(args: &Args) -> Exit {
    match &args.for_restore {
        Some(images) => for_restore(args, images),
        None => {
            let groups = look(args.cuda);
            let counts = Counts::of(&groups);
            show(args, &groups, ended(args, &counts, Exit::Failed))
        }
    }
}

fn look(initialise: bool) -> Vec<Group> {
    let kernel = kernel_driver_version();
    let kernel = kernel.as_deref();
    let found = libcuda::Libcuda::find();
    let simulated = matches!(&found, Ok(Some(libcuda)) if libcuda.kind == libcuda::Kind::Simulated);
    let gpus = Gpus::look();
    vec![
        driver::look(kernel, &gpus, simulated),
        libcuda::look(&found, kernel, initialise),
        library::look(),
        memory::look(gpus.as_ref().ok()),
        huge_pages::look(),
        processors::look(),
        rights::look(),
        tools::look(),
    ]
}

fn for_restore(args: &Args, images: &Path) -> Exit {
    match for_restore::look(images, args.root.as_deref()) {
        Ok(group) => {
            let groups = [group];
            let counts = Counts::of(&groups);
            show(args, &groups, ended(args, &counts, Exit::Refused))
        }
        Err(error) => {
            output::complain(error);
            Exit::Failed
        }
    }
}

fn ended(args: &Args, counts: &Counts, failed: Exit) -> Exit {
    match counts.worst() {
        Verdict::Failed => failed,
        Verdict::Warning if args.strict => Exit::Failed,
        _ => Exit::Done,
    }
}

fn show(args: &Args, groups: &[Group], ended: Exit) -> Exit {
    if args.json {
        return output::say_json(&report::Json::new(groups), ended);
    }
    let what = match args.for_restore {
        Some(_) => "the restore",
        None => "checkpoints",
    };
    let summary = report::summary(&Counts::of(groups), what);
    output::say(&report::text(groups, &summary), ended)
}

/// A file of the kernel as text; `None` when it cannot be read.
fn read(path: &str) -> Option<String> {
    std::fs::read_to_string(path).ok()
}
