//! The VCPUs that Xen's numbers of domains and VCPUs name.

use crate::error::XenError;
use crate::run::XenRun;
use laxity_trace::Metadata;
use std::collections::HashMap;

/// From here on, domain numbers have meanings of their own: `DOMID_FIRST_RESERVED`.
const DOMID_FIRST_RESERVED: u16 = 0x7FF0;
const DOMID_IDLE: u16 = 0x7FFF;

/// The VCPU that runs on a CPU.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Who {
    Idle,
    /// A VCPU that is not of the host file.
    Foreign,
    /// By its place among all VCPUs of the host file.
    Vcpu(u32),
}

/// The VCPUs of the host file.
pub struct Names {
    /// By Xen's number: the first VCPU among all, and how many it has.
    pub domains: HashMap<u16, (u32, u16)>,
    /// The same first VCPUs, by place in the host file.
    pub first: Vec<u32>,
    /// Domain and VCPU of each.
    pub vcpus: Vec<(u16, u16)>,
}

impl Names {
    pub fn new(run: &XenRun) -> Result<Names, XenError> {
        let sizes = (run.metadata.sizes())
            .map_err(|reason| XenError::Run(format!("the metadata is not valid: {reason}")))?;
        let Metadata {
            duration_ns, cpus, ..
        } = *run.metadata;
        if duration_ns > i64::MAX / i64::from(cpus) {
            return Err(XenError::Run(format!(
                "a run of {duration_ns} ns on {cpus} CPUs is too long"
            )));
        }
        if sizes.len() != run.domids.len() {
            let (domains, numbers) = (sizes.len(), run.domids.len());
            return Err(XenError::Run(format!(
                "{domains} domains, and {numbers} numbers that Xen gave them"
            )));
        }
        let mut names = Names {
            domains: HashMap::new(),
            first: Vec::new(),
            vcpus: Vec::new(),
        };
        for (domain, (&(vcpus, _), &domid)) in sizes.iter().zip(run.domids).enumerate() {
            let name = &run.metadata.domains[domain].name;
            if domid >= DOMID_FIRST_RESERVED {
                return Err(XenError::Run(format!(
                    "domain {name} cannot have Xen's number {domid}: they are below {DOMID_FIRST_RESERVED}"
                )));
            }
            let domain = domain as u16;
            let first = names.vcpus.len() as u32;
            if names.domains.insert(domid, (first, vcpus)).is_some() {
                return Err(XenError::Run(format!(
                    "domain {name} has Xen's number {domid}, as another one has"
                )));
            }
            names.first.push(first);
            names.vcpus.extend((0..vcpus).map(|vcpu| (domain, vcpu)));
        }
        Ok(names)
    }

    pub fn who(&self, domid: u32, vcpu: u32) -> Result<Who, String> {
        let domid = u16::try_from(domid).map_err(|_| format!("domain {domid} cannot be"))?;
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
