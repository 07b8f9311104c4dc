//! What was found, as plain values.

use serde::Serialize;

use crate::exit::Exit;
use crate::foreign_text::printable;
use crate::gpus::Gpus;
use crate::process::cuda::CudaUse;
use crate::process::identity::Identity;
use crate::record::view::RecordView;
use crate::selection::SelectionError;

use super::held::Held;
use super::library_file::FileState;
use super::pages::Pages;
use super::preload::Preload;
use super::text::count;

/// A CUDA process.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Process {
    /// Who it is.
    #[serde(flatten)]
    pub identity: Identity,
    /// Name of its user; the number when it has none.
    pub user: String,
    /// Which right is missing to see all of it.
    pub missing_right: Option<String>,
    /// Its command line.
    pub command: Vec<String>,
    /// How far it has come with CUDA; `None` when that may not be seen.
    pub cuda: Option<CudaUse>,
    /// Resident private memory in bytes (`RssAnon`).
    pub rss_anon: u64,
    /// Private memory in bytes, wherever it is: resident, swapped, pages of the pools. Told by nobody, but no buffer is in less.
    #[serde(skip)]
    pub private: u64,
    /// Devices and the like that it holds; `None` when they may not be seen.
    pub held: Option<Vec<Held>>,
    /// What NVML says about it; `None` without NVML.
    pub nvml: Option<SeenByNvml>,
    /// The library in it.
    pub library: Library,
    /// Preloaded libraries; `None` when its environment may not be seen.
    pub preload: Option<Preload>,
    /// Whether the range that the record calls the buffer is mapped.
    pub buffer_is_mapped: bool,
    /// Memory behind the buffer; looked at when all is asked for and no phase goes on.
    pub buffer_pages: Option<Pages>,
    /// For a process without the library: the nearest process above it that has it.
    pub library_above: Option<Relative>,
    /// CUDA processes below it; looked for when it was named by its id.
    pub cuda_below: Vec<Relative>,
}

/// What NVML says about a process.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct SeenByNvml {
    /// Numbers of the GPUs on which it has a context.
    pub gpus: Vec<u32>,
    /// Its device memory in bytes; `None` when NVML does not tell.
    pub memory: Option<u64>,
}

impl SeenByNvml {
    /// The process's part in what NVML says.
    pub fn of(pid: i32, gpus: &Gpus) -> Self {
        SeenByNvml {
            gpus: gpus.contexts_of(pid).map(|(gpu, _)| gpu.index).collect(),
            memory: gpus.used_by(pid),
        }
    }

    /// Whether NVML lists the process.
    pub fn is_listed(&self) -> bool {
        !self.gpus.is_empty()
    }
}

/// The library in a process.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "seen", rename_all = "kebab-case")]
pub enum Library {
    /// It is not loaded.
    Absent,
    /// It is loaded, and its record was read.
    Loaded(Box<Loaded>),
    /// Whether it is loaded, or what it did, could not be read.
    Unreadable {
        /// A mapped file with the library's name.
        path: Option<String>,
        /// Why.
        reason: String,
    },
}

impl Library {
    /// Its record.
    pub fn record(&self) -> Option<&RecordView> {
        match self {
            Library::Loaded(loaded) => Some(&loaded.record),
            _ => None,
        }
    }
}

/// A library whose record was read.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Loaded {
    /// Its path, as the process's mappings name it.
    pub path: String,
    /// What became of its file.
    pub file: FileState,
    /// Its record.
    pub record: RecordView,
}

/// A process above or below another.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Relative {
    /// Its id.
    pub pid: i32,
    /// Its name.
    pub name: String,
    /// Whether the library is loaded in it; `None` when that may not be seen.
    pub library: Option<bool>,
}

/// A process that was named and has no CUDA.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Plain {
    /// Who it is.
    pub identity: Identity,
    /// Who below it uses CUDA, in words.
    pub below: Option<String>,
}

/// Ids that a note names.
const NAMED: usize = 5;

