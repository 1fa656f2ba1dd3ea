//! The daemon's loop: reads the counters once a period, lets the [`Controller`] decide, and sets
//! the shapers. Between two periods it handles interfaces that come and go, a changed file, and
//! signals.

use std::collections::{BTreeSet, HashMap};
use std::fs;
use std::io;
use std::os::fd::AsFd as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use laxity_config::{FILE_BYTES_MAX, input};
use nix::poll::{PollFd, PollFlags, ppoll};
use nix::sys::inotify::{AddWatchFlags, InitFlags, Inotify};
use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use nix::sys::time::TimeSpec;
use tracing::{error, info, warn};

use crate::Agreement;
use crate::agreements::{self, Agreements, Attachment, Backend, Port};
use crate::control::{Controller, Limits, Shapers};
use crate::libvirt::{Asked, Cards};
use crate::linux::{
    Changes, Interface, Interfaces, Inwards, LinkEvent, LinkLock, Links, LockError, Tree,
};
use crate::report::{HolderState, Shared, Snapshot};
use crate::shaper::{Counters, Shaper};
use crate::xen::{INTERFACES, Store, Xen};

/// Reasons why the daemon does not run.
#[derive(Debug, thiserror::Error)]
pub enum DaemonError {
    /// The file cannot be read.
    #[error("cannot read {}: {source}", path.display())]
    File {
        /// Path of the file.
        path: PathBuf,
        /// Error of the system.
        source: io::Error,
    },
    /// The contents of the file were refused.
    #[error(transparent)]
    Agreements(#[from] laxity_config::FileError),
    /// The link cannot be shaped.
    #[error("cannot shape {interface}: {reason}")]
    Shaper {
        /// Interface of the link.
        interface: String,
        /// Reason in words for people.
        reason: String,
    },
    /// Another daemon shapes the link.
    #[error("cannot shape {interface}: {source}")]
    Taken {
        /// Interface of the link.
        interface: String,
        /// The process that holds the lock, or the reason why the lock cannot be taken.
        source: LockError,
    },
    /// A system call failed.
    #[error("cannot {what}: {source}")]
    System {
        /// The operation that failed.
        what: &'static str,
        /// Error of the system.
        source: io::Error,
    },
}

fn system<E: Into<io::Error>>(what: &'static str) -> impl Fn(E) -> DaemonError {
    move |source| DaemonError::System {
        what,
        source: source.into(),
    }
}

/// Reads an agreements file and checks it against the interfaces that are there. `libvirt` is asked
/// for those of domains; without it every domain may have those that the file wants.
///
/// # Errors
///
/// If it cannot be read, or is refused.
pub fn read(
    path: &Path,
    interfaces: &Interfaces,
    libvirt: Option<&Asked>,
) -> Result<Agreements, DaemonError> {
    let text = input::read(path, FILE_BYTES_MAX).map_err(|source| DaemonError::File {
        path: path.into(),
        source,
    })?;
    let named = |name: &str, link: &str| match (interfaces.get(name), interfaces.get(link)) {
        (None, _) => Port::Absent,
        (Some(interface), Some(link)) => (interface.obstacle(link))
            .map_or(Port::Usable, |(reason, help)| Port::Unusable(reason, help)),
        (Some(_), None) => Port::Usable,
    };
    let look_at = |at: &Attachment, link: &str| match at {
        Attachment::Interface(name) => named(name, link),
        Attachment::Card { domain, number } => {
            match libvirt.map(|asked| asked.interface(domain, *number)) {
                None => Port::Usable,
                Some(Err(why)) => Port::Unknown(why),
                Some(Ok(None)) => Port::Absent,
                Some(Ok(Some(name))) => named(&name, link),
            }
        }
    };
    Ok(agreements::load(&text, &path.to_string_lossy(), &look_at)?)
}

/// One direction of the link: its controller and its shaper.
struct Direction {
    name: &'static str,
    shaper: Box<dyn Shaper>,
    controller: Controller,
    before: Vec<Counters>,
    /// The holders whose counters the last look has read.
    read: Vec<usize>,
    /// The holders whose limits could not be set.
    failed: Vec<usize>,
    /// Index of this direction's first state in the snapshot.
    first_state: usize,
    /// Whether another program has changed what the shaper made.
    is_disturbed: bool,
}

impl Direction {
    fn new(name: &'static str, shaper: Box<dyn Shaper>) -> Direction {
        let controller = Controller::new(0, crate::Sharing::Weighted, shaper.shapers(), &[]);
        Direction {
            name,
            shaper,
            controller,
            before: Vec::new(),
            read: Vec::new(),
            failed: Vec::new(),
            first_state: 0,
            is_disturbed: false,
        }
    }

