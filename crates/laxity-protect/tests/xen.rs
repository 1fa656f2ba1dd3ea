//! Two daemons and a domain of Xen, with a program in xl's place (`tests/xen/xl`): the first host is killed, and the second
//! takes over from the last checkpoint, and not before the first has been silent for long enough.

use std::fs;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use laxity_protect::daemon::control::{Answer, Request, ask};
use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;

const PROGRAM: &str = env!("CARGO_BIN_EXE_laxity-protect");
const PATIENCE: Duration = Duration::from_secs(60);

/// A daemon and all that it started: a process group, which has ended when this has.
struct Host {
    daemon: Child,
    directory: PathBuf,
}

impl Host {
    fn start(site: &Path, name: &str, port: [u16; 2]) -> Host {
        let directory = site.join(name);
        fs::create_dir(&directory).unwrap();
        let text = format!(
            r#"
directory = "{name}"
keys = "keys"
host = [
    {{ name = "north", address = "127.0.0.1:{}" }},
    {{ name = "south", address = "127.0.0.1:{}" }},
]

[[vm]]
engine = "xen"
name = "guest"
hosts = ["north", "south"]
configuration = "guest.cfg"
hold-script = "guest.cfg"
interval = {{ minimum = "20 ms" }}
heartbeat = "100 ms"
detection = "2 s"
"#,
            port[0], port[1]
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

    /// Its state, and the number of the last checkpoint.
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

    /// What its Xen has of the domain.
    fn guest(&self) -> Option<(String, u64)> {
        let text = fs::read_to_string(self.directory.join("guest")).ok()?;
        let (state, number) = text.split_once(' ')?;
        Some((state.into(), number.parse().ok()?))
    }

    fn kill(&mut self) {
        let group = Pid::from_raw(self.daemon.id().try_into().unwrap());
        let _ = killpg(group, Signal::SIGKILL);
        let _ = self.daemon.wait();
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        self.kill();
    }
}

#[test]
fn a_domain_outlives_its_host() {
    if Command::new("python3").arg("--version").output().is_err() {
        eprintln!("skipped: there is no python3, which xl's stand-in needs");
        return;
    }
    let site = std::env::temp_dir().join(format!("laxity-xen-{}", std::process::id()));
    fs::create_dir(&site).unwrap();
    fs::write(site.join("guest.cfg"), "name = \"guest\"\n").unwrap();
    let free = || std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let listeners = [free(), free()];
    let ports = listeners
        .each_ref()
        .map(|one| one.local_addr().unwrap().port());
    drop(listeners);
    let mut north = Host::start(&site, "north", ports);
    let south = Host::start(&site, "south", ports);
    south.wait_for("armed", 5);
    north.wait_for("protected", 5);
    assert_eq!(south.guest(), None);
    north.kill();
    let (_, seen) = north.guest().unwrap();
    south.wait_for("alone", 0);
    let (state, number) = south.guest().unwrap();
    assert_eq!(state, "running");
    // What was acknowledged was released, and is there.
    assert!(number >= seen, "{number} is before {seen}");
    drop((north, south));
    fs::remove_dir_all(site).unwrap();
}
