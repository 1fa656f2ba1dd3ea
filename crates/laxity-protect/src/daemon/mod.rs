//! The daemon of a host: a [`Driver`] for each of its virtual machines, and the threads that
//! connect hosts, listen, and answer the operator.
//!
//! An epoch waits only for its own steps. The threads: one driver for each virtual machine, which decides; one for its
//! guest, which captures and commits; one for its gate; two for its connection; and for the whole daemon one that
//! listens to other hosts, one to the operator, one to Prometheus. A claim at the witness is made by a thread that is
//! there for it alone.

mod connection;
pub mod control;
mod driver;
pub mod faults;
mod greeting;
mod priority;
mod record;
pub mod stream;
mod worker;
mod xen;
mod xl;

use std::collections::HashMap;
use std::io;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::net::UnixListener;
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use laxity_config::{FILE_BYTES_MAX, input};
use nix::sys::signal::{SigSet, Signal};
use tracing::{error, info, warn};

use crate::gate::{Gate, HELD_BYTES_MAX, Port};
use crate::guest::{Disk, Format, GuestError, User, probe_program, refuse_other_formats};
use crate::protocol::Mode;
use crate::report::{Board, Counts, serve_metrics};
use crate::site::{Domain, Site, Vm, number_of};
use crate::transport::{Keys, KeysError, Link, Preamble, REVOKED, TIMEOUT, accept, dial};
use crate::witness::Witness;
use driver::{Driver, Input};
use record::Stored;
pub use stream::carry;
use worker::Worker;
use xen::Xen;

