//! Fleet files: the hosts that a placement of guests makes of them.

use crate::border::{host_error, json, refused};
use crate::interrupts::interruptible;
use laxity_config::{FileError, kinds};
use laxity_design::Request;
use laxity_host::Fleet;
use pyo3::prelude::*;
use rayon::prelude::*;
use std::sync::Arc;

/// A host with guests: its number, theirs, and overrides of the host file.
type Asked = (usize, Vec<usize>, Vec<String>);

/// The policy, the part of all CPUs' time that is reserved, and the values, each a path and TOML.
type Found = (String, f64, Vec<(String, String)>);

/// A fleet file with overrides.
#[pyclass(frozen, module = "laxity._core")]
pub struct FleetFile {
    fleet: Arc<Fleet>,
}

#[pymethods]
impl FleetFile {
    #[new]
    fn new(text: &[u8], name: &str, overrides: Vec<String>) -> PyResult<FleetFile> {
        let fleet = Fleet::load(text, name, &overrides).map_err(|error| host_error(&error))?;
        Ok(FleetFile {
            fleet: Arc::new(fleet),
        })
    }

    /// The hosts, the guests, and what may not share a host, as JSON; hosts and guests go by their numbers.
    fn fleet(&self) -> PyResult<String> {
        json(&*self.fleet)
    }

    /// Refuses hosts, and guests without calls, that no analysis covers.
    fn refuse(&self, hosts: Vec<usize>) -> PyResult<()> {
        let nothing: &[String] = &[];
        for host in hosts {
            let guests = 0..self.fleet.guests.len();
            let guests = guests.filter(|&guest| self.fleet.guests[guest].streams == 0);
            let with_one = guests.map(|guest| self.fleet.host(host, &[guest]));
            for document in std::iter::once(self.fleet.host_of_any(host)).chain(with_one) {
                // A guest's file may be wrong on hosts that may not have it.
                let Ok((of_host, open)) = document.open(nothing) else {
                    continue;
                };
                if let Some(refusal) = laxity_design::refusal_of_fleet(&of_host, &open) {
                    return Err(host_error(&refused(&document, nothing, &refusal)));
                }
            }
        }
        Ok(())
    }

    /// For each of these hosts, the least part of a CPU that each guest needs there by itself; `None` where no budget
    /// is enough, or its file is wrong there. Raises HostError if no analysis knows what a guest needs.
    fn shares(&self, py: Python<'_>, hosts: Vec<usize>) -> PyResult<Vec<Vec<Option<f64>>>> {
        let fleet = Arc::clone(&self.fleet);
        let shares: Result<Vec<Vec<Option<f64>>>, FileError> = interruptible(py, move || {
            let share = |host: usize, guest: usize| {
                let document = fleet.host(host, &[guest]);
                let Ok((host, open)) = document.open(&[""; 0]) else {
                    return Ok(None);
                };
                if let Some(refusal) = laxity_design::refusal(&host, &open) {
                    return Err(refused(&document, &[], &refusal));
                }
                let shares = laxity_design::least_shares(&host, &open, Request::default());
                Ok(shares[0])
            };
            let of_host = |&host: &usize| {
                let guests = (0..fleet.guests.len()).into_par_iter();
                let shares: Vec<_> = guests.map(|guest| share(host, guest)).collect();
                // The first refusal, whichever thread was first.
                shares.into_iter().collect()
            };
            hosts.iter().map(of_host).collect()
        })?;
        shares.map_err(|error| host_error(&error))
    }

    /// Values for what each of these hosts leaves open, with which every deadline is guaranteed, on all CPUs; `None`
    /// where none were found.
    fn values(&self, py: Python<'_>, of: Vec<Asked>) -> PyResult<Vec<Option<Found>>> {
        let fleet = Arc::clone(&self.fleet);
        let all: Result<Vec<Option<Found>>, FileError> = interruptible(py, move || {
            let found = |(host, guests, overrides): &Asked| {
                let document = fleet.host(*host, guests);
                let (host, open) = document.open(overrides)?;
                let values = laxity_design::values_of(&host, &open);
                let values = values.map_err(|refusal| refused(&document, overrides, &refusal))?;
                Ok(values.map(|found| (found.policy, found.cpu_share, found.values)))
            };
            let all: Vec<_> = of.par_iter().map(found).collect();
            all.into_iter().collect()
        })?;
        all.map_err(|error| host_error(&error))
    }

    /// The host file of a host with these guests, one of which has its calls, as text.
    fn host_with_calls(&self, host: usize, guests: Vec<usize>, caller: usize) -> String {
        self.fleet.host_with_calls(host, &guests, caller).to_toml()
    }

    /// The host file of a host with these guests, as text.
    fn host(&self, host: usize, guests: Vec<usize>) -> String {
        self.fleet.host(host, &guests).to_toml()
    }
}

/// Whether the text of a file is that of a fleet: it has guests or several hosts.
#[pyfunction]
pub fn is_fleet(text: &[u8]) -> bool {
    let document = laxity_config::Document::parse(text, "", &kinds::FLEET);
    document.is_ok_and(|file| file.gives("guest") || file.gives_list("host"))
}

/// The JSON Schema of fleet files.
#[pyfunction]
pub fn fleet_schema() -> String {
    laxity_host::fleet_schema()
}
