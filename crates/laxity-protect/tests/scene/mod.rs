//! Two hosts that protect a real guest on this machine: a network namespace with a bridge, the
//! daemons' connections on its loopback interface, and a client that remembers all answers.
//! Everything is removed with the scene.
#![allow(dead_code, reason = "each user needs another part")]

pub mod stock;

use std::collections::{BTreeMap, VecDeque};
use std::fs::{self, File, Permissions};
use std::io::{self, Read as _, Write as _};
use std::net::{TcpStream, UdpSocket};
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use laxity_protect::daemon::control::{Answer, Request, ask};
use laxity_protect::report::VmState;
use laxity_protect::site::{Vm, load};
use laxity_protect::transport::authority;
use nix::sched::{CloneFlags, unshare};
use nix::sys::prctl::set_pdeathsig;
use nix::sys::signal::{Signal, killpg};
use nix::sys::socket::{
    AddressFamily, MsgFlags, SockFlag, SockType, SockaddrIn, bind, connect, send, socket,
};
use nix::sys::wait::{Id, WaitPidFlag, waitid};
use nix::unistd::Pid;
use rand_core::RngCore as _;

/// Time after which an event counts as missing; machines are shared.
pub const PATIENCE: Duration = Duration::from_secs(600);
pub const GUEST: &str = "192.0.2.10:7";
pub const HOSTS: [&str; 2] = ["north", "south"];
/// Ports of the daemons for each other.
const PORTS: [u16; 2] = [7421, 7422];
/// Size of the disk of each host, `HOST.disk` in the site file.
pub const DISK_BYTES: u64 = 32 << 20;
/// Requests that make the guest power off, and look at everything on its disk.
pub const POWER_OFF: u64 = u64::MAX;
pub const CHECK: u64 = u64::MAX - 1;

/// The key of a virtual machine whose epochs all have one length.
pub fn epochs_of(interval_ms: u64) -> String {
    format!(
        "interval = {{ minimum = \"{interval_ms} ms\", maximum = \"{interval_ms} ms\", pauses = 99 }}"
    )
}

/// Place of a file that `make protect-guest` makes.
pub fn built(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../target/protect")
        .join(name)
}

/// The capabilities of the shipped unit, in setpriv's syntax.
fn capabilities() -> String {
    const UNIT: &str = include_str!("../../systemd/laxity-protect.service");
    let words = UNIT
        .lines()
        .find_map(|line| line.strip_prefix("CapabilityBoundingSet="))
        .expect("the unit limits capabilities");
    let names = words.split_whitespace().map(|word| {
        let name = word.strip_prefix("CAP_").expect("a capability's name");
        format!("+{}", name.to_lowercase())
    });
    ["-all".to_string()]
        .into_iter()
        .chain(names)
        .collect::<Vec<_>>()
        .join(",")
}

/// Scenes run one after the other: a host that waits for a CPU would count as failed.
static ONE_SCENE: Mutex<()> = Mutex::new(());

/// The right to run a scene; `None` where this machine does not support one, which the test then
/// reports.
pub fn turn() -> Option<MutexGuard<'static, ()>> {
    if let Some(reason) = what_is_missing() {
        eprintln!("SKIPPED: {reason}");
        return None;
    }
    Some(ONE_SCENE.lock().unwrap_or_else(PoisonError::into_inner))
}

/// The reason why there can be no scene here; `None` if there can.
fn what_is_missing() -> Option<&'static str> {
    let runs = |program: &str, argument: &str| {
        let mut command = Command::new(program);
        command
            .arg(argument)
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        command.status().is_ok()
    };
    if !nix::unistd::geteuid().is_root() {
        Some("network namespaces need root")
    } else if !Path::new("/dev/net/tun").exists() {
        Some("there are no tap devices")
    } else if !runs("setpriv", "--version") {
        Some("there is no setpriv (Debian's util-linux)")
    } else if !runs("ip", "-V") {
        Some("there is no iproute2")
    } else if !runs("qemu-system-x86_64", "--version") {
        Some("there is no QEMU (Debian's qemu-system-x86)")
    } else if !runs("mke2fs", "-V") {
        Some("there is no mke2fs (Debian's e2fsprogs)")
    } else if ["counter.cpio", "database.cpio"]
        .map(built)
        .iter()
        .any(|root| !root.exists())
    {
        Some("the guests are not built: make protect-guest")
    } else {
        None
    }
}

