//! Packets for the domains of a host whose kernel is Linux: when it had them, and when threads took them.
//!
//! Three ways lead to a domain:
//!
//! - **A card of a virtual machine**. `net_dev_queue` tells when a packet was put into the queue of a device, which may
//!   be a tap. A macvtap takes packets from the device below it as they are handed up, of which `netif_receive_skb`
//!   tells. `skb_copy_datagram_iovec` tells when a thread copied all of the packet's bytes: the thread of vhost, or one
//!   of QEMU. All three name the packet's buffer. A buffer that is freed in between, or is seen with another packet, is
//!   forgotten.
//! - **A UDP socket**. `netif_receive_skb` tells when a device handed a packet up, and `sk_data_ready`, next on the
//!   same CPU, into which socket it was put. `sock_recv_length` tells when a thread took a packet out of the socket,
//!   and not which one: sockets are queues, so that it is the first one there.
//!
//! - **A domain of Xen**. `net_dev_queue` tells when a packet was put into the queue of netback. A thread of netback
//!   then copies all that is there, by grants, into the domain's memory, tells the domain, which may have the CPU from
//!   then on, and frees the packets. `kfree_skb` or `consume_skb` thus tells which packets were copied, and the last
//!   call of `gnttab_batch_copy` by the thread before it, of which a probe tells (`netback_copied`), when. What an
//!   interrupt does while the thread has the CPU has the thread's number, too, and is told apart by a flag.
//!
//! The queue of a socket is known from its first packet in the recording on, and may have had others before it. A
//! packet is then paired with the take of one that came before it, and its wait is longer than what is told, never
//! shorter. That ends when the socket is seen to be empty: a thread asked for a packet and there was none, or took one
//! while none is known.

use crate::error::KvmError;
use crate::format::{Field, Format};
use laxity_replay::Delivery;
use laxity_trace::{Kind, Place, Record};
use std::collections::{BTreeMap, HashMap, VecDeque};

/// What `protocol` is for UDP.
const UDP: i64 = 17;
/// A packet is handed up without the header of its frame, and a macvtap puts it back.
const FRAME_HEADER_BYTES: i64 = 14;
/// Flags of a call that leave the packet in the socket, or take an error instead.
const PEEK: i64 = 0x2;
const ERROR_QUEUE: i64 = 0x2000;
/// The result of a call that found no packet.
const NONE_THERE: i64 = -11;
/// Bits of `common_flags` that say that an event is of an interrupt, and not of the thread that it names.
const INTERRUPT: i64 = 0x08 | 0x10;

/// What a tracepoint of the network says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Seen {
    pub time_ns: i64,
    pub cpu: u16,
    pub what: What,
}

/// What happened. Buffers and sockets are addresses in the kernel, which are others' later.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum What {
    /// A device handed the packet up.
    Came { buffer: i64, bytes: i64 },
    /// The packet was put into the queue of a device.
    Queued { buffer: i64, bytes: i64 },
    /// A thread copied bytes of what is in a buffer.
    Copied {
        buffer: i64,
        bytes: i64,
        thread: i64,
    },
    /// The kernel has no use for the buffer any more; it was dropped if nobody had taken it.
    Freed {
        buffer: i64,
        is_dropped: bool,
        /// The thread that freed it; `None` if an interrupt did, or where nobody copies by grants.
        thread: Option<i64>,
    },
    /// A thread began to copy packets into the memory of a domain of Xen. Those that it frees next are these.
    Granted { thread: i64 },
    /// A UDP socket got a packet.
    Ready { socket: i64 },
    /// A thread asked a UDP socket for a packet, and was told its length or an error.
    Asked {
        socket: i64,
        thread: i64,
        result: i64,
        flags: i64,
    },
}

/// The events of the network, as this kernel numbers them and lays them out.
#[derive(Debug, Clone, Copy)]
pub struct Network {
    queued: Buffer,
    queued_bytes: Field,
    dropped: Buffer,
    consumed: Buffer,
    /// The thread that an event is of.
    thread: Field,
    grants: Option<Grants>,
    cards: Option<Cards>,
    sockets: Option<Sockets>,
}

