//! The options of a program that is started: when it is ready, how it ends, where its output goes.

use std::path::PathBuf;
use std::time::Duration;

use clap::ValueHint;

use super::pattern::Pattern;
use super::port::{port, Port};
use super::Error;
use crate::exit::Exit;
use crate::{values, workload};

/// When a program that is started is ready, and where its output goes.
#[derive(Debug, Clone, Default, clap::Args)]
#[command(next_help_heading = "A program that is started")]
pub struct StartOptions {
    /// It is ready when this shell command returns 0, tried each second
    #[arg(long, value_name = "COMMAND", value_hint = ValueHint::CommandString, value_parser = values::text())]
    pub(super) ready_command: Option<String>,
    /// It is ready when this TCP port accepts, on this machine unless a host is named
    #[arg(long, value_name = "[HOST:]PORT", value_parser = values::read(port))]
    pub(super) ready_port: Option<Port>,
    /// It is ready when a line of its output contains this text, or matches /REGEX/
    #[arg(long, value_name = "TEXT", value_parser = values::read(Pattern::new))]
    pub(super) ready_line: Option<Pattern>,
    /// It is ready when its GPU memory has not changed for so long (without another condition: 3)
    #[arg(long, value_name = "SECONDS", value_parser = values::read(seconds))]
    ready_quiet: Option<Duration>,
    /// How long it may take to be ready (default: 600)
    #[arg(long, value_name = "SECONDS", value_parser = values::read(seconds))]
    ready_timeout: Option<Duration>,
    /// How long it may take to end after SIGTERM, before SIGKILL (default: 10)
    #[arg(long, value_name = "SECONDS", value_parser = values::read(seconds))]
    end_timeout: Option<Duration>,
    /// File for what it writes to stdout and stderr, in place of this command's stderr
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    program_output: Option<PathBuf>,
}

fn seconds(text: &str) -> Result<Duration, String> {
    let fit = |seconds| (0.1..=86_400.0).contains(&seconds);
    values::seconds(text, fit, "seconds, 0.1 to 86400")
}

impl StartOptions {
    /// Those that were given.
    pub fn given(&self) -> Vec<&'static str> {
        let all = [
            (self.ready_command.is_some(), "--ready-command"),
            (self.ready_port.is_some(), "--ready-port"),
            (self.ready_line.is_some(), "--ready-line"),
            (self.ready_quiet.is_some(), "--ready-quiet"),
            (self.ready_timeout.is_some(), "--ready-timeout"),
            (self.end_timeout.is_some(), "--end-timeout"),
            (self.program_output.is_some(), "--program-output"),
        ];
        let given = all.into_iter().filter(|(is_given, _)| *is_given);
        given.map(|(_, name)| name).collect()
    }

    /// How long it may take to be ready.
    pub fn timeout(&self) -> Duration {
        self.ready_timeout.unwrap_or(Duration::from_secs(600))
    }

    /// How long between SIGTERM and SIGKILL.
    pub fn grace(&self) -> Duration {
        self.end_timeout.unwrap_or(Duration::from_secs(10))
    }

    /// Where its outputs go.
    pub fn output(&self) -> Option<&PathBuf> {
        self.program_output.as_ref()
    }

    /// Looks whether the conditions can come about by this program.
    ///
    /// # Errors
    /// They cannot.
    pub fn check(&self) -> Result<(), Error> {
        match &self.ready_port {
            Some(port) if port.accepts() => Err(Error::NotStarted {
                exit: Exit::Refused,
                lines: vec![format!(
                    "port {} accepts already: another program listens there, and it would be taken for this one",
                    port.shown()
                )],
            }),
            _ => Ok(()),
        }
    }

    /// The same for the built-in workload, which says itself when it is ready: memory may be quiet long before it is filled.
    #[must_use]
    pub fn for_workload(&self) -> Self {
        let says = || Pattern::new(workload::READY_LINE).ok();
        StartOptions {
            ready_line: self.ready_line.clone().or_else(says),
            ..self.clone()
        }
    }

    /// For how long memory must be quiet; `None`: other conditions decide.
    pub fn quiet(&self) -> Option<Duration> {
        let others =
            self.ready_command.is_some() || self.ready_port.is_some() || self.ready_line.is_some();
        let without = (!others).then_some(Duration::from_secs(3));
        self.ready_quiet.or(without)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    #[test]
    fn a_port_accepts_while_somebody_listens() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let number = listener.local_addr().unwrap().port();
        let options = StartOptions {
            ready_port: Some(port(&number.to_string()).unwrap()),
            ..StartOptions::default()
        };
        let error = options.check().unwrap_err();
        assert!(error.to_string().contains("accepts already"), "{error}");
        drop(listener);
        assert_eq!(options.check(), Ok(()));
    }

    #[test]
    fn without_a_condition_memory_is_to_be_quiet() {
        let none = StartOptions::default();
        assert_eq!(none.quiet(), Some(Duration::from_secs(3)));
        let line = StartOptions {
            ready_line: Some(Pattern::Text("x".into())),
            ..StartOptions::default()
        };
        assert_eq!(line.quiet(), None);
        let both = StartOptions {
            ready_quiet: Some(Duration::from_secs(9)),
            ..line
        };
        assert_eq!(both.quiet(), Some(Duration::from_secs(9)));
    }

    #[test]
    fn the_workload_says_itself_when_it_is_ready() {
        let options = StartOptions::default().for_workload();
        let line = options.ready_line.as_ref().expect("a line");
        let own = format!("{}4711", workload::READY);
        assert!(line.fits(&own) && !line.fits("already 4711") && !line.fits("bad 0"));
        assert_eq!(options.quiet(), None);
        let own = StartOptions {
            ready_line: Some(Pattern::Text("x".into())),
            ready_quiet: Some(Duration::from_secs(9)),
            ..StartOptions::default()
        };
        let own = own.for_workload();
        assert!(own.ready_line.as_ref().is_some_and(|line| line.fits("x")));
        assert_eq!(own.quiet(), Some(Duration::from_secs(9)));
    }
}