pub struct Scene {
    directory: PathBuf,
    daemons: [Option<Child>; 2],
    /// Threads that wait for the end of each daemon.
    ends: [Option<JoinHandle<Instant>>; 2],
    /// Number of starts of each daemon.
    starts: u32,
}

/// A number of the environment, or a default.
pub fn number(name: &str, default: u64) -> u64 {
    std::env::var(name).map_or(default, |text| {
        text.parse()
            .unwrap_or_else(|_| panic!("{name}={text} is no number"))
    })
}

impl Scene {
    /// Makes a scene in a new network namespace, which the calling thread enters. `vm` is the
    /// virtual machine's part of the site file beside what the scene needs.
    pub fn new(name: &str, vm: &str) -> Scene {
        unshare(CloneFlags::CLONE_NEWNET).unwrap();
        let name = format!("laxity-protect-{}-{name}", std::process::id());
        let directory = Path::new("/dev/shm").join(name);
        let _ = fs::remove_dir_all(&directory);
        fs::create_dir_all(&directory).unwrap();
        ip("link set lo up");
        ip("link add br0 type bridge forward_delay 0");
        ip("address add 192.0.2.1/24 dev br0");
        ip("link set br0 up");
        let owners = HOSTS.map(|host| (host.to_string(), vec![host.to_string()]));
        authority::make(&directory.join("keys"), &owners).unwrap();
        for host in HOSTS {
            ip(&format!("tuntap add dev {host}0 mode tap"));
            ip(&format!("link set {host}0 master br0 up"));
            // A host makes nothing of a disk that its site file does not name.
            let disk = directory.join(format!("{host}.disk"));
            File::create(&disk).unwrap().set_len(DISK_BYTES).unwrap();
            fs::set_permissions(&disk, Permissions::from_mode(0o600)).unwrap();
            let vm = vm.replace("HOST", host);
            let site = format!(
                "directory = \"state-{host}\"\nkeys = \"keys\"\n\
                 [[host]]\nname = \"north\"\naddress = \"127.0.0.1:{}\"\n\
                 [[host]]\nname = \"south\"\naddress = \"127.0.0.1:{}\"\n\
                 [[vm]]\nname = \"counter\"\nhosts = [\"north\", \"south\"]\ntap = \"{host}0\"\n\
                 kernel = {:?}\ninitrd = {:?}\n{vm}\n",
                PORTS[0],
                PORTS[1],
                built("kernel"),
                built("counter.cpio"),
            );
            fs::write(directory.join(format!("{host}.toml")), site).unwrap();
        }
        Scene {
            directory,
            daemons: [None, None],
            ends: [None, None],
            starts: 0,
        }
    }

    /// Makes a scene with both daemons and a protected guest.
    pub fn protected(name: &str, vm: &str) -> Scene {
        let mut scene = Scene::new(name, vm);
        scene.start(0, None);
        scene.start(1, None);
        scene.wait_for(0, "protected");
        scene
    }

    /// The virtual machine as a host's site file has it.
    pub fn vm(&self, host: usize) -> Vm {
        let name = format!("{}.toml", HOSTS[host]);
        let text = fs::read(self.directory.join(&name)).unwrap();
        let site = load(&text, &name, &self.directory, Path::new("/"), &|_| true);
        let site = site.unwrap_or_else(|error| panic!("{error}"));
        site.vms.into_iter().next().expect("it has one")
    }

    /// Gives one host a different site file.
    pub fn edit(&self, host: usize, old: &str, new: &str) {
        let path = self.directory.join(format!("{}.toml", HOSTS[host]));
        let text = fs::read_to_string(&path).unwrap();
        assert!(text.contains(old));
        fs::write(path, text.replace(old, new)).unwrap();
    }

    pub fn wait_for_log(&self, host: usize, words: &str) {
        self.wait_for_log_after(host, "", words);
    }

    /// What a host has said until now.
    pub fn log(&self, host: usize) -> String {
        fs::read_to_string(self.log_path(host)).unwrap_or_default()
    }

    /// Waits until a host says something after what it said before.
    pub fn wait_for_log_after(&self, host: usize, before: &str, words: &str) {
        let deadline = Instant::now() + PATIENCE;
        while !self.log(host)[before.len()..].contains(words) {
            assert!(
                Instant::now() < deadline,
                "it does not say: {words}\n{}",
                self.logs()
            );
            thread::sleep(Duration::from_millis(5));
        }
    }

