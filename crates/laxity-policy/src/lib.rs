//! The safe door to the scheduling policies in `policy/`.
//!
//! An [`Instance`] owns the memory of one policy with its CPUs, domains and VCPUs, calls the policy's
//! operations, and collects what the policy asks for ([`Request`]) and reports ([`Report`]) in two
//! mailboxes, which the embedder empties after each call. C reaches nothing else of the
//! embedder.
//!
//! The order of calls that a policy relies on (`policy/include/laxity/policy.h`) is checked where an
//! embedder could break memory or queues: indices, a VCPU's wake, block and move.

mod ffi;
#[cfg(feature = "replaceable")]
mod replaced;

use laxity_policies::{Parameter, Parameters, Policy, Settings};
use std::collections::HashMap;
use std::ffi::{c_char, c_int, c_void};

/// "Never", as a time.
pub const NEVER: i64 = i64::MAX;

/// What a policy asks of its embedder.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Request {
    /// Call [`Instance::timer`] for this CPU at this time, in place of what was asked before.
    ArmTimer(u32, i64),
    /// Call [`Instance::account`] at this time, in place of what was asked before.
    ArmAccount(i64),
    /// Call [`Instance::schedule`] for this CPU.
    Kick(u32),
    /// The decision in force on this CPU holds until this time instead.
    Extend(u32, i64),
}

/// What happened inside a policy, to which VCPU. Collected only while tracing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Report {
    /// Index of the VCPU.
    pub vcpu: usize,
    /// What.
    pub event: Event,
    /// Its meaning depends on the event.
    pub argument: i64,
}

/// Events inside a policy (`enum laxity_event`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Event {
    /// Budget (credit, S: credits) after a replenishment, ns.
    Replenish,
    /// No budget left; 0.
    Exhaust,
    /// Budget (credit, S: credits) left, ns.
    Budget,
    /// The CPU that it goes to.
    Migrate,
    /// Credit, S: 0 boost, 1 under, 2 over, 3 parked.
    Class,
}

/// What a policy refused; nothing has changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// The parameter's value is out of its bounds, or contradicts its rule.
    #[error(
        "the {} must be from {} to {}{}",
        .0.facts().name, .0.facts().least, .0.facts().most, .0.facts().rule
    )]
    Value(Parameter),
    /// A live switch to this policy.
    #[error("these two policies cannot be switched while VCPUs run")]
    Switch,
}

impl Refused {
    /// Translates an `enum laxity_error`: 0 is no error, 1 a refused switch, and the parameters follow.
    fn check(code: c_int) -> Result<(), Refused> {
        match code as usize {
            0 => Ok(()),
            1 => Err(Refused::Switch),
            number => Err(Refused::Value(Parameter::ALL[number - 2])),
        }
    }
}

/// The VCPU that runs on a CPU, and until when at the latest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Decision {
    /// Index of the VCPU; `None` is idle.
    pub vcpu: Option<usize>,
    /// [`NEVER`] where nothing but a kick ends it.
    pub until_ns: i64,
}

/// A line of [`Instance::dump`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DumpLine {
    /// Index of the VCPU.
    pub vcpu: usize,
    /// The name of the queue that it is in, in the policy's words.
    pub state: String,
    /// Budget or credits left.
    pub left_ns: i64,
    /// When its next replenishment is due, or [`NEVER`].
    pub next_ns: i64,
}

/// Zeroed memory for a C structure that begins with `T`; does not move while it lives.
struct Block<T> {
    words: Box<[u64]>,
    of: std::marker::PhantomData<T>,
}

impl<T> Block<T> {
    fn new(bytes: usize) -> Self {
        assert!(bytes >= size_of::<T>() && align_of::<T>() <= align_of::<u64>());
        Block {
            words: vec![0; bytes.div_ceil(8)].into(),
            of: std::marker::PhantomData,
        }
    }

    fn get(&mut self) -> *mut T {
        self.words.as_mut_ptr().cast()
    }
}

/// Where the callbacks write; reached from C through `ffi::Instance::owner`.
#[derive(Default)]
struct Mailbox {
    requests: Vec<Request>,
    reports: Vec<Report>,
    /// Per VCPU, a bit for each CPU that it may run on.
    affinity: Vec<Box<[u64]>>,
    /// Per VCPU, a bit for each CPU that it prefers; of VCPUs that prefer any.
    preferred: HashMap<usize, Box<[u64]>>,
}

