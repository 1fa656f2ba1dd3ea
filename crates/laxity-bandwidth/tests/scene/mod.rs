//! A host with a link and virtual machines, made of network namespaces and virtual cables that are
//! removed with the scene. Each machine can send; traffic that leaves by the link is counted.
#![allow(dead_code, reason = "each user needs another part")]

use std::collections::{HashMap, HashSet};
use std::fs::File;
use std::io::Read as _;
use std::net::UdpSocket;
use std::os::fd::AsRawFd as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use laxity_bandwidth::agreements::{self, Port};
use laxity_bandwidth::control::{Controller, Shapers};
use laxity_bandwidth::linux::{Links, Tree};
use laxity_bandwidth::report::Snapshot;
use laxity_bandwidth::shaper::Shaper as _;
use nix::sched::{CloneFlags, setns};
use nix::sys::signal::{Signal, kill};
use nix::sys::socket::{setsockopt, sockopt};
use nix::unistd::Pid;

/// An address of the network reserved for documentation (RFC 5737).
pub const OUTSIDE: &str = "192.0.2.1";
const FIRST_PORT: u16 = 5000;
pub const PAYLOAD_BYTES: usize = 1400;
const LISTENER_BYTES: usize = 8 << 20;
/// Size of a frame with the headers of UDP, IPv4 and Ethernet, which the kernel counts, too.
pub const FRAME_BYTES: u64 = PAYLOAD_BYTES as u64 + 8 + 20 + 14;

/// The rate of a flood.
const FLOOD_BIT_S: u64 = 200_000_000;

/// The reason why there can be no scene here; `None` if there can.
pub fn what_is_missing() -> Option<&'static str> {
    if !nix::unistd::geteuid().is_root() {
        return Some("network namespaces need root");
    }
    let is_there = |tool: &str, argument: &str| {
        let mut command = Command::new(tool);
        command
            .arg(argument)
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        command.status().is_ok()
    };
    (!is_there("ip", "-V") || !is_there("tc", "-V")).then_some("there is no iproute2")
}

pub fn ip(words: &str) -> String {
    run("ip", words)
}

fn run(program: &str, words: &str) -> String {
    let output = Command::new(program)
        .args(words.split_whitespace())
        .output()
        .unwrap();
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{program} {words}: {error}");
    String::from_utf8(output.stdout).unwrap()
}

pub struct Scene {
    name: String,
    machines: usize,
    directory: PathBuf,
    daemon: Option<Child>,
}

impl Scene {
    /// Makes a scene: `up0` is the link in the host's namespace; `vif0`, `vif1`, … are the
    /// machines' interfaces, all on a bridge.
    pub fn new(name: &str, machines: usize) -> Scene {
        let name = format!("laxity-bw-{}-{name}", std::process::id());
        let directory = std::env::temp_dir().join(&name);
        std::fs::create_dir_all(&directory).unwrap();
        let scene = Scene {
            name,
            machines,
            directory,
            daemon: None,
        };
        let (host, outside) = (scene.host(), scene.outside());
        ip(&format!("netns add {host}"));
        ip(&format!("netns add {outside}"));
        ip(&format!("-n {host} link add br0 type bridge"));
        ip(&format!(
            "-n {host} link add up0 type veth peer name eth0 netns {outside}"
        ));
        ip(&format!("-n {host} link set up0 master br0"));
        for link in ["lo", "br0", "up0"] {
            ip(&format!("-n {host} link set {link} up"));
        }
        ip(&format!("-n {outside} address add {OUTSIDE}/16 dev eth0"));
        ip(&format!("-n {outside} link set eth0 up"));
        for machine in 0..machines {
            ip(&format!("netns add {}", scene.machine(machine)));
            scene.plug(machine);
        }
        scene
    }

    /// Makes a scene with `machines` as in [`Scene::new`], followed by `idle` interfaces without
    /// machines.
    pub fn with_idle(name: &str, machines: usize, idle: usize) -> Scene {
        let scene = Scene::new(name, machines);
        let lines = (machines..machines + idle).map(|at| {
            format!("link add vif{at} type veth peer name end{at}\nlink set vif{at} up\n")
        });
        let batch = scene.write("idle", &lines.collect::<String>());
        ip(&format!("-n {} -batch {}", scene.host(), batch.display()));
        scene
    }

