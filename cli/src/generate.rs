//! `cudasnap completions` and `cudasnap man`: generated from the grammar, so that they cannot lag behind it.

use std::fmt::Write as _;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use clap::{Command, CommandFactory};
use clap_complete::Shell;
use clap_mangen::roff::{bold, roman, Inline, Roff};
use cudasnap_wire::OPTIONS;

use crate::exit::Exit;
use crate::grammar::Cli;
use crate::{links, output, shim_library};

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

/// Behind the generated completions of bash: where a PID belongs, those of processes that have libcuda loaded. An option right
/// before may want a value of its own: nothing is added there.
const BASH_PIDS: &str = r#"
_cudasnap_with_pids() {
    _cudasnap "$@"
    case "${COMP_WORDS[1]}" in
        lock|checkpoint|restore|unlock|toggle|state|status|drop|reserve) ;;
        mode|buffer) [[ "${COMP_CWORD}" -eq 2 ]] || return 0 ;;
        *) return 0 ;;
    esac
    if [[ "${COMP_CWORD}" -lt 2 || "$2" == -* || "$3" == -* ]]; then
        return 0
    fi
    local pids
    pids="$(grep -l 'libcuda\.so' /proc/[0-9]*/maps 2>/dev/null | cut -d/ -f3)"
    if [[ -n "${pids}" ]]; then
        COMPREPLY=( $(compgen -W "${pids}" -- "$2") )
    fi
}

if [[ "${BASH_VERSINFO[0]}" -eq 4 && "${BASH_VERSINFO[1]}" -ge 4 || "${BASH_VERSINFO[0]}" -gt 4 ]]; then
    complete -F _cudasnap_with_pids -o nosort -o bashdefault -o default cudasnap
else
    complete -F _cudasnap_with_pids -o bashdefault -o default cudasnap
fi
"#;

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
    if args.shell == Shell::Bash {
        text.extend(BASH_PIDS.as_bytes());
    }
    output::settle(io::stdout().write_all(&text), Exit::Done)
}