/// The event that tells of copies by grants.
#[derive(Debug, Clone, Copy)]
struct Grants {
    number: u16,
    /// Whether an event is of an interrupt.
    flags: Field,
}

/// The events that cards of virtual machines need, too.
#[derive(Debug, Clone, Copy)]
struct Cards {
    came: Buffer,
    came_bytes: Field,
    copied: Buffer,
    copied_bytes: Field,
}

/// An event that names a buffer.
#[derive(Debug, Clone, Copy)]
struct Buffer {
    number: u16,
    address: Field,
}

/// The events of sockets.
#[derive(Debug, Clone, Copy)]
struct Sockets {
    ready: u16,
    ready_socket: Field,
    ready_protocol: Field,
    asked: u16,
    asked_socket: Field,
    asked_protocol: Field,
    result: Field,
    flags: Field,
}

impl Network {
    /// `None` if the recording has neither all events of cards nor all of netback. Those of sockets may be missing:
    /// kernels before 6.3 have none.
    ///
    /// # Errors
    ///
    /// A format lacks what is used.
    pub fn new(texts: &[&str]) -> Result<Option<Network>, KvmError> {
        let find = |event| Format::find(texts, event).ok();
        let (Some(queued), Some(dropped), Some(consumed)) = (
            find("net_dev_queue"),
            find("kfree_skb"),
            find("consume_skb"),
        ) else {
            return Ok(None);
        };
        let buffer = |format: &Format| {
            Ok::<_, KvmError>(Buffer {
                number: format.number()?,
                address: format.field("skbaddr")?,
            })
        };
        let cards = match (find("netif_receive_skb"), find("skb_copy_datagram_iovec")) {
            (Some(came), Some(copied)) => Some((came, copied)),
            _ => None,
        };
        let granted = find("netback_copied");
        // All events have these fields at the same place.
        let copied = cards.as_ref().map(|(_, copied)| copied);
        let Some(common) = copied.or(granted.as_ref()) else {
            return Ok(None);
        };
        let thread = common.field("common_pid")?;
        let grants = |granted: Format| {
            Ok::<_, KvmError>(Grants {
                number: granted.number()?,
                flags: granted.field("common_flags")?,
            })
        };
        let of_cards = |(came, copied): (Format, Format)| {
            Ok::<_, KvmError>(Cards {
                came: buffer(&came)?,
                came_bytes: came.field("len")?,
                copied: buffer(&copied)?,
                copied_bytes: copied.field("len")?,
            })
        };
        let sockets = match (find("sk_data_ready"), find("sock_recv_length")) {
            (Some(ready), Some(asked)) => Some(Sockets {
                ready: ready.number()?,
                ready_socket: ready.field("skaddr")?,
                ready_protocol: ready.field("protocol")?,
                asked: asked.number()?,
                asked_socket: asked.field("sk")?,
                asked_protocol: asked.field("protocol")?,
                result: asked.field("ret")?,
                flags: asked.field("flags")?,
            }),
            _ => None,
        };
        Ok(Some(Network {
            queued: buffer(&queued)?,
            queued_bytes: queued.field("len")?,
            dropped: buffer(&dropped)?,
            consumed: buffer(&consumed)?,
            thread,
            grants: granted.map(grants).transpose()?,
            cards: cards.map(of_cards).transpose()?,
            sockets,
        }))
    }

    pub fn has_sockets(&self) -> bool {
        self.sockets.is_some()
    }