    /// Bytes sent and whether packets wait in a leaf, for all holders' classes at the link, by
    /// number.
    pub fn classes(&self) -> HashMap<u16, (u64, bool)> {
        let text = self.tc("-s class show dev up0");
        let classes = text.split("class htb ").skip(1).map(|class| {
            let after = |word: &str| {
                let (_, rest) = class.split_once(word).unwrap();
                rest.split_whitespace().next().unwrap()
            };
            let (_, minor) = class
                .split_whitespace()
                .next()
                .unwrap()
                .split_once(':')
                .unwrap();
            let minor = u16::from_str_radix(minor, 16).unwrap();
            let bytes: u64 = after("Sent ").parse().unwrap();
            (minor, bytes, after("backlog ") != "0b")
        });
        /// Distance from the number of a holder's class to those of its leaves.
        const LEAVES: u16 = 0x5000;
        let (leaves, holders): (Vec<_>, Vec<_>) = classes.partition(|each| each.0 >= LEAVES);
        let waiting = leaves.iter().filter(|(_, _, is_waiting)| *is_waiting);
        let waiting: HashSet<u16> = waiting.map(|(minor, ..)| minor % LEAVES).collect();
        let holders = holders.into_iter();
        let holders = holders.map(|(minor, bytes, _)| (minor, (bytes, waiting.contains(&minor))));
        holders.collect()
    }

    /// Waits until nothing leaves by the link and nothing waits for it.
    pub fn wait_until_quiet(&self) {
        let mut before = self.classes();
        loop {
            thread::sleep(Duration::from_millis(500));
            let now = self.classes();
            if now == before && now.values().all(|(_, is_waiting)| !is_waiting) {
                return;
            }
            before = now;
        }
    }

    pub fn host(&self) -> String {
        format!("{}-host", self.name)
    }

    pub fn outside(&self) -> String {
        format!("{}-out", self.name)
    }

    pub fn machine(&self, machine: usize) -> String {
        format!("{}-{machine}", self.name)
    }

    /// Gives a machine its interface.
    pub fn plug(&self, machine: usize) {
        let (host, own) = (self.host(), self.machine(machine));
        let (high, low) = (machine / 200, 10 + machine % 200);
        ip(&format!(
            "-n {host} link add vif{machine} type veth peer name eth0 netns {own}"
        ));
        ip(&format!("-n {host} link set vif{machine} master br0"));
        ip(&format!("-n {host} link set vif{machine} up"));
        ip(&format!(
            "-n {own} address add 192.0.{}.{low}/16 dev eth0",
            2 + high
        ));
        ip(&format!("-n {own} link set eth0 up"));
    }

    /// Gives a machine a tap in place of a cable's end, as QEMU has it: what is written into the
    /// file are frames that the machine sends.
    #[allow(unsafe_code)]
    pub fn plug_tap(&self, machine: usize) -> File {
        let (host, name) = (self.host(), format!("vif{machine}"));
        let named = name.clone();
        let opened = thread::spawn(move || {
            enter(&host);
            let mut options = File::options();
            let tap = options.read(true).write(true).open("/dev/net/tun").unwrap();
            // SAFETY: all bytes of an `ifreq` may be zero.
            let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
            for (to, from) in request.ifr_name.iter_mut().zip(named.bytes()) {
                *to = from as libc::c_char;
            }
            request.ifr_ifru.ifru_flags = (libc::IFF_TAP | libc::IFF_NO_PI) as i16;
            // SAFETY: the file is open, and the request lives until the kernel has read it.
            let done = unsafe { libc::ioctl(tap.as_raw_fd(), libc::TUNSETIFF, &request) };
            assert_eq!(done, 0, "{}", std::io::Error::last_os_error());
            tap
        });
        let tap = opened.join().unwrap();
        self.ip(&format!("link set {name} master br0"));
        self.ip(&format!("link set {name} up"));
        tap
    }

    /// Packets that a class of the tree has sent.
    pub fn sent_packets(&self, class: &str) -> u64 {
        let classes = self.tc("-s class show dev up0");
        let Some((_, class)) = classes.split_once(&format!("class htb 1a7c:{class} ")) else {
            return 0;
        };
        let (_, sent) = class.split_once("Sent ").unwrap();
        sent.split_whitespace().nth(2).unwrap().parse().unwrap()
    }

    pub fn unplug(&self, machine: usize) {
        ip(&format!("-n {} link delete vif{machine}", self.host()));
    }

    pub fn tc(&self, words: &str) -> String {
        self.tc_in(&self.host(), words)
    }

    pub fn ip(&self, words: &str) -> String {
        ip(&format!("-n {} {words}", self.host()))
    }

