//! The phones: who calls when, what they send, what they hear.

use super::kept::{Keeper, PIECE_PACKETS};
use super::packet::{Kind, Packet};
use crate::timers::NEVER;
use laxity_host::{ANSWER_WAITS_NS, ArrivalRate, Calls, Transport};
use laxity_run::{CallsResult, KeptStream, RegistrationsResult, Times, Voice, WorstStream, ratio};
use rand_core::RngCore;
use rand_pcg::Pcg32;
use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

/// A phone that has sent its message so often gives up when no answer comes.
const TRANSMISSIONS_MAX: u8 = ANSWER_WAITS_NS.len() as u8;

/// The messages of a call, from a phone to the signalling server and on to the other phone. Ten packets a call.
mod step {
    pub const INVITE: u8 = super::INVITE as u8;
    pub const OK: u8 = 1;
    pub const ACK: u8 = 2;
    pub const BYE: u8 = super::BYE as u8;
    pub const BYE_OK: u8 = 4;
    /// The message of a user who registers, and its answer. What makes and what ends the connection is around it, where
    /// each user has a connection of TCP.
    pub const REGISTER: u8 = super::REGISTER as u8;
    pub const CONNECT: u8 = 6;
    pub const CLOSE: u8 = 7;
}

/// The number of a call's first message, which the signalling server writes down …
pub const INVITE: u32 = 0;
/// … and of that which ends it.
pub const BYE: u32 = 3;

/// The number of a registration …
pub const REGISTER: u32 = 5;
/// … and of a segment that nobody answers.
pub const ACKNOWLEDGE: u32 = 8;

/// Numbered things: the first ones stay for ever; of the others, memory is what lies between the oldest and the
/// youngest.
struct Window<T> {
    lasting: Vec<T>,
    first: u64,
    things: VecDeque<Option<T>>,
}

impl<T> Window<T> {
    fn new() -> Window<T> {
        Window {
            lasting: Vec::new(),
            first: 0,
            things: VecDeque::new(),
        }
    }

    /// One that is never removed; these come before all others.
    fn push_lasting(&mut self, thing: T) -> u64 {
        debug_assert!(self.things.is_empty());
        self.lasting.push(thing);
        self.first = self.lasting.len() as u64;
        self.first - 1
    }

    fn push(&mut self, thing: T) -> u64 {
        self.things.push_back(Some(thing));
        self.first + self.things.len() as u64 - 1
    }

    #[inline]
    fn get(&mut self, number: u64) -> Option<&mut T> {
        if number < self.lasting.len() as u64 {
            return self.lasting.get_mut(number as usize);
        }
        let place = number.checked_sub(self.first)?;
        self.things.get_mut(place as usize)?.as_mut()
    }

    /// One above the greatest number so far.
    fn end(&self) -> u64 {
        self.first + self.things.len() as u64
    }

    fn remove(&mut self, number: u64) {
        if let Some(place) = number.checked_sub(self.first) {
            self.things[place as usize] = None;
        }
        while let Some(None) = self.things.front() {
            self.things.pop_front();
            self.first += 1;
        }
    }
}

/// Voice, one way.
struct Stream {
    /// None: it is one of those that are always there.
    call: Option<u64>,
    /// The next packet.
    number: u32,
    /// It sends none from then on.
    end_ns: i64,
    on_its_way: u32,
    received: u32,
    lost: u32,
    /// Packets in the media server's socket.
    queued: u16,
    /// Under what number the present piece and the one before are kept.
    kept: [Option<u64>; 2],
    /// How long the last packet took.
    transit_ns: i64,
    /// RFC 3550, section 6.4.1: 16 times the jitter.
    jitter_16_ns: i64,
}

struct Call {
    started_ns: i64,
    /// The message whose arrival is waited for.
    step: u8,
    transmissions: u8,
    voice: bool,
    voice_until_ns: i64,
}

/// What happens to a call by itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    /// The phone has waited for long enough for what this step brings.
    NoAnswer {
        call: u64,
        step: u8,
        transmissions: u8,
    },
    /// The message of this step reaches the other phone.
    Reach {
        call: u64,
        step: u8,
    },
    HangUp {
        call: u64,
    },
    /// A phone acknowledges what came, over TCP.
    Acknowledge {
        call: u64,
    },
    /// A stream of the call begins, and ends at this time.
    Speak {
        call: u64,
        end_ns: i64,
    },
}

