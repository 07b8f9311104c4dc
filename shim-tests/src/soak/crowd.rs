//! The calling side of a soak: lanes side by side, each given the life of one host after the other, until all cycles are done, the
//! time is over, or somebody wants it to end.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use crossbeam_channel::{unbounded, Receiver, RecvTimeoutError, Sender};

use super::account::Account;
use super::hosts::HostPlan;
use super::lane::Event;

/// How a soak is run.
#[derive(Debug, Clone)]
pub struct Order {
    /// The seed.
    pub seed: u64,
    /// The first cycle.
    pub from: u64,
    /// How many.
    pub count: u64,
    /// Lanes side by side.
    pub lanes: usize,
    /// No new host after this time.
    pub time: Option<Duration>,
    /// Folder of the simulated driver's library, for the lanes.
    pub driver: PathBuf,
    /// What a lane is started with.
    pub lane: Vec<String>,
    /// Time between two progress lines.
    pub progress: Duration,
}

/// So many failures and the rest is left out.
const ENOUGH_FAILURES: u64 = 20;
/// How often the time is looked at when nothing happens.
const LOOK: Duration = Duration::from_millis(200);

/// What arrives from a lane: an event, or its end.
type Message = (usize, Option<Event>);

struct Lane {
    child: Child,
    stdin: Option<ChildStdin>,
    /// The cycle that it is in.
    current: Option<u64>,
    /// The end of the range that it was given.
    to: u64,
    busy: bool,
}

impl Lane {
    fn start(order: &Order, number: usize, send: &Sender<Message>) -> Result<Self, String> {
        let program = std::env::current_exe().map_err(|error| error.to_string())?;
        let mut command = Command::new(program);
        command
            .args(&order.lane)
            .env("LD_LIBRARY_PATH", &order.driver)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            // Ctrl-C is for the one who started the soak: a lane ends between two cycles.
            .process_group(0);
        let end_with_us = || {
            // SAFETY: prctl with two numbers is a plain system call.
            unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) };
            Ok(())
        };
        // SAFETY: the closure makes one system call and touches nothing of the parent's.
        unsafe { command.pre_exec(end_with_us) };
        let mut child = command
            .spawn()
            .map_err(|error| format!("a lane: {error}"))?;
        let stdin = child.stdin.take();
        if let Some(stdout) = child.stdout.take() {
            listen(stdout, number, send.clone());
        }
        Ok(Lane {
            child,
            stdin,
            current: None,
            to: 0,
            busy: false,
        })
    }

    fn give(&mut self, from: u64, to: u64) {
        if let Some(stdin) = &mut self.stdin {
            // A lane that is gone says so on its other end.
            let _ = writeln!(stdin, "{from} {to}");
            self.busy = true;
            self.to = to;
        }
    }
}

/// Passes on what a lane tells, and its end.
fn listen(stdout: ChildStdout, number: usize, send: Sender<Message>) {
    std::thread::spawn(move || {
        for line in BufReader::new(stdout).lines().map_while(Result::ok) {
            // A line that is cut off by the lane's death says nothing; its end does.
            if let Ok(event) = serde_json::from_str(&line) {
                let _ = send.send((number, Some(event)));
            }
        }
        let _ = send.send((number, None));
    });
}

impl Drop for Lane {
    fn drop(&mut self) {
        // Both fail when it has ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A soak that goes on.
pub struct Crowd<'a> {
    order: &'a Order,
    lanes: Vec<Lane>,
    send: Sender<Message>,
    messages: Receiver<Message>,
    /// The next cycle to be given out.
    next: u64,
    /// What came of it.
    pub account: Account,
    /// A signal ended it.
    pub interrupted: Option<i32>,
    began: Instant,
    reported: Instant,
    ending: bool,
}

impl<'a> Crowd<'a> {
    /// Starts the lanes.
    ///
    /// # Errors
    /// When one cannot be started.
    pub fn start(order: &'a Order, account: Account) -> Result<Self, String> {
        let (send, messages) = unbounded();
        let mut crowd = Crowd {
            order,
            lanes: Vec::new(),
            send,
            messages,
            next: order.from,
            account,
            interrupted: None,
            began: Instant::now(),
            reported: Instant::now(),
            ending: false,
        };
        for number in 0..order.lanes {
            crowd.lanes.push(Lane::start(order, number, &crowd.send)?);
            crowd.give_work(number);
        }
        Ok(crowd)
    }

