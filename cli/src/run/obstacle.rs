//! Why the library cannot be active in a program, found before the program is started.

use std::ffi::{OsStr, OsString};
use std::fmt;
use std::path::{Path, PathBuf};

use super::image::{self, Image, Machine};
use super::preload;
use super::privilege::{self, Privilege};
use super::program::{Content, Program, SHELL};
use super::trial;

/// What is to be preloaded.
#[derive(Debug)]
pub struct Library {
    /// Its file.
    pub path: PathBuf,
    /// What it is built for.
    pub machine: Machine,
    /// The list of preloads with it in front.
    pub with: OsString,
    /// The same list without it.
    pub without: OsString,
}

/// Why the library cannot be active in a program.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Obstacle {
    /// There is no library that could be preloaded.
    Library(String),
    /// The program brings no loader.
    Static,
    /// The program's loader is musl's.
    Musl(PathBuf),
    /// The program's loader is none of glibc.
    Loader(PathBuf),
    /// Program and library are for different machines.
    Machine(Machine, Machine),
    /// The loader ignores preloads in programs that gain privileges.
    Privilege(Privilege),
    /// This sanitizer's library ends a program in which it does not come first.
    Sanitizer(String),
    /// The loader could not load the library, in its own words.
    DoesNotLoad(String),
    /// The program could not be looked at, for this reason.
    Unknown(String),
}

impl Obstacle {
    /// Whether children of the program may still be programs in which the library works. Their own loader decides; the program
    /// does not notice.
    pub fn is_for_this_program_only(&self) -> bool {
        matches!(self, Obstacle::Static | Obstacle::Unknown(_))
    }
}

impl fmt::Display for Obstacle {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Obstacle::Library(text) => out.write_str(text),
            Obstacle::Static => out.write_str("statically linked, it has no loader that could preload anything"),
            Obstacle::Musl(loader) => write!(
                out,
                "built for musl (its loader is {}), the library is for glibc",
                loader.display()
            ),
            Obstacle::Loader(loader) => write!(out, "its loader {} is not glibc's", loader.display()),
            Obstacle::Machine(program, library) => {
                write!(out, "a {program} program, the library is {library}")
            }
            Obstacle::Privilege(privilege) => write!(
                out,
                "it has {}, and the loader preloads nothing into a program that gains privileges",
                privilege.words()
            ),
            Obstacle::Sanitizer(name) => write!(
                out,
                "{name} has to come first and ends the program otherwise (ASAN_OPTIONS=verify_asan_link_order=0 allows it)"
            ),
            Obstacle::DoesNotLoad(words) => write!(out, "its loader cannot load the library: {words}"),
            Obstacle::Unknown(reason) => {
                write!(out, "nobody knows whether the library can be active in it: {reason}")
            }
        }
    }
}

/// Looks for an obstacle in a program that is about to be executed.
pub fn find(program: &Program, library: &Library) -> Option<Obstacle> {
    let file = program.file();
    let image = match &program.content {
        Content::Elf(image) => image,
        Content::Unknown(reason) => return Some(Obstacle::Unknown(reason.clone())),
    };
    if image.machine != library.machine {
        return Some(Obstacle::Machine(image.machine, library.machine));
    }
    let loader = match loader_of(image, file) {
        Ok(loader) => loader,
        Err(obstacle) => return Some(obstacle),
    };
    if let Some(privilege) = privilege::gained(file) {
        return Some(Obstacle::Privilege(privilege));
    }
    let options = std::env::var_os("ASAN_OPTIONS").unwrap_or_default();
    if let Some(name) = sanitizer(image, &library.without, &options) {
        return Some(Obstacle::Sanitizer(name));
    }
    // A loader that is called as a program loads whatever it is given; the library stands for it.
    let subject = if image.is_loader() {
        &library.path
    } else {
        file
    };
    let tried = trial::load(
        loader,
        subject,
        &library.path,
        &library.with,
        &library.without,
    );
    tried.err().map(Obstacle::DoesNotLoad)
}

fn loader_of<'a>(image: &'a Image, file: &'a Path) -> Result<&'a Path, Obstacle> {
    match image.loader.as_deref() {
        None if image.is_loader() => Ok(file),
        None => Err(Obstacle::Static),
        Some(loader) if image::is_musl_loader(loader) => Err(Obstacle::Musl(loader.into())),
        Some(loader) if !image::is_glibc_loader(loader) => Err(Obstacle::Loader(loader.into())),
        Some(loader) => Ok(loader),
    }
}

/// AddressSanitizer as a shared library, in the program or preloaded, which insists on being the first.
fn sanitizer(image: &Image, preloads: &OsStr, options: &OsStr) -> Option<String> {
    let options = options.to_string_lossy();
    let allowed = ["=0", "=false", "=no"].map(|off| format!("verify_asan_link_order{off}"));
    if allowed.iter().any(|word| options.contains(word)) {
        return None;
    }
    let preloaded = preload::names(preloads)
        .into_iter()
        .map(OsStr::to_string_lossy);
    let needed = image.needed.iter().map(|name| name.as_str().into());
    let mut names = preloaded.chain(needed).map(|name| {
        let file = Path::new(name.as_ref()).file_name().unwrap_or_default();
        file.to_string_lossy().into_owned()
    });
    names.find(|name| name.starts_with("libasan.so") || name.starts_with("libclang_rt.asan"))
}

/// Whether the programs that a program starts would get on with the library: the shell stands for all of them.
pub fn in_children(library: &Library) -> Option<Obstacle> {
    find(&Program::of(Path::new(SHELL), None), library)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn needs(names: &[&str]) -> Image {
        Image {
            machine: Machine {
                number: 62,
                bits: 64,
            },
            loader: None,
            needed: names.iter().map(|name| name.to_string()).collect(),
            soname: None,
        }
    }

    #[test]
    fn address_sanitizer_must_be_first() {
        let found = |needed: &[&str], preloads: &str, options: &str| {
            sanitizer(&needs(needed), preloads.as_ref(), options.as_ref())
        };
        assert_eq!(
            found(&["libasan.so.8", "libc.so.6"], "", ""),
            Some("libasan.so.8".into())
        );
        assert_eq!(
            found(&["libc.so.6"], "/x/libasan.so.8 /y.so", ""),
            Some("libasan.so.8".into())
        );
        assert_eq!(found(&["libc.so.6", "liblsan.so.0"], "/x/y.so", ""), None);
        let options = "detect_leaks=0:verify_asan_link_order=0";
        assert_eq!(found(&["libasan.so.8"], "", options), None);
    }

    #[test]
    fn loaders_are_told_apart() {
        let with = |loader: &str| Image {
            loader: Some(loader.into()),
            ..needs(&[])
        };
        let own = Path::new("/x");
        assert_eq!(loader_of(&needs(&[]), own), Err(Obstacle::Static));
        let musl = "/lib/ld-musl-x86_64.so.1";
        assert_eq!(
            loader_of(&with(musl), own),
            Err(Obstacle::Musl(musl.into()))
        );
        assert_eq!(
            loader_of(&with("/bin/sh"), own),
            Err(Obstacle::Loader("/bin/sh".into()))
        );
        let called = Image {
            soname: Some("ld-linux-x86-64.so.2".into()),
            ..needs(&[])
        };
        assert_eq!(loader_of(&called, own), Ok(own));
    }
}