    /// What an event says; `None` if it is none of these.
    ///
    /// # Errors
    ///
    /// It is too short.
    pub fn what(&self, event: &[u8]) -> Result<Option<What>, String> {
        let number = event.first_chunk().map(|bytes| u16::from_le_bytes(*bytes));
        let number = number.ok_or("an event without a number")?;
        let value = |field: Field| {
            let short = || format!("event {number} has {} bytes", event.len());
            field.of(event).ok_or_else(short)
        };
        // What an interrupt does is not of the thread that it came to.
        let own_thread = |grants: Grants| {
            let is_own = value(grants.flags)? & INTERRUPT == 0;
            Ok::<_, String>(is_own.then_some(value(self.thread)?))
        };
        let granted = (self.grants).filter(|grants| grants.number == number);
        let what = if number == self.queued.number {
            What::Queued {
                buffer: value(self.queued.address)?,
                bytes: value(self.queued_bytes)?,
            }
        } else if let Some(freed) = [self.dropped, self.consumed]
            .into_iter()
            .find(|freed| freed.number == number)
        {
            What::Freed {
                buffer: value(freed.address)?,
                is_dropped: number == self.dropped.number,
                thread: self.grants.map_or(Ok(None), own_thread)?,
            }
        } else if let Some(grants) = granted {
            match own_thread(grants)? {
                Some(thread) => What::Granted { thread },
                None => return Ok(None),
            }
        } else if let Some(cards) = self.cards.filter(|cards| cards.came.number == number) {
            What::Came {
                buffer: value(cards.came.address)?,
                bytes: value(cards.came_bytes)?,
            }
        } else if let Some(cards) = self.cards.filter(|cards| cards.copied.number == number) {
            What::Copied {
                buffer: value(cards.copied.address)?,
                bytes: value(cards.copied_bytes)?,
                thread: value(self.thread)?,
            }
        } else if let Some(sockets) = &self.sockets {
            if number == sockets.ready && value(sockets.ready_protocol)? == UDP {
                What::Ready {
                    socket: value(sockets.ready_socket)?,
                }
            } else if number == sockets.asked && value(sockets.asked_protocol)? == UDP {
                What::Asked {
                    socket: value(sockets.asked_socket)?,
                    thread: value(self.thread)?,
                    result: value(sockets.result)?,
                    flags: value(sockets.flags)?,
                }
            } else {
                return Ok(None);
            }
        } else {
            return Ok(None);
        };
        Ok(Some(what))
    }
}

/// Where a thread took packets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Source {
    /// The cards that this thread serves.
    Cards(i64),
    /// The socket with this address.
    Socket(i64),
}

/// A packet that a thread took.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Taken {
    pub source: Source,
    pub thread: i64,
    pub came_ns: i64,
    pub taken_ns: i64,
}

/// A packet in the queue of a socket.
#[derive(Debug, Clone, Copy)]
struct Waiting {
    /// `None` if it is not known.
    buffer: Option<i64>,
    came_ns: i64,
}

#[derive(Debug, Default)]
struct Socket {
    queue: VecDeque<Waiting>,
    /// When threads took packets while none was known, and which threads.
    took_unknown: VecDeque<(i64, i64)>,
}

/// What waits, as far as it is known. Takes what was seen in order of time, and gives back the packets that were taken.
#[derive(Debug, Default)]
pub struct Pairing {
    /// When packets were handed up or put into the queues of devices, and the bytes of their frames, by buffer.
    of_cards: HashMap<i64, (i64, i64)>,
    sockets: HashMap<i64, Socket>,
    /// When packets came that may be in sockets, by buffer: what does not stand here has left its socket, or goes
    /// elsewhere.
    for_sockets: HashMap<i64, i64>,
    /// The buffer of the packet that a device handed up last and that is in no socket, and when, by CPU.
    handed_up: HashMap<u16, (i64, i64)>,
    /// When threads last copied packets into the memory of domains of Xen, by thread.
    granted: HashMap<i64, i64>,
}

