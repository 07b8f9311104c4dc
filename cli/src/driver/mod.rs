//! The CUDA driver's checkpoint calls, as libcuda.so.1 exports them.
//!
//! The layouts are those of cuda.h from CUDA 12.8 on (`CUcheckpoint*Args`, 64 bytes each; 13.0 gave a meaning to the first
//! two fields of the restore arguments). Everything reserved is passed as zero, in structures that are longer than today's, so
//! that a driver which reads more finds zeroes.

mod device_map;
mod error;
mod kernel;
pub mod memory;
mod state;

use std::ffi::{c_char, c_int, c_uint, CStr};
use std::mem::ManuallyDrop;
use std::ptr;

use libloading::Library;

pub use device_map::GpuPair;
pub use error::DriverError;
pub use kernel::kernel_driver_version;
pub use state::State;

/// Name by which the loader finds the driver.
pub const LIBRARY: &str = "libcuda.so.1";

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
        Err(self.error(call, code))
    }

    /// The error with this number, in the driver's words, as if `call` had returned it.
    pub fn error(&self, call: &'static str, code: u32) -> DriverError {
        DriverError::Refused {
            call,
            code,
            name: self.error_text("cuGetErrorName", code),
            text: self.error_text("cuGetErrorString", code),
        }
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
}
