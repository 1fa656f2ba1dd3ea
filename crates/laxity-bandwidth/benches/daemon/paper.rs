//! The paper's scenario at a tenth of its time and of its rates.

use std::fs;
use std::thread;
use std::time::{Duration, Instant};

use nix::sys::resource::{UsageWho, getrusage};

use crate::cost::{cpu_s, load};
use crate::input::{agreement, head};
use crate::scene::{Listener, Scene, constant};

/// A tenth of the paper's seconds and Mbit/s.
const VM_1: [(u64, u64); 6] = [(10, 80), (4, 20), (3, 60), (2, 20), (6, 50), (5, 80)];
const OTHERS_BIT_S: u64 = 80_000_000;
const MAXIMA: [u64; 3] = [60, 30, 10];
/// Interval of the results, of a second in the paper's scenario.
const EVERY_MS: u64 = 250;

pub fn run(is_quick: bool) {
    let shorter = if is_quick { 10 } else { 1 };
    for maxima in [None, Some(MAXIMA), Some([60, 60, 40])] {
        paper(maxima, shorter);
    }
}

/// A link of 100 Mbit/s with a daemon whose period is `period_ms`; without maxima there is no
/// daemon.
fn scene(name: &str, maxima: Option<[u64; 3]>, period_ms: u64) -> Scene {
    let mut scene = Scene::new(name, 3);
    // A tenth of the thousand packets of a link's queue: packets that wait at the end of a flood
    // are delivered.
    scene.ip("link set up0 txqueuelen 100");
    let Some(maxima) = maxima else {
        scene.tc("qdisc add dev up0 root tbf rate 100mbit burst 32kb limit 151400");
        return scene;
    };
    let mut text = head(period_ms, 100) + "reserve = \"0 bit/s\"\n";
    text.insert_str(0, "sharing = \"by-class\"\n");
    for (at, minimum) in [30_000, 10_000, 0].into_iter().enumerate() {
        text += &agreement(at, 1 + at as u64, minimum, maxima[at] * 1_000, 1);
    }
    let file = scene.write("agreements.toml", &text);
    scene.start(&file);
    scene
}

fn rates(listener: &Listener, every: Duration) -> String {
    let rates = listener.mbit_s(every);
    let rates: Vec<String> = rates.iter().map(|rate| format!("{rate:.2}")).collect();
    format!("[{}]", rates.join(", "))
}

fn paper(maxima: Option<[u64; 3]>, shorter: u64) {
    let every = Duration::from_millis(EVERY_MS / shorter);
    let scene = scene("paper", maxima, 10);
    let listener = scene.listen();
    let _others = [1, 2].map(|at| scene.send(at, constant(OTHERS_BIT_S)));
    let (delivered, sent) = (listener.bytes(0), scene.sent_bytes(0));
    let (mut scheduled, mut series) = (0, Vec::new());
    for (s, mbit_s) in VM_1 {
        let started = Instant::now();
        let sender = scene.send(0, constant(mbit_s * 1_000_000));
        for _ in 0..s * 1_000 / EVERY_MS {
            series.push(rates(&listener, every));
        }
        // The sender is stopped first, so that it has sent no longer than this.
        drop(sender);
        scheduled += (started.elapsed().as_secs_f64() * (mbit_s * 1_000_000 / 8) as f64) as u64;
    }
    // The pause lets waiting packets arrive.
    thread::sleep(Duration::from_millis(EVERY_MS));
    let delivered = listener.bytes(0) - delivered;
    let sent = scene.sent_bytes(0) - sent;
    let lost = |of: u64| 100.0 - delivered as f64 / of as f64 * 100.0;
    let maxima = maxima.map_or("null".into(), |maxima| format!("{maxima:?}"));
    println!(
        "{{\"part\": \"paper\", \"maxima_mbit_s\": {maxima}, \"class_1_loss_percent\": {:.2}, \
         \"loss_of_schedule_percent\": {:.2}, \"unheard\": {}, \"load\": {:.2}, \"shorter\": {shorter}, \"every_s\": {}, \"mbit_s\": [{}]}}",
        lost(sent),
        lost(scheduled),
        scene.unheard(),
        load(),
        every.as_secs_f64(),
        series.join(", ")
    );
}

/// The loss of VM 1 and the CPU time of the whole machine while all three machines send more than
/// they may. Senders, bridge and link run in this process's threads, the daemon in another process.
pub fn periods(is_quick: bool) {
    let time = Duration::from_secs(if is_quick { 1 } else { 4 });
    let points = [
        None,
        Some(1),
        Some(2),
        Some(5),
        Some(10),
        Some(20),
        Some(50),
    ];
    let points = points.into_iter().chain([100, 200, 500, 1_000].map(Some));
    for period_ms in points {
        let scene = scene(
            "periods",
            period_ms.map(|_| MAXIMA),
            period_ms.unwrap_or(10),
        );
        let listener = scene.listen();
        let _all = [0, 1, 2].map(|at| scene.send(at, constant(OTHERS_BIT_S)));
        thread::sleep(Duration::from_secs(2));
        let daemon_s = || period_ms.map_or(0.0, |_| cpu_s(scene.daemon()));
        let before = (own_cpu_s(), daemon_s(), Instant::now());
        let interrupts = timer_interrupts();
        let rates = listener.mbit_s(time);
        let elapsed_s = before.2.elapsed().as_secs_f64();
        let interrupts_s = timer_interrupts()
            .zip(interrupts)
            .map_or("null".into(), |(after, before)| {
                format!("{:.0}", (after - before) as f64 / elapsed_s)
            });
        let (packets_s, daemon_s) = (own_cpu_s() - before.0, daemon_s() - before.1);
        let lost = 100.0 - rates[0] * 1e6 / OTHERS_BIT_S as f64 * 100.0;
        let period = period_ms.map_or("null".into(), |ms| ms.to_string());
        println!(
            "{{\"part\": \"periods\", \"period_ms\": {period}, \"loss_percent\": {lost:.2}, \
             \"packets_cpu_percent\": {:.2}, \"daemon_cpu_percent\": {:.2}, \
             \"timer_interrupts_s\": {interrupts_s}}}",
            packets_s / elapsed_s * 100.0,
            daemon_s / elapsed_s * 100.0
        );
    }
}

/// Timer interrupts of all CPUs so far, where the kernel names them as on a PC. Other processes on
/// the machine add to them.
fn timer_interrupts() -> Option<u64> {
    let counts = fs::read_to_string("/proc/interrupts").ok()?;
    let line = counts
        .lines()
        .find_map(|line| line.trim_start().strip_prefix("LOC:"))?;
    let of_cpus = line
        .split_whitespace()
        .map_while(|word| word.parse::<u64>().ok());
    Some(of_cpus.sum())
}

/// CPU time of all threads of this process so far, in s.
fn own_cpu_s() -> f64 {
    let usage = getrusage(UsageWho::RUSAGE_SELF).expect("this process");
    let s = |time: nix::sys::time::TimeVal| time.tv_sec() as f64 + time.tv_usec() as f64 / 1e6;
    s(usage.user_time()) + s(usage.system_time())
}
