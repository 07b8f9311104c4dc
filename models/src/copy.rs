//! The plan is the shipped one; the loop is the model's.

#[path = "../../src/copy/plan.rs"]
pub mod plan;

pub mod kernel {
    pub type Copy = unsafe fn(dst: *mut u8, src: *const u8, len: usize);
    pub type Flush = unsafe fn(from: *const u8, len: usize);
}
