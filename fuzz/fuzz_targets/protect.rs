//! What a host that protects a virtual machine hears: whatever bytes come are refused or one message, which
//! is written as it was read; and whatever messages come, no node trips over them.
//!
//! The input is frames, each after an octet with its length: a kind and a payload, to which all else that
//! belongs to a frame is added, since chance finds no checksum.
#![no_main]

use laxity_protect::protocol::{
    Action, Event, Message, Mode, Node, Order, Record, Settings, StandbyLost, Verdict, interval,
    message::{self, Hello, VERSION},
};
use libfuzzer_sys::fuzz_target;

const SETTINGS: Settings = Settings {
    vm: 0,
    mode: Mode::Net,
    standby_lost: StandbyLost::Continue,
    witness: false,
    heartbeat_ns: 8,
    detection_ns: 30,
    detection_min_ns: 24,
    lease_ns: 0,
    settling_ns: 0,
    stall_ns: 60,
    drift_ppm: 100,
    checkpoint_bytes_max: 1 << 20,
    interval: interval::Bounds {
        minimum_ns: 6,
        maximum_ns: 20,
        pause_share_percent: 20,
    },
};

fuzz_target!(|data: &[u8]| {
    let _ = message::decode(data, 0);
    let mut standby = Side::new(0);
    let mut primary = Side::new(0);
    primary.handle(Event::Order(Order::Start { alone: true }));
    let mut rest = data;
    while let [length, after @ ..] = rest {
        let (content, after) = after.split_at(usize::from(*length).min(after.len()));
        rest = after;
        let frame = frame(content);
        let Ok(message) = message::decode(&frame, 0) else {
            continue;
        };
        let mut written = Vec::new();
        message::encode(&message, 0, &mut written);
        assert_eq!(written, frame);
        standby.hear(message);
        primary.hear(message);
    }
});

/// A frame whose kind is the first octet, and whose payload is the rest.
fn frame(content: &[u8]) -> Vec<u8> {
    let (kind, payload) = content.split_first().unwrap_or((&0, &[]));
    let mut frame = ((16 + payload.len()) as u32).to_le_bytes().to_vec();
    frame.extend_from_slice(&[VERSION, *kind, 0, 0]);
    frame.extend_from_slice(&[0; 8]);
    frame.extend_from_slice(payload);
    let checksum = crc32c::crc32c(&frame);
    frame.extend_from_slice(&checksum.to_le_bytes());
    frame
}

/// A node that gets what it asks for.
struct Side {
    node: Node,
    now_ns: i64,
    connection: u64,
}

impl Side {
    fn new(term: u64) -> Side {
        Side {
            node: Node::new(SETTINGS, 1, 2, Record { term }, 0),
            now_ns: 0,
            connection: 0,
        }
    }

    fn hear(&mut self, message: Message) {
        self.now_ns += 1;
        if self.connection == 0 {
            self.connection = 1;
            self.handle(Event::Connected { connection: 1 });
        }
        let connection = self.connection;
        // A greeting with other settings, or on another connection, would end the conversation.
        let message = match message {
            Message::Hello(hello) => Message::Hello(Hello {
                vm: 0,
                mode: Mode::Net,
                witness: false,
                lease_ns: 0,
                host: 2,
                answers: hello.answers.map(|_| connection),
                ..hello
            }),
            other => other,
        };
        self.handle(Event::Received {
            connection,
            message,
        });
    }

    fn handle(&mut self, event: Event) {
        let mut actions = Vec::new();
        self.node.handle(self.now_ns, event, &mut actions);
        for action in actions {
            match action {
                Action::Capture { number, .. } => self.handle(Event::Captured {
                    number,
                    ram_bytes: 1,
                    device_bytes: 1,
                    disk_bytes: 1,
                    disk_left_bytes: 0,
                    pause_ns: 1,
                }),
                Action::Activate(_) | Action::Boot => self.handle(Event::Activated),
                Action::Claim { expected } => self.handle(Event::Verdict {
                    expected,
                    verdict: Verdict::Granted { term: expected + 1 },
                }),
                Action::Disconnect => {
                    self.connection += 1;
                    let connection = self.connection;
                    self.handle(Event::Connected { connection });
                }
                _ => {}
            }
        }
        assert!(
            self.node.wake_ns() > self.now_ns,
            "it wants to look at the clock without end"
        );
    }
}
