//! The daemon's CPU time.

#![allow(unsafe_code)]

use std::ops::Range;
use std::os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd};
use std::process::Command;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::{Duration, Instant};

use laxity_bandwidth::linux::Links;
use laxity_bandwidth::shaper::Shaper as _;
use nix::sys::signal::Signal;
use nix::time::{ClockId, clock_getcpuclockid, clock_gettime};
use nix::unistd::Pid;

use crate::input::{agreement, head, percentile, random_pace};
use crate::scene::{Scene, Sending, enter, tree};

const MACHINES: usize = 1_000;

/// Interfaces of the largest host.
const MANY: usize = 10_000;

/// Priority of the daemon, as in `laxity-bandwidth.service`.
const PRIORITY: &str = "10";

pub fn run(is_quick: bool) {
    let time = Duration::from_secs(if is_quick { 1 } else { 10 });
    for period_ms in [10, 100] {
        for busy in [0, BUSY] {
            let name = format!("cost{period_ms}-{busy}");
            let scene = Scene::with_idle(&name, busy, MACHINES - busy);
            let host = Host::new(scene, MACHINES, period_ms);
            let _senders = host.send(busy);
            thread::sleep(Duration::from_secs(1));
            host.measure(busy, "", time);
            host.stop();
        }
    }
    // Making so many interfaces takes longer than measuring.
    if !is_quick {
        many(time);
    }
}

fn agreements_text(period_ms: u64, machines: usize) -> String {
    const MINIMA_KBIT_S: u64 = 100_000;
    let mut text = head(period_ms, 200);
    for at in 0..machines {
        let minimum = MINIMA_KBIT_S / machines as u64;
        text += &agreement(at, 1 + at as u64 % 3, minimum, 200_000, 1);
    }
    text
}

/// CPU time of the daemon until it answers, by the number of interfaces.
pub fn start(is_quick: bool) {
    let sizes: &[usize] = if is_quick {
        &[50]
    } else {
        &[500, 1_000, 2_000, 4_000]
    };
    for &interfaces in sizes {
        let mut scene = Scene::with_idle(&format!("start-{interfaces}"), 0, interfaces);
        let file = scene.write("agreements.toml", &agreements_text(10, interfaces));
        scene.start(&file);
        println!(
            "{{\"part\": \"start\", \"interfaces\": {interfaces}, \"cpu_s\": {:.2}, \"load\": {:.2}}}",
            cpu_s(scene.daemon()),
            load()
        );
        scene.signal(Signal::SIGTERM);
        assert!(scene.wait());
    }
}

/// Machines that send at random.
const BUSY: usize = 50;

/// The daemon's host.
struct Host {
    scene: Scene,
    interfaces: usize,
    period_ms: u64,
}

impl Host {
    /// Starts the daemon with an agreement for each interface of a scene.
    fn new(mut scene: Scene, interfaces: usize, period_ms: u64) -> Host {
        let file = scene.write("agreements.toml", &agreements_text(period_ms, interfaces));
        scene.spawn(&file);
        // The kernel takes minutes to make the classes of many agreements.
        while scene
            .snapshot()
            .is_none_or(|snapshot| snapshot.periods == 0)
        {
            thread::sleep(Duration::from_millis(100));
        }
        let process = scene.daemon().to_string();
        let mut command = Command::new("chrt");
        command.args(["--rr", "--pid", PRIORITY, &process]);
        assert!(command.status().is_ok_and(|status| status.success()));
        Host {
            scene,
            interfaces,
            period_ms,
        }
    }

    /// Has machines send, flood and pause at random.
    fn send(&self, machines: usize) -> Vec<Sending> {
        let senders =
            (0..machines).map(|at| self.scene.send(at, random_pace(at as u64, 4_000_000)));
        senders.collect()
    }

