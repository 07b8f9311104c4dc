//! The models, by the source file whose promise they check.

#[cfg(not(feature = "random"))]
mod board;
#[cfg(not(feature = "random"))]
mod crew;
#[cfg(not(feature = "random"))]
mod exclusive;
#[cfg(not(feature = "random"))]
mod prefault;
#[cfg(feature = "random")]
mod random;
#[cfg(not(feature = "random"))]
mod region;
#[cfg(not(feature = "random"))]
mod seq;

/// A model.
pub struct Model {
    pub name: &'static str,
    /// What it shows.
    pub shows: &'static str,
    pub run: fn(),
    /// It is broken on purpose and must fail.
    pub broken: bool,
    /// Whether each access that it comes by is weakened in turn.
    pub weaken: bool,
}

/// All of them.
pub fn all() -> Vec<Model> {
    #[cfg(not(feature = "random"))]
    let lists = [
        board::LIST,
        exclusive::LIST,
        region::LIST,
        seq::LIST,
        prefault::LIST,
        crew::LIST,
    ];
    #[cfg(feature = "random")]
    let lists = [random::LIST];
    lists.into_iter().flat_map(|list| list()).collect()
}

/// Tries every behaviour with at most this many preemptions.
#[cfg(not(feature = "random"))]
fn every(preemptions: usize, execution: impl Fn() + Send + Sync + 'static) {
    use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
    static EXECUTIONS: AtomicU64 = AtomicU64::new(0);
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(preemptions);
    builder.max_branches = 20_000;
    builder.check(move || {
        EXECUTIONS.fetch_add(1, Relaxed);
        crate::sys::boot(crate::sys::Kernel::default());
        execution();
    });
    println!("{} executions", EXECUTIONS.load(Relaxed));
}
