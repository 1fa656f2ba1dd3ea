//! A request for a design, and the host prepared for it.

use std::sync::LazyLock;

use laxity_host::{Host, Open, Policy, Substrate};

/// The objective of a design.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub enum Aim {
    /// The least sum of budgets.
    #[default]
    LeastTime,
    /// The least sum of budgets with which every cost may be this factor greater.
    Room(f64),
    /// The greatest factor by which every cost may be greater.
    MostRoom,
}

/// A request for a design.
#[derive(Debug, Clone, Copy, Default)]
pub struct Request {
    /// The objective.
    pub aim: Aim,
    /// Whether the guarantee must hold for any offsets of the tasks. Otherwise the offsets of the file count: a task
    /// that arrives only when its VCPU's budget is replenished does not wait for it.
    pub any_phase: bool,
    /// Whether only values are asked for, and no reasons.
    pub values_only: bool,
}

impl Request {
    /// The factor by which every cost is to be greater.
    pub(crate) fn growth(&self) -> f64 {
        match self.aim {
            Aim::Room(factor) => factor,
            Aim::LeastTime | Aim::MostRoom => 1.0,
        }
    }
}

/// The policies that a design may choose, and compares: those whose bounds analysis states and a hypervisor runs.
pub(crate) static POLICIES: LazyLock<Vec<Policy>> = LazyLock::new(|| {
    let runs_on_xen = |policy: &Policy| policy.substrates().contains(&Substrate::Xen);
    let all = Policy::ALL.into_iter();
    all.filter(|policy| policy.is_partitioned() && runs_on_xen(policy))
        .collect()
});

/// The policies that may be chosen for a host.
pub(crate) fn policies<'a>(host: &'a Host, open: &Open) -> &'a [Policy] {
    match open.policy {
        true => &POLICIES,
        false => std::slice::from_ref(&host.policy),
    }
}

/// Their names.
pub(crate) fn names(policies: impl IntoIterator<Item = Policy>) -> Vec<String> {
    let names = policies.into_iter().map(|policy| policy.name().into());
    names.collect()
}

/// The host under another policy.
pub(crate) fn with_policy(host: &Host, policy: Policy) -> Host {
    Host {
        policy,
        ..host.clone()
    }
}

/// The host prepared for analysis: an offset of 1 ns is in step with no period.
pub(crate) fn prepared(host: &Host, request: Request) -> Host {
    let mut host = host.clone();
    if request.any_phase {
        for task in host.domains.iter_mut().flat_map(|domain| &mut domain.tasks) {
            task.offset_ns = 1;
        }
    }
    host
}
