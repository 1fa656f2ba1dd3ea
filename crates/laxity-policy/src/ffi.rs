//! The C side: `policy/include/laxity/policy.h`, word for word. The comments are there.

use std::ffi::{c_char, c_int, c_void};

pub use laxity_policies::{Parameters, Settings};

#[repr(C)]
pub struct Embedder {
    pub arm_timer: unsafe extern "C" fn(*mut Instance, u32, i64),
    pub arm_account: unsafe extern "C" fn(*mut Instance, i64),
    pub kick: unsafe extern "C" fn(*mut Instance, u32),
    pub extend: unsafe extern "C" fn(*mut Instance, u32, i64),
    pub may_run_on: unsafe extern "C" fn(*mut Instance, *const Vcpu, u32) -> bool,
    pub prefers: Option<unsafe extern "C" fn(*mut Instance, *const Vcpu, u32) -> bool>,
    pub try_lock: unsafe extern "C" fn(*mut Instance, u32) -> bool,
    pub unlock: unsafe extern "C" fn(*mut Instance, u32),
    pub trace: unsafe extern "C" fn(*mut Instance, *const Vcpu, c_int, i64),
}

#[repr(C)]
pub struct Instance {
    pub policy: *const Policy,
    pub embedder: *const Embedder,
    pub owner: *mut c_void,
    pub cpus: u32,
    pub cpu: *const *mut Cpu,
    pub tracing: bool,
    pub settings: Settings,
}

#[repr(C)]
pub struct Cpu {
    pub number: u32,
    pub is_repeated: bool,
    pub current: *mut Vcpu,
    pub decided_ns: i64,
    pub until_ns: i64,
    pub repeats_ns: i64,
    pub switched_ns: i64,
    pub stolen_ns: i64,
}

#[repr(C)]
pub struct Domain {
    pub id: u32,
    pub parameters: Parameters,
}

#[repr(C)]
pub struct Vcpu {
    pub domain: *mut Domain,
    pub owner: *mut c_void,
    pub id: u32,
    pub cpu: u32,
    pub runnable: bool,
    pub on_cpu: bool,
    pub parameters: Parameters,
}

#[repr(C)]
pub struct Decision {
    pub vcpu: *mut Vcpu,
    pub until_ns: i64,
}

#[repr(C)]
pub struct Dump {
    pub line: unsafe extern "C" fn(*mut Dump, *const Vcpu, *const c_char, i64, i64),
}

type Now = i64;

#[repr(C)]
pub struct Policy {
    pub instance_bytes: usize,
    pub cpu_bytes: usize,
    pub domain_bytes: usize,
    pub vcpu_bytes: usize,
    pub steals: bool,
    pub init: unsafe extern "C" fn(*mut Instance, *const Settings) -> c_int,
    pub add_cpu: unsafe extern "C" fn(*mut Instance, *mut Cpu, Now),
    pub remove_cpu: unsafe extern "C" fn(*mut Instance, *mut Cpu, Now),
    pub add_domain: unsafe extern "C" fn(*mut Instance, *mut Domain, *const Parameters) -> c_int,
    pub remove_domain: unsafe extern "C" fn(*mut Instance, *mut Domain),
    pub add_vcpu: unsafe extern "C" fn(*mut Instance, *mut Vcpu, *const Parameters, Now) -> c_int,
    pub remove_vcpu: unsafe extern "C" fn(*mut Instance, *mut Vcpu, Now),
    pub move_vcpu: unsafe extern "C" fn(*mut Instance, *mut Vcpu, u32, Now),
    pub wake: unsafe extern "C" fn(*mut Instance, *mut Vcpu, Now),
    pub event: Option<unsafe extern "C" fn(*mut Instance, *mut Vcpu, Now)>,
    pub tell: Option<unsafe extern "C" fn(*mut Instance, *mut Vcpu, i64, i64, Now)>,
    pub sleep: unsafe extern "C" fn(*mut Instance, *mut Vcpu, Now),
    pub yield_: unsafe extern "C" fn(*mut Instance, *mut Vcpu, Now),
    pub schedule: unsafe extern "C" fn(*mut Instance, *mut Cpu, Now) -> Decision,
    pub timer: unsafe extern "C" fn(*mut Instance, *mut Cpu, Now),
    pub account: Option<unsafe extern "C" fn(*mut Instance, Now)>,
    pub set_settings: unsafe extern "C" fn(*mut Instance, *const Settings, Now) -> c_int,
    pub set_domain:
        unsafe extern "C" fn(*mut Instance, *mut Domain, *const Parameters, Now) -> c_int,
    pub set_vcpu: unsafe extern "C" fn(*mut Instance, *mut Vcpu, *const Parameters, Now) -> c_int,
    pub set_phase: Option<unsafe extern "C" fn(*mut Instance, *mut Vcpu, i64, Now)>,
    pub become_: unsafe extern "C" fn(*mut Instance, *const Policy, Now) -> c_int,
    pub dump: unsafe extern "C" fn(*mut Instance, *mut Cpu, *mut Dump),
}

/// The tables of all policies, in the order of [`laxity_policies::Policy::ALL`].
pub type Tables = [*const Policy; laxity_policies::Policy::ALL.len()];

unsafe extern "C" {
    pub static laxity_tables: Tables;
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::mem::{offset_of, size_of};

    const PARAMETERS: usize = laxity_policies::Parameter::ALL.len();
    const OTHERS: usize = 20;

    unsafe extern "C" {
        static laxity_abi: [usize; OTHERS];
        static laxity_offsets: [usize; PARAMETERS];
    }

    #[test]
    fn rust_and_c_agree_on_the_layout() {
        let rust = [
            size_of::<Settings>(),
            size_of::<Parameters>(),
            size_of::<Embedder>(),
            size_of::<Instance>(),
            offset_of!(Instance, cpus),
            offset_of!(Instance, tracing),
            offset_of!(Instance, settings),
            size_of::<Cpu>(),
            offset_of!(Cpu, current),
            size_of::<Domain>(),
            offset_of!(Domain, parameters),
            size_of::<Vcpu>(),
            offset_of!(Vcpu, cpu),
            offset_of!(Vcpu, runnable),
            offset_of!(Vcpu, on_cpu),
            offset_of!(Vcpu, parameters),
            size_of::<Decision>(),
            size_of::<Policy>(),
            offset_of!(Policy, schedule),
            offset_of!(Policy, dump),
        ];
        // SAFETY: constants of the C side, of these lengths (src/tables.c).
        unsafe {
            assert_eq!(rust, laxity_abi);
            let offsets = laxity_policies::Parameter::ALL.map(|each| each.facts().offset);
            assert_eq!(offsets, laxity_offsets);
        }
    }
}
