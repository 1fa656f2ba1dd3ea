//! CPU time of a packet that is dropped in the guest, at the bridge and at the link, measured in
//! turn in one run.

use std::time::Duration;

use nix::time::{ClockId, clock_gettime};

use crate::scene::{PAYLOAD_BYTES, Pace, Scene};

/// Places where all packets but a few are dropped: name, interface (`eth0` in the machine's
/// namespace, others in the host's), and the qdisc that drops.
const PLACES: [(&str, &str, &str); 3] = [
    // The guest's own queue, which overflows when a ring is full.
    ("guest", "eth0", "root tbf rate 8kbit burst 2kb limit 3000"),
    // The bridge, before it has looked at the packet.
    ("bridge", "vif0", "ingress"),
    ("link", "up0", "root tbf rate 8kbit burst 2kb limit 3000"),
];

/// Number of tries. Queues of a busy machine drop packets before the measured place, at the expense
/// of another thread; such a round does not count.
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
                // A classic BPF program of one instruction, which drops (TC_ACT_SHOT).
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

/// CPU time of the sending thread for each packet, which includes the packet's whole way.
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