    /// Takes agreements on; `kept` gives the previous place of each of them.
    fn configure(
        &mut self,
        agreements: &Agreements,
        link_bit_s: u64,
        own: &[Agreement],
        kept: &[Option<usize>],
    ) -> io::Result<()> {
        self.shaper.configure(agreements)?;
        let shapers = self.shaper.shapers();
        let mut controller = Controller::new(link_bit_s, agreements.sharing, shapers, own);
        controller.inherit(&self.controller, kept);
        self.controller = controller;
        let before = kept
            .iter()
            .map(|kept| kept.map(|at| self.before[at]).unwrap_or_default());
        self.before = before.collect();
        self.failed.clear();
        Ok(())
    }

    /// The limits in force of some holders.
    fn limits(&self, holders: impl Iterator<Item = usize>) -> Vec<(usize, Limits)> {
        let limits = holders.map(|at| (at, self.controller.limits(at)));
        limits.collect()
    }

    /// The limits in force of all holders.
    fn all_limits(&self) -> Vec<(usize, Limits)> {
        self.limits(0..self.before.len())
    }

    fn apply(&mut self, limits: &[(usize, Limits)]) {
        for (holder, error) in self.shaper.apply(limits) {
            warn!(direction = self.name, holder, %error, "a limit could not be set");
            self.failed.push(holder);
        }
    }

    /// Starts counting from the current values: earlier traffic does not belong to this daemon.
    fn begin(&mut self) -> io::Result<()> {
        self.shaper.read(&mut self.read)?;
        for &holder in &self.read {
            self.before[holder] = self.shaper.counters(holder);
        }
        Ok(())
    }