/// Reasons why the daemon does not run.
#[derive(Debug, thiserror::Error)]
pub enum DaemonError {
    /// The site file does not name this host.
    #[error("the site has no host `{name}`; it has {known}")]
    Host {
        /// The name that was given.
        name: String,
        /// Names of the hosts in the site file.
        known: String,
    },
    /// No virtual machine has a part on this host.
    #[error("no virtual machine of the site has `{0}` among its hosts")]
    Idle(String),
    /// The keys are missing or wrong.
    #[error(transparent)]
    Keys(#[from] KeysError),
    /// QEMU cannot protect the guest.
    #[error("virtual machine `{vm}`: {source}")]
    Guest {
        /// Name of the virtual machine.
        vm: String,
        /// Reason of the failure.
        source: GuestError,
    },
    /// The operator's socket cannot be used.
    #[error("{0}")]
    Control(String),
    /// Xen cannot protect the domain.
    #[error("domain `{domain}`: {why}")]
    Xen {
        /// Name of the domain.
        domain: String,
        /// Reason, with a remedy.
        why: String,
    },
    /// A system call failed.
    #[error("cannot {what}: {source}")]
    System {
        /// The operation that failed.
        what: String,
        /// Error of the system.
        source: io::Error,
    },
}

fn system<E: Into<io::Error>>(what: impl Into<String>) -> impl FnOnce(E) -> DaemonError {
    move |source| DaemonError::System {
        what: what.into(),
        source: source.into(),
    }
}

/// Options of the daemon.
#[derive(Debug)]
pub struct Options {
    /// Name of this host in the site file.
    pub host: String,
    /// Path of the operator's socket.
    pub socket: PathBuf,
    /// Address for Prometheus.
    pub metrics: Option<SocketAddr>,
}

/// One virtual machine, as other threads see it.
#[derive(Clone)]
struct Running {
    name: String,
    peer: String,
    /// Properties of the guest that must be the same on both sides.
    guest: String,
    inputs: Sender<Input>,
}

/// Runs until SIGTERM or SIGINT. Everything that can be refused is refused before anything is
/// started.
///
/// # Errors
///
/// If something was refused, or fails that the daemon cannot do without.
pub fn run(site: &Site, options: &Options) -> Result<(), DaemonError> {
    let signals = take_signals().map_err(system("take signals"))?;
    let name = &options.host;
    let host = site.host(name).ok_or_else(|| DaemonError::Host {
        name: name.clone(),
        known: site
            .hosts
            .iter()
            .map(|host| &*host.name)
            .collect::<Vec<_>>()
            .join(", "),
    })?;
    let vms: Vec<&Vm> = site
        .vms
        .iter()
        .filter(|vm| vm.other(name).is_some())
        .collect();
    let domains: Vec<&Domain> = site
        .xen_domains
        .iter()
        .filter(|domain| domain.other(name).is_some())
        .collect();
    if vms.is_empty() && domains.is_empty() {
        return Err(DaemonError::Idle(name.clone()));
    }
    for domain in &domains {
        refuse_without_xen(domain)?;
    }
    let directory = directory_of(site, &format!("{name}.key"));
    let keys = Keys::load(&directory, name, &directory_of(site, REVOKED))?;
    if keys.expires_soon() {
        warn!(
            host = name,
            "the certificate expires within 30 days: renew it with `laxity protect keys renew`"
        );
    }
    let mut guests = Vec::new();
    for vm in &vms {
        let probed = probe_program(&vm.guest).map_err(|source| DaemonError::Guest {
            vm: vm.name.clone(),
            source,
        })?;
        guests.push(probed);
    }
    let listening = format!("listen on {}", host.address);
    let listener = TcpListener::bind(host.address).map_err(system(listening))?;
    let (control, _file) = laxity_daemon::listen(&options.socket).map_err(DaemonError::Control)?;
    let metrics = options
        .metrics
        .map(|address| TcpListener::bind(address).map_err(system(format!("listen on {address}"))));
    let metrics = metrics.transpose()?;

    let mut board = Board {
        host: name.clone(),
        vms: Vec::new(),
    };
    let mut running = Vec::new();
    let mut drivers = Vec::new();
    for (vm, (guest, accelerator)) in vms.iter().zip(guests) {
        let (started, driver, record) = prepare(site, vm, name, &keys, &guest, accelerator)?;
        board.vms.push((
            vm.name.clone(),
            driver.shared.clone(),
            Some(driver.gate.clone()),
        ));
        running.push(started);
        let vm = vm.name.clone();
        let run: Box<dyn FnOnce() -> io::Result<()> + Send> = Box::new(move || driver.run(record));
        drivers.push((vm, run));
    }
    for domain in domains {
        let (started, xen, record) = prepare_domain(site, domain, name, &keys)?;
        board
            .vms
            .push((domain.name.clone(), xen.shared.clone(), None));
        running.push(started);
        drivers.push((domain.name.clone(), Box::new(move || xen.run(record))));
    }
    let others: Vec<String> = site
        .hosts
        .iter()
        .map(|host| host.name.clone())
        .filter(|other| other != name)
        .collect();
    let thread = |error| system("start a thread")(error);
    let addresses = site
        .hosts
        .iter()
        .map(|host| host.address.ip().to_canonical());
    let vms = running.clone();
    let greeted = move |stream| greet(&keys, &others, &vms, stream);
    greeting::serve(listener, addresses.collect(), greeted).map_err(thread)?;
    serve_operator(control, board.clone(), &running).map_err(thread)?;
    if let Some(metrics) = metrics {
        serve_metrics(metrics, board).map_err(thread)?;
    }
    let (ended, end) = channel();
    for (vm, run) in drivers {
        let ended = ended.clone();
        let spawned = thread::Builder::new().name("driver".into()).spawn(move || {
            let done = run();
            let _ = ended.send(Some((vm, done)));
        });
        spawned.map_err(thread)?;
    }
    let stopped = ended.clone();
    let spawned = thread::Builder::new()
        .name("signals".into())
        .spawn(move || {
            let _ = signals.wait();
            let _ = stopped.send(None);
        });
    spawned.map_err(thread)?;
    info!(host = name, vms = running.len(), "running");
    serve_until_end(&running, &end)
}

/// Directory of a file of the host's keys: systemd's copies for this service alone
/// (`LoadCredential=`), or the one that the site file names. The units leave the revocations, which
/// are no secret and need not exist, where they are.
fn directory_of(site: &Site, file: &str) -> PathBuf {
    std::env::var_os("CREDENTIALS_DIRECTORY")
        .map(PathBuf::from)
        .filter(|credentials| credentials.join(file).exists())
        .unwrap_or_else(|| site.keys.clone())
}

type Ended = Option<(String, io::Result<()>)>;

fn serve_until_end(running: &[Running], end: &Receiver<Ended>) -> Result<(), DaemonError> {
    let mut left = running.len();
    let mut failed = Ok(());
    while left > 0 {
        match end.recv() {
            Ok(None) => {
                info!("stopping");
                for each in running {
                    let _ = each.inputs.send(Input::Stop);
                }
            }
            Ok(Some((vm, done))) => {
                left -= 1;
                if let Err(source) = done {
                    error!(vm, "this virtual machine is given up: {source}");
                    failed = Err(system(format!("go on with `{vm}`"))(source));
                }
            }
            Err(_) => break,
        }
    }
    failed
}

fn prepare(
    site: &Site,
    vm: &Vm,
    host: &str,
    keys: &Keys,
    description: &str,
    accelerator: crate::guest::Accelerator,
) -> Result<(Running, Driver, crate::protocol::Record), DaemonError> {
    let what = || format!("keep the record of `{}`", vm.name);
    let (stored, record) = Stored::open(&site.directory, &vm.name).map_err(system(what()))?;
    let network = format!("open the network of `{}`", vm.name);
    let gate = Port::open(&vm.outside)
        .and_then(|outside| Gate::start(outside, vm.guest.mac, &vm.addresses, HELD_BYTES_MAX))
        .map_err(system(network))?;
    let gate = Arc::new(gate);
    let (sender, inputs) = channel();
    let told = sender.clone();
    let guest = crate::guest::Specification {
        accelerator,
        ..vm.guest.clone()
    };
    let what = format!("use the disks of `{}`", vm.name);
    // A guest that has run may have written anything to a raw disk, and still has it.
    let is_unwritten = record.term == 0 && guest.format == Format::Raw;
    let unwritten: &[PathBuf] = if is_unwritten { &guest.volumes } else { &[] };
    for path in guest.disks.iter().chain(unwritten) {
        refuse_other_formats(path).map_err(system(what.clone()))?;
    }
    let user = User::of(guest.number, false);
    let disks = guest.volumes.iter().map(|path| {
        let disk = match guest.format {
            Format::Raw => Disk::open(path),
            Format::Qcow2 => Disk::open_qcow2(path, &guest.program, user),
        };
        Ok(Arc::new(disk?))
    });
    let disks: Vec<Arc<Disk>> = disks.collect::<io::Result<_>>().map_err(system(what))?;
    let sizes: Vec<u64> = disks.iter().map(|disk| disk.bytes()).collect();
    let preamble = Preamble {
        vm: vm.name.clone(),
        guest: format!(
            "{description}, {}, volumes of {sizes:?} bytes",
            guest.essence()
        ),
    };
    let report = move |report| drop(told.send(Input::Report(report)));
    let worker = Worker::start(guest, disks.clone(), gate.clone(), report)
        .map_err(system("start a thread"))?;
    let peer = vm
        .other(host)
        .expect("only a host's own were taken")
        .to_string();
    let begins_here = vm.hosts[0] == host;
    let dialler = begins_here.then(|| start_dialler(site, keys, &peer, &preamble, &sender));
    let dialler = dialler.transpose().map_err(system("start a thread"))?;
    let running = Running {
        name: vm.name.clone(),
        peer,
        guest: preamble.guest,
        inputs: sender.clone(),
    };
    let driver = Driver {
        vm: vm.name.clone(),
        settings: vm.settings,
        host: number_of(host),
        begins_here,
        witness: site
            .witness
            .as_ref()
            .map(|place| Witness::new(place, keys, &vm.name)),
        stored,
        disks,
        gate,
        worker,
        inputs,
        sender,
        dialler,
        shared: Arc::new(Mutex::new(Counts::default())),
    };
    Ok((running, driver, record))
}

/// Refuses if something that `xl remus` needs is visibly missing.
fn refuse_without_xen(domain: &Domain) -> Result<(), DaemonError> {
    let refuse = |why| DaemonError::Xen {
        domain: domain.name.clone(),
        why,
    };
    xl::ask(&["info"]).map_err(|why| refuse(format!("this is not a Xen host: {why}")))?;
    if domain.settings.mode == Mode::Net && !domain.hold_script.exists() {
        let script = domain.hold_script.display();
        let why = format!(
            "there is no {script} to hold the domain's output; name a script with `hold-script`"
        );
        return Err(refuse(why));
    }
    Ok(())
}

fn prepare_domain(
    site: &Site,
    domain: &Domain,
    host: &str,
    keys: &Keys,
) -> Result<(Running, Xen, crate::protocol::Record), DaemonError> {
    let what = |what: &str| system(format!("{what} of `{}`", domain.name));
    let (stored, record) =
        Stored::open(&site.directory, &domain.name).map_err(what("keep the record"))?;
    let configuration = input::read_to_string(&domain.configuration, FILE_BYTES_MAX)
        .map_err(what("read the configuration"))?;
    let (sender, inputs) = channel();
    let preamble = Preamble {
        vm: domain.name.clone(),
        guest: format!(
            "Xen, a configuration with the sum {:016x}",
            number_of(&configuration)
        ),
    };
    let peer = domain
        .other(host)
        .expect("only a host's own were taken")
        .to_string();
    let begins_here = domain.hosts[0] == host;
    let dialler = begins_here.then(|| start_dialler(site, keys, &peer, &preamble, &sender));
    let dialler = dialler.transpose().map_err(system("start a thread"))?;
    let running = Running {
        name: domain.name.clone(),
        peer,
        guest: preamble.guest,
        inputs: sender.clone(),
    };
    let xen = Xen {
        domain: domain.clone(),
        host: number_of(host),
        begins_here,
        stored,
        directory: site.directory.clone(),
        inputs,
        sender,
        dialler,
        shared: Arc::new(Mutex::new(Counts::default())),
    };
    Ok((running, xen, record))
}

/// The pauses before connections: none after one that has lasted, and twice as long after each that
/// failed or ended at once, as where the other host wants nothing of this one. After one that was made
/// they stay short, since a silence counts as the loss of a host.
#[derive(Debug)]
struct Pauses {
    next: Duration,
}

impl Default for Pauses {
    fn default() -> Pauses {
        Pauses {
            next: Pauses::SHORTEST,
        }
    }
}

impl Pauses {
    const SHORTEST: Duration = Duration::from_millis(50);
    const LONGEST: Duration = Duration::from_secs(1);
    /// A third of the default of `detection`.
    const LONGEST_OF_MADE: Duration = Duration::from_millis(100);