    pub fn start(&mut self, host: usize, die_at: Option<&str>) {
        match die_at {
            Some(step) => self.start_with(host, &["--die-at", step]),
            None => self.start_with(host, &[]),
        }
    }

    pub fn start_with(&mut self, host: usize, options: &[&str]) {
        self.start_in(host, &[], options);
    }

    /// Starts a daemon by a program that changes what the daemon sees and then becomes it.
    pub fn start_in(&mut self, host: usize, wrapper: &[&str], options: &[&str]) {
        self.starts += 1;
        let log = File::options()
            .create(true)
            .append(true)
            .open(self.log_path(host))
            .unwrap();
        // The daemon has the capabilities that its unit leaves it, and no others.
        let words = [wrapper, &["setpriv", "--no-new-privs"]].concat();
        let mut command = Command::new(words[0]);
        command
            .args(&words[1..])
            .args(["--bounding-set", &capabilities(), "--"])
            .arg(env!("CARGO_BIN_EXE_laxity-protect"))
            .arg("run")
            .arg(self.directory.join(format!("{}.toml", HOSTS[host])));
        command
            .args(["--as", HOSTS[host], "--socket"])
            .arg(self.socket(host))
            .args(options);
        command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log)
            .process_group(0);
        // SAFETY: what runs between fork and exec is one system call.
        unsafe { command.pre_exec(|| Ok(set_pdeathsig(Signal::SIGKILL)?)) };
        let daemon = command.spawn().unwrap();
        let process = Pid::from_raw(daemon.id() as i32);
        self.daemons[host] = Some(daemon);
        self.ends[host] = Some(thread::spawn(move || {
            // The process is left for its owner, who may have taken it by now.
            let _ = waitid(
                Id::Pid(process),
                WaitPidFlag::WEXITED | WaitPidFlag::WNOWAIT,
            );
            Instant::now()
        }));
    }

    /// Sends a signal to the daemon of a host and to all its child processes.
    pub fn signal(&self, host: usize, signal: Signal) {
        let daemon = self.daemons[host].as_ref().expect("it was started");
        let _ = killpg(Pid::from_raw(daemon.id() as i32), signal);
    }

    /// Kills a host as if its power had failed.
    pub fn kill(&mut self, host: usize) {
        self.signal(host, Signal::SIGKILL);
        self.wait_for_end(host);
    }

    /// Waits until the daemon has ended, by itself or not.
    pub fn wait_for_end(&mut self, host: usize) {
        let mut daemon = self.daemons[host].take().expect("it was started");
        let deadline = Instant::now() + PATIENCE;
        while daemon.try_wait().unwrap().is_none() {
            if Instant::now() > deadline {
                self.daemons[host] = Some(daemon);
                panic!("{} does not end\n{}", HOSTS[host], self.logs());
            }
            thread::sleep(Duration::from_millis(2));
        }
    }

    /// Time at which a daemon that has ended did so.
    pub fn ended_at(&mut self, host: usize) -> Instant {
        let end = self.ends[host].take().expect("it was started");
        end.join().unwrap()
    }

    pub fn has_ended(&mut self, host: usize) -> bool {
        self.daemons[host]
            .as_mut()
            .is_none_or(|daemon| daemon.try_wait().unwrap().is_some())
    }

    pub fn state(&self, host: usize) -> Option<VmState> {
        match ask(&self.socket(host), &Request::Status) {
            Ok(Answer::Status(snapshot)) => snapshot.vms.into_iter().next(),
            _ => None,
        }
    }

    pub fn wait_for(&self, host: usize, state: &str) -> VmState {
        self.wait_until(host, state, |vm| vm.state == state)
    }

    pub fn wait_until(&self, host: usize, what: &str, is_so: impl Fn(&VmState) -> bool) -> VmState {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let vm = self.state(host);
            match vm {
                Some(vm) if is_so(&vm) => return vm,
                vm if Instant::now() > deadline => {
                    panic!("{} is not {what}: {vm:?}\n{}", HOSTS[host], self.logs())
                }
                _ => thread::sleep(Duration::from_millis(5)),
            }
        }
    }

    /// Number of a daemon's threads and of its open files.
    pub fn threads_and_files(&self, host: usize) -> [usize; 2] {
        let daemon = self.daemons[host].as_ref().expect("it was started").id();
        ["task", "fd"].map(|what| {
            let there = fs::read_dir(format!("/proc/{daemon}/{what}")).unwrap();
            there.count()
        })
    }

    /// The child processes of a daemon.
    pub fn children(&self, host: usize) -> Vec<u32> {
        let daemon = self.daemons[host].as_ref().expect("it was started").id();
        let tasks = fs::read_dir(format!("/proc/{daemon}/task")).unwrap();
        let children = tasks.map(|task| {
            fs::read_to_string(task.unwrap().path().join("children")).unwrap_or_default()
        });
        let children: Vec<String> = children.collect();
        let words = children.iter().flat_map(|each| each.split_whitespace());
        words.map(|process| process.parse().unwrap()).collect()
    }

    /// Memory of a daemon without the memory that it shares with its guest, in KiB.
    pub fn memory_kib(&self, host: usize) -> u64 {
        let daemon = self.daemons[host].as_ref().expect("it was started");
        let status = fs::read_to_string(format!("/proc/{}/status", daemon.id())).unwrap();
        let anonymous = status
            .lines()
            .find_map(|line| line.strip_prefix("RssAnon:"))
            .unwrap();
        anonymous
            .split_whitespace()
            .next()
            .unwrap()
            .parse()
            .unwrap()
    }

    /// Has a daemon take an order. A daemon that did not answer in time may have taken it already,
    /// and refuses it then: only what comes of it tells.
    pub fn order(&self, host: usize, request: &Request) {
        let deadline = Instant::now() + PATIENCE;
        let mut is_certain = true;
        loop {
            match ask(&self.socket(host), request) {
                Ok(Answer::Taken) => return,
                Ok(Answer::Refused(_)) if !is_certain => return,
                Err(_) if Instant::now() < deadline => is_certain = false,
                other => panic!(
                    "{} does not take it: {other:?}\n{}",
                    HOSTS[host],
                    self.logs()
                ),
            }
        }
    }

    /// Has a daemon refuse an order.
    pub fn order_refused(&self, host: usize, request: &Request) {
        let deadline = Instant::now() + PATIENCE;
        loop {
            match ask(&self.socket(host), request) {
                Ok(Answer::Refused(_)) => return,
                Err(_) if Instant::now() < deadline => {}
                other => panic!("{} takes it: {other:?}\n{}", HOSTS[host], self.logs()),
            }
        }
    }

    /// Number of a daemon's process.
    pub fn daemon(&self, host: usize) -> u32 {
        self.daemons[host].as_ref().expect("it was started").id()
    }

    /// Where a host keeps its record.
    pub fn state_directory(&self, host: usize) -> PathBuf {
        self.directory.join(format!("state-{}", HOSTS[host]))
    }

    /// The image of a host's disk.
    pub fn disk(&self, host: usize) -> PathBuf {
        self.directory.join(format!("{}.disk", HOSTS[host]))
    }

    /// What a host keeps of the guest's terms.
    pub fn record(&self, host: usize) -> PathBuf {
        self.directory
            .join(format!("state-{}/counter.record", HOSTS[host]))
    }

    fn socket(&self, host: usize) -> PathBuf {
        self.directory.join(format!("{}.sock", HOSTS[host]))
    }

    fn log_path(&self, host: usize) -> PathBuf {
        self.directory.join(format!("{}.log", HOSTS[host]))
    }

    /// The logs of both daemons and the guest's console.
    pub fn logs(&self) -> String {
        const LAST_LINES: usize = 60;
        let mut all = String::new();
        for (host, name) in HOSTS.iter().enumerate() {
            let log = self.log(host);
            let lines: Vec<&str> = log.lines().collect();
            let last = &lines[lines.len().saturating_sub(LAST_LINES)..];
            all += &format!("--- {name}\n{}\n", last.join("\n"));
        }
        all
    }
}

