//! What a trace shows of a run and no host file tells.

use crate::{Kind, Reader, Record, TraceError};
use std::collections::BTreeMap;
use std::io::Read;

/// How long after an instant a VCPU may wake for what falls due at it, ns. Timers are served one after the other, and
/// each takes some microseconds.
pub const LATE_NS_MAX: i64 = 100_000;

/// What a trace shows of a run and no host file tells, each in order of time.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Seen {
    /// The instants at which jobs of several VCPUs are released and two or more of these wake.
    pub ties: Vec<Tie>,
    /// The wakes of VCPUs for no job.
    pub own_wakes: Vec<OwnWake>,
}

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

/// A wake of a VCPU less than [`LATE_NS_MAX`] after no release of a job of its own: its kernel wakes for itself, for a
/// tick.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OwnWake {
    /// When.
    pub time_ns: i64,
    /// Its domain and number.
    pub vcpu: (u16, u16),
}

/// What a trace shows.
///
/// # Errors
///
/// The trace is damaged.
pub fn seen<R: Read>(reader: Reader<R>) -> Result<Seen, TraceError> {
    let mut seen = Seen::default();
    let mut last = Instant::default();
    let mut released_ns = BTreeMap::new();
    for record in reader {
        let record = record?;
        let vcpu = (record.domain, record.vcpu);
        match record.kind {
            Kind::Release => {
                if record.time_ns != last.time_ns {
                    seen.ties.extend(std::mem::take(&mut last).tie());
                    last.time_ns = record.time_ns;
                }
                last.released.push(vcpu);
                released_ns.insert(vcpu, record.time_ns);
            }
            Kind::Wake => {
                last.wake(&record);
                let is_for_job = released_ns
                    .get(&vcpu)
                    .is_some_and(|&at_ns| is_for(at_ns, record.time_ns));
                if !is_for_job {
                    seen.own_wakes.push(OwnWake {
                        time_ns: record.time_ns,
                        vcpu,
                    });
                }
            }
            _ => {}
        }
    }
    seen.ties.extend(last.tie());
    Ok(seen)
}

/// Whether a wake may be for what fell due at an instant before it.
fn is_for(due_ns: i64, wake_ns: i64) -> bool {
    wake_ns.saturating_sub(due_ns) <= LATE_NS_MAX
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
        let is_for_it = is_for(self.time_ns, record.time_ns) && self.released.contains(&vcpu);
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

    /// What is seen in a trace of three domains of two VCPUs; a record is a time in us, a kind, a domain and a VCPU.
    fn found(records: &[(i64, Kind, u16, u16)]) -> Seen {
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
        seen(sample::reader(&file)).expect("it is sound")
    }

    /// Instants in us, with the VCPUs that woke for them.
    fn ties(records: &[(i64, Kind, u16, u16)]) -> Vec<(i64, Vec<(u16, u16)>)> {
        let in_us = |tie: Tie| (tie.time_ns / 1000, tie.vcpus);
        found(records).ties.into_iter().map(in_us).collect()
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
        assert_eq!(ties(&records), [(10, vec![(2, 1), (0, 0)])]);
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
        assert_eq!(ties(&records), [(300, vec![(1, 0), (0, 0)])]);
        assert_eq!(found(&[]), Seen::default());
    }

    #[test]
    fn a_wake_that_follows_no_job_of_its_vcpu_is_its_own() {
        use Kind::{Release, Wake};
        let records = [
            (3, Wake, 0, 0),
            (10, Release, 0, 0),
            (110, Wake, 0, 0),
            (111, Wake, 0, 0),
            // Jobs are those of one VCPU.
            (120, Release, 1, 0),
            (121, Wake, 1, 1),
            (122, Wake, 1, 0),
        ];
        let own = [(3, (0, 0)), (111, (0, 0)), (121, (1, 1))];
        let in_us = |wake: &OwnWake| (wake.time_ns / 1000, wake.vcpu);
        let seen: Vec<_> = found(&records).own_wakes.iter().map(in_us).collect();
        assert_eq!(seen, own);
    }

    #[test]
    fn a_damaged_trace_is_refused() {
        let file = sample::file(&sample::metadata(), &sample::records());
        assert!(seen(sample::reader(&file[..file.len() - 1])).is_err());
    }
}
