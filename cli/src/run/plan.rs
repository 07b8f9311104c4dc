//! What will be executed, with which environment, decided before anything is changed.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use super::find::{self, NotRunnable};
use super::image::Machine;
use super::library::{self, Choice};
use super::obstacle::{self, Library, Obstacle};
use super::options::{self, Setting};
use super::preload::{self, Kin};
use super::program::{Content, Program};
use super::Args;
use crate::exit::Exit;

/// What will be executed.
#[derive(Debug)]
pub struct Plan {
    /// The argument vector, the program's name in front.
    pub arguments: Vec<OsString>,
    /// The program.
    pub program: Program,
    /// The library, if there is one.
    pub library: Option<PathBuf>,
    /// Why it cannot be active in the program, if so.
    pub obstacle: Option<Obstacle>,
    /// Whether the programs that it starts get the library.
    pub in_children: bool,
    /// Variables to set.
    pub settings: Vec<Setting>,
    /// Whether the list of preloads has to go, since nothing is left in it.
    pub unset_preload: bool,
    /// What people should know.
    pub warnings: Vec<String>,
}

/// Why nothing is executed.
#[derive(Debug, PartialEq, Eq)]
pub struct Refusal {
    /// The status.
    pub exit: Exit,
    /// Lines for people.
    pub lines: Vec<String>,
}

impl Refusal {
    fn new(exit: Exit, line: String) -> Self {
        Refusal {
            exit,
            lines: vec![line],
        }
    }
}

impl From<NotRunnable> for Refusal {
    fn from(not: NotRunnable) -> Self {
        Refusal::new(not.exit, not.text)
    }
}

impl Plan {
    /// Decides.
    ///
    /// # Errors
    /// When an option is wrong (2) or there is no program that could be executed (126, 127).
    pub fn new(args: &Args) -> Result<Self, Refusal> {
        Plan::of(&args.command, args.lib.as_deref(), args.options.settings())
    }

    /// The same for a command, the library's file where it was asked for, and the library's options.
    ///
    /// # Errors
    /// As [`Plan::new`].
    pub fn of(
        command: &[OsString],
        library: Option<&Path>,
        settings: Vec<Setting>,
    ) -> Result<Self, Refusal> {
        let complaints = options::check(&environment(&settings));
        if !complaints.wrong.is_empty() {
            return Err(Refusal {
                exit: Exit::Usage,
                lines: complaints.wrong,
            });
        }
        let choice = library::choose(library);
        let choice = choice.map_err(|text| Refusal::new(Exit::Usage, text))?;
        let search = std::env::var_os("PATH");
        let name = command.first().map(OsString::as_os_str).unwrap_or_default();
        let file = find::find(name, search.as_deref())?;
        let mut plan = Plan {
            arguments: command.to_vec(),
            program: Program::of(&file, search.as_deref()),
            library: None,
            obstacle: None,
            in_children: false,
            settings,
            unset_preload: false,
            warnings: complaints.doubtful,
        };
        match choice {
            Choice::Fit(path, machine) => plan.preload(path, machine),
            Choice::Unfit(text) => plan.obstacle = Some(Obstacle::Library(text)),
        }
        Ok(plan)
    }

    fn preload(&mut self, path: PathBuf, machine: Machine) {
        let list = preload::in_force(std::env::vars_os());
        let before = list.clone().unwrap_or_default();
        let kin = library::kin(&path);
        let with = preload::with_first(&before, &path, &kin);
        let named = preload::names(&with).first().map(PathBuf::from);
        let library = Library {
            path: named.unwrap_or(path),
            machine,
            without: preload::without(&before, &kin),
            with,
        };
        self.obstacle = obstacle::find(&self.program, &library);
        self.in_children = match &self.obstacle {
            None => true,
            Some(obstacle) => {
                obstacle.is_for_this_program_only() && obstacle::in_children(&library).is_none()
            }
        };
        if self.in_children {
            self.warnings.extend(replaced(&before, &kin));
        }
        self.set_preload(list.as_deref(), &library);
        self.library = Some(library.path);
    }