/// Writes the man pages.
pub fn man(args: &ManArgs) -> Exit {
    match &args.folder {
        None => output::settle(
            main_page().and_then(|page| io::stdout().write_all(&page)),
            Exit::Done,
        ),
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
    std::fs::write(folder.join(page.get_filename()), page_of(command)?)?;
    let below = command
        .get_subcommands()
        .filter(|command| !command.is_hide_set());
    below
        .into_iter()
        .try_for_each(|command| write_page(folder, command))
}

/// A command's page.
fn page_of(command: &Command) -> io::Result<Vec<u8>> {
    let mut text = sections(command)?;
    let notes = command
        .get_after_long_help()
        .or_else(|| command.get_after_help());
    if let Some(notes) = notes {
        let mut roff = Roff::new();
        roff.control("SH", ["NOTES"]);
        lines(&mut roff, &notes.to_string(), |line| vec![roman(line)]);
        roff.to_writer(&mut text)?;
    }
    Ok(text)
}

/// The main page: the generated sections, then what belongs to all commands.
fn main_page() -> io::Result<Vec<u8>> {
    // Not the notes: its own sections say it better than the plain text of the help.
    let command = built();
    let mut text = sections(&command)?;
    own_sections().to_writer(&mut text)?;
    clap_mangen::Man::new(command).render_version_section(&mut text)?;
    Ok(text)
}

/// The sections that every page has.
fn sections(command: &Command) -> io::Result<Vec<u8>> {
    let page = clap_mangen::Man::new(command.clone());
    let mut text = Vec::new();
    page.render_title(&mut text)?;
    // Neither hyphens nor wider blanks: there are commands in it that people copy.
    let mut plain = Roff::new();
    plain.control("nh", []).control("ad", ["l"]);
    plain.to_writer(&mut text)?;
    page.render_name_section(&mut text)?;
    synopsis(command).to_writer(&mut text)?;
    page.render_description_section(&mut text)?;
    page.render_options_section(&mut text)?;
    if command.has_subcommands() {
        page.render_subcommands_section(&mut text)?;
    }
    Ok(text)
}

/// Clap's own usage: clap_mangen's synopsis knows neither the arguments of the commands above nor those texts that replace it.
fn synopsis(command: &Command) -> Roff {
    let mut roff = Roff::new();
    roff.control("SH", ["SYNOPSIS"]);
    lines(&mut roff, &usage(command), |line| {
        let is_call = line.starts_with("cudasnap");
        let words = line.split_inclusive(' ');
        words
            .map(|word| match is_call && is_literal(word) {
                true => bold(word),
                false => roman(word),
            })
            .collect()
    });
    roff
}

/// How a command is called.
fn usage(command: &Command) -> String {
    let usage = command.clone().render_usage().to_string();
    let usage = usage.trim_start_matches("Usage: ").lines();
    usage.map(str::trim).collect::<Vec<_>>().join("\n")
}

/// Whether a word of the usage is typed as it stands there.
fn is_literal(word: &str) -> bool {
    let word = word.trim_end();
    !word.is_empty()
        && word
            .chars()
            .all(|letter| letter.is_ascii_lowercase() || letter == '-')
}

/// Adds text whose lines stay lines.
fn lines(roff: &mut Roff, text: &str, styled: impl Fn(&str) -> Vec<Inline>) {
    for (number, line) in text.lines().enumerate() {
        if number > 0 {
            roff.control("br", []);
        }
        roff.text(styled(line.trim()));
    }
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

    /// The text of a page's section, without fonts and escapes.
    fn section(page: &[u8], heading: &str) -> String {
        let page = String::from_utf8_lossy(page);
        let mut lines = page
            .lines()
            .skip_while(|line| *line != format!(".SH {heading}"));
        assert!(lines.next().is_some(), "no {heading}: {page}");
        let text = lines.take_while(|line| !line.starts_with(".SH "));
        let text: Vec<&str> = text.filter(|line| !line.starts_with('.')).collect();
        let mut text = text.join("\n");
        for (escape, plain) in [("\\fB", ""), ("\\fR", ""), ("\\-", "-"), ("\\&", "")] {
            text = text.replace(escape, plain);
        }
        text
    }

    #[test]
    fn completed_pids_are_for_commands_that_exist() {
        let built = built();
        let cases = BASH_PIDS
            .lines()
            .filter_map(|line| line.trim().split_once(") "));
        let names = cases.flat_map(|(names, _)| names.split('|'));
        let mut looked = 0;
        for name in names.filter(|name| name.bytes().all(|byte| byte.is_ascii_lowercase())) {
            let command = built
                .find_subcommand(name)
                .unwrap_or_else(|| panic!("no {name}"));
            let mut ids = command
                .get_positionals()
                .filter_map(|id| id.get_value_names());
            assert!(ids.any(|names| names[0] == "PID"), "{name}");
            looked += 1;
        }
        assert_eq!(looked, 11);
    }

    #[test]
    fn every_synopsis_is_the_usage() {
        let mut looked = 0;
        each(&built(), "cudasnap", &mut |command, name| {
            let synopsis = section(&page_of(command).unwrap(), "SYNOPSIS");
            assert_eq!(synopsis, usage(command), "{name}");
            looked += 1;
            match name {
                "cudasnap buffer find" => {
                    assert!(
                        synopsis.starts_with("cudasnap buffer <PID> find "),
                        "{synopsis}"
                    );
                }
                "cudasnap run" => assert!(synopsis.ends_with("[--] CMD [ARGS...]"), "{synopsis}"),
                _ => {}
            }
        });
        assert!(looked > 20, "{looked}");
        let main = section(&main_page().unwrap(), "SYNOPSIS");
        assert_eq!(main, usage(&built()));
    }

    #[test]
    fn what_help_says_below_is_in_the_notes() {
        let built = built();
        let run = built.find_subcommand("run").unwrap();
        let notes = section(&page_of(run).unwrap(), "NOTES");
        assert_eq!(notes, run.get_after_help().unwrap().to_string());
        assert!(notes.contains("\nExit status: "), "{notes}");
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
            Exit::Stopped,
        ];
        assert_eq!(numbers, all.map(Exit::status));
        assert_eq!(
            [Exit::NotExecutable, Exit::NotFound].map(Exit::status),
            [126, 127]
        );
    }
}
