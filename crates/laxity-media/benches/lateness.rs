//! Wake-up lateness of the load source beside that of a thread that only wakes up, so that the
//! difference is the source's own. Both run in turn, so that other work on the machine disturbs
//! both alike; `LAXITY_STREAMS` and `LAXITY_WINDOWS` set the sizes.
//!
//! Nobody receives: the packets end in a socket that is full, as the kernel's work for a receiver is not the load's.

use std::net::UdpSocket;
use std::sync::atomic::AtomicBool;
use std::thread;

use laxity_media::distribution::{Distribution, Quantiles};
use laxity_media::g711::Law;
use laxity_media::schedule::Schedule;
use laxity_media::{clock, load, machine, socket};

const TICK_NS: i64 = 250_000;
const WINDOW_NS: i64 = 4_000_000_000;

fn number(name: &str, default: u32) -> u32 {
    std::env::var(name).map_or(default, |text| text.parse().expect(name))
}

fn main() {
    let (streams, windows) = (
        number("LAXITY_STREAMS", 2_000),
        number("LAXITY_WINDOWS", 10),
    );
    let full = UdpSocket::bind("127.0.0.1:0").unwrap();
    socket::set_receive_buffer(&full, 1).unwrap();
    let to = full.local_addr().unwrap();
    let from = UdpSocket::bind("127.0.0.1:0").unwrap();
    let schedule = Schedule::new(streams, WINDOW_NS, TICK_NS, 1).unwrap();
    let mut p99s_ns = [Vec::new(), Vec::new()];
    println!("{windows} windows of 4 s each, a wake-up every 250 us; late by, in us");
    println!(
        "{:24} {:>8} {:>8} {:>8} {:>8}",
        "", "p50", "p99", "p99.9", "max"
    );
    for _ in 0..windows {
        let report = load::load(&from, to, Law::Mu, &schedule, &AtomicBool::new(false)).unwrap();
        assert_eq!(report.sent, report.due, "{report:?}");
        let sides = [
            (
                "nothing but waking up".to_string(),
                thread::spawn(wake_up).join().unwrap(),
            ),
            (format!("{streams} streams"), report.wake_up_late.unwrap()),
        ];
        for ((name, late), p99s_ns) in sides.iter().zip(&mut p99s_ns) {
            let us = |ns: u64| ns as f64 / 1e3;
            let [p50, p99] = [late.p50_ns, late.p99_ns].map(us);
            let [p999, max] = [late.p999_ns, late.max_ns].map(us);
            println!("{name:24} {p50:8.1} {p99:8.1} {p999:8.1} {max:8.1}");
            p99s_ns.push(late.p99_ns);
        }
    }
    let [bare, loaded] = p99s_ns.map(|mut each| {
        each.sort_unstable();
        each[each.len() / 2] as f64 / 1e3
    });
    println!(
        "median p99: {bare:.1} us without work, {loaded:.1} us with {streams} streams: {:.2} times",
        loaded / bare
    );
}

fn wake_up() -> Quantiles {
    machine::become_real_time();
    let mut late = Distribution::default();
    let start_ns = clock::monotonic_ns();
    for tick in 1..=WINDOW_NS / TICK_NS {
        let due_ns = start_ns + tick * TICK_NS;
        clock::sleep_until(due_ns);
        late.record(clock::monotonic_ns() - due_ns, 1);
    }
    late.quantiles().unwrap()
}