/// All phones.
pub struct Phones {
    interval_ns: i64,
    rate: Option<ArrivalRate>,
    registration_rate: Option<ArrivalRate>,
    transport: Transport,
    next_registration: u64,
    next_registration_ns: i64,
    hold_ns: i64,
    has_signalling: bool,
    through_media_server: f64,
    random: Pcg32,
    calls: Window<Call>,
    streams: Window<Stream>,
    next_call: u64,
    next_call_ns: i64,
    /// The next sending time of each stream. All have the same interval, so the stream that sent last comes last.
    sending: VecDeque<(i64, u64)>,
    events: BinaryHeap<Reverse<(i64, u64, Event)>>,
    events_made: u64,
    keeper: Keeper,
    delays: Times,
    setups: Times,
    registered: Times,
    /// The registration whose answer has reached its phone, until a caller takes it.
    answered: Option<u64>,
    tally: Tally,
    jitter_ns_max: i64,
    jitter_sum_ns: f64,
    jitter_streams: u64,
    worst: Option<WorstStream>,
}

/// What was counted.
#[derive(Debug, Clone, Copy, Default)]
struct Tally {
    sent: u64,
    received: u64,
    lost: u64,
    streams: u64,
    streams_now: u64,
    streams_most: u64,
    offered: u64,
    answered: u64,
    failed: u64,
    retransmissions: u64,
    registrations: u64,
    registered: u64,
    unregistered: u64,
    registrations_again: u64,
}

/// What phones do next.
pub enum Send {
    /// They send this packet to the host.
    Packet(Packet),
    /// Nothing that the host sees.
    Nothing,
}

/// When arrival `number` of those that come at `rate` comes.
fn arrival_ns(rate: Option<ArrivalRate>, number: u64) -> i64 {
    rate.map_or(NEVER, |rate| rate.arrival_ns(number))
}

impl Phones {
    pub fn new(calls: &Calls, random: Pcg32) -> Phones {
        let mut phones = Phones {
            interval_ns: calls.codec.interval_ns(),
            rate: calls.rate,
            registration_rate: calls.registrations,
            transport: calls.registration_transport,
            next_registration: 0,
            next_registration_ns: NEVER,
            hold_ns: calls.hold_ns,
            has_signalling: calls.signalling_server.is_some(),
            through_media_server: calls.through_media_server,
            random,
            calls: Window::new(),
            streams: Window::new(),
            next_call: 0,
            next_call_ns: NEVER,
            sending: VecDeque::new(),
            events: BinaryHeap::new(),
            events_made: 0,
            keeper: Keeper::new(calls.sample),
            delays: Times::new(),
            setups: Times::new(),
            registered: Times::new(),
            answered: None,
            tally: Tally::default(),
            jitter_ns_max: 0,
            jitter_sum_ns: 0.0,
            jitter_streams: 0,
            worst: None,
        };
        let mut starts_ns: Vec<i64> = (0..calls.streams).map(|_| phones.phase_ns()).collect();
        starts_ns.sort_unstable();
        for start_ns in starts_ns {
            let stream = phones.stream(None, NEVER);
            phones.sending.push_back((start_ns, stream));
        }
        phones.next_call_ns = arrival_ns(phones.rate, 0);
        phones.next_registration_ns = arrival_ns(phones.registration_rate, 0);
        phones
    }

    /// Uniform within one interval.
    fn phase_ns(&mut self) -> i64 {
        ((u64::from(self.random.next_u32()) * self.interval_ns as u64) >> 32) as i64
    }

    fn stream(&mut self, call: Option<u64>, end_ns: i64) -> u64 {
        self.tally.streams += 1;
        self.tally.streams_now += 1;
        self.tally.streams_most = self.tally.streams_most.max(self.tally.streams_now);
        let stream = Stream {
            call,
            number: 0,
            end_ns,
            on_its_way: 0,
            received: 0,
            lost: 0,
            queued: 0,
            kept: [None, None],
            transit_ns: NEVER,
            jitter_16_ns: 0,
        };
        if call.is_none() {
            self.streams.push_lasting(stream)
        } else {
            self.streams.push(stream)
        }
    }

    fn event(&mut self, at_ns: i64, event: Event) {
        self.events_made += 1;
        self.events.push(Reverse((at_ns, self.events_made, event)));
    }