    /// Whether the host routes the packets of IPv4 that come by its bridge.
    pub fn set_routing(&self, is_on: bool) {
        let host = self.host();
        let written = thread::spawn(move || {
            enter(&host);
            let value = if is_on { "1" } else { "0" };
            std::fs::write("/proc/sys/net/ipv4/conf/br0/forwarding", value)
        });
        written.join().unwrap().unwrap();
    }

    pub fn tc_in(&self, namespace: &str, words: &str) -> String {
        run("tc", &format!("-n {namespace} {words}"))
    }

    pub fn write(&self, file: &str, text: &str) -> PathBuf {
        let path = self.directory.join(file);
        // The file is replaced, as editors do.
        let new = self.directory.join("new");
        std::fs::write(&new, text).unwrap();
        std::fs::rename(&new, &path).unwrap();
        path
    }

    pub fn socket(&self) -> PathBuf {
        self.directory.join("status.sock")
    }

    /// A command that runs the program with these words in the host's namespace.
    pub fn command(&self, words: &[&str]) -> Command {
        self.command_under(&[], words)
    }

    /// The same through another program, such as one that sets a priority.
    pub fn command_under(&self, under: &[&str], words: &[&str]) -> Command {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &self.host()]);
        command.args(under);
        command.arg(env!("CARGO_BIN_EXE_laxity-bandwidth"));
        command.args(words);
        command
    }

    /// Starts a daemon and waits until its agreements are in force.
    pub fn start(&mut self, file: &Path) -> Snapshot {
        self.spawn(file);
        self.wait_for("the daemon", |snapshot| snapshot.periods > 0)
    }

    /// Starts a daemon.
    pub fn spawn(&mut self, file: &Path) {
        self.spawn_under(&[], file, &[]);
    }

    /// Starts a daemon through another program, with more options.
    pub fn spawn_under(&mut self, under: &[&str], file: &Path, options: &[&str]) {
        let log = File::options()
            .create(true)
            .append(true)
            .open(self.directory.join("log"))
            .unwrap();
        let (file, socket) = (file.to_str().unwrap(), self.socket());
        let words = ["run", file, "--socket", socket.to_str().unwrap()];
        let mut command = self.command_under(under, &[&words, options].concat());
        self.daemon = Some(command.stderr(log).spawn().unwrap());
    }

    pub fn log(&self) -> String {
        std::fs::read_to_string(self.directory.join("log")).unwrap_or_default()
    }

    pub fn daemon(&self) -> u32 {
        self.daemon.as_ref().expect("a daemon runs").id()
    }

    pub fn signal(&self, signal: Signal) {
        kill(Pid::from_raw(self.daemon() as i32), signal).unwrap();
    }

    /// Waits for the daemon to end. Returns whether it ended well.
    pub fn wait(&mut self) -> bool {
        let mut daemon = self.daemon.take().expect("a daemon runs");
        daemon.wait().unwrap().success()
    }

    pub fn snapshot(&self) -> Option<Snapshot> {
        let mut stream = std::os::unix::net::UnixStream::connect(self.socket()).ok()?;
        // The parser would ask for single bytes, and be late for a large answer.
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).ok()?;
        serde_json::from_slice(&answer).ok()
    }

    /// Waits until the daemon's snapshot satisfies `is_so`.
    pub fn wait_for(&self, what: &str, is_so: impl Fn(&Snapshot) -> bool) -> Snapshot {
        let deadline = Instant::now() + Duration::from_secs(600);
        loop {
            if let Some(snapshot) = self.snapshot().filter(&is_so) {
                return snapshot;
            }
            assert!(
                Instant::now() < deadline,
                "waiting for {what}:\n{}",
                self.log()
            );
            thread::sleep(Duration::from_millis(5));
        }
    }

    /// A listener beyond the link, which counts by machine.
    pub fn listen(&self) -> Listener {
        let running = Arc::new(AtomicBool::new(true));
        let bytes: Arc<Vec<AtomicU64>> =
            Arc::new((0..self.machines).map(|_| AtomicU64::new(0)).collect());
        let threads = (0..self.machines).map(|machine| {
            let (running, bytes) = (running.clone(), bytes.clone());
            let outside = self.outside();
            let (ready, is_ready) = std::sync::mpsc::channel();
            let thread = thread::spawn(move || {
                let socket = socket_in(&outside, (OUTSIDE, FIRST_PORT + machine as u16));
                // The buffer is large, so that packets wait while this thread is not running.
                setsockopt(&socket, sockopt::RcvBufForce, &LISTENER_BYTES).unwrap();
                socket
                    .set_read_timeout(Some(Duration::from_millis(50)))
                    .unwrap();
                ready.send(()).unwrap();
                let mut buffer = [0; 2048];
                while running.load(Ordering::Relaxed) {
                    if socket.recv(&mut buffer).is_ok() {
                        bytes[machine].fetch_add(FRAME_BYTES, Ordering::Relaxed);
                    }
                }
            });
            is_ready.recv().unwrap();
            thread
        });
        Listener {
            threads: threads.collect(),
            running,
            bytes,
        }
    }

    /// Makes a machine send at `pace` in a thread of its own until the result is dropped.
    pub fn send(&self, machine: usize, pace: Pace) -> Sending {
        let own = self.machine(machine);
        Sending::begin(move |running| {
            let socket = socket_in(&own, ("0.0.0.0", 0));
            socket
                .connect((OUTSIDE, FIRST_PORT + machine as u16))
                .unwrap();
            socket
                .set_write_timeout(Some(Duration::from_millis(50)))
                .unwrap();
            pace(&socket, running);
        })
    }

    /// Sends to a machine at `pace` from beyond the link.
    pub fn send_inwards(&self, machine: usize, pace: Pace) -> Sending {
        let outside = self.outside();
        let (high, low) = (machine / 200, 10 + machine % 200);
        let to = format!("192.0.{}.{low}", 2 + high);
        Sending::begin(move |running| {
            let socket = socket_in(&outside, ("0.0.0.0", 0));
            socket.connect((to.as_str(), FIRST_PORT)).unwrap();
            // No socket listens there; errors about that are ignored.
            pace(&socket, running);
        })
    }

    /// Bytes that the machine's kernel has received.
    pub fn received_bytes(&self, machine: usize) -> u64 {
        self.counted(machine, "rx_bytes")
    }

    /// Bytes that the machine's kernel has sent into its cable.
    pub fn sent_bytes(&self, machine: usize) -> u64 {
        self.counted(machine, "tx_bytes")
    }

    fn counted(&self, machine: usize, what: &str) -> u64 {
        let text = ip(&format!(
            "netns exec {} cat /sys/class/net/eth0/statistics/{what}",
            self.machine(machine)
        ));
        text.trim().parse().unwrap()
    }

    /// Packets that left by the link and found no room in a listener's socket.
    pub fn unheard(&self) -> u64 {
        let text = ip(&format!("netns exec {} cat /proc/net/snmp", self.outside()));
        let mut lines = text.lines().filter_map(|line| line.strip_prefix("Udp: "));
        let mut words = || lines.next().unwrap().split(' ');
        let at = words().position(|word| word == "RcvbufErrors").unwrap();
        words().nth(at).unwrap().parse().unwrap()
    }
}

