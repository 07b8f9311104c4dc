//! What a reader of the whole should know, below the table or the blocks.

use super::facts::Round;
use super::text::{count, Paper};

/// The notes, a paragraph each.
pub fn text(round: &Round, paper: Paper) -> String {
    let mut text = String::new();
    let mut notes = round.notes();
    let denied = round
        .processes
        .iter()
        .filter(|process| process.missing_right.is_some())
        .count();
    if denied > 0 && !round.named {
        notes.push(format!(
            "{} shown in part only, for lack of rights: run as root, or name it to see which right is missing",
            count(denied, "process is", "processes are")
        ));
    }
    for note in notes {
        for (number, line) in paper.wrap(&note, 6).iter().enumerate() {
            text += &format!("{}{line}\n", if number == 0 { "note: " } else { "      " });
        }
    }
    if text.is_empty() {
        text
    } else {
        format!("\n{text}")
    }
}
