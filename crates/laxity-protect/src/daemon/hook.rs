//! For tests: a process that kills itself at a stated step. A kill from outside hits the short steps of an epoch hardly
//! ever, and they are those that matter.

use std::str::FromStr;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use nix::sys::signal::{Signal, kill};
use nix::unistd::getpid;

/// What a process may die of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// The guest stands still, and its output has been cut.
    Stopped,
    /// It runs again; nothing of the checkpoint has been sent.
    Captured,
    /// The beginning of a checkpoint has been sent.
    Begun,
    /// All of it has been sent.
    Sent,
    /// Its acknowledgement has come, and nothing has been let go.
    Acknowledged,
    /// Its output has been let go.
    Released,
    /// A checkpoint is here, not acknowledged and not committed.
    Staged,
    /// It is committed.
    Committed,
    /// The guest is about to run here.
    Activating,
}

impl Step {
    const ALL: [(&'static str, Step); 9] = [
        ("stopped", Step::Stopped),
        ("captured", Step::Captured),
        ("begun", Step::Begun),
        ("sent", Step::Sent),
        ("acknowledged", Step::Acknowledged),
        ("released", Step::Released),
        ("staged", Step::Staged),
        ("committed", Step::Committed),
        ("activating", Step::Activating),
    ];
}

/// At which step, and at which time that it is reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DieAt {
    step: Step,
    time: u64,
}

impl FromStr for DieAt {
    type Err = String;

    fn from_str(text: &str) -> Result<DieAt, String> {
        let refused = || "write STEP:TIMES, such as sent:40".to_string();
        let (step, time) = text.split_once(':').ok_or_else(refused)?;
        let (_, step) = Step::ALL
            .into_iter()
            .find(|(name, _)| *name == step)
            .ok_or_else(refused)?;
        let time = time.parse().map_err(|_| refused())?;
        Ok(DieAt { step, time })
    }
}

static DIE_AT: OnceLock<DieAt> = OnceLock::new();
static REACHED: AtomicU64 = AtomicU64::new(0);

/// From now on this process has not long to live.
pub fn arm(die_at: DieAt) {
    let _ = DIE_AT.set(die_at);
}

/// Says that a step has been reached.
pub(crate) fn reach(step: Step) {
    if let Some(die_at) = DIE_AT.get()
        && die_at.step == step
        && REACHED.fetch_add(1, Ordering::SeqCst) + 1 == die_at.time
    {
        // As if the power had gone: nothing is said to anybody, and nothing is put in order.
        let _ = kill(getpid(), Signal::SIGKILL);
    }
}