impl Drop for Scene {
    fn drop(&mut self) {
        if let Some(mut daemon) = self.daemon.take() {
            let _ = daemon.kill();
            let _ = daemon.wait();
            eprintln!("{}", self.log());
        }
        for machine in 0..self.machines {
            let _ = Command::new("ip")
                .args(["netns", "delete", &self.machine(machine)])
                .status();
        }
        for side in [self.host(), self.outside()] {
            let _ = Command::new("ip").args(["netns", "delete", &side]).status();
        }
        let _ = std::fs::remove_dir_all(&self.directory);
    }
}

/// Moves this thread into a network namespace.
pub fn enter(namespace: &str) {
    let namespace = File::open(format!("/run/netns/{namespace}")).unwrap();
    setns(namespace, CloneFlags::CLONE_NEWNET).unwrap();
}

/// A tree at the link of this thread's namespace in the state before a daemon's first read, and the
/// number of holders.
pub fn tree(text: &str) -> (Tree, usize) {
    let agreements =
        agreements::load(text.as_bytes(), "agreements.toml", &|_, _| Port::Usable).unwrap();
    let interfaces = Links::open().unwrap().all().unwrap();
    let mut tree = Tree::open(interfaces[&agreements.link.interface].index).unwrap();
    tree.configure(&agreements).unwrap();
    for (at, holder) in agreements.holders.iter().enumerate() {
        let interface = interfaces.get(holder.at.interface().unwrap());
        tree.bind(at, interface.map(|each| each.index)).unwrap();
    }
    let own = agreements.holders.iter().map(|holder| holder.agreement);
    let own: Vec<_> = own.chain([agreements.others()]).collect();
    let link_bit_s = agreements.link.rate_bit_s;
    let controller = Controller::new(link_bit_s, agreements.sharing, Shapers::Tree, &own);
    let limits = (0..own.len()).map(|at| (at, controller.limits(at)));
    let limits: Vec<_> = limits.collect();
    assert!(tree.apply(&limits).is_empty());
    tree.tidy().unwrap();
    (tree, agreements.holders.len())
}

