//! Why jobs were late, from a trace: each job's response is split without gaps into causes, and its lateness is
//! divided among those that delayed it. `docs/explanation/why.md` states the rules.
//!
//! One pass over the records, in order; memory holds the VCPUs, the tasks, and what each released job that is not
//! complete needs: the time that its VCPU had spent for each cause when the job was released.
#![forbid(unsafe_code)]

mod account;
mod answer;
mod cause;
mod share;

pub use account::{Account, TooMany};
pub use answer::{Answer, Explained, ExplainedCause, Question, Total, WhyError, why};
pub use cause::{Cause, Part, Rule, Who};
pub use share::{Job, divide};
