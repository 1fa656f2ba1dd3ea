//! Shapers of the traffic towards virtual machines: one at each interface, because a packet's
//! receiver is known only there. The shapers do not lend rate to each other.
//!
//! A program at each shaper counts packets, so that a look asks the kernel only about machines that were sent something
//! since the last look, or still have a queue. A kernel without eBPF is asked for all qdiscs in every look.

use std::collections::HashMap;
use std::io;

use netlink_packet_core::{NLM_F_CREATE, NLM_F_EXCL, NLM_F_REPLACE};

use super::Route;
use super::classifier::Classifier;
use super::htb::{self, Class, FRAME_BYTES, MAJOR};
use super::queues::Queues;
use super::tree::{TreeError, is_about_ours, is_ours, make_root, remove_root};
use crate::Agreements;
use crate::agreements::Attachment;
use crate::control::{Limits, Shapers};
use crate::shaper::{Change, Counters, Shaper, take_over};

/// The only class at an interface.
const CLASS: u16 = 1;
/// The number of packets that are nobody's: the last that the program can count.
const NOBODY: u16 = u16::MAX;

/// The shapers of all holders.
pub struct Inwards {
    route: Route,
    queues: Queues,
    places: Vec<Place>,
    /// Interfaces whose agreements have ended and which are still shaped.
    ended: Vec<u32>,
    /// The places of interfaces.
    owners: HashMap<u32, usize>,
    /// Counts packets by their receivers' places; `None` where the kernel has no eBPF.
    counting: Option<Classifier>,
    /// What tells whether counters may have changed, in the order of the places.
    watched: Vec<Watched>,
    /// Last counters, in the order of the places.
    counters: Vec<Counters>,
    /// Whether the places are not those of the last read.
    is_new: bool,
}

struct Place {
    /// What the holder is recognized by after a change of agreements.
    at: Attachment,
    bound: Option<u32>,
    burst_bytes: Option<u64>,
    /// Limits that the kernel was last given.
    limits: Option<Limits>,
}

#[derive(Debug, Clone, Copy, Default)]
struct Watched {
    /// Number of packets that were counted.
    packets: u64,
    /// Whether the counters may have changed without a new packet: packets wait, one was between
    /// being counted and being queued, or the interface is another one.
    is_open: bool,
}

impl Inwards {
    /// Shapers for the interfaces of this thread's network namespace.
    ///
    /// # Errors
    ///
    /// The system's.
    pub fn open() -> io::Result<Inwards> {
        Ok(Inwards {
            route: Route::open()?,
            queues: Queues::default(),
            places: Vec::new(),
            ended: Vec::new(),
            owners: HashMap::new(),
            counting: Classifier::counting(NOBODY).ok(),
            watched: Vec::new(),
            counters: Vec::new(),
            is_new: true,
        })
    }

    /// Has the packets towards an interface counted for a place from now on.
    fn own(&mut self, interface: u32, holder: usize) -> io::Result<()> {
        self.owners.insert(interface, holder);
        let Some(counting) = &self.counting else {
            return Ok(());
        };
        let number = u16::try_from(holder).ok().filter(|&number| number < NOBODY);
        counting.set(interface, number.ok_or(io::ErrorKind::StorageFull)?.into())
    }

    /// Ends that for an interface, unless it has become another place's.
    fn disown(&mut self, interface: u32, holder: usize) -> io::Result<()> {
        if self.owners.get(&interface) != Some(&holder) {
            return Ok(());
        }
        self.owners.remove(&interface);
        let removed = self.counting.as_ref().map(|each| each.remove(interface));
        match removed {
            Some(Err(error)) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }

    /// Lets the shaper of an interface count.
    fn attach(&mut self, interface: u32) -> io::Result<()> {
        let Some(counting) = &self.counting else {
            return Ok(());
        };
        let filter = counting.filter(interface);
        let attached = self.route.request(filter, NLM_F_CREATE | NLM_F_REPLACE);
        match attached {
            // The kernel has the system call, but not the filter (cls_bpf).
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                self.counting = None;
                Ok(())
            }
            done => done,
        }
    }

    /// The places whose counters may be others than those last read; `None` where nothing counts.
    fn active(&mut self) -> Option<Vec<usize>> {
        let counting = self.counting.as_ref()?;
        let watched = self.watched.iter_mut().enumerate();
        let active = watched.filter_map(|(holder, watched)| {
            let packets = counting.packets(holder as u16);
            let has_got = std::mem::replace(&mut watched.packets, packets) != packets;
            // Counters are read once more after the last packet.
            let was_open = std::mem::replace(&mut watched.is_open, has_got);
            (has_got || was_open).then_some(holder)
        });
        Some(active.collect())
    }
}

impl Shaper for Inwards {
    fn shapers(&self) -> Shapers {
        Shapers::Single
    }

    fn configure(&mut self, agreements: &Agreements) -> io::Result<()> {
        let before = std::mem::take(&mut self.places).into_iter();
        let bound = before.filter_map(|place| Some((place.at, place.bound?)));
        let (kept, ended) = take_over(bound, &agreements.holders);
        self.owners.clear();
        for (holder, kept) in kept.iter().enumerate() {
            if let Some(interface) = kept {
                self.own(*interface, holder)?;
            }
        }
        let places = agreements.holders.iter().zip(kept);
        let places = places.map(|(holder, bound)| Place {
            at: holder.at.clone(),
            bound,
            burst_bytes: holder.burst_bytes,
            limits: None,
        });
        self.places = places.collect();
        self.ended.extend(ended);
        self.watched = vec![Watched::default(); self.places.len()];
        self.counters = vec![Counters::default(); self.places.len()];
        self.is_new = true;
        Ok(())
    }

