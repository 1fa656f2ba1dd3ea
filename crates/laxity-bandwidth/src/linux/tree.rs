//! The shaper of the link outwards: one tree with a class for each holder and one for all other
//! traffic.
//!
//! A holder's class has the agreed rate and ceiling, and two leaves that share them: one for packets that ask for
//! expedited forwarding (DSCP EF, RFC 3246) and one for all others. The first has the whole minimum for its rate, so
//! that what it sends within that goes before all that has to borrow; the holder's class is charged with it, and lends
//! the other leaf as much less. Beyond the minimum both borrow alike: marked packets do not get a larger share.

use std::collections::{HashMap, HashSet};
use std::io;

use netlink_packet_core::{NLM_F_CREATE, NLM_F_EXCL, NLM_F_REPLACE};

use super::htb::{self, Class, Dumped, FRAME_BYTES, MAJOR};
use super::queues::Queues;
use super::{Route, classifier::Classifier};
use crate::agreements::Attachment;
use crate::control::{Limits, Shapers};
use crate::shaper::{Change, Counters, Shaper, take_over};
use crate::{Agreement, Agreements, Sharing};

/// The class around all others.
const WHOLE: u16 = 1;
/// The class of traffic without an agreement.
const OTHERS: u16 = 2;
/// The class of the first holder.
const FIRST: u16 = 0x10;
/// Highest number of a priority in the kernel.
const PRIORITY_MAX: u32 = 7;
/// Most bytes that a borrower sends in one turn: a longer turn would be a burst of its own.
const QUANTUM_BYTES_MAX: u64 = 200_000;

/// Most interfaces that are stacked on each other.
const STACKED_MAX: usize = 8;

/// Distance from the number of a holder's class to those of its leaves.
const EXPEDITED: u16 = 0x5000;
const OTHERWISE: u16 = 0xa000;

/// The number of a holder's class.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Slot(u16);

impl Slot {
    /// The place with this number from 0, which must be less than [`Slot::COUNT`].
    fn new(number: usize) -> Slot {
        Slot(FIRST + number as u16)
    }

    /// Number of places.
    const COUNT: usize = (EXPEDITED - FIRST) as usize;

    /// The place of traffic without an agreement.
    const OTHERS: Slot = Slot(OTHERS);

    /// The numbers of the classes in which packets wait.
    fn leaves(self) -> [u16; 2] {
        [self.0 + EXPEDITED, self.0 + OTHERWISE]
    }

    /// The handle of the leaf for packets that are not expedited.
    fn handle(self) -> u32 {
        u32::from(MAJOR) << 16 | u32::from(self.0 + OTHERWISE)
    }
}

/// The settings of a class that stay while its limits change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Shape {
    burst_bytes: Option<u64>,
    priority: u32,
    quantum_bytes: u32,
}

impl Shape {
    /// The settings for one agreement among `agreements`, whose weights decide its turn.
    fn of(
        agreement: &Agreement,
        burst_bytes: Option<u64>,
        sharing: Sharing,
        agreements: &[Agreement],
    ) -> Shape {
        let weights = || agreements.iter().map(|each| u64::from(each.weight));
        let (least, most) = (weights().min().unwrap_or(1), weights().max().unwrap_or(1));
        // The least weight gets one frame, unless that would make the greatest turn too long.
        let unit = (FRAME_BYTES * most / least).min(QUANTUM_BYTES_MAX);
        let quantum = (unit * u64::from(agreement.weight) / most).max(FRAME_BYTES);
        let priority = match sharing {
            Sharing::Weighted => 0,
            Sharing::ByClass => (agreement.class - 1).min(PRIORITY_MAX),
        };
        Shape {
            burst_bytes,
            priority,
            quantum_bytes: quantum as u32,
        }
    }
}

/// The tree at one interface.
pub struct Tree {
    route: Route,
    queues: Queues,
    interface: u32,
    link_bit_s: u64,
    classifier: Classifier,
    /// The places of all holders, with that of all other traffic at the end.
    places: Vec<Place>,
    /// What tells whether a holder's counters may have changed, in the order of the places.
    watched: Vec<Watched>,
    /// Interfaces whose agreements have ended and which still have a class.
    ended: Vec<u32>,
    /// Interfaces that holders are bound to, and the holders' slots.
    owners: HashMap<u32, Slot>,
    /// Interfaces that take the packets of another, such as those of a VLAN, and that other.
    stacked: HashMap<u32, u32>,
    /// Settings that the kernel was last given.
    classes: HashMap<Slot, Class>,
    /// Last counters, by the number of the class.
    seen: Vec<Seen>,
    /// Whether the set of classes may have changed since all were read.
    is_new: bool,
}

