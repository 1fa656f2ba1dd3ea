//! Plans of histories: faults with their times.

use crate::protocol::{
    DETECTION_HEARTBEATS, LEASE_INTERVALS, Mode, Part, Settings, StandbyLost, interval,
};

use super::draw::Draw;
use super::network::Damage;

pub(super) const MS: i64 = 1_000_000;

/// A fault, or an order of the operator. Sides are 0 and 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// A process ends together with its guest after some more actions, alone or with its whole
    /// host.
    Crash {
        /// Side of the fault.
        side: usize,
        /// Number of actions that it still carries out.
        actions: u32,
        /// Whether the whole host fails: its frames on the way are lost with it.
        power: bool,
    },
    /// A process that has ended starts again.
    Restart {
        /// Side of the fault.
        side: usize,
    },
    /// A process stalls after some more actions, and continues later.
    Freeze {
        /// Side of the fault.
        side: usize,
        /// Number of actions that it still carries out.
        actions: u32,
        /// Length of the stall.
        for_ns: i64,
        /// Whether its guest is paused, too.
        guest: bool,
        /// Whether it looks at the clock before it handles what has arrived.
        clock_first: bool,
    },
    /// The network is cut.
    Cut {
        /// Sides whose frames do not get through.
        from: [bool; 2],
        /// Length of the cut.
        for_ns: i64,
    },
    /// The connection breaks.
    Reset,
    /// A frame is damaged.
    Damage {
        /// Side of the next frame to damage.
        from: usize,
        /// Kind of damage.
        damage: Damage,
    },
    /// All frames are slow.
    Slow {
        /// Length of the fault.
        for_ns: i64,
        /// Additional delay.
        by_ns: i64,
    },
    /// The network loses frames, which are sent again: later frames wait for them.
    Lossy {
        /// Length of the fault.
        for_ns: i64,
        /// One of so many frames is lost.
        one_in: usize,
        /// Time after which a lost frame is sent again; twice as much if it is lost again.
        again_ns: i64,
    },
    /// A host's clock jumps ahead.
    ClockJump {
        /// Side of the fault.
        side: usize,
        /// Length of the jump.
        by_ns: i64,
    },
    /// A host's disk is full: its process cannot put its record on it, and ends.
    DiskFull {
        /// Side of the fault.
        side: usize,
        /// Length of the fault.
        for_ns: i64,
    },
    /// A host's disk is slow: its process waits for each record.
    SlowDisk {
        /// Side of the fault.
        side: usize,
        /// Length of the wait.
        by_ns: i64,
    },
    /// A host's disk hangs: what is to be written to it or flushed ends when that is over.
    DiskHangs {
        /// Side of the fault.
        side: usize,
        /// Length of the fault.
        for_ns: i64,
    },
    /// A host's disk cannot be flushed.
    DiskFails {
        /// Side of the fault.
        side: usize,
        /// Length of the fault.
        for_ns: i64,
    },
    /// No checkpoint can be taken on a host, for another reason than its disk.
    CapturesFail {
        /// Side of the fault.
        side: usize,
        /// Length of the fault.
        for_ns: i64,
    },
    /// A host is out of memory: the process that holds the guest's memory is killed, whether the
    /// guest runs in it or not, and the daemon is not.
    OutOfMemory {
        /// Side of the fault.
        side: usize,
    },
    /// A host takes checkpoints slowly.
    SlowCapture {
        /// Side of the fault.
        side: usize,
        /// Additional time for each checkpoint.
        by_ns: i64,
    },
    /// The next checkpoint cannot be taken.
    CaptureFails {
        /// Side of the fault.
        side: usize,
    },
    /// The next guest cannot be made to run.
    ActivationFails {
        /// Side of the fault.
        side: usize,
    },
    /// The next checkpoint finds no room.
    Unusable {
        /// Side of the fault.
        side: usize,
    },
    /// A part of the next checkpoint is not sent, although its frames are in good order.
    SendsPart {
        /// Side of the fault.
        side: usize,
        /// The missing part.
        without: Part,
    },
    /// The witness does not answer.
    WitnessSilent {
        /// Length of the fault.
        for_ns: i64,
        /// Whether it carries out claims nevertheless.
        hears: bool,
    },
    /// The guest ends by itself.
    GuestOff,
    /// The operator orders a switchover.
    Switchover,
    /// The operator orders the standby to forget its checkpoints, and later protects the guest
    /// again.
    Unprotect {
        /// Time until the second order.
        for_ns: i64,
    },
    /// The operator orders the only host that is up to go on.
    GoOn,
}

