//! Limits on Xen's network backends through the `rate` key of each in xenstore.
//!
//! A backend that is out of credit leaves requests in the ring, so that the guest's own queue fills and the guest
//! drops, before anything is copied. It watches its key and follows at once. Three properties matter: every queue of a
//! backend gets the whole rate, intervals are rounded to the kernel's ticks, and up to 128 KiB go out at once after a
//! pause.

mod store;

use std::collections::HashMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Instant;

pub use store::Store;

use crate::Agreements;
use crate::agreements::Attachment;
use crate::control::{Limits, Shapers};
use crate::linux::{Links, Traffic};
use crate::shaper::{Change, Counters, Shaper, take_over};

/// Interval in which a backend gets credit: whole ticks at 250 Hz and at 100 Hz.
const INTERVAL_US: u64 = 20_000;
/// Least credit of an interval that lets a packet pass.
const CREDIT_BYTES_MIN: u64 = 1_518;
/// A holder that sends all but this part of its limit counts as held back, because the ring does
/// not show how much waits in it.
const NEAR_PARTS: u64 = 16;
/// Key beside the rate with the rate's earlier value, or nothing if it had none. The key exists
/// while the rate is ours.
const BEFORE: &str = "laxity-rate-before";

/// The kernel's directories of interfaces.
pub const INTERFACES: &str = "/sys/class/net";

/// The backends of all holders.
pub struct Xen {
    store: Store,
    interfaces: PathBuf,
    links: Links,
    places: Vec<Place>,
    traffic: HashMap<u32, Traffic>,
    read_at: Instant,
}

struct Place {
    /// What the holder is recognized by after a change of agreements.
    at: Attachment,
    bound: Option<Backend>,
}

/// An interface's name: agreements of Xen know no other attachment.
fn name(at: &Attachment) -> &str {
    at.interface().unwrap_or_default()
}

struct Backend {
    index: u32,
    /// Path relative to the driver domain's own home.
    path: String,
    queues: u64,
    /// Limit that the key sets now.
    limit_bit_s: Option<u64>,
    counters: Counters,
}

impl Xen {
    /// Backends of the interfaces in this thread's network namespace, through a connection to
    /// xenstore. `interfaces` is [`INTERFACES`].
    ///
    /// # Errors
    ///
    /// The system's.
    pub fn new(store: Store, interfaces: &Path) -> io::Result<Xen> {
        Ok(Xen {
            store,
            interfaces: interfaces.into(),
            links: Links::open()?,
            places: Vec::new(),
            traffic: HashMap::new(),
            read_at: Instant::now(),
        })
    }
}

/// The backend's path of an interface: "vif3.0" is device 0 of domain 3.
fn path_of(interface: &str) -> Option<String> {
    let (domain, device) = interface.strip_prefix("vif")?.split_once('.')?;
    let domain: u16 = domain.parse().ok()?;
    let device: u16 = device.parse().ok()?;
    Some(format!("backend/vif/{domain}/{device}"))
}

/// Number of queues of a backend, as the kernel counts them once the guest is connected. The number
/// that the guest itself states in xenstore may be another one, and may change.
fn queues_of(interfaces: &Path, interface: &str) -> io::Result<u64> {
    let mut queues = 0;
    for queue in fs::read_dir(interfaces.join(interface).join("queues"))? {
        queues += u64::from(queue?.file_name().as_encoded_bytes().starts_with(b"tx-"));
    }
    Ok(queues.max(1))
}

impl Backend {
    fn open(interfaces: &Path, interface: &str, index: u32) -> io::Result<Backend> {
        let path = path_of(interface).ok_or_else(|| {
            let message =
                format!("`{interface}` is not the interface of a Xen backend, such as vif3.0");
            io::Error::new(io::ErrorKind::InvalidInput, message)
        })?;
        Ok(Backend {
            index,
            path,
            queues: queues_of(interfaces, interface)?,
            limit_bit_s: None,
            counters: Counters::default(),
        })
    }

    fn set(&mut self, store: &mut Store, bit_s: u64) -> io::Result<()> {
        let (key, before) = (
            format!("{}/rate", self.path),
            format!("{}/{BEFORE}", self.path),
        );
        if self.limit_bit_s.is_none() && store.read(&before)?.is_none() {
            let rate = store.read(&key)?.unwrap_or_default();
            store.write(&before, &rate)?;
        }
        let bytes = u128::from(bit_s) * u128::from(INTERVAL_US) / 8_000_000;
        let bytes = (bytes / u128::from(self.queues)).max(CREDIT_BYTES_MIN.into());
        store.write(&key, &format!("{bytes},{INTERVAL_US}"))?;
        self.limit_bit_s = Some(bit_s);
        Ok(())
    }