impl Drop for Scene {
    fn drop(&mut self) {
        for host in 0..self.daemons.len() {
            if self.daemons[host].is_some() {
                self.signal(host, Signal::SIGKILL);
                let _ = self.daemons[host].take().expect("it is there").wait();
            }
        }
        let _ = fs::remove_dir_all(&self.directory);
    }
}

/// A host that has died.
pub struct Death {
    pub host: usize,
    /// The highest count that had been seen when the other host still waited: all of it is on the
    /// disk of this one.
    pub seen: u64,
}

/// Waits until a host has died: as it was told to at its start, or by a kill if the present primary
/// was told nothing.
///
/// On a busy machine a standby may take over from a primary that lives. The hosts have then changed
/// their parts, and what the new primary was told at its start counts.
pub fn next_death(
    scene: &mut Scene,
    seen: &Seen,
    fates: &[Option<String>; 2],
    random: &mut rand_pcg::Pcg64Mcg,
) -> Death {
    let deadline = Instant::now() + PATIENCE;
    let mut known = [0, 0];
    let mut look = |scene: &Scene| {
        let highest = seen.highest();
        let is_armed = |&host: &usize| scene.state(host).is_some_and(|vm| vm.state == "armed");
        let primary = [1, 0].into_iter().find(|host| is_armed(&(1 - host)))?;
        known[primary] = highest;
        Some(primary)
    };
    loop {
        if let Some(host) = [0, 1].into_iter().find(|&host| scene.has_ended(host)) {
            let seen = known[host];
            return Death { host, seen };
        }
        if let Some(host) = look(scene).filter(|&primary| fates[primary].is_none()) {
            thread::sleep(Duration::from_micros(random.next_u64() % 150_000));
            look(scene);
            scene.kill(host);
            let seen = known[host];
            return Death { host, seen };
        }
        assert!(
            Instant::now() < deadline,
            "no host dies, of those told {fates:?}\n{}",
            scene.logs()
        );
        thread::sleep(Duration::from_millis(5));
    }
}