/// The last counters read of a class.
#[derive(Debug, Clone, Copy, Default)]
struct Seen {
    counters: Counters,
    leaves: [SeenLeaf; 2],
}

impl Seen {
    /// Counters of the class with those of its queues.
    fn counters(&self) -> Counters {
        let [expedited, otherwise] = self.leaves;
        Counters {
            drops: expedited.drops.wrapping_add(otherwise.drops),
            backlog_bytes: expedited
                .backlog_bytes
                .saturating_add(otherwise.backlog_bytes),
            ..self.counters
        }
    }
}

/// The last counters read of a leaf's queue.
#[derive(Debug, Clone, Copy, Default)]
struct SeenLeaf {
    backlog_bytes: u32,
    drops: u32,
}

/// What every read looks at of every holder. It is small, and apart from all else, because ten
/// thousand of these have to stay in the CPU's cache from one read to the next.
#[derive(Debug, Clone, Copy)]
struct Watched {
    slot: Slot,
    /// Whether the leaves' queues may have changed without a new packet: some packets wait, or one
    /// was between being counted and being queued.
    are_open: [bool; 2],
    /// Numbers of packets that the classifier had counted for the leaves.
    packets: [u64; 2],
}

/// The place of a holder in the tree.
struct Place {
    /// What the holder is recognized by after a change of agreements.
    at: Attachment,
    slot: Slot,
    shape: Shape,
    maximum_bit_s: u64,
    /// Number of the holder's interface while it exists.
    bound: Option<u32>,
}

/// Reasons why there is no tree.
#[derive(Debug, thiserror::Error)]
pub enum TreeError {
    /// Another program shapes the interface already.
    #[error(
        "it already has a root qdisc of another program, {kind} {handle:x}:; remove that first"
    )]
    Foreign {
        /// Kind of the existing qdisc.
        kind: String,
        /// Major number of the existing qdisc.
        handle: u16,
    },
    /// The kernel refuses.
    #[error("cannot {what}: {source}")]
    System {
        /// The operation that failed.
        what: &'static str,
        /// Error of the system.
        source: io::Error,
    },
}

fn system(what: &'static str) -> impl Fn(io::Error) -> TreeError {
    move |source| TreeError::System { what, source }
}

impl Tree {
    /// Makes the tree, or takes over that of an earlier daemon, whose classes keep their queues and
    /// limits until [`Tree::set`] changes them.
    ///
    /// # Errors
    ///
    /// If somebody else shapes the interface, or the system refuses.
    pub fn open(interface: u32) -> Result<Tree, TreeError> {
        let mut route = Route::open().map_err(system("open a netlink socket"))?;
        let classifier = Classifier::load(Slot::OTHERS.handle(), OTHERWISE - EXPEDITED);
        let classifier = classifier.map_err(system("load the classifier (eBPF)"))?;
        let is_ours = is_ours(&mut route, interface)?;
        if !is_ours {
            let root = htb::new_root(interface, OTHERS + OTHERWISE);
            route
                .request(root, NLM_F_CREATE | NLM_F_EXCL)
                .map_err(system("make a root qdisc (HTB)"))?;
        }
        Ok(Tree {
            route,
            queues: Queues::default(),
            interface,
            link_bit_s: 0,
            classifier,
            places: Vec::new(),
            watched: Vec::new(),
            ended: Vec::new(),
            owners: HashMap::new(),
            stacked: HashMap::new(),
            classes: HashMap::new(),
            seen: Vec::new(),
            is_new: true,
        })
    }

    /// Sets the link's rate.
    fn set_link(&mut self, bit_s: u64) -> io::Result<()> {
        let class = Class {
            limits: Limits {
                rate_bit_s: bit_s,
                ceiling_bit_s: bit_s,
            },
            burst_bytes: None,
            priority: 0,
            quantum_bytes: FRAME_BYTES as u32,
        };
        self.link_bit_s = bit_s;
        let request = htb::set_class(self.interface, WHOLE, 0, &class);
        self.route.request(request, NLM_F_CREATE | NLM_F_REPLACE)
    }

