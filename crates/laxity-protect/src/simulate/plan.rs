//! What goes wrong in a history, and when.

use crate::protocol::{Mode, Part, Settings, StandbyLost, interval};

use super::network::Damage;
use super::{Draw, MS};

/// Something that goes wrong, or that an operator wants. Sides are 0 and 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// A process ends, with its guest, after so many more actions; with all of its host, or alone.
    Crash {
        /// Whose.
        side: usize,
        /// Actions that it still carries out.
        actions: u32,
        /// The whole host: what it has sent is lost with it.
        power: bool,
    },
    /// A process begins again, if it had ended.
    Restart {
        /// Whose.
        side: usize,
    },
    /// A process stands still after so many more actions, and then goes on.
    Freeze {
        /// Whose.
        side: usize,
        /// Actions that it still carries out.
        actions: u32,
        /// For how long.
        for_ns: i64,
        /// Its guest stands still, too.
        guest: bool,
        /// It looks at the clock before it looks at what has arrived.
        clock_first: bool,
    },
    /// Nothing gets through.
    Cut {
        /// From these sides.
        from: [bool; 2],
        /// For how long.
        for_ns: i64,
    },
    /// The connection breaks.
    Reset,
    /// A frame is damaged.
    Damage {
        /// The next one from this side.
        from: usize,
        /// In this way.
        damage: Damage,
    },
    /// Everything takes longer on its way.
    Slow {
        /// For how long.
        for_ns: i64,
        /// By how much.
        by_ns: i64,
    },
    /// A host is slow to take checkpoints.
    SlowCapture {
        /// Which.
        side: usize,
        /// For how long each.
        by_ns: i64,
    },
    /// The next checkpoint cannot be taken.
    CaptureFails {
        /// Where.
        side: usize,
    },
    /// The next guest cannot be made to run.
    ActivationFails {
        /// Where.
        side: usize,
    },
    /// There is no room for the next checkpoint.
    Unusable {
        /// Where.
        side: usize,
    },
    /// Of the next checkpoint a part is not sent, in whole frames in good order.
    SendsPart {
        /// From where.
        side: usize,
        /// Which.
        without: Part,
    },
    /// The witness does not answer, but may hear.
    WitnessSilent {
        /// For how long.
        for_ns: i64,
        /// It hears.
        hears: bool,
    },
    /// The guest ends by itself.
    GuestOff,
    /// The operator wants the standby to take over.
    Switchover,
    /// The operator wants to take the standby away, and then changes his mind.
    Unprotect {
        /// After so long.
        for_ns: i64,
    },
    /// The operator tells the only host that is there to go on.
    GoOn,
}

/// A history, but for what chance adds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Plan {
    /// Of all chance in it.
    pub seed: u64,
    /// Of both hosts.
    pub settings: Settings,
    /// By how much each clock is too fast, in millionths, and what it shows at first.
    pub clocks: [(i64, i64); 2],
    /// What goes wrong, and when.
    pub faults: Vec<(i64, Fault)>,
    /// When all that is wrong ends, and everything that had ended begins again.
    pub healed_ns: i64,
}

/// When the first fault may come: the guest has begun by then, and is about to be protected.
const FIRST_NS: i64 = 4 * MS;
const LAST_NS: i64 = 160 * MS;

impl Plan {
    /// A random one.
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
            heartbeat_ns: 8 * MS,
            detection_ns: draw.between(24 * MS, 40 * MS),
            stall_ns: draw.between(12 * MS, 60 * MS),
            lease_ns: 2 * maximum_ns + draw.between(0, 20 * MS),
            checkpoint_bytes_max: 1 << 20,
            drift_ppm: [0, 1_000, 50_000][draw.below(3)],
            interval: interval::Bounds {
                minimum_ns: draw.between(4 * MS, 8 * MS),
                maximum_ns,
                pause_share_percent: 20,
            },
        }
    }

    fn random_fault(draw: &mut Draw, settings: &Settings) -> Fault {
        let side = draw.below(2);
        let for_ns = draw.between(MS, 120 * MS);
        let actions = draw.below(24) as u32;
        match draw.below(35) {
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
            30 | 31 => Fault::SendsPart {
                side,
                without: [Part::Ram, Part::Device][draw.below(2)],
            },
            _ => Fault::Switchover,
        }
    }
}