/// Connections to a host that never authenticate and send a byte now and then.
pub struct Strangers {
    is_over: Arc<AtomicBool>,
    trickle: Option<thread::JoinHandle<()>>,
}

impl Strangers {
    /// More connections than a daemon keeps at a time.
    const COUNT: usize = 300;

    pub fn at(host: usize) -> Strangers {
        let connect = |_| TcpStream::connect(("127.0.0.1", PORTS[host])).unwrap();
        let mut streams: Vec<TcpStream> = (0..Strangers::COUNT).map(connect).collect();
        let is_over = Arc::new(AtomicBool::new(false));
        let ends = is_over.clone();
        let trickle = thread::spawn(move || {
            // A record that announces 16,384 bytes, sent byte by byte.
            for byte in [22, 3, 1, 64, 0].into_iter().chain(std::iter::repeat(0)) {
                for stream in &mut streams {
                    let _ = stream.write(&[byte]);
                }
                if ends.load(Ordering::SeqCst) {
                    return;
                }
                thread::sleep(Duration::from_millis(500));
            }
        });
        Strangers {
            is_over,
            trickle: Some(trickle),
        }
    }
}

impl Drop for Strangers {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::SeqCst);
        let _ = self.trickle.take().expect("it is dropped once").join();
    }
}

/// Connections without credentials, one after the other, at a constant rate.
///
/// Each comes from another address, says what a host would say first, and stays open until
/// [`Flood::OPEN`] others have followed: the flooded host signs an answer for every one.
pub struct Flood {
    is_over: Arc<AtomicBool>,
    connects: Option<JoinHandle<Flooded>>,
}

/// What a flood did.
#[derive(Debug, Default)]
pub struct Flooded {
    pub connections: u64,
    /// Number of connections that nobody accepted, since the host was down.
    pub refused: u64,
    /// Time of the whole flood.
    pub time: Duration,
}

impl Flood {
    /// Connections that the flood holds open: more than a host has places for strangers.
    const OPEN: usize = 400;
    /// Addresses that the flood comes from.
    const SOURCES: u64 = 250 * 250;