    /// Installs the classifier in place of any other; all classes must exist before.
    fn attach(&mut self) -> io::Result<()> {
        let request = self.classifier.filter(self.interface);
        self.route.request(request, NLM_F_CREATE | NLM_F_REPLACE)
    }

    /// The slot of packets that enter by `interface`: that of its holder, or of the holder of the
    /// nearest interface below it.
    fn slot_of(&self, mut interface: u32) -> Option<Slot> {
        for _ in 0..STACKED_MAX {
            if let Some(slot) = self.owners.get(&interface) {
                return Some(*slot);
            }
            interface = *self.stacked.get(&interface)?;
        }
        None
    }

    /// Assigns packets that enter by `interface`, or by one that is stacked on it, to whom they
    /// belong now.
    fn assign(&mut self, interface: u32) -> io::Result<()> {
        let mut all = vec![interface];
        for _ in 0..STACKED_MAX {
            let uppers = self.stacked.iter();
            let is_new =
                |(upper, lower): &(&u32, &u32)| all.contains(lower) && !all.contains(upper);
            let uppers: Vec<u32> = uppers.filter(is_new).map(|(upper, _)| *upper).collect();
            all.extend(uppers);
        }
        for interface in all {
            match self.slot_of(interface) {
                Some(slot) => self.classifier.set(interface, slot.handle())?,
                None => match self.classifier.remove(interface) {
                    Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                    _ => {}
                },
            }
        }
        Ok(())
    }

    /// The settings of a holder's leaves: the expedited one, and the other.
    fn leaves(&self, class: &Class) -> [Class; 2] {
        let leaf = |rate_bit_s, quantum_bytes| Class {
            limits: Limits {
                rate_bit_s,
                // Borrowing is limited by the ceiling of the class above.
                ceiling_bit_s: self.link_bit_s,
            },
            quantum_bytes,
            ..*class
        };
        [
            leaf(class.limits.rate_bit_s, FRAME_BYTES as u32),
            leaf(0, class.quantum_bytes),
        ]
    }

    fn dump(&mut self, mut each: impl FnMut(u16, Counters)) -> io::Result<()> {
        let request = htb::get_classes(self.interface);
        self.route.dump(request, |payload| {
            if let Some((minor, counters)) = of_class(payload) {
                each(minor, counters);
            }
        })
    }

    /// Reads the counters of all classes. Queues are read first, so that a packet that has left an
    /// empty queue is already in its class's counters.
    ///
    /// # Errors
    ///
    /// The system's.
    pub fn read_all(&mut self) -> io::Result<()> {
        let mut seen = std::mem::take(&mut self.seen);
        let interface = self.interface;
        let read = self.route.dump(htb::get_qdiscs(), |payload| {
            if let Some(dumped) = htb::parse(payload).filter(|dumped| dumped.interface == interface)
            {
                note_queue(&mut seen, &dumped);
            }
        });
        let read =
            read.and_then(|()| self.dump(|minor, counters| note(&mut seen, minor, counters)));
        self.seen = seen;
        read
    }

    /// Reads the counters of some classes, after those of their active queues.
    fn read_these(&mut self, active: &[(usize, [bool; 2])]) -> io::Result<()> {
        let interface = self.interface;
        let requests = active.iter().flat_map(|(holder, are_active)| {
            let slot = self.places[*holder].slot;
            let queues = slot.leaves().into_iter().zip(are_active);
            let queues = queues
                .filter(|(_, is_active)| **is_active)
                .map(move |(minor, _)| htb::get_queue(interface, minor));
            queues.chain([htb::get_class(interface, slot.0)])
        });
        let seen = &mut self.seen;
        let unanswered = self.route.ask(requests, |payload| {
            let Some(dumped) = htb::parse(payload) else {
                return;
            };
            if dumped.handle.major == MAJOR {
                note(seen, dumped.handle.minor, dumped.counters);
            } else {
                note_queue(seen, &dumped);
            }
        })?;
        // An unanswered question means that the set of classes has changed.
        self.is_new |= unanswered > 0;
        Ok(())
    }

