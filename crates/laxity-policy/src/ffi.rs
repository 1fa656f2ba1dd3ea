//! The C side: `policy/include/laxity/policy.h`, word for word. The comments are there.

use std::ffi::{c_char, c_int, c_void};

#[repr(C)]
#[derive(Clone, Copy, Default)]
pub struct Settings {
    pub quantum_ns: i64,
    pub time_slice_ns: i64,
    pub tick_ns: i64,
    pub accounting_ns: i64,
}

#[repr(C)]
#[derive(Clone, Copy, Default)]
pub struct Parameters {
    pub budget_ns: i64,
    pub period_ns: i64,
    pub laxity_ns: i64,
    pub priority: u32,
    pub weight: u32,
    pub cap_percent: u32,
    pub extratime: bool,
}

#[repr(C)]
pub struct Embedder {
    pub arm_timer: unsafe extern "C" fn(*mut Instance, u32, i64),
    pub arm_account: unsafe extern "C" fn(*mut Instance, i64),
    pub kick: unsafe extern "C" fn(*mut Instance, u32),
    pub extend: unsafe extern "C" fn(*mut Instance, u32, i64),
    pub may_run_on: unsafe extern "C" fn(*mut Instance, *const Vcpu, u32) -> bool,
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
    pub current: *mut Vcpu,
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
    pub name: *const c_char,
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

unsafe extern "C" {
    pub static laxity_deferrable: Policy;
    pub static laxity_periodic: Policy;
    pub static laxity_polling: Policy;
    pub static laxity_sporadic: Policy;
    pub static laxity_sedf: Policy;
    pub static laxity_credit: Policy;
    pub static laxity_s_base: Policy;
    pub static laxity_s_a: Policy;
    pub static laxity_s_ab: Policy;
    pub static laxity_s_al: Policy;
    pub static laxity_s_all: Policy;
    pub static laxity_s_aill: Policy;
    pub static laxity_s_allc: Policy;
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::mem::{offset_of, size_of};

    unsafe extern "C" {
        static laxity_abi: [usize; 23];
    }

    #[test]
    fn rust_and_c_agree_on_the_layout() {
        let rust = [
            size_of::<Settings>(),
            size_of::<Parameters>(),
            offset_of!(Parameters, laxity_ns),
            offset_of!(Parameters, priority),
            offset_of!(Parameters, extratime),
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
        // SAFETY: a constant of the C side, of this length (src/abi.c).
        assert_eq!(rust, unsafe { laxity_abi });
    }
}