impl Mailbox {
    fn may_run_on(&self, vcpu: usize, cpu: u32) -> bool {
        holds(&self.affinity[vcpu], cpu)
    }

    fn prefers(&self, vcpu: usize, cpu: u32) -> bool {
        self.preferred
            .get(&vcpu)
            .is_none_or(|bits| holds(bits, cpu))
    }
}

/// A bit for each CPU of a host.
fn bits_of(cpus: &[u32], count: usize) -> Box<[u64]> {
    let mut bits = vec![0_u64; count.div_ceil(64)];
    for &cpu in cpus {
        bits[cpu as usize / 64] |= 1 << (cpu % 64);
    }
    bits.into()
}

fn holds(bits: &[u64], cpu: u32) -> bool {
    bits[cpu as usize / 64] >> (cpu % 64) & 1 == 1
}

/// A policy with the CPUs, domains and VCPUs that it rules.
pub struct Instance {
    instance: *mut ffi::Instance,
    table: *const ffi::Policy,
    cpus: Box<[*mut ffi::Cpu]>,
    domains: Vec<*mut ffi::Domain>,
    vcpus: Vec<*mut ffi::Vcpu>,
    mailbox: *mut Mailbox,
    // What the pointers above point to. They are reached only through the pointers, which C holds too.
    _instance: Block<ffi::Instance>,
    _cpus: Vec<Block<ffi::Cpu>>,
    _domains: Vec<Block<ffi::Domain>>,
    _vcpus: Vec<Block<ffi::Vcpu>>,
}

// SAFETY: all memory behind the pointers belongs to this value, and C keeps no state outside it.
unsafe impl Send for Instance {}

impl Drop for Instance {
    fn drop(&mut self) {
        // SAFETY: made by Box::into_raw in `new`, and dropped nowhere else.
        drop(unsafe { Box::from_raw(self.mailbox) });
    }
}

/// Whether the policy makes something of the deadlines that guests tell.
pub fn listens(policy: Policy) -> bool {
    // SAFETY: a constant table of the C side.
    unsafe { (*table(policy)).tell.is_some() }
}

fn table(policy: Policy) -> *const ffi::Policy {
    #[cfg(feature = "replaceable")]
    let tables = replaced::tables();
    #[cfg(not(feature = "replaceable"))]
    let tables = &raw const ffi::laxity_tables;
    // SAFETY: a constant of the C side, of this length (src/tables.c).
    unsafe { (*tables)[policy as usize] }
}

impl Instance {
    /// An instance of the policy on CPUs 0 to `cpus` - 1, with no VCPU yet, at time 0.
    ///
    /// # Errors
    /// When the policy refuses the settings.
    pub fn new(policy: Policy, settings: &Settings, cpus: u32) -> Result<Instance, Refused> {
        let table = table(policy);
        // SAFETY: a constant table of the C side.
        let sizes = unsafe { &*table };
        let mut block = Block::new(sizes.instance_bytes);
        let mut cpu_blocks: Vec<_> = (0..cpus).map(|_| Block::new(sizes.cpu_bytes)).collect();
        let cpu_pointers: Box<[*mut ffi::Cpu]> = cpu_blocks.iter_mut().map(Block::get).collect();
        let mailbox = Box::into_raw(Box::<Mailbox>::default());
        let this = Instance {
            instance: block.get(),
            table,
            cpus: cpu_pointers,
            domains: Vec::new(),
            vcpus: Vec::new(),
            mailbox,
            _instance: block,
            _cpus: cpu_blocks,
            _domains: Vec::new(),
            _vcpus: Vec::new(),
        };
        // SAFETY: the blocks are of the sizes that the table states, zeroed, and live as long as `this`.
        unsafe {
            *this.instance = ffi::Instance {
                policy: table,
                embedder: &EMBEDDER,
                owner: mailbox.cast(),
                cpus,
                cpu: this.cpus.as_ptr(),
                tracing: false,
                settings: ffi::Settings::default(),
            };
            Refused::check((sizes.init)(this.instance, settings))?;
            for (number, &cpu) in this.cpus.iter().enumerate() {
                (*cpu).number = number as u32;
                (sizes.add_cpu)(this.instance, cpu, 0);
            }
        }
        Ok(this)
    }

