//! One thing that happened on a host.

use serde::Serialize;

/// In [`Record::cpu`], [`Record::domain`] and [`Record::vcpu`]: none.
pub const NONE: u16 = u16::MAX;

/// Bits of a job argument that hold the job's number; the task's index stands above them.
const JOB_NUMBER_BITS: u32 = 40;

/// One thing that happened on a host, at one instant.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Record {
    /// When, from the start of the run.
    pub time_ns: i64,
    /// What it means stands with each [`Kind`].
    pub argument: i64,
    /// The physical CPU that it happened on, or [`NONE`].
    pub cpu: u16,
    /// The domain, by its place in the host file, or [`NONE`].
    pub domain: u16,
    /// The VCPU within its domain, or [`NONE`].
    pub vcpu: u16,
    /// What happened.
    pub kind: Kind,
}

impl Record {
    /// The size of a record in a file.
    pub const BYTES: usize = 24;

    /// The record as it stands in a file.
    #[inline]
    pub fn to_bytes(self) -> [u8; Record::BYTES] {
        let place = u64::from(self.cpu)
            | u64::from(self.domain) << 16
            | u64::from(self.vcpu) << 32
            | u64::from(self.kind as u8) << 48;
        let mut bytes = [0; Record::BYTES];
        bytes[0..8].copy_from_slice(&self.time_ns.to_le_bytes());
        bytes[8..16].copy_from_slice(&self.argument.to_le_bytes());
        bytes[16..24].copy_from_slice(&place.to_le_bytes());
        bytes
    }

    /// The record that [`to_bytes`](Record::to_bytes) gave; `None` for an unknown kind or when the
    /// reserved byte is not 0.
    #[inline]
    pub fn from_bytes(bytes: &[u8; Record::BYTES]) -> Option<Record> {
        let word = |at: usize| {
            let mut word = [0; 8];
            word.copy_from_slice(&bytes[at..at + 8]);
            u64::from_le_bytes(word)
        };
        let place = word(16);
        if place >> 56 != 0 {
            return None;
        }
        Some(Record {
            time_ns: word(0) as i64,
            argument: word(8) as i64,
            cpu: place as u16,
            domain: (place >> 16) as u16,
            vcpu: (place >> 32) as u16,
            kind: Kind::from_number((place >> 48) as u8)?,
        })
    }

    /// The word for the class that the argument of a [`Kind::Class`] record names.
    pub(crate) fn class_name(&self) -> Option<&'static str> {
        const NAMES: [&str; 4] = ["boost", "under", "over", "parked"];
        NAMES.get(usize::try_from(self.argument).ok()?).copied()
    }
}

/// What happened. The numbers stand in files and never change their meaning.
#[repr(u8)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// A job arrived. Argument: [`job`].
    Release = 1,
    /// A job ended. Argument: [`job`].
    Complete = 2,
    /// A job began or went on on its VCPU, also when that only was off its CPU. It ends at the next
    /// `Execute`, `Complete` or `Stop` of the VCPU. Argument: [`job`].
    Execute = 3,
    /// A blocked VCPU got something to do. Argument: 0.
    Wake = 4,
    /// A VCPU has nothing left to do. Argument: 0.
    Block = 5,
    /// A VCPU began to run on the CPU. Argument: when the decision ends at the latest, ns;
    /// `i64::MAX` if never.
    Run = 6,
    /// A VCPU left the CPU. Argument: 1 if it could have gone on (it was preempted), 0 if it blocked.
    Stop = 7,
    /// The policy decided for the CPU; domain and VCPU are what it chose, [`NONE`] for idle.
    /// Argument: what the decision cost, ns.
    Schedule = 8,
    /// A VCPU got budget (credit: credits). Argument: what it has then, ns.
    Replenish = 9,
    /// A VCPU used its budget up. Argument: 0.
    Exhaust = 10,
    /// A VCPU's budget changed otherwise: by use, discarded, or set. Argument: what is left, ns.
    Budget = 11,
    /// A VCPU goes over to another CPU's queue. Argument: the CPU it goes to.
    Migrate = 12,
    /// A VCPU changed its class. Argument: 0 boost, 1 under, 2 over, 3 parked.
    Class = 13,
    /// A late or lost packet came to a place on its way, where that VCPU was to handle it. The places of a packet stand
    /// together, in their order, when it has arrived or is lost. Argument: [`hop`].
    Hop = 14,
    /// What the packet of the [`Kind::Hop`] before spent its time on at that place. Argument: [`spent`].
    Spent = 15,
    /// The packet whose places stand before it; the VCPU is the media server's first. Argument: [`job`] of its stream
    /// (modulo 2^24) and its number there.
    Packet = 16,
    /// The message of a registration that was late or lost, whose places stand before it; the VCPU is the signalling
    /// server's first. Argument: [`job`] of the registration's number (modulo 2^24) and how often it was sent before.
    Message = 17,
    /// A protected domain runs on at its standby, or the run ends without that; the places of its outage stand before
    /// it. The VCPU is the domain's first. Argument: 0.
    Outage = 18,
    /// The guest of a VCPU was left: until the next `Enter`, the host has the time that the VCPU runs. Argument:
    /// [`Exit`].
    Exit = 19,
    /// The guest of a VCPU was entered, and has the time that the VCPU runs, as it has before any `Exit`. Argument: 0.
    Enter = 20,
}

