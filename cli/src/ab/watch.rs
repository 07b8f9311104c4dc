//! Watches the steps of one cycle: reads the record before and after each that copies, shows them, and hears signals.
//!
//! A signal must not leave the process checkpointed, which is what it means to `cudasnap checkpoint`. So the engine hears only of those
//! that come before the checkpoint has begun, and takes its lock back; later ones are noted, and the cycle goes on to its end.

use crossbeam_channel::{Receiver, Sender};
use indicatif::ProgressBar;

use super::data::Seen;
use super::seen::seen;
use crate::flow::engine::Show;
use crate::flow::plan::Step;
use crate::output;
use crate::record::view::RecordView;
use crate::record::Located;
use crate::signals::Unsuspended;

/// See the module.
pub struct Watch<'a> {
    /// The library's record in the process.
    pub record: Option<&'a Located>,
    /// Signals as they come.
    pub signals: &'a Receiver<i32>,
    /// Where the engine hears of them.
    pub forward: Sender<i32>,
    /// The first one.
    pub signal: &'a mut Option<i32>,
    /// The bar of the whole run.
    pub bar: &'a ProgressBar,
    /// What is shown in front of the step.
    pub what: &'a str,
    /// The record before the step under way.
    pub before: Option<RecordView>,
    /// Step under way.
    pub step: Option<Step>,
    /// Whether the checkpoint has begun.
    pub is_away: bool,
    /// Whether it was said that Ctrl-Z waits.
    pub suspension_said: bool,
    /// What was recorded about each step that copied.
    pub parts: Vec<(Step, Seen, u64)>,
}

impl Watch<'_> {
    /// What was recorded about the first step of this kind.
    pub fn part(&self, step: Step) -> (Option<Seen>, u64) {
        let found = self.parts.iter().find(|(of, _, _)| *of == step);
        found.map_or((None, 0), |(_, seen, bytes)| (Some(seen.clone()), *bytes))
    }

    fn hear(&mut self) {
        if !self.suspension_said && Unsuspended::is_asked_for() {
            self.suspension_said = true;
            self.say("Ctrl-Z: this cycle is finished first");
        }
        while let Ok(number) = self.signals.try_recv() {
            let is_first = self.signal.is_none();
            self.signal.get_or_insert(number);
            if self.is_away {
                if !is_first {
                    continue;
                }
                self.say(&format!(
                    "signal {number}: this cycle is finished first, then the run ends and what was measured is written"
                ));
            } else {
                let _ = self.forward.send(number);
            }
        }
    }
}

impl Show for Watch<'_> {
    fn began(&mut self, _who: usize, step: Step, undoing: bool) {
        self.is_away |= step == Step::Checkpoint;
        self.step = Some(step);
        let again = if undoing { " (bringing it back)" } else { "" };
        self.bar
            .set_message(format!("{}: {step}{again}", self.what));
        if step.copies() {
            self.before = self.record.and_then(|record| record.read().ok());
        }
        self.hear();
    }

    fn tick(&mut self) {
        self.hear();
        self.bar.tick();
    }

    fn ended(&mut self, _who: usize) {
        let Some(step) = self.step.take().filter(|step| step.copies()) else {
            return;
        };
        let after = self.record.and_then(|record| record.read().ok());
        let Some((after, before)) = after.zip(self.before.take()) else {
            return;
        };
        if let Some((seen, bytes)) = seen(&after, &before, step) {
            self.parts.push((step, seen, bytes));
        }
    }

    fn say(&mut self, text: &str) {
        self.bar.suspend(|| output::complain(text));
    }
}