    /// The pause after a connection that has lasted for so long.
    fn after(&mut self, lasted: Duration) -> Duration {
        if lasted >= Pauses::LONGEST {
            self.next = Pauses::SHORTEST;
            return Duration::ZERO;
        }
        let pause = self.next;
        self.next = (pause * 2).min(Pauses::LONGEST);
        if lasted.is_zero() {
            pause
        } else {
            pause.min(Pauses::LONGEST_OF_MADE)
        }
    }
}

/// A thread that connects to the other host whenever it is asked to, for as long as that takes.
fn start_dialler(
    site: &Site,
    keys: &Keys,
    peer: &str,
    preamble: &Preamble,
    inputs: &Sender<Input>,
) -> io::Result<Sender<()>> {
    const SAY_EVERY: Duration = Duration::from_secs(60);
    let (asks, asked) = channel();
    let address = site.host(peer).expect("the site file was checked").address;
    let (keys, preamble, inputs) = (keys.clone(), preamble.clone(), inputs.clone());
    let peer = peer.to_string();
    thread::Builder::new().name("dial".into()).spawn(move || {
        let mut said: Option<Instant> = None;
        let mut connected: Option<Instant> = None;
        let mut pauses = Pauses::default();
        while asked.recv().is_ok() {
            if let Some(connected) = connected {
                thread::sleep(pauses.after(connected.elapsed()));
            }
            let link = loop {
                let failed = match dial(&keys, address, &peer, &preamble) {
                    Ok(link) if link.preamble.guest == preamble.guest => break link,
                    Ok(link) => unlike(&preamble.guest, &link.preamble.guest),
                    Err(error) => error.to_string(),
                };
                if said.is_none_or(|said| said.elapsed() > SAY_EVERY) {
                    warn!(vm = preamble.vm, peer, "cannot connect: {failed}");
                    said = Some(Instant::now());
                }
                thread::sleep(pauses.after(Duration::ZERO));
            };
            said = None;
            connected = Some(Instant::now());
            // Requests that came in the meantime are answered by this connection.
            while asked.try_recv().is_ok() {}
            if inputs.send(Input::Link(Box::new(link))).is_err() {
                return;
            }
        }
    })?;
    Ok(asks)
}

fn unlike(ours: &str, theirs: &str) -> String {
    format!(
        "the other host's guest differs, and could not go on from the state of the guest here: it has {theirs}, and the guest here has {ours}"
    )
}

/// Accepts a connection of another host for the virtual machine that it names.
///
/// # Errors
///
/// If it is nobody who is expected.
fn greet(keys: &Keys, hosts: &[String], vms: &[Running], stream: TcpStream) -> io::Result<()> {
    let find = |peer: &str, vm: &str| vms.iter().find(|each| each.name == vm && each.peer == peer);
    let deadline = Instant::now() + TIMEOUT;
    let link: Link = accept(keys, stream, deadline, hosts, |peer, said| {
        match find(peer, &said.vm) {
            Some(vm) => Ok(Preamble {
                vm: vm.name.clone(),
                guest: vm.guest.clone(),
            }),
            None => Err(format!(
                "{peer} does not share a virtual machine `{}` with this host",
                said.vm
            )),
        }
    })?;
    let vm = find(&link.peer, &link.preamble.vm).expect("it was found when it was answered");
    if link.preamble.guest == vm.guest {
        let _ = vm.inputs.send(Input::Link(Box::new(link)));
    } else {
        warn!(
            vm = vm.name,
            peer = link.peer,
            "{}",
            unlike(&vm.guest, &link.preamble.guest)
        );
        link.closer.close();
    }
    Ok(())
}

fn serve_operator(listener: UnixListener, board: Board, vms: &[Running]) -> io::Result<()> {
    let inputs: HashMap<String, Sender<Input>> = vms
        .iter()
        .map(|vm| (vm.name.clone(), vm.inputs.clone()))
        .collect();
    control::serve(listener, board, move |vm, order| {
        let inputs = inputs
            .get(vm)
            .ok_or_else(|| format!("there is no virtual machine `{vm}` here"))?;
        let (answer, answered) = channel();
        let gone = |_| "the daemon has given this virtual machine up".to_string();
        inputs
            .send(Input::Order(order, answer))
            .map_err(|_| gone(()))?;
        match answered.recv().map_err(|_| gone(()))? {
            done if done.is_empty() => Ok(()),
            why => Err(why),
        }
    })
}

fn take_signals() -> nix::Result<SigSet> {
    let mut signals = SigSet::empty();
    signals.add(Signal::SIGTERM);
    signals.add(Signal::SIGINT);
    signals.thread_block()?;
    Ok(signals)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_that_is_not_wanted_or_cannot_be_reached_makes_pauses() {
        let mut pauses = Pauses::default();
        let ms = |pauses: &mut Pauses, lasted| {
            (0..7)
                .map(|_| pauses.after(lasted).as_millis())
                .collect::<Vec<_>>()
        };
        assert_eq!(
            ms(&mut pauses, Duration::ZERO),
            [50, 100, 200, 400, 800, 1000, 1000]
        );
        let mut pauses = Pauses::default();
        let at_once = Duration::from_millis(3);
        assert_eq!(ms(&mut pauses, at_once), [50, 100, 100, 100, 100, 100, 100]);
        let hour = Duration::from_secs(3600);
        assert_eq!(pauses.after(hour), Duration::ZERO);
        assert_eq!(pauses.after(at_once), Pauses::SHORTEST);
    }
}