impl Pairing {
    pub fn see(&mut self, seen: &Seen) -> Option<Taken> {
        let time_ns = seen.time_ns;
        match seen.what {
            What::Came { buffer, bytes } => {
                let frame_bytes = bytes + FRAME_HEADER_BYTES;
                self.of_cards.insert(buffer, (time_ns, frame_bytes));
                self.for_sockets.insert(buffer, time_ns);
                self.handed_up.insert(seen.cpu, (buffer, time_ns));
            }
            What::Queued { buffer, bytes } => {
                self.for_sockets.remove(&buffer);
                self.of_cards.insert(buffer, (time_ns, bytes));
            }
            What::Copied {
                buffer,
                bytes,
                thread,
            } => {
                // Another length is that of something else which has the buffer.
                let (came_ns, _) = (self.of_cards.remove(&buffer)).filter(|of| of.1 == bytes)?;
                return Some(Taken {
                    source: Source::Cards(thread),
                    thread,
                    came_ns,
                    taken_ns: time_ns,
                });
            }
            What::Granted { thread } => {
                self.granted.insert(thread, time_ns);
            }
            What::Freed {
                buffer,
                is_dropped,
                thread,
            } => {
                let came = self.of_cards.remove(&buffer);
                if let Some((came_ns, _)) = came
                    && let Some(thread) = thread
                    && let Some(&taken_ns) = self.granted.get(&thread)
                    && taken_ns >= came_ns
                {
                    return Some(Taken {
                        source: Source::Cards(thread),
                        thread,
                        came_ns,
                        taken_ns,
                    });
                }
                // Older kernels free what a thread takes out of a socket before they say that it does.
                if is_dropped {
                    self.for_sockets.remove(&buffer);
                }
            }
            What::Ready { socket } => return self.ready(seen.cpu, socket, time_ns),
            What::Asked {
                socket,
                thread,
                result,
                flags,
            } if flags & (PEEK | ERROR_QUEUE) == 0 => {
                return self.asked(socket, thread, result, time_ns);
            }
            What::Asked { .. } => {}
        }
        None
    }

    fn ready(&mut self, cpu: u16, socket: i64, time_ns: i64) -> Option<Taken> {
        let (buffer, came_ns) = match self.handed_up.remove(&cpu) {
            Some((buffer, came_ns)) if self.for_sockets.get(&buffer) == Some(&came_ns) => {
                (Some(buffer), came_ns)
            }
            // It was dropped on another CPU before the kernel said that it is there.
            Some(_) => return None,
            None => (None, time_ns),
        };
        let own = self.sockets.entry(socket).or_default();
        while own
            .took_unknown
            .front()
            .is_some_and(|&(taken_ns, _)| taken_ns < came_ns)
        {
            own.took_unknown.pop_front();
        }
        if let Some((taken_ns, thread)) = own.took_unknown.pop_front() {
            // A thread on another CPU was faster than the kernel's word that there is a packet.
            return Some(Taken {
                source: Source::Socket(socket),
                thread,
                came_ns,
                taken_ns,
            });
        }
        own.queue.push_back(Waiting { buffer, came_ns });
        None
    }

    fn asked(&mut self, socket: i64, thread: i64, result: i64, time_ns: i64) -> Option<Taken> {
        let own = self.sockets.entry(socket).or_default();
        if result == NONE_THERE {
            own.queue.clear();
        }
        if result < 0 {
            return None;
        }
        while let Some(Waiting { buffer, came_ns }) = own.queue.pop_front() {
            let is_there =
                buffer.is_none_or(|buffer| self.for_sockets.get(&buffer) == Some(&came_ns));
            if is_there {
                return Some(Taken {
                    source: Source::Socket(socket),
                    thread,
                    came_ns,
                    taken_ns: time_ns,
                });
            }
        }
        own.took_unknown.push_back((time_ns, thread));
        None
    }
}

/// The threads that take packets for domains.
#[derive(Debug, Default)]
pub struct Takers {
    /// The domain that a thread takes packets for, and the thread as a VCPU of the trace.
    pub of_threads: HashMap<i64, Taker>,
    /// The number of VCPUs of each domain.
    pub vcpus: Vec<u32>,
}

/// A thread that takes packets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Taker {
    pub domain: u16,
    pub vcpu: (u16, u16),
}

impl Taker {
    /// Whether it hands packets to the VCPUs of the domain.
    fn is_worker(self) -> bool {
        self.vcpu.0 != self.domain
    }
}

/// The packets that domains had.
#[derive(Debug, PartialEq)]
pub struct Delivered {
    /// Those that waited for too long.
    pub late: Vec<Delivery>,
    /// The number of all of them, by domain.
    pub counts: Vec<u64>,
}