    fn tidy(&mut self) -> io::Result<()> {
        for interface in std::mem::take(&mut self.ended) {
            // The interface may have become another holder's.
            if self.owners.contains_key(&interface) {
                continue;
            }
            if let Some(counting) = &self.counting {
                let _ = counting.remove(interface);
            }
            remove_root(&mut self.route, interface)?;
        }
        Ok(())
    }

    fn bind(&mut self, holder: usize, interface: Option<u32>) -> io::Result<()> {
        self.places[holder].limits = None;
        let before = self.places[holder].bound.take();
        if let Some(before) = before.filter(|before| interface != Some(*before)) {
            self.disown(before, holder)?;
        }
        self.counters[holder] = Counters::default();
        self.watched[holder].is_open = true;
        let Some(interface) = interface else {
            return Ok(());
        };
        let is_there = is_ours(&mut self.route, interface).map_err(|error| match error {
            TreeError::System { source, .. } => source,
            foreign => io::Error::new(io::ErrorKind::AlreadyExists, foreign.to_string()),
        })?;
        if !is_there {
            let root = htb::new_root(interface, CLASS);
            self.route.request(root, NLM_F_CREATE | NLM_F_EXCL)?;
        }
        self.own(interface, holder)?;
        self.attach(interface)?;
        self.places[holder].bound = Some(interface);
        Ok(())
    }

    fn apply(&mut self, limits: &[(usize, Limits)]) -> Vec<(usize, io::Error)> {
        let changes = limits.iter().filter_map(|&(at, limits)| {
            let place = &self.places[at];
            let interface = place.bound.filter(|_| place.limits != Some(limits))?;
            let class = Class {
                limits: Limits {
                    rate_bit_s: limits.ceiling_bit_s,
                    ..limits
                },
                burst_bytes: place.burst_bytes,
                priority: 0,
                quantum_bytes: FRAME_BYTES as u32,
            };
            Some((at, limits, htb::set_class(interface, CLASS, 0, &class)))
        });
        let changes: Vec<_> = changes.collect();
        let requests = changes
            .iter()
            .map(|(_, _, request)| (request.clone(), NLM_F_CREATE | NLM_F_REPLACE));
        let failed = self.route.requests(requests);
        let mut new = Vec::new();
        for (at, limits, _) in &changes {
            let place = &mut self.places[*at];
            let before = place.limits.replace(*limits);
            new.extend(
                place
                    .bound
                    .filter(|_| before.is_none())
                    .map(|interface| (interface, CLASS, limits.ceiling_bit_s)),
            );
        }
        if let Err(error) = self.queues.make(&mut self.route, &new) {
            return vec![(changes[0].0, error)];
        }
        let failed = failed.into_iter().map(|(at, error)| {
            let holder = changes[at].0;
            self.places[holder].limits = None;
            (holder, error)
        });
        failed.collect()
    }

    fn read(&mut self, read: &mut Vec<usize>) -> io::Result<()> {
        let active = self.active();
        let active = active.filter(|_| !std::mem::take(&mut self.is_new));
        read.clear();
        if active.is_none() {
            self.counters.fill(Counters::default());
        }
        let (owners, counters) = (&self.owners, &mut self.counters);
        let note = |payload: &[u8]| {
            if let Some(dumped) = htb::parse(payload)
                && dumped.handle.major == MAJOR
                && let Some(&holder) = owners.get(&dumped.interface)
            {
                counters[holder] = dumped.counters;
            }
        };
        match active {
            Some(active) => {
                let bound = active
                    .iter()
                    .filter_map(|&holder| self.places[holder].bound);
                let unanswered = self.route.ask(bound.map(htb::get_root), note)?;
                // An unanswered question means that an interface or its shaper has gone.
                self.is_new |= unanswered > 0;
                read.extend(active);
            }
            None => {
                self.route.dump(htb::get_qdiscs(), note)?;
                read.extend(0..self.places.len());
            }
        }
        for &holder in read.iter() {
            self.watched[holder].is_open |= self.counters[holder].backlog_bytes > 0;
        }
        Ok(())
    }

    fn counters(&self, holder: usize) -> Counters {
        self.counters[holder]
    }

    fn is_disturbed_by(&self, change: Option<&Change>) -> bool {
        let is_bound = |change: &Change| self.owners.contains_key(&change.interface);
        change.is_none_or(|change| is_bound(change) && is_about_ours(change))
    }

    fn ports(&self) -> Vec<u32> {
        vec![self.route.port()]
    }

    fn shortcoming(&self) -> Option<&'static str> {
        self.queues.shortcoming()
    }

    fn restore(&mut self, _: &Agreements, limits: &[(usize, Limits)]) -> io::Result<()> {
        self.is_new = true;
        for at in 0..self.places.len() {
            if let Some(interface) = self.places[at].bound {
                self.places[at].limits = None;
                make_root(&mut self.route, interface, CLASS)?;
                self.attach(interface)?;
            }
        }
        let failed = self.apply(limits).into_iter().next();
        failed.map_or(Ok(()), |(_, error)| Err(error))
    }

    fn close(&mut self) -> io::Result<()> {
        let bound = self.places.iter().filter_map(|place| place.bound);
        let all: Vec<u32> = bound.chain(std::mem::take(&mut self.ended)).collect();
        let mut closed = Ok(());
        for interface in all {
            let removed = remove_root(&mut self.route, interface);
            closed = closed.and(removed);
        }
        closed
    }
}