    /// Adds a domain; the returned index counts from 0.
    ///
    /// # Errors
    /// When the policy refuses the parameters.
    pub fn add_domain(&mut self, parameters: &Parameters) -> Result<usize, Refused> {
        let index = self.domains.len();
        // SAFETY: as in `new`; the block is kept in `_domains`.
        unsafe {
            let mut block = Block::new((*self.table).domain_bytes);
            let domain: *mut ffi::Domain = block.get();
            (*domain).id = index as u32;
            Refused::check(((*self.table).add_domain)(
                self.instance,
                domain,
                parameters,
            ))?;
            self.domains.push(domain);
            self._domains.push(block);
        }
        Ok(index)
    }

    /// Adds a VCPU, blocked, to the queue of `cpu`; the returned index counts from 0 over all domains.
    ///
    /// # Errors
    /// When the policy refuses the parameters.
    ///
    /// # Panics
    /// When there is no such domain or CPU, or `affinity` does not hold `cpu`.
    pub fn add_vcpu(
        &mut self,
        domain: usize,
        cpu: u32,
        affinity: &[u32],
        parameters: &Parameters,
        now: i64,
    ) -> Result<usize, Refused> {
        assert!(affinity.contains(&cpu) && (cpu as usize) < self.cpus.len());
        let index = self.vcpus.len();
        let domain = self.domains[domain];
        let bits = bits_of(affinity, self.cpus.len());
        // SAFETY: as in `new`; the block is kept in `_vcpus`, and the affinity is in place before the
        // policy can ask for it.
        unsafe {
            (*self.mailbox).affinity.push(bits);
            let mut block = Block::new((*self.table).vcpu_bytes);
            let vcpu: *mut ffi::Vcpu = block.get();
            (*vcpu).domain = domain;
            (*vcpu).owner = index as *mut c_void;
            (*vcpu).id = self
                .vcpus
                .iter()
                .filter(|&&other| (*other).domain == domain)
                .count() as u32;
            (*vcpu).cpu = cpu;
            if let Err(refused) = Refused::check(((*self.table).add_vcpu)(
                self.instance,
                vcpu,
                parameters,
                now,
            )) {
                (*self.mailbox).affinity.pop();
                return Err(refused);
            }
            self.vcpus.push(vcpu);
            self._vcpus.push(block);
        }
        Ok(index)
    }

    /// Has a VCPU prefer some of the CPUs that it may run on (soft affinity), which models may know.
    ///
    /// # Panics
    /// When there is no such VCPU or CPU.
    pub fn set_preferred(&mut self, vcpu: usize, cpus: &[u32]) {
        assert!(vcpu < self.vcpus.len());
        let bits = bits_of(cpus, self.cpus.len());
        // SAFETY: no operation runs that could hold a reference to the mailbox.
        unsafe { (*self.mailbox).preferred.insert(vcpu, bits) };
    }

    /// The CPU whose queue the VCPU is in.
    pub fn cpu_of(&self, vcpu: usize) -> u32 {
        // SAFETY: all pointers in `vcpus` are live.
        unsafe { (*self.vcpus[vcpu]).cpu }
    }

    /// Whether the policy reports its events.
    pub fn set_tracing(&mut self, tracing: bool) {
        // SAFETY: live since `new`.
        unsafe { (*self.instance).tracing = tracing }
    }

    /// A blocked VCPU has work. Does nothing if it has not been blocked.
    #[inline]
    pub fn wake(&mut self, vcpu: usize, now: i64) {
        let vcpu = self.vcpus[vcpu];
        // SAFETY: all pointers are live; the policy's operations are called one at a time.
        unsafe {
            if !(*vcpu).runnable {
                (*vcpu).runnable = true;
                ((*self.table).wake)(self.instance, vcpu, now);
            }
        }
    }

    /// The VCPU that runs on a CPU has nothing left to do; `schedule` on that CPU must follow.
    #[inline]
    pub fn block_running(&mut self, vcpu: usize) {
        // SAFETY: all pointers are live.
        unsafe {
            let vcpu = self.vcpus[vcpu];
            (*vcpu).runnable = false;
            (*self.cpus[(*vcpu).cpu as usize]).repeats_ns = 0;
        }
    }

    /// An event came for a VCPU that is runnable already. Does nothing if it is blocked.
    #[inline]
    pub fn event(&mut self, vcpu: usize, now: i64) {
        // SAFETY: as in `wake`.
        unsafe {
            let vcpu = self.vcpus[vcpu];
            if let Some(event) = (*self.table).event
                && (*vcpu).runnable
            {
                event(self.instance, vcpu, now);
            }
        }
    }

