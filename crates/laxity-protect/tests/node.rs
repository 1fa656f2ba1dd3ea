//! A node's refusals with their notices, and an epoch of each mode, action by action.

use laxity_protect::protocol::checkpoint::Digest;
use laxity_protect::protocol::message::{Held, Standing};
use laxity_protect::protocol::{
    Action, CheckpointId, Event, Header, Hello, Message, Mode, Node, Notice, Order, Output, Part,
    Reason, Record, Settings, StandbyLost, State, Unworkable, Verdict, interval,
};

const SETTINGS: Settings = Settings {
    vm: 1,
    mode: Mode::Net,
    standby_lost: StandbyLost::Stop,
    witness: false,
    heartbeat_ns: 10,
    detection_ns: 30,
    detection_min_ns: 30,
    lease_ns: 100,
    settling_ns: 400,
    stall_ns: 1_000,
    drift_ppm: 100_000,
    checkpoint_bytes_max: 1 << 20,
    interval: interval::Bounds {
        minimum_ns: 5,
        maximum_ns: 50,
        pause_share_percent: 10,
    },
};

/// A node on host 1, and the test in the role of host 2.
struct Side {
    node: Node,
    now_ns: i64,
}

impl Side {
    fn new(settings: Settings) -> Side {
        settings.check().unwrap();
        let mut side = Side {
            node: Node::new(settings, 1, 11, Record::default(), 0),
            now_ns: 0,
        };
        side.handle(Event::Connected { connection: 1 });
        side
    }

    fn standby(settings: Settings) -> Side {
        let mut side = Side::new(settings);
        side.hear(hello(settings, 1, Standing::Primary));
        side
    }

    /// A primary with a standby that follows, during the first capture.
    fn primary(settings: Settings) -> Side {
        let mut side = Side::new(settings);
        let mut actions = side.handle(Event::Order(Order::Start { alone: true }));
        if settings.witness {
            let verdict = Verdict::Granted { term: 1 };
            actions = side.handle(Event::Verdict {
                expected: 0,
                verdict,
            });
        }
        assert!(actions.contains(&Action::Boot), "{actions:?}");
        side.handle(Event::Activated);
        let actions = side.hear(hello(settings, 1, NOTHING));
        assert!(
            actions.contains(&Action::Capture {
                number: 1,
                full: true,
                arms: false,
            }),
            "{actions:?}"
        );
        side
    }

    fn handle(&mut self, event: Event) -> Vec<Action> {
        let mut actions = Vec::new();
        self.node.handle(self.now_ns, event, &mut actions);
        actions
    }

    fn hear(&mut self, message: Message) -> Vec<Action> {
        self.handle(Event::Received {
            connection: 1,
            message,
        })
    }

    fn wait(&mut self, time_ns: i64) -> Vec<Action> {
        self.now_ns += time_ns;
        self.handle(Event::Timer)
    }

    /// Delivers a complete checkpoint. Returns the actions after its last message.
    fn hear_checkpoint(&mut self, header: Header) -> Vec<Action> {
        let mut digest = Digest::new(&header);
        let begun = self.hear(Message::Begin(header));
        assert_eq!(begun.contains(&Action::Sum(header.id)), header.full);
        for part in [Part::Ram, Part::Device, Part::Disk] {
            digest.add(part, b"state");
            assert_eq!(
                self.hear(Message::Chunk(part, b"state")),
                [Action::Stage(part)]
            );
        }
        self.hear(Message::End {
            id: header.id,
            checksum: digest.finish(),
        })
    }

    fn captured(&mut self, number: u64) -> Vec<Action> {
        self.handle(Event::Captured {
            number,
            ram_bytes: 5,
            device_bytes: 5,
            disk_bytes: 5,
            disk_left_bytes: 0,
            pause_ns: 0,
        })
    }

    /// Checks that the node closes the connection, for this reason.
    fn refuses(&mut self, message: Message, why: &str) {
        let actions = self.hear(message);
        let notice = actions.iter().find_map(|action| match action {
            Action::Say(Notice::OutOfPlace(notice)) => Some(*notice),
            _ => None,
        });
        assert_eq!(notice, Some(why), "{actions:?}");
        assert!(actions.contains(&Action::Disconnect), "{actions:?}");
    }
}

const NOTHING: Standing = Standing::Standby {
    held: None,
    claiming: false,
    unheard: false,
};

/// A standby that could take over from the checkpoint of this number.
fn armed(number: u64) -> Standing {
    Standing::Standby {
        held: Some(Held {
            id: id(1, number),
            armed: true,
        }),
        claiming: false,
        unheard: false,
    }
}

fn id(term: u64, number: u64) -> CheckpointId {
    CheckpointId { term, number }
}

fn hello(settings: Settings, term: u64, standing: Standing) -> Message<'static> {
    Message::Hello(Hello {
        vm: settings.vm,
        mode: settings.mode,
        witness: settings.witness,
        lease_ns: settings.lease_ns,
        host: 2,
        incarnation: 22,
        term,
        standing,
        connection: 5,
        answers: Some(1),
    })
}

fn header(number: u64, full: bool, arms: bool) -> Header {
    Header {
        id: id(1, number),
        full,
        arms,
        lease_ns: 0,
        ram_bytes: 5,
        device_bytes: 5,
        disk_bytes: 5,
    }
}

fn leased(header: Header, lease_ns: i64) -> Header {
    Header { lease_ns, ..header }
}

