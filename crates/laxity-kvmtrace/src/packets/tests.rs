//! Packets made by hand, and those of a small kernel that knows what becomes of each.

use super::*;
use laxity_trace::NONE;
use proptest::prelude::*;

/// Threads: those that serve a card, and those that ask sockets.
const SERVES: [i64; 2] = [70, 71];
const ASKS: [i64; 2] = [80, 81];

fn taken(source: Source, thread: i64, came_ns: i64, taken_ns: i64) -> Taken {
    Taken {
        source,
        thread,
        came_ns,
        taken_ns,
    }
}

/// What is told of what happens at 1 ns, 2 ns and so on, on CPU 0.
fn told(whats: &[What]) -> Vec<Taken> {
    let mut pairing = Pairing::default();
    let seen = (1..).zip(whats).map(|(time_ns, &what)| Seen {
        time_ns,
        cpu: 0,
        what,
    });
    seen.filter_map(|seen| pairing.see(&seen)).collect()
}

/// A packet that is larger than what anybody copies of it.
const fn came(buffer: i64) -> What {
    frame_came(buffer, 114)
}

const fn frame_came(buffer: i64, frame_bytes: i64) -> What {
    let bytes = frame_bytes - FRAME_HEADER_BYTES;
    What::Came { buffer, bytes }
}

const fn queued(buffer: i64, bytes: i64) -> What {
    What::Queued { buffer, bytes }
}

const fn copied(buffer: i64, bytes: i64) -> What {
    What::Copied {
        buffer,
        bytes,
        thread: SERVES[0],
    }
}

const fn freed(buffer: i64, is_dropped: bool) -> What {
    What::Freed {
        buffer,
        is_dropped,
        thread: None,
    }
}

const fn ready(socket: i64) -> What {
    What::Ready { socket }
}

const fn asked(socket: i64, result: i64, flags: i64) -> What {
    What::Asked {
        socket,
        thread: ASKS[0],
        result,
        flags,
    }
}

#[test]
fn a_packet_waits_in_the_queue_of_a_card() {
    let card = |came_ns, taken_ns| taken(Source::Cards(SERVES[0]), SERVES[0], came_ns, taken_ns);
    let waits = [came(1), queued(1, 60), copied(1, 60), freed(1, false)];
    assert_eq!(told(&waits), [card(2, 3)]);
    // The host's own packet comes from no card.
    assert_eq!(told(&waits[1..]), [card(1, 2)]);
    // A bridge puts it into the queue of a bond, and this one into that of a card.
    let twice = [queued(1, 60), queued(1, 60), copied(1, 60)];
    assert_eq!(told(&twice), [card(2, 3)]);
    for gone in [freed(1, true), freed(1, false), came(1), copied(1, 46)] {
        assert_eq!(told(&[queued(1, 60), gone, copied(1, 60)]), [], "{gone:?}");
    }
    assert_eq!(told(&[queued(1, 60), copied(2, 60)]), []);
    // A macvtap has no queue that a packet is put into.
    let above = [frame_came(1, 60), copied(1, 60)];
    assert_eq!(told(&above), [card(1, 2)]);
    for gone in [freed(1, true), freed(1, false), came(1), copied(1, 46)] {
        assert_eq!(told(&[above[0], gone, above[1]]), [], "{gone:?}");
    }
}

const fn freed_by(buffer: i64, thread: i64) -> What {
    What::Freed {
        buffer,
        is_dropped: true,
        thread: Some(thread),
    }
}

#[test]
fn a_packet_waits_until_netback_copies_it() {
    let [netback, other] = SERVES;
    let card = |came_ns, taken_ns| taken(Source::Cards(netback), netback, came_ns, taken_ns);
    let granted = What::Granted { thread: netback };
    let one = [queued(1, 60), granted, freed_by(1, netback)];
    assert_eq!(told(&one), [card(1, 2)]);
    // Those that are copied together are freed one after the other; the next ones are copied later.
    let two = [
        queued(1, 60),
        queued(2, 60),
        granted,
        freed_by(1, netback),
        queued(3, 60),
    ];
    let then = [freed_by(2, netback), granted, freed_by(3, netback)];
    let all = [card(1, 3), card(2, 3), card(5, 7)];
    assert_eq!(told(&[&two[..], &then].concat()), all);
    // It is gone when an interrupt or another thread frees it, or if it came when all had been copied.
    for gone in [freed(1, true), freed_by(1, other)] {
        assert_eq!(
            told(&[queued(1, 60), granted, gone, freed_by(1, netback)]),
            [],
            "{gone:?}"
        );
    }
    assert_eq!(told(&[granted, queued(1, 60), freed_by(1, netback)]), []);
    assert_eq!(told(&[granted, freed_by(1, netback)]), []);
}

