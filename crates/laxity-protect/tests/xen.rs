//! Two daemons and a domain of Xen, with a program in xl's place (`tests/xen/xl`): the host that
//! runs the guest, and the checkpoint from which it runs, when a host or the other one fails,
//! returns, or stops.

use std::fs;
use std::io::ErrorKind;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU16, Ordering};
use std::thread::sleep;
use std::time::{Duration, Instant};

use laxity_protect::daemon::control::{Answer, Request, ask};
use nix::sys::signal::{Signal, kill, killpg};
use nix::unistd::Pid;

const PROGRAM: &str = env!("CARGO_BIN_EXE_laxity-protect");
const PATIENCE: Duration = Duration::from_secs(600);

/// The files of two hosts, removed at the end.
struct Site {
    directory: PathBuf,
    addresses: [SocketAddr; 2],
    mode: &'static str,
}

/// An address that no other site has: of a loopback address that is this process's own, with a port
/// that is given once only, so that it stays free while its daemon does not run.
fn free_address() -> SocketAddr {
    /// Below the ports that the kernel gives by itself.
    static NEXT: AtomicU16 = AtomicU16::new(20_000);
    let [.., high, middle, low] = std::process::id().to_be_bytes();
    let own = Ipv4Addr::new(127, 1 + high % 254, middle, low);
    loop {
        let address = SocketAddr::from((own, NEXT.fetch_add(1, Ordering::Relaxed)));
        match TcpListener::bind(address) {
            Ok(_) => return address,
            Err(error) => assert_eq!(error.kind(), ErrorKind::AddrInUse, "{address}: {error}"),
        }
    }
}

/// A daemon with all its child processes, as a process group that is ended at the end.
struct Host {
    daemon: Child,
    directory: PathBuf,
}

impl Site {
    /// A site; `None` where xl's stand-in cannot run.
    fn new(name: &str, mode: &'static str) -> Option<Site> {
        if Command::new("python3").arg("--version").output().is_err() {
            eprintln!("skipped: there is no python3, which xl's stand-in needs");
            return None;
        }
        let directory =
            std::env::temp_dir().join(format!("laxity-xen-{name}-{}", std::process::id()));
        fs::create_dir(&directory).unwrap();
        fs::write(directory.join("guest.cfg"), "name = \"guest\"\n").unwrap();
        Some(Site {
            directory,
            addresses: [free_address(), free_address()],
            mode,
        })
    }

    fn start(&self, name: &str) -> Host {
        let site = &self.directory;
        let directory = site.join(name);
        fs::create_dir_all(&directory).unwrap();
        let text = format!(
            r#"
directory = "{name}"
keys = "keys"
host = [
    {{ name = "north", address = "{}" }},
    {{ name = "south", address = "{}" }},
]

[[vm]]
engine = "xen"
name = "guest"
hosts = ["north", "south"]
configuration = "guest.cfg"
interval = {{ minimum = "20 ms" }}
heartbeat = "100 ms"
detection = "10 s"
{}
"#,
            self.addresses[0], self.addresses[1], self.mode
        );
        let file = site.join(format!("{name}.toml"));
        fs::write(&file, text).unwrap();
        let keys = site.join("keys");
        if !keys.exists() {
            let mut make = Command::new(PROGRAM);
            let made = make.arg("keys").arg(&file).arg(&keys);
            assert!(made.stdout(Stdio::null()).status().unwrap().success());
        }
        let programs = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/xen");
        let path = format!("{}:{}", programs.display(), std::env::var("PATH").unwrap());
        let mut run = Command::new(PROGRAM);
        run.arg("run").arg(&file).args(["--as", name, "--socket"]);
        run.arg(directory.join("sock"));
        run.env("PATH", path)
            .env("XEN", &directory)
            .process_group(0);
        let daemon = run.spawn().unwrap();
        Host { daemon, directory }
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.directory);
    }
}

impl Host {
    /// The daemon's state, and the number of the last checkpoint.
    fn state(&self) -> Option<(String, u64)> {
        match ask(&self.directory.join("sock"), &Request::Status).ok()? {
            Answer::Status(snapshot) => {
                let vm = &snapshot.vms[0];
                Some((vm.state.clone(), vm.checkpoint))
            }
            _ => None,
        }
    }

    fn wait_for(&self, state: &str, checkpoint: u64) {
        let begun = Instant::now();
        while !self
            .state()
            .is_some_and(|(its, number)| its == state && number >= checkpoint)
        {
            assert!(
                begun.elapsed() < PATIENCE,
                "not {state}: {:?}",
                self.state()
            );
            sleep(Duration::from_millis(20));
        }
    }

    /// The model Xen's view of the domain.
    fn guest(&self) -> Option<(String, u64)> {
        let text = fs::read_to_string(self.directory.join("guest")).ok()?;
        let (state, number) = text.split_once(' ')?;
        Some((state.into(), number.parse().ok()?))
    }