/// A history except for its random choices.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Plan {
    /// Seed of all random choices.
    pub seed: u64,
    /// Settings of both hosts.
    pub settings: Settings,
    /// Rate error of each clock in ppm, and its initial value.
    pub clocks: [(i64, i64); 2],
    /// Faults with their times.
    pub faults: Vec<(i64, Fault)>,
    /// Time at which all faults end, and everything that has ended starts again.
    pub healed_ns: i64,
}

/// Time of the earliest fault: the guest has begun by then, and is about to be protected.
const FIRST_NS: i64 = 4 * MS;
const LAST_NS: i64 = 160 * MS;

impl Plan {
    /// A random plan.
    pub fn random(seed: u64) -> Plan {
        let draw = &mut Draw::new(seed, 1);
        let settings = Plan::random_settings(draw);
        let half_ppm = settings.drift_ppm / 2;
        let clocks = [(); 2].map(|()| {
            let ppm = [-half_ppm, half_ppm, draw.between(-half_ppm, half_ppm)][draw.below(3)];
            (ppm, draw.between(0, 1 << 40))
        });
        let mut faults: Vec<_> = (0..draw.below(7))
            .map(|_| {
                let time_ns = draw.between(FIRST_NS, LAST_NS);
                (time_ns, Plan::random_fault(draw, &settings))
            })
            .collect();
        if draw.chance(8) {
            faults.extend(Plan::random_pair(draw, &settings));
        }
        if draw.chance(16) {
            faults.extend(Plan::random_late_takeover(draw));
        }
        faults.sort_by_key(|(time_ns, _)| *time_ns);
        let healed_ns = faults.last().map_or(FIRST_NS * 15, |(time_ns, _)| {
            time_ns + draw.between(0, 120 * MS)
        });
        Plan {
            seed,
            settings,
            clocks,
            faults,
            healed_ns,
        }
    }

    fn random_settings(draw: &mut Draw) -> Settings {
        let maximum_ns = draw.between(10 * MS, 20 * MS);
        let minimum_ns = draw.between(4 * MS, 8 * MS);
        let (heartbeat_ns, detection_ns) = (8 * MS, draw.between(24 * MS, 40 * MS));
        Settings {
            vm: 7,
            mode: if draw.chance(2) {
                Mode::Net
            } else {
                Mode::NoNet
            },
            standby_lost: if draw.chance(2) {
                StandbyLost::Stop
            } else {
                StandbyLost::Continue
            },
            witness: draw.chance(2),
            heartbeat_ns,
            detection_ns,
            detection_min_ns: DETECTION_HEARTBEATS * heartbeat_ns,
            stall_ns: draw.between(12 * MS, 60 * MS),
            lease_ns: LEASE_INTERVALS * maximum_ns + draw.between(0, 20 * MS),
            settling_ns: draw.between(0, 20 * MS),
            checkpoint_bytes_max: 1 << 20,
            drift_ppm: [0, 1_000, 50_000][draw.below(3)],
            interval: interval::Bounds {
                minimum_ns,
                maximum_ns,
                pause_share_percent: 20,
            },
        }
    }