/// An event of the network in tracefs's words: its own fields behind those that all have.
fn format(name: &str, number: u16, fields: &str) -> String {
    format!(
        "name: {name}\nID: {number}\nformat:\n\tfield:unsigned short common_type;\toffset:0;\tsize:2;\tsigned:0;\n\
         \tfield:unsigned char common_flags;\toffset:2;\tsize:1;\tsigned:0;\n\
         \tfield:int common_pid;\toffset:4;\tsize:4;\tsigned:1;\n\n{fields}"
    )
}

#[test]
fn what_interrupts_do_is_not_of_the_thread() {
    let buffer = "\tfield:void * skbaddr;\toffset:8;\tsize:8;\tsigned:0;\n";
    let bytes = "\tfield:unsigned int len;\toffset:16;\tsize:4;\tsigned:0;\n";
    let texts = [
        format("net_dev_queue", 10, &format!("{buffer}{bytes}")),
        format("kfree_skb", 11, buffer),
        format("consume_skb", 12, buffer),
        format("netback_copied", 13, ""),
    ];
    let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
    // Without the copies of netback and of vhost there is nobody who takes a packet.
    let found = Network::new(&texts[..3]).expect("the formats are whole");
    assert!(found.is_none());
    let network = Network::new(&texts).expect("the formats are whole");
    let network = network.expect("netback is told");
    let what = |number: u16, flags: u8| {
        let mut event = [0_u8; 24];
        event[..2].copy_from_slice(&number.to_le_bytes());
        event[2] = flags;
        event[4] = 70;
        (event[8], event[16]) = (5, 60);
        network.what(&event).expect("the event is whole")
    };
    let [netback, _] = SERVES;
    assert_eq!(what(10, 0x11), Some(queued(5, 60)));
    // Interrupts off, and a need to let others run, are not interrupts.
    assert_eq!(what(11, 0x05), Some(freed_by(5, netback)));
    assert_eq!(what(13, 0x01), Some(What::Granted { thread: netback }));
    for interrupt in [0x08, 0x10, 0x19] {
        assert_eq!(what(11, interrupt), Some(freed(5, true)));
        assert_eq!(what(12, interrupt), Some(freed(5, false)));
        assert_eq!(what(13, interrupt), None);
    }
    assert_eq!(what(14, 0), None);
}

#[test]
fn a_packet_waits_in_a_socket() {
    let socket = |came_ns, taken_ns| taken(Source::Socket(9), ASKS[0], came_ns, taken_ns);
    let one = [came(1), ready(9)];
    let with = |rest: &[What]| told(&[&one[..], rest].concat());
    assert_eq!(with(&[asked(9, 172, 0)]), [socket(1, 3)]);
    // Older kernels free it before they say that it was taken; an empty packet is one, too.
    assert_eq!(with(&[freed(1, false), asked(9, 0, 0)]), [socket(1, 4)]);
    for nothing in [
        asked(8, 172, 0),
        asked(9, 172, PEEK),
        asked(9, 172, ERROR_QUEUE),
        asked(9, -14, 0),
    ] {
        assert_eq!(with(&[nothing]), [], "{nothing:?}");
        assert_eq!(with(&[nothing, asked(9, 1, 0)]), [socket(1, 4)]);
    }
    for gone in [
        freed(1, true),
        came(1),
        queued(1, 60),
        asked(9, NONE_THERE, 0),
    ] {
        assert_eq!(with(&[gone, asked(9, 172, 0)]), [], "{gone:?}");
    }
    // The first is the first that is taken.
    let two = [came(2), ready(9), asked(9, 1, 0), asked(9, 1, 0)];
    assert_eq!(with(&two), [socket(1, 5), socket(3, 6)]);
    // Parts of one buffer, of which only the first came by itself.
    assert_eq!(
        with(&[ready(9), asked(9, 1, 0), asked(9, 1, 0)]),
        [socket(1, 4), socket(3, 5)]
    );
    // A thread is faster than the kernel's word, and asks for more.
    let fast = [
        came(1),
        asked(9, 1, 0),
        asked(9, NONE_THERE, 0),
        ready(9),
        asked(9, 1, 0),
    ];
    assert_eq!(told(&fast), [socket(1, 2)]);
    // The packet that was taken first was there before the recording.
    assert_eq!(
        told(&[asked(9, 1, 0), came(1), ready(9), asked(9, 1, 0)]),
        [socket(2, 4)]
    );
}