    fn step(&mut self, elapsed_ns: u64, states: &mut [HolderState]) -> io::Result<()> {
        self.shaper.read(&mut self.read)?;
        let samples = self.read.iter().map(|&holder| {
            let now = self.shaper.counters(holder);
            let before = std::mem::replace(&mut self.before[holder], now);
            (holder, now.since(&before, elapsed_ns))
        });
        let denied = self.controller.step_those(elapsed_ns, samples);
        // A limit that could not be set is tried again.
        let failed = std::mem::take(&mut self.failed);
        let stepped = self.controller.stepped().iter().map(|(at, _)| *at);
        let limits = self.limits(stepped.chain(failed));
        self.apply(&limits);
        for (at, sample) in self.controller.stepped() {
            let state = &mut states[*at];
            state.offered_bit_s = self.controller.demand_bit_s(*at);
            state.granted_bit_s = self.controller.granted_bit_s(*at);
            state.delivered_bit_s = sample.delivered_bit_s();
            state.delivered_bytes += sample.delivered_bytes;
            state.dropped_packets += sample.dropped_packets;
            state.throttled_ns += if sample.is_held() { elapsed_ns } else { 0 };
        }
        for at in denied {
            states[at].violations += 1;
            let state = &states[at];
            warn!(
                vm = state.name,
                direction = self.name,
                "a minimum was not held for a second"
            );
        }
        Ok(())
    }
}

/// The daemon.
pub struct Daemon {
    _lock: LinkLock,
    path: PathBuf,
    agreements: Agreements,
    signals: SignalFd,
    links: Links,
    changes: Changes,
    /// Time of the last warning that other programs change the shapers.
    warned: Option<Instant>,
    /// The existing interfaces.
    interfaces: Interfaces,
    /// Whether one has come or gone since libvirt was last asked.
    has_other_interfaces: bool,
    /// Those of domains of libvirt.
    cards: Cards,
    directions: Vec<Direction>,
    shared: Shared,
}

impl Daemon {
    /// Reads the file and enforces it: from then on the kernel limits every holder.
    ///
    /// # Errors
    ///
    /// If the file is refused or the system refuses; nothing is changed then, unless the system did
    /// so half-way.
    pub fn start(path: &Path) -> Result<Daemon, DaemonError> {
        let signals = signals().map_err(system("take signals"))?;
        let mut links = Links::open().map_err(system("open a netlink socket"))?;
        let interfaces = links.all().map_err(system("list the interfaces"))?;
        let asked = Asked::default();
        let agreements = read(path, &interfaces, Some(&asked))?;
        let mut cards = Cards::new().map_err(system("wait for libvirt"))?;
        cards.learn_all(asked, |name| interfaces.contains_key(name));
        for warning in &agreements.warnings {
            warn!("{warning}");
        }
        let link = &agreements.link;
        let failed = |reason: String| DaemonError::Shaper {
            interface: link.interface.clone(),
            reason,
        };
        let taken = |source| DaemonError::Taken {
            interface: link.interface.clone(),
            source,
        };
        let whole_path = std::path::absolute(path).unwrap_or_else(|_| path.into());
        let holder = format!(
            "another daemon, process {} with {},",
            std::process::id(),
            whole_path.display()
        );
        let lock = LinkLock::take(interfaces[&link.interface].index, &holder).map_err(taken)?;
        let mut directions = Vec::new();
        match link.backend {
            Backend::Linux => {
                let index = interfaces[&link.interface].index;
                let tree = Tree::open(index).map_err(|error| failed(error.to_string()))?;
                directions.push(Direction::new("transmit", Box::new(tree)));
            }
            Backend::Xen => {
                let xen = Store::open().and_then(|store| Xen::new(store, Path::new(INTERFACES)));
                let xen = xen.map_err(|error| failed(format!("cannot reach xenstore: {error}")))?;
                directions.push(Direction::new("transmit", Box::new(xen)));
            }
        }
        if link.receive_bit_s.is_some() {
            let inwards = Inwards::open().map_err(system("open a netlink socket"))?;
            directions.push(Direction::new("receive", Box::new(inwards)));
        }
        let ports: Vec<u32> = directions
            .iter()
            .flat_map(|direction| direction.shaper.ports())
            .collect();
        let changes = Changes::open(&ports).map_err(system("open a netlink socket"))?;
        let mut daemon = Daemon {
            _lock: lock,
            path: path.into(),
            agreements,
            signals,
            links,
            changes,
            warned: None,
            interfaces,
            has_other_interfaces: false,
            cards,
            directions,
            shared: Shared::default(),
        };
        daemon
            .configure(None)
            .map_err(system("set the agreements"))?;
        for direction in &mut daemon.directions {
            direction.begin().map_err(system("read the counters"))?;
        }
        if let Some(shortcoming) = daemon.shortcoming() {
            warn!("{shortcoming}");
        }
        if daemon.agreements.link.backend == Backend::Linux {
            daemon.warn_of_routing();
        }
        Ok(daemon)
    }