/// One look at everything that was asked for.
#[derive(Debug, Clone)]
pub struct Round {
    /// When, in nanoseconds since 1970.
    pub unix_ns: u64,
    /// NVML's answer, or why there is none.
    pub nvml: Result<Gpus, String>,
    /// The CUDA processes.
    pub processes: Vec<Process>,
    /// Processes that were named and have no CUDA.
    pub without_cuda: Vec<Plain>,
    /// Numbers that name no process.
    pub errors: Vec<SelectionError>,
    /// Processes that may not be looked into, where all were asked for.
    pub unreadable: Vec<i32>,
    /// Whether this process may look into those of every user (CAP_SYS_PTRACE).
    pub privileged: bool,
    /// Whether processes were named.
    pub named: bool,
}

impl Round {
    /// What is wrong with the processes that were named, one line each.
    pub fn complaints(&self) -> Vec<String> {
        if !self.named {
            return Vec::new();
        }
        let errors = self
            .errors
            .iter()
            .map(|error| printable(&error.to_string()));
        let without = self.without_cuda.iter().map(|plain| {
            let below = plain.below.as_ref();
            format!(
                "process {} ({}) does not use CUDA: libcuda is not mapped in it{}",
                plain.identity.pid,
                printable(&plain.identity.name),
                below.map_or_else(String::new, |below| format!("; {below}: --tree"))
            )
        });
        let missing = self
            .processes
            .iter()
            .filter_map(|process| process.missing_right.clone());
        errors.chain(without).chain(missing).collect()
    }

    /// The command's status.
    pub fn exit(&self) -> Exit {
        let denied = |process: &&Process| process.missing_right.is_some();
        let denied = self.processes.iter().filter(denied).count();
        let shown = self.processes.len() - denied;
        match (shown, denied + self.errors.len()) {
            _ if !self.named => Exit::Done,
            (0, 0) => Exit::Failed,
            (_, 0) => Exit::Done,
            (0, _) if self.errors.is_empty() => Exit::Refused,
            (0, _) => Exit::Failed,
            _ => Exit::SomeFailed,
        }
    }

    /// What a reader of the whole should know beside the processes.
    pub fn notes(&self) -> Vec<String> {
        let mut notes = Vec::new();
        match &self.nvml {
            Err(reason) => notes.push(format!(
                "no word from NVML, so GPU memory is not shown: {}",
                printable(reason)
            )),
            Ok(gpus) => notes.extend(strangers(gpus)),
        }
        if !self.unreadable.is_empty() {
            let mend = if self.privileged {
                "not even with CAP_SYS_PTRACE (a security module or another user namespace)"
            } else {
                "run as root, or with CAP_SYS_PTRACE, to see all"
            };
            notes.push(format!(
                "{} ({}) may not be looked into, and may use CUDA: {mend}",
                count(self.unreadable.len(), "process", "processes"),
                first_of(&self.unreadable)
            ));
        }
        notes
    }
}

/// The first few ids, and how many more there are.
fn first_of(pids: &[i32]) -> String {
    let named: Vec<String> = pids.iter().take(NAMED).map(i32::to_string).collect();
    match pids.len().saturating_sub(NAMED) {
        0 => named.join(", "),
        more => format!("{} and {more} more", named.join(", ")),
    }
}