    /// When phones do something next.
    #[inline]
    pub fn next_ns(&self) -> i64 {
        let sending_ns = self.sending.front().map_or(NEVER, |(at_ns, _)| *at_ns);
        let event_ns = self
            .events
            .peek()
            .map_or(NEVER, |Reverse((at_ns, ..))| *at_ns);
        sending_ns
            .min(event_ns)
            .min(self.next_call_ns)
            .min(self.next_registration_ns)
    }

    /// They do it.
    pub fn serve(&mut self, now: i64) -> Send {
        if let Some(&(at_ns, stream)) = self.sending.front()
            && at_ns == now
        {
            self.sending.pop_front();
            return self.speak(stream, now);
        }
        if let Some(&Reverse((at_ns, _, event))) = self.events.peek()
            && at_ns == now
        {
            self.events.pop();
            return self.happen(event, now);
        }
        if self.next_registration_ns == now {
            self.next_registration += 1;
            self.next_registration_ns = arrival_ns(self.registration_rate, self.next_registration);
            return self.register(now);
        }
        let number = self.next_call;
        self.next_call += 1;
        self.next_call_ns = arrival_ns(self.rate, self.next_call);
        self.begin(number, now)
    }

    /// The registration whose answer reached its phone when this was served last.
    #[inline]
    pub fn take_answered(&mut self) -> Option<u64> {
        self.answered.take()
    }

    fn speak(&mut self, number: u64, now: i64) -> Send {
        let Some(stream) = self.streams.get(number) else {
            return Send::Nothing;
        };
        if now >= stream.end_ns {
            stream.end_ns = i64::MIN;
            self.tally.streams_now -= 1;
            self.close_if_done(number);
            return Send::Nothing;
        }
        let packet = Packet {
            kind: Kind::Voice,
            of: number,
            number: stream.number,
            copy: 0,
            sent_ns: now,
        };
        let piece = (stream.number / PIECE_PACKETS % 2) as usize;
        if stream.number % PIECE_PACKETS == 0 {
            stream.kept[piece] = self.keeper.begin(number, stream.call, now);
        }
        if let Some(kept) = stream.kept[piece] {
            self.keeper.sent(kept);
        }
        stream.number += 1;
        stream.on_its_way += 1;
        self.tally.sent += 1;
        self.sending.push_back((now + self.interval_ns, number));
        Send::Packet(packet)
    }

    /// A call begins.
    fn begin(&mut self, number: u64, now: i64) -> Send {
        self.tally.offered += 1;
        let until = |number: u64| (number as f64 * self.through_media_server).floor();
        let voice = until(number + 1) > until(number);
        let call = self.calls.push(Call {
            started_ns: now,
            step: step::INVITE,
            transmissions: 0,
            voice,
            voice_until_ns: now,
        });
        if self.has_signalling {
            return self.say(call, step::INVITE, now);
        }
        self.talk(call, now);
        self.calls.remove(call);
        Send::Nothing
    }

    /// A user begins to register.
    fn register(&mut self, now: i64) -> Send {
        self.tally.registrations += 1;
        let step = match self.transport {
            Transport::TcpEach => step::CONNECT,
            Transport::Udp | Transport::Tcp => step::REGISTER,
        };
        let call = self.calls.push(Call {
            started_ns: now,
            step,
            transmissions: 0,
            voice: false,
            voice_until_ns: now,
        });
        self.say(call, step, now)
    }

    /// A phone sends the message of a step, for the first time or again.
    fn say(&mut self, number: u64, step: u8, now: i64) -> Send {
        let Some(call) = self.calls.get(number) else {
            return Send::Nothing;
        };
        call.transmissions += 1;
        let transmissions = call.transmissions;
        let wait_ns = ANSWER_WAITS_NS[usize::from(transmissions - 1)];
        self.event(
            now + wait_ns,
            Event::NoAnswer {
                call: number,
                step,
                transmissions,
            },
        );
        Send::Packet(Packet {
            kind: match step {
                step::CONNECT | step::CLOSE => Kind::Segment,
                _ => Kind::Signalling,
            },
            of: number,
            number: u32::from(step),
            copy: transmissions - 1,
            sent_ns: now,
        })
    }

