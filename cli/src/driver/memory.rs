//! Memory of a device, through the driver's API alone: what `cudasnap workload` holds, and what pinned copies are measured with.
//!
//! All functions are looked up when the device is opened, so that none of the loader's locks is taken afterwards.

use std::ffi::{c_char, c_int, c_uint, c_void};
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};

use super::{DeviceGet, Driver, DriverError};

/// `CUcontext`: a pointer that only the driver follows.
type Context = usize;
/// `CUdeviceptr`
type Address = u64;

type Retain = unsafe extern "C" fn(*mut Context, c_int) -> c_uint;
type SetCurrent = unsafe extern "C" fn(Context) -> c_uint;
type Synchronize = unsafe extern "C" fn() -> c_uint;
type GetInfo = unsafe extern "C" fn(*mut usize, *mut usize) -> c_uint;
type Alloc = unsafe extern "C" fn(*mut Address, usize) -> c_uint;
type Free = unsafe extern "C" fn(Address) -> c_uint;
type ToDevice = unsafe extern "C" fn(Address, *const c_void, usize) -> c_uint;
type ToHost = unsafe extern "C" fn(*mut c_void, Address, usize) -> c_uint;
type Set = unsafe extern "C" fn(Address, u8, usize) -> c_uint;
type HostAlloc = unsafe extern "C" fn(*mut *mut c_void, usize, c_uint) -> c_uint;
type HostFree = unsafe extern "C" fn(*mut c_void) -> c_uint;
type GetUuid = unsafe extern "C" fn(*mut c_char, c_int) -> c_uint;

/// The functions that work on an open device.
#[derive(Debug)]
struct Calls {
    set_current: SetCurrent,
    synchronize: Synchronize,
    info: GetInfo,
    alloc: Alloc,
    free: Free,
    to_device: ToDevice,
    to_host: ToHost,
    set: Set,
    host_alloc: HostAlloc,
    host_free: HostFree,
}

impl Calls {
    fn of(driver: &Driver) -> Result<Self, DriverError> {
        Ok(Calls {
            set_current: driver.call("cuCtxSetCurrent")?,
            synchronize: driver.call("cuCtxSynchronize")?,
            info: driver.call("cuMemGetInfo_v2")?,
            alloc: driver.call("cuMemAlloc_v2")?,
            free: driver.call("cuMemFree_v2")?,
            to_device: driver.call("cuMemcpyHtoD_v2")?,
            to_host: driver.call("cuMemcpyDtoH_v2")?,
            set: driver.call("cuMemsetD8_v2")?,
            host_alloc: driver.call("cuMemHostAlloc")?,
            host_free: driver.call("cuMemFreeHost")?,
        })
    }
}

/// Device memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Room {
    /// Bytes that are free.
    pub free: u64,
    /// Bytes that it has.
    pub total: u64,
}

/// Bytes on a device. They are freed with the process, or by [`Device::free`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Block {
    address: Address,
    bytes: u64,
}

impl Block {
    /// How many.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Where a copy of so many bytes from `offset` on lies.
    ///
    /// # Panics
    /// When it does not lie inside: the driver would read or write what is not ours.
    fn at(&self, offset: u64, bytes: usize) -> Address {
        let end = offset.checked_add(bytes as u64);
        assert!(
            end.is_some_and(|end| end <= self.bytes),
            "{bytes} bytes at {offset} of {}",
            self.bytes
        );
        self.address + offset
    }
}

/// A device whose primary context this process holds. Calls go to the context that is current in the calling thread: each thread
/// calls [`Device::enter`] first.
#[derive(Debug)]
pub struct Device<'a> {
    driver: &'a Driver,
    context: Context,
    calls: Calls,
}

