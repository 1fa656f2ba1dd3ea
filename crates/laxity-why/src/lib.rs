//! Why jobs and packets were late, and domains out, from a trace: each response is split without gaps into causes, and
//! its lateness is divided among those that delayed it. `docs/explanation/why.md` states the rules.
//!
//! One pass over the records, in order; memory holds the VCPUs, the tasks, and what each released job that is not
//! complete needs: the time that its VCPU had spent for each cause when the job was released. The trace of a host with
//! calls is read once more before, for how far back the ways of its late packets go.
#![forbid(unsafe_code)]

mod account;
mod answer;
mod cause;
mod history;
mod packet;
mod share;

pub use account::{Account, GuestTime, TooMany};
pub use answer::{Answer, Exits, Explained, ExplainedCause, Guest, Question, Total, WhyError, why};
pub use cause::{Cause, Part, Rule, Who};
pub use packet::{Fate, Packet, PacketPart, Subject, Watch};
pub use share::{Job, divide};