#[test]
fn settings_that_cannot_work() {
    let wrong = Settings {
        mode: Mode::NoNet,
        heartbeat_ns: 11,
        lease_ns: 99,
        drift_ppm: -1,
        interval: interval::Bounds {
            minimum_ns: 51,
            maximum_ns: 50,
            pause_share_percent: 100,
        },
        ..SETTINGS
    };
    let unworkable = wrong.check().unwrap_err();
    assert_eq!(unworkable.len(), 5, "{unworkable:#?}");
    assert_eq!(
        unworkable[1].to_string(),
        "the lease (99 ns) must be at least twice the longest interval (50 ns)"
    );
    let no_heart = Settings {
        heartbeat_ns: 0,
        ..SETTINGS
    };
    assert_eq!(
        no_heart.check(),
        Err(vec![Unworkable::NotPositive("heartbeat")])
    );
    let net = Settings {
        lease_ns: 0,
        ..SETTINGS
    };
    assert_eq!(net.check(), Ok(()), "nobody needs a lease in Net mode");
}

#[test]
fn sides_that_do_not_agree() {
    let others = [
        Settings { vm: 2, ..SETTINGS },
        Settings {
            mode: Mode::NoNet,
            ..SETTINGS
        },
        Settings {
            witness: true,
            ..SETTINGS
        },
        Settings {
            lease_ns: 101,
            ..SETTINGS
        },
    ];
    for other in others {
        let actions = Side::new(SETTINGS).hear(hello(other, 1, NOTHING));
        assert_eq!(
            actions,
            [Action::Say(Notice::Disagrees), Action::Disconnect],
            "{other:?}"
        );
    }
}

#[test]
fn a_standby_takes_only_what_follows() {
    let mut side = Side::new(SETTINGS);
    side.refuses(Message::Heartbeat, "its first message was not a greeting");
    let begin = |header| Message::Begin(header);
    let after_one = |arms| {
        let mut side = Side::standby(SETTINGS);
        let actions = side.hear_checkpoint(header(1, true, arms));
        let acknowledge = Action::Send(Message::Acknowledge(id(1, 1)));
        let rest: Vec<_> = actions
            .into_iter()
            .filter(|action| !matches!(action, Action::Say(_)))
            .collect();
        assert_eq!(rest, [acknowledge, Action::Commit(id(1, 1))]);
        side
    };
    let of_another = Header {
        id: id(2, 2),
        ..header(2, true, false)
    };
    after_one(false).refuses(begin(of_another), "a checkpoint is of another term");
    let large = |[ram_bytes, device_bytes, disk_bytes]: [u64; 3]| Header {
        ram_bytes,
        device_bytes,
        disk_bytes,
        ..header(2, true, false)
    };
    for bytes in [
        [1 << 20, 1, 0],
        [1, 1 << 20, 0],
        [1, 0, 1 << 20],
        [u64::MAX; 3],
    ] {
        let why = "a checkpoint is larger than the guest";
        after_one(false).refuses(begin(large(bytes)), why);
    }
    let gap = "a checkpoint does not follow the one that this host has";
    after_one(false).refuses(begin(header(3, false, false)), gap);
    Side::standby(SETTINGS).refuses(begin(header(1, false, false)), gap);
    let worse = "a checkpoint would replace the one that this host is ready to take over from";
    after_one(true).refuses(begin(header(2, false, false)), worse);
    after_one(true).refuses(begin(header(2, true, true)), worse);
    let mut side = after_one(true);
    side.hear(begin(header(2, false, true)));
    side.refuses(
        begin(header(2, false, true)),
        "a checkpoint begins inside another one",
    );
    let mut side = after_one(true);
    side.hear(begin(header(2, false, true)));
    side.refuses(
        Message::Chunk(Part::Ram, b"too much"),
        "a checkpoint is longer than announced",
    );
    let mut side = after_one(true);
    side.hear(begin(header(2, false, true)));
    let actions = side.hear(Message::End {
        id: id(1, 2),
        checksum: 0,
    });
    assert!(actions.contains(&Action::Send(Message::Reject(id(1, 2), Reason::Corrupt))));
    assert!(actions.contains(&Action::Discard) && actions.contains(&Action::Disconnect));
    after_one(true).refuses(
        Message::Handover(id(1, 2)),
        "a switchover names a checkpoint that this host does not have",
    );
    after_one(true).refuses(
        Message::Acknowledge(id(1, 1)),
        "it sent a message that only a standby sends",
    );
}

#[test]
fn orders_that_are_impossible() {
    let impossible = |actions: Vec<Action>| {
        actions
            .into_iter()
            .any(|action| matches!(action, Action::Say(Notice::Impossible(_))))
    };
    let mut standby = Side::standby(SETTINGS);
    let mut primary = Side::primary(SETTINGS);
    let mut fresh = Side::new(SETTINGS);
    for order in [
        Order::Switchover,
        Order::Unprotect,
        Order::Protect,
        Order::GoOn,
    ] {
        assert!(impossible(standby.handle(Event::Order(order))), "{order:?}");
        assert!(impossible(fresh.handle(Event::Order(order))), "{order:?}");
    }
    let start = Order::Start { alone: false };
    for order in [start, Order::Switchover, Order::GoOn] {
        assert!(impossible(primary.handle(Event::Order(order))), "{order:?}");
    }
    assert!(impossible(standby.handle(Event::Order(start))));
    assert!(
        impossible(fresh.handle(Event::Order(start))),
        "the other host has not said anything"
    );
    fresh.hear(hello(SETTINGS, 0, NOTHING));
    assert!(fresh.handle(Event::Order(start)).contains(&Action::Boot));
}

