//! The records of late packets, made from the reports of phones and of a media server, or from what the kernel saw of
//! packets for domains.

use crate::error::ReplayError;
use crate::vcpus::Vcpus;
use laxity_trace::{Kind, NONE, Place, Record, Spent, hop, job, spent};

/// Streams that records tell apart.
const STREAMS: u64 = 1 << 24;
/// Packets of a stream that records tell apart.
const NUMBERS: u64 = 1 << 40;

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
        let end = (Kind::Packet, packet(self.stream, self.number));
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

/// The way of a packet within a host, from its kernel to a domain. Times are from the start of the run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Delivery {
    /// The domain that it is for.
    pub domain: u16,
    /// The number of its stream there.
    pub stream: u64,
    /// Its number in the stream.
    pub number: u64,
    /// The places where it waited, at least one: each with the VCPU that was to handle it, by its domain and its number
    /// there, and since when it waited.
    pub places: Vec<(Place, (u16, u16), i64)>,
    /// When the last of these VCPUs had it, or the end of the run.
    pub end_ns: i64,
    /// It was still waiting at the end of the run.
    pub is_unfinished: bool,
}

impl Delivery {
    /// Since when it waited.
    pub fn since_ns(&self) -> i64 {
        self.places.first().map_or(self.end_ns, |place| place.2)
    }

    fn records(&self) -> impl Iterator<Item = Record> {
        let time_ns = self.end_ns;
        let record = move |(domain, vcpu), kind, argument| Record {
            time_ns,
            argument,
            cpu: NONE,
            domain,
            vcpu,
            kind,
        };
        let places = self.places.iter();
        let hops = places
            .map(move |&(place, vcpu, since_ns)| record(vcpu, Kind::Hop, hop(place, since_ns)));
        let end = if self.is_unfinished {
            Place::Unfinished
        } else {
            Place::Arrived
        };
        let first = (self.domain, 0);
        hops.chain([
            record(first, Kind::Hop, hop(end, time_ns)),
            record(first, Kind::Packet, packet(self.stream, self.number)),
        ])
    }

    /// That all is of a run of this length, and its times are in order.
    fn is_of(&self, vcpus: &Vcpus, duration_ns: i64) -> bool {
        let mut last_ns = 0;
        let mut is_later = |ns| std::mem::replace(&mut last_ns, ns) <= ns;
        let are_known = (self.places.iter())
            .all(|&(_, vcpu, since_ns)| is_known(vcpus, vcpu) && is_later(since_ns));
        !self.places.is_empty()
            && are_known
            && is_later(self.end_ns)
            && self.end_ns <= duration_ns
            && is_known(vcpus, (self.domain, 0))
            && self.number < NUMBERS
    }
}

/// The argument of a packet's own record.
fn packet(stream: u64, number: u64) -> i64 {
    job((stream % STREAMS) as u32, number)
}

fn is_known(vcpus: &Vcpus, (domain, vcpu): (u16, u16)) -> bool {
    usize::from(domain) < vcpus.domains()
        && usize::from(vcpu) < vcpus.of_domain(domain.into()).len()
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
    for way in ways {
        let is_within = (0..=way.heard_ns).contains(&way.sent_ns) && way.heard_ns <= duration_ns;
        if !is_known(vcpus, way.vcpu)
            || !is_within
            || way.number >= NUMBERS
            || !(0..1 << 56).contains(&way.work_ns)
        {
            let (domain, vcpu) = way.vcpu;
            return Err(ReplayError::Run(format!(
                "packet {} of stream {}, sent at {} ns, heard at {} ns and handled by VCPU {vcpu} of domain {domain}, \
                 is not of the run",
                way.number, way.stream, way.sent_ns, way.heard_ns
            )));
        }
    }
    let of_ways = (ways.iter()).map(|way| (way.heard_ns, way.in_order().records().collect()));
    Ok(added(records, of_ways.collect()))
}

/// Adds packets that the kernel saw, in the same way.
///
/// # Errors
///
/// The same.
pub fn with_deliveries(
    vcpus: &Vcpus,
    duration_ns: i64,
    records: Vec<Record>,
    deliveries: &[Delivery],
) -> Result<Vec<Record>, ReplayError> {
    if let Some(wrong) = (deliveries.iter()).find(|each| !each.is_of(vcpus, duration_ns)) {
        let Delivery {
            domain,
            stream,
            number,
            ..
        } = wrong;
        return Err(ReplayError::Run(format!(
            "packet {number} of stream {stream} of domain {domain} is not of the run"
        )));
    }
    let told = (deliveries.iter()).map(|each| (each.end_ns, each.records().collect()));
    Ok(added(records, told.collect()))
}

/// Puts the records of packets behind all else of the instant at which each ends.
fn added(records: Vec<Record>, mut packets: Vec<(i64, Vec<Record>)>) -> Vec<Record> {
    packets.sort_by_key(|&(end_ns, _)| end_ns);
    let mut told = Vec::with_capacity(records.len());
    let mut packets = packets.into_iter().peekable();
    for record in records {
        while let Some((_, packet)) = packets.next_if(|&(end_ns, _)| end_ns < record.time_ns) {
            told.extend(packet);
        }
        told.push(record);
    }
    told.extend(packets.flat_map(|(_, packet)| packet));
    told
}