    /// The guest tells on what the VCPU works from now on: when that must be done ([`NEVER`]: it has no
    /// deadline), and its place in the order in which the guest does its work, smaller first.
    #[inline]
    pub fn tell(&mut self, vcpu: usize, deadline_ns: i64, order: i64, now: i64) {
        // SAFETY: as in `wake`.
        unsafe {
            if let Some(tell) = (*self.table).tell {
                tell(self.instance, self.vcpus[vcpu], deadline_ns, order, now);
            }
        }
    }

    /// Until when a CPU is busy with its last decision, and does nothing for the VCPU that was chosen.
    #[inline]
    pub fn set_switched(&mut self, cpu: u32, switched_ns: i64) {
        // SAFETY: all pointers in `cpus` are live.
        unsafe { (*self.cpus[cpu as usize]).switched_ns = switched_ns }
    }

    /// For so long something else had a CPU in the turn of its VCPU, since the last operation; below 0, its VCPU had it
    /// before. The decision in force ends later by as much.
    pub fn steal(&mut self, cpu: u32, for_ns: i64) {
        // SAFETY: all pointers in `cpus` are live.
        unsafe {
            (*self.cpus[cpu as usize]).stolen_ns += for_ns;
            (*self.cpus[cpu as usize]).repeats_ns = 0;
        }
    }

    /// A VCPU is paused, whether it runs or not. Does nothing if it is blocked.
    pub fn sleep(&mut self, vcpu: usize, now: i64) {
        let vcpu = self.vcpus[vcpu];
        // SAFETY: as in `wake`.
        unsafe {
            if (*vcpu).runnable {
                (*vcpu).runnable = false;
                ((*self.table).sleep)(self.instance, vcpu, now);
            }
        }
    }

    /// A runnable VCPU lets its equals go first.
    pub fn yield_now(&mut self, vcpu: usize, now: i64) {
        // SAFETY: as in `wake`.
        unsafe {
            if (*self.vcpus[vcpu]).runnable {
                ((*self.table).yield_)(self.instance, self.vcpus[vcpu], now);
            }
        }
    }

    /// Takes a VCPU that is asleep to the queues of another CPU, with what is left of its budget and
    /// what is to come. Does nothing if it is there already.
    ///
    /// # Panics
    /// When there is no such CPU, the VCPU may not run there, or it is not asleep: runnable, or still
    /// what its CPU runs, as `schedule` has not taken it off yet.
    pub fn move_vcpu(&mut self, vcpu: usize, cpu: u32, now: i64) {
        assert!((cpu as usize) < self.cpus.len());
        let index = vcpu;
        let vcpu = self.vcpus[index];
        // SAFETY: as in `wake`; the mailbox is read before the policy is called.
        unsafe {
            assert!((*self.mailbox).may_run_on(index, cpu));
            let current = (*self.cpus[(*vcpu).cpu as usize]).current;
            assert!(!(*vcpu).runnable && current != vcpu);
            ((*self.table).move_vcpu)(self.instance, vcpu, cpu, now);
        }
    }

    /// Decides who runs on a CPU from now on.
    #[inline]
    pub fn schedule(&mut self, cpu: u32, now: i64) -> Decision {
        let cpu = self.cpus[cpu as usize];
        // SAFETY: as in `wake`. What was running, and what was chosen, are this instance's VCPUs.
        unsafe {
            let before = (*cpu).current;
            let decision = ((*self.table).schedule)(self.instance, cpu, now);
            if let Some(before) = before.as_mut() {
                before.on_cpu = false;
            }
            let vcpu = decision.vcpu.as_mut().map(|vcpu| {
                debug_assert!(vcpu.runnable);
                vcpu.on_cpu = true;
                vcpu.owner as usize
            });
            Decision {
                vcpu,
                until_ns: decision.until_ns,
            }
        }
    }

    /// Whether [`schedule`](Self::schedule) would only repeat the decision in force, for a quantum.
    #[inline]
    pub fn repeats(&self, cpu: u32, now: i64) -> bool {
        // SAFETY: all pointers in `cpus` are live.
        let cpu = unsafe { &*self.cpus[cpu as usize] };
        cpu.until_ns <= now && now < cpu.repeats_ns
    }

    /// The time before which [`schedule`](Self::schedule) would only repeat the decision in force, when that ends.
    #[inline]
    pub fn repeats_ns(&self, cpu: u32) -> i64 {
        // SAFETY: all pointers in `cpus` are live.
        unsafe { (*self.cpus[cpu as usize]).repeats_ns }
    }

    /// Whether decisions were repeated on a CPU since the policy's last operation there.
    pub fn is_repeated(&self, cpu: u32) -> bool {
        // SAFETY: all pointers in `cpus` are live.
        unsafe { (*self.cpus[cpu as usize]).is_repeated }
    }

