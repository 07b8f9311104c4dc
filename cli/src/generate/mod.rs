//! [`mod@completions`] and [`mod@man`] pages: generated from the grammar, so that they cannot lag behind it. Here is what they and the help
//! text have in common.

pub mod completions;
pub mod man;

use std::fmt::Write as _;

use clap::{Command, CommandFactory};
use cudasnap_wire::OPTIONS;

use crate::grammar::Cli;
use crate::shim_library;

/// Exit statuses, as the help text and the main man page list them.
const STATUSES: [(&str, &str); 8] = [
    ("0", "everything asked for was done"),
    ("1", "the driver or the target process did not do it"),
    ("2", "the command line was not understood"),
    ("3", "some of several processes failed"),
    (
        "4",
        "refused before anything was touched: no room, no right, or it could not work",
    ),
    (
        "5",
        "reserve: stopped before the memory was full; what came until then stays",
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

/// The grammar with every name and text filled in. `help` needs no page of its own.
fn built() -> Command {
    let mut command = Cli::command().disable_help_subcommand(true);
    command.build();
    command
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::exit::Exit;

    /// Calls `look` with every command of the grammar, and its full name.
    pub fn each(command: &Command, name: &str, look: &mut impl FnMut(&Command, &str)) {
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

    /// In a usage, whoever wrote it: where each argument that has its place stands, in the order in which they are read.
    #[test]
    fn every_usage_names_arguments_in_the_order_in_which_they_are_read() {
        let mut looked = 0;
        each(&built(), "cudasnap", &mut |command, name| {
            let usage = command.clone().render_usage().to_string();
            let words: Vec<&str> = usage
                .split(|letter: char| !letter.is_ascii_alphanumeric())
                .collect();
            let mut named: Vec<&clap::Arg> = command.get_positionals().collect();
            named.sort_by_key(|argument| argument.get_index());
            let places = named.iter().map(|argument| {
                let value = argument.get_value_names().map_or("", |names| &names[0]);
                let place = words.iter().position(|word| *word == value);
                place.unwrap_or_else(|| panic!("{name}: no {value} in {usage}"))
            });
            assert!(places.is_sorted(), "{name}: {usage}");
            looked += named.len();
        });
        assert!(looked > 15, "{looked}");
    }

    #[test]
    fn statuses_and_variables_are_in_help_and_page() {
        let help = Cli::command().render_long_help().to_string();
        let page = String::from_utf8(man::main_page().unwrap()).unwrap();
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
            Exit::Stopped,
        ];
        assert_eq!(numbers, all.map(Exit::status));
        assert_eq!(
            [Exit::NotExecutable, Exit::NotFound].map(Exit::status),
            [126, 127]
        );
    }
}