    /// Warns of bridges whose ports can have the host route their packets: the kernel says of these
    /// that they came by the bridge, and so the link cannot tell whose they are.
    fn warn_of_routing(&self) {
        let holders = self.agreements.holders.iter();
        let attached = holders.filter_map(|each| self.interface(&each.at));
        let attached = attached.chain(self.interfaces.get(&self.agreements.link.interface));
        let bridges = attached.filter_map(|interface| interface.controller);
        let bridges: BTreeSet<u32> = bridges.collect();
        for bridge in self.interfaces.values() {
            let path = format!("/proc/sys/net/ipv4/conf/{}/forwarding", bridge.name);
            let routes = || fs::read_to_string(path).is_ok_and(|said| said.trim() == "1");
            if bridges.contains(&bridge.index) && routes() {
                warn!(
                    bridge = bridge.name,
                    "the host routes packets that its virtual machines address to it, and no agreement limits such \
                     packets; let a firewall drop them, or switch off forwarding on the bridge"
                );
            }
        }
    }

    /// The interface of an attachment, if it is there. What libvirt says of a card does not count if
    /// the file has that interface for the link or for somebody else.
    fn interface(&self, at: &Attachment) -> Option<&Interface> {
        let name = self.cards.name(at)?;
        let is_taken = || {
            let mut holders = self.agreements.holders.iter();
            name == self.agreements.link.interface
                || holders.any(|each| each.at.interface() == Some(name))
        };
        if matches!(at, Attachment::Card { .. }) && is_taken() {
            return None;
        }
        self.interfaces.get(name)
    }

    /// The place of the holder that an interface belongs to.
    fn holder(&self, name: &str) -> Option<usize> {
        let mut holders = self.agreements.holders.iter();
        holders.position(|each| self.cards.name(&each.at) == Some(name))
    }

    /// The snapshot that status and metrics read.
    pub fn shared(&self) -> Shared {
        self.shared.clone()
    }

    /// Enforces the agreements in place of `before`.
    fn configure(&mut self, before: Option<&Agreements>) -> io::Result<()> {
        let agreements = &self.agreements;
        let places: HashMap<&Attachment, usize> = before
            .iter()
            .flat_map(|before| before.holders.iter().enumerate())
            .map(|(at, holder)| (&holder.at, at))
            .collect();
        let kept = agreements
            .holders
            .iter()
            .map(|each| places.get(&each.at).copied());
        let kept: Vec<Option<usize>> = kept.collect();
        let attached = agreements
            .holders
            .iter()
            .map(|each| self.interface(&each.at).cloned());
        let attached: Vec<Option<Interface>> = attached.collect();
        let others_before = before.map(|before| before.holders.len());
        let mut snapshot = self.shared.write();
        let old = std::mem::take(&mut snapshot.holders);
        for direction in &mut self.directions {
            let is_inwards = direction.name == "receive";
            let is_tree = direction.shaper.shapers() == Shapers::Tree;
            let agreement = |at: usize| {
                let holder = &agreements.holders[at];
                if is_inwards {
                    holder.receive
                } else {
                    holder.agreement
                }
            };
            let mut own: Vec<Agreement> = (0..kept.len()).map(agreement).collect();
            let mut kept = kept.clone();
            let mut link_bit_s = agreements.link.rate_bit_s;
            if is_inwards {
                link_bit_s = agreements.link.receive_bit_s.unwrap_or(link_bit_s);
            } else if is_tree {
                own.push(agreements.others());
                kept.push(others_before);
            } else {
                link_bit_s -= agreements.link.reserve_bit_s;
            }
            direction.configure(agreements, link_bit_s, &own, &kept)?;
            for interface in self.interfaces.values() {
                if let Some(lower) = interface.stacked_on() {
                    direction.shaper.stack(interface.index, Some(lower))?;
                }
            }
            for (at, holder) in agreements.holders.iter().enumerate() {
                let interface = attached[at].as_ref().map(|interface| interface.index);
                if let Err(error) = direction.shaper.bind(at, interface) {
                    error!(vm = holder.name, %error, "an interface cannot be shaped");
                }
            }
            let limits = direction.all_limits();
            direction.apply(&limits);
            direction.shaper.tidy()?;
            let first_state_before = direction.first_state;
            direction.first_state = snapshot.holders.len();
            for (at, own) in own.iter().enumerate() {
                let mut state = kept[at]
                    .and_then(|at| old.get(first_state_before + at).cloned())
                    .unwrap_or_default();
                let holder = agreements.holders.get(at);
                state.name = holder.map_or("others".into(), |holder| holder.name.clone());
                let attached = attached.get(at).and_then(Option::as_ref);
                state.interface = match (attached, holder) {
                    (Some(interface), _) => interface.name.clone(),
                    (None, Some(holder)) => holder.at.interface().unwrap_or("").into(),
                    (None, None) => String::new(),
                };
                state.direction = direction.name.into();
                state.is_present = holder.is_none() || attached.is_some();
                state.class = own.class;
                state.minimum_bit_s = own.minimum_bit_s;
                state.maximum_bit_s = own.maximum_bit_s;
                snapshot.holders.push(state);
            }
        }
        snapshot.link.clone_from(&agreements.link.interface);
        snapshot.link_bit_s = agreements.link.rate_bit_s;
        snapshot.period_ns = agreements.period_ns as u64;
        snapshot.shortcoming = self.shortcoming().map(String::from);
        Ok(())
    }

