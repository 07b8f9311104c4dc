//! What `gpu-check --full` measured, read back and turned into the tables and plots of docs/performance.md. Every number comes
//! from the files; what was not measured is said to be so.

mod cycles;
mod data;
mod figure;
mod plots;
mod reach;
mod tables;
mod tuning;
mod variants;

pub use data::{Limit, Measured};
pub use plots::{plot_sizes, plot_splits};
pub use tables::markdown;

/// Where the tables go in a document.
pub const BEGIN: &str = "<!-- measured: begin -->";
/// Where they end.
pub const END: &str = "<!-- measured: end -->";

/// The document with new tables between its two marks.
///
/// # Errors
/// Text, when the marks are not there.
pub fn fill(document: &str, tables: &str) -> Result<String, String> {
    let (before, rest) = document
        .split_once(BEGIN)
        .ok_or_else(|| format!("no line {BEGIN}"))?;
    let (_, after) = rest
        .split_once(END)
        .ok_or_else(|| format!("no line {END}"))?;
    Ok(format!("{before}{BEGIN}\n\n{tables}\n{END}{after}"))
}

#[cfg(test)]
mod tests;
