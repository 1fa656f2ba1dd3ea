//! Messages for hierarchical token buckets in the kernel's format (`linux/pkt_sched.h`), which no
//! crate provides.

use netlink_packet_core::{DefaultNla, NlasIterator};
use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::tc::{TcAttribute, TcHandle, TcHeader, TcMessage, TcOption};

use crate::control::Limits;
use crate::shaper::{Counters, FRAME_BYTES_MIN};

/// The major number by which our qdiscs and classes are recognized, also after a restart of the
/// daemon.
pub(crate) const MAJOR: u16 = 0x1a7c;

/// Length of the kernel's clock tick in which it counts buckets, in ns (`PSCHED_SHIFT`).
const TICK_NS: u64 = 64;
/// Size of a frame with its VLAN tag: no frame would ever pass a smaller bucket.
pub const FRAME_BYTES: u64 = 1_518;
/// Default size of a bucket, as time at its rate: the traffic of one late timer.
const BURST_NS: u64 = 2_000_000;

const TCA_KIND: u16 = 1;
const TCA_STATS2: u16 = 7;
const TCA_STATS_BASIC: u16 = 1;
const TCA_STATS_QUEUE: u16 = 3;
const TCA_HTB_PARMS: u16 = 1;
const TCA_HTB_INIT: u16 = 2;
const TCA_HTB_RATE64: u16 = 6;
const TCA_HTB_CEIL64: u16 = 7;

pub const KIND: &str = "htb";

/// The handle of our class with this number.
pub fn class_handle(minor: u16) -> TcHandle {
    TcHandle {
        major: MAJOR,
        minor,
    }
}

/// The settings of a class.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Class {
    pub limits: Limits,
    /// Size of the bucket; `None` stands for what [`BURST_NS`] and one frame need.
    pub burst_bytes: Option<u64>,
    /// Priority among lenders and borrowers, 0 to 7; 0 goes first.
    pub priority: u32,
    /// Bytes that the class may send in one turn among borrowers.
    pub quantum_bytes: u32,
}

fn header(interface: u32, handle: TcHandle, parent: TcHandle) -> TcHeader {
    TcHeader {
        index: interface as i32,
        handle,
        parent,
        ..TcHeader::default()
    }
}

fn message(header: TcHeader, attributes: Vec<TcAttribute>) -> TcMessage {
    TcMessage::from_parts(header, attributes)
}

fn kind() -> TcAttribute {
    TcAttribute::Kind(KIND.into())
}

fn options(options: Vec<DefaultNla>) -> TcAttribute {
    TcAttribute::Options(options.into_iter().map(TcOption::Other).collect())
}

/// Makes our qdisc the root of an interface; packets that no filter classifies go to class
/// `default`.
pub fn new_root(interface: u32, default: u16) -> RouteNetlinkMessage {
    const VERSION: u32 = 3;
    const RATE_TO_QUANTUM: u32 = 10;
    let global = [VERSION, RATE_TO_QUANTUM, default.into(), 0, 0];
    let global: Vec<u8> = global.into_iter().flat_map(u32::to_ne_bytes).collect();
    RouteNetlinkMessage::NewQueueDiscipline(message(
        header(interface, class_handle(0), TcHandle::ROOT),
        vec![kind(), options(vec![DefaultNla::new(TCA_HTB_INIT, global)])],
    ))
}

/// Removes our root qdisc with all its classes and queues.
pub fn delete_root(interface: u32) -> RouteNetlinkMessage {
    let header = header(interface, class_handle(0), TcHandle::ROOT);
    RouteNetlinkMessage::DelQueueDiscipline(message(header, Vec::new()))
}

