//! Looks again and again. On a terminal each round is drawn over the one before; into a pipe the rounds follow each other.

use std::fmt::Write as _;
use std::time::{Duration, Instant};

use console::{truncate_str, Term};
use crossbeam_channel::{Receiver, RecvTimeoutError};
use signal_hook::consts::{SIGINT, SIGWINCH};

use crate::exit::Exit;
use crate::output;
use crate::signals;

use super::text::Paper;
use super::{complain, write, Args};

const HOME: &str = "\x1b[H";
const CLEAR_LINE: &str = "\x1b[K";
const CLEAR_BELOW: &str = "\x1b[J";
const CLEAR_ALL: &str = "\x1b[2J";
const HIDE_CURSOR: &str = "\x1b[?25l";
const SHOW_CURSOR: &str = "\x1b[?25h";

/// Shows a round every `interval` until a signal ends it: status 128 and its number, as with every command.
pub fn run(args: &Args, interval: Duration) -> Exit {
    let coming = match signals::listen(&[signals::ENDING.as_slice(), &[SIGWINCH]].concat()) {
        Ok(signals) => signals,
        Err(error) => {
            output::complain(format_args!("signals cannot be caught: {error}"));
            return Exit::Failed;
        }
    };
    // Rounds as JSON are for programs, wherever they go.
    let screen = Screen::new(Term::stdout().is_term() && can_draw() && !args.json);
    let mut first = true;
    loop {
        let began = Instant::now();
        let round = args.look();
        let shown = if screen.drawn {
            let rows = args.show(&round, Paper::of_stdout()) + &round.complaints().join("\n");
            write(&screen.frame(&rows, interval, size()))
        } else {
            let separator = if first || args.json { "" } else { "\n" };
            let shown = write(&format!("{separator}{}", args.show(&round, Paper::plain())));
            complain(&round);
            shown
        };
        first = false;
        if let Err(exit) = shown {
            return exit;
        }
        if let Some(number) = wait(&coming, interval.saturating_sub(began.elapsed())) {
            return Exit::Signal(number);
        }
    }
}

/// Whether the terminal understands more than text: one without a name, or a dumb one, gets rounds one after another.
fn can_draw() -> bool {
    std::env::var_os("TERM").is_some_and(|term| !term.is_empty() && term != "dumb")
}

/// Waits for the next round; the signal that ends it all, if one comes. A new size of the window is a reason to draw at once.
fn wait(signals: &Receiver<i32>, interval: Duration) -> Option<i32> {
    match signals.recv_timeout(interval) {
        Ok(SIGWINCH) | Err(RecvTimeoutError::Timeout) => None,
        Ok(number) => Some(number),
        // The thread is gone: nobody can interrupt, so end as if interrupted.
        Err(RecvTimeoutError::Disconnected) => Some(SIGINT),
    }
}

/// Lines and columns.
fn size() -> (usize, usize) {
    let (rows, columns) = Term::stdout().size();
    (usize::from(rows).max(3), usize::from(columns).max(20))
}

/// The terminal; its cursor comes back however the watch ends.
struct Screen {
    drawn: bool,
}

impl Screen {
    fn new(drawn: bool) -> Self {
        if drawn {
            let _ = write(&format!("{HIDE_CURSOR}{CLEAR_ALL}"));
        }
        Screen { drawn }
    }

    /// One round as it goes to the terminal: cut to what fits, in one piece, without clearing first, so that nothing flickers.
    fn frame(&self, text: &str, interval: Duration, (rows, columns): (usize, usize)) -> String {
        let lines: Vec<&str> = text.lines().collect();
        let mut frame = HOME.to_owned();
        let head = format!(
            "cudasnap status, every {}; Ctrl-C ends",
            crate::units::duration(interval)
        );
        let room = rows - 2;
        let cut = lines.len() > room;
        let body = lines.iter().take(if cut { room - 1 } else { room });
        for line in std::iter::once(&head.as_str()).chain(body) {
            let _ = write!(frame, "{}{CLEAR_LINE}\r\n", truncate_str(line, columns, ""));
        }
        if cut {
            let more = format!(
                "… {} more lines: a higher window shows them",
                lines.len() + 1 - room
            );
            let _ = write!(
                frame,
                "{}{CLEAR_LINE}\r\n",
                truncate_str(&more, columns, "")
            );
        }
        frame + CLEAR_BELOW
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        if self.drawn {
            let _ = write(SHOW_CURSOR);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use signal_hook::consts::SIGTERM;

    /// What a terminal of this size shows of a frame.
    fn shown(text: &str, rows: usize, columns: usize) -> Vec<String> {
        let screen = Screen { drawn: false };
        let frame = screen.frame(text, Duration::from_secs(1), (rows, columns));
        assert!(frame.starts_with(HOME) && frame.ends_with(CLEAR_BELOW));
        let inner = frame
            .trim_start_matches(HOME)
            .trim_end_matches(CLEAR_BELOW)
            .to_owned();
        inner
            .replace(CLEAR_LINE, "")
            .split_terminator("\r\n")
            .map(str::to_owned)
            .collect()
    }

    #[test]
    fn a_frame_fits_its_window() {
        let text: String = (0..50)
            .map(|number| format!("line {number} {}\n", "x".repeat(100)))
            .collect();
        let lines = shown(&text, 10, 40);
        assert_eq!(lines.len(), 9, "the cursor's line stays free");
        assert!(lines
            .iter()
            .all(|line| console::measure_text_width(line) <= 40));
        assert!(lines[8].starts_with("… 43 more lines"), "{}", lines[8]);
        assert!(lines[7].starts_with("line 6 "));
        assert_eq!(shown("a\nb\n", 10, 40).len(), 3);
        assert_eq!(shown(&text, 3, 20).len(), 2);
    }

    #[test]
    fn a_signal_ends_the_wait_and_a_new_size_cuts_it_short() {
        let (to, from) = crossbeam_channel::unbounded();
        to.send(SIGWINCH).unwrap();
        assert_eq!(wait(&from, Duration::from_secs(3600)), None);
        to.send(SIGTERM).unwrap();
        assert_eq!(wait(&from, Duration::from_secs(3600)), Some(SIGTERM));
        assert_eq!(wait(&from, Duration::ZERO), None);
    }
}