fn record(time_ns: i64, kind: Kind, (domain, vcpu): (u16, u16)) -> Record {
    Record {
        time_ns,
        argument: 0,
        cpu: NONE,
        domain,
        vcpu,
        kind,
    }
}

/// Domain 0 is a virtual machine with two VCPUs, whose worker is VCPU 3 of the programs in domain 2. Domain 1 has a
/// thread of its own that asks sockets.
fn takers() -> Takers {
    let worker = Taker {
        domain: 0,
        vcpu: (2, 3),
    };
    let own = Taker {
        domain: 1,
        vcpu: (1, 0),
    };
    Takers {
        of_threads: HashMap::from([(SERVES[0], worker), (ASKS[0], own)]),
        vcpus: vec![2, 1, 4],
    }
}

#[test]
fn late_packets_wait_until_their_domain_has_them() {
    let runs = [
        record(0, Kind::Run, (0, 0)),
        record(5, Kind::Run, (0, 0)), // it goes on
        record(20, Kind::Stop, (0, 0)),
        record(40, Kind::Run, (0, 1)),
        record(45, Kind::Run, (0, 0)),
        record(50, Kind::Stop, (0, 1)),
        record(60, Kind::Stop, (0, 0)),
    ];
    let at = |time_ns, what| Seen {
        time_ns,
        cpu: 0,
        what,
    };
    let other = What::Copied {
        buffer: 7,
        bytes: 1,
        thread: SERVES[1],
    };
    let seen = vec![
        at(-3, queued(1, 1)), // before the run
        at(1, copied(1, 1)),
        at(2, queued(2, 1)), // late: the worker takes it while a VCPU runs
        at(14, copied(2, 1)),
        at(15, queued(3, 1)), // in time, to the ns
        at(25, copied(4, 1)),
        at(19, queued(4, 1)),
        at(19, copied(3, 1)),
        at(26, queued(5, 1)), // late, since no VCPU ran
        at(31, copied(5, 1)),
        at(30, queued(6, 1)), // late, and no VCPU runs any more
        at(61, copied(6, 1)),
        at(31, queued(7, 1)), // nobody's
        at(62, other),
        at(63, came(8)), // late in a socket
        at(64, ready(9)),
        at(74, asked(9, 1, 0)),
        at(75, came(8)), // in time in a socket
        at(75, ready(9)),
        at(85, asked(9, 1, 0)),
        at(75, came(8)), // late in another socket, and taken when the run is over
        at(76, ready(10)),
        at(101, asked(10, 1, 0)),
    ];
    let worker = |stream, number, since_ns, rest: &[(Place, (u16, u16), i64)], end_ns| Delivery {
        domain: 0,
        stream,
        number,
        places: [&[(Place::ToGuest, (2, 3), since_ns)], rest].concat(),
        end_ns,
        is_unfinished: false,
    };
    let expected = [
        worker(0, 0, 2, &[], 14),
        worker(0, 2, 19, &[(Place::Socket, (0, 1), 25)], 40),
        worker(0, 3, 26, &[(Place::Socket, (0, 1), 31)], 40),
        Delivery {
            is_unfinished: true,
            ..worker(0, 4, 30, &[(Place::Socket, (0, 0), 61)], 100)
        },
        Delivery {
            domain: 1,
            stream: 0,
            number: 0,
            places: vec![(Place::Socket, (1, 0), 63)],
            end_ns: 74,
            is_unfinished: false,
        },
    ];
    let found = delivered(seen, &takers(), &runs, (10, 100));
    assert_eq!(found.late, expected);
    assert_eq!(found.counts, [5, 2, 0], "late or not, in the run");
}

/// Buffers of the small kernel.
const BUFFERS: usize = 6;
const SOCKETS: [i64; 2] = [9, 10];
const CPUS: u8 = 2;

/// A packet in a card or socket: when it came, and where it is.
#[derive(Debug, Clone, Copy)]
struct Held {
    came_ns: i64,
    buffer: Option<usize>,
    bytes: i64,
}

