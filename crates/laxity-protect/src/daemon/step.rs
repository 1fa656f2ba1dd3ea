//! The steps of an epoch. A daemon that is built for tests (feature `faults`) can be told to die at one.

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
}

/// Says that a step has been reached.
#[inline]
pub(crate) fn reach(step: Step) {
    #[cfg(feature = "faults")]
    super::faults::reach(step);
    #[cfg(not(feature = "faults"))]
    let _ = step;
}