    /// Runs to the end. `signals` are wishes to end early.
    ///
    /// # Errors
    /// When a lane that died cannot be replaced.
    pub fn run(&mut self, signals: &Receiver<i32>) -> Result<(), String> {
        while self.lanes.iter().any(|lane| lane.busy) {
            match self.messages.recv_timeout(LOOK) {
                Ok((number, Some(event))) => self.take(number, &event),
                Ok((number, None)) => self.replace(number)?,
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => break,
            }
            if let (Ok(signal), false) = (signals.try_recv(), self.ending) {
                self.interrupted = Some(signal);
                eprintln!("soak: signal {signal}: ends after the cycles that go on");
                self.end();
            }
            if self.account.failures() >= ENOUGH_FAILURES && !self.ending {
                println!("{ENOUGH_FAILURES} failures: the rest is left out");
                self.end();
            }
            self.report();
        }
        Ok(())
    }

    /// Seconds since its start.
    #[must_use]
    pub fn seconds(&self) -> f64 {
        self.began.elapsed().as_secs_f64()
    }

    /// Whether it did all that was asked for.
    #[must_use]
    pub fn is_whole(&self) -> bool {
        self.order.from == 0 && self.interrupted.is_none() && !self.ending
    }

    fn take(&mut self, number: usize, event: &Event) {
        if let Some(text) = self.account.take(event) {
            print!("{text}");
        }
        match event {
            Event::Began(cycle) => self.lanes[number].current = Some(*cycle),
            Event::Idle => {
                self.lanes[number].busy = false;
                self.lanes[number].current = None;
                self.give_work(number);
            }
            _ => {}
        }
    }

    fn give_work(&mut self, number: usize) {
        let end = self.order.from.saturating_add(self.order.count);
        let over = self
            .order
            .time
            .is_some_and(|time| self.began.elapsed() >= time);
        if self.ending || over || self.next >= end {
            return;
        }
        let host = HostPlan::of_cycle(self.order.seed, self.next);
        let to = (host.first + host.life).min(end);
        self.lanes[number].give(self.next, to);
        self.next = to;
    }

    /// No more work; lanes end after the cycle that they are in.
    fn end(&mut self) {
        self.ending = true;
        self.lanes.iter_mut().for_each(|lane| lane.stdin = None);
    }

    /// A lane has ended: on request, or because something went wrong that it could not tell.
    fn replace(&mut self, number: usize) -> Result<(), String> {
        let lane = &mut self.lanes[number];
        lane.busy = false;
        if self.ending {
            return Ok(());
        }
        let status = lane.child.wait().map_err(|error| error.to_string())?;
        let (at, lane_end) = (lane.current.take(), lane.to);
        let text = match at {
            Some(cycle) => {
                let problems = vec![format!("the lane that ran it ended: {status}")];
                self.account
                    .take(&Event::Failed { cycle, problems })
                    .unwrap_or_default()
            }
            None => self
                .account
                .fail_whole(&format!("a lane ended before its first cycle: {status}")),
        };
        print!("{text}");
        if at.is_none() {
            return Err("lanes cannot be started".into());
        }
        let rest = (at.map_or(lane_end, |cycle| cycle + 1), lane_end);
        self.lanes[number] = Lane::start(self.order, number, &self.send)?;
        if rest.0 < rest.1 {
            self.lanes[number].give(rest.0, rest.1);
        } else {
            self.give_work(number);
        }
        Ok(())
    }

    fn report(&mut self) {
        if self.reported.elapsed() < self.order.progress {
            return;
        }
        self.reported = Instant::now();
        let (cycles, seconds) = (self.account.cycles(), self.seconds());
        println!(
            "[{seconds:>6.0} s] {cycles} of {} cycles, {:.1} per second, {} failed",
            self.order.count,
            cycles as f64 / seconds,
            self.account.failures()
        );
    }
}
