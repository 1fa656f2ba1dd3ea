//! The VCPUs of a host file, numbered through.

use crate::error::ReplayError;
use laxity_trace::Metadata;
use std::ops::Range;

/// The VCPUs of a host file: each has a place among all of them, in the order of the file.
pub struct Vcpus {
    /// By domain, the place of its first VCPU, and then the number of all.
    first: Vec<u32>,
    /// Domain and VCPU of each.
    names: Vec<(u16, u16)>,
}

impl Vcpus {
    /// The VCPUs of a run.
    ///
    /// # Errors
    ///
    /// The metadata is not valid, or the run is too long to be counted in ns.
    pub fn new(metadata: &Metadata) -> Result<Vcpus, ReplayError> {
        let sizes = (metadata.sizes())
            .map_err(|reason| ReplayError::Run(format!("the metadata is not valid: {reason}")))?;
        let Metadata {
            duration_ns, cpus, ..
        } = *metadata;
        if duration_ns > i64::MAX / i64::from(cpus) {
            return Err(ReplayError::Run(format!(
                "a run of {duration_ns} ns on {cpus} CPUs is too long"
            )));
        }
        let (mut first, mut names) = (vec![0], Vec::new());
        for (domain, &(vcpus, _)) in sizes.iter().enumerate() {
            names.extend((0..vcpus).map(|vcpu| (domain as u16, vcpu)));
            first.push(names.len() as u32);
        }
        Ok(Vcpus { first, names })
    }

    /// The number of domains.
    pub fn domains(&self) -> usize {
        self.first.len() - 1
    }

    /// The number of VCPUs of all domains.
    pub fn count(&self) -> usize {
        self.names.len()
    }

    /// The places of a domain's VCPUs.
    pub fn of_domain(&self, domain: usize) -> Range<u32> {
        self.first[domain]..self.first[domain + 1]
    }

    /// The domain and the number in it of the VCPU at a place.
    pub fn name(&self, place: u32) -> (u16, u16) {
        self.names[place as usize]
    }
}