    /// Measures the daemon's CPU time while `busy` machines do `what`.
    fn measure(&self, busy: usize, what: &str, time: Duration) {
        let (scene, interfaces, period_ms) = (&self.scene, self.interfaces, self.period_ms);
        let began = scene.snapshot().expect("a daemon that answers");
        let (before, started) = (cpu_s(scene.daemon()), Instant::now());
        thread::sleep(time);
        let used = (cpu_s(scene.daemon()) - before) / started.elapsed().as_secs_f64() * 100.0;
        let snapshot = scene.snapshot().expect("a daemon that answers");
        println!(
            "{{\"part\": \"cost\", \"interfaces\": {interfaces}, \"busy\": {busy}, \"what\": {what:?}, \"period_ms\": {period_ms}, \
             \"cpu_percent\": {used:.3}, \"loop_ms\": {:.3}, \"loop_ms_max\": {:.2}, \"periods\": {}, \
             \"periods_missed\": {}, \"load\": {:.2}}}",
            snapshot.loop_ns as f64 / 1e6,
            snapshot.loop_ns_max as f64 / 1e6,
            snapshot.periods - began.periods,
            snapshot.periods_missed - began.periods_missed,
            load()
        );
    }

    fn stop(mut self) {
        self.scene.signal(Signal::SIGTERM);
        assert!(self.scene.wait());
    }
}

/// CPU time with ten thousand interfaces, by how many send and how.
fn many(time: Duration) {
    /// Bytes of a frame of which all machines may send many.
    const SHORT_BYTES: usize = 60;
    /// Bytes of a frame of which all machines' frames do not fit the link.
    const LONG_BYTES: usize = 1_442;
    let settle = || thread::sleep(Duration::from_secs(1));
    let idle = BUSY..MANY;
    let scene = Scene::with_idle("cost-many", BUSY, idle.len());
    lead_to_the_link(&scene, idle.clone());
    let host = Host::new(scene, MANY, 10);
    host.measure(0, "", time);
    let senders = host.send(BUSY);
    settle();
    host.measure(BUSY, "", time);
    drop(senders);
    let every = |ms| Duration::from_millis(ms);
    let some = BUSY..BUSY + 500;
    let sending = frames(&host.scene, some.clone(), SHORT_BYTES, every(10));
    settle();
    host.measure(some.len(), "send a frame every 10 ms", time);
    drop(sending);
    for (ms, bytes, what) in [
        (1_000, SHORT_BYTES, "send a frame every second"),
        (100, SHORT_BYTES, "send a frame every 100 ms"),
        // A round takes more of the link than there is of it, and rounds for so short a time leave
        // few frames waiting in each queue.
        (500, LONG_BYTES, "have a queue all the time"),
    ] {
        let sending = frames(&host.scene, idle.clone(), bytes, every(ms));
        settle();
        settle();
        host.measure(idle.len(), what, time);
        drop(sending);
    }
    host.stop();
}

/// Has what enters by these interfaces leave by the link. A bridge has room for a thousand ports.
fn lead_to_the_link(scene: &Scene, interfaces: Range<usize>) {
    let lines = interfaces.map(|at| format!("qdisc add dev vif{at} ingress_block 1 ingress\n"));
    let batch = scene.write("leads", &lines.collect::<String>());
    scene.tc(&format!("-batch {}", batch.display()));
    scene.tc(
        "filter add block 1 protocol all u32 match u32 0 0 action mirred egress redirect dev up0",
    );
}

