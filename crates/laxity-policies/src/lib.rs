//! The scheduling policies and the parameters that they use.
//!
//! Everything here is made from `policy/policies.def` and `policy/parameters.def`, which C includes as they are:
//! the policies' names, families and groups, the parameters with their bounds, standard values and meanings. This
//! crate has no C in it; `laxity-policy` runs the policies.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

include!(concat!(env!("OUT_DIR"), "/tables.rs"));

/// The kind of a parameter's values.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ParameterKind {
    /// A time, in nanoseconds.
    Duration,
    /// A whole number.
    Number,
    /// Whole percent of one CPU.
    Percent,
    /// No or yes: 0 or 1.
    Flag,
}

impl ParameterKind {
    /// Its name, and the unit of its values where they have one.
    pub const fn name_and_unit(self) -> (&'static str, Option<&'static str>) {
        match self {
            ParameterKind::Duration => ("duration", Some("ns")),
            ParameterKind::Number => ("number", None),
            ParameterKind::Percent => ("number", Some("% of a CPU")),
            ParameterKind::Flag => ("flag", None),
        }
    }
}

/// A parameter's row of `policy/parameters.def`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Facts {
    /// The key in host files and of `laxity-sched`.
    pub name: &'static str,
    /// The field of [`Parameters`] or [`Settings`].
    pub field: &'static str,
    /// The bytes before that field.
    pub offset: usize,
    /// Whether it is a field of [`Settings`].
    pub is_setting: bool,
    /// The kind of its values.
    pub kind: ParameterKind,
    /// The least value that policies take.
    pub least: i64,
    /// The greatest value that policies take.
    pub most: i64,
    /// The value where nobody says one; below `least`: it must be said, or follows from others.
    pub standard: i64,
    /// What else is right, to be read behind the bounds.
    pub rule: &'static str,
    /// Whole sentences, in Markdown.
    pub meaning: &'static str,
}

impl Facts {
    /// The families with a policy that uses it.
    pub fn families(&self) -> impl Iterator<Item = Family> {
        let name = self.name;
        let uses = move |policy: &Policy| {
            policy
                .parameters()
                .iter()
                .any(|each| each.facts().name == name)
        };
        let has_user = move |family: &Family| {
            (Policy::ALL.iter()).any(|policy| policy.family() == *family && uses(policy))
        };
        Family::ALL.into_iter().filter(has_user)
    }
}

/// A substrate on which policies run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Substrate {
    /// The simulator.
    Sim,
    /// The Xen hypervisor.
    Xen,
    /// Linux, by the kernel's own means.
    Linux,
    /// Linux as a host of virtual machines, through sched_ext.
    Kvm,
}

impl Substrate {
    /// The name on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            Substrate::Sim => "sim",
            Substrate::Xen => "xen",
            Substrate::Linux => "linux",
            Substrate::Kvm => "kvm",
        }
    }
}

/// A policy's row of `policy/policies.def`.
struct Row {
    name: &'static str,
    family: Family,
    switch_group: &'static str,
    substrates: &'static [Substrate],
    own_of: Option<Substrate>,
    parameters: &'static [Parameter],
    about: &'static str,
}

impl Policy {
    const fn row(self) -> &'static Row {
        &POLICIES[self as usize]
    }

    /// The name in host files and on the command line.
    pub const fn name(self) -> &'static str {
        self.row().name
    }

    /// The policy of that name.
    pub fn from_name(name: &str) -> Option<Policy> {
        Policy::ALL.into_iter().find(|policy| policy.name() == name)
    }

    /// The family that it belongs to.
    pub const fn family(self) -> Family {
        self.row().family
    }

    /// Policies of the same group go over to one another while VCPUs run.
    pub const fn switch_group(self) -> &'static str {
        self.row().switch_group
    }

    /// The substrates on which it runs.
    pub const fn substrates(self) -> &'static [Substrate] {
        self.row().substrates
    }

    /// The substrate whose own scheduler it is a model of; `None` for Laxity's policies.
    pub const fn own_of(self) -> Option<Substrate> {
        self.row().own_of
    }

    /// Whether it is a model of other people's scheduler, which runs in the simulator alone.
    pub const fn is_model(self) -> bool {
        self.own_of().is_some()
    }

    /// The parameters that it uses.
    pub const fn parameters(self) -> &'static [Parameter] {
        self.row().parameters
    }

    /// One sentence, in Markdown.
    pub const fn about(self) -> &'static str {
        self.row().about
    }

    /// Whether it uses that parameter.
    pub fn uses(self, parameter: Parameter) -> bool {
        self.parameters().contains(&parameter)
    }

    /// Whether its VCPUs have a budget and a fixed priority.
    pub fn is_fixed_priority_server(self) -> bool {
        self.has_budgets() && self.uses(Parameter::Priority)
    }

    /// Whether each VCPU has a budget every period.
    pub fn has_budgets(self) -> bool {
        self.uses(Parameter::Budget)
    }

    /// Whether a VCPU stays on the CPU where the host places it.
    pub fn is_partitioned(self) -> bool {
        self.has_budgets() && !self.is_model() && !self.is_global()
    }

    /// Whether it is one of Laxity's servers or SEDF with one order for all CPUs.
    pub fn is_global(self) -> bool {
        self.family() == Family::Global
    }

    /// Whether VCPUs with budgets share all CPUs of their affinity, which analysis therefore takes in clusters.
    pub fn has_clusters(self) -> bool {
        self.is_global() || self == Policy::Rtds
    }

    /// For a policy with one order for all CPUs, the same on each CPU by itself.
    pub fn on_each_cpu(self) -> Option<Policy> {
        Policy::from_name(self.name().strip_prefix("global-")?)
    }

    /// For a policy of each CPU, the same with one order for all CPUs, if there is one.
    pub fn on_all_cpus(self) -> Option<Policy> {
        (Policy::ALL.into_iter()).find(|policy| policy.on_each_cpu() == Some(self))
    }

    /// Whether domains share the CPUs by weight, without budgets, and VCPUs go to other CPUs: credit
    /// and scheduler S.
    pub fn shares_by_weight(self) -> bool {
        self.uses(Parameter::Weight)
    }

    /// Whether it is scheduler S, with whichever parts.
    pub fn is_scheduler_s(self) -> bool {
        self.family() == Family::SchedulerS
    }

    /// Whether it is scheduler S with that part.
    pub fn has(self, part: Part) -> bool {
        PARTS[self as usize].contains(&part)
    }
}