impl Driver {
    /// Opens the device with this number, and makes it current in this thread. The context stays until the process ends.
    ///
    /// # Errors
    /// No such device, or no memory for its context.
    pub fn open(&self, number: u32) -> Result<Device<'_>, DriverError> {
        let get: DeviceGet = self.call("cuDeviceGet")?;
        let retain: Retain = self.call("cuDevicePrimaryCtxRetain")?;
        let (mut device, mut context) = (0, 0);
        let ordinal = c_int::try_from(number).unwrap_or(c_int::MAX);
        // SAFETY: cuda.h's signature; `device` is valid for the call.
        self.checked("cuDeviceGet", unsafe { get(&mut device, ordinal) })?;
        // SAFETY: cuda.h's signature; `context` is valid for the call.
        let code = unsafe { retain(&mut context, device) };
        self.checked("cuDevicePrimaryCtxRetain", code)?;
        let opened = Device {
            driver: self,
            context,
            calls: Calls::of(self)?,
        };
        opened.enter()?;
        Ok(opened)
    }

    /// The UUID of the device with this number, as nvidia-smi writes it; `None` when the driver does not tell.
    pub fn uuid(&self, number: u32) -> Option<String> {
        let get: DeviceGet = self.call("cuDeviceGet").ok()?;
        let uuid = self.call::<GetUuid>("cuDeviceGetUuid_v2");
        let uuid = uuid.or_else(|_| self.call("cuDeviceGetUuid")).ok()?;
        let mut device = 0;
        let mut bytes: [c_char; 16] = [0; 16];
        // SAFETY: cuda.h's signature; `device` is valid for the call.
        let got = unsafe { get(&mut device, c_int::try_from(number).ok()?) };
        // SAFETY: cuda.h's signature; a CUuuid is 16 bytes.
        if got != 0 || unsafe { uuid(bytes.as_mut_ptr(), device) } != 0 {
            return None;
        }
        Some(written(bytes.map(|byte| byte as u8)))
    }
}

fn written(uuid: [u8; 16]) -> String {
    let digits: String = uuid.iter().map(|byte| format!("{byte:02x}")).collect();
    let cuts = [0..8, 8..12, 12..16, 16..20, 20..32];
    let groups = cuts.map(|cut| digits.get(cut).unwrap_or_default().to_owned());
    format!("GPU-{}", groups.join("-"))
}

