//! The kernel of the models: threads that are born, sleep, die or are left behind, and a clock that stands still or jumps.

use std::cell::RefCell;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use crate::cell::Tracked;
use crate::sync::{current, spawn, yield_now, AtomicU32, Ordering, ThreadId};

pub type SysResult = Result<usize, i32>;
pub type ThreadEntry = unsafe extern "C" fn(usize);

/// What a model decides about its kernel.
pub struct Kernel {
    /// The clock.
    pub now_ns: Box<dyn Fn() -> u64>,
    /// Threads that are refused, by the order in which they are asked for.
    pub refused: fn(usize) -> bool,
    /// Populates a range; false when it is refused.
    pub populate: Box<dyn Fn(usize, usize) -> bool>,
    /// Called before each access of a helper, at which it holds no part: it may keep the helper as long as it likes.
    pub stop: Option<Box<dyn Fn(u32)>>,
    /// Says of a living thread that it does not exist.
    pub lies: bool,
}

impl Default for Kernel {
    fn default() -> Self {
        Kernel {
            now_ns: Box::new(|| 1),
            refused: |_| false,
            populate: Box::new(|_, _| true),
            stop: None,
            lies: false,
        }
    }
}

#[derive(Default)]
struct Now {
    kernel: Arc<Kernel>,
    asked: usize,
    /// Threads that exist, with the word that is cleared when they end.
    alive: BTreeMap<u32, &'static AtomicU32>,
    ids: HashMap<ThreadId, u32>,
    /// Threads of the model that have not returned: those that were killed stay to the end of the execution.
    running: usize,
    /// What lies on each stack.
    stacks: BTreeMap<usize, Arc<Tracked>>,
}

// SAFETY: the threads of an execution are run by one thread of the machine.
unsafe impl Send for Kernel {}
// SAFETY: as above.
unsafe impl Sync for Kernel {}

thread_local! {
    static NOW: RefCell<Now> = RefCell::new(Now::default());
}

/// Begins an execution with this kernel.
pub fn boot(kernel: Kernel) {
    NOW.with(|now| {
        *now.borrow_mut() = Now {
            kernel: Arc::new(kernel),
            ..Now::default()
        }
    });
}

fn kernel() -> Arc<Kernel> {
    NOW.with(|now| now.borrow().kernel.clone())
}

pub fn now_ns() -> u64 {
    (kernel().now_ns)()
}

pub fn is_past(deadline_ns: u64) -> bool {
    now_ns() > deadline_ns
}

/// The kernel of the models never says "again".
pub fn again(mut call: impl FnMut() -> SysResult) -> SysResult {
    call()
}

/// What /proc says of a thread: nothing here; then it is taken for who its number says it is.
#[derive(Default)]
pub struct Told {
    pub name: Option<[u8; 16]>,
    pub id: Option<u32>,
    pub blocked: Option<u64>,
}

pub const ALL_BLOCKED: u64 = !0;

pub fn told_of_thread(_tid: u32) -> Told {
    Told::default()
}

pub fn thread_cpu_ns() -> u64 {
    0
}

pub fn getpid() -> u32 {
    1
}

pub fn page_size() -> usize {
    4096
}

pub fn sched_yield() {
    yield_now();
}

pub fn futex_wait(_word: &AtomicU32, _value: u32, _timeout_ns: u64) {
    yield_now();
}

pub fn set_thread_name(_name: &[u8; 16]) -> bool {
    true
}

pub fn block_signals() -> Result<u64, i32> {
    Ok(0)
}

pub fn restore_signals(_mask: u64) {}

/// # Safety
/// As the real one.
pub unsafe fn madvise(addr: usize, len: usize, _advice: i32) -> SysResult {
    if (kernel().populate)(addr, len) {
        Ok(0)
    } else {
        Err(libc::EFAULT)
    }
}

pub fn thread_exists(_pid: u32, tid: u32) -> bool {
    !kernel().lies && NOW.with(|now| now.borrow().alive.contains_key(&tid))
}

/// # Safety
/// The word lives as long as the execution.
pub unsafe fn start_thread(
    stack_top: usize,
    tid: &AtomicU32,
    entry: ThreadEntry,
    argument: usize,
) -> SysResult {
    // SAFETY: promised by the caller.
    let word: &'static AtomicU32 = unsafe { &*core::ptr::from_ref(tid) };
    let id = NOW.with(|now| {
        let mut now = now.borrow_mut();
        now.asked += 1;
        if (now.kernel.refused)(now.asked - 1) {
            return None;
        }
        let id = 100 + now.asked as u32;
        now.alive.insert(id, word);
        now.running += 1;
        Some(id)
    });
    let Some(id) = id else {
        return Err(libc::EAGAIN);
    };
    let stack = NOW.with(|now| {
        let mut now = now.borrow_mut();
        now.stacks
            .entry(stack_top)
            .or_insert_with(|| Arc::new(Tracked::new(0)))
            .clone()
    });
    stack.set(u64::from(id));
    word.store(id, Ordering::Relaxed);
    spawn(move || {
        NOW.with(|now| now.borrow_mut().ids.insert(current().id(), id));
        // SAFETY: what the real kernel would call.
        unsafe { entry(argument) };
        if alive().contains(&id) {
            assert_eq!(stack.get(), u64::from(id));
            stack.set(0);
        }
        end(id, true);
        NOW.with(|now| now.borrow_mut().running -= 1);
    });
    Ok(id as usize)
}

/// A thread ends: its word is cleared, unless it was left behind by a process checkpointer. Twice is once: a thread that was
/// killed in the middle is a thread of the model that sleeps to the end of the execution.
pub fn end(id: u32, clears: bool) {
    let word = NOW.with(|now| now.borrow().alive.get(&id).copied());
    if let (Some(word), true) = (word, clears) {
        word.store(0, Ordering::Release);
    }
    // The kernel clears the word before the id is no thread's any more.
    NOW.with(|now| now.borrow_mut().alive.remove(&id));
}

/// Waits until every thread has returned, the killed ones too: what they use ends with the execution.
pub fn all_returned() {
    while NOW.with(|now| now.borrow().running) > 0 {
        yield_now();
    }
}

/// Ids of the threads that exist.
pub fn alive() -> Vec<u32> {
    NOW.with(|now| now.borrow().alive.keys().copied().collect())
}

/// The helper that runs now.
pub fn helper() -> Option<u32> {
    NOW.with(|now| now.borrow().ids.get(&current().id()).copied())
}

/// A place at which a helper may be stopped while it holds no part. Every access but a store is one: between a claim and its
/// end a helper only stores.
pub fn stop_point() {
    let kernel = kernel();
    if let Some(stop) = &kernel.stop {
        if let Some(id) = helper() {
            stop(id);
        }
    }
}

/// The memory of the stacks is given back: nobody may be on one.
pub fn stacks_are_unmapped() {
    let stacks = NOW.with(|now| std::mem::take(&mut now.borrow_mut().stacks));
    stacks.values().for_each(|stack| stack.set(0));
}
