//! `cudasnap completions` and `cudasnap man`: generated from the grammar, so that they cannot lag behind it.

use std::fmt::Write as _;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use clap::{Command, CommandFactory};
use clap_complete::Shell;
use clap_mangen::roff::{bold, roman, Roff};
use cudasnap_wire::OPTIONS;

use crate::exit::Exit;
use crate::grammar::Cli;
use crate::{links, output, shim_library};

/// Exit statuses, as the help text and the main man page list them.
const STATUSES: [(&str, &str); 7] = [
    ("0", "everything asked for was done"),
    ("1", "the driver or the target process did not do it"),
    ("2", "the command line was not understood"),
    ("3", "some of several processes failed"),
    (
        "4",
        "refused before anything was touched: no room, no right, or it could not work",
    ),
    (
        "126, 127",
        "run: the program cannot be executed; there is no such program",
    ),
    (
        "128+N",
        "interrupted by signal N, after the step under way was finished or undone",
    ),
];

/// Arguments of `cudasnap completions`.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "bash:  cudasnap completions bash > /etc/bash_completion.d/cudasnap\n\
                        zsh:   cudasnap completions zsh > /usr/local/share/zsh/site-functions/_cudasnap\n\
                        fish:  cudasnap completions fish > ~/.config/fish/completions/cudasnap.fish"
)]
pub struct CompletionArgs {
    /// The shell
    shell: Shell,
}

/// Arguments of `cudasnap man`.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "cudasnap man /usr/local/share/man/man1 installs them; cudasnap man | man -l - shows the main page."
)]
pub struct ManArgs {
    /// Folder for cudasnap.1 and one page per command; without it the main page is printed
    #[arg(value_name = "DIR")]
    folder: Option<PathBuf>,
}

/// What `cudasnap --help` says below the commands.
pub fn after_help() -> String {
    let mut text = String::from("Exit statuses:\n");
    for (status, meaning) in STATUSES {
        let _ = writeln!(text, "  {status:<9} {meaning}");
    }
    text.push_str(
        "\nEnvironment of programs that run with the library (cudasnap run sets them):\n",
    );
    for (name, meaning) in variables() {
        let _ = writeln!(text, "  {name}\n          {meaning}");
    }
    text.trim_end().to_owned()
}

/// Environment variables and what they mean.
fn variables() -> Vec<(String, String)> {
    let options = OPTIONS.iter().map(|option| {
        let default = match option.default {
            "" => "none",
            default => default,
        };
        let meaning = format!("{} ({}; default {default})", option.meaning, option.values);
        (option.name.to_owned(), meaning)
    });
    let own = (
        shim_library::VARIABLE.to_owned(),
        format!(
            "the library's file, for cudasnap itself, where {} is not beside it",
            shim_library::FILE
        ),
    );
    options.chain([own]).collect()
}

/// Prints the completions of a shell.
pub fn completions(args: &CompletionArgs) -> Exit {
    let mut command = Cli::command();
    // Into memory first: the generator panics when its output is closed early.
    let mut text = Vec::new();
    clap_complete::generate(args.shell, &mut command, "cudasnap", &mut text);
    told(io::stdout().write_all(&text))
}

/// Writes the man pages.
pub fn man(args: &ManArgs) -> Exit {
    match &args.folder {
        None => told(main_page().and_then(|page| io::stdout().write_all(&page))),
        Some(folder) => match write_pages(folder) {
            Ok(()) => Exit::Done,
            Err(error) => {
                output::complain(format_args!(
                    "{}: {error}; is it a folder that may be written?",
                    folder.display()
                ));
                Exit::Failed
            }
        },
    }
}

fn write_pages(folder: &Path) -> io::Result<()> {
    for command in built()
        .get_subcommands()
        .filter(|command| !command.is_hide_set())
    {
        write_page(folder, command)?;
    }
    std::fs::write(folder.join("cudasnap.1"), main_page()?)
}

/// The grammar with every name and text filled in. `help` needs no page of its own.
fn built() -> Command {
    let mut command = Cli::command().disable_help_subcommand(true);
    command.build();
    command
}