/// Makes or changes a class under `parent`.
pub fn set_class(interface: u32, minor: u16, parent: u16, class: &Class) -> RouteNetlinkMessage {
    /// The kernel needs no tables of transmission times for Ethernet.
    const LINKLAYER_ETHERNET: u8 = 1;
    /// Lowest rate that is set, since the kernel does not accept zero.
    const RATE_BYTES_MIN: u64 = 1;
    let rate = (class.limits.rate_bit_s / 8).max(RATE_BYTES_MIN);
    let ceiling = (class.limits.ceiling_bit_s / 8).max(rate);
    let bucket = |rate: u64| {
        let default = rate * BURST_NS / 1_000_000_000 + 2 * FRAME_BYTES;
        let bytes = class.burst_bytes.unwrap_or(default).max(FRAME_BYTES);
        let ticks = u128::from(bytes) * 1_000_000_000 / u128::from(rate * TICK_NS);
        u32::try_from(ticks).unwrap_or(u32::MAX).max(1)
    };
    // A class is charged with as much for a shorter frame (mpu), or its sender would get more of the
    // link the shorter its frames are.
    const CHARGED_BYTES_MIN: [u8; 2] = (FRAME_BYTES_MIN as u16).to_ne_bytes();
    let specification = |rate: u64| {
        let mut bytes = vec![0, LINKLAYER_ETHERNET, 0, 0, 0, 0];
        bytes.extend(CHARGED_BYTES_MIN);
        bytes.extend(u32::try_from(rate).unwrap_or(u32::MAX).to_ne_bytes());
        bytes
    };
    let mut parameters = specification(rate);
    parameters.extend(specification(ceiling));
    const LEVEL: u32 = 0;
    for number in [
        bucket(rate),
        bucket(ceiling),
        class.quantum_bytes,
        LEVEL,
        class.priority,
    ] {
        parameters.extend(number.to_ne_bytes());
    }
    let mut attributes = vec![DefaultNla::new(TCA_HTB_PARMS, parameters)];
    for (attribute, rate) in [(TCA_HTB_RATE64, rate), (TCA_HTB_CEIL64, ceiling)] {
        if u32::try_from(rate).is_err() {
            attributes.push(DefaultNla::new(attribute, rate.to_ne_bytes().to_vec()));
        }
    }
    let parent = class_handle(parent);
    RouteNetlinkMessage::NewTrafficClass(message(
        header(interface, class_handle(minor), parent),
        vec![kind(), options(attributes)],
    ))
}

/// Removes a class.
pub fn delete_class(interface: u32, minor: u16) -> RouteNetlinkMessage {
    let header = header(interface, class_handle(minor), TcHandle::UNSPEC);
    RouteNetlinkMessage::DelTrafficClass(message(header, Vec::new()))
}

/// Asks for one class.
pub fn get_class(interface: u32, minor: u16) -> RouteNetlinkMessage {
    let header = header(interface, class_handle(minor), TcHandle::UNSPEC);
    RouteNetlinkMessage::GetTrafficClass(message(header, Vec::new()))
}

/// Asks for all of our classes at an interface. The answer may have classes of queues, too.
pub fn get_classes(interface: u32) -> RouteNetlinkMessage {
    let header = header(interface, TcHandle::UNSPEC, class_handle(0));
    RouteNetlinkMessage::GetTrafficClass(message(header, Vec::new()))
}

/// The discipline of a class's queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Queue {
    /// fq_codel (RFC 8290): flows take turns, new flows first, and a queue that stands for longer
    /// than 5 ms is shortened.
    Fair,
    /// First in, first out, with room for this many bytes.
    Short(u32),
}

impl Queue {
    /// The kernel's name of the discipline.
    pub fn kind(self) -> &'static str {
        match self {
            Queue::Fair => "fq_codel",
            Queue::Short(_) => "bfifo",
        }
    }
}

/// The handle of the queue in the class with this number.
pub fn queue_handle(minor: u16) -> TcHandle {
    TcHandle {
        major: minor,
        minor: 0,
    }
}