impl Kind {
    /// Every kind, in the order of the numbers.
    pub const ALL: [Kind; 20] = [
        Kind::Release,
        Kind::Complete,
        Kind::Execute,
        Kind::Wake,
        Kind::Block,
        Kind::Run,
        Kind::Stop,
        Kind::Schedule,
        Kind::Replenish,
        Kind::Exhaust,
        Kind::Budget,
        Kind::Migrate,
        Kind::Class,
        Kind::Hop,
        Kind::Spent,
        Kind::Packet,
        Kind::Message,
        Kind::Outage,
        Kind::Exit,
        Kind::Enter,
    ];

    /// The kind with that number in a file.
    #[inline]
    pub fn from_number(number: u8) -> Option<Kind> {
        Kind::ALL.get(usize::from(number).wrapping_sub(1)).copied()
    }

    /// The word for it in text.
    pub fn name(self) -> &'static str {
        match self {
            Kind::Release => "release",
            Kind::Complete => "complete",
            Kind::Execute => "execute",
            Kind::Wake => "wake",
            Kind::Block => "block",
            Kind::Run => "run",
            Kind::Stop => "stop",
            Kind::Schedule => "schedule",
            Kind::Replenish => "replenish",
            Kind::Exhaust => "exhaust",
            Kind::Budget => "budget",
            Kind::Migrate => "migrate",
            Kind::Class => "class",
            Kind::Hop => "hop",
            Kind::Spent => "spent",
            Kind::Packet => "packet",
            Kind::Message => "message",
            Kind::Outage => "outage",
            Kind::Exit => "exit",
            Kind::Enter => "enter",
        }
    }

    /// Whether the argument is a [`job`].
    pub fn is_of_job(self) -> bool {
        matches!(self, Kind::Release | Kind::Complete | Kind::Execute)
    }
}

/// The argument for job `number` (from 0) of the task at index `task` in its domain. The task takes
/// 24 bits, the number 40.
#[inline]
pub fn job(task: u32, number: u64) -> i64 {
    debug_assert!(task < 1 << (64 - JOB_NUMBER_BITS) && number < 1 << JOB_NUMBER_BITS);
    (u64::from(task) << JOB_NUMBER_BITS | number) as i64
}

/// The task's index in its domain, and the job's number: what [`job`] was given.
#[inline]
pub fn task_of(argument: i64) -> (u32, u64) {
    let argument = argument as u64;
    (
        (argument >> JOB_NUMBER_BITS) as u32,
        argument & ((1 << JOB_NUMBER_BITS) - 1),
    )
}

