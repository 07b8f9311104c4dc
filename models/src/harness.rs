//! Runs each model in a process of its own, then each of its weakened variants, and counts.

use std::collections::BTreeMap;
use std::process::{Command, ExitCode, Output, Stdio};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use crate::harmless;
use crate::models::{all, Model};
use crate::mutate::{self, Kind, Site};

/// A model that takes longer is a failure.
const LIMIT: Duration = Duration::from_secs(600);
/// A weakened variant that has not failed by then is taken as not found: what is found is found in seconds.
const WEAKENED_LIMIT: Duration = Duration::from_secs(120);

pub fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.split_first() {
        Some((first, rest)) if first == "--run" => run(rest),
        _ => check(&arguments),
    }
}

/// One model, here.
fn run(arguments: &[String]) -> ExitCode {
    let models = all();
    let name = arguments.first().map(String::as_str).unwrap_or_default();
    let Some(model) = models.iter().find(|model| model.name == name) else {
        eprintln!("{name}: no such model");
        return ExitCode::from(2);
    };
    match arguments.get(1) {
        Some(site) => mutate::choose(site.parse().expect("a site")),
        None => mutate::list(),
    }
    (model.run)();
    for site in mutate::seen() {
        println!("site {site}");
    }
    ExitCode::SUCCESS
}

struct Tally {
    passed: u32,
    failed: u32,
}

impl Tally {
    fn add(&mut self, good: bool, words: &str, output: &str) {
        println!("{} {words}", if good { "ok     " } else { "FAILED " });
        if good {
            self.passed += 1;
        } else {
            self.failed += 1;
            let tail: Vec<&str> = output.lines().rev().take(20).collect();
            tail.iter().rev().for_each(|line| println!("    {line}"));
        }
    }
}

/// All models that are named, or all; then every access that they came by, made weaker.
fn check(names: &[String]) -> ExitCode {
    let mut tally = Tally {
        passed: 0,
        failed: 0,
    };
    let mut places: BTreeMap<Site, Vec<&'static str>> = BTreeMap::new();
    for model in all() {
        if names.is_empty() || names.iter().any(|name| name == model.name) {
            for site in check_one(&model, &mut tally) {
                places.entry(site).or_default().push(model.name);
            }
        }
    }
    let tally = Mutex::new(tally);
    let next = Mutex::new(places.iter());
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| loop {
                let Some((site, models)) = next.lock().unwrap().next() else {
                    return;
                };
                weakened(site, models, &tally);
            });
        }
    });
    let Tally { passed, failed } = tally.into_inner().unwrap();
    println!("{passed} passed, {failed} failed");
    ExitCode::from(u8::from(failed > 0 || passed == 0))
}

/// Runs a model as it is. The places whose accesses are to be made weaker.
fn check_one(model: &Model, tally: &mut Tally) -> Vec<Site> {
    let (outcome, output, seconds) = child(model.name, None);
    let words = format!(
        "{}: {} ({seconds} s, {})",
        model.name,
        model.shows,
        executions(&output)
    );
    let wanted = if model.broken {
        Outcome::Found
    } else {
        Outcome::Clean
    };
    tally.add(outcome == wanted, &words, &output);
    if !model.weaken || outcome != Outcome::Clean {
        return Vec::new();
    }
    let sites = output
        .lines()
        .filter_map(|line| line.strip_prefix("site ")?.parse().ok());
    // Random orders know no weak memory.
    let strong = |site: &Site| !cfg!(feature = "random") || site.kind != Kind::Weak;
    sites.filter(strong).collect()
}

/// A weakened access must make one of the models fail that come by it, or be known as harmless.
fn weakened(site: &Site, models: &[&'static str], tally: &Mutex<Tally>) {
    let (line, both) = source_lines(site);
    let known = harmless::LIST.iter().find(|known| {
        let place = if known.line.contains('\n') {
            &both
        } else {
            &line
        };
        known.kind == site.kind && site.file.ends_with(known.file) && place.contains(known.line)
    });
    let began = Instant::now();
    let found = models
        .iter()
        .find(|model| child(model, Some(site)).0 == Outcome::Found);
    let (good, words) = match (found, known) {
        (Some(model), None) => (true, format!("found by {model}")),
        (None, Some(known)) => (true, format!("harmless: {}", known.why)),
        (Some(model), Some(_)) => (false, format!("said to be harmless, but found by {model}")),
        (None, None) => (false, format!("not found by {}", models.join(", "))),
    };
    let seconds = began.elapsed().as_secs();
    let words = format!("weakened {site}: {line} -- {words} ({seconds} s)");
    tally.lock().unwrap().add(good, &words, "");
}

/// The line of a place, and the one before it with a line end: equal lines are told apart by that.
fn source_lines(site: &Site) -> (String, String) {
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let text = std::fs::read_to_string(root.join(&site.file)).unwrap_or_default();
    let line = |number: usize| text.lines().nth(number).unwrap_or_default().trim();
    let here = line(site.line as usize - 1);
    let before = line((site.line as usize).saturating_sub(2));
    (here.to_string(), format!("{before}\n{here}"))
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Outcome {
    Clean,
    Found,
    TooLong,
}

fn executions(output: &str) -> String {
    let line = output.lines().find(|line| line.ends_with(" executions"));
    line.unwrap_or("ended early").to_string()
}

fn child(name: &str, site: Option<&Site>) -> (Outcome, String, u64) {
    let limit = if site.is_some() {
        WEAKENED_LIMIT
    } else {
        LIMIT
    };
    let began = Instant::now();
    let program = std::env::current_exe().expect("this program");
    let mut command = Command::new(program);
    command
        .args(["--run", name])
        .args(site.map(ToString::to_string));
    // What a failed execution leaves behind would only hide its words.
    let mut child = command
        .env("RUST_BACKTRACE", "0")
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("a child");
    let pid = child.id() as i32;
    let over = std::sync::Arc::new((Mutex::new(false), std::sync::Condvar::new()));
    let watchdog = {
        let over = over.clone();
        std::thread::spawn(move || {
            let ended = over.0.lock().unwrap();
            let (ended, _) = over
                .1
                .wait_timeout_while(ended, limit, |ended| !*ended)
                .unwrap();
            if !*ended {
                // SAFETY: a child of ours that has not been waited for.
                unsafe { libc::kill(pid, libc::SIGKILL) };
            }
        })
    };
    drop(child.stdin.take());
    let Output {
        status,
        stdout,
        stderr,
    } = child.wait_with_output().expect("its output");
    *over.0.lock().unwrap() = true;
    over.1.notify_all();
    let _ = watchdog.join();
    let output = String::from_utf8_lossy(&stdout) + String::from_utf8_lossy(&stderr);
    let seconds = began.elapsed().as_secs();
    let outcome = match (status.success(), began.elapsed() < limit) {
        (true, _) => Outcome::Clean,
        (false, true) => Outcome::Found,
        (false, false) => Outcome::TooLong,
    };
    (outcome, output.into_owned(), seconds)
}