/// NVML's processes that do not exist here: in a container it may count as the host does.
fn strangers(gpus: &Gpus) -> Option<String> {
    let mut pids: Vec<i32> = gpus
        .gpus
        .iter()
        .flat_map(|gpu| gpu.processes.iter().map(|process| process.pid))
        .filter(|pid| !std::path::Path::new(&format!("/proc/{pid}")).exists())
        .collect();
    pids.sort_unstable();
    pids.dedup();
    (!pids.is_empty()).then(|| {
        format!(
            "NVML lists {} that this pid namespace does not have: in a container it may count as the host does, and then it \
             cannot be told which is which",
            count(pids.len(), "process", "processes")
        )
    })
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::process::identity::IdentityError;

    /// A process that has initialised CUDA, without the library.
    pub fn process(pid: i32) -> Process {
        Process {
            identity: Identity {
                pid,
                parent: 1,
                started: 1,
                uid: 0,
                name: "python3".into(),
                namespace_pids: vec![pid],
            },
            user: "root".into(),
            missing_right: None,
            command: vec!["python3".into(), "-m".into(), "server".into()],
            cuda: Some(CudaUse::Initialised {
                restore_thread: pid + 1,
            }),
            rss_anon: 1 << 30,
            private: 1 << 30,
            held: Some(Vec::new()),
            nvml: None,
            library: Library::Absent,
            preload: None,
            buffer_is_mapped: false,
            buffer_pages: None,
            library_above: None,
            cuda_below: Vec::new(),
        }
    }

    /// One with the library, with a record that is made by `change`.
    pub fn with_record(pid: i32, change: impl FnOnce(&cudasnap_wire::Record)) -> Process {
        let record = cudasnap_wire::Record::new(0x0100);
        record
            .pid
            .store(pid as u32, std::sync::atomic::Ordering::Relaxed);
        change(&record);
        let mut process = process(pid);
        process.library = Library::Loaded(Box::new(Loaded {
            path: "/opt/cudasnap/0.1.0/libcudasnap.so".into(),
            file: FileState::Same,
            record: RecordView::new(&record),
        }));
        process
    }

    pub fn round(processes: Vec<Process>) -> Round {
        Round {
            unix_ns: 1_000_000_000_000,
            nvml: Err("no library".into()),
            processes,
            without_cuda: Vec::new(),
            errors: Vec::new(),
            unreadable: Vec::new(),
            privileged: false,
            named: true,
        }
    }

    #[test]
    fn the_status_says_whether_all_could_be_shown() {
        let fine = || process(7);
        let denied = || Process {
            missing_right: Some("no right".into()),
            ..process(8)
        };
        let error = SelectionError::Identity(IdentityError::NoSuchProcess(9));
        let plain = Plain {
            identity: process(10).identity,
            below: None,
        };
        for (processes, errors, without, exit) in [
            (vec![fine()], 0, 0, Exit::Done),
            (vec![fine()], 0, 1, Exit::Done),
            (vec![fine()], 1, 0, Exit::SomeFailed),
            (vec![fine(), denied()], 0, 0, Exit::SomeFailed),
            (vec![denied()], 0, 0, Exit::Refused),
            (vec![denied()], 1, 0, Exit::Failed),
            (vec![], 1, 0, Exit::Failed),
            (vec![], 0, 2, Exit::Failed),
        ] {
            let mut round = round(processes);
            round.errors = vec![error.clone(); errors];
            round.without_cuda = vec![plain.clone(); without];
            assert_eq!(round.exit(), exit);
            assert_eq!(
                round.complaints().is_empty(),
                exit == Exit::Done && without == 0
            );
            round.named = false;
            assert_eq!((round.exit(), round.complaints().len()), (Exit::Done, 0));
        }
    }

    #[test]
    fn a_note_names_the_first_that_may_not_be_looked_into() {
        let note = |pids: std::ops::Range<i32>| {
            let mut round = round(Vec::new());
            round.unreadable = pids.collect();
            round.notes().pop().unwrap()
        };
        assert!(note(7..8).starts_with("1 process (7) may not be looked into, and may use CUDA: "));
        let many = note(7..14);
        assert!(
            many.starts_with("7 processes (7, 8, 9, 10, 11 and 2 more) may not"),
            "{many}"
        );
    }

    #[test]
    fn a_complaint_cannot_command_the_terminal() {
        let mut round = round(Vec::new());
        let mut identity = process(7).identity;
        identity.name = "\u{1b}[2J".into();
        round.without_cuda.push(Plain {
            identity,
            below: None,
        });
        assert!(!round.complaints()[0].contains('\u{1b}'));
    }
}