/// A kernel that keeps its packets itself, and says of them what Linux does. Each thing happens at a time of its own,
/// so that a packet is known by when it came.
struct Kernel {
    seen: Vec<Seen>,
    is_used: [bool; BUFFERS],
    cards: [VecDeque<Held>; 2],
    sockets: [VecDeque<Held>; 2],
    /// Buffers that are freed later.
    deferred: Vec<usize>,
    /// What was taken, and what came before the recording.
    taken: Vec<Taken>,
    /// When a socket was known to be empty for the first time; 0 if it was from the beginning.
    known_since_ns: [i64; 2],
}

impl Kernel {
    fn new(before: [u8; 2]) -> Kernel {
        let unknown = |packets: u8| {
            let held = Held {
                came_ns: -1,
                buffer: None,
                bytes: 1,
            };
            VecDeque::from(vec![held; usize::from(packets % 3)])
        };
        let sockets = before.map(unknown);
        let known_since_ns = [0, 1].map(
            |at: usize| {
                if sockets[at].is_empty() { 0 } else { i64::MAX }
            },
        );
        Kernel {
            seen: Vec::new(),
            is_used: [false; BUFFERS],
            cards: Default::default(),
            sockets,
            deferred: Vec::new(),
            taken: Vec::new(),
            known_since_ns,
        }
    }

    fn say(&mut self, cpu: u8, what: What) -> i64 {
        let time_ns = self.seen.len() as i64 + 1;
        let cpu = u16::from(cpu % CPUS);
        self.seen.push(Seen { time_ns, cpu, what });
        time_ns
    }

    /// A buffer that is free, which one by chance.
    fn buffer(&mut self, drawn: u8) -> Option<usize> {
        let free: Vec<usize> = (0..BUFFERS).filter(|&at| !self.is_used[at]).collect();
        let buffer = *free.get(usize::from(drawn) % free.len().max(1))?;
        self.is_used[buffer] = true;
        Some(buffer)
    }

    fn free(&mut self, buffer: usize) {
        self.is_used[buffer] = false;
    }

    fn freed(&mut self, buffer: usize, is_dropped: bool) {
        self.say(0, freed(buffer as i64, is_dropped));
        self.free(buffer);
    }

    /// A packet comes for a tap, from another card or from the host itself, for the wire, or for a macvtap.
    fn comes_for_card(&mut self, (cpu, card, drawn, how): (u8, usize, u8, u8)) {
        let Some(buffer) = self.buffer(drawn) else {
            return;
        };
        let bytes = 60 + i64::from(drawn % 2);
        let mut came_ns = 0;
        if how % 2 == 0 {
            came_ns = self.say(cpu, frame_came(buffer as i64, bytes));
        }
        if how % 2 == 1 || how / 8 % 2 == 0 {
            came_ns = self.say(cpu, queued(buffer as i64, bytes));
        }
        match how % 8 {
            0..5 => self.cards[card].push_back(Held {
                came_ns,
                buffer: Some(buffer),
                bytes,
            }),
            5 => self.freed(buffer, true),
            _ => self.freed(buffer, false),
        }
    }

    fn leaves_card(&mut self, card: usize) {
        let Some(Held {
            came_ns,
            buffer: Some(buffer),
            bytes,
        }) = self.cards[card].pop_front()
        else {
            return;
        };
        let thread = SERVES[card];
        let what = What::Copied {
            buffer: buffer as i64,
            bytes,
            thread,
        };
        let taken_ns = self.say(0, what);
        self.taken
            .push(taken(Source::Cards(thread), thread, came_ns, taken_ns));
        self.freed(buffer, false);
    }

    /// Something else has a buffer: a packet of TCP, which nobody says is freed, or a message between processes.
    fn other(&mut self, (cpu, drawn, how): (u8, u8, u8)) {
        let Some(buffer) = self.buffer(drawn) else {
            return;
        };
        if how % 2 == 0 {
            self.say(cpu, came(buffer as i64));
        }
        if how % 4 < 2 {
            self.say(cpu, copied(buffer as i64, 60 + i64::from(how % 3 == 0)));
        }
        if how % 3 == 0 {
            self.freed(buffer, false);
        } else {
            self.free(buffer);
        }
    }

    /// A packet comes for a socket. Before the kernel says so, a thread may have asked for it; then come others that
    /// were parts of the same.
    fn comes_for_socket(&mut self, (cpu, at, drawn, how): (u8, usize, u8, u8)) {
        let Some(buffer) = self.buffer(drawn) else {
            return;
        };
        let came_ns = self.say(cpu, came(buffer as i64));
        if how % 8 == 0 {
            return self.freed(buffer, true);
        }
        self.sockets[at].push_back(Held {
            came_ns,
            buffer: Some(buffer),
            bytes: 1,
        });
        if how % 8 == 1 {
            self.ask((cpu.wrapping_add(1), at, how / 8));
        }
        self.say(cpu, ready(SOCKETS[at]));
        if how % 8 == 2 {
            let came_ns = self.say(cpu, ready(SOCKETS[at]));
            self.sockets[at].push_back(Held {
                came_ns,
                buffer: None,
                bytes: 1,
            });
        }
    }