    /// Has the daemon take an order. A daemon that did not answer in time may have taken it already,
    /// and refuses it then: only what comes of it tells.
    fn order(&self, request: &Request) {
        let begun = Instant::now();
        let mut is_certain = true;
        loop {
            match ask(&self.directory.join("sock"), request) {
                Ok(Answer::Taken) => return,
                Ok(Answer::Refused(_)) if !is_certain => return,
                Err(_) if begun.elapsed() < PATIENCE => is_certain = false,
                other => panic!("it does not take the order: {other:?}"),
            }
        }
    }

    /// Cuts the host's power.
    fn kill(&mut self) {
        let group = Pid::from_raw(self.daemon.id().try_into().unwrap());
        let _ = killpg(group, Signal::SIGKILL);
        let _ = self.daemon.wait();
    }

    /// Kills the daemon alone.
    fn crash(&mut self) {
        self.daemon.kill().unwrap();
        let _ = self.daemon.wait();
    }

    /// Stops the daemon in order.
    fn stop(&mut self) {
        let daemon = Pid::from_raw(self.daemon.id().try_into().unwrap());
        kill(daemon, Signal::SIGTERM).unwrap();
        assert!(self.daemon.wait().unwrap().success());
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        self.kill();
    }
}

const NET: &str = "mode = \"net\"\nhold-script = \"guest.cfg\"";
const NO_NET: &str = "mode = \"no-net\"\nlease = \"30 s\"";

/// Both daemons, with the guest protected on the first host.
fn protected(site: &Site) -> (Host, Host) {
    let (north, south) = (site.start("north"), site.start("south"));
    south.wait_for("armed", 5);
    north.wait_for("protected", 5);
    assert_eq!(south.guest(), None);
    (north, south)
}

#[test]
fn a_domain_outlives_its_host() {
    let Some(site) = Site::new("outlives", NET) else {
        return;
    };
    let (mut north, south) = protected(&site);
    north.kill();
    let (_, seen) = north.guest().unwrap();
    south.wait_for("alone", 0);
    let (state, number) = south.guest().unwrap();
    assert_eq!(state, "running");
    // Acknowledged output was released, and the surviving guest knows of it.
    assert!(number >= seen, "{number} is before {seen}");
}

/// Where output is not held, only the lease prevents both hosts from being heard.
#[test]
fn a_standby_waits_for_the_lease() {
    const LEASE: Duration = Duration::from_secs(30);
    let Some(site) = Site::new("lease", NO_NET) else {
        return;
    };
    let (mut north, south) = protected(&site);
    let alive = Instant::now();
    north.kill();
    south.wait_for("alone", 0);
    // The takeover may be arbitrarily late on a busy machine, and early only by the lateness of the
    // last heartbeat. Without a lease it would come after the ten seconds of detection.
    assert!(alive.elapsed() > LEASE * 2 / 3);
    assert_eq!(south.guest().unwrap().0, "running");
}

#[test]
fn a_domain_whose_standby_is_lost_is_paused() {
    let Some(site) = Site::new("lost", NET) else {
        return;
    };
    let (north, mut south) = protected(&site);
    south.kill();
    north.wait_for("waiting", 0);
    let (state, number) = north.guest().unwrap();
    assert_eq!(state, "paused");
    // The first host has returned without a guest: there is no second guest.
    let mut south = site.start("south");
    south.wait_for("armed", 5);
    north.wait_for("protected", 5);
    let (state, later) = north.guest().unwrap();
    assert_eq!(state, "running");
    assert!(later > number, "{later} is not after {number}");
    south.kill();
    north.wait_for("waiting", 0);
    north.order(&Request::GoOn { vm: "guest".into() });
    north.wait_for("alone", 0);
    assert_eq!(north.guest().unwrap().0, "running");
}

#[test]
fn a_daemon_that_stops_leaves_the_domain_to_nobody_else() {
    let Some(site) = Site::new("stops", NET) else {
        return;
    };
    let (mut north, south) = protected(&site);
    north.stop();
    assert_eq!(north.guest().unwrap().0, "running");
    south.wait_for("empty", 0);
    // The restarted daemon finds the guest in its place.
    let north = site.start("north");
    south.wait_for("armed", 5);
    north.wait_for("protected", 5);
    assert_eq!(south.guest(), None);
    let said = fs::read_to_string(north.directory.join("log")).unwrap();
    assert_eq!(said.matches("create").count(), 1, "{said}");
}

/// The host lives with its guest, which must not be heard beside the other one, and is ended when
/// the takeover is known.
#[test]
fn a_daemon_that_crashes_leaves_the_domain_paused() {
    let Some(site) = Site::new("crashes", NO_NET) else {
        return;
    };
    let (mut north, south) = protected(&site);
    north.crash();
    south.wait_for("alone", 0);
    let (state, seen) = north.guest().unwrap();
    assert_eq!(state, "paused");
    let (state, number) = south.guest().unwrap();
    assert_eq!(state, "running");
    assert!(number >= seen, "{number} is before {seen}");
    let again = site.start("north");
    again.wait_for("armed", 5);
    south.wait_for("protected", 5);
    assert_eq!(again.guest(), None);
}