/// Has each of these interfaces, which have no machines, get a frame for the link in every interval,
/// by its other end.
fn frames(scene: &Scene, interfaces: Range<usize>, bytes: usize, every: Duration) -> Sending {
    let host = scene.host();
    let (ready, is_ready) = std::sync::mpsc::channel();
    let sending = Sending::begin(move |running| {
        enter(&host);
        let all = Links::open().unwrap().all().unwrap();
        let ends: Vec<u32> = interfaces
            .map(|at| all[&format!("end{at}")].index)
            .collect();
        // SAFETY: the call takes nobody's memory.
        let socket = unsafe { libc::socket(libc::AF_PACKET, libc::SOCK_RAW, 0) };
        assert!(socket >= 0, "{}", std::io::Error::last_os_error());
        // SAFETY: the kernel has just made it for us.
        let socket = unsafe { OwnedFd::from_raw_fd(socket) };
        ready.send(()).unwrap();
        let mut frame = vec![0; bytes];
        // A local experimental protocol (IEEE 802), after two addresses.
        frame[12..14].copy_from_slice(&[0x88, 0xb5]);
        let mut due = Instant::now();
        while running.load(Ordering::Relaxed) {
            for end in &ends {
                // SAFETY: all bytes of a `sockaddr_ll` may be zero.
                let mut to: libc::sockaddr_ll = unsafe { std::mem::zeroed() };
                to.sll_family = libc::AF_PACKET as u16;
                to.sll_ifindex = *end as i32;
                to.sll_halen = 6;
                // SAFETY: both live until the call returns. Frames that are not taken do not matter.
                unsafe {
                    libc::sendto(
                        socket.as_raw_fd(),
                        frame.as_ptr().cast(),
                        frame.len(),
                        0,
                        std::ptr::from_ref(&to).cast(),
                        size_of::<libc::sockaddr_ll>() as u32,
                    )
                };
            }
            due = (due + every).max(Instant::now());
            while Instant::now() < due && running.load(Ordering::Relaxed) {
                thread::sleep((due - Instant::now()).min(Duration::from_millis(50)));
            }
        }
    });
    is_ready.recv().unwrap();
    sending
}

/// CPU time of reading the kernel's counters alone, of all classes and of active ones, in turn.
pub fn looks(is_quick: bool) {
    let rounds = if is_quick { 20 } else { 200 };
    for busy in [0, 50] {
        let scene = Scene::with_idle(&format!("look-{busy}"), busy, MACHINES - busy);
        let _senders: Vec<_> = (0..busy)
            .map(|at| scene.send(at, random_pace(at as u64, 4_000_000)))
            .collect();
        let text = agreements_text(10, MACHINES);
        let [mut all, mut active] = thread::scope(|threads| {
            let looking = threads.spawn(|| {
                enter(&scene.host());
                look(&text, rounds)
            });
            looking.join().unwrap()
        });
        all.sort_by(f64::total_cmp);
        active.sort_by(f64::total_cmp);
        println!(
            "{{\"part\": \"look\", \"interfaces\": {MACHINES}, \"busy\": {busy}, \"rounds\": {rounds}, \
             \"all_us\": {:.1}, \"active_us\": {:.1}, \"load\": {:.2}}}",
            percentile(&all, 0.5),
            percentile(&active, 0.5),
            load()
        );
    }
}

/// CPU time of reading all classes and of reading the active ones, in us.
fn look(text: &str, rounds: usize) -> [Vec<f64>; 2] {
    let (mut tree, _) = tree(text);
    let mut read = Vec::new();
    let mut us: [Vec<f64>; 2] = [Vec::new(), Vec::new()];
    for _ in 0..rounds {
        thread::sleep(Duration::from_millis(10));
        us[1].push(own_us(|| tree.read(&mut read).unwrap()));
        us[0].push(own_us(|| tree.read_all().unwrap()));
    }
    us
}

/// CPU time of this thread, in us.
fn own_us(work: impl FnOnce()) -> f64 {
    let now = || Duration::from(clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).unwrap());
    let before = now();
    work();
    (now() - before).as_secs_f64() * 1e6
}

/// The machine's mean load over the last minute.
pub fn load() -> f64 {
    let text = std::fs::read_to_string("/proc/loadavg").unwrap();
    text.split(' ').next().unwrap().parse().unwrap()
}

/// CPU time of a process so far, including the kernel's.
pub fn cpu_s(process: u32) -> f64 {
    let clock = clock_getcpuclockid(Pid::from_raw(process as i32)).unwrap();
    Duration::from(clock_gettime(clock).unwrap()).as_secs_f64()
}