    /// Floods a host with `rate_hz` connections a second; must be called in the scene's thread,
    /// whose namespace the flood's thread inherits. A flood that is late catches up.
    pub fn at(host: usize, rate_hz: u64) -> Flood {
        let hello = hello();
        let is_over = Arc::new(AtomicBool::new(false));
        let ends = is_over.clone();
        let connects = thread::spawn(move || {
            let begun = Instant::now();
            let mut open = VecDeque::new();
            let mut done = Flooded::default();
            while !ends.load(Ordering::SeqCst) {
                let number = done.connections + done.refused;
                let due = begun + Duration::from_nanos(number * 1_000_000_000 / rate_hz);
                thread::sleep(due.saturating_duration_since(Instant::now()));
                let source = number % Flood::SOURCES;
                let source = [127, 1, (source / 250) as u8, 1 + (source % 250) as u8];
                match stranger(source, PORTS[host], &hello) {
                    Ok(stranger) => {
                        done.connections += 1;
                        open.push_back(stranger);
                    }
                    Err(_) => done.refused += 1,
                }
                if open.len() > Flood::OPEN {
                    open.pop_front();
                }
            }
            done.time = begun.elapsed();
            done
        });
        Flood {
            is_over,
            connects: Some(connects),
        }
    }

    /// Ends the flood.
    pub fn stop(mut self) -> Flooded {
        self.is_over.store(true, Ordering::SeqCst);
        let connects = self.connects.take().expect("it is stopped once");
        connects.join().unwrap()
    }
}

impl Drop for Flood {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::SeqCst);
        if let Some(connects) = self.connects.take() {
            let _ = connects.join();
        }
    }
}

/// The first message of a host's handshake.
fn hello() -> Vec<u8> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let settings = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(rustls::RootCertStore::empty())
        .with_no_client_auth();
    let mut client =
        rustls::ClientConnection::new(Arc::new(settings), HOSTS[0].try_into().unwrap()).unwrap();
    let mut hello = Vec::new();
    client.write_tls(&mut hello).unwrap();
    hello
}

/// A connection from an address of this machine, which has said its first message.
fn stranger(source: [u8; 4], port: u16, hello: &[u8]) -> nix::Result<OwnedFd> {
    let [a, b, c, d] = source;
    let flags = SockFlag::SOCK_CLOEXEC;
    let stranger = socket(AddressFamily::Inet, SockType::Stream, flags, None).unwrap();
    bind(stranger.as_raw_fd(), &SockaddrIn::new(a, b, c, d, 0)).unwrap();
    connect(stranger.as_raw_fd(), &SockaddrIn::new(127, 0, 0, 1, port))?;
    // The flooded host may have closed the connection.
    let _ = send(stranger.as_raw_fd(), hello, MsgFlags::MSG_NOSIGNAL);
    Ok(stranger)
}

fn ip(words: &str) {
    let output = Command::new("ip")
        .args(words.split_whitespace())
        .output()
        .unwrap();
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "ip {words}: {error}");
}

/// The guest's answer to a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Said {
    pub request: u64,
    pub count: u64,
    pub wrong: u64,
}

impl Said {
    pub const BYTES: usize = 24;

    pub fn of(bytes: &[u8; Said::BYTES]) -> Said {
        let number = |at: usize| u64::from_le_bytes(*bytes[at..].first_chunk().unwrap());
        Said {
            request: number(0),
            count: number(8),
            wrong: number(16),
        }
    }
}

/// Answers that all clients together have seen.
#[derive(Debug, Default)]
pub struct Seen {
    highest: AtomicU64,
    answers: AtomicU64,
    answers_by_tcp: AtomicU64,
    wrong: AtomicU64,
    /// Number of answers that a survivor would have had to know of.
    forgotten: AtomicU64,
    /// The request of each count.
    requests: Mutex<BTreeMap<u64, u64>>,
    /// Times of the answers, in order.
    times: Mutex<Vec<Answered>>,
}

/// Times of a request that was answered.
#[derive(Debug, Clone, Copy)]
struct Answered {
    /// The request was sent for the first time.
    asked: Instant,
    /// The answer came.
    at: Instant,
}

impl Seen {
    pub fn highest(&self) -> u64 {
        self.highest.load(Ordering::SeqCst)
    }

    pub fn answers(&self) -> u64 {
        self.answers.load(Ordering::SeqCst)
    }

    pub fn forgotten(&self) -> u64 {
        self.forgotten.load(Ordering::SeqCst)
    }

    pub fn wrong(&self) -> u64 {
        self.wrong.load(Ordering::SeqCst)
    }

    /// The request of each count that was seen.
    pub fn requests(&self) -> BTreeMap<u64, u64> {
        self.requests.lock().unwrap().clone()
    }