    /// Runs until it is told to stop (SIGTERM, SIGINT), then removes what it made.
    ///
    /// # Errors
    ///
    /// If the system fails it; what it made stays then, so that the agreements hold.
    pub fn run(mut self) -> Result<(), DaemonError> {
        let watch = watch(&self.path).map_err(system("watch the agreements file"))?;
        self.ask_for_cards()?;

        let mut last = Instant::now();
        let mut due = last + self.period();
        loop {
            let now = Instant::now();
            if now >= due {
                let elapsed = now - last;
                last = now;
                self.step(elapsed)?;
                let missed = (Instant::now() - due).as_nanos() / self.period().as_nanos();
                due += self.period() * (missed as u32 + 1);
                self.note(now.elapsed(), missed as u64);
                continue;
            }
            let fds = [
                self.links.fd(),
                self.signals.as_fd(),
                watch.as_fd(),
                self.changes.fd(),
                self.cards.fd(),
            ];
            let mut fds = fds.map(|fd| PollFd::new(fd, PollFlags::POLLIN));
            let wait = TimeSpec::from_duration(due - now);
            match ppoll(&mut fds, Some(wait), None) {
                Ok(0) | Err(nix::errno::Errno::EINTR) => continue,
                Ok(_) => {}
                Err(error) => return Err(system("wait")(error)),
            }
            let [has_news, has_signal, has_changed, is_disturbed, has_answers] =
                fds.map(|fd| fd.any().unwrap_or(false));
            if has_news {
                self.take_news()?;
            }
            // An answer of libvirt's is about interfaces that the kernel has told of before.
            if has_answers {
                self.take_answers()?;
            }
            if is_disturbed {
                self.take_changes()?;
            }
            if has_signal {
                while let Ok(Some(signal)) = self.signals.read_signal() {
                    if signal.ssi_signo == Signal::SIGHUP as u32 {
                        self.reload()?;
                    } else {
                        info!("stopping");
                        return self.stop();
                    }
                }
            }
            if has_changed && is_about(&watch, &self.path) {
                self.reload()?;
            }
        }
    }

    fn period(&self) -> Duration {
        Duration::from_nanos(self.agreements.period_ns as u64)
    }

    /// Handles changes of traffic control that other programs made.
    fn take_changes(&mut self) -> Result<(), DaemonError> {
        let directions = &mut self.directions;
        let are_all = self.changes.news(|change| {
            for direction in &mut *directions {
                direction.is_disturbed |= direction.shaper.is_disturbed_by(Some(&change));
            }
        });
        if !are_all.map_err(system("hear of traffic control"))? {
            for direction in directions {
                direction.is_disturbed |= direction.shaper.is_disturbed_by(None);
            }
        }
        Ok(())
    }

