//! CPU time of a packet that is dropped in the guest, at the bridge and at the link, measured in
//! turn in one run.

use std::sync::atomic::Ordering;
use std::thread::sleep;
use std::time::{Duration, Instant};

use nix::time::{ClockId, clock_gettime};

use crate::scene::{OUTSIDE, PAYLOAD_BYTES, Pace, Scene, ip};

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

/// Packets of a quick try: half of those that wait for a CPU before the kernel drops more of them, so
/// that a machine on which all of them wait loses none there.
const QUICK_PACKETS: usize = 500;

pub fn run(is_quick: bool) {
    let (rounds, packets) = match is_quick {
        true => (1, QUICK_PACKETS),
        false => (7, 100_000),
    };
    let scene = Scene::new("drops", 1);
    await_link(&scene);
    know_outside(&scene);
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

/// Waits until a packet of the machine leaves by the link. The kernel takes interfaces into use some time
/// after they are set up, and until then drops what is sent.
fn await_link(scene: &Scene) {
    let listener = scene.listen();
    let pace: Pace = Box::new(|socket, goes_on| {
        while goes_on.load(Ordering::Relaxed) {
            let _ = socket.send(&[0; PAYLOAD_BYTES]);
            sleep(Duration::from_millis(10));
        }
    });
    let _sending = scene.send(0, pace);
    let deadline = Instant::now() + Duration::from_secs(600);
    while listener.bytes(0) == 0 {
        assert!(Instant::now() < deadline, "nothing leaves by the link");
        sleep(Duration::from_millis(5));
    }
}

/// Gives the machine the link-layer address of the link's other end. A machine that had to ask for it
/// would ask through the queue that drops, and without an answer would drop before that queue.
fn know_outside(scene: &Scene) {
    let shown = ip(&format!("-n {} -brief link show dev eth0", scene.outside()));
    let address = shown.split_whitespace().nth(2).unwrap();
    ip(&format!(
        "-n {} neighbour replace {OUTSIDE} lladdr {address} dev eth0 nud permanent",
        scene.machine(0)
    ));
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