    /// A preload that cannot be loaded never reaches the environment, and is taken out of it: each child would complain, or die.
    fn set_preload(&mut self, before: Option<&OsStr>, library: &Library) {
        let value = if self.in_children {
            &library.with
        } else {
            &library.without
        };
        if before == Some(value) || before.is_none() && value.is_empty() {
            return;
        }
        if value.is_empty() {
            self.unset_preload = true;
        } else {
            self.settings.push((preload::VARIABLE, value.clone()));
        }
    }

    /// What to say about an obstacle; `required` when the program is not started because of it. Nothing when the program
    /// cannot be executed anyway: that is told then.
    pub fn about_obstacle(&self, required: bool) -> Option<String> {
        let obstacle = self.obstacle.as_ref()?;
        if !required && self.missing().is_some() {
            return None;
        }
        let consequence = match obstacle {
            _ if required => "not started (--require)",
            Obstacle::Unknown(_) if self.in_children => "it gets the preload all the same",
            _ if self.in_children => {
                "it runs without the library, the programs that it starts get it"
            }
            _ => "it runs without the library",
        };
        Some(match obstacle {
            Obstacle::Library(text) => format!("{text}; {}: {consequence}", self.program),
            _ => format!("{}: {obstacle}; {consequence}", self.program),
        })
    }

    /// Why the program cannot be executed although it is there.
    pub fn why_not(&self) -> Option<String> {
        let missing = self.missing()?;
        let file = self.program.files.first()?;
        let why = match missing.as_os_str().as_bytes().ends_with(b"\r") {
            true => ": its first line ends in a carriage return (dos2unix takes them away)",
            false => "",
        };
        let (file, missing) = (file.display(), missing.display());
        Some(format!(
            "{file}: it needs {missing}, which is not there{why}"
        ))
    }

    /// A file without which the program cannot be executed although it is there: its interpreter, or its loader.
    fn missing(&self) -> Option<PathBuf> {
        let loader = match &self.program.content {
            Content::Elf(image) => image.loader.clone(),
            Content::Unknown(_) => None,
        };
        let files = self.program.files.iter().cloned().chain(loader);
        files.skip(1).find(|file| !file.exists())
    }
}

/// The environment as the program gets it.
fn environment(settings: &[Setting]) -> Vec<(OsString, OsString)> {
    let is_set = |name: &OsString| settings.iter().any(|(set, _)| name == set);
    let kept = std::env::vars_os().filter(|(name, _)| !is_set(name));
    let set = settings
        .iter()
        .map(|(name, value)| (name.into(), value.clone()));
    kept.chain(set).collect()
}

fn replaced(list: &OsStr, kin: &dyn Fn(&OsStr) -> Kin) -> Option<String> {
    let mut names = preload::names(list).into_iter();
    let copy = names.find(|name| kin(name) == Kin::Copy)?;
    Some(format!(
        "{} named another copy of the library, {}: replaced",
        preload::VARIABLE,
        copy.display()
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(files: &[&str]) -> Plan {
        let reason = "it cannot be read";
        Plan {
            arguments: Vec::new(),
            program: Program {
                files: files.iter().map(PathBuf::from).collect(),
                content: Content::Unknown(reason.into()),
            },
            library: None,
            obstacle: Some(Obstacle::Unknown(reason.into())),
            in_children: true,
            settings: Vec::new(),
            unset_preload: false,
            warnings: Vec::new(),
        }
    }

    #[test]
    fn where_nothing_can_be_executed_only_that_is_told() {
        let windows = plan(&["/x/script", "/bin/sh\r"]);
        assert_eq!(windows.about_obstacle(false), None);
        let why = windows.why_not().unwrap();
        assert!(
            why.starts_with("/x/script: it needs /bin/sh\r, which is not there: its first line"),
            "{why}"
        );
        assert!(windows
            .about_obstacle(true)
            .unwrap()
            .ends_with("not started (--require)"));
        let odd = plan(&["/x/odd", "/proc/self/exe"]);
        assert_eq!(odd.why_not(), None);
        let told = odd.about_obstacle(false).unwrap();
        assert!(told.ends_with("it gets the preload all the same"), "{told}");
    }
}