/// Makes the queue in a class.
pub fn set_queue(interface: u32, minor: u16, queue: Queue) -> RouteNetlinkMessage {
    const TCA_OPTIONS: u16 = 2;
    const TCA_FQ_CODEL_LIMIT: u16 = 2;
    const TCA_FQ_CODEL_FLOWS: u16 = 5;
    /// Bound for senders that do not slow down when packets are dropped.
    const PACKETS_MAX: u32 = 1_000;
    /// Number of flow queues. The kernel's default of 1,024 would take 70 KiB for each of two
    /// queues of a thousand agreements.
    const FLOWS: u32 = 128;
    let number = |attribute, number: u32| DefaultNla::new(attribute, number.to_ne_bytes().to_vec());
    let options = match queue {
        Queue::Fair => options(vec![
            number(TCA_FQ_CODEL_LIMIT, PACKETS_MAX),
            number(TCA_FQ_CODEL_FLOWS, FLOWS),
        ]),
        Queue::Short(bytes) => TcAttribute::Other(number(TCA_OPTIONS, bytes)),
    };
    RouteNetlinkMessage::NewQueueDiscipline(message(
        header(interface, queue_handle(minor), class_handle(minor)),
        vec![TcAttribute::Kind(queue.kind().into()), options],
    ))
}

/// Asks for the queue in one class.
pub fn get_queue(interface: u32, minor: u16) -> RouteNetlinkMessage {
    let header = header(interface, queue_handle(minor), class_handle(minor));
    RouteNetlinkMessage::GetQueueDiscipline(message(header, Vec::new()))
}

/// Asks for the root qdisc of an interface, whoever made it.
pub fn get_root(interface: u32) -> RouteNetlinkMessage {
    let header = header(interface, TcHandle::UNSPEC, TcHandle::ROOT);
    RouteNetlinkMessage::GetQueueDiscipline(message(header, Vec::new()))
}

/// Asks for the qdiscs of all interfaces.
pub fn get_qdiscs() -> RouteNetlinkMessage {
    let header = header(0, TcHandle::UNSPEC, TcHandle::UNSPEC);
    RouteNetlinkMessage::GetQueueDiscipline(message(header, Vec::new()))
}

/// A qdisc or class of a dump.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Dumped<'d> {
    pub interface: u32,
    pub handle: TcHandle,
    pub parent: TcHandle,
    pub kind: &'d str,
    pub counters: Counters,
}

/// Parses one part of a dump without a copy, since a thousand parts come in every period.
pub fn parse(payload: &[u8]) -> Option<Dumped<'_>> {
    const HEADER_BYTES: usize = 20;
    let number = |at: usize| word(payload, at);
    let handle = |at: usize| -> Option<TcHandle> {
        let number = number(at)?;
        Some(TcHandle {
            major: (number >> 16) as u16,
            minor: number as u16,
        })
    };
    let mut dumped = Dumped {
        interface: number(4)?,
        handle: handle(8)?,
        parent: handle(12)?,
        kind: "",
        counters: Counters::default(),
    };
    for (kind, value) in attributes(payload.get(HEADER_BYTES..)?) {
        match kind {
            TCA_KIND => {
                let text = value.strip_suffix(&[0]).unwrap_or(value);
                dumped.kind = std::str::from_utf8(text).ok()?;
            }
            TCA_STATS2 => dumped.counters = counters(value)?,
            _ => {}
        }
    }
    Some(dumped)
}

fn counters(value: &[u8]) -> Option<Counters> {
    let mut counters = Counters::default();
    for (kind, value) in attributes(value) {
        match kind {
            TCA_STATS_BASIC => {
                counters.bytes = u64::from_ne_bytes(*value.first_chunk()?);
                counters.packets = word(value, 8)?;
            }
            TCA_STATS_QUEUE => {
                // qlen, backlog, drops, requeues, overlimits
                counters.backlog_bytes = word(value, 4)?;
                counters.drops = word(value, 8)?;
                counters.overlimits = word(value, 16)?;
            }
            _ => {}
        }
    }
    Some(counters)
}

fn word(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(*bytes.get(at..)?.first_chunk()?))
}

fn attributes(bytes: &[u8]) -> impl Iterator<Item = (u16, &[u8])> {
    NlasIterator::new(bytes).filter_map(|attribute| {
        let attribute = attribute.ok()?;
        let whole = attribute.into_inner();
        let kind = u16::from_ne_bytes([whole[2], whole[3]]) & 0x3fff;
        let length = u16::from_ne_bytes([whole[0], whole[1]]) as usize;
        Some((kind, whole.get(4..length)?))
    })
}
