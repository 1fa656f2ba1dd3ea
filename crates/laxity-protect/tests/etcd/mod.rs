//! A real etcd of one member, which goes when it does, and takes its data along.
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

/// One that answers.
pub struct Member {
    process: Child,
    stopped: Option<Stopped>,
}

/// What it knew.
pub struct Stopped {
    directory: PathBuf,
    endpoint: String,
    keys: Option<PathBuf>,
}

impl Member {
    /// Listens at `http://127.0.0.1:PORT`, or at `https` with the keys of a site in a directory, and answers only who
    /// has a certificate of it then.
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

    /// Ends it; what it knows is kept.
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
        // Nobody else is to join: that port is the system's to choose.
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