    fn happen(&mut self, event: Event, now: i64) -> Send {
        match event {
            Event::Speak { call, end_ns } => {
                let stream = self.stream(Some(call), end_ns);
                self.speak(stream, now)
            }
            Event::Acknowledge { call } => Send::Packet(Packet {
                kind: Kind::Segment,
                of: call,
                number: ACKNOWLEDGE,
                copy: 0,
                sent_ns: now,
            }),
            Event::HangUp { call } => self.go_on(call, step::BYE, now),
            Event::Reach { call, step } => self.reach(call, step, now),
            Event::NoAnswer {
                call: number,
                step,
                transmissions,
            } => {
                let Some(call) = self.calls.get(number) else {
                    return Send::Nothing;
                };
                if (call.step, call.transmissions) != (step, transmissions) {
                    return Send::Nothing;
                }
                if transmissions == TRANSMISSIONS_MAX {
                    self.tally.failed += u64::from(step < step::ACK);
                    self.tally.unregistered +=
                        u64::from(matches!(step, step::CONNECT | step::REGISTER));
                    self.calls.remove(number);
                    return Send::Nothing;
                }
                if step >= step::REGISTER {
                    self.tally.registrations_again += 1;
                } else {
                    self.tally.retransmissions += 1;
                }
                self.say(number, step, now)
            }
        }
    }

    /// A phone sends the first message of a further step.
    fn go_on(&mut self, number: u64, step: u8, now: i64) -> Send {
        let Some(call) = self.calls.get(number) else {
            return Send::Nothing;
        };
        call.step = step;
        call.transmissions = 0;
        self.say(number, step, now)
    }

    /// The message of a step has reached the other phone.
    fn reach(&mut self, number: u64, step: u8, now: i64) -> Send {
        let Some(call) = self.calls.get(number) else {
            return Send::Nothing;
        };
        if call.step != step {
            return Send::Nothing; // it has come before
        }
        let started_ns = call.started_ns;
        match step {
            step::INVITE => self.go_on(number, step::OK, now),
            step::OK => {
                self.tally.answered += 1;
                self.setups.record(now - started_ns);
                self.talk(number, now);
                self.go_on(number, step::ACK, now)
            }
            step::ACK => {
                let until_ns = call.voice_until_ns.max(now);
                // What is waited for is the end of the talk; nothing that was sent before answers it.
                call.step = step::BYE;
                call.transmissions = 0;
                self.event(until_ns, Event::HangUp { call: number });
                Send::Nothing
            }
            step::BYE => self.go_on(number, step::BYE_OK, now),
            step::CONNECT => {
                self.event(now, Event::Acknowledge { call: number });
                self.go_on(number, step::REGISTER, now)
            }
            step::REGISTER => {
                self.tally.registered += 1;
                self.registered.record(now - started_ns);
                self.answered = Some(number);
                if self.transport != Transport::Udp {
                    self.event(now, Event::Acknowledge { call: number });
                }
                if self.transport == Transport::TcpEach {
                    return self.go_on(number, step::CLOSE, now);
                }
                self.calls.remove(number);
                Send::Nothing
            }
            step::CLOSE => {
                self.event(now, Event::Acknowledge { call: number });
                self.calls.remove(number);
                Send::Nothing
            }
            _ => {
                self.calls.remove(number);
                Send::Nothing
            }
        }
    }

    /// Both begin to talk.
    fn talk(&mut self, number: u64, now: i64) {
        let hold_ns = self.hold_ns;
        let Some(call) = self.calls.get(number) else {
            return;
        };
        call.voice_until_ns = now + hold_ns;
        if call.voice {
            for _ in 0..2 {
                let start_ns = now + self.phase_ns();
                let end_ns = start_ns + hold_ns;
                self.event(
                    start_ns,
                    Event::Speak {
                        call: number,
                        end_ns,
                    },
                );
            }
        }
    }

    /// Whether the media server's socket for the packet's stream has room for it, and if so takes it in.
    pub fn queue(&mut self, packet: &Packet, room: u16) -> bool {
        self.streams.get(packet.of).is_some_and(|stream| {
            let fits = stream.queued < room;
            stream.queued += u16::from(fits);
            fits
        })
    }

    /// The packet is taken out of the socket.
    pub fn dequeue(&mut self, packet: &Packet) {
        if let Some(stream) = self.streams.get(packet.of) {
            stream.queued -= 1;
        }
    }

