//! The credits of Xen's credit2 when a run begins.

use crate::names::Names;
use laxity_replay::Who;

/// credit2 changed the credits of a VCPU.
pub struct Credits {
    /// From the start of the run.
    pub time_ns: i64,
    /// Xen's numbers of the domain and the VCPU.
    pub vcpu: u32,
    /// Credits before it.
    pub before_ns: i64,
    /// Credits after it.
    pub after_ns: i64,
}

/// What each VCPU of the host file had at the start of the run; `None` where credit2 told nothing.
pub fn at_start(mut changes: Vec<Credits>, names: &Names) -> Vec<Option<i64>> {
    changes.sort_by_key(|change| change.time_ns);
    let mut found = vec![None; names.vcpus.count()];
    for change in changes {
        if let Ok(Who::Vcpu(vcpu)) = names.packed(change.vcpu) {
            let credits = &mut found[vcpu as usize];
            if change.time_ns <= 0 {
                *credits = Some(change.after_ns);
            } else {
                credits.get_or_insert(change.before_ns);
            }
        }
    }
    found
}
