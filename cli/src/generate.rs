//! `cudasnap completions` and `cudasnap man`: generated from the grammar, so that they cannot lag behind it.

use std::io;
use std::path::PathBuf;

use clap::CommandFactory;
use clap_complete::Shell;

use crate::exit::Exit;
use crate::grammar::Cli;

/// Arguments of `cudasnap completions`.
#[derive(Debug, clap::Args)]
pub struct CompletionArgs {
    /// The shell
    shell: Shell,
}

/// Arguments of `cudasnap man`.
#[derive(Debug, clap::Args)]
pub struct ManArgs {
    /// Folder for cudasnap.1 and one page per command; without it the main page is printed
    #[arg(value_name = "DIR")]
    folder: Option<PathBuf>,
}

/// Prints the completions of a shell.
pub fn completions(args: &CompletionArgs) -> Exit {
    let mut command = Cli::command();
    // Into memory first: the generator panics when its output is closed early.
    let mut text = Vec::new();
    clap_complete::generate(args.shell, &mut command, "cudasnap", &mut text);
    told(io::Write::write_all(&mut io::stdout(), &text))
}

/// Writes the man pages.
pub fn man(args: &ManArgs) -> Exit {
    told(match &args.folder {
        Some(folder) => clap_mangen::generate_to(Cli::command(), folder),
        None => clap_mangen::Man::new(Cli::command()).render(&mut io::stdout()),
    })
}

fn told(done: io::Result<()>) -> Exit {
    match done {
        Ok(()) => Exit::Done,
        // The reader has seen enough.
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Exit::Done,
        Err(error) => {
            eprintln!("cudasnap: {error}");
            Exit::Failed
        }
    }
}
