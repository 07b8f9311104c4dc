//! `cudasnap completions`.

use std::io::{self, Write};

use clap::CommandFactory;
use clap_complete::Shell;

use crate::exit::Exit;
use crate::grammar::Cli;
use crate::output;

/// Behind the generated completions of bash: where a PID belongs, those of processes that have libcuda loaded. An option right
/// before may want a value of its own: nothing is added there. And what stands behind `run` and its options is another program's line:
/// programs, then whatever that program's own completions say. `VALUED` are the options of `run` that take a value.
const BASH_MORE: &str = r#"
_cudasnap_program_at() {
    local at=2
    while [[ "${at}" -lt "${COMP_CWORD}" ]]; do
        case "${COMP_WORDS[at]}" in
            --) printf '%s' "$((at + 1))"; return ;;
            VALUED)
                [[ "${COMP_WORDS[at + 1]}" == "=" ]] && at=$((at + 1))
                at=$((at + 2))
                ;;
            -*) at=$((at + 1)) ;;
            *) break ;;
        esac
    done
    printf '%s' "${at}"
}

_cudasnap_of_program() {
    local at IFS=$'\n'
    at="$(_cudasnap_program_at)"
    if [[ "${at}" -gt "${COMP_CWORD}" ]]; then
        return 0
    fi
    if [[ "${at}" -eq "${COMP_CWORD}" ]]; then
        if [[ "$2" == -* && "${COMP_WORDS[at - 1]}" != "--" ]]; then
            return 0
        fi
        COMPREPLY=( $(compgen -c -- "$2") )
    elif declare -F _comp_command_offset >/dev/null; then
        _comp_command_offset "${at}"
    elif declare -F _command_offset >/dev/null; then
        _command_offset "${at}"
    else
        compopt -o filenames 2>/dev/null
        COMPREPLY=( $(compgen -f -- "$2") )
    fi
}

_cudasnap_with_more() {
    _cudasnap "$@"
    if [[ "${COMP_WORDS[1]}" == run && "${COMP_CWORD}" -ge 2 ]]; then
        _cudasnap_of_program "$@"
        return 0
    fi
    case "${COMP_WORDS[1]}" in
        lock|checkpoint|restore|unlock|toggle|state|status|drop|reserve|metrics) ;;
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
    complete -F _cudasnap_with_more -o nosort -o bashdefault -o default cudasnap
else
    complete -F _cudasnap_with_more -o bashdefault -o default cudasnap
fi
"#;

/// Arguments of `cudasnap completions`.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "bash:  cudasnap completions bash > /etc/bash_completion.d/cudasnap\n\
                        zsh:   cudasnap completions zsh > /usr/local/share/zsh/site-functions/_cudasnap\n\
                        fish:  cudasnap completions fish > ~/.config/fish/completions/cudasnap.fish"
)]
pub struct Args {
    /// The shell
    shell: Shell,
}

/// Prints the completions of a shell.
pub fn run(args: &Args) -> Exit {
    let mut command = Cli::command();
    // Into memory first: the generator panics when its output is closed early.
    let mut text = Vec::new();
    clap_complete::generate(args.shell, &mut command, "cudasnap", &mut text);
    if args.shell == Shell::Bash {
        let more = BASH_MORE.replace("VALUED", &valued(&command, "run").join("|"));
        text.extend(more.as_bytes());
    }
    output::settle(io::stdout().write_all(&text), Exit::Done)
}

/// Options of a command that take a value.
fn valued(command: &clap::Command, name: &str) -> Vec<String> {
    let command = command.find_subcommand(name);
    let options = command.into_iter().flat_map(clap::Command::get_opts);
    options
        .filter(|option| option.get_action().takes_values())
        .filter_map(|option| Some(format!("--{}", option.get_long()?)))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::generate::built;

    #[test]
    fn completed_pids_are_for_commands_that_exist() {
        let built = built();
        let cases = BASH_MORE
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
        assert_eq!(looked, 12);
    }
}