    /// Two failures of which the second comes before anything of the first is repaired: of both
    /// hosts, or of a host and the witness.
    fn random_pair(draw: &mut Draw, settings: &Settings) -> [(i64, Fault); 2] {
        let time_ns = draw.between(FIRST_NS, LAST_NS);
        let side = draw.below(2);
        let crash = |draw: &mut Draw, side| Fault::Crash {
            side,
            actions: draw.below(4) as u32,
            power: draw.chance(2),
        };
        let second = if settings.witness && draw.chance(2) {
            Fault::WitnessSilent {
                for_ns: draw.between(MS, 120 * MS),
                hears: draw.chance(2),
            }
        } else {
            crash(draw, 1 - side)
        };
        let later_ns = draw.between(0, 2 * settings.detection_ns);
        [(time_ns, crash(draw, side)), (time_ns + later_ns, second)]
    }

    /// A disk that hangs when its host is about to take over from one that lives: by order, or
    /// because it is not heard for a while.
    fn random_late_takeover(draw: &mut Draw) -> [(i64, Fault); 2] {
        let time_ns = draw.between(FIRST_NS, LAST_NS);
        let hangs = Fault::DiskHangs {
            side: draw.below(2),
            for_ns: draw.between(60 * MS, 160 * MS),
        };
        let second = if draw.chance(2) {
            Fault::Switchover
        } else {
            Fault::Cut {
                from: [true; 2],
                for_ns: draw.between(20 * MS, 60 * MS),
            }
        };
        [
            (time_ns, hangs),
            (time_ns + draw.between(0, 10 * MS), second),
        ]
    }

    fn random_fault(draw: &mut Draw, settings: &Settings) -> Fault {
        let side = draw.below(2);
        let for_ns = draw.between(MS, 120 * MS);
        let actions = draw.below(24) as u32;
        match draw.below(48) {
            0..5 => Fault::Crash {
                side,
                actions,
                power: draw.chance(2),
            },
            5..8 => Fault::Restart { side },
            8..13 => Fault::Freeze {
                side,
                actions,
                for_ns,
                guest: draw.chance(2),
                clock_first: draw.chance(3),
            },
            13..18 => Fault::Cut {
                from: [[true, true], [true, false], [false, true]][draw.below(3)],
                for_ns,
            },
            18 | 19 => Fault::Reset,
            20 | 21 => Fault::Damage {
                from: side,
                damage: [Damage::Flip, Damage::Truncate, Damage::Repeat][draw.below(3)],
            },
            22 => Fault::Slow {
                for_ns,
                by_ns: draw.between(0, 30 * MS),
            },
            23 => Fault::SlowCapture {
                side,
                by_ns: draw.between(0, 30 * MS),
            },
            24 => Fault::CaptureFails { side },
            25 => Fault::ActivationFails { side },
            26 => Fault::Unusable { side },
            27 if settings.witness => Fault::WitnessSilent {
                for_ns,
                hears: draw.chance(2),
            },
            28 if draw.chance(4) => Fault::GuestOff,
            29 => Fault::GoOn,
            34 => Fault::Unprotect { for_ns },
            35 | 36 => Fault::ClockJump {
                side,
                by_ns: draw.between(shortest_jump_ns(settings), 120 * MS),
            },
            37 | 38 => Fault::Lossy {
                for_ns,
                one_in: [100, 20, 5][draw.below(3)],
                again_ns: draw.between(5 * MS, 30 * MS),
            },
            39 => Fault::DiskFull { side, for_ns },
            40 => Fault::SlowDisk {
                side,
                by_ns: draw.between(MS, 60 * MS),
            },
            41 => Fault::OutOfMemory { side },
            42..45 => Fault::DiskHangs { side, for_ns },
            45 => Fault::DiskFails { side, for_ns },
            46 | 47 => Fault::CapturesFail { side, for_ns },
            30 | 31 => Fault::SendsPart {
                side,
                without: [Part::Ram, Part::Device, Part::Disk][draw.below(3)],
            },
            _ => Fault::Switchover,
        }
    }
}

/// The shortest jump of a clock after which the protocol keeps what it promises. A lease is waited
/// out by a clock; a jump that is too short to be told from a busy processor would shorten the wait
/// by more than the drift.
fn shortest_jump_ns(settings: &Settings) -> i64 {
    match settings.mode {
        Mode::Net => MS,
        Mode::NoNet => settings.detection_ns / 2 + 1,
    }
}