    fn ask(&mut self, (cpu, at, how): (u8, usize, u8)) {
        let (socket, thread) = (SOCKETS[at], ASKS[usize::from(how) % 2]);
        let result = |result, flags| What::Asked {
            socket,
            thread,
            result,
            flags,
        };
        let Some(&Held {
            came_ns, buffer, ..
        }) = self.sockets[at].front()
        else {
            if how % 3 > 0 {
                let time_ns = self.say(cpu, result(NONE_THERE, 0));
                self.known_since_ns[at] = self.known_since_ns[at].min(time_ns);
            }
            return;
        };
        if how % 7 == 0 {
            self.say(cpu, result(1, PEEK));
            return;
        }
        self.sockets[at].pop_front();
        if how % 7 == 1
            && let Some(buffer) = buffer
        {
            // Its memory could not be written.
            self.freed(buffer, true);
            self.say(cpu, result(-14, 0));
            return;
        }
        if let Some(buffer) = buffer {
            match how % 4 {
                0 => self.say(cpu, freed(buffer as i64, false)),
                1 => 0,
                _ => {
                    self.deferred.push(buffer);
                    0
                }
            };
        }
        let taken_ns = self.say(cpu, result(1, 0));
        self.taken
            .push(taken(Source::Socket(socket), thread, came_ns, taken_ns));
        if let Some(buffer) = buffer.filter(|_| how % 4 < 2) {
            self.free(buffer);
        }
    }

    /// A socket ends, and another begins at its address.
    fn close(&mut self, at: usize) {
        while let Some(held) = self.sockets[at].pop_front() {
            if let Some(buffer) = held.buffer {
                self.freed(buffer, true);
            }
        }
    }

    fn step(&mut self, (kind, cpu, which, drawn, how): Step) {
        let at = usize::from(which) % 2;
        match kind % 16 {
            0..3 => self.comes_for_card((cpu, at, drawn, how)),
            3..6 => self.leaves_card(at),
            6 => self.other((cpu, drawn, how)),
            7..10 => self.comes_for_socket((cpu, at, drawn, how)),
            10..14 => self.ask((cpu, at, how)),
            14 => {
                if let Some(buffer) = self.deferred.pop() {
                    self.freed(buffer, false);
                }
            }
            // Parts without a buffer of their own would be freed without a word that tells which they were.
            _ if self.sockets[at].iter().all(|held| held.buffer.is_some()) => self.close(at),
            _ => {}
        }
    }
}

type Step = (u8, u8, u8, u8, u8);

proptest! {
    /// What is told of cards is what happened, and so is what is told of sockets from when they are known to be empty.
    /// Before that a packet waited for at least as long as is told.
    #[test]
    fn packets_are_those_that_a_kernel_had(
        before in any::<[u8; 2]>(),
        steps in prop::collection::vec(any::<Step>(), 1..300),
    ) {
        let mut kernel = Kernel::new(before);
        steps.into_iter().for_each(|step| kernel.step(step));
        let mut pairing = Pairing::default();
        let mut told: Vec<Taken> =
            kernel.seen.iter().filter_map(|seen| pairing.see(seen)).collect();
        told.sort_by_key(|taken| taken.taken_ns);
        let is_known = |taken: &&Taken| match taken.source {
            Source::Cards(_) => true,
            Source::Socket(socket) => {
                let at = SOCKETS.iter().position(|&own| own == socket).expect("it is one");
                taken.came_ns > kernel.known_since_ns[at]
            }
        };
        let known = |all: &[Taken]| -> Vec<Taken> {
            all.iter().filter(is_known).copied().collect()
        };
        prop_assert_eq!(known(&told), known(&kernel.taken));
        for one in &told {
            let when = (kernel.taken.iter())
                .find(|taken| (taken.source, taken.came_ns) == (one.source, one.came_ns));
            if let Some(when) = when {
                prop_assert!(one.taken_ns <= when.taken_ns);
            }
            prop_assert!(one.came_ns <= one.taken_ns);
        }
    }
}