    /// The holders whose counters may be higher than those last read, and which of their leaves.
    fn active(&mut self) -> Vec<(usize, [bool; 2])> {
        let watched = self.watched.iter_mut().enumerate();
        let active = watched.filter_map(|(holder, watched)| {
            let packets = watched.slot.leaves();
            let packets = packets.map(|minor| self.classifier.packets(minor));
            if packets == watched.packets && watched.are_open == [false; 2] {
                return None;
            }
            let before = std::mem::replace(&mut watched.packets, packets);
            let have_sent = std::array::from_fn(|leaf| packets[leaf] != before[leaf]);
            // A queue is read once more after its last packet.
            let were_open = std::mem::replace(&mut watched.are_open, have_sent);
            let are_active = std::array::from_fn(|leaf| have_sent[leaf] || were_open[leaf]);
            Some((holder, are_active))
        });
        active.collect()
    }

    /// Notes which of these holders' queues have packets that wait.
    fn note_open(&mut self, holders: &[usize]) {
        for &holder in holders {
            let watched = &mut self.watched[holder];
            let Some(seen) = self.seen.get(usize::from(watched.slot.0)) else {
                continue;
            };
            for (is_open, leaf) in watched.are_open.iter_mut().zip(seen.leaves) {
                *is_open |= leaf.backlog_bytes > 0;
            }
        }
    }
}

fn of_class(payload: &[u8]) -> Option<(u16, Counters)> {
    let dumped = htb::parse(payload)?;
    (dumped.handle.major == MAJOR).then_some((dumped.handle.minor, dumped.counters))
}

fn note(seen: &mut [Seen], minor: u16, counters: Counters) {
    if let Some(seen) = seen.get_mut(usize::from(minor)) {
        seen.counters = counters;
    }
}

/// Notes the counters of a queue, if it belongs to a leaf.
fn note_queue(seen: &mut [Seen], dumped: &Dumped<'_>) {
    if dumped.parent.major != MAJOR {
        return;
    }
    for (at, first) in [EXPEDITED, OTHERWISE].into_iter().enumerate() {
        let slot = dumped.parent.minor.checked_sub(first).map(usize::from);
        if let Some(seen) = slot.and_then(|slot| seen.get_mut(slot)) {
            seen.leaves[at] = SeenLeaf {
                backlog_bytes: dumped.counters.backlog_bytes,
                drops: dumped.counters.drops,
            };
        }
    }
}

impl Shaper for Tree {
    fn shapers(&self) -> Shapers {
        Shapers::Tree
    }

    fn configure(&mut self, agreements: &Agreements) -> io::Result<()> {
        self.set_link(agreements.link.rate_bit_s)?;
        let before = std::mem::take(&mut self.places).into_iter();
        let before = before.map(|place| (place.at.clone(), place));
        let (kept, ended) = take_over(before, &agreements.holders);
        let taken: HashSet<Slot> = kept.iter().flatten().map(|place| place.slot).collect();
        let mut free = (0..Slot::COUNT)
            .map(Slot::new)
            .filter(|slot| !taken.contains(slot));
        let all: Vec<Agreement> = agreements
            .holders
            .iter()
            .map(|each| each.agreement)
            .collect();
        let shape = |agreement: &Agreement, burst_bytes| {
            Shape::of(agreement, burst_bytes, agreements.sharing, &all)
        };
        for (holder, kept) in agreements.holders.iter().zip(kept) {
            let (slot, bound) = match kept {
                Some(place) => (place.slot, place.bound),
                None => (free.next().ok_or(io::ErrorKind::StorageFull)?, None),
            };
            self.places.push(Place {
                at: holder.at.clone(),
                slot,
                shape: shape(&holder.agreement, holder.burst_bytes),
                maximum_bit_s: holder.agreement.maximum_bit_s,
                bound,
            });
        }
        let bound = ended.into_iter().filter_map(|place| place.bound);
        self.ended.extend(bound);
        self.places.push(Place {
            at: Attachment::Interface(String::new()),
            slot: Slot::OTHERS,
            shape: shape(&agreements.others(), None),
            maximum_bit_s: agreements.link.rate_bit_s,
            bound: None,
        });
        let watched = self.places.iter().map(|place| Watched {
            slot: place.slot,
            are_open: [false; 2],
            packets: [0; 2],
        });
        self.watched = watched.collect();
        let last = self.places.iter().map(|place| place.slot.0).max();
        let last = usize::from(last.unwrap_or(OTHERS));
        self.seen.resize(last + 1, Seen::default());
        self.is_new = true;
        Ok(())
    }

