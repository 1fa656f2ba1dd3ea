//! The steps of an epoch, at which a daemon that is built for tests (feature `faults`) can be told
//! to end: the process kills itself, or one of its threads stands still for good. A kill from
//! outside hardly ever hits the short steps, and these are the ones that matter.

#[cfg(feature = "faults")]
pub use armed::{At, End, arm};

/// A step of an epoch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Step {
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
    /// The standby is armed.
    Protected,
    /// No standby is armed any more.
    Alone,
}

impl Step {
    /// Whether a host with the guest takes it, in each epoch.
    #[cfg(feature = "faults")]
    fn is_of_primary(self) -> bool {
        use Step::{Acknowledged, Begun, Captured, Released, Sent, Stopped};
        matches!(
            self,
            Stopped | Captured | Begun | Sent | Acknowledged | Released
        )
    }
}

/// Says that a step has been reached.
#[inline]
pub(crate) fn reach(step: Step) {
    #[cfg(feature = "faults")]
    armed::reach(step);
    #[cfg(not(feature = "faults"))]
    let _ = step;
}

#[cfg(feature = "faults")]
mod armed {
    use std::str::FromStr;
    use std::sync::OnceLock;
    use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
    use std::thread;

    use nix::sys::signal::{Signal, kill};
    use nix::unistd::getpid;

    use super::Step;

    const STEPS: [(&str, Step); 9] = [
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

    /// A step, and which time that it is reached since the guest last began to run here. Steps of a
    /// primary count while a standby is armed: without one the guest would be lost with its host.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub struct At {
        step: Step,
        time: u64,
    }

    /// What happens there.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub enum End {
        /// The process is killed.
        Death,
        /// The thread stands still, and the others go on.
        Standstill,
    }

    impl FromStr for At {
        type Err = String;

        fn from_str(text: &str) -> Result<At, String> {
            let refused = || "write STEP:TIMES, such as sent:40".to_string();
            let (step, time) = text.split_once(':').ok_or_else(refused)?;
            let (_, step) = STEPS
                .into_iter()
                .find(|(name, _)| *name == step)
                .ok_or_else(refused)?;
            let time = time.parse().map_err(|_| refused())?;
            Ok(At { step, time })
        }
    }

    static ARMED: OnceLock<(At, End)> = OnceLock::new();
    static REACHED: AtomicU64 = AtomicU64::new(0);
    static IS_PROTECTED: AtomicBool = AtomicBool::new(false);

    /// From now on this process has not long to live. Only the first of several counts.
    pub fn arm(at: At, end: End) {
        let _ = ARMED.set((at, end));
    }

    /// Says that a step has been reached.
    pub(super) fn reach(step: Step) {
        let Some((at, end)) = ARMED.get() else {
            return;
        };
        match step {
            Step::Protected => IS_PROTECTED.store(true, Ordering::SeqCst),
            Step::Alone => IS_PROTECTED.store(false, Ordering::SeqCst),
            // A host that was overtaken and takes over later copies to a standby again before it may
            // die.
            Step::Activating if at.step != step => {
                REACHED.store(0, Ordering::SeqCst);
                IS_PROTECTED.store(false, Ordering::SeqCst);
            }
            _ => {}
        }
        if step.is_of_primary() && !IS_PROTECTED.load(Ordering::SeqCst) {
            return;
        }
        if at.step != step || REACHED.fetch_add(1, Ordering::SeqCst) + 1 != at.time {
            return;
        }
        match end {
            // The process dies as in a power failure: it tells nobody and tidies nothing up.
            End::Death => drop(kill(getpid(), Signal::SIGKILL)),
            End::Standstill => loop {
                thread::park();
            },
        }
    }
}