/// Why a guest was left: the argument of [`Kind::Exit`]. The numbers stand in files and never change their meaning.
#[repr(u8)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Exit {
    /// For a reason that is none of the others, or is not known.
    Other = 0,
    /// An interrupt came to the host: its own tick or timer, also where it is behind a timer of the guest, a device, or
    /// another CPU, also to let another thread run.
    Interrupt = 1,
    /// A timer of the guest has expired that the processor counts.
    Timer = 2,
    /// The guest halted.
    Halt = 3,
    /// It read or wrote a register of the processor that is emulated: its timer, or others of its interrupt controller.
    Register = 4,
    /// Its interrupt controller was accessed in another way, or could not do something by itself.
    Controller = 5,
    /// The guest can take the interrupt that waits for it.
    Window = 6,
    /// It accessed a port of a device.
    Port = 7,
    /// It accessed memory that is a device's, or that it does not have at present.
    Memory = 8,
    /// It called the hypervisor.
    Hypercall = 9,
    /// It spins.
    Pause = 10,
}

impl Exit {
    /// Every reason, in the order of the numbers.
    pub const ALL: [Exit; 11] = [
        Exit::Other,
        Exit::Interrupt,
        Exit::Timer,
        Exit::Halt,
        Exit::Register,
        Exit::Controller,
        Exit::Window,
        Exit::Port,
        Exit::Memory,
        Exit::Hypercall,
        Exit::Pause,
    ];

    /// The reason that the argument of a [`Kind::Exit`] names; `None` if there is no such reason.
    pub fn of(argument: i64) -> Option<Exit> {
        Exit::ALL.get(usize::try_from(argument).ok()?).copied()
    }

    /// The word for it in text.
    pub fn name(self) -> &'static str {
        match self {
            Exit::Other => "other",
            Exit::Interrupt => "interrupt",
            Exit::Timer => "timer",
            Exit::Halt => "halt",
            Exit::Register => "register",
            Exit::Controller => "controller",
            Exit::Window => "window",
            Exit::Port => "port",
            Exit::Memory => "memory",
            Exit::Hypercall => "hypercall",
            Exit::Pause => "pause",
        }
    }
}

/// Bits of the arguments of [`Kind::Hop`] and [`Kind::Spent`] that hold a time, up to 2.2 years; what it is stands
/// above them.
const TIME_BITS: u32 = 56;

/// A place on a packet's way, from phone to phone; or what a domain is in while it is out.
#[repr(u8)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Place {
    /// The wire towards a card, with the switch before it. No VCPU handles it there.
    WireIn = 0,
    /// The ring of a card, up to the bridge or to a socket.
    Card = 1,
    /// The ring from netback to a guest, up to a socket.
    ToGuest = 2,
    /// A socket, up to the end of a thread's work.
    Socket = 3,
    /// The ring from a guest to netback, up to the bridge.
    FromGuest = 4,
    /// That ring, while netback waits for credit of the domain's agreement. No VCPU could handle it.
    Rate = 5,
    /// The driver domain, until a checkpoint is acknowledged. No VCPU could handle it.
    Held = 6,
    /// The driver domain, from then up to the bridge.
    Released = 7,
    /// The ring of a card away from the host, and the wire.
    WireOut = 8,
    /// It has arrived at its phone. Always the last place.
    Arrived = 9,
    /// The run has ended with the packet on its way. Always the last place.
    Unfinished = 10,
    /// It is lost with the host that died. Always the last place.
    Failure = 11,
    /// It is lost since the place before had no room. The time is that since which the oldest packet there waited;
    /// always the last place.
    Full = 12,
    /// The domain's host is dead, and the standby has not yet waited for a sign of life for as long as it has to.
    Silence = 13,
    /// The standby activates the domain.
    Activation = 14,
}

impl Place {
    const ALL: [Place; 15] = [
        Place::WireIn,
        Place::Card,
        Place::ToGuest,
        Place::Socket,
        Place::FromGuest,
        Place::Rate,
        Place::Held,
        Place::Released,
        Place::WireOut,
        Place::Arrived,
        Place::Unfinished,
        Place::Failure,
        Place::Full,
        Place::Silence,
        Place::Activation,
    ];

    /// The word for it in text.
    pub fn name(self) -> &'static str {
        match self {
            Place::WireIn => "wire-in",
            Place::Card => "card",
            Place::ToGuest => "to-guest",
            Place::Socket => "socket",
            Place::FromGuest => "from-guest",
            Place::Rate => "rate",
            Place::Held => "held",
            Place::Released => "released",
            Place::WireOut => "wire-out",
            Place::Arrived => "arrived",
            Place::Unfinished => "unfinished",
            Place::Failure => "failure",
            Place::Full => "full",
            Place::Silence => "silence",
            Place::Activation => "activation",
        }
    }

    /// Whether a way ends there.
    pub fn is_end(self) -> bool {
        (Place::Arrived..=Place::Full).contains(&self)
    }
}