pub fn socket_in(namespace: &str, address: (&str, u16)) -> UdpSocket {
    enter(namespace);
    UdpSocket::bind(address).unwrap()
}

/// A sender's loop, which runs until the flag falls.
pub type Pace = Box<dyn FnOnce(&UdpSocket, &AtomicBool) + Send>;

/// A pace that offers five times what the links of these tests take, so that queues stay full. Senders without a pace
/// would keep all CPUs busy, and only more packets would be dropped.
pub fn flood() -> Pace {
    constant(FLOOD_BIT_S)
}

/// Marks a socket's packets for expedited forwarding (RFC 3246).
pub fn expedite(socket: &UdpSocket) {
    /// The DSCP 46, above the two bits of ECN.
    const EXPEDITED: i32 = 46 << 2;
    setsockopt(socket, sockopt::Ipv4Tos, &EXPEDITED).unwrap();
}

/// The same with expedited packets.
pub fn expedited_flood() -> Pace {
    Box::new(|socket, running| {
        expedite(socket);
        flood()(socket, running);
    })
}

/// A pace with a constant rate, sent in bursts of one millisecond's traffic.
pub fn constant(bit_s: u64) -> Pace {
    Box::new(move |socket, running| {
        let packet = [0; PAYLOAD_BYTES];
        let started = Instant::now();
        let mut sent = 0;
        while running.load(Ordering::Relaxed) {
            let due = started.elapsed().as_nanos() * u128::from(bit_s) / 8_000_000_000;
            while sent < due && running.load(Ordering::Relaxed) {
                let _ = socket.send(&packet);
                sent += u128::from(FRAME_BYTES);
            }
            thread::sleep(Duration::from_millis(1));
        }
    })
}

pub struct Sending {
    thread: Option<JoinHandle<()>>,
    running: Arc<AtomicBool>,
}

impl Sending {
    /// Sends in a thread of its own, which is told to end when the result is dropped.
    pub fn begin(send: impl FnOnce(&AtomicBool) + Send + 'static) -> Sending {
        let running = Arc::new(AtomicBool::new(true));
        let goes_on = running.clone();
        Sending {
            thread: Some(thread::spawn(move || send(&goes_on))),
            running,
        }
    }
}

impl Drop for Sending {
    fn drop(&mut self) {
        self.running.store(false, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

pub struct Listener {
    threads: Vec<JoinHandle<()>>,
    running: Arc<AtomicBool>,
    bytes: Arc<Vec<AtomicU64>>,
}

impl Listener {
    pub fn bytes(&self, machine: usize) -> u64 {
        self.bytes[machine].load(Ordering::Relaxed)
    }

    /// Mean rates over `time` from now on, in Mbit/s.
    pub fn mbit_s(&self, time: Duration) -> Vec<f64> {
        let all = || {
            (0..self.bytes.len())
                .map(|at| self.bytes(at))
                .collect::<Vec<u64>>()
        };
        let (before, started) = (all(), Instant::now());
        thread::sleep(time);
        let s = started.elapsed().as_secs_f64();
        let rates = all().into_iter().zip(before);
        rates
            .map(|(now, before)| (now - before) as f64 * 8.0 / s / 1e6)
            .collect()
    }

    /// The rates of the first interval that satisfies `are_right`. Senders and listeners on a busy
    /// machine may not run in time; rates that are not enforced are wrong in every interval.
    pub fn mbit_s_once(
        &self,
        time: Duration,
        should: impl Fn(&[f64]) -> Result<(), String>,
    ) -> Vec<f64> {
        once(|| {
            let rates = self.mbit_s(time);
            should(&rates).map(|()| rates)
        })
    }
}

/// The result of the first attempt that succeeds.
pub fn once<T>(mut attempt: impl FnMut() -> Result<T, String>) -> T {
    const TIMES: usize = 200;
    let mut reason = String::new();
    for _ in 0..TIMES {
        match attempt() {
            Ok(found) => return found,
            Err(other) => reason = other,
        }
    }
    panic!("not once in {TIMES} times: {reason}");
}

impl Drop for Listener {
    fn drop(&mut self) {
        self.running.store(false, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}