    /// Restores the earlier value of the key.
    fn restore(&self, store: &mut Store) -> io::Result<()> {
        let (key, before) = (
            format!("{}/rate", self.path),
            format!("{}/{BEFORE}", self.path),
        );
        match store.read(&before)? {
            None => return Ok(()),
            Some(rate) if rate.is_empty() => store.remove(&key)?,
            Some(rate) => store.write(&key, &rate)?,
        }
        store.remove(&before)
    }
}

impl Shaper for Xen {
    fn shapers(&self) -> Shapers {
        Shapers::Single
    }

    fn configure(&mut self, agreements: &Agreements) -> io::Result<()> {
        let before = std::mem::take(&mut self.places).into_iter();
        let bound = before.filter_map(|place| Some((place.at, place.bound?)));
        let (kept, ended) = take_over(bound, &agreements.holders);
        let places = agreements.holders.iter().zip(kept);
        let places = places.map(|(holder, bound)| Place {
            at: holder.at.clone(),
            bound,
        });
        self.places = places.collect();
        for ended in ended {
            ended.restore(&mut self.store)?;
        }
        Ok(())
    }

    fn tidy(&mut self) -> io::Result<()> {
        Ok(())
    }

    fn bind(&mut self, holder: usize, interface: Option<u32>) -> io::Result<()> {
        let place = &mut self.places[holder];
        let is_bound = |index| {
            place
                .bound
                .as_ref()
                .is_some_and(|bound| bound.index == index)
        };
        if interface.is_some_and(is_bound) {
            return Ok(());
        }
        // The keys of a backend disappear together with it.
        place.bound = None;
        if let Some(index) = interface {
            place.bound = Some(Backend::open(&self.interfaces, name(&place.at), index)?);
        }
        Ok(())
    }

    fn look(&mut self, holder: usize) -> io::Result<()> {
        let Place { at, bound } = &mut self.places[holder];
        if let Some(backend) = bound {
            let queues = queues_of(&self.interfaces, name(at))?;
            if std::mem::replace(&mut backend.queues, queues) != queues {
                // The rate of each queue is another one now.
                backend.limit_bit_s = None;
            }
        }
        Ok(())
    }

    fn apply(&mut self, limits: &[(usize, Limits)]) -> Vec<(usize, io::Error)> {
        /// Part by which a limit has to change before it is written, since every change costs work
        /// in all watchers.
        const PARTS: u64 = 64;
        let mut failed = Vec::new();
        for &(holder, limits) in limits {
            let Some(backend) = &mut self.places[holder].bound else {
                continue;
            };
            let wanted = limits.ceiling_bit_s;
            let is_near = |now: u64| now.abs_diff(wanted) <= now / PARTS;
            if backend.limit_bit_s.is_some_and(is_near) {
                continue;
            }
            if let Err(error) = backend.set(&mut self.store, wanted) {
                failed.push((holder, error));
            }
        }
        failed
    }

    fn read(&mut self, read: &mut Vec<usize>) -> io::Result<()> {
        read.clear();
        read.extend(0..self.places.len());
        self.links.traffic(&mut self.traffic)?;
        let elapsed_ns = self.read_at.elapsed().as_nanos();
        self.read_at = Instant::now();
        for backend in self
            .places
            .iter_mut()
            .filter_map(|place| place.bound.as_mut())
        {
            let now = self
                .traffic
                .get(&backend.index)
                .copied()
                .unwrap_or_default();
            let sent = now.received_bytes.saturating_sub(backend.counters.bytes);
            let limit = backend.limit_bit_s.unwrap_or(u64::MAX);
            let near = u128::from(limit - limit / NEAR_PARTS) * elapsed_ns / 8_000_000_000;
            backend.counters = Counters {
                bytes: now.received_bytes,
                packets: 0,
                drops: now.received_dropped as u32,
                overlimits: 0,
                backlog_bytes: u32::from(u128::from(sent) >= near),
            };
        }
        Ok(())
    }

    fn counters(&self, holder: usize) -> Counters {
        let bound = self.places[holder].bound.as_ref();
        bound.map(|backend| backend.counters).unwrap_or_default()
    }

    fn is_disturbed_by(&self, _: Option<&Change>) -> bool {
        false
    }

    fn ports(&self) -> Vec<u32> {
        Vec::new()
    }

    fn shortcoming(&self) -> Option<&'static str> {
        None
    }

    fn restore(&mut self, _: &Agreements, _: &[(usize, Limits)]) -> io::Result<()> {
        Ok(())
    }

    fn close(&mut self) -> io::Result<()> {
        let mut closed = Ok(());
        for backend in self.places.iter().filter_map(|place| place.bound.as_ref()) {
            let restored = backend.restore(&mut self.store);
            closed = closed.and(restored);
        }
        closed
    }
}