    /// Time from `begin` to the first answer after the longest silence between `begin` and `end`.
    pub fn silence_after(&self, begin: Instant, end: Instant) -> Duration {
        let times = self.times.lock().unwrap();
        let silences = times
            .windows(2)
            .filter(|pair| (begin..end).contains(&pair[1].at));
        let longest = silences
            .max_by_key(|pair| pair[1].at - pair[0].at.max(begin))
            .expect("there were answers");
        longest[1].at - begin
    }

    /// Number of answers to requests that were sent after an instant. An answer to an earlier one
    /// may be on its way for as long as its client does not run.
    pub fn answers_to_later(&self, instant: Instant) -> usize {
        let times = self.times.lock().unwrap();
        times.iter().filter(|each| each.asked > instant).count()
    }

    /// Notes an answer to a request that was sent at `asked`, when `before` had been seen: the guest
    /// must have counted further.
    fn note(&self, said: Said, asked: Instant, before: u64) {
        let at = Instant::now();
        self.times.lock().unwrap().push(Answered { asked, at });
        self.answers.fetch_add(1, Ordering::SeqCst);
        let other = self
            .requests
            .lock()
            .unwrap()
            .insert(said.count, said.request);
        self.highest.fetch_max(said.count, Ordering::SeqCst);
        self.wrong.fetch_max(said.wrong, Ordering::SeqCst);
        if said.count <= before || other.is_some() {
            self.forgotten.fetch_add(1, Ordering::SeqCst);
        }
    }
}

/// Clients that ask without end: one by UDP, repeating each request until it is answered, and one
/// in a single TCP connection.
pub struct Clients {
    pub seen: Arc<Seen>,
    stop: Arc<AtomicBool>,
    udp: JoinHandle<Vec<Duration>>,
    tcp: JoinHandle<u64>,
}

/// Interval between two answered requests, and time after which one is repeated.
const PACE: Duration = Duration::from_millis(3);
const AGAIN: Duration = Duration::from_millis(20);
/// The first request by TCP, which is none of those by UDP.
const FIRST_BY_TCP: u64 = 1 << 32;

impl Clients {
    /// Starts the clients; must be called in the scene's thread, whose namespace theirs inherit.
    pub fn start() -> Clients {
        let seen = Arc::new(Seen::default());
        let stop = Arc::new(AtomicBool::new(false));
        let (both, until) = (seen.clone(), stop.clone());
        let udp = thread::spawn(move || ask_by_udp(&both, &until));
        let (both, until) = (seen.clone(), stop.clone());
        let tcp = thread::spawn(move || ask_by_tcp(&both, &until));
        Clients {
            seen,
            stop,
            udp,
            tcp,
        }
    }

    /// Waits until there are so many answers more.
    pub fn hear(&self, count: u64) {
        let answers = self.seen.answers();
        let deadline = Instant::now() + PATIENCE;
        while self.seen.answers() < answers + count {
            assert!(Instant::now() < deadline, "nobody answers");
            thread::sleep(Duration::from_millis(5));
        }
    }

    /// Waits until the guest has answered in the TCP connection.
    pub fn wait_for_connection(&self) {
        let deadline = Instant::now() + PATIENCE;
        while self.seen.answers_by_tcp.load(Ordering::SeqCst) == 0 {
            assert!(Instant::now() < deadline, "nobody answers by TCP");
            thread::sleep(Duration::from_millis(5));
        }
    }

    /// Ends the clients. Returns the time that each answer by UDP took, and the number of answers
    /// by TCP.
    pub fn stop(self) -> (Vec<Duration>, u64) {
        self.stop.store(true, Ordering::SeqCst);
        (self.udp.join().unwrap(), self.tcp.join().unwrap())
    }
}

fn ask_by_udp(seen: &Seen, stop: &AtomicBool) -> Vec<Duration> {
    let socket = UdpSocket::bind("192.0.2.1:0").unwrap();
    socket.connect(GUEST).unwrap();
    socket.set_read_timeout(Some(AGAIN)).unwrap();
    let mut took = Vec::new();
    let mut request = 0_u64;
    'requests: while !stop.load(Ordering::SeqCst) {
        request += 1;
        let begun = Instant::now();
        let before = seen.highest();
        loop {
            // The system reports an error while no host has the address.
            let _ = socket.send(&request.to_le_bytes());
            let mut answer = [0; Said::BYTES];
            let sent = Instant::now();
            while sent.elapsed() < AGAIN {
                match socket.recv(&mut answer) {
                    Ok(Said::BYTES) => {
                        let said = Said::of(&answer);
                        if said.request == request {
                            seen.note(said, begun, before);
                            took.push(begun.elapsed());
                            thread::sleep(PACE);
                            continue 'requests;
                        }
                    }
                    Ok(_) => panic!("half an answer"),
                    Err(_) => thread::sleep(Duration::from_millis(1)),
                }
            }
            if stop.load(Ordering::SeqCst) {
                break 'requests;
            }
        }
    }
    took
}