    /// Restores what another program has removed or changed.
    fn restore(&mut self) {
        const WARN_EVERY: Duration = Duration::from_secs(1);
        if !self
            .interfaces
            .contains_key(&self.agreements.link.interface)
        {
            return;
        }
        let may_warn = self.warned.is_none_or(|at| at.elapsed() >= WARN_EVERY);
        for direction in self.directions.iter_mut().filter(|each| each.is_disturbed) {
            let limits = direction.all_limits();
            let restored = direction.shaper.restore(&self.agreements, &limits);
            direction.is_disturbed = restored.is_err();
            let mut snapshot = self.shared.write();
            snapshot.restored += u64::from(restored.is_ok());
            if may_warn {
                self.warned = Some(Instant::now());
                let (name, times) = (direction.name, snapshot.restored);
                match restored {
                    Ok(()) => warn!(
                        direction = name,
                        times,
                        "another program removed or changed the shaping, which is in force again"
                    ),
                    Err(error) => error!(
                        direction = name,
                        %error, "another program removed or changed the shaping, which cannot be restored"
                    ),
                }
            }
        }
    }

    fn shortcoming(&self) -> Option<&'static str> {
        let mut shapers = self.directions.iter().map(|direction| &direction.shaper);
        shapers.find_map(|shaper| shaper.shortcoming())
    }

    fn step(&mut self, elapsed: Duration) -> Result<(), DaemonError> {
        if self.directions.iter().any(|each| each.is_disturbed) {
            self.restore();
        }
        let elapsed_ns = elapsed.as_nanos() as u64;
        let mut snapshot = self.shared.write();
        for direction in &mut self.directions {
            let states = &mut snapshot.holders[direction.first_state..];
            direction
                .step(elapsed_ns, states)
                .map_err(system("read the counters"))?;
        }
        Ok(())
    }

    fn note(&mut self, took: Duration, missed: u64) {
        let mut snapshot = self.shared.write();
        let snapshot: &mut Snapshot = &mut snapshot;
        snapshot.loop_ns = took.as_nanos() as u64;
        snapshot.loop_ns_max = snapshot.loop_ns_max.max(snapshot.loop_ns);
        snapshot.periods += 1;
        snapshot.periods_missed += missed;
    }

    /// Handles interfaces that have come and gone.
    fn take_news(&mut self) -> Result<(), DaemonError> {
        match self.links.news().map_err(system("hear of interfaces"))? {
            Some(events) => {
                for event in events {
                    match event {
                        LinkEvent::Is(interface) => self.is_there(interface),
                        LinkEvent::Gone(index) => self.is_gone(index),
                    }
                }
            }
            None => {
                let all = self.links.all().map_err(system("list the interfaces"))?;
                let known: Vec<u32> = self.interfaces.values().map(|each| each.index).collect();
                for index in known {
                    if !all.values().any(|each| each.index == index) {
                        self.is_gone(index);
                    }
                }
                for interface in all.into_values() {
                    self.is_there(interface);
                }
            }
        }
        if std::mem::take(&mut self.has_other_interfaces) {
            self.ask_for_cards()?;
        }
        Ok(())
    }

    /// Asks libvirt for the interfaces of domains that have none.
    fn ask_for_cards(&mut self) -> Result<(), DaemonError> {
        let holders = self.agreements.holders.iter();
        let missing = holders.filter(|each| self.interface(&each.at).is_none());
        let domains = missing.filter_map(|each| match &each.at {
            Attachment::Card { domain, .. } => Some(domain.clone()),
            Attachment::Interface(_) => None,
        });
        let domains = domains.collect();
        self.cards.ask(domains).map_err(system("ask libvirt"))
    }