/// Goes from the first capture to an armed standby, with the next checkpoint being sent.
fn protect(side: &mut Side) -> Vec<Action> {
    side.captured(1);
    side.hear(Message::Acknowledge(id(1, 1)));
    let capture = Action::Capture {
        number: 2,
        full: false,
        arms: true,
    };
    while !side.wait(1).contains(&capture) {
        assert!(side.now_ns < 100, "it is never due");
    }
    side.captured(2)
}

#[test]
fn an_epoch_in_net_mode() {
    let mut side = Side::primary(SETTINGS);
    let actions = protect(&mut side);
    let sent = Action::SendCheckpoint(header(2, false, true));
    assert_eq!(
        actions,
        [Action::Output(Output::Hold), Action::Resume, sent]
    );
    // The standby might take over or not: the checkpoint that arms it may never arrive.
    assert_eq!(side.node.status().state, State::Copying);
    side.now_ns += 1;
    let actions = side.hear(Message::Acknowledge(id(1, 2)));
    let protected = Action::Say(Notice::Protected(id(1, 2)));
    assert_eq!(actions, [protected, Action::Release { through: 2 }]);
    assert_eq!(side.node.status().state, State::Protected);
    side.refuses(
        Message::Acknowledge(id(1, 2)),
        "an acknowledgement names a checkpoint that was not sent",
    );
}

#[test]
fn an_epoch_in_no_net_mode() {
    let settings = Settings {
        mode: Mode::NoNet,
        ..SETTINGS
    };
    let until = |deadline_ns| Action::Output(Output::Until { deadline_ns });
    let mut side = Side::primary(settings);
    let actions = protect(&mut side);
    let sent = Action::SendCheckpoint(leased(header(2, false, true), 100));
    assert_eq!(actions, [until(105), Action::Resume, sent]);
    side.now_ns += 9;
    side.hear(Message::Acknowledge(id(1, 2)));
    assert!(side.wait(0).is_empty());
    side.wait(6);
    side.captured(3);
    side.now_ns += 4;
    let actions = side.hear(Message::Acknowledge(id(1, 3)));
    assert!(
        actions.contains(&until(120)),
        "from the capture on, at 20: {actions:?}"
    );
}

#[test]
fn a_standby_waits_for_silence_and_for_the_lease() {
    for (mode, taken_over_ns) in [(Mode::Net, 30), (Mode::NoNet, 111)] {
        let settings = Settings { mode, ..SETTINGS };
        let mut side = Side::standby(settings);
        side.hear_checkpoint(header(1, true, false));
        let lease_ns = if mode == Mode::NoNet { 100 } else { 0 };
        side.hear_checkpoint(leased(header(2, false, true), lease_ns));
        let mut actions = Vec::new();
        while !actions.contains(&Action::Activate(id(1, 2))) {
            actions = side.wait(1);
            assert!(side.now_ns < 200, "it never takes over");
        }
        assert_eq!(side.now_ns, taken_over_ns, "{mode:?}");
        let persisted = actions
            .iter()
            .position(|&action| action == Action::Persist(Record { term: 2 }));
        let activated = actions
            .iter()
            .position(|&action| action == Action::Activate(id(1, 2)));
        assert!(persisted.unwrap() < activated.unwrap(), "{actions:?}");
        let actions = side.handle(Event::Activated);
        assert!(actions.starts_with(&[Action::Output(Output::Open), Action::Announce]));
    }
}

/// The leases of a primary that begins a checkpoint each 10 ns, which its standby acknowledges after so long.
fn leases(settings: Settings, acknowledged_after_ns: &[i64]) -> Vec<i64> {
    let mut side = Side::primary(settings);
    protect(&mut side);
    let mut leases = Vec::new();
    for (number, after_ns) in (2..).zip(acknowledged_after_ns) {
        side.now_ns += after_ns;
        side.hear(Message::Acknowledge(id(1, number)));
        side.now_ns += 10 - after_ns;
        side.handle(Event::Timer);
        let actions = side.captured(number + 1);
        leases.extend(actions.iter().find_map(|action| match action {
            Action::SendCheckpoint(header) => Some(header.lease_ns),
            _ => None,
        }));
    }
    leases
}

#[test]
fn a_lease_is_as_long_as_acknowledgements_are_late() {
    let settings = Settings {
        mode: Mode::NoNet,
        detection_ns: 300,
        ..SETTINGS
    };
    // Each checkpoint begins 5 ns late and is acknowledged 1 ns later, but for one while the copy is fresh. After
    // these 400 ns there have to be 100 ns of which it is known.
    let settling = [&[1; 20][..], &[9], &[1; 19]].concat();
    let after = |interval_ns: i64, acknowledged: &[i64]| {
        let all = [&settling[..], &[1; 12], acknowledged].concat();
        let settings = Settings {
            interval: interval::Bounds {
                minimum_ns: interval_ns,
                ..settings.interval
            },
            ..settings
        };
        let mut leases = leases(settings, &all);
        leases.split_off(settling.len())
    };
    let even = after(5, &[1; 4]);
    assert_eq!(even[..9], [100; 9], "until it is known: {even:?}");
    assert_eq!(even[12..], [5 + 2 * 6; 4], "an interval, and twice that");
    let late = after(5, &[9, 1, 1]);
    assert_eq!(late[12..], [5 + 2 * 14; 3], "a delay is remembered");
    let long = after(10, &[1; 99]);
    assert_eq!(long.last(), Some(&(2 * 10)), "two intervals: {long:?}");
    let net = Settings {
        mode: Mode::Net,
        ..settings
    };
    assert_eq!(leases(net, &[1; 99]), [0; 99]);
}