    /// Repeats the decision in force, in place of [`schedule`](Self::schedule).
    #[inline]
    pub fn repeat(&mut self, cpu: u32, now: i64) -> Decision {
        debug_assert!(self.repeats(cpu, now));
        // SAFETY: all pointers are live.
        unsafe {
            let cpu = self.cpus[cpu as usize];
            (*cpu).is_repeated = true;
            (*cpu).decided_ns = now;
            (*cpu).until_ns = now + (*self.instance).settings.quantum_ns;
            Decision {
                vcpu: (*cpu).current.as_ref().map(|vcpu| vcpu.owner as usize),
                until_ns: (*cpu).until_ns,
            }
        }
    }

    /// The state of a VCPU that `schedule` has just taken off its CPU is still being saved: no other CPU takes
    /// it until it is [`saved`](Self::saved).
    #[inline]
    pub fn is_being_saved(&mut self, vcpu: usize) {
        // SAFETY: all pointers are live.
        unsafe { (*self.vcpus[vcpu]).on_cpu = true }
    }

    /// The state of a VCPU is saved.
    #[inline]
    pub fn saved(&mut self, vcpu: usize) {
        // SAFETY: all pointers are live.
        unsafe { (*self.vcpus[vcpu]).on_cpu = false }
    }

    /// The CPU's timer fired.
    #[inline]
    pub fn timer(&mut self, cpu: u32, now: i64) {
        // SAFETY: as in `wake`.
        unsafe { ((*self.table).timer)(self.instance, self.cpus[cpu as usize], now) }
    }

    /// The account timer fired.
    pub fn account(&mut self, now: i64) {
        // SAFETY: as in `wake`.
        unsafe {
            if let Some(account) = (*self.table).account {
                account(self.instance, now);
            }
        }
    }

    /// New settings, live.
    ///
    /// # Errors
    /// When the policy refuses them; the old ones stay.
    pub fn set_settings(&mut self, settings: &Settings, now: i64) -> Result<(), Refused> {
        // SAFETY: as in `wake`.
        Refused::check(unsafe { ((*self.table).set_settings)(self.instance, settings, now) })
    }

    /// New parameters of a domain (credit, S), live.
    ///
    /// # Errors
    /// When the policy refuses them; the old ones stay.
    pub fn set_domain(
        &mut self,
        domain: usize,
        parameters: &Parameters,
        now: i64,
    ) -> Result<(), Refused> {
        // SAFETY: as in `wake`.
        Refused::check(unsafe {
            ((*self.table).set_domain)(self.instance, self.domains[domain], parameters, now)
        })
    }

    /// New parameters of a VCPU (servers, SEDF), live.
    ///
    /// # Errors
    /// When the policy refuses them; the old ones stay.
    pub fn set_vcpu(
        &mut self,
        vcpu: usize,
        parameters: &Parameters,
        now: i64,
    ) -> Result<(), Refused> {
        // SAFETY: as in `wake`.
        Refused::check(unsafe {
            ((*self.table).set_vcpu)(self.instance, self.vcpus[vcpu], parameters, now)
        })
    }

    /// Goes over to another policy, live.
    ///
    /// # Errors
    /// When the two do not share their VCPUs' state; nothing has changed then.
    pub fn become_policy(&mut self, policy: Policy, now: i64) -> Result<(), Refused> {
        let to = table(policy);
        // SAFETY: as in `wake`.
        unsafe { Refused::check(((*self.table).become_)(self.instance, to, now))? };
        self.table = to;
        Ok(())
    }

    /// Whether there are requests to take.
    #[inline]
    pub fn has_requests(&self) -> bool {
        // SAFETY: as in `take_requests`.
        !unsafe { &(*self.mailbox).requests }.is_empty()
    }

    /// Takes the requests, in the order in which the policy made them.
    #[inline(always)]
    pub fn take_requests(&mut self, mut each: impl FnMut(Request)) {
        // SAFETY: the mailbox lives as long as `self`, and no callback runs meanwhile.
        let requests = unsafe { &mut (*self.mailbox).requests };
        for &request in requests.iter() {
            each(request);
        }
        requests.clear();
    }

    /// Takes what was reported since the last call.
    pub fn take_reports(&mut self, mut each: impl FnMut(Report)) {
        // SAFETY: as in `take_requests`.
        let reports = unsafe { &mut (*self.mailbox).reports };
        for report in reports.drain(..) {
            each(report);
        }
    }

