//! The program's outputs. A thread reads each of them to its end, whatever becomes of what is read: the program never waits for us, not
//! even where our own stderr takes nothing.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, Read, Write};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crossbeam_channel::{bounded, Receiver, Sender, TrySendError};

use super::pattern::Pattern;
use crate::foreign_text::printable;

const CHUNK: usize = 64 << 10;
/// Chunks that wait for a slow reader before further ones are left out.
const WAITING: usize = 256;
/// Longest line that is looked at.
const LONGEST: usize = 16 << 10;
/// Last lines that are remembered.
const LAST: usize = 5;
/// How long the last chunks may take to be written.
const FLUSH: Duration = Duration::from_millis(500);

/// What is known of the lines of both outputs.
#[derive(Debug, Default)]
pub struct Heard {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    pattern: Option<Pattern>,
    is_seen: bool,
    last_errors: VecDeque<String>,
    last_lines: VecDeque<String>,
    answers: Option<Sender<String>>,
}

impl Heard {
    /// Looks for a line.
    pub fn new(pattern: Option<Pattern>) -> Self {
        let state = State {
            pattern,
            ..State::default()
        };
        Heard {
            state: Mutex::new(state),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn line(&self, line: &[u8], output: Output) {
        let text = String::from_utf8_lossy(line);
        let text = text.trim_end_matches('\r');
        let mut state = self.state();
        let is_it = state
            .pattern
            .as_ref()
            .is_some_and(|pattern| pattern.fits(text));
        state.is_seen |= is_it;
        if output == Output::Stdout {
            if let Some(answers) = &state.answers {
                // Full, or nobody waits any more: nobody needs it.
                let _ = answers.try_send(text.to_owned());
            }
        }
        let last = match output {
            Output::Stdout => &mut state.last_lines,
            Output::Stderr => &mut state.last_errors,
        };
        if !text.trim().is_empty() {
            last.push_back(text.to_owned());
            if last.len() > LAST {
                last.pop_front();
            }
        }
    }

    /// Whether the line has come.
    pub fn is_seen(&self) -> bool {
        self.state().is_seen
    }

    /// The last lines of stderr; of stdout when there is nothing on stderr.
    pub fn last(&self) -> Vec<String> {
        let state = self.state();
        let last = match state.last_errors.is_empty() {
            false => &state.last_errors,
            true => &state.last_lines,
        };
        last.iter().cloned().collect()
    }

    /// A sentence with the last lines after it, all in one line.
    pub fn after(&self, sentence: String) -> String {
        let last = self.last();
        if last.is_empty() {
            return sentence;
        }
        let last: Vec<String> = last.iter().map(|line| printable(line.trim())).collect();
        format!("{sentence}; its last words: {}", last.join(" / "))
    }

    /// Lines of stdout from now on.
    pub fn answers(&self) -> Receiver<String> {
        let (send, receive) = bounded(64);
        self.state().answers = Some(send);
        receive
    }
}

/// Which output.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Output {
    /// Standard output.
    Stdout,
    /// Standard error.
    Stderr,
}

/// A thread that reads an output.
#[derive(Debug)]
pub struct Drain {
    ended: Receiver<()>,
}

impl Drain {
    /// Reads `from` to its end, and passes it on to `to`: a file, or our stderr.
    ///
    /// # Errors
    /// The kernel gives no thread.
    pub fn start(
        from: impl Read + Send + 'static,
        output: Output,
        to: Option<File>,
        heard: &Arc<Heard>,
    ) -> io::Result<Self> {
        let (end, ended) = bounded(0);
        let writer = Writer::start(to)?;
        let heard = Arc::clone(heard);
        let thread = std::thread::Builder::new().name("program's output".into());
        thread.spawn(move || {
            drain(from, output, &writer, &heard);
            writer.finish();
            drop(end);
        })?;
        Ok(Drain { ended })
    }

    /// Waits until the output has ended, for so long at most.
    pub fn wait(&self, limit: Duration) {
        let _ = self.ended.recv_timeout(limit);
    }
}

fn drain(mut from: impl Read, output: Output, writer: &Writer, heard: &Heard) {
    let mut chunk = vec![0; CHUNK];
    let mut line: Vec<u8> = Vec::new();
    loop {
        let bytes = match from.read(&mut chunk) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Ok(0) | Err(_) => break,
            Ok(count) => &chunk[..count],
        };
        writer.write(bytes);
        for part in bytes.split_inclusive(|byte| *byte == b'\n') {
            let text = part.strip_suffix(b"\n").unwrap_or(part);
            let room = LONGEST.saturating_sub(line.len());
            line.extend_from_slice(&text[..text.len().min(room)]);
            if part.ends_with(b"\n") {
                heard.line(&line, output);
                line.clear();
            }
        }
    }
    if !line.is_empty() {
        heard.line(&line, output);
    }
}