    fn tidy(&mut self) -> io::Result<()> {
        let slots = self.places.iter().map(|place| place.slot);
        let kept: HashSet<u16> = slots
            .flat_map(|slot| std::iter::once(slot.0).chain(slot.leaves()))
            .collect();
        for interface in std::mem::take(&mut self.ended) {
            self.owners.remove(&interface);
            self.assign(interface)?;
        }
        let mut ended = Vec::new();
        self.dump(|minor, _| {
            if minor >= FIRST && !kept.contains(&minor) {
                ended.push(minor);
            }
        })?;
        for minor in &ended {
            self.classes.remove(&Slot(*minor));
        }
        // Leaves have the greater numbers and are removed first.
        ended.sort_unstable_by(|one, other| other.cmp(one));
        let interface = self.interface;
        let requests = ended
            .iter()
            .map(|&minor| (htb::delete_class(interface, minor), 0));
        let failed = self.route.requests(requests);
        self.attach()?;
        failed
            .into_iter()
            .next()
            .map_or(Ok(()), |(_, error)| Err(error))
    }

    fn bind(&mut self, holder: usize, interface: Option<u32>) -> io::Result<()> {
        let slot = self.places[holder].slot;
        let before = std::mem::replace(&mut self.places[holder].bound, interface);
        if let Some(before) = before.filter(|before| interface != Some(*before)) {
            self.owners.remove(&before);
            self.assign(before)?;
        }
        let Some(interface) = interface else {
            return Ok(());
        };
        self.owners.insert(interface, slot);
        self.assign(interface)
    }

    fn stack(&mut self, interface: u32, lower: Option<u32>) -> io::Result<()> {
        match lower {
            Some(lower) => self.stacked.insert(interface, lower),
            None => self.stacked.remove(&interface),
        };
        self.assign(interface)
    }

    fn apply(&mut self, limits: &[(usize, Limits)]) -> Vec<(usize, io::Error)> {
        let wanted = limits.iter().map(|&(at, limits)| {
            let place = &self.places[at];
            let Shape {
                burst_bytes,
                priority,
                quantum_bytes,
            } = place.shape;
            let class = Class {
                limits,
                burst_bytes,
                priority,
                quantum_bytes,
            };
            (at, place.slot, class)
        });
        let differs = |(_, slot, class): &(usize, Slot, Class)| {
            let now = self.classes.get(slot);
            now.is_none_or(|now| differs_enough(now, class))
        };
        let changes: Vec<(usize, Slot, Class)> = wanted.filter(differs).collect();
        let mut requests = Vec::new();
        let mut new = Vec::new();
        for (at, (holder, slot, class)) in changes.iter().enumerate() {
            requests.push((at, htb::set_class(self.interface, slot.0, WHOLE, class)));
            // Leaves have no ceiling of their own.
            let now = self.classes.get(slot);
            if now.is_some_and(|now| with_ceiling(now, class.limits.ceiling_bit_s) == *class) {
                continue;
            }
            let maximum_bit_s = self.places[*holder].maximum_bit_s;
            let [expedited, otherwise] = self.leaves(class);
            let rooms_bit_s = [class.limits.rate_bit_s, maximum_bit_s];
            let leaves = slot.leaves().into_iter().zip([expedited, otherwise]);
            for ((minor, leaf), room_bit_s) in leaves.zip(rooms_bit_s) {
                requests.push((at, htb::set_class(self.interface, minor, slot.0, &leaf)));
                new.push((self.interface, minor, room_bit_s));
            }
        }
        let (places, requests): (Vec<usize>, Vec<_>) = requests.into_iter().unzip();
        let requests = requests.into_iter();
        let requests = requests.map(|request| (request, NLM_F_CREATE | NLM_F_REPLACE));
        let mut failed: Vec<(usize, io::Error)> = self.route.requests(requests);
        for (at, _) in &mut failed {
            *at = places[*at];
        }
        let told = changes.iter().map(|(_, slot, class)| (*slot, *class));
        self.classes.extend(told);
        if let Err(error) = self.queues.make(&mut self.route, &new) {
            failed.push((0, error));
        }
        let failed = failed.into_iter().map(|(at, error)| {
            let (holder, slot, _) = changes[at];
            self.classes.remove(&slot);
            (holder, error)
        });
        failed.collect()
    }

