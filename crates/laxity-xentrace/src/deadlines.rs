//! The deadlines of Xen's rtds, on the clock of the run.

use crate::names::Names;
use laxity_replay::Who;
use std::collections::{BTreeMap, BTreeSet};

/// rtds gave a VCPU a new budget.
pub struct Replenishment {
    /// From the start of the run.
    pub time_ns: i64,
    /// Xen's numbers of the domain and the VCPU.
    pub vcpu: u32,
    /// By Xen's own clock, whose time 0 no event tells.
    pub deadline_ns: u64,
}

/// A deadline of each VCPU of the host file, from the start of the run; `None` where rtds named none.
///
/// A replenishment that a timer brings comes at the end of the VCPU's last period, and no replenishment comes before
/// that: the earliest ones tell how far the two clocks are apart, up to what the timer was late.
pub fn deadlines(replenishments: &[Replenishment], names: &Names) -> Vec<Option<i64>> {
    let mut of_vcpu: BTreeMap<u32, BTreeSet<u64>> = BTreeMap::new();
    for one in replenishments {
        of_vcpu.entry(one.vcpu).or_default().insert(one.deadline_ns);
    }
    let period_ns = |deadlines_ns: &BTreeSet<u64>| {
        let next = deadlines_ns.iter().skip(1);
        deadlines_ns
            .iter()
            .zip(next)
            .map(|(one, next)| next - one)
            .min()
    };
    let periods_ns: BTreeMap<u32, Option<u64>> = (of_vcpu.iter())
        .map(|(&vcpu, deadlines_ns)| (vcpu, period_ns(deadlines_ns)))
        .collect();
    let apart = replenishments.iter().filter_map(|one| {
        let begun_ns = i128::from(one.deadline_ns) - i128::from(periods_ns[&one.vcpu]?);
        Some(i128::from(one.time_ns) - begun_ns)
    });
    let mut found = vec![None; names.vcpus.count()];
    let Some(apart_ns) = apart.min() else {
        return found;
    };
    for (&vcpu, deadlines_ns) in &of_vcpu {
        if let (Ok(Who::Vcpu(vcpu)), Some(&deadline_ns)) =
            (names.packed(vcpu), deadlines_ns.first())
        {
            found[vcpu as usize] = i64::try_from(i128::from(deadline_ns) + apart_ns).ok();
        }
    }
    found
}
