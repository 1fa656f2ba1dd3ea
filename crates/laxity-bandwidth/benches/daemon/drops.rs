//! What a packet costs that is dropped in the guest, at the bridge and at the link, in turn in one run.

use std::time::Duration;

use nix::time::{ClockId, clock_gettime};

use crate::scene::{PAYLOAD_BYTES, Pace, Scene};

/// Where all packets but a few are dropped, what makes it so, and what ends it; of `eth0` in the machine's own
/// namespace or of the host's interfaces.
const PLACES: [(&str, &str, &str); 3] = [
    // As a ring that is full makes it: the guest's own queue.
    ("guest", "eth0", "root tbf rate 8kbit burst 2kb limit 3000"),
    // Before the bridge has looked at it, with all of the way there.
    ("bridge", "vif0", "ingress"),
    ("link", "up0", "root tbf rate 8kbit burst 2kb limit 3000"),
];

/// Where a busy machine lets another thread do a part of a packet's way, its queue drops packets before they come
/// here, and what they cost is not this thread's: such a round does not count.
const TRIES: usize = 20;

pub fn run(is_quick: bool) {
    let (rounds, packets) = if is_quick { (1, 10_000) } else { (7, 100_000) };
    let scene = Scene::new("drops", 1);
    let mut us_of: Vec<Vec<f64>> = vec![Vec::new(); PLACES.len()];
    for _ in 0..rounds {
        for (at, (_, interface, qdisc)) in PLACES.into_iter().enumerate() {
            let tc = |words: &str| {
                if interface == "eth0" {
                    scene.tc_in(&scene.machine(0), words)
                } else {
                    scene.tc(words)
                }
            };
            let place = qdisc.split(' ').next().unwrap_or(qdisc);
            tc(&format!("qdisc add dev {interface} {qdisc}"));
            if place == "ingress" {
                // A program of one instruction, which is to drop (TC_ACT_SHOT).
                let program = scene.write("drop", "1,6 0 0 2");
                let filter = "parent ffff: protocol all bpf direct-action bytecode-file";
                tc(&format!(
                    "filter add dev {interface} {filter} {}",
                    program.display()
                ));
            }
            let show = format!("-s qdisc show dev {interface} {place}");
            let mut before = dropped(&tc(&show));
            let us = (0..TRIES).find_map(|_| {
                let us = packet_us(&scene, packets);
                let after = dropped(&tc(&show));
                let here = after - std::mem::replace(&mut before, after);
                (here >= packets * 99 / 100).then_some(us)
            });
            us_of[at].push(us.unwrap_or_else(|| panic!("packets are dropped before {interface}")));
            tc(&format!("qdisc delete dev {interface} {place}"));
        }
    }
    for ((place, ..), mut us) in PLACES.into_iter().zip(us_of) {
        us.sort_by(f64::total_cmp);
        println!(
            "{{\"part\": \"drops\", \"place\": {place:?}, \"rounds\": {rounds}, \"packets\": {packets}, \
             \"median_us\": {:.3}, \"min_us\": {:.3}, \"max_us\": {:.3}}}",
            us[rounds / 2],
            us[0],
            us[rounds - 1]
        );
    }
}

/// CPU time of the thread that sends, for each packet: all of its way is in it.
fn packet_us(scene: &Scene, packets: usize) -> f64 {
    let (told, us) = std::sync::mpsc::channel();
    let pace: Pace = Box::new(move |socket, _| {
        let packet = [0; PAYLOAD_BYTES];
        let now = || Duration::from(clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).unwrap());
        let before = now();
        for _ in 0..packets {
            let _ = socket.send(&packet);
        }
        let us = (now() - before).as_secs_f64() * 1e6 / packets as f64;
        let _ = told.send(us);
    });
    let _sending = scene.send(0, pace);
    us.recv().unwrap()
}

fn dropped(statistics: &str) -> usize {
    let (_, dropped) = statistics.split_once("(dropped ").unwrap();
    dropped.split(',').next().unwrap().parse().unwrap()
}
