//! The workload of each domain of a trace.

use crate::busy::{Seen, seen};
use crate::costs::{Costs, costs};
use crate::instants::align;
use crate::kernel::Kernel;
use crate::recognize::{Recognized, recognize};
use laxity_trace::{Metadata, Record};
use schemars::JsonSchema;
use serde::Serialize;

/// A VCPU that works for more than this part of the time between its first and last sign of life and never sleeps is
/// taken to be one that wants all there is.
const SLEEPLESS_BUSY: usize = 1;

/// What a VCPU does.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum Load {
    /// It never ran.
    Nothing,
    /// It never slept: it takes what it gets.
    Endless,
    /// Periodic tasks.
    Tasks(Recognized),
    /// It works and sleeps without a period that could be found.
    Bursts {
        /// The mean work of a busy period, ns.
        run_ns: i64,
        /// The mean time from one busy period to the next, ns.
        idle_ns: i64,
    },
}

/// What is known of a VCPU.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct Vcpu {
    /// What it does.
    pub load: Load,
    /// The time that it ran, decisions not counted.
    pub work_ns: i64,
    /// The CPUs on which it ran.
    pub cpus: Vec<u16>,
}

impl Vcpu {
    fn recognized(&mut self) -> Option<&mut Recognized> {
        match &mut self.load {
            Load::Tasks(found) => Some(found),
            _ => None,
        }
    }
}

/// What is known of a domain.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct Domain {
    /// Its name in the trace.
    pub name: String,
    /// By their numbers.
    pub vcpus: Vec<Vcpu>,
}

/// What a trace tells of a host.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct Observation {
    /// How long the trace is.
    pub duration_ns: i64,
    /// What decisions cost.
    pub costs: Costs,
    /// In the order of the trace.
    pub domains: Vec<Domain>,
}

/// Finds out what the domains of a trace do, but for programs that ran beside a host's. The tasks of `metadata` and the
/// records of jobs are not looked at. `kernel` is what is known of the guests' kernels.
pub fn observe(metadata: &Metadata, records: &[Record], kernel: &Kernel) -> Observation {
    let vcpus = seen(metadata, records);
    let mut domains: Vec<Domain> = (metadata.domains.iter().zip(vcpus))
        .filter(|(domain, _)| !domain.is_beside())
        .map(|(domain, vcpus)| Domain {
            name: domain.name.clone(),
            vcpus: vcpus
                .into_iter()
                .map(|seen| vcpu(seen, metadata.duration_ns, kernel))
                .collect(),
        })
        .collect();
    align(
        (domains.iter_mut().flat_map(|domain| &mut domain.vcpus))
            .filter_map(Vcpu::recognized)
            .flat_map(|found| &mut found.tasks)
            .collect(),
    );
    Observation {
        duration_ns: metadata.duration_ns,
        costs: costs(records),
        domains,
    }
}

fn vcpu(seen: Seen, end_ns: i64, kernel: &Kernel) -> Vcpu {
    let work_ns = seen.work_ns();
    let tick_offset_ns = kernel.tick_offset_ns(&seen.busy);
    let of_jobs = kernel.without(&seen, tick_offset_ns);
    let load = if work_ns == 0 {
        Load::Nothing
    } else if seen.busy.len() <= SLEEPLESS_BUSY
        && seen.busy.iter().all(|busy| busy.end_ns >= end_ns)
    {
        Load::Endless
    } else if let Some(found) = recognize(&of_jobs, end_ns, kernel.least_ns()) {
        Load::Tasks(kernel.apart(found, tick_offset_ns))
    } else {
        let count = seen.busy.len().max(1) as i64;
        let slept_ns = end_ns
            - seen
                .busy
                .iter()
                .map(|busy| busy.end_ns - busy.start_ns)
                .sum::<i64>();
        Load::Bursts {
            run_ns: (work_ns / count).max(1),
            idle_ns: (slept_ns / count).max(1),
        }
    };
    Vcpu {
        load,
        work_ns,
        cpus: seen.cpus,
    }
}
