//! The records of late packets, made from the reports of phones and of a media server.

use crate::error::ReplayError;
use crate::vcpus::Vcpus;
use laxity_trace::{Kind, NONE, Place, Record, Spent, hop, job, spent};

/// Streams that records tell apart.
const STREAMS: u64 = 1 << 24;

/// The way of a packet from phone to phone over a server. Times are from the start of the run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Way {
    /// The number of its stream.
    pub stream: u64,
    /// Its number in the stream.
    pub number: u64,
    /// The VCPU that handled it, by its domain and its number there.
    pub vcpu: (u16, u16),
    /// When its phone sent it.
    pub sent_ns: i64,
    /// When the server's kernel had it.
    pub arrived_ns: i64,
    /// When the VCPU had sent it on.
    pub left_ns: i64,
    /// When the kernel of the phone that it was for had it. That may be before the VCPU had the CPU again to end its
    /// system call.
    pub heard_ns: i64,
    /// CPU time that the VCPU used for it.
    pub work_ns: i64,
}

impl Way {
    /// The way in order: the kernel stamps arrivals by another clock, which may be a little ahead or behind.
    fn in_order(self) -> Way {
        let arrived_ns = self.arrived_ns.clamp(self.sent_ns, self.heard_ns);
        Way {
            arrived_ns,
            left_ns: self.left_ns.clamp(arrived_ns, self.heard_ns),
            ..self
        }
    }

    fn records(&self) -> impl Iterator<Item = Record> {
        let (domain, vcpu) = self.vcpu;
        let hops = [
            (Place::WireIn, self.sent_ns, 0),
            (Place::Socket, self.arrived_ns, self.work_ns),
            (Place::WireOut, self.left_ns, 0),
            (Place::Arrived, self.heard_ns, 0),
        ];
        let told = hops.into_iter().flat_map(|(place, since_ns, work_ns)| {
            let work = (work_ns > 0).then(|| (Kind::Spent, spent(Spent::Work, work_ns)));
            [Some((Kind::Hop, hop(place, since_ns))), work]
        });
        let number = job((self.stream % STREAMS) as u32, self.number);
        let end = (Kind::Packet, number);
        let time_ns = self.heard_ns;
        (told.flatten().chain([end])).map(move |(kind, argument)| Record {
            time_ns,
            argument,
            cpu: NONE,
            domain,
            // A packet's own record has the server's first VCPU.
            vcpu: if kind == Kind::Packet { 0 } else { vcpu },
            kind,
        })
    }
}

/// Adds packets to the records of a trace that ends at `duration_ns`: each stands where it was heard, behind all else
/// of that instant.
///
/// # Errors
///
/// A packet is not of the run, or its times are not in order.
pub fn with_packets(
    vcpus: &Vcpus,
    duration_ns: i64,
    records: Vec<Record>,
    ways: &[Way],
) -> Result<Vec<Record>, ReplayError> {
    let mut ways: Vec<&Way> = ways.iter().collect();
    ways.sort_by_key(|way| way.heard_ns);
    for way in &ways {
        let (domain, vcpu) = way.vcpu;
        let is_known = usize::from(domain) < vcpus.domains()
            && usize::from(vcpu) < vcpus.of_domain(domain.into()).len();
        let is_within = (0..=way.heard_ns).contains(&way.sent_ns) && way.heard_ns <= duration_ns;
        if !is_known || !is_within || way.number >= 1 << 40 || !(0..1 << 56).contains(&way.work_ns)
        {
            return Err(ReplayError::Run(format!(
                "packet {} of stream {}, sent at {} ns, heard at {} ns and handled by VCPU {vcpu} of domain {domain}, \
                 is not of the run",
                way.number, way.stream, way.sent_ns, way.heard_ns
            )));
        }
    }
    let mut told = Vec::with_capacity(records.len());
    let mut ways = ways.into_iter().peekable();
    for record in records {
        while let Some(way) = ways.next_if(|way| way.heard_ns < record.time_ns) {
            told.extend(way.in_order().records());
        }
        told.push(record);
    }
    for way in ways {
        told.extend(way.in_order().records());
    }
    Ok(told)
}