    /// Handles what libvirt has told of the interfaces of domains.
    fn take_answers(&mut self) -> Result<(), DaemonError> {
        let holders = self.agreements.holders.iter();
        let before = holders.map(|each| self.cards.name(&each.at).map(String::from));
        let before: Vec<Option<String>> = before.collect();
        let interfaces = &self.interfaces;
        let (is_new, complaints) = self.cards.hear(|name| interfaces.contains_key(name));
        for (domain, why) in complaints {
            warn!(domain, why, "the interfaces of a domain are not known");
        }
        if !is_new {
            return Ok(());
        }
        for (at, before) in before.into_iter().enumerate() {
            let holder = &self.agreements.holders[at];
            let now = self.cards.name(&holder.at);
            if now.map(String::from) == before {
                continue;
            }
            if let Some(interface) = now.filter(|now| self.interfaces.contains_key(*now))
                && self.interface(&holder.at).is_none()
            {
                error!(
                    vm = holder.name,
                    interface, "a domain has an interface that the file has for something else"
                );
            }
            self.attach(at);
        }
        self.ask_for_cards()
    }

    /// Holds whoever is at the interface of a holder to the agreement, if it is there and can be.
    fn attach(&mut self, at: usize) {
        let Some(interface) = self.interface(&self.agreements.holders[at].at).cloned() else {
            let first = self.directions[0].first_state;
            let was_there = self.shared.read().holders[first + at].is_present;
            if was_there {
                self.bind(at, None);
            }
            return;
        };
        let link = self.interfaces.get(&self.agreements.link.interface);
        match link.and_then(|link| interface.obstacle(link)) {
            Some((reason, _)) if self.agreements.link.backend == Backend::Linux => {
                error!(
                    interface = interface.name,
                    reason, "an interface cannot be shaped"
                );
            }
            _ => self.bind(at, Some(&interface)),
        }
    }

    fn is_there(&mut self, interface: Interface) {
        let known = self.interfaces.get_mut(&interface.name);
        if let Some(known) = known.filter(|known| known.index == interface.index) {
            known.controller = interface.controller;
            self.look(&interface.name);
            return;
        }
        // The interface may have had another name before.
        self.is_gone(interface.index);
        if let Some(lower) = interface.stacked_on() {
            self.stack(interface.index, Some(lower));
        }
        self.has_other_interfaces = true;
        let name = interface.name.clone();
        self.interfaces.insert(name.clone(), interface);
        if name == self.agreements.link.interface {
            self.warn_of_the_link();
        } else if let Some(at) = self.holder(&name) {
            self.attach(at);
        }
    }

    /// Looks anew at the interface of a holder.
    fn look(&mut self, name: &str) {
        let Some(at) = self.holder(name) else {
            return;
        };
        for direction in &mut self.directions {
            if let Err(error) = direction.shaper.look(at) {
                error!(interface = name, %error, "an interface cannot be inspected");
            }
        }
    }

    fn is_gone(&mut self, index: u32) {
        let gone = self.interfaces.values().find(|each| each.index == index);
        if let Some(gone) = gone.cloned() {
            self.has_other_interfaces = true;
            self.interfaces.remove(&gone.name);
            if gone.name == self.agreements.link.interface {
                self.warn_of_the_link();
            } else if let Some(at) = self.holder(&gone.name) {
                self.bind(at, None);
            }
            self.cards.forget(&gone.name);
            if gone.stacked_on().is_some() {
                self.stack(index, None);
            }
        }
    }

    /// Lets packets that enter by an interface of a VLAN, say, belong to whoever has the one below.
    fn stack(&mut self, interface: u32, lower: Option<u32>) {
        for direction in &mut self.directions {
            if let Err(error) = direction.shaper.stack(interface, lower) {
                error!(interface, %error, "packets of an interface cannot be assigned");
            }
        }
    }

    fn warn_of_the_link(&self) {
        // The tree is deleted together with its interface.
        error!(
            interface = self.agreements.link.interface,
            "the link itself appeared or disappeared; restart the daemon"
        );
    }

