//! Host files that leave values open, for `laxity design`.

use laxity_config::{Open as OpenKey, Problems, Span};
use laxity_policies::Policy;

use crate::file::File;
use crate::sections::domain::{DomainTable, Domains};

/// What a host file leaves open. A value is open if it is written "?"; budgets, periods, priorities and the policy
/// also if they are absent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Open {
    /// Whether the policy is open.
    pub policy: bool,
    /// Whether a domain has a key `priority`, be it "?": then each needs a value.
    pub has_priorities: bool,
    /// In the order of the file.
    pub domains: Vec<OpenDomain>,
    /// The paths of all other values that are written "?", such as `domain.media.weight`.
    pub others: Vec<String>,
}

/// What a domain leaves open.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OpenDomain {
    /// The domain's path, as overrides write it.
    pub path: String,
    /// Whether the budget is open.
    pub budget: bool,
    /// Whether the period is open.
    pub period: bool,
    /// Whether the priority is open.
    pub priority: bool,
    /// Whether the CPUs are open: the file gives none, or "?".
    pub affinity: bool,
    /// Whether "?" is written for the CPUs.
    pub affinity_is_asked: bool,
}

impl OpenDomain {
    /// Whether the file gives the budget and the period.
    pub fn is_given(&self) -> bool {
        !self.budget && !self.period
    }
}

impl Open {
    /// Overrides that put harmless values in place of open ones.
    pub(crate) fn placeholders(&self) -> Vec<String> {
        let mut all = Vec::new();
        if self.policy {
            all.push(format!("host.policy={}", Policy::Deferrable.name()));
        }
        for (domain, number) in self.domains.iter().zip(1..) {
            let mut put = |is_open: bool, key: &str, value: &str| {
                if is_open {
                    all.push(format!("{}.{key}={value}", domain.path));
                }
            };
            put(domain.budget, "budget", "1 ns");
            put(domain.period, "period", "1 h");
            put(domain.priority, "priority", &format!("{number}"));
        }
        all
    }
}

/// What a file leaves open; `keys` are those that are written "?".
pub(crate) fn open_values(keys: &[OpenKey], file: &File, root: Span, problems: &Problems) -> Open {
    let policy = file.host.value.as_ref().and_then(|host| host.policy.value);
    let domains = Domains::of(&file.domain, root, problems);
    let open = Open {
        policy: file
            .host
            .value
            .as_ref()
            .is_some_and(|host| host.policy.is_absent()),
        has_priorities: (domains.tables.iter())
            .any(|(table, _)| !table.parameters.priority.is_absent())
            || keys.iter().any(|key| key.path.ends_with(".priority")),
        domains: (domains.tables.iter().enumerate())
            .map(|(index, (table, _))| open_domain(index, table, policy, keys))
            .collect(),
        others: Vec::new(),
    };
    for (table, span) in domains.tables.iter().filter(|(table, _)| table.is_drawn()) {
        problems.report(
            table.tasks.span.unwrap_or(*span),
            "drawn tasks change with the seed, but values can be found only for fixed tasks",
            "write the tasks",
        );
    }
    let found = |key: &&OpenKey| {
        key.path == "host.policy"
            || (open.domains.iter()).any(|domain| {
                let key = key.path.strip_prefix(&domain.path);
                let key = key.and_then(|rest| rest.strip_prefix('.'));
                matches!(key, Some("budget" | "period" | "priority" | "affinity"))
            })
    };
    let others = keys.iter().filter(|key| !found(key));
    Open {
        others: others.map(|key| key.path.clone()).collect(),
        ..open
    }
}

fn open_domain(
    index: usize,
    table: &DomainTable,
    policy: Option<Policy>,
    keys: &[OpenKey],
) -> OpenDomain {
    let parameters = &table.parameters;
    let has_none = policy.is_some_and(|policy| !policy.has_budgets());
    let has_slice = policy == Some(Policy::Sedf) && !parameters.slice.is_absent();
    let name = table.name.value.as_ref().map(|name| name.0.clone());
    let path = format!("domain.{}", name.unwrap_or_else(|| index.to_string()));
    let affinity = format!("{path}.affinity");
    OpenDomain {
        affinity_is_asked: keys.iter().any(|key| key.path == affinity),
        path,
        budget: !has_none && parameters.budget.is_absent() && !has_slice,
        period: !has_none && parameters.period.is_absent(),
        priority: !has_none && parameters.priority.is_absent(),
        affinity: table.affinity.is_absent() && !policy.is_some_and(Policy::has_clusters),
    }
}
