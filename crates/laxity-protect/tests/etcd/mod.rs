//! A real etcd of one member, which is ended and whose data is removed when its handle is dropped.
#![allow(dead_code, reason = "each user needs another part")]

use std::net::TcpStream;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use nix::sys::prctl::set_pdeathsig;
use nix::sys::signal::Signal;

const PATIENCE: Duration = Duration::from_secs(600);

pub fn is_there() -> bool {
    let mut command = Command::new("etcd");
    command.arg("--version").stdout(Stdio::null());
    command.stderr(Stdio::null()).status().is_ok()
}

/// A running member.
pub struct Member {
    process: Child,
    stopped: Option<Stopped>,
}

/// A stopped member with its data.
pub struct Stopped {
    directory: PathBuf,
    endpoint: String,
    keys: Option<PathBuf>,
}

impl Member {
    /// Starts a member at `http://127.0.0.1:PORT`, or at `https` with the keys of a site in a
    /// directory, where it answers only clients with a certificate of that site.
    pub fn start(endpoint: &str, keys: Option<&Path>) -> Member {
        static MEMBERS: AtomicU32 = AtomicU32::new(0);
        let number = MEMBERS.fetch_add(1, Ordering::Relaxed);
        let name = format!("laxity-etcd-{}-{number}", std::process::id());
        Stopped {
            directory: std::env::temp_dir().join(name),
            endpoint: endpoint.into(),
            keys: keys.map(Path::to_path_buf),
        }
        .start()
    }

    /// Stops the member and keeps its data.
    pub fn stop(mut self) -> Stopped {
        self.stopped.take().expect("it has not been stopped")
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

impl Stopped {
    pub fn start(self) -> Member {
        let mut command = Command::new("etcd");
        command.arg("--data-dir").arg(&self.directory);
        // No other member is to join: the system chooses that port.
        let peers = "http://127.0.0.1:0";
        for (option, value) in [
            ("--listen-client-urls", &*self.endpoint),
            ("--advertise-client-urls", &*self.endpoint),
            ("--listen-peer-urls", peers),
        ] {
            command.args([option, value]);
        }
        if let Some(keys) = &self.keys {
            command.arg("--client-cert-auth");
            command.arg("--cert-file").arg(keys.join("witness.crt"));
            command.arg("--key-file").arg(keys.join("witness.key"));
            command.arg("--trusted-ca-file").arg(keys.join("site.crt"));
        }
        command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        // SAFETY: what runs between fork and exec is one system call.
        unsafe { command.pre_exec(|| Ok(set_pdeathsig(Signal::SIGKILL)?)) };
        let mut member = Member {
            process: command.spawn().unwrap(),
            stopped: None,
        };
        let (_, address) = self.endpoint.split_once("//").unwrap();
        let address = address.to_string();
        member.stopped = Some(self);
        let deadline = Instant::now() + PATIENCE;
        while TcpStream::connect(&address).is_err() {
            assert!(Instant::now() < deadline, "etcd does not listen");
            thread::sleep(Duration::from_millis(10));
        }
        member
    }
}

impl Drop for Stopped {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.directory);
    }
}