/// The time from a checkpoint to the next one, of a primary whose guest stands still that long for the last ones.
fn intervals(settings: Settings, pauses_ns: &[i64]) -> Vec<i64> {
    let mut side = Side::primary(settings);
    protect(&mut side);
    let mut intervals = Vec::new();
    for (number, &pause_ns) in (3..).zip(pauses_ns) {
        let begun_ns = side.now_ns;
        side.hear(Message::Acknowledge(id(1, number - 1)));
        let is_due = |actions: &[Action]| {
            let mut actions = actions.iter();
            actions.any(|action| matches!(action, Action::Capture { .. }))
        };
        while !is_due(&side.wait(1)) {
            side.hear(Message::Heartbeat);
            assert!(side.now_ns < begun_ns + 1000, "it is never due");
        }
        intervals.push(side.now_ns - begun_ns);
        side.handle(Event::Captured {
            number,
            ram_bytes: 5,
            device_bytes: 5,
            disk_bytes: 5,
            disk_left_bytes: 0,
            pause_ns,
        });
    }
    intervals
}

#[test]
fn a_single_long_pause_makes_no_epoch_longer() {
    assert_eq!(intervals(SETTINGS, &[0, 0, 4, 0, 0, 0]), [5; 6]);
    assert_eq!(
        intervals(SETTINGS, &[0, 0, 4, 3, 3, 3]),
        [5, 5, 5, 5, 30, 30]
    );
}

#[test]
fn a_longer_interval_begins_with_a_lease_that_allows_for_it() {
    let settings = Settings {
        mode: Mode::NoNet,
        detection_ns: 300,
        settling_ns: 0,
        interval: interval::Bounds {
            minimum_ns: 10,
            ..SETTINGS.interval
        },
        ..SETTINGS
    };
    // Nothing is late, so that a lease is two intervals once that is known.
    let pauses_ns = [&[0; 100][..], &[4; 4]].concat();
    let intervals = intervals(settings, &pauses_ns);
    assert_eq!(intervals[100..], [10, 10, 10, 40], "{intervals:?}");
}

#[test]
fn a_standby_waits_for_the_lease_that_ends_last() {
    let settings = Settings {
        mode: Mode::NoNet,
        drift_ppm: 0,
        ..SETTINGS
    };
    // After a lease of 100 ns from time 0 on, another 20 ns later.
    for (lease_ns, taken_over_ns) in [(30, 101), (80, 101), (90, 111)] {
        let mut side = Side::standby(settings);
        side.hear_checkpoint(leased(header(1, true, false), 100));
        side.hear_checkpoint(leased(header(2, false, true), 100));
        side.wait(10);
        side.wait(10);
        side.hear_checkpoint(leased(header(3, false, true), lease_ns));
        assert_eq!(
            taken_over_after_ns(side, 3) + 20,
            taken_over_ns,
            "{lease_ns}"
        );
    }
    // A standby that did not run waits for all of what was left of them then.
    let mut side = Side::standby(settings);
    side.hear_checkpoint(leased(header(1, true, false), 100));
    side.hear_checkpoint(leased(header(2, false, true), 100));
    side.wait(1000);
    assert_eq!(taken_over_after_ns(side, 2), 101);
}

#[test]
fn a_lease_beyond_what_was_agreed_is_refused() {
    for lease_ns in [101, -1, i64::MAX, i64::MIN] {
        let mut side = Side::standby(SETTINGS);
        side.hear_checkpoint(header(1, true, false));
        side.refuses(
            Message::Begin(leased(header(2, false, true), lease_ns)),
            "a checkpoint has a longer lease than this host agrees to",
        );
    }
}

/// A standby that falls silent is missed as soon as a primary would be, if a witness excludes it.
#[test]
fn a_primary_with_a_witness_is_as_patient_as_its_standby_is_uneven() {
    for (witness, standby_lost, missed_after_ns) in [
        (true, StandbyLost::Continue, 30),
        (true, StandbyLost::Stop, 300),
        (false, StandbyLost::Continue, 300),
    ] {
        let mut side = Side::primary(Settings {
            witness,
            standby_lost,
            detection_ns: 300,
            ..SETTINGS
        });
        protect(&mut side);
        side.hear(Message::Acknowledge(id(1, 2)));
        live(&mut side, 300);
        let begun_ns = side.now_ns;
        while !side.wait(1).contains(&Action::Disconnect) {
            assert!(side.now_ns < begun_ns + 1000, "it is never missed");
        }
        assert_eq!(side.now_ns - begun_ns, missed_after_ns, "{standby_lost:?}");
    }
}

/// What comes later on a connection that was closed is never heard, so that the time until then has to count.
#[test]
fn a_primary_that_closed_a_connection_waits_longer_for_the_next() {
    let settings = Settings {
        witness: true,
        standby_lost: StandbyLost::Continue,
        detection_ns: 300,
        ..SETTINGS
    };
    let mut side = Side::primary(settings);
    protect(&mut side);
    side.hear(Message::Acknowledge(id(1, 2)));
    live(&mut side, 300);
    for patience_ns in [30, 90, 270, 300] {
        let begun_ns = side.now_ns;
        while !side.wait(1).contains(&Action::Disconnect) {
            assert!(side.now_ns < begun_ns + 1000, "it is never missed");
        }
        assert_eq!(side.now_ns - begun_ns, patience_ns);
        side.handle(Event::Connected { connection: 1 });
        side.hear(hello(settings, 1, armed(2)));
    }
}

#[test]
fn a_process_that_was_asleep_does_not_take_silence_for_a_failure() {
    let mut side = Side::standby(SETTINGS);
    side.hear_checkpoint(header(1, true, false));
    side.hear_checkpoint(header(2, false, true));
    assert!(
        !side
            .wait(1000)
            .iter()
            .any(|action| matches!(action, Action::Activate(_)))
    );
    assert_eq!(side.node.status().state, State::Armed);
}

