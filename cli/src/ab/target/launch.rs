//! What is executed, and what changes in its environment: as `cudasnap run` decides it.

use std::ffi::OsString;
use std::path::PathBuf;

use super::Error;
use crate::exit::Exit;
use crate::run::find;
use crate::run::library::{self, Choice};
use crate::run::options;
use crate::run::plan::Plan;
use crate::run::preload;

/// A program about to be started.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Launch {
    /// Its file.
    pub file: PathBuf,
    /// Its argument vector, its name in front.
    pub arguments: Vec<OsString>,
    /// Variables to set.
    pub set: Vec<(OsString, OsString)>,
    /// Variables to take away.
    pub unset: Vec<OsString>,
    /// What people should know.
    pub warnings: Vec<String>,
}

impl Launch {
    /// Under the library.
    ///
    /// # Errors
    /// An option is wrong, there is no such program, or the library cannot be active in it nor in what it starts.
    pub fn with_library(command: &[OsString], env: &[(OsString, OsString)]) -> Result<Self, Error> {
        let settings = env
            .iter()
            .filter_map(|(name, value)| options::setting(name, value));
        let plan = Plan::of(command, None, settings.collect())?;
        let mut warnings = plan.warnings.clone();
        match plan.about_obstacle(!plan.in_children) {
            Some(line) if !plan.in_children => {
                return Err(Error::NotStarted {
                    exit: Exit::Refused,
                    lines: vec![line.replace(" (--require)", "")],
                })
            }
            line => warnings.extend(line),
        }
        let options = plan.settings.iter();
        let mut set: Vec<(OsString, OsString)> = options
            .map(|(name, value)| (name.into(), value.clone()))
            .collect();
        let others = env
            .iter()
            .filter(|(name, value)| options::setting(name, value).is_none());
        set.extend(others.cloned());
        let unset = plan.unset_preload.then(|| preload::VARIABLE.into());
        Ok(Launch {
            file: plan.program.files.first().cloned().unwrap_or_default(),
            arguments: plan.arguments,
            set,
            unset: unset.into_iter().collect(),
            warnings,
        })
    }

    /// Without it, though this process may have it preloaded.
    ///
    /// # Errors
    /// There is no such program.
    pub fn stock(command: &[OsString], env: &[(OsString, OsString)]) -> Result<Self, Error> {
        let search = std::env::var_os("PATH");
        let name = command.first().map(OsString::as_os_str).unwrap_or_default();
        let mut launch = Launch {
            file: find::find(name, search.as_deref())?,
            arguments: command.to_vec(),
            set: env.to_vec(),
            unset: Vec::new(),
            warnings: Vec::new(),
        };
        let list = preload::in_force(std::env::vars_os()).unwrap_or_default();
        if let Ok(Choice::Fit(path, _)) = library::choose(None) {
            let rest = preload::without(&list, &library::kin(&path));
            if rest.is_empty() {
                launch.unset.push(preload::VARIABLE.into());
            } else {
                launch.set.push((preload::VARIABLE.into(), rest));
            }
        }
        Ok(launch)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pair(name: &str, value: &str) -> (OsString, OsString) {
        (name.into(), value.into())
    }

    #[test]
    fn without_the_library_the_program_gets_what_it_is_given() {
        let launch = Launch::stock(&["sh".into(), "-c".into()], &[pair("A", "1")]).unwrap();
        assert!(launch.file.ends_with("sh") && launch.file.is_absolute());
        assert_eq!(launch.arguments, ["sh", "-c"]);
        assert!(launch.set.contains(&pair("A", "1")));
        let error = Launch::stock(&["no-such-program".into()], &[]).unwrap_err();
        assert_eq!(error.exit(), Exit::NotFound);
    }

    #[test]
    fn values_that_the_library_would_not_understand_are_refused() {
        let env = [pair("CUDASNAP_THREADS", "33")];
        let error = Launch::with_library(&["sh".into()], &env).unwrap_err();
        assert_eq!(error.exit(), Exit::Usage);
        assert!(error.to_string().contains("CUDASNAP_THREADS"), "{error}");
    }
}
