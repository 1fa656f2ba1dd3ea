//! The CPUs of a host. For hosts with one the engine is compiled apart, without what tells several from each other.

use crate::timers::{OneTimer, Slots, Timers};
use rand_pcg::Pcg32;
use std::ops::{Index, IndexMut};

pub struct Cpu {
    /// The VCPU that runs, or NOBODY.
    pub vcpu: u32,
    /// Up to when the running VCPU's work is accounted; later than now while a decision takes time.
    pub accounted_ns: i64,
    /// A decision is due, be it that there still is work for the running VCPU.
    pub asked: bool,
    /// A decision is due as soon as the last one's cost has passed.
    pub postponed: bool,
    pub random: Pcg32,
}

/// The CPUs of a host, by number.
pub trait Cpus: IndexMut<u32, Output = Cpu> {
    /// Whether there is one, whatever its number is said to be.
    const ONE: bool;
    /// A timer for each.
    type Timers: Slots;

    fn new(cpus: impl Iterator<Item = Cpu>) -> Self;
}

/// The only CPU of a host.
pub struct One(Cpu);

/// Any number of CPUs.
pub struct Many(Box<[Cpu]>);

impl Cpus for One {
    const ONE: bool = true;
    type Timers = OneTimer;

    fn new(mut cpus: impl Iterator<Item = Cpu>) -> One {
        One(cpus.next().expect("a host has a CPU"))
    }
}

impl Cpus for Many {
    const ONE: bool = false;
    type Timers = Timers;

    fn new(cpus: impl Iterator<Item = Cpu>) -> Many {
        Many(cpus.collect())
    }
}

impl Index<u32> for One {
    type Output = Cpu;

    #[inline]
    fn index(&self, _: u32) -> &Cpu {
        &self.0
    }
}

impl IndexMut<u32> for One {
    #[inline]
    fn index_mut(&mut self, _: u32) -> &mut Cpu {
        &mut self.0
    }
}

impl Index<u32> for Many {
    type Output = Cpu;

    #[inline]
    fn index(&self, number: u32) -> &Cpu {
        &self.0[number as usize]
    }
}

impl IndexMut<u32> for Many {
    #[inline]
    fn index_mut(&mut self, number: u32) -> &mut Cpu {
        &mut self.0[number as usize]
    }
}