/// A standby that could take over, and hears its primary every 10 ns.
fn steady() -> Side {
    let mut side = Side::standby(Settings {
        detection_ns: 300,
        ..SETTINGS
    });
    side.hear_checkpoint(header(1, true, false));
    side.hear_checkpoint(header(2, false, true));
    side
}

/// Time of silence, with a look at the clock each nanosecond, until the host takes over from the checkpoint
/// of this number.
fn taken_over_after_ns(mut side: Side, number: u64) -> i64 {
    let begun_ns = side.now_ns;
    while !side.wait(1).contains(&Action::Activate(id(1, number))) {
        assert!(side.now_ns < begun_ns + 1000, "it never takes over");
    }
    side.now_ns - begun_ns
}

#[test]
fn a_standby_is_as_patient_as_its_primary_is_uneven() {
    let mut unknown = steady();
    live(&mut unknown, 290);
    assert_eq!(taken_over_after_ns(unknown, 2), 300);
    let mut even = steady();
    live(&mut even, 300);
    assert_eq!(taken_over_after_ns(even, 2), 30);
    for (gap_ns, patience_ns) in [(20, 60), (90, 270), (250, 300)] {
        let mut uneven = steady();
        for _ in 1..gap_ns / 10 {
            uneven.wait(10);
        }
        live(&mut uneven, 300);
        assert_eq!(
            taken_over_after_ns(uneven, 2),
            patience_ns,
            "after {gap_ns}"
        );
    }
}

#[test]
fn a_standby_whose_own_pauses_are_long_is_patient() {
    let mut side = steady();
    live(&mut side, 300);
    side.wait(16);
    assert_eq!(taken_over_after_ns(side, 2), 30, "the silence begins anew");
    let mut side = steady();
    live(&mut side, 300);
    side.wait(15);
    assert_eq!(taken_over_after_ns(side, 2), 15, "it was awake in time");
    let mut side = steady();
    live(&mut side, 300);
    side.wait(1000);
    assert_eq!(taken_over_after_ns(side, 2), 300);
}

#[test]
fn a_refused_standby_that_loses_its_checkpoint_waits_for_an_order() {
    let mut side = Side::standby(Settings {
        witness: true,
        ..SETTINGS
    });
    side.hear_checkpoint(header(1, true, false));
    side.hear_checkpoint(header(2, false, true));
    while side.node.status().state != State::Claiming {
        side.wait(1);
        assert!(side.now_ns < 200, "it never takes over");
    }
    side.handle(Event::Verdict {
        expected: 1,
        verdict: Verdict::Refused { current: 2 },
    });
    assert_eq!(side.node.status().state, State::Refused);
    assert!(side.handle(Event::Unusable).contains(&Action::Forget));
    assert_eq!(side.node.status().state, State::Empty);
    let claim = |expected| Action::Claim { expected };
    let actions = side.hear(hello(SETTINGS, 1, NOTHING));
    assert!(!actions.contains(&claim(2)), "{actions:?}");
    let actions = side.handle(Event::Order(Order::Start { alone: true }));
    assert!(actions.contains(&claim(1)), "{actions:?}");
}

#[test]
fn a_copy_without_end_arms_some_time() {
    let mut side = Side::primary(SETTINGS);
    for number in 1.. {
        let actions = side.captured(number);
        if actions.contains(&Action::SendCheckpoint(header(number, false, true))) {
            assert_eq!(number, 9);
            break;
        }
        // Longer than any interval, with signs of life in between.
        for _ in 0..6 {
            side.now_ns += 10;
            side.hear(Message::Heartbeat);
        }
        side.hear(Message::Acknowledge(id(1, number)));
        side.wait(0);
    }
}

#[test]
fn the_copy_of_all_of_the_memory_makes_no_epoch_longer() {
    let mut side = Side::primary(SETTINGS);
    let lasts = |side: &mut Side, number| {
        side.captured(number);
        side.now_ns += 20;
        side.hear(Message::Acknowledge(id(1, number)));
        side.node.status().interval_ns
    };
    assert_eq!(lasts(&mut side, 1), Some(SETTINGS.interval.minimum_ns));
    side.wait(5);
    assert_eq!(lasts(&mut side, 2), Some(20));
}

#[test]
fn what_the_standby_has_is_asked_for_before_it_is_taken_for_granted() {
    // The connection breaks with a checkpoint on its way: it is sent again, counts, or everything
    // is copied.
    let broken = || {
        let mut side = Side::primary(SETTINGS);
        protect(&mut side);
        side.hear(Message::Acknowledge(id(1, 2)));
        side.wait(5);
        side.captured(3);
        side.handle(Event::Disconnected { connection: 1 });
        side.handle(Event::Connected { connection: 1 });
        side
    };
    let sent_again = Action::SendCheckpoint(header(3, false, true));
    assert!(
        broken()
            .hear(hello(SETTINGS, 1, armed(2)))
            .contains(&sent_again)
    );
    // A greeting on this connection that does not answer ours may be from before the standby had a
    // checkpoint.
    let mut old = broken();
    let Message::Hello(nothing) = hello(SETTINGS, 1, NOTHING) else {
        unreachable!()
    };
    for answers in [None, Some(0)] {
        let said = old.hear(Message::Hello(Hello { answers, ..nothing }));
        assert!(
            said.iter()
                .all(|action| matches!(action, Action::Send(Message::Hello(_)))),
            "{said:?}"
        );
    }
    let counts = Action::Release { through: 3 };
    assert!(
        broken()
            .hear(hello(SETTINGS, 1, armed(3)))
            .contains(&counts)
    );
    let mut forgotten = broken();
    let actions = forgotten.hear(hello(SETTINGS, 1, NOTHING));
    assert!(
        actions.contains(&Action::Output(Output::Open)),
        "{actions:?}"
    );
    // The last copy of everything began less than the longest interval ago.
    let actions = forgotten.wait(40);
    assert!(
        actions.contains(&Action::Capture {
            number: 4,
            full: true,
            arms: false
        }),
        "{actions:?}"
    );
    // The standby is about to take over: no output leaves, and only our greeting is sent.
    let claiming = Standing::Standby {
        held: Some(Held {
            id: id(1, 2),
            armed: true,
        }),
        claiming: true,
        unheard: false,
    };
    let actions = broken().hear(hello(SETTINGS, 1, claiming));
    let says = |action: &Action| {
        matches!(
            action,
            Action::Say(_) | Action::Send(Message::Hello(Hello { .. }))
        )
    };
    assert!(actions.iter().all(says), "{actions:?}");
}