/// The argument of a [`Kind::Hop`]: the packet came to the place at that time.
pub fn hop(place: Place, time_ns: i64) -> i64 {
    packed(place as u8, time_ns)
}

/// What [`hop`] was given; `None` if there is no such place.
pub fn hop_of(argument: i64) -> Option<(Place, i64)> {
    let (place, time_ns) = unpacked(argument);
    Some((*Place::ALL.get(usize::from(place))?, time_ns))
}

/// What a packet spends time on at a place.
#[repr(u8)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Spent {
    /// CPU time of its own.
    Work = 0,
    /// The domain stood still for a checkpoint.
    Pause = 1,
}

/// The argument of a [`Kind::Spent`].
pub fn spent(on: Spent, ns: i64) -> i64 {
    packed(on as u8, ns)
}

/// What [`spent`] was given; `None` if there is no such thing.
pub fn spent_of(argument: i64) -> Option<(Spent, i64)> {
    let (on, ns) = unpacked(argument);
    Some((*[Spent::Work, Spent::Pause].get(usize::from(on))?, ns))
}

fn packed(what: u8, ns: i64) -> i64 {
    debug_assert!((0..1 << TIME_BITS).contains(&ns));
    (u64::from(what) << TIME_BITS | ns as u64) as i64
}

fn unpacked(argument: i64) -> (u8, i64) {
    let argument = argument as u64;
    (
        (argument >> TIME_BITS) as u8,
        (argument & ((1 << TIME_BITS) - 1)) as i64,
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn kinds_have_the_numbers_of_their_places() {
        for (index, place) in Place::ALL.into_iter().enumerate() {
            assert_eq!(place as usize, index);
        }
        assert_eq!((hop_of(15 << 56), spent_of(2 << 56)), (None, None));
        for (index, exit) in Exit::ALL.into_iter().enumerate() {
            assert_eq!(exit as usize, index);
            assert_eq!(Exit::of(index as i64), Some(exit));
        }
        assert_eq!((Exit::of(-1), Exit::of(11)), (None, None));
        for (index, kind) in Kind::ALL.into_iter().enumerate() {
            assert_eq!(kind as usize, index + 1);
            assert_eq!(Kind::from_number(kind as u8), Some(kind));
        }
        assert_eq!(Kind::from_number(0), None);
        assert_eq!(Kind::from_number(21), None);
    }

    #[test]
    fn the_layout_is_the_documented_one() {
        let record = Record {
            time_ns: 0x0807_0605_0403_0201,
            argument: -2,
            cpu: 0x1211,
            domain: 0x1413,
            vcpu: 0x1615,
            kind: Kind::Class,
        };
        let bytes = [
            1, 2, 3, 4, 5, 6, 7, 8, 0xFE, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0x11, 0x12,
            0x13, 0x14, 0x15, 0x16, 13, 0,
        ];
        assert_eq!(record.to_bytes(), bytes);
        assert_eq!(Record::from_bytes(&bytes), Some(record));
    }

    proptest! {
        #[test]
        fn any_bytes_are_refused_or_come_back(bytes: [u8; Record::BYTES]) {
            if let Some(record) = Record::from_bytes(&bytes) {
                prop_assert_eq!(record.to_bytes(), bytes);
            } else {
                prop_assert!(!(1..=20).contains(&bytes[22]) || bytes[23] != 0);
            }
        }

        #[test]
        fn a_hop_comes_back(place in 0usize..15, ns in 0i64..1 << 56) {
            let place = Place::ALL[place];
            prop_assert_eq!(hop_of(hop(place, ns)), Some((place, ns)));
            prop_assert_eq!(spent_of(spent(Spent::Pause, ns)), Some((Spent::Pause, ns)));
        }

        #[test]
        fn a_job_comes_back(task in 0u32..1 << 24, number in 0u64..1 << 40) {
            prop_assert_eq!(task_of(job(task, number)), (task, number));
        }
    }
}
