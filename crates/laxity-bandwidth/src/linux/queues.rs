//! The queues inside classes: short, and fair among the flows of one virtual machine where the
//! kernel supports it.

use std::collections::HashSet;
use std::io;

use netlink_packet_core::{NLM_F_CREATE, NLM_F_REPLACE};

use super::Route;
use super::htb::{self, Queue};

/// Makes queues, and knows whether this kernel has fair ones.
#[derive(Debug, Default)]
pub struct Queues {
    has_no_fair_ones: bool,
}

impl Queues {
    /// The missing feature of this kernel and its effect on virtual machines, in words for people.
    pub fn shortcoming(&self) -> Option<&'static str> {
        self.has_no_fair_ones.then_some(
            "this kernel has no fq_codel: the flows of one virtual machine share one short queue",
        )
    }

    /// Makes the queues of classes that have none yet. Each entry has the interface, the class's
    /// number, and the rate in bit/s from which the room of an unfair queue follows. Existing
    /// queues keep their packets.
    pub fn make(&mut self, route: &mut Route, classes: &[(u32, u16, u64)]) -> io::Result<()> {
        if classes.is_empty() {
            return Ok(());
        }
        if !self.has_no_fair_ones {
            let mut there = HashSet::new();
            // A list of all qdiscs would be long on a host of many interfaces, of which one may have come.
            let questions = classes.iter();
            let questions =
                questions.map(|&(interface, minor, _)| htb::get_queue(interface, minor));
            route.ask(questions, |payload| {
                if let Some(dumped) = htb::parse(payload)
                    && dumped.handle == htb::queue_handle(dumped.parent.minor)
                    && dumped.kind == Queue::Fair.kind()
                {
                    there.insert((dumped.interface, dumped.parent.minor));
                }
            })?;
            let absent = classes.iter();
            let absent =
                absent.filter(|(interface, minor, _)| !there.contains(&(*interface, *minor)));
            let mut fair = absent.map(|&(interface, minor, _)| (interface, minor, Queue::Fair));
            // A kernel that lacks them is asked once: it looks for a module each time.
            match set(route, fair.next().into_iter()) {
                Ok(()) => return set(route, fair),
                Err(error) if error.kind() == io::ErrorKind::NotFound => {
                    self.has_no_fair_ones = true;
                }
                failed => return failed,
            }
        }
        let short = classes.iter();
        set(
            route,
            short.map(|&(interface, minor, rate_bit_s)| {
                (interface, minor, Queue::Short(room_bytes(rate_bit_s)))
            }),
        )
    }
}

/// Room for the traffic of 20 ms, and for at least two segments of TCP's, which a queue takes whole
/// or not at all.
fn room_bytes(rate_bit_s: u64) -> u32 {
    const PER_S: u64 = 50;
    const SEGMENTS_BYTES: u64 = 2 << 16;
    let bytes = (rate_bit_s / 8 / PER_S).max(SEGMENTS_BYTES);
    u32::try_from(bytes).unwrap_or(u32::MAX)
}

fn set(route: &mut Route, queues: impl Iterator<Item = (u32, u16, Queue)>) -> io::Result<()> {
    let requests = queues.map(|(interface, minor, queue)| {
        let request = htb::set_queue(interface, minor, queue);
        (request, NLM_F_CREATE | NLM_F_REPLACE)
    });
    let failed = route.requests(requests).into_iter().next();
    failed.map_or(Ok(()), |(_, error)| Err(error))
}