    /// The state of a CPU's queues, for people.
    pub fn dump(&mut self, cpu: u32) -> Vec<DumpLine> {
        #[repr(C)]
        struct Collect {
            dump: ffi::Dump,
            lines: Vec<DumpLine>,
        }
        unsafe extern "C" fn line(
            dump: *mut ffi::Dump,
            vcpu: *const ffi::Vcpu,
            state: *const c_char,
            left_ns: i64,
            next_ns: i64,
        ) {
            // SAFETY: `dump` is the first field of the Collect below; `state` is a C string.
            unsafe {
                (*dump.cast::<Collect>()).lines.push(DumpLine {
                    vcpu: (*vcpu).owner as usize,
                    state: std::ffi::CStr::from_ptr(state)
                        .to_string_lossy()
                        .into_owned(),
                    left_ns,
                    next_ns,
                });
            }
        }
        let mut collect = Collect {
            dump: ffi::Dump { line },
            lines: Vec::new(),
        };
        // SAFETY: as in `wake`; the callback gets the whole of `collect` through its first field.
        unsafe {
            let dump = (&raw mut collect).cast();
            ((*self.table).dump)(self.instance, self.cpus[cpu as usize], dump);
        }
        collect.lines
    }
}

static EMBEDDER: ffi::Embedder = ffi::Embedder {
    arm_timer,
    arm_account,
    kick,
    extend,
    may_run_on,
    prefers: Some(prefers),
    try_lock,
    unlock,
    trace,
};

/// The mailbox of the instance that calls back.
///
/// # Safety
/// `instance` is one that `Instance::new` set up, called by one of its operations, which hold no
/// reference to the mailbox meanwhile.
unsafe fn mailbox<'a>(instance: *mut ffi::Instance) -> &'a mut Mailbox {
    // SAFETY: the caller's promise.
    unsafe { &mut *(*instance).owner.cast() }
}

unsafe extern "C" fn arm_timer(instance: *mut ffi::Instance, cpu: u32, at_ns: i64) {
    // SAFETY: called by the policy.
    unsafe { mailbox(instance) }
        .requests
        .push(Request::ArmTimer(cpu, at_ns));
}

unsafe extern "C" fn arm_account(instance: *mut ffi::Instance, at_ns: i64) {
    // SAFETY: called by the policy.
    unsafe { mailbox(instance) }
        .requests
        .push(Request::ArmAccount(at_ns));
}

unsafe extern "C" fn kick(instance: *mut ffi::Instance, cpu: u32) {
    // SAFETY: called by the policy.
    unsafe { mailbox(instance) }
        .requests
        .push(Request::Kick(cpu));
}

unsafe extern "C" fn extend(instance: *mut ffi::Instance, cpu: u32, until_ns: i64) {
    // SAFETY: called by the policy.
    unsafe { mailbox(instance) }
        .requests
        .push(Request::Extend(cpu, until_ns));
}

unsafe extern "C" fn may_run_on(
    instance: *mut ffi::Instance,
    vcpu: *const ffi::Vcpu,
    cpu: u32,
) -> bool {
    // SAFETY: called by the policy with one of its VCPUs, whose `owner` is its index.
    unsafe { mailbox(instance).may_run_on((*vcpu).owner as usize, cpu) }
}

unsafe extern "C" fn prefers(
    instance: *mut ffi::Instance,
    vcpu: *const ffi::Vcpu,
    cpu: u32,
) -> bool {
    // SAFETY: as `may_run_on`.
    unsafe { mailbox(instance).prefers((*vcpu).owner as usize, cpu) }
}

/// One thread, so every lock is free.
unsafe extern "C" fn try_lock(_: *mut ffi::Instance, _: u32) -> bool {
    true
}

unsafe extern "C" fn unlock(_: *mut ffi::Instance, _: u32) {}

unsafe extern "C" fn trace(
    instance: *mut ffi::Instance,
    vcpu: *const ffi::Vcpu,
    event: c_int,
    argument: i64,
) {
    let event = match event {
        0 => Event::Replenish,
        1 => Event::Exhaust,
        2 => Event::Budget,
        3 => Event::Migrate,
        _ => Event::Class,
    };
    // SAFETY: called by the policy with one of its VCPUs, whose `owner` is its index.
    unsafe {
        let vcpu = (*vcpu).owner as usize;
        mailbox(instance).reports.push(Report {
            vcpu,
            event,
            argument,
        });
    }
}
