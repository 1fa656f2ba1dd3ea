//! Groups of domains that share CPUs, and the part of the CPUs that their budgets reserve.

use std::collections::HashMap;

use laxity_analysis::share_of;
use laxity_host::{Domain, Host, Open, OpenDomain};

/// Domains that affect one another, with the rest of their host.
#[derive(Debug, Clone)]
pub(crate) struct Group {
    /// The host with the domains of the group alone.
    pub host: Host,
    /// The open values of each domain of the group.
    pub open: Vec<OpenDomain>,
    /// The number of each in the whole host.
    pub numbers: Vec<usize>,
    /// The factor by which each cost may be greater, where the aim is room.
    pub room_factor: Option<f64>,
}

impl Group {
    /// All groups of a host: VCPUs that compete for a CPU are in one group, and so are VCPUs of one domain.
    pub fn all(host: &Host, open: &Open) -> Vec<Group> {
        let mut group_of_cpu: Vec<usize> = (0..host.cpus as usize).collect();
        for domain in &host.domains {
            let group = group_of_cpu[domain.vcpus[0].cpu as usize];
            for cpu in domain.vcpus.iter().flat_map(|vcpu| share_of(host, vcpu)) {
                let joined = group_of_cpu[cpu as usize];
                for other in &mut group_of_cpu {
                    if *other == joined {
                        *other = group;
                    }
                }
            }
        }
        let mut members: Vec<Vec<usize>> = vec![Vec::new(); host.cpus as usize];
        for (number, domain) in host.domains.iter().enumerate() {
            members[group_of_cpu[domain.vcpus[0].cpu as usize]].push(number);
        }
        members
            .into_iter()
            .filter(|numbers| !numbers.is_empty())
            .map(|numbers| Group::of_domains(host, open, numbers))
            .collect()
    }

    /// The group of these domains. CPUs are numbered anew: analysis looks at each CPU of a host.
    pub fn of_domains(host: &Host, open: &Open, numbers: Vec<usize>) -> Group {
        let mut domains: Vec<Domain> = (numbers.iter())
            .map(|&number| host.domains[number].clone())
            .collect();
        let mut cpus: Vec<u32> = (domains.iter())
            .flat_map(|domain| domain.vcpus.iter().flat_map(|vcpu| share_of(host, vcpu)))
            .collect();
        cpus.sort_unstable();
        cpus.dedup();
        let anew = |of: u32| cpus.partition_point(|&cpu| cpu < of) as u32;
        for vcpu in domains.iter_mut().flat_map(|domain| &mut domain.vcpus) {
            if vcpu.affinity == share_of(host, vcpu) {
                vcpu.affinity = vcpu.affinity.iter().map(|&cpu| anew(cpu)).collect();
            }
            vcpu.cpu = anew(vcpu.cpu);
        }
        Group {
            host: Host {
                cpus: cpus.len() as u32,
                domains,
                ..host.clone()
            },
            open: (numbers.iter())
                .map(|&number| open.domains[number].clone())
                .collect(),
            numbers,
            room_factor: None,
        }
    }

    pub fn with_domains(mut self, domains: Vec<Domain>) -> Group {
        self.host.domains = domains;
        self
    }

    /// The group with these values, which were found for costs that are this factor greater. Its tasks stay as they
    /// are.
    pub fn with_room(self, factor: f64, mut domains: Vec<Domain>) -> Group {
        for (domain, own) in domains.iter_mut().zip(&self.host.domains) {
            domain.tasks.clone_from(&own.tasks);
        }
        let mut group = self.with_domains(domains);
        group.room_factor = Some(factor);
        group
    }

    /// The group with each cost this factor greater; as it is, if a cost would be above its deadline.
    pub fn grown(self, factor: f64) -> Group {
        self.scaled(|_, _| factor).unwrap_or(self)
    }

    /// The group with each cost times a factor, which depends on the domain and the task. `None`: a cost would be above
    /// its deadline.
    pub fn scaled(&self, factor: impl Fn(usize, usize) -> f64) -> Option<Group> {
        let mut group = self.clone();
        for (number, domain) in group.host.domains.iter_mut().enumerate() {
            for (index, task) in domain.tasks.iter_mut().enumerate() {
                let cost_ns = (task.cost_ns as f64 * factor(number, index)).ceil() as i64;
                task.cost_ns = cost_ns.max(1);
                if task.cost_ns > task.deadline_ns {
                    return None;
                }
            }
        }
        Some(group)
    }
}

/// Leaves out what `is_kept` does not keep: tasks, each by the place of its domain and its own, and with them the
/// domains of which no task is left; a domain whose budget and period are given is also kept for these (`None`).
pub(crate) fn retain(
    domains: &mut Vec<Domain>,
    open: &mut Vec<OpenDomain>,
    is_kept: impl Fn(usize, Option<usize>) -> bool,
) {
    let all = std::mem::take(domains)
        .into_iter()
        .zip(std::mem::take(open));
    for (number, (mut domain, of_domain)) in all.enumerate() {
        let mut places = 0..;
        domain.tasks.retain(|_| is_kept(number, places.next()));
        if !domain.tasks.is_empty() || of_domain.is_given() && is_kept(number, None) {
            domains.push(domain);
            open.push(of_domain);
        }
    }
}

/// The part of one CPU that a domain's budgets reserve.
pub(crate) fn share(domain: &Domain) -> f64 {
    let parameters = &domain.parameters;
    let vcpus = domain.vcpus.len() as f64;
    match parameters.period_ns {
        0 => 0.0,
        period_ns => vcpus * parameters.budget_ns as f64 / period_ns as f64,
    }
}

/// Whether the budgets on each CPU, or on those of each cluster, fit beside one another.
pub(crate) fn fits(host: &Host) -> bool {
    let mut used: HashMap<Vec<u32>, f64> = HashMap::new();
    for domain in &host.domains {
        let each = share(domain) / domain.vcpus.len() as f64;
        for vcpu in &domain.vcpus {
            *used.entry(share_of(host, vcpu)).or_default() += each;
        }
    }
    (used.iter()).all(|(cpus, &used)| used <= cpus.len() as f64 + 1e-9)
}

/// The CPU time of all budgets, in CPUs.
pub(crate) fn cpu_time(groups: &[Group]) -> f64 {
    groups
        .iter()
        .flat_map(|group| &group.host.domains)
        .map(share)
        .sum()
}

/// The factor by which every cost may be greater; infinity where the aim was another one.
pub(crate) fn room_of(groups: &[Group]) -> f64 {
    let factors = groups.iter().filter_map(|group| group.room_factor);
    factors.fold(f64::INFINITY, f64::min)
}
