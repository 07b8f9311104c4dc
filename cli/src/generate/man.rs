//! `cudasnap man`: the man pages.

use std::io::{self, Write};
use std::path::{Path, PathBuf};

use clap::Command;
use clap_mangen::roff::{bold, roman, Inline, Roff};

use super::{built, variables, STATUSES};
use crate::exit::Exit;
use crate::{links, output};

/// Arguments of `cudasnap man`.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "cudasnap man /usr/local/share/man/man1 installs them; cudasnap man | man -l - shows the main page."
)]
pub struct Args {
    /// Folder for cudasnap.1 and one page per command; without it the main page is printed
    #[arg(value_name = "DIR")]
    folder: Option<PathBuf>,
}

/// Writes the man pages.
pub fn run(args: &Args) -> Exit {
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
pub(super) fn main_page() -> io::Result<Vec<u8>> {
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
    use crate::generate::tests::each;

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
}