    /// The packet is dropped.
    pub fn lose(&mut self, packet: &Packet) {
        if packet.kind == Kind::Voice
            && let Some(stream) = self.streams.get(packet.of)
        {
            stream.on_its_way -= 1;
            stream.lost += 1;
            self.tally.lost += 1;
            self.close_if_done(packet.of);
        }
    }

    /// The packet reaches a phone at a time that is not before now.
    pub fn deliver(&mut self, packet: &Packet, at_ns: i64) {
        if packet.kind != Kind::Voice {
            let event = Event::Reach {
                call: packet.of,
                step: packet.number as u8,
            };
            return self.event(at_ns, event);
        }
        let transit_ns = at_ns - packet.sent_ns;
        self.tally.received += 1;
        self.delays.record(transit_ns);
        let Some(stream) = self.streams.get(packet.of) else {
            return;
        };
        stream.on_its_way -= 1;
        stream.received += 1;
        if stream.transit_ns != NEVER {
            let difference_ns = (transit_ns - stream.transit_ns).abs();
            stream.jitter_16_ns += difference_ns - ((stream.jitter_16_ns + 8) >> 4);
        }
        stream.transit_ns = transit_ns;
        let piece = (packet.number / PIECE_PACKETS % 2) as usize;
        if let Some(kept) = stream.kept[piece] {
            self.keeper
                .arrived(kept, packet.number % PIECE_PACKETS, at_ns);
        }
        self.close_if_done(packet.of);
    }

    /// Forgets a stream of which nothing more comes.
    fn close_if_done(&mut self, number: u64) {
        let done = |stream: &Stream| stream.end_ns == i64::MIN && stream.on_its_way == 0;
        if self.streams.get(number).is_some_and(|stream| done(stream)) {
            self.count(number);
            self.streams.remove(number);
        }
    }

    fn count(&mut self, number: u64) {
        let Some(stream) = self.streams.get(number) else {
            return;
        };
        let this = WorstStream {
            stream: number,
            call: stream.call,
            lost: stream.lost,
            received: stream.received,
        };
        if stream.received > 0 {
            let jitter_ns = stream.jitter_16_ns >> 4;
            self.jitter_ns_max = self.jitter_ns_max.max(jitter_ns);
            self.jitter_sum_ns += jitter_ns as f64;
            self.jitter_streams += 1;
        }
        if this.lost + this.received > 0
            && self.worst.is_none_or(|worst| this.loss() > worst.loss())
        {
            self.worst = Some(this);
        }
    }

    /// What came of it all; `now` is the end of the run.
    pub fn finish(
        mut self,
        now: i64,
    ) -> (
        Voice,
        CallsResult,
        Option<RegistrationsResult>,
        Vec<KeptStream>,
    ) {
        let lasting = 0..self.streams.lasting.len() as u64;
        for number in lasting.chain(self.streams.first..self.streams.end()) {
            self.count(number);
        }
        let tally = self.tally;
        let heard = self.jitter_streams > 0;
        let voice = Voice {
            streams: tally.streams,
            streams_most: tally.streams_most,
            sent: tally.sent,
            received: tally.received,
            lost: tally.lost,
            on_their_way: tally.sent - tally.received - tally.lost,
            loss_ratio: ratio(tally.lost, tally.lost + tally.received),
            delay_ns: self.delays.quantiles(),
            jitter_ns_mean: heard.then(|| self.jitter_sum_ns / self.jitter_streams as f64),
            jitter_ns_max: heard.then_some(self.jitter_ns_max),
            worst: self.worst,
        };
        let calls = CallsResult {
            offered: tally.offered,
            answered: tally.answered,
            failed: tally.failed,
            retransmissions: tally.retransmissions,
            setup_ns: self.setups.quantiles(),
        };
        let registrations = self.registration_rate.map(|_| RegistrationsResult {
            offered: tally.registrations,
            succeeded: tally.registered,
            failed: tally.unregistered,
            retransmissions: tally.registrations_again,
            delay_ns: self.registered.quantiles(),
        });
        // What was sent in the last second may still have been on its way.
        const GRACE_NS: i64 = 1_000_000_000;
        let kept = self.keeper.finish(self.interval_ns, now - GRACE_NS);
        (voice, calls, registrations, kept)
    }
}