/// Delivers signs of life for some time. Returns all actions except heartbeats.
fn live(side: &mut Side, for_ns: i64) -> Vec<Action> {
    let mut actions = Vec::new();
    for _ in 0..for_ns / 10 {
        actions.extend(side.wait(10));
        actions.extend(side.hear(Message::Heartbeat));
    }
    actions.retain(|action| *action != Action::Send(Message::Heartbeat));
    actions
}

#[test]
fn a_standby_that_lives_and_acknowledges_nothing_is_told_to_forget() {
    let mut side = Side::primary(Settings {
        standby_lost: StandbyLost::Continue,
        ..SETTINGS
    });
    protect(&mut side);
    assert_eq!(live(&mut side, 990), []);
    let stalled = Action::Say(Notice::Stalled { gives_up: true });
    let disarm = Action::Send(Message::Disarm { term: 1 });
    assert_eq!(live(&mut side, 10), [stalled, disarm]);
    // A late acknowledgement changes nothing: the standby may have forgotten its checkpoint by
    // then.
    assert_eq!(side.hear(Message::Acknowledge(id(1, 2))), []);
    let actions = side.hear(hello(SETTINGS, 1, NOTHING));
    assert!(
        actions.starts_with(&[Action::Output(Output::Open)]),
        "{actions:?}"
    );
    assert!(actions.contains(&Action::Say(Notice::Copying)));
    // A standby that does not keep up is not armed again, however often changes are copied.
    for number in 3..30 {
        let actions = side.captured(number);
        assert!(actions.contains(&Action::SendCheckpoint(header(number, number == 3, false))));
        live(&mut side, 60);
        side.hear(Message::Acknowledge(id(1, number)));
        side.wait(0);
    }
    side.captured(30);
    side.now_ns += 50;
    side.hear(Message::Acknowledge(id(1, 30)));
    side.wait(0);
    let actions = side.captured(31);
    assert!(actions.contains(&Action::SendCheckpoint(header(31, false, true))));
}

#[test]
fn where_silence_is_preferred_a_stalled_standby_is_waited_for() {
    let mut side = Side::primary(SETTINGS);
    protect(&mut side);
    let stalled = Action::Say(Notice::Stalled { gives_up: false });
    assert_eq!(live(&mut side, 3000), [stalled]);
    let actions = side.hear(Message::Acknowledge(id(1, 2)));
    assert!(
        actions.contains(&Action::Release { through: 2 }),
        "{actions:?}"
    );
}

#[test]
fn sums_of_an_earlier_copy_count_for_nothing() {
    let mut side = Side::primary(SETTINGS);
    let is_compared =
        |side: &mut Side, id| side.hear(Message::Sums(id, b"sums")) == [Action::Compare];
    assert!(!is_compared(&mut side, id(1, 1)), "nothing is copied yet");
    side.captured(1);
    assert!(!is_compared(&mut side, id(1, 0)));
    assert!(is_compared(&mut side, id(1, 1)));
}

/// A standby that has been told to take over from the second checkpoint.
fn taking_over() -> Side {
    let mut side = Side::standby(SETTINGS);
    side.hear_checkpoint(header(1, true, false));
    side.hear_checkpoint(header(2, false, true));
    let actions = side.hear(Message::Handover(id(1, 2)));
    assert!(actions.contains(&Action::Activate(id(1, 2))), "{actions:?}");
    side
}

const LATE: Action = Action::Say(Notice::ActivationLate);

/// What a node says of itself, last.
fn said(actions: &[Action]) -> Option<Hello> {
    actions.iter().rev().find_map(|action| match action {
        Action::Send(Message::Hello(hello)) => Some(*hello),
        _ => None,
    })
}

#[test]
fn a_guest_that_does_not_run_in_time_is_given_back_to_the_host_that_still_has_it() {
    let mut side = taking_over();
    assert_eq!(live(&mut side, 990), []);
    assert!(!side.node.status().is_stalled);
    assert_eq!(live(&mut side, 10), [LATE, Action::Abandon]);
    assert!(side.node.status().is_stalled);
    assert_eq!(live(&mut side, 100), [], "it is said once");
    // It may run until whoever lets it run has said that it does not.
    assert_eq!(side.node.status().state, State::Activating);
    let actions = side.handle(Event::ActivationFailed);
    assert!(actions.contains(&Action::Forget), "{actions:?}");
    let hello = said(&actions).unwrap();
    let unheard = Standing::Standby {
        held: None,
        claiming: false,
        unheard: true,
    };
    assert_eq!((hello.term, hello.standing), (2, unheard));
}

