//! The workloads of VCPUs beside periodic tasks, as the engine sees them.

use crate::timers::NEVER;
use laxity_host::Host;
use laxity_run::{KeptStream, NetworkResult, Telephony};
use laxity_trace::Record;

/// What came of the work that is not periodic tasks.
#[derive(Debug, Default)]
pub struct Found {
    /// Calls and voice, of a host with calls.
    pub telephony: Option<Telephony>,
    /// Packets, of a host that has some and no calls.
    pub network: Option<NetworkResult>,
    /// Packets of the sampled streams.
    pub kept: Vec<KeptStream>,
}

/// The work of VCPUs that is not periodic tasks. The engine asks what a VCPU does next and for how long, tells how much
/// CPU time it got, and is told which VCPUs have something new to do.
///
/// A VCPU has either tasks or work that is described here, and of two [`Workloads`] side by side it belongs to one.
pub trait Workloads {
    /// Whether any VCPU can have such work. What the engine does for it is left out where none can.
    const ANY: bool;

    /// Whether the VCPU's work is described here.
    fn has(&self, vcpu: usize) -> bool;

    /// Whether the VCPU has something to do.
    fn has_work(&self, vcpu: usize) -> bool;

    /// When something happens next that no VCPU does; [`NEVER`] if nothing does.
    fn next_ns(&self) -> i64;

    /// Serves the first of the due events outside of VCPUs.
    fn serve(&mut self, now: i64);

    /// A VCPU that got something new to do, or is to stand still; each is told once.
    fn take_signal(&mut self) -> Option<usize>;

    /// CPU time that the VCPU's present step still needs, ns; begins a step if it has none. `None`: it has nothing to
    /// do.
    fn current(&mut self, vcpu: usize, now: i64) -> Option<i64>;

    /// The VCPU has worked for `ns` on its present step.
    fn advance(&mut self, vcpu: usize, ns: i64);

    /// Whether the running VCPU should leave its present step for newer work.
    fn is_to_switch(&self, vcpu: usize) -> bool;

    /// The VCPU has done its present step.
    fn complete(&mut self, vcpu: usize, now: i64);

    /// What is to be traced is told from now on.
    fn follow(&mut self, _: &Host) {}

    /// The run ends.
    fn end(&mut self, _: i64) {}

    /// Whether there are records for the trace.
    #[inline]
    fn has_records(&self) -> bool {
        false
    }

    /// Takes the records for the trace, which are of the present time.
    fn take_records(&mut self, _: impl FnMut(Record)) {}

    /// What came of it all, at the end of the run.
    fn finish(self, host: &Host) -> Found;
}

/// A host whose VCPUs have tasks, or compute without end.
impl Workloads for () {
    const ANY: bool = false;

    #[inline]
    fn has(&self, _: usize) -> bool {
        false
    }

    #[inline]
    fn has_work(&self, _: usize) -> bool {
        false
    }

    #[inline]
    fn next_ns(&self) -> i64 {
        NEVER
    }

    #[inline]
    fn serve(&mut self, _: i64) {}

    #[inline]
    fn take_signal(&mut self) -> Option<usize> {
        None
    }

    #[inline]
    fn current(&mut self, _: usize, _: i64) -> Option<i64> {
        None
    }

    #[inline]
    fn advance(&mut self, _: usize, _: i64) {}

    #[inline]
    fn is_to_switch(&self, _: usize) -> bool {
        false
    }

    #[inline]
    fn complete(&mut self, _: usize, _: i64) {}

    fn finish(self, _: &Host) -> Found {
        Found::default()
    }
}

/// Two kinds of work side by side. At one instant the first one's comes first; the second one says what came of it.
impl<A: Workloads, B: Workloads> Workloads for (A, B) {
    const ANY: bool = A::ANY || B::ANY;

    fn has(&self, vcpu: usize) -> bool {
        self.0.has(vcpu) || self.1.has(vcpu)
    }

    #[inline]
    fn has_work(&self, vcpu: usize) -> bool {
        if self.0.has(vcpu) {
            self.0.has_work(vcpu)
        } else {
            self.1.has_work(vcpu)
        }
    }

    #[inline]
    fn next_ns(&self) -> i64 {
        self.0.next_ns().min(self.1.next_ns())
    }

    fn serve(&mut self, now: i64) {
        if self.0.next_ns() <= now {
            self.0.serve(now);
        } else {
            self.1.serve(now);
        }
    }

    #[inline]
    fn take_signal(&mut self) -> Option<usize> {
        self.0.take_signal().or_else(|| self.1.take_signal())
    }

    fn current(&mut self, vcpu: usize, now: i64) -> Option<i64> {
        if self.0.has(vcpu) {
            self.0.current(vcpu, now)
        } else {
            self.1.current(vcpu, now)
        }
    }

    #[inline]
    fn advance(&mut self, vcpu: usize, ns: i64) {
        if self.0.has(vcpu) {
            self.0.advance(vcpu, ns);
        } else {
            self.1.advance(vcpu, ns);
        }
    }

    fn is_to_switch(&self, vcpu: usize) -> bool {
        if self.0.has(vcpu) {
            self.0.is_to_switch(vcpu)
        } else {
            self.1.is_to_switch(vcpu)
        }
    }

    fn complete(&mut self, vcpu: usize, now: i64) {
        if self.0.has(vcpu) {
            self.0.complete(vcpu, now);
        } else {
            self.1.complete(vcpu, now);
        }
    }

    fn follow(&mut self, host: &Host) {
        self.0.follow(host);
        self.1.follow(host);
    }

    fn end(&mut self, now: i64) {
        self.0.end(now);
        self.1.end(now);
    }

    #[inline]
    fn has_records(&self) -> bool {
        self.0.has_records() || self.1.has_records()
    }

    fn take_records(&mut self, mut tell: impl FnMut(Record)) {
        self.0.take_records(&mut tell);
        self.1.take_records(tell);
    }

    fn finish(self, host: &Host) -> Found {
        self.1.finish(host)
    }
}
