//! Shapers of the traffic towards virtual machines: one at each interface, because a packet's
//! receiver is known only there. The shapers do not lend rate to each other.

use std::collections::HashMap;
use std::io;

use netlink_packet_core::{NLM_F_CREATE, NLM_F_EXCL, NLM_F_REPLACE};

use super::Route;
use super::htb::{self, Class, FRAME_BYTES, MAJOR};
use super::queues::Queues;
use super::tree::{TreeError, is_about_ours, is_ours, make_root, remove_root};
use crate::Agreements;
use crate::agreements::Attachment;
use crate::control::{Limits, Shapers};
use crate::shaper::{Change, Counters, Shaper, take_over};

/// The only class at an interface.
const CLASS: u16 = 1;

/// The shapers of all holders.
pub struct Inwards {
    route: Route,
    queues: Queues,
    places: Vec<Place>,
    /// Interfaces whose agreements have ended and which are still shaped.
    ended: Vec<u32>,
    counters: HashMap<u32, Counters>,
}

struct Place {
    /// What the holder is recognized by after a change of agreements.
    at: Attachment,
    bound: Option<u32>,
    burst_bytes: Option<u64>,
    /// Limits that the kernel was last given.
    limits: Option<Limits>,
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
            counters: HashMap::new(),
        })
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
        let places = agreements.holders.iter().zip(kept);
        let places = places.map(|(holder, bound)| Place {
            at: holder.at.clone(),
            bound,
            burst_bytes: holder.burst_bytes,
            limits: None,
        });
        self.places = places.collect();
        self.ended.extend(ended);
        Ok(())
    }

    fn tidy(&mut self) -> io::Result<()> {
        for interface in std::mem::take(&mut self.ended) {
            remove_root(&mut self.route, interface)?;
        }
        Ok(())
    }

    fn bind(&mut self, holder: usize, interface: Option<u32>) -> io::Result<()> {
        self.places[holder].limits = None;
        self.places[holder].bound = None;
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
        read.clear();
        read.extend(0..self.places.len());
        let counters = &mut self.counters;
        counters.clear();
        self.route.dump(htb::get_qdiscs(), |payload| {
            if let Some(dumped) = htb::parse(payload)
                && dumped.handle.major == MAJOR
            {
                counters.insert(dumped.interface, dumped.counters);
            }
        })
    }

    fn counters(&self, holder: usize) -> Counters {
        let bound = self.places[holder].bound;
        let found = bound.and_then(|interface| self.counters.get(&interface));
        found.copied().unwrap_or_default()
    }

    fn is_disturbed_by(&self, change: Option<&Change>) -> bool {
        let is_bound = |change: &Change| {
            let mut bound = self.places.iter().filter_map(|place| place.bound);
            bound.any(|interface| interface == change.interface)
        };
        change.is_none_or(|change| is_bound(change) && is_about_ours(change))
    }

    fn ports(&self) -> Vec<u32> {
        vec![self.route.port()]
    }

    fn shortcoming(&self) -> Option<&'static str> {
        self.queues.shortcoming()
    }

    fn restore(&mut self, _: &Agreements, limits: &[(usize, Limits)]) -> io::Result<()> {
        for place in &mut self.places {
            if let Some(interface) = place.bound {
                place.limits = None;
                make_root(&mut self.route, interface, CLASS)?;
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
