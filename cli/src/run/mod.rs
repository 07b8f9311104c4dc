//! `cudasnap run`: a program under the library, by `exec`, so that pid, arguments, folder and signals stay the program's own.
//!
//! * [`options`]: arguments become the variables that the library reads; [`contradiction`]: which do not go together; [`library`]
//!   chooses the library's file.
//! * [`find`], [`program`], [`script`], [`image`]: which file will be loaded, and what it says about itself.
//! * [`obstacle`], [`privilege`], [`trial`]: why the library could not be active in it.
//! * [`preload`]: the list of preloads. [`plan`] puts all of it together, [`show`] prints it.
//! * [`inherited`], [`execute`]: what Rust's runtime changed is put back, then the program takes the place of this process.

pub mod contradiction;
pub mod execute;
pub mod find;
pub mod image;
pub mod inherited;
pub mod library;
pub mod obstacle;
pub mod options;
pub mod plan;
pub mod preload;
pub mod privilege;
pub mod program;
pub mod script;
pub mod show;
pub mod trial;

use std::ffi::OsString;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use clap::ValueHint;

use self::find::NotRunnable;
use self::plan::Plan;
use crate::exit::Exit;
use crate::foreign_text::printable;
use crate::output;

/// Arguments.
#[derive(Debug, clap::Args)]
#[command(
    override_usage = "cudasnap run [OPTIONS] [--] CMD [ARGS...]",
    after_help = "The program takes the place of this process. Where the library cannot be active in it, one line on stderr \
                  says why, and it runs without.\nExit status: that of CMD; 127 CMD not found, 126 not executable, 2 an option \
                  is wrong, 4 not started because of --require."
)]
pub struct Args {
    /// The program and its arguments: everything from the first word on that is no option of ours
    #[arg(required = true, trailing_var_arg = true, value_name = "CMD", value_hint = ValueHint::CommandWithArguments)]
    command: Vec<OsString>,
    /// Library to preload; without it CUDASNAP_LIB, else the one beside this program or in the usual folders
    #[arg(long, value_name = "PATH", value_hint = ValueHint::FilePath)]
    lib: Option<PathBuf>,
    /// Do not start the program when the library cannot be active in it
    #[arg(long)]
    require: bool,
    /// Print what would be executed
    #[arg(long)]
    dry_run: bool,
    /// With --dry-run: one JSON object
    #[arg(long, requires = "dry_run")]
    json: bool,
    #[command(flatten)]
    options: options::OptionArgs,
}

/// Runs it. Returns only when the program was not started.
pub fn run(args: &Args) -> Exit {
    let plan = match Plan::new(args) {
        Ok(plan) => plan,
        Err(refusal) => {
            refusal.lines.iter().for_each(|line| tell(line));
            return refusal.exit;
        }
    };
    let refused = args.require && plan.obstacle.is_some();
    if args.dry_run {
        let shown = if args.json {
            show::json(&plan)
        } else {
            show::text(&plan)
        };
        return match print(&shown) {
            Exit::Done if refused => Exit::Refused,
            exit => exit,
        };
    }
    plan.warnings.iter().for_each(|line| tell(line));
    if let Some(line) = plan.about_obstacle(refused) {
        tell(&line);
    }
    if refused {
        return Exit::Refused;
    }
    start(&plan)
}

fn start(plan: &Plan) -> Exit {
    for (name, value) in &plan.settings {
        // An environment can hold a name twice: setting replaces the first, and the loader takes the last.
        std::env::remove_var(name);
        std::env::set_var(name, value);
    }
    if plan.unset_preload {
        std::env::remove_var(preload::VARIABLE);
    }
    let file = plan
        .program
        .files
        .first()
        .map_or(Path::new(""), PathBuf::as_path);
    let error = execute::execute(file, &plan.arguments);
    let mut not = NotRunnable::new(file, &error);
    if let (Exit::NotFound, Some(why)) = (not.exit, plan.why_not()) {
        not.text = why;
    }
    tell(&not.text);
    not.exit
}

/// A line for people. That nobody hears it is no reason not to start the program.
fn tell(line: &str) {
    // Names in it may be those of a script or a program.
    output::complain(printable(line));
}

fn print(text: &str) -> Exit {
    output::settle(io::stdout().write_all(text.as_bytes()), Exit::Done)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::grammar::{Cli, Command};
    use clap::Parser;

    fn parsed(line: &str) -> Result<Args, String> {
        match Cli::try_parse_from(line.split_whitespace()) {
            Ok(Cli {
                command: Command::Run(args),
            }) => Ok(args),
            Ok(_) => Err("another command".into()),
            Err(error) => Err(error.to_string()),
        }
    }

    #[test]
    fn everything_from_the_program_on_is_its_own() {
        for (line, command) in [
            ("cudasnap run x", vec!["x"]),
            (
                "cudasnap run --require python3 x.py --threads 99 --json -h",
                vec!["python3", "x.py", "--threads", "99", "--json", "-h"],
            ),
            (
                "cudasnap run --threads 4 -- x --threads 99 --help",
                vec!["x", "--threads", "99", "--help"],
            ),
            ("cudasnap run -- x -- y", vec!["x", "--", "y"]),
            ("cudasnap run x -- y", vec!["x", "--", "y"]),
            ("cudasnap run -- --odd", vec!["--odd"]),
            (
                "cudasnap run -- cudasnap run -- x",
                vec!["cudasnap", "run", "--", "x"],
            ),
        ] {
            assert_eq!(
                parsed(line).map(|args| args.command).unwrap(),
                command,
                "{line}"
            );
        }
    }

    #[test]
    fn wrong_lines_are_refused() {
        for line in [
            "cudasnap run",
            "cudasnap run --",
            "cudasnap run --bogus x",
            "cudasnap run --json x",
            "cudasnap run --threads 33 x",
        ] {
            assert!(parsed(line).is_err(), "{line}");
        }
    }
}
