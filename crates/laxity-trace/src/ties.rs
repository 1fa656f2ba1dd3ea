//! The order of what happens at one instant.

use crate::{Kind, Reader, Record, TraceError};
use std::io::Read;

/// How long after an instant a VCPU may wake for a job of that instant, ns. Timers are served one after the other, and
/// each takes some microseconds.
const LATE_NS_MAX: i64 = 100_000;

/// An instant at which jobs of several VCPUs are released.
///
/// A host does not tell which of them wakes first: that depends on where each one's timer is in the timers' queue. But
/// where VCPUs wait first in, first out, it decides who runs first.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tie {
    /// The instant.
    pub time_ns: i64,
    /// Domain and number of each VCPU that woke for it, in the order in which they did. VCPUs that were awake have no
    /// place in it.
    pub vcpus: Vec<(u16, u16)>,
}

/// The instants of a trace at which jobs of several VCPUs are released and two or more of these wake, in order of time.
///
/// # Errors
///
/// The trace is damaged.
pub fn ties<R: Read>(reader: Reader<R>) -> Result<Vec<Tie>, TraceError> {
    let mut ties = Vec::new();
    let mut last = Instant::default();
    for record in reader {
        let record = record?;
        match record.kind {
            Kind::Release => {
                if record.time_ns != last.time_ns {
                    ties.extend(std::mem::take(&mut last).tie());
                    last.time_ns = record.time_ns;
                }
                last.released.push((record.domain, record.vcpu));
            }
            Kind::Wake => last.wake(&record),
            _ => {}
        }
    }
    ties.extend(last.tie());
    Ok(ties)
}

/// An instant, the VCPUs of the jobs that are released at it, and those of them that woke since.
#[derive(Default)]
struct Instant {
    time_ns: i64,
    released: Vec<(u16, u16)>,
    woken: Vec<(u16, u16)>,
}

impl Instant {
    fn wake(&mut self, record: &Record) {
        let vcpu = (record.domain, record.vcpu);
        let late_ns = record.time_ns.saturating_sub(self.time_ns);
        let is_for_it = late_ns <= LATE_NS_MAX && self.released.contains(&vcpu);
        if is_for_it && !self.woken.contains(&vcpu) {
            self.woken.push(vcpu);
        }
    }

    fn tie(self) -> Option<Tie> {
        (self.woken.len() > 1).then_some(Tie {
            time_ns: self.time_ns,
            vcpus: self.woken,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{DomainMetadata, Metadata, NONE, sample};

    /// The ties of a trace of three domains of two VCPUs; a record is a time in us, a kind, a domain and a VCPU.
    fn found(records: &[(i64, Kind, u16, u16)]) -> Vec<(i64, Vec<(u16, u16)>)> {
        let domain = |name: &str| DomainMetadata {
            name: name.into(),
            vcpus: 2,
            ..sample::metadata().domains[0].clone()
        };
        let metadata = Metadata {
            domains: vec![domain("a"), domain("b"), domain("c")],
            ..sample::metadata()
        };
        let records: Vec<Record> = (records.iter())
            .map(|&(time_us, kind, domain, vcpu)| Record {
                time_ns: 1000 * time_us,
                argument: 0,
                cpu: NONE,
                domain,
                vcpu,
                kind,
            })
            .collect();
        let file = sample::file(&metadata, &records);
        let found = ties(sample::reader(&file)).expect("it is sound");
        let in_us = |tie: Tie| (tie.time_ns / 1000, tie.vcpus);
        found.into_iter().map(in_us).collect()
    }

    #[test]
    fn order_is_that_of_the_wakes() {
        use Kind::{Release, Wake};
        let records = [
            (10, Release, 0, 0),
            (10, Release, 1, 0),
            (10, Release, 2, 1),
            (13, Wake, 2, 1),
            (16, Wake, 0, 0),
            // One that was released at another time, one once more, and one that wakes for something else.
            (17, Wake, 2, 0),
            (18, Wake, 2, 1),
            (111, Wake, 1, 0),
        ];
        assert_eq!(found(&records), [(10, vec![(2, 1), (0, 0)])]);
    }

    #[test]
    fn a_vcpu_alone_has_no_order() {
        use Kind::{Release, Wake};
        let records = [
            (0, Release, 0, 0),
            (1, Wake, 0, 0),
            (5, Release, 1, 0),
            (5, Release, 2, 0),
            // The first VCPU wakes for what was released before.
            (6, Wake, 0, 0),
            (7, Wake, 2, 0),
            (300, Release, 1, 0),
            (300, Release, 0, 0),
            (300, Wake, 1, 0),
            (300, Wake, 0, 0),
        ];
        assert_eq!(found(&records), [(300, vec![(1, 0), (0, 0)])]);
        assert_eq!(found(&[]), []);
    }

    #[test]
    fn a_damaged_trace_is_refused() {
        let file = sample::file(&sample::metadata(), &sample::records());
        assert!(ties(sample::reader(&file[..file.len() - 1])).is_err());
    }
}
