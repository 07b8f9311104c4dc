//! The memory that is held.

use std::fmt;

use crate::driver::memory::{Block, Device, Pinned, Room};
use crate::driver::DriverError;
use crate::units;

use super::pattern;
use super::size::Size;
use super::threads;

/// Largest allocation: a driver with little room in one piece still gives these.
const PIECE: u64 = 1 << 30;
/// Bytes that a thread makes, or compares, at a time.
const WINDOW: u64 = 8 << 20;

/// Why it cannot be held.
#[derive(Debug)]
pub enum Trouble {
    /// The GPU has no room for it; in a sentence.
    Full(String),
    /// The driver refused a call.
    Driver(DriverError),
}

impl From<DriverError> for Trouble {
    fn from(error: DriverError) -> Self {
        Trouble::Driver(error)
    }
}

impl fmt::Display for Trouble {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Trouble::Full(text) => write!(out, "{text}"),
            Trouble::Driver(error) => write!(out, "{error}"),
        }
    }
}

/// A part of an allocation, as long as a window at most.
#[derive(Debug, Clone, Copy)]
struct Chunk {
    block: Block,
    offset: u64,
    words: usize,
    /// Position of its first word in all that is held.
    first: u64,
    is_zeros: bool,
}

/// Device memory with known contents.
#[derive(Debug)]
pub struct Holding<'a> {
    device: &'a Device<'a>,
    seed: u64,
    blocks: Vec<Block>,
    chunks: Vec<Chunk>,
}

impl<'a> Holding<'a> {
    /// Allocates.
    ///
    /// # Errors
    /// The GPU is full, which is told with what is free; or the driver refuses.
    pub fn new(device: &'a Device<'a>, size: &Size, seed: u64) -> Result<Self, Trouble> {
        let room = device.room()?;
        if size.all() > room.free {
            return Err(full(size, room));
        }
        let mut holding = Holding {
            device,
            seed,
            blocks: Vec::new(),
            chunks: Vec::new(),
        };
        let mut position = 0;
        for (bytes, is_zeros) in [(size.filled, false), (size.zeros, true)] {
            let mut left = bytes;
            while left > 0 {
                let block = holding.allocate(left.min(PIECE), size)?;
                holding.cut(block, &mut position, is_zeros);
                left -= block.bytes();
            }
        }
        Ok(holding)
    }

    fn allocate(&mut self, bytes: u64, size: &Size) -> Result<Block, Trouble> {
        match self.device.allocate(bytes) {
            Ok(block) => {
                self.blocks.push(block);
                Ok(block)
            }
            Err(error) if error.is_out_of_memory() => Err(self.give_up(size)),
            Err(error) => Err(error.into()),
        }
    }

    /// Somebody else was quicker, or what is free lies in pieces that are too small.
    fn give_up(&mut self, size: &Size) -> Trouble {
        for block in self.blocks.drain(..) {
            let _ = self.device.free(block);
        }
        match self.device.room() {
            Ok(room) => full(size, room),
            Err(error) => error.into(),
        }
    }

    fn cut(&mut self, block: Block, position: &mut u64, is_zeros: bool) {
        let mut offset = 0;
        while offset < block.bytes() {
            let bytes = WINDOW.min(block.bytes() - offset);
            self.chunks.push(Chunk {
                block,
                offset,
                words: (bytes / 8) as usize,
                first: *position,
                is_zeros,
            });
            offset += bytes;
            *position += bytes / 8;
        }
    }

    /// Writes the contents, and the zeros.
    ///
    /// # Errors
    /// What the driver says.
    pub fn fill(&self) -> Result<(), Trouble> {
        for chunk in self
            .chunks
            .iter()
            .filter(|chunk| chunk.is_zeros && chunk.offset == 0)
        {
            self.device.clear(&chunk.block)?;
        }
        self.write()
    }

    /// Other contents; zeros stay zeros.
    ///
    /// # Errors
    /// What the driver says.
    pub fn rewrite(&mut self) -> Result<(), Trouble> {
        self.seed = self.seed.wrapping_add(1);
        self.write()
    }

    fn write(&self) -> Result<(), Trouble> {
        let results = threads::share(self.chunks.len(), |numbers| {
            let mut window = self.window()?;
            for chunk in numbers.map(|number| &self.chunks[number]) {
                if chunk.is_zeros {
                    continue;
                }
                let words = &mut window.words()[..chunk.words];
                pattern::fill(words, self.seed, chunk.first);
                self.device.write(&chunk.block, chunk.offset, words)?;
            }
            Ok::<(), DriverError>(())
        });
        results.into_iter().collect::<Result<(), _>>()?;
        Ok(self.device.finish()?)
    }

    /// Words that are wrong; what cannot be read is wrong, and the first reason is told beside.
    pub fn wrong_words(&self) -> (u64, Option<DriverError>) {
        let results = threads::share(self.chunks.len(), |numbers| {
            let mut wrong = 0;
            let mut trouble = None;
            let mut window = self.window();
            for chunk in numbers.map(|number| &self.chunks[number]) {
                let read = match &mut window {
                    Ok(window) => self.compare(chunk, window.words()),
                    Err(error) => Err(error.clone()),
                };
                match read {
                    Ok(found) => wrong += found,
                    Err(error) => {
                        wrong += chunk.words as u64;
                        trouble.get_or_insert(error);
                    }
                }
            }
            (wrong, trouble)
        });
        let all = results.iter().map(|(wrong, _)| wrong).sum();
        (all, results.into_iter().find_map(|(_, trouble)| trouble))
    }

    fn compare(&self, chunk: &Chunk, window: &mut [u64]) -> Result<u64, DriverError> {
        let words = &mut window[..chunk.words];
        self.device.read(&chunk.block, chunk.offset, words)?;
        Ok(if chunk.is_zeros {
            pattern::not_zero(words)
        } else {
            pattern::wrong(words, self.seed, chunk.first)
        })
    }

    /// For one thread, which then may call the device. Pinned, so that a copy is one transfer; plain where nothing can be pinned.
    fn window(&self) -> Result<Window<'_>, DriverError> {
        self.device.enter()?;
        let words = (WINDOW / 8) as usize;
        let pinned = self.device.pinned(words);
        Ok(pinned.map_or_else(|_| Window::Plain(vec![0; words]), Window::Pinned))
    }
}

enum Window<'a> {
    Pinned(Pinned<'a>),
    Plain(Vec<u64>),
}

impl Window<'_> {
    fn words(&mut self) -> &mut [u64] {
        match self {
            Window::Pinned(words) => words,
            Window::Plain(words) => words,
        }
    }
}

fn full(size: &Size, room: Room) -> Trouble {
    Trouble::Full(format!(
        "the GPU is full: {} are to be held, {} of its {} are free",
        units::bytes(size.all()),
        units::bytes(room.free),
        units::bytes(room.total)
    ))
}