/// The packets that domains had: how many, and those that waited for longer than `delay_ns`, from when the kernel had
/// them until their domains had. For a domain's own thread that is when it took the packet; what a worker takes waits
/// on until any VCPU of the domain runs. `records` are those of the trace, which ends at `end_ns`.
pub fn delivered(
    mut seen: Vec<Seen>,
    takers: &Takers,
    records: &[Record],
    (delay_ns, end_ns): (i64, i64),
) -> Delivered {
    seen.sort_by_key(|seen| seen.time_ns);
    let runs = Runs::new(records, takers, end_ns);
    let mut pairing = Pairing::default();
    let mut streams = HashMap::<(u16, Source), (u64, u64)>::new();
    let mut streams_of = HashMap::<u16, u64>::new();
    let (mut late, mut counts) = (Vec::new(), vec![0; takers.vcpus.len()]);
    for taken in seen.iter().filter_map(|seen| pairing.see(seen)) {
        let Some(&taker) = takers.of_threads.get(&taken.thread) else {
            continue;
        };
        let Taken {
            came_ns, taken_ns, ..
        } = taken;
        if came_ns < 0 || taken_ns > end_ns || taken_ns < came_ns {
            continue;
        }
        let Taker { domain, vcpu } = taker;
        counts[usize::from(domain)] += 1;
        let (stream, next) = streams.entry((domain, taken.source)).or_insert_with(|| {
            let of_domain = streams_of.entry(domain).or_default();
            *of_domain += 1;
            (*of_domain - 1, 0)
        });
        let (stream, number) = (*stream, *next);
        *next += 1;
        let mut delivery = Delivery {
            domain,
            stream,
            number,
            places: vec![(Place::Socket, vcpu, came_ns)],
            end_ns: taken_ns,
            is_unfinished: false,
        };
        if taker.is_worker() {
            delivery.places[0].0 = Place::ToGuest;
            let next = runs.next(domain, taken_ns);
            delivery.is_unfinished = next.is_none();
            let (ran_ns, vcpu) = next.unwrap_or((end_ns, 0));
            if ran_ns > taken_ns {
                delivery
                    .places
                    .push((Place::Socket, (domain, vcpu), taken_ns));
                delivery.end_ns = ran_ns;
            }
        }
        if delivery.end_ns - came_ns > delay_ns {
            late.push(delivery);
        }
    }
    Delivered { late, counts }
}

/// When the VCPUs of domains ran, from and to, in order. Domains that no worker takes packets for are left out.
#[derive(Debug)]
struct Runs {
    of_vcpus: BTreeMap<(u16, u16), Vec<(i64, i64)>>,
}

impl Runs {
    fn new(records: &[Record], takers: &Takers, end_ns: i64) -> Runs {
        let mut of_vcpus = BTreeMap::new();
        for taker in takers.of_threads.values().filter(|taker| taker.is_worker()) {
            let vcpus = takers.vcpus.get(usize::from(taker.domain));
            for vcpu in 0..vcpus.map_or(0, |&vcpus| vcpus as u16) {
                of_vcpus.insert((taker.domain, vcpu), Vec::new());
            }
        }
        for record in records {
            let Some(runs) = of_vcpus.get_mut(&(record.domain, record.vcpu)) else {
                continue;
            };
            match (record.kind, runs.last_mut()) {
                (Kind::Run, None) => runs.push((record.time_ns, end_ns)),
                // What goes on is told again.
                (Kind::Run, Some(last)) if last.1 < end_ns => {
                    runs.push((record.time_ns, end_ns));
                }
                (Kind::Stop, Some(last)) => last.1 = record.time_ns,
                _ => {}
            }
        }
        Runs { of_vcpus }
    }

    /// When a VCPU of the domain first runs from a time on, and which one.
    fn next(&self, domain: u16, from_ns: i64) -> Option<(i64, u16)> {
        let of_domain = self.of_vcpus.range((domain, 0)..=(domain, u16::MAX));
        let next = |runs: &[(i64, i64)]| {
            let place = runs.partition_point(|&(_, to_ns)| to_ns <= from_ns);
            runs.get(place).map(|&(start_ns, _)| start_ns.max(from_ns))
        };
        of_domain
            .filter_map(|(&(_, vcpu), runs)| Some((next(runs)?, vcpu)))
            .min()
    }
}

#[cfg(test)]
mod tests;
