//! The CUDA driver's checkpoint calls, as libcuda.so.1 exports them.
//!
//! The layouts are those of cuda.h from CUDA 12.8 on (`CUcheckpoint*Args`, 64 bytes each; 13.0 gave a meaning to the first
//! two fields of the restore arguments). Everything reserved is passed as zero, in structures that are longer than today's, so
//! that a driver which reads more finds zeroes.

use std::ffi::{c_char, c_int, c_uint, CStr};
use std::fmt;
use std::mem::ManuallyDrop;
use std::ptr;

use libloading::Library;
use serde::{Serialize, Serializer};

/// Name by which the loader finds the driver.
pub const LIBRARY: &str = "libcuda.so.1";

/// State of a process, as the driver sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    /// CUDA calls work.
    Running,
    /// CUDA calls wait.
    Locked,
    /// The device memory lies in the process's own memory, and the device is let go.
    Checkpointed,
    /// A step failed in a way that cannot be repeated.
    Failed,
    /// A number that this build does not know.
    Unknown(u32),
}

impl From<u32> for State {
    fn from(number: u32) -> Self {
        match number {
            0 => State::Running,
            1 => State::Locked,
            2 => State::Checkpointed,
            3 => State::Failed,
            other => State::Unknown(other),
        }
    }
}

impl fmt::Display for State {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            State::Running => out.pad("running"),
            State::Locked => out.pad("locked"),
            State::Checkpointed => out.pad("checkpointed"),
            State::Failed => out.pad("failed"),
            State::Unknown(number) => write!(out, "unknown state {number}"),
        }
    }
}

impl Serialize for State {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(self)
    }
}

/// Why a driver call gave no result.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DriverError {
    /// The library cannot be loaded; with the loader's words.
    NoLibrary(String),
    /// The library does not export this call: a driver before 570 has no checkpoint calls.
    NoCall(&'static str),
    /// The call returned an error.
    Refused {
        /// Name of the call.
        call: &'static str,
        /// Number (`CUresult`).
        code: u32,
        /// Its name, such as `CUDA_ERROR_NOT_SUPPORTED`; empty when the driver has none.
        name: String,
        /// The driver's text for it.
        text: String,
    },
}

impl fmt::Display for DriverError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            DriverError::NoLibrary(text) => write!(out, "cannot load {LIBRARY}: {text}"),
            DriverError::NoCall(call) => write!(out, "{LIBRARY} has no {call}"),
            DriverError::Refused {
                call,
                code,
                name,
                text,
            } => write!(out, "{call}: error {code} {name} \"{text}\""),
        }
    }
}

impl std::error::Error for DriverError {}

/// `CUcheckpointLockArgs`, followed by zeroes.
#[repr(C)]
struct LockArgs {
    timeout_ms: c_uint,
    reserved0: c_uint,
    reserved: [u64; 31],
}

/// `CUcheckpointCheckpointArgs`, `CUcheckpointRestoreArgs` without a device map, `CUcheckpointUnlockArgs`: all zero.
#[repr(C)]
struct PlainArgs {
    reserved: [u64; 32],
}

/// `CUcheckpointRestoreArgs` with a device map, followed by zeroes.
#[repr(C)]
struct RestoreArgs {
    pairs: *const GpuPair,
    count: c_uint,
    reserved: [c_uint; 61],
}

type Restore = unsafe extern "C" fn(c_int, *mut RestoreArgs) -> c_uint;
type Init = unsafe extern "C" fn(c_uint) -> c_uint;
type IntOut = unsafe extern "C" fn(*mut c_int) -> c_uint;
type DeviceGet = unsafe extern "C" fn(*mut c_int, c_int) -> c_uint;
type DeviceName = unsafe extern "C" fn(*mut c_char, c_int, c_int) -> c_uint;
type ErrorText = unsafe extern "C" fn(c_uint, *mut *const c_char) -> c_uint;
type Lock = unsafe extern "C" fn(c_int, *mut LockArgs) -> c_uint;
type Act = unsafe extern "C" fn(c_int, *mut PlainArgs) -> c_uint;
type GetState = unsafe extern "C" fn(c_int, *mut c_uint) -> c_uint;
type GetThread = unsafe extern "C" fn(c_int, *mut c_int) -> c_uint;

/// The driver, loaded and initialised in this process.
#[derive(Debug)]
pub struct Driver {
    /// Never unloaded: `cuInit` has started a thread that runs in it.
    library: ManuallyDrop<Library>,
}

impl Driver {
    /// Loads the library and calls `cuInit`, which takes 0.3 s and more.
    ///
    /// # Errors
    /// No library, or what `cuInit` returned (100: no device).
    pub fn load() -> Result<Self, DriverError> {
        // SAFETY: libcuda's constructors are meant to run in any process that loads it.
        let library = unsafe { Library::new(LIBRARY) }
            .map_err(|error| DriverError::NoLibrary(error.to_string()))?;
        let driver = Driver {
            library: ManuallyDrop::new(library),
        };
        let init: Init = driver.call("cuInit")?;
        // SAFETY: the signature is cuda.h's; 0 is the only flag.
        driver.checked("cuInit", unsafe { init(0) })?;
        Ok(driver)
    }