/// The host that had the guest has lost it while this process stood still.
#[test]
fn a_guest_is_not_given_up_for_old_news() {
    let mut side = taking_over();
    assert_eq!(live(&mut side, 990), []);
    side.now_ns += 100;
    let actions = side.handle(Event::Timer);
    assert!(!actions.contains(&Action::Abandon), "{actions:?}");
    side.hear(Message::Heartbeat);
    side.handle(Event::Disconnected { connection: 1 });
    let actions = live(&mut side, 100);
    assert!(actions.contains(&LATE), "{actions:?}");
    assert!(!actions.contains(&Action::Abandon), "{actions:?}");
    // One that has caught up, and still has its connection, gives it up.
    let mut side = taking_over();
    live(&mut side, 990);
    side.now_ns += 100;
    assert!(!side.handle(Event::Timer).contains(&Action::Abandon));
    assert_eq!(live(&mut side, 100), [LATE, Action::Abandon]);
    // One that has heard nothing since it began gives it up once it hears something.
    let mut side = taking_over();
    side.wait(985);
    let actions = side.wait(16);
    assert!(actions.contains(&LATE), "{actions:?}");
    assert!(!actions.contains(&Action::Abandon), "{actions:?}");
    let actions = side.hear(Message::Heartbeat);
    assert!(actions.contains(&Action::Abandon), "{actions:?}");
}

#[test]
fn a_guest_that_nobody_else_has_is_waited_for_however_late_it_is() {
    let mut side = taking_over();
    side.handle(Event::Disconnected { connection: 1 });
    let mut actions = side.wait(1_000);
    actions.extend(side.wait(100_000));
    assert!(actions.contains(&LATE), "{actions:?}");
    side.handle(Event::Connected { connection: 1 });
    actions.extend(side.hear(hello(SETTINGS, 1, NOTHING)));
    assert!(!actions.contains(&Action::Abandon), "{actions:?}");
    // The host that had it is back.
    let actions = side.hear(hello(SETTINGS, 1, Standing::Primary));
    assert!(actions.contains(&Action::Abandon), "{actions:?}");
    side.handle(Event::Activated);
    assert_eq!(side.node.status().state, State::Alone, "it ran already");
    assert!(!side.node.status().is_stalled);
}

#[test]
fn a_guest_that_runs_elsewhere_in_a_later_term_is_given_up_before_it_runs() {
    let mut side = taking_over();
    // A standby that has nothing does not go on, whatever its term is.
    let actions = side.hear(hello(SETTINGS, 4, NOTHING));
    assert!(!actions.contains(&Action::Abandon), "{actions:?}");
    let actions = side.hear(hello(SETTINGS, 5, Standing::Primary));
    assert!(actions.contains(&Action::Abandon), "{actions:?}");
    let actions = side.handle(Event::ActivationFailed);
    assert!(
        actions.contains(&Action::Persist(Record { term: 5 })),
        "{actions:?}"
    );
    assert_eq!(side.node.status().state, State::Empty);
    // It follows, although the greeting came too early.
    let next = Header {
        id: id(5, 7),
        ..header(7, true, false)
    };
    side.hear_checkpoint(next);
    assert_eq!(side.node.status().checkpoint, Some(id(5, 7)));
}

#[test]
fn a_standby_whose_thread_hangs_gives_up_what_it_has_and_takes_nothing() {
    let mut side = Side::standby(SETTINGS);
    side.hear_checkpoint(header(1, true, false));
    side.hear_checkpoint(header(2, false, true));
    side.hear(Message::Begin(header(3, false, true)));
    let rejected = |number| Action::Send(Message::Reject(id(1, number), Reason::Full));
    let hangs = [Notice::Hangs, Notice::Lost].map(Action::Say);
    let hangs = [hangs[0], Action::Disconnect, hangs[1]];
    assert_eq!(side.handle(Event::Hangs), []);
    assert_eq!(side.node.status().state, State::Armed, "it may be gone");
    let actions = side.hear(Message::Heartbeat);
    assert_eq!(
        actions,
        [Action::Discard, Action::Forget, rejected(3)]
            .into_iter()
            .chain(hangs)
            .collect::<Vec<_>>()
    );
    let status = side.node.status();
    assert_eq!((status.state, status.is_stalled), (State::Hanging, true));
    side.handle(Event::Connected { connection: 1 });
    let actions = side.hear(hello(SETTINGS, 1, Standing::Primary));
    let nothing = said(&actions).map(|hello| hello.standing);
    assert_eq!(nothing, Some(NOTHING));
    let actions = side.hear(Message::Begin(header(4, true, false)));
    assert_eq!(
        actions,
        [rejected(4)].into_iter().chain(hangs).collect::<Vec<_>>()
    );
    side.handle(Event::Connected { connection: 1 });
    side.hear(hello(SETTINGS, 1, Standing::Primary));
    let actions = side.hear(Message::Chunk(Part::Ram, b"state"));
    assert!(!actions.contains(&Action::Stage(Part::Ram)), "{actions:?}");
    side.handle(Event::Connected { connection: 1 });
    side.hear(hello(SETTINGS, 1, Standing::Primary));
    side.handle(Event::Recovers);
    assert_eq!(side.node.status().state, State::Empty);
    side.hear_checkpoint(header(5, true, false));
    assert_eq!(side.node.status().checkpoint, Some(id(1, 5)));
}

