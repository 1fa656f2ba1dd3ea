//! The VCPUs that Xen's numbers of domains and VCPUs name.

use crate::error::XenError;
use crate::run::XenRun;
use laxity_replay::{Vcpus, Who};
use std::collections::HashMap;

/// From here on, domain numbers have meanings of their own: `DOMID_FIRST_RESERVED`.
const DOMID_FIRST_RESERVED: u16 = 0x7FF0;
const DOMID_IDLE: u16 = 0x7FFF;

/// The VCPUs of the host file, by Xen's numbers.
pub struct Names {
    /// By Xen's number: the first VCPU among all, and how many it has.
    domains: HashMap<u16, (u32, u16)>,
    pub vcpus: Vcpus,
}

impl Names {
    pub fn new(run: &XenRun) -> Result<Names, XenError> {
        let vcpus = Vcpus::new(run.jobs.metadata)?;
        if vcpus.domains() != run.domids.len() {
            let (domains, numbers) = (vcpus.domains(), run.domids.len());
            return Err(XenError::Run(format!(
                "{domains} domains, but {numbers} numbers of Xen's domains"
            )));
        }
        let mut domains = HashMap::new();
        for (domain, &domid) in run.domids.iter().enumerate() {
            let name = &run.jobs.metadata.domains[domain].name;
            if domid >= DOMID_FIRST_RESERVED {
                return Err(XenError::Run(format!(
                    "domain {name} cannot have Xen's number {domid}: Xen's numbers are below {DOMID_FIRST_RESERVED}"
                )));
            }
            let range = vcpus.of_domain(domain);
            let (first, count) = (range.start, range.len() as u16);
            if domains.insert(domid, (first, count)).is_some() {
                return Err(XenError::Run(format!(
                    "domain {name} has the same Xen number as another domain, {domid}"
                )));
            }
        }
        Ok(Names { domains, vcpus })
    }

    pub fn who(&self, domid: u32, vcpu: u32) -> Result<Who, String> {
        let domid =
            u16::try_from(domid).map_err(|_| format!("no domain can have the number {domid}"))?;
        match self.domains.get(&domid) {
            None if domid == DOMID_IDLE => Ok(Who::Idle),
            None => Ok(Who::Foreign),
            Some(&(first, vcpus)) if vcpu < vcpus.into() => Ok(Who::Vcpu(first + vcpu)),
            Some((_, vcpus)) => Err(format!(
                "domain {domid} has VCPU {vcpu}, and {vcpus} in the host file"
            )),
        }
    }

    /// The VCPU that a word with both numbers names.
    pub fn packed(&self, word: u32) -> Result<Who, String> {
        self.who(word >> 16, word & 0xFFFF)
    }
}
