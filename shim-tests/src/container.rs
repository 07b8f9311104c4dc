//! Containers as far as a machine without a container runtime has them: namespaces, a read-only root of their own, the capabilities and
//! the system call filter that runtimes give by default (`shim-tests/container`).
//!
//! - [`Machine`]: a pid namespace in which the containers are the only ones, so that "the process that a container calls 1" means one.
//! - [`Terms`]: what a container may do.
//! - [`Container`]: a program started in it through whatever entrypoint, and spoken to by lines.

mod machine;
mod terms;

use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use cudasnap_cli::process::identity::Identity;
use cudasnap_cli::process::tree;

use crate::tool::{until, Said};
use crate::watchdog::Watchdog;

pub use machine::Machine;
pub use terms::{Terms, SYS_PTRACE};

/// A program in a container. What runs in it ends with its machine.
#[derive(Debug)]
pub struct Container {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
    first_line: String,
}

impl Container {
    fn start(command: &mut Command) -> Self {
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("nsenter");
        let input = child.stdin.take().expect("piped");
        let output = BufReader::new(child.stdout.take().expect("piped"));
        let mut container = Container {
            child,
            input,
            output,
            first_line: String::new(),
        };
        container.first_line = container.hear();
        container
    }

    /// What it said first.
    #[must_use]
    pub fn first_line(&self) -> &str {
        &self.first_line
    }

    /// Says a line to it, and hears its answer.
    ///
    /// # Panics
    /// When it is gone.
    pub fn ask(&mut self, line: &str) -> String {
        writeln!(self.input, "{line}").expect("it reads");
        self.hear()
    }

    fn hear(&mut self) -> String {
        let _limit = Watchdog::new(
            "an answer",
            self.child.id() as i32,
            std::time::Duration::from_secs(60),
        );
        let mut line = String::new();
        self.output.read_line(&mut line).expect("it writes");
        line.trim().to_owned()
    }

    /// Its process 1, by the number that the test sees.
    ///
    /// # Panics
    /// When there is none.
    #[must_use]
    pub fn first(&self) -> u32 {
        let below = tree::below(self.child.id() as i32, &tree::all());
        // Deeper than the machine's own process 1.
        let own =
            |identity: &&Identity| identity.namespace_pids.len() > 2 && identity.own_pid() == 1;
        let found = below.iter().find(own);
        let found = found.unwrap_or_else(|| panic!("no process 1 in {below:?}"));
        found.pid as u32
    }

    /// Sends a signal to its process 1, from outside.
    pub fn signal(&self, signal: i32) {
        let first = self.first() as i32;
        // SAFETY: kill takes two numbers; the process is one below a child of ours, which nobody has waited for.
        unsafe { libc::kill(first, signal) };
    }

    /// Waits for its end, its input being at its end; how it ended, and what it said that was not heard.
    ///
    /// # Panics
    /// When it does not end.
    #[must_use]
    pub fn end(self) -> Said {
        let Container {
            mut child,
            input,
            mut output,
            ..
        } = self;
        drop(input);
        let mut status = None;
        until("the container's end", || {
            status = child.try_wait().expect("its status");
            status.is_some()
        });
        let mut said = Said::from(child.wait_with_output().expect("its errors"));
        output.read_to_string(&mut said.stdout).expect("its output");
        said
    }
}