    fn bind(&mut self, at: usize, interface: Option<&Interface>) {
        let holder = &self.agreements.holders[at];
        let vm = &holder.name;
        let name = interface.map(|interface| interface.name.as_str());
        let name = name.or(self.cards.name(&holder.at)).unwrap_or("");
        info!(
            vm,
            interface = name,
            is_there = interface.is_some(),
            "an interface"
        );
        let mut snapshot = self.shared.write();
        for direction in &mut self.directions {
            let index = interface.map(|interface| interface.index);
            if let Err(error) = direction.shaper.bind(at, index) {
                error!(vm, %error, "an interface cannot be shaped");
            }
            let limits = direction.limits(std::iter::once(at));
            direction.apply(&limits);
            let state = &mut snapshot.holders[direction.first_state + at];
            state.interface = name.into();
            state.is_present = interface.is_some();
        }
    }

    /// Reads the file again; a refused file leaves the agreements as they are.
    ///
    /// # Errors
    ///
    /// If good agreements cannot be put into force: then it is better to begin anew.
    fn reload(&mut self) -> Result<(), DaemonError> {
        // Domains that are not known yet are asked for later: the link does not wait for libvirt.
        let reloaded = match read(&self.path, &self.interfaces, None) {
            Ok(agreements) if agreements == self.agreements => return Ok(()),
            Ok(agreements) => {
                let (old, new) = (&self.agreements.link, &agreements.link);
                if (old.backend, &old.interface, old.receive_bit_s.is_some())
                    == (new.backend, &new.interface, new.receive_bit_s.is_some())
                {
                    Ok(agreements)
                } else {
                    Err(
                        "restart the daemon to change the link, the backend or the direction"
                            .to_string(),
                    )
                }
            }
            Err(error) => Err(error.to_string()),
        };
        let agreements = match reloaded {
            Ok(agreements) => agreements,
            Err(reason) => {
                error!("the new agreements are refused, and the old ones stay in force: {reason}");
                let mut snapshot = self.shared.write();
                snapshot.reloads_refused += 1;
                return Ok(());
            }
        };
        for warning in &agreements.warnings {
            warn!("{warning}");
        }
        let before = std::mem::replace(&mut self.agreements, agreements);
        self.configure(Some(&before))
            .map_err(system("set the new agreements"))?;
        self.ask_for_cards()?;
        info!(holders = self.agreements.holders.len(), "new agreements");
        let mut snapshot = self.shared.write();
        snapshot.reloads += 1;
        Ok(())
    }

    fn stop(mut self) -> Result<(), DaemonError> {
        let mut stopped = Ok(());
        for direction in &mut self.directions {
            let closed = direction.shaper.close();
            stopped = stopped.and(closed.map_err(system("remove what was made")));
        }
        stopped
    }
}

/// The signals for stop and reload as a file descriptor to poll; threads started from now on do not
/// receive them.
fn signals() -> nix::Result<SignalFd> {
    let mut signals = SigSet::empty();
    for signal in [Signal::SIGTERM, Signal::SIGINT, Signal::SIGHUP] {
        signals.add(signal);
    }
    signals.thread_block()?;
    SignalFd::with_flags(&signals, SfdFlags::SFD_NONBLOCK | SfdFlags::SFD_CLOEXEC)
}

/// Watches the directory of a file: editors replace files rather than write to them.
fn watch(path: &Path) -> nix::Result<Inotify> {
    let watch = Inotify::init(InitFlags::IN_NONBLOCK | InitFlags::IN_CLOEXEC)?;
    let directory = path
        .parent()
        .filter(|directory| !directory.as_os_str().is_empty());
    let events = AddWatchFlags::IN_CLOSE_WRITE | AddWatchFlags::IN_MOVED_TO;
    watch.add_watch(directory.unwrap_or(Path::new(".")), events)?;
    Ok(watch)
}

/// Reads all pending events of the directory. Returns whether one concerns the file.
fn is_about(watch: &Inotify, path: &Path) -> bool {
    let mut found = false;
    while let Ok(events) = watch.read_events() {
        // An overflow event has no name, and may concern the file.
        found |= events
            .iter()
            .any(|event| event.name.is_none() || event.name.as_deref() == path.file_name());
    }
    found
}