    fn read(&mut self, read: &mut Vec<usize>) -> io::Result<()> {
        /// Cost of reading one class by itself, relative to its part in the list of all.
        const ALONE: usize = 3;
        let active = self.active();
        read.clear();
        if std::mem::take(&mut self.is_new) {
            read.extend(0..self.places.len());
            self.read_all()?;
        } else {
            read.extend(active.iter().map(|(holder, _)| *holder));
            if active.len() * ALONE > self.places.len() {
                self.read_all()?;
            } else {
                self.read_these(&active)?;
            }
        }
        self.note_open(read);
        Ok(())
    }

    fn counters(&self, holder: usize) -> Counters {
        let number = usize::from(self.places[holder].slot.0);
        self.seen
            .get(number)
            .map_or(Counters::default(), Seen::counters)
    }

    fn is_disturbed_by(&self, change: Option<&Change>) -> bool {
        change.is_none_or(|change| change.interface == self.interface && is_about_ours(change))
    }

    fn ports(&self) -> Vec<u32> {
        vec![self.route.port()]
    }

    fn shortcoming(&self) -> Option<&'static str> {
        self.queues.shortcoming()
    }

    fn restore(&mut self, agreements: &Agreements, limits: &[(usize, Limits)]) -> io::Result<()> {
        make_root(&mut self.route, self.interface, OTHERS + OTHERWISE)?;
        self.set_link(agreements.link.rate_bit_s)?;
        self.classes.clear();
        self.is_new = true;
        match self.apply(limits).into_iter().next() {
            Some((_, error)) => Err(error),
            None => self.tidy(),
        }
    }

    fn close(&mut self) -> io::Result<()> {
        remove_root(&mut self.route, self.interface)
    }
}

/// Whether a change concerns the root of an interface or part of our tree.
pub(super) fn is_about_ours(change: &Change) -> bool {
    const ROOT: u32 = u32::MAX;
    let is_ours = |handle: u32| handle >> 16 == u32::from(MAJOR);
    change.parent == ROOT || is_ours(change.handle) || is_ours(change.parent)
}

/// Makes our qdisc the root of an interface again, in place of any other.
pub(super) fn make_root(route: &mut Route, interface: u32, default: u16) -> io::Result<()> {
    match is_ours(route, interface) {
        Ok(true) => Ok(()),
        Ok(false) | Err(TreeError::Foreign { .. }) => {
            let root = htb::new_root(interface, default);
            route.request(root, NLM_F_CREATE | NLM_F_REPLACE)
        }
        Err(TreeError::System { source, .. }) => Err(source),
    }
}

/// Removes the root qdisc of an interface if it is ours.
pub(super) fn remove_root(route: &mut Route, interface: u32) -> io::Result<()> {
    match is_ours(route, interface) {
        Ok(true) => route.request(htb::delete_root(interface), 0),
        Ok(false) | Err(TreeError::Foreign { .. }) => Ok(()),
        Err(TreeError::System { source, .. }) => Err(source),
    }
}

/// Whether the root qdisc of an interface is ours. Any other root but the kernel's default is an
/// error.
pub(super) fn is_ours(route: &mut Route, interface: u32) -> Result<bool, TreeError> {
    let mut is_ours = false;
    let mut foreign = None;
    let question = std::iter::once(htb::get_root(interface));
    // An interface without a qdisc gives no answer.
    route
        .ask(question, |payload| {
            let Some(dumped) = htb::parse(payload) else {
                return;
            };
            is_ours = dumped.handle.major == MAJOR && dumped.kind == htb::KIND;
            // The kernel's default qdisc has the number 0.
            if !is_ours && dumped.handle.major != 0 {
                foreign = Some((dumped.kind.to_string(), dumped.handle.major));
            }
        })
        .map_err(system("look at the root qdisc"))?;
    match foreign {
        Some((kind, handle)) => Err(TreeError::Foreign { kind, handle }),
        None => Ok(is_ours),
    }
}

/// Whether a change is worth a message to the kernel: a ceiling that changes by less than 1/128 is
/// not.
fn differs_enough(now: &Class, wanted: &Class) -> bool {
    const PARTS: u64 = 128;
    let (from, to) = (now.limits.ceiling_bit_s, wanted.limits.ceiling_bit_s);
    with_ceiling(now, to) != *wanted || from.abs_diff(to) > from / PARTS
}

fn with_ceiling(class: &Class, ceiling_bit_s: u64) -> Class {
    let mut other = *class;
    other.limits.ceiling_bit_s = ceiling_bit_s;
    other
}