/// The page of a command, and those of its own commands.
fn write_page(folder: &Path, command: &Command) -> io::Result<()> {
    let page = clap_mangen::Man::new(command.clone());
    let mut text = Vec::new();
    page.render(&mut text)?;
    std::fs::write(folder.join(page.get_filename()), text)?;
    let below = command
        .get_subcommands()
        .filter(|command| !command.is_hide_set());
    below
        .into_iter()
        .try_for_each(|command| write_page(folder, command))
}

/// The main page: the generated sections, then what belongs to all commands.
fn main_page() -> io::Result<Vec<u8>> {
    // Its own sections say it better than the plain text of the help.
    let command = built().after_long_help(None).after_help(None);
    let page = clap_mangen::Man::new(command);
    let mut text = Vec::new();
    page.render_title(&mut text)?;
    page.render_name_section(&mut text)?;
    page.render_synopsis_section(&mut text)?;
    page.render_description_section(&mut text)?;
    page.render_options_section(&mut text)?;
    page.render_subcommands_section(&mut text)?;
    own_sections().to_writer(&mut text)?;
    page.render_version_section(&mut text)?;
    Ok(text)
}

fn own_sections() -> Roff {
    let mut roff = Roff::new();
    roff.control("SH", ["EXIT STATUS"]);
    for (status, meaning) in STATUSES {
        roff.control("TP", []);
        roff.text([bold(status)]);
        roff.text([roman(meaning)]);
    }
    roff.control("SH", ["ENVIRONMENT"]);
    for (name, meaning) in variables() {
        roff.control("TP", []);
        roff.text([bold(name)]);
        roff.text([roman(meaning)]);
    }
    roff.control("SH", ["SEE ALSO"]);
    let see = format!("{}(1), criu(8), ld.so(8)", links::NAME);
    roff.text([roman(see)]);
    roff
}

fn told(done: io::Result<()>) -> Exit {
    match done {
        Ok(()) => Exit::Done,
        // The reader has seen enough.
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Exit::Done,
        Err(error) => {
            output::complain(error);
            Exit::Failed
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Calls `look` with every command of the grammar, and its full name.
    fn each(command: &Command, name: &str, look: &mut impl FnMut(&Command, &str)) {
        look(command, name);
        for below in command.get_subcommands() {
            each(below, &format!("{name} {}", below.get_name()), look);
        }
    }

    #[test]
    fn every_command_and_argument_has_its_text() {
        let mut looked = 0;
        each(&built(), "cudasnap", &mut |command, name| {
            assert!(command.get_about().is_some(), "{name} has no text");
            for argument in command.get_arguments() {
                let id = argument.get_id();
                let help = argument
                    .get_help()
                    .map(ToString::to_string)
                    .unwrap_or_default();
                assert!(!help.trim().is_empty(), "{name}: {id} has no help");
                assert!(!argument.is_hide_set(), "{name}: {id} is hidden");
                looked += 1;
            }
        });
        assert!(looked > 20, "{looked}");
    }

    #[test]
    fn statuses_and_variables_are_in_help_and_page() {
        let help = Cli::command().render_long_help().to_string();
        let page = String::from_utf8(main_page().unwrap()).unwrap();
        for option in OPTIONS {
            assert!(
                help.contains(option.name) && page.contains(option.name),
                "{}",
                option.name
            );
        }
        assert!(help.contains("128+N") && page.contains("128+N"), "{page}");
        assert!(
            page.contains("EXIT STATUS") && page.contains("cudasnap\\-checkpoint(1)"),
            "{page}"
        );
    }

    #[test]
    fn the_statuses_are_those_of_the_program() {
        let numbers: Vec<u8> = STATUSES
            .iter()
            .filter_map(|(status, _)| status.parse().ok())
            .collect();
        let all = [
            Exit::Done,
            Exit::Failed,
            Exit::Usage,
            Exit::SomeFailed,
            Exit::Refused,
        ];
        assert_eq!(numbers, all.map(Exit::status));
        assert_eq!(
            [Exit::NotExecutable, Exit::NotFound].map(Exit::status),
            [126, 127]
        );
    }
}