/// A thread of its own that writes: only it waits where nothing is taken.
struct Writer {
    chunks: Option<Sender<Vec<u8>>>,
    ended: Receiver<()>,
    lost: std::cell::Cell<u64>,
}

impl Writer {
    fn start(to: Option<File>) -> io::Result<Self> {
        let (chunks, received) = bounded::<Vec<u8>>(WAITING);
        let (end, ended) = bounded(0);
        let thread = std::thread::Builder::new().name("passes output on".into());
        thread.spawn(move || {
            for chunk in received {
                // What cannot be written is not written: the program goes on.
                let _ = match to.as_ref() {
                    Some(mut file) => file.write_all(&chunk),
                    None => io::stderr().lock().write_all(&chunk),
                };
            }
            drop(end);
        })?;
        Ok(Writer {
            chunks: Some(chunks),
            ended,
            lost: std::cell::Cell::new(0),
        })
    }

    fn write(&self, bytes: &[u8]) {
        let Some(chunks) = &self.chunks else { return };
        if self.lost.get() > 0 {
            let told = format!(
                "\n[{} bytes of output left out: nobody took them]\n",
                self.lost.get()
            );
            match chunks.try_send(told.into_bytes()) {
                Ok(()) => self.lost.set(0),
                Err(_) => return self.lost.set(self.lost.get() + bytes.len() as u64),
            }
        }
        if let Err(TrySendError::Full(chunk)) = chunks.try_send(bytes.to_vec()) {
            self.lost.set(chunk.len() as u64);
        }
    }

    fn finish(mut self) {
        self.chunks = None;
        let _ = self.ended.recv_timeout(FLUSH);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::UnixStream;

    fn heard(pattern: &str) -> Arc<Heard> {
        Arc::new(Heard::new(Some(Pattern::new(pattern).unwrap())))
    }

    #[test]
    fn lines_are_heard_and_passed_on() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("log");
        let heard = heard("listening");
        let (mut theirs, ours) = UnixStream::pair().unwrap();
        let file = File::create(&path).unwrap();
        let drain = Drain::start(ours, Output::Stderr, Some(file), &heard).unwrap();
        for part in [
            "one\ntwo, lis",
            "tening\r\n\nthree\nfour\nfive\nsix\nsev",
            "en",
        ] {
            theirs.write_all(part.as_bytes()).unwrap();
        }
        drop(theirs);
        drain.wait(Duration::from_secs(60));
        assert!(heard.is_seen());
        assert_eq!(heard.last(), ["three", "four", "five", "six", "seven"]);
        assert_eq!(
            std::fs::read_to_string(path).unwrap(),
            "one\ntwo, listening\r\n\nthree\nfour\nfive\nsix\nseven"
        );
    }

    /// A pipe that nobody reads is full after 64 KiB: what reads the program's output must not care.
    #[test]
    fn a_reader_who_takes_nothing_does_not_block_the_program() {
        let (_nobody, full) = std::io::pipe().unwrap();
        let to = File::from(std::os::fd::OwnedFd::from(full));
        let heard = heard("the end");
        let (mut theirs, ours) = UnixStream::pair().unwrap();
        let _drain = Drain::start(ours, Output::Stdout, Some(to), &heard).unwrap();
        // In a thread: where it is blocked, this test must not be.
        std::thread::spawn(move || {
            let much = vec![b'x'; 4 * WAITING * CHUNK];
            let _ = theirs.write_all(&much);
            let _ = theirs.write_all(b"\nthe end\n");
        });
        let since = std::time::Instant::now();
        while !heard.is_seen() {
            assert!(since.elapsed() < Duration::from_secs(60));
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    #[test]
    fn last_words_follow_in_one_line() {
        let heard = heard("x");
        assert_eq!(heard.after("it ended".into()), "it ended");
        heard.line(b"Traceback:", Output::Stderr);
        heard.line(b"  out of \x1bmemory", Output::Stderr);
        assert_eq!(
            heard.after("it ended".into()),
            "it ended; its last words: Traceback: / out of \\u{1b}memory"
        );
    }

    #[test]
    fn answers_are_lines_of_stdout() {
        let heard = heard("x");
        heard.line(b"before", Output::Stdout);
        let answers = heard.answers();
        heard.line(b"noise", Output::Stderr);
        heard.line(b"bad 0", Output::Stdout);
        assert_eq!(answers.try_recv().as_deref(), Ok("bad 0"));
        assert!(answers.try_recv().is_err());
    }
}
