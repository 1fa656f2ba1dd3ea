//! The result of a run of a host, the same for every substrate.
//!
//! A substrate fills in a [`RunResult`] and gives it back as an [`Outcome`], together with the jobs' response times and
//! the packets of the sampled streams. [`outcome_of_jobs`] makes one of what was measured on a real host, by the same
//! rules.
#![forbid(unsafe_code)]

mod distribution;
mod jobs;
mod measured;
mod network;
mod outcome;
mod responses;
mod result;
mod telephony;

pub use distribution::{Distribution, Quantiles, Times, ratio};
pub use jobs::{JobsError, UNFINISHED, jobs_due, released_jobs};
pub use measured::{Measured, MeasuredError, outcome_of_jobs};
pub use network::{AgreementResult, NetworkResult};
pub use outcome::{KeptStream, LOST, Outcome, metadata};
pub use responses::{Counted, Responses, bytes_of_responses, kept_jobs_max};
pub use result::{
    Cpu, DomainResult, Engine, Machine, Overhead, RunResult, TaskResult, Waits, schema,
};
pub use telephony::{
    CallsResult, Drops, InterfaceResult, NicResult, ProtectionResult, Quality, RegistrationsResult,
    Scores, Telephony, Voice, WorstCall, WorstStream,
};
