//! The initial placement of VCPUs and tasks: worst fit.
//!
//! Loads are compared as integers, so that every machine places the same way: a ratio is its
//! numerator × 2^60 / denominator, rounded down, and equal ratios are equal.

use std::collections::BTreeSet;

/// `part` / `whole`, for comparison and addition. `part` is not above `whole`, which is not 0.
pub(crate) fn ratio(part_ns: i64, whole_ns: i64) -> u128 {
    (u128::from(part_ns.unsigned_abs()) << 60) / u128::from(whole_ns.unsigned_abs())
}

/// The load that a VCPU without budget stands for.
pub(crate) const WHOLE: u128 = 1 << 60;

/// Places VCPUs on CPUs, one after the other.
pub(crate) struct Placement {
    load: Vec<u128>,
}

impl Placement {
    pub fn new(cpus: u32) -> Placement {
        Placement {
            load: vec![0; cpus as usize],
        }
    }

    /// The CPU of `affinity` with the least load so far, of equal ones the first. `affinity` is not
    /// empty and within the CPUs.
    pub fn place(&mut self, affinity: &[u32], load: u128) -> u32 {
        let least = affinity
            .iter()
            .copied()
            .min_by_key(|cpu| (self.load[*cpu as usize], *cpu));
        let cpu = least.unwrap_or(0);
        self.load[cpu as usize] += load;
        cpu
    }
}

/// Puts tasks on a domain's VCPUs, one after the other.
pub(crate) struct Assignment {
    load: Vec<u128>,
    order: BTreeSet<(u128, u32)>,
}

impl Assignment {
    pub fn new(vcpus: u32) -> Assignment {
        Assignment {
            load: vec![0; vcpus as usize],
            order: (0..vcpus).map(|vcpu| (0, vcpu)).collect(),
        }
    }

    /// The VCPU with the least utilization so far, of equal ones the first.
    pub fn least(&self) -> u32 {
        self.order.first().map_or(0, |(_, vcpu)| *vcpu)
    }

    pub fn add(&mut self, vcpu: u32, utilization: u128) {
        let load = &mut self.load[vcpu as usize];
        self.order.remove(&(*load, vcpu));
        *load += utilization;
        self.order.insert((*load, vcpu));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn vcpus_go_where_least_is() {
        let mut placement = Placement::new(3);
        let all = [0, 1, 2];
        assert_eq!(placement.place(&all, ratio(1, 3)), 0);
        assert_eq!(placement.place(&all, ratio(2, 3)), 1);
        assert_eq!(placement.place(&[1], ratio(1, 100)), 1);
        assert_eq!(placement.place(&all, ratio(3, 9)), 2);
        // 0 and 2 are equal, though written differently.
        assert_eq!(placement.place(&[2, 0], ratio(1, 2)), 0);
        assert_eq!(placement.place(&all, WHOLE), 2);
    }

    #[test]
    fn tasks_go_where_least_is() {
        let mut assignment = Assignment::new(2);
        let mut put = |part, whole| {
            let vcpu = assignment.least();
            assignment.add(vcpu, ratio(part, whole));
            vcpu
        };
        assert_eq!([put(1, 2), put(1, 4), put(1, 4), put(1, 10)], [0, 1, 1, 0]);
    }
}
