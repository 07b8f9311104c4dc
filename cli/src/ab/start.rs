//! How a program is started for a group of variants.
//!
//! With the library by `cudasnap run --require`: that knows why a library cannot be active in a program, and says so. Without it the
//! program gets the environment as it is, less the library where somebody preloads it already.

use std::ffi::OsString;
use std::path::Path;

use super::bench::Trouble;
use super::data::Variant;
use super::variant;
use crate::run::library::{self, Choice};
use crate::run::preload;

/// A command line, and variables to set.
pub type Command = (Vec<OsString>, Vec<(OsString, OsString)>);

/// The command for a program under this variant.
///
/// # Errors
/// There is no library to preload.
pub fn command(program: &[OsString], variant: &Variant) -> Result<Command, Trouble> {
    let library = match library::choose(None) {
        Ok(Choice::Fit(path, _)) => Ok(path),
        Ok(Choice::Unfit(why)) | Err(why) => Err(why),
    };
    if variant.mode == variant::STOCK {
        let list = preload::in_force(std::env::vars_os());
        return Ok((program.to_vec(), stock(list, library.ok().as_deref())));
    }
    let library = library.map_err(Trouble::refused)?;
    let own = std::env::current_exe();
    let own = own.map_err(|error| Trouble::failed(format!("this program: {error}")))?;
    let front = [
        own.into_os_string(),
        "run".into(),
        "--require".into(),
        "--lib".into(),
        library.into_os_string(),
        "--".into(),
    ];
    let command = front.into_iter().chain(program.iter().cloned()).collect();
    let mode = ("CUDASNAP".into(), OsString::from(&variant.mode));
    let environment = std::iter::once(mode).chain(variant::environment(variant));
    Ok((command, environment.collect()))
}

fn stock(list: Option<OsString>, library: Option<&Path>) -> Vec<(OsString, OsString)> {
    let (Some(list), Some(library)) = (list, library) else {
        return Vec::new();
    };
    let without = preload::without(&list, &library::kin(library));
    match without == list {
        true => Vec::new(),
        false => vec![(preload::VARIABLE.into(), without)],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stock_takes_the_library_out_and_nothing_else() {
        let library = Path::new("/o/libcudasnap.so");
        let set = |list: &str| stock(Some(list.into()), Some(library));
        assert_eq!(set("/o/other.so"), []);
        assert_eq!(
            set("/o/libcudasnap.so:/o/other.so"),
            [("LD_PRELOAD".into(), "/o/other.so".into())]
        );
        assert_eq!(stock(None, Some(library)), []);
    }
}
