//! The events with which KVM tells that a guest was entered or left, on processors of Intel and AMD.

use crate::error::KvmError;
use crate::format::{Field, Format};
use laxity_replay::{Event, What, Who};
use laxity_trace::Exit;
use std::collections::HashMap;

/// The values of `isa` in `kvm_exit`: whose numbers the reasons are.
const INTEL: i64 = 1;
const AMD: i64 = 2;

/// `kvm_entry` and `kvm_exit`, as this kernel numbers them and lays them out.
pub struct Exits {
    entry: u16,
    entry_thread: Field,
    exit: u16,
    exit_thread: Field,
    reason: Field,
    isa: Field,
}

impl Exits {
    /// `None` if not both of them are there, or they are not those of such a processor.
    pub fn find(texts: &[&str]) -> Option<Exits> {
        let find = || {
            let entry = Format::find(texts, "kvm_entry")?;
            let exit = Format::find(texts, "kvm_exit")?;
            Ok::<_, KvmError>(Exits {
                entry: entry.number()?,
                entry_thread: entry.field("common_pid")?,
                exit: exit.number()?,
                exit_thread: exit.field("common_pid")?,
                reason: exit.field("exit_reason")?,
                isa: exit.field("isa")?,
            })
        };
        find().ok()
    }

    /// What an event of that number says; `None` if it is of no interest, an error if it is too short.
    pub fn what(
        &self,
        number: u16,
        who: impl Fn(i64) -> Who,
        value: impl Fn(Field) -> Result<i64, String>,
    ) -> Result<Option<What>, String> {
        let thread = match number {
            _ if number == self.entry => self.entry_thread,
            _ if number == self.exit => self.exit_thread,
            _ => return Ok(None),
        };
        let Who::Vcpu(vcpu) = who(value(thread)?) else {
            return Ok(None);
        };
        let exit = match number {
            _ if number == self.entry => None,
            _ => Some(reason(value(self.isa)?, value(self.reason)?)),
        };
        Ok(Some(What::Guest { vcpu, exit }))
    }
}

/// Source: the processors' manuals: Intel's, volume 3, "VMX basic exit reasons", and AMD's, volume 2, "SVM intercept
/// exit codes".
fn reason(isa: i64, number: i64) -> Exit {
    match (isa, number & 0xFFFF) {
        (INTEL, 1) | (AMD, 0x60..=0x62) => Exit::Interrupt,
        (INTEL, 52) => Exit::Timer,
        (INTEL, 12 | 36) | (AMD, 0x78 | 0x8B | 0x8C | 0xA6) => Exit::Halt,
        (INTEL, 31 | 32) | (AMD, 0x7C) => Exit::Register,
        (INTEL, 43..=45 | 56) | (AMD, 0x18 | 0x401 | 0x402) => Exit::Controller,
        (INTEL, 7 | 8) | (AMD, 0x64) => Exit::Window,
        (INTEL, 30) | (AMD, 0x7B) => Exit::Port,
        (INTEL, 48 | 49) | (AMD, 0x400) => Exit::Memory,
        (INTEL, 18) | (AMD, 0x81) => Exit::Hypercall,
        (INTEL, 40) | (AMD, 0x77) => Exit::Pause,
        _ => Exit::Other,
    }
}

/// Leaves out exits after which the guest was entered again untraced, as older kernels do where they need not leave
/// their innermost loop for it: the next exit comes without an entry, and its thread has not left the CPU. Such an exit
/// takes about a microsecond, which counts as the guest's. `events` are in order.
pub fn leave_out_reentered(events: &mut Vec<Event>) {
    let mut pending = HashMap::new();
    let mut reentered = Vec::new();
    for (place, event) in events.iter().enumerate() {
        match event.what {
            What::Guest { vcpu, exit: None } => drop(pending.remove(&vcpu)),
            What::Guest { vcpu, .. } => reentered.extend(pending.insert(vcpu, place)),
            What::Switch {
                before: Who::Vcpu(vcpu),
                ..
            } => drop(pending.remove(&vcpu)),
            _ => {}
        }
    }
    reentered.sort_unstable();
    let mut place = 0;
    events.retain(|_| {
        place += 1;
        reentered.binary_search(&(place - 1)).is_err()
    });
}