impl Device<'_> {
    /// Makes the device current in this thread.
    ///
    /// # Errors
    /// What the driver says.
    pub fn enter(&self) -> Result<(), DriverError> {
        // SAFETY: a context that this process has retained and never releases.
        self.checked("cuCtxSetCurrent", unsafe {
            (self.calls.set_current)(self.context)
        })
    }

    /// Waits for everything that was asked of it.
    ///
    /// # Errors
    /// What the driver says.
    pub fn finish(&self) -> Result<(), DriverError> {
        // SAFETY: takes nothing.
        self.checked("cuCtxSynchronize", unsafe { (self.calls.synchronize)() })
    }

    /// Its memory.
    ///
    /// # Errors
    /// What the driver says.
    pub fn room(&self) -> Result<Room, DriverError> {
        let (mut free, mut total) = (0, 0);
        // SAFETY: cuda.h's signature; both are valid for the call.
        let code = unsafe { (self.calls.info)(&mut free, &mut total) };
        self.checked("cuMemGetInfo", code)?;
        Ok(Room {
            free: free as u64,
            total: total as u64,
        })
    }

    /// Memory on it, of any contents.
    ///
    /// # Errors
    /// Out of memory.
    pub fn allocate(&self, bytes: u64) -> Result<Block, DriverError> {
        let mut address = 0;
        let length = usize::try_from(bytes).unwrap_or(usize::MAX);
        // SAFETY: cuda.h's signature; `address` is valid for the call.
        let code = unsafe { (self.calls.alloc)(&mut address, length) };
        self.checked("cuMemAlloc", code)?;
        Ok(Block { address, bytes })
    }

    /// Gives memory back.
    ///
    /// # Errors
    /// What the driver says.
    pub fn free(&self, block: Block) -> Result<(), DriverError> {
        // SAFETY: an address that cuMemAlloc gave; whoever still has a copy of the block gets an error value, not foreign memory.
        self.checked("cuMemFree", unsafe { (self.calls.free)(block.address) })
    }

    /// Fills a block with zeros.
    ///
    /// # Errors
    /// What the driver says.
    pub fn clear(&self, block: &Block) -> Result<(), DriverError> {
        // SAFETY: cuda.h's signature; the length is the allocation's.
        let code = unsafe { (self.calls.set)(block.address, 0, block.bytes as usize) };
        self.checked("cuMemsetD8", code)?;
        self.finish()
    }

    /// Copies to the device.
    ///
    /// # Errors
    /// What the driver says.
    pub fn write(&self, to: &Block, offset: u64, from: &[u64]) -> Result<(), DriverError> {
        let bytes = size_of_val(from);
        let address = to.at(offset, bytes);
        // SAFETY: cuda.h's signature; `from` has so many bytes, and `at` has checked that they fit the allocation.
        let code = unsafe { (self.calls.to_device)(address, from.as_ptr().cast(), bytes) };
        self.checked("cuMemcpyHtoD", code)
    }

    /// Copies from the device.
    ///
    /// # Errors
    /// What the driver says.
    pub fn read(&self, from: &Block, offset: u64, into: &mut [u64]) -> Result<(), DriverError> {
        let bytes = size_of_val(into);
        let address = from.at(offset, bytes);
        // SAFETY: cuda.h's signature; `into` has so many bytes, any of which make a u64, and `at` has checked the allocation.
        let code = unsafe { (self.calls.to_host)(into.as_mut_ptr().cast(), address, bytes) };
        self.checked("cuMemcpyDtoH", code)
    }

    /// Main memory that the device reads and writes by itself, in words of 8 bytes, all zero.
    ///
    /// # Errors
    /// Out of memory, or of memory that may be locked.
    pub fn pinned(&self, words: usize) -> Result<Pinned<'_>, DriverError> {
        let mut start = std::ptr::null_mut();
        let bytes = words.saturating_mul(8).max(8);
        // SAFETY: cuda.h's signature; `start` is valid for the call.
        let code = unsafe { (self.calls.host_alloc)(&mut start, bytes, 0) };
        self.checked("cuMemHostAlloc", code)?;
        // SAFETY: the driver gave so many writable bytes, which nobody else has.
        unsafe { std::ptr::write_bytes(start.cast::<u8>(), 0, bytes) };
        Ok(Pinned {
            start: start.cast(),
            words,
            free: self.calls.host_free,
            device: PhantomData,
        })
    }

    fn checked(&self, call: &'static str, code: c_uint) -> Result<(), DriverError> {
        self.driver.checked(call, code)
    }
}

/// Pinned main memory; given back when dropped.
#[derive(Debug)]
pub struct Pinned<'a> {
    start: *mut u64,
    words: usize,
    free: HostFree,
    device: PhantomData<&'a ()>,
}

impl Deref for Pinned<'_> {
    type Target = [u64];

    fn deref(&self) -> &[u64] {
        // SAFETY: so many words, page aligned, all written once, and ours until dropped.
        unsafe { std::slice::from_raw_parts(self.start, self.words) }
    }
}

impl DerefMut for Pinned<'_> {
    fn deref_mut(&mut self) -> &mut [u64] {
        // SAFETY: as above; `self` is borrowed mutably for as long.
        unsafe { std::slice::from_raw_parts_mut(self.start, self.words) }
    }
}

impl Drop for Pinned<'_> {
    fn drop(&mut self) {
        // SAFETY: what cuMemHostAlloc gave, once.
        let _ = unsafe { (self.free)(self.start.cast()) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_uuid_is_written_as_nvidia_smi_writes_it() {
        let mut bytes = [0u8; 16];
        for (number, byte) in bytes.iter_mut().enumerate() {
            *byte = number as u8 * 16 + 1;
        }
        assert_eq!(written(bytes), "GPU-01112131-4151-6171-8191-a1b1c1d1e1f1");
    }

    #[test]
    fn a_copy_lies_inside_its_block() {
        let block = Block {
            address: 1 << 40,
            bytes: 64,
        };
        assert_eq!(block.at(8, 56), (1 << 40) + 8);
        for (offset, bytes) in [(8, 57), (65, 0), (u64::MAX, 8)] {
            let beyond = std::panic::catch_unwind(|| block.at(offset, bytes));
            assert!(beyond.is_err(), "{offset} {bytes}");
        }
    }
}