#[test]
fn a_standby_whose_primary_is_silent_keeps_what_it_has_though_its_thread_hangs() {
    let mut side = Side::standby(SETTINGS);
    side.hear_checkpoint(header(1, true, false));
    side.hear_checkpoint(header(2, false, true));
    assert_eq!(side.handle(Event::Hangs), []);
    side.handle(Event::Disconnected { connection: 1 });
    assert_eq!(side.node.status().state, State::Armed);
    let start = Event::Order(Order::Start { alone: true });
    let actions = side.handle(start);
    let mut said = actions.iter();
    assert!(
        said.any(|action| matches!(action, Action::Say(Notice::Impossible(_)))),
        "{actions:?}"
    );
    let mut actions = Vec::new();
    while !actions.contains(&Action::Activate(id(1, 2))) {
        actions = side.wait(1);
        assert!(side.now_ns < 200, "it never takes over");
    }
}

#[test]
fn only_a_standby_that_was_not_told_to_forget_is_an_heir() {
    let protected = |standby_lost| {
        let mut side = Side::primary(Settings {
            standby_lost,
            ..SETTINGS
        });
        assert!(!side.node.status().has_heir, "nothing is copied");
        protect(&mut side);
        assert!(!side.node.status().has_heir, "it may never arrive");
        side.hear(Message::Acknowledge(id(1, 2)));
        assert!(side.node.status().has_heir);
        side
    };
    let mut side = protected(StandbyLost::Stop);
    side.handle(Event::Order(Order::Unprotect));
    assert!(!side.node.status().has_heir);
    let mut side = protected(StandbyLost::Stop);
    side.handle(Event::Disconnected { connection: 1 });
    assert!(!side.node.status().has_heir);
    let mut side = protected(StandbyLost::Continue);
    side.wait(5);
    side.captured(3);
    live(&mut side, 1_010);
    assert!(!side.node.status().has_heir);
}

/// Lets every checkpoint from this one on fail for some time, with signs of life. Returns all actions
/// except heartbeats, with the number of checkpoints that were asked for.
fn fail_captures(side: &mut Side, number: u64, for_ns: i64) -> (Vec<Action>, usize) {
    let mut actions = Vec::new();
    for _ in 0..for_ns / 10 {
        actions.extend(side.handle(Event::CaptureFailed { number }));
        actions.extend(live(side, 10));
    }
    let asked = |action: &&Action| matches!(action, Action::Capture { .. });
    let count = actions.iter().filter(asked).count();
    (actions, count)
}

#[test]
fn a_standby_for_which_no_checkpoint_can_be_taken_is_told_to_forget() {
    for (standby_lost, gives_up) in [(StandbyLost::Continue, true), (StandbyLost::Stop, false)] {
        let fails = Action::Say(Notice::CapturesFail { gives_up });
        let disarm = Action::Send(Message::Disarm { term: 1 });
        let mut side = Side::primary(Settings {
            standby_lost,
            ..SETTINGS
        });
        protect(&mut side);
        side.hear(Message::Acknowledge(id(1, 2)));
        side.wait(5);
        let (actions, _) = fail_captures(&mut side, 3, 940);
        assert!(!actions.contains(&fails), "{actions:?}");
        // One that can be taken begins it anew.
        side.wait(10);
        side.captured(3);
        side.hear(Message::Acknowledge(id(1, 3)));
        side.wait(5);
        let (actions, _) = fail_captures(&mut side, 4, 940);
        assert!(!actions.contains(&fails), "{actions:?}");
        // A standby that is there again has not waited, either.
        side.handle(Event::Disconnected { connection: 1 });
        side.handle(Event::Connected { connection: 1 });
        side.hear(hello(SETTINGS, 1, armed(3)));
        let (actions, _) = fail_captures(&mut side, 4, 990);
        assert!(!actions.contains(&fails), "{actions:?}");
        let (actions, _) = fail_captures(&mut side, 4, 100);
        assert_eq!(actions.iter().filter(|action| **action == fails).count(), 1);
        assert_eq!(actions.contains(&disarm), gives_up);
        assert!(side.node.status().is_stalled);
        if gives_up {
            let actions = side.hear(hello(SETTINGS, 1, NOTHING));
            assert!(
                actions.contains(&Action::Output(Output::Open)),
                "{actions:?}"
            );
        }
    }
}

#[test]
fn a_guest_without_a_standby_is_paused_less_and_less_often_for_what_fails() {
    let mut side = Side::primary(SETTINGS);
    let (_, asked) = fail_captures(&mut side, 1, 20_000);
    // After 50 ns, and twice as long each time, up to 10,000.
    assert_eq!(asked, 8);
    let status = side.node.status();
    assert_eq!((status.state, status.is_stalled), (State::Alone, true));
}

#[test]
fn copies_that_fail_begin_less_and_less_often() {
    let mut side = Side::primary(SETTINGS);
    let mut number = 1;
    let mut times_ns = vec![0];
    let mut later = 0;
    while side.now_ns < 20_000 {
        side.captured(number);
        side.hear(Message::Reject(id(1, number), Reason::Full));
        number += 1;
        side.handle(Event::Disconnected { connection: 1 });
        side.handle(Event::Connected { connection: 1 });
        let mut actions = side.hear(hello(SETTINGS, 1, NOTHING));
        let is_later = |action: &&Action| matches!(action, Action::Say(Notice::CopiesLater { .. }));
        later += actions.iter().filter(is_later).count();
        let status = side.node.status();
        assert_eq!((status.state, status.is_stalled), (State::Alone, true));
        while !actions.contains(&Action::Say(Notice::Copying)) {
            actions = live(&mut side, 10);
        }
        times_ns.push(side.now_ns);
    }
    let waits_ns: Vec<i64> = times_ns.windows(2).map(|pair| pair[1] - pair[0]).collect();
    assert_eq!(
        waits_ns,
        [50, 100, 200, 400, 800, 1_600, 3_200, 6_400, 10_000]
    );
    assert_eq!(later, waits_ns.len());
}