    /// Version of CUDA that the driver speaks, 1000 * major + 10 * minor.
    pub fn cuda_version(&self) -> Result<u32, DriverError> {
        self.number("cuDriverGetVersion")
    }

    /// Number of devices that this process may use.
    pub fn device_count(&self) -> Result<u32, DriverError> {
        self.number("cuDeviceGetCount")
    }

    /// Name of the device with this number.
    pub fn device_name(&self, number: u32) -> Result<String, DriverError> {
        let get: DeviceGet = self.call("cuDeviceGet")?;
        let name: DeviceName = self.call("cuDeviceGetName")?;
        let mut device = 0;
        // SAFETY: cuda.h's signature; `device` is valid for the call.
        self.checked("cuDeviceGet", unsafe { get(&mut device, number as c_int) })?;
        let mut text = [0u8; 256];
        // SAFETY: cuda.h's signature; the length is that of `text`, less a final zero that stays.
        let code = unsafe { name(text.as_mut_ptr().cast(), 255, device) };
        self.checked("cuDeviceGetName", code)?;
        let text = CStr::from_bytes_until_nul(&text).unwrap_or_default();
        Ok(text.to_string_lossy().into_owned())
    }

    /// Lets the process's CUDA calls wait and those under way finish. Gives up after `timeout_ms`; 0 waits for ever.
    pub fn lock(&self, pid: i32, timeout_ms: u32) -> Result<(), DriverError> {
        const CALL: &str = "cuCheckpointProcessLock";
        let lock: Lock = self.call(CALL)?;
        let mut args = LockArgs {
            timeout_ms,
            reserved0: 0,
            reserved: [0; 31],
        };
        // SAFETY: cuda.h's signature; `args` starts with its structure, is longer, and outlives the call.
        self.checked(CALL, unsafe { lock(pid, &mut args) })
    }

    /// Brings the device memory of a locked process into its own memory and lets go of the device.
    pub fn checkpoint(&self, pid: i32) -> Result<(), DriverError> {
        self.act("cuCheckpointProcessCheckpoint", pid)
    }

    /// The way back; the process stays locked.
    pub fn restore(&self, pid: i32) -> Result<(), DriverError> {
        self.act("cuCheckpointProcessRestore", pid)
    }

    /// The way back, to other GPUs where `pairs` says so; none: to the same ones.
    pub fn restore_to(&self, pid: i32, pairs: &[GpuPair]) -> Result<(), DriverError> {
        const CALL: &str = "cuCheckpointProcessRestore";
        if pairs.is_empty() {
            return self.restore(pid);
        }
        let restore: Restore = self.call(CALL)?;
        let mut args = RestoreArgs {
            pairs: pairs.as_ptr(),
            count: pairs.len() as c_uint,
            reserved: [0; 61],
        };
        // SAFETY: cuda.h's signature; `args` starts with its structure, is longer, and outlives the call, as do the pairs.
        self.checked(CALL, unsafe { restore(pid, &mut args) })
    }

    /// Lets the process's CUDA calls go on.
    pub fn unlock(&self, pid: i32) -> Result<(), DriverError> {
        self.act("cuCheckpointProcessUnlock", pid)
    }

    /// State of the process.
    pub fn state(&self, pid: i32) -> Result<State, DriverError> {
        const CALL: &str = "cuCheckpointProcessGetState";
        let get: GetState = self.call(CALL)?;
        let mut state = 0;
        // SAFETY: cuda.h's signature; `state` is valid for the call.
        self.checked(CALL, unsafe { get(pid, &mut state) })?;
        Ok(State::from(state))
    }

    /// The thread of the process that does the driver's work during checkpoint and restore.
    pub fn restore_thread(&self, pid: i32) -> Result<i32, DriverError> {
        const CALL: &str = "cuCheckpointProcessGetRestoreThreadId";
        let get: GetThread = self.call(CALL)?;
        let mut tid = 0;
        // SAFETY: cuda.h's signature; `tid` is valid for the call.
        self.checked(CALL, unsafe { get(pid, &mut tid) })?;
        Ok(tid)
    }

    fn act(&self, call: &'static str, pid: i32) -> Result<(), DriverError> {
        let act: Act = self.call(call)?;
        let mut args = PlainArgs { reserved: [0; 32] };
        // SAFETY: cuda.h's signature; `args` is zero, longer than its structure, and outlives the call.
        self.checked(call, unsafe { act(pid, &mut args) })
    }

    fn number(&self, call: &'static str) -> Result<u32, DriverError> {
        let get: IntOut = self.call(call)?;
        let mut number = 0;
        // SAFETY: cuda.h's signature; `number` is valid for the call.
        self.checked(call, unsafe { get(&mut number) })?;
        Ok(u32::try_from(number).unwrap_or(0))
    }