fn ask_by_tcp(seen: &Seen, stop: &AtomicBool) -> u64 {
    let mut stream = loop {
        match TcpStream::connect(GUEST) {
            Ok(stream) => break stream,
            Err(_) if stop.load(Ordering::SeqCst) => return 0,
            Err(_) => thread::sleep(AGAIN),
        }
    };
    stream.set_nodelay(true).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let mut answers = 0_u64;
    while !stop.load(Ordering::SeqCst) {
        let (before, begun) = (seen.highest(), Instant::now());
        let request = FIRST_BY_TCP + answers;
        let said = ask_in(&mut stream, request)
            .unwrap_or_else(|error| panic!("the connection did not survive: {error}"));
        assert_eq!(said.request, request);
        seen.note(said, begun, before);
        answers += 1;
        seen.answers_by_tcp.store(answers, Ordering::SeqCst);
        thread::sleep(PACE);
    }
    answers
}

/// Answers that so many clients together get within a second, each in a connection of its own, where
/// it asks again when it is answered.
pub fn answers_hz(clients: u64, time: Duration) -> f64 {
    let (is_over, answers) = (AtomicBool::new(false), AtomicU64::new(0));
    let ask = |stream: &mut TcpStream, request: u64| {
        let said = ask_in(stream, request).unwrap();
        assert_eq!((said.request, said.wrong), (request, 0));
    };
    let deadline = Instant::now() + PATIENCE;
    let connect = |client: u64| {
        // Nobody has the address while the guest boots.
        let mut stream = loop {
            match TcpStream::connect(GUEST) {
                Ok(stream) => break stream,
                Err(error) => assert!(Instant::now() < deadline, "{error}"),
            }
            thread::sleep(AGAIN);
        };
        stream.set_nodelay(true).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        // One after the other: a guest refuses those that it has no time to accept.
        ask(&mut stream, client << 32);
        (client, stream)
    };
    let streams: Vec<(u64, TcpStream)> = (1..=clients).map(connect).collect();
    thread::scope(|scope| {
        for (client, mut stream) in streams {
            let (is_over, answers) = (&is_over, &answers);
            scope.spawn(move || {
                for number in 1.. {
                    ask(&mut stream, client << 32 | number);
                    answers.fetch_add(1, Ordering::SeqCst);
                    if is_over.load(Ordering::SeqCst) {
                        return;
                    }
                }
            });
        }
        let begun = Instant::now();
        thread::sleep(time);
        let answers = answers.load(Ordering::SeqCst);
        is_over.store(true, Ordering::SeqCst);
        answers as f64 / begun.elapsed().as_secs_f64()
    })
}

/// Asks once in a connection of its own, which may take long, and through a failure.
pub fn ask_at_length(request: u64) -> Said {
    let mut stream = TcpStream::connect(GUEST).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    ask_in(&mut stream, request).unwrap()
}

/// Asks once in a connection.
fn ask_in(stream: &mut TcpStream, request: u64) -> io::Result<Said> {
    let mut answer = [0; Said::BYTES];
    stream.write_all(&request.to_le_bytes())?;
    stream.read_exact(&mut answer)?;
    Ok(Said::of(&answer))
}

/// Asks once by UDP, repeating the request until there is an answer.
pub fn ask_once(request: u64) -> Said {
    let socket = UdpSocket::bind("192.0.2.1:0").unwrap();
    socket.connect(GUEST).unwrap();
    socket.set_read_timeout(Some(AGAIN)).unwrap();
    let deadline = Instant::now() + PATIENCE;
    while Instant::now() < deadline {
        let _ = socket.send(&request.to_le_bytes());
        let mut answer = [0; Said::BYTES];
        if let Ok(Said::BYTES) = socket.recv(&mut answer) {
            return Said::of(&answer);
        }
        thread::sleep(Duration::from_millis(1));
    }
    panic!("nobody answers");
}
