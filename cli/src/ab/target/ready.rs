//! When a program is ready: everything that was asked for has come about, and one process uses CUDA. Without a condition its GPU memory
//! is to be quiet.

use super::command::Asking;
use super::family;
use super::kept::Kept;
use super::memory::Memory;
use super::options::StartOptions;
use super::Error;
use crate::gpus::{Asked, Depth};
use crate::process::identity::Identity;

/// Whether a program is ready.
pub enum Ready {
    /// It is; with the process that uses CUDA.
    Yes(Identity),
    /// What is missing.
    NotYet(String),
}

/// The conditions, with what has come about so far.
pub struct Wait {
    options: StartOptions,
    program: i32,
    command: Asking,
    port: bool,
    memory: Memory,
}

impl Wait {
    /// Nothing has come about yet.
    pub fn new(options: &StartOptions, kept: &Kept) -> Self {
        Wait {
            options: options.clone(),
            program: kept.program(),
            command: Asking::default(),
            port: false,
            memory: Memory::default(),
        }
    }

    /// Looks, without waiting for long.
    ///
    /// # Errors
    /// Several processes use CUDA.
    pub fn look(&mut self, kept: &Kept) -> Result<Ready, Error> {
        if let Some(missing) = self.missing(kept) {
            return Ok(Ready::NotYet(missing));
        }
        let Some(cuda) = the_one(family::with_cuda(kept.keeper()))? else {
            return Ok(Ready::NotYet(
                "no process below it uses CUDA (of a container, give the PID)".into(),
            ));
        };
        match self.options.quiet() {
            Some(long) if !self.memory.is_quiet(&cuda, long) => {
                Ok(Ready::NotYet(self.memory.told().into()))
            }
            _ => Ok(Ready::Yes(cuda)),
        }
    }

    fn missing(&mut self, kept: &Kept) -> Option<String> {
        if let Some(line) = &self.options.ready_line {
            if !kept.heard().is_seen() {
                return Some(format!("no line with \"{}\" has come", line.shown()));
            }
        }
        if let Some(port) = &self.options.ready_port {
            self.port = self.port || port.accepts();
            if !self.port {
                return Some(format!("port {} does not accept", port.shown()));
            }
        }
        let command = self.options.ready_command.clone()?;
        let done = self.command.is_done(&command, self.program);
        (!done).then(|| format!("\"{command}\" has not returned 0"))
    }
}

/// Of several that have initialised CUDA, those that hold memory of a GPU count, where NVML tells.
fn the_one(mut found: Vec<Identity>) -> Result<Option<Identity>, Error> {
    if found.len() > 1 {
        if let Ok(gpus) = Asked::now(Depth::Memory).answer() {
            let holds = |identity: &&Identity| gpus.contexts_of(identity.pid).next().is_some();
            let holding: Vec<Identity> = found.iter().filter(holds).cloned().collect();
            if !holding.is_empty() {
                found = holding;
            }
        }
    }
    if found.len() > 1 {
        let named = found
            .into_iter()
            .map(|identity| (identity.pid, identity.name));
        return Err(Error::Several(named.collect()));
    }
    Ok(found.pop())
}