    /// The exported function. `T` must be its type in cuda.h.
    fn call<T: Copy>(&self, name: &'static str) -> Result<T, DriverError> {
        // SAFETY: each caller names a function and its type from cuda.h; the pointer is used while the library is loaded.
        let symbol = unsafe { self.library.get::<T>(name.as_bytes()) };
        symbol
            .map(|symbol| *symbol)
            .map_err(|_| DriverError::NoCall(name))
    }

    fn checked(&self, call: &'static str, code: c_uint) -> Result<(), DriverError> {
        if code == 0 {
            return Ok(());
        }
        Err(DriverError::Refused {
            call,
            code,
            name: self.error_text("cuGetErrorName", code),
            text: self.error_text("cuGetErrorString", code),
        })
    }

    fn error_text(&self, call: &'static str, code: c_uint) -> String {
        let Ok(get) = self.call::<ErrorText>(call) else {
            return String::new();
        };
        let mut text: *const c_char = ptr::null();
        // SAFETY: cuda.h's signature; `text` is valid for the call.
        if unsafe { get(code, &mut text) } != 0 || text.is_null() {
            return String::new();
        }
        // SAFETY: the driver returned success with a pointer to a string constant of its own.
        unsafe { CStr::from_ptr(text) }
            .to_string_lossy()
            .into_owned()
    }
}

/// A GPU that a process was checkpointed on, and the one to restore it to (`CUcheckpointGpuPair` of CUDA 13).
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GpuPair {
    old: [u8; 16],
    new: [u8; 16],
}

impl GpuPair {
    /// Parses `OLD=NEW`, both UUIDs with or without the `GPU-` that nvidia-smi prints.
    ///
    /// # Errors
    /// Says which part is no UUID.
    pub fn parse(text: &str) -> Result<Self, String> {
        let (old, new) = text
            .split_once('=')
            .ok_or_else(|| format!("\"{text}\" is not of the form OLD=NEW"))?;
        Ok(GpuPair {
            old: parse_uuid(old)?,
            new: parse_uuid(new)?,
        })
    }
}

fn parse_uuid(text: &str) -> Result<[u8; 16], String> {
    let wrong = || format!("\"{text}\" is no UUID of a GPU (nvidia-smi -L prints them)");
    let plain = text.strip_prefix("GPU-").unwrap_or(text);
    let groups: Vec<usize> = plain.split('-').map(str::len).collect();
    let digits = plain.replace('-', "");
    if groups != [8, 4, 4, 4, 12] || !digits.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return Err(wrong());
    }
    let number = u128::from_str_radix(&digits, 16).map_err(|_| wrong())?;
    Ok(number.to_be_bytes())
}

/// Version of the NVIDIA kernel driver, such as `580.159.04`; `None` when none is loaded.
pub fn kernel_driver_version() -> Option<String> {
    let text = std::fs::read_to_string("/proc/driver/nvidia/version").ok()?;
    version_in(&text)
}

/// The first word that looks like a version: digits and at least one dot.
fn version_in(text: &str) -> Option<String> {
    let is_number = |part: &str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
    let is_version = |word: &&str| word.contains('.') && word.split('.').all(is_number);
    text.split_whitespace().find(is_version).map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn argument_structures_cover_those_of_cuda_h() {
        assert_eq!(std::mem::offset_of!(LockArgs, reserved), 8);
        assert!(size_of::<LockArgs>() >= 64 && size_of::<PlainArgs>() >= 72);
        assert_eq!(std::mem::offset_of!(RestoreArgs, count), 8);
        assert!(size_of::<RestoreArgs>() >= 72);
    }

    #[test]
    fn a_device_map_is_two_uuids() {
        let pair = GpuPair::parse(
            "GPU-00112233-4455-6677-8899-aabbccddeeff=ffeeddcc-bbaa-9988-7766-554433221100",
        )
        .unwrap();
        assert_eq!(
            (pair.old[0], pair.old[15], pair.new[0], pair.new[15]),
            (0x00, 0xff, 0xff, 0x00)
        );
        for bad in [
            "",
            "=",
            "0=1",
            "GPU-0=GPU-1",
            "00112233-4455-6677-8899-aabbccddeeff",
            "00112233-4455-6677-8899-aabbccddeefg=0",
        ] {
            assert!(GpuPair::parse(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn states_have_the_words_of_nvidias_tool() {
        let words: Vec<String> = (0..5)
            .map(|number| State::from(number).to_string())
            .collect();
        assert_eq!(
            words,
            [
                "running",
                "locked",
                "checkpointed",
                "failed",
                "unknown state 4"
            ]
        );
    }

    #[test]
    fn the_kernel_drivers_version_is_found_in_its_line() {
        let text =
            "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.159.04  Release Build";
        assert_eq!(version_in(text).as_deref(), Some("580.159.04"));
        assert_eq!(version_in("no . version"), None);
    }

    #[test]
    fn errors_name_call_number_and_text() {
        let error = DriverError::Refused {
            call: "cuInit",
            code: 100,
            name: "CUDA_ERROR_NO_DEVICE".into(),
            text: "no device".into(),
        };
        assert_eq!(
            error.to_string(),
            "cuInit: error 100 CUDA_ERROR_NO_DEVICE \"no device\""
        );
    }
}
