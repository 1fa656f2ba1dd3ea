//! Extracts from a stream the speech that a listener would hear, as one call of G.711, G.722 or Opus.
//!
//! Telephone events (RFC 4733) and comfort noise (RFC 3389) have numbers of their own in a stream, and no speech. Where
//! timestamps go further than packets, nothing was sent: silence was suppressed, or the call was held. Where neither
//! numbers nor timestamps go on, the stream was begun anew (RFC 3550, A.1). All that is left out, of the speech and of
//! the time in which it came alike, and counted; a packet that was lost stays a gap in the speech. Pure.

use crate::{
    g711::Law,
    opus,
    signalling::{DYNAMIC, PayloadTypes},
    streams::{Packet, Stream},
};
use serde::{Serialize, Serializer};

/// Largest difference between the numbers of two packets of one stream (RFC 3550, A.1); a larger
/// one begins the stream anew.
pub const DROPOUT_MAX: i64 = 3_000;
/// Most lost packets for each received one in a call. The cost of scoring a call grows with its
/// length, and a capture must not be able to claim a call far longer than its contents.
const LOST_FOR_ONE_MAX: i64 = 100;
/// Largest lead of timestamps over the time that has passed: delayed packets arrive in a bunch.
const AHEAD_NS_MAX: i64 = 10_000_000_000;
/// Delay of a talk spurt behind its timestamp from which its sender's clock must have stood still.
const STOOD_STILL_NS: i64 = 1_000_000_000;
/// Rate of the octets of G.711 and of G.722, and of their timestamps. G.722 has 16,000 samples a second, two in an
/// octet, and timestamps at the rate of 8,000 that was once assigned in error (RFC 3551, section 4.5.2).
const OCTETS_HZ: i64 = 8_000;
/// Payload types of comfort noise: the current one, and the one reserved for its predecessor (RFC
/// 3551, section 6).
const COMFORT_NOISE: [u8; 2] = [13, 19];
/// Size of a telephone event in octets (RFC 4733, section 2.3).
const EVENT_BYTES: u16 = 4;

/// The payload type of G.722 (RFC 3551, section 6, table 4).
const G722: u8 = 9;

/// A codec whose calls can be scored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Codec {
    /// G.711 under one of its laws.
    G711(Law),
    /// G.722 at 64 kbit/s.
    G722,
    /// Opus (RFC 6716).
    Opus,
}

impl Codec {
    /// The codec of a payload type, if its calls can be scored.
    fn of_payload_type(payload_type: u8, known: PayloadTypes) -> Option<Codec> {
        match payload_type {
            G722 => Some(Codec::G722),
            payload_type if known.is_opus(payload_type) => Some(Codec::Opus),
            payload_type => Law::of_payload_type(payload_type).map(Codec::G711),
        }
    }

    /// The speech in a packet, in the units of RTP's timestamps; `None` if it is none of this codec.
    fn ticks(self, packet: &Packet) -> Option<u16> {
        match self {
            Codec::G711(_) | Codec::G722 => Some(packet.payload_bytes),
            Codec::Opus => packet.opus.map(opus::Packet::ticks),
        }
    }

    /// Units of RTP's timestamps as time.
    fn ns(self, ticks: i64) -> i64 {
        let clock_hz = match self {
            Codec::G711(_) | Codec::G722 => OCTETS_HZ,
            Codec::Opus => opus::CLOCK_HZ,
        };
        let time_ns = i128::from(ticks) * 1_000_000_000 / i128::from(clock_hz);
        time_ns.clamp(i64::MIN.into(), i64::MAX.into()) as i64
    }
}

impl Serialize for Codec {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Codec::G711(law) => law.serialize(serializer),
            Codec::G722 => serializer.serialize_str("g722"),
            Codec::Opus => serializer.serialize_str("opus"),
        }
    }
}

/// A call extracted from a stream.
#[derive(Debug, PartialEq, Eq)]
pub struct Playable {
    /// Codec of the speech.
    pub codec: Codec,
    /// The number of each packet in order, counted from the first packet and without the packets
    /// that are left out.
    pub sequence: Vec<i64>,
    /// Time of arrival of each packet since 1970, less the time that is left out before it.
    pub arrived_ns: Vec<i64>,
    /// The speech in each packet.
    pub packet_ns: i64,
    /// How Opus was coded; `None` for other codecs.
    pub opus: Option<opus::Coding>,
    /// Parts of the stream that are no speech.
    pub left_out: LeftOut,
}

/// Totals of the parts of a stream that are no speech.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, serde::Serialize)]
pub struct LeftOut {
    /// Packets of telephone events.
    pub event_packets: u64,
    /// Packets of comfort noise, and those of Opus that only say that silence goes on.
    pub comfort_noise_packets: u64,
    /// Packets whose numbers and timestamps fit no other packets.
    pub stray_packets: u64,
    /// Number of pauses of at least a packet's length within the stream.
    pub pauses: u64,
    /// Number of times that the stream began anew.
    pub restarts: u64,
    /// Sum of the time without speech.
    pub silent_ns: i64,
}

/// Reasons why a stream is no call that can be scored.
#[derive(Debug, Clone, Copy, PartialEq, thiserror::Error)]
pub enum Unplayable {
    /// The codec is none that can be scored.
    #[error("has payload type {0}; 0 (PCMU), 8 (PCMA), 9 (G.722) or one of Opus was expected")]
    PayloadType(u8),
    /// Nothing says which codec it is.
    #[error(
        "has payload type {0}, of which no signalling in the capture says what it is; say --opus {0} if it is Opus"
    )]
    Unknown(u8),
    /// The payload contradicts what is known of its type.
    #[error("has payload type {0}, which is Opus, and a packet that is none of Opus")]
    NotOpus(u8),
    /// The codec changes.
    #[error("changes from payload type {0} to {1}")]
    Change(u8, u8),
    /// The packets have two sizes; lost packets have a known length only where all sizes are equal.
    #[error("has packets of {0} and of {1} octets")]
    Size(u16, u16),
    /// The packets of Opus have two durations; a lost packet's is not known.
    #[error("has packets of {0} ms and of {1} ms")]
    Duration(f64, f64),
    /// Timestamps do not count samples, or numbers do not count packets.
    #[error("has no two packets with consistent sequence numbers and timestamps")]
    Unsteady,
    /// Numbers range far beyond the received packets.
    #[error("has {received} packets of {numbers}: too few for a call")]
    Sparse {
        /// Number of received packets.
        received: usize,
        /// Number of received and missing packets.
        numbers: i64,
    },
}

enum Kind {
    Speech(Codec),
    Event,
    ComfortNoise,
    Other,
}

fn kind(packet: &Packet, known: PayloadTypes) -> Kind {
    let payload_type = packet.payload_type;
    if COMFORT_NOISE.contains(&payload_type) {
        return Kind::ComfortNoise;
    }
    match Codec::of_payload_type(payload_type, known) {
        Some(Codec::Opus) if packet.payload_bytes <= opus::SILENCE_BYTES => Kind::ComfortNoise,
        Some(codec) => Kind::Speech(codec),
        None if DYNAMIC.contains(&payload_type) && packet.payload_bytes == EVENT_BYTES => {
            Kind::Event
        }
        None => Kind::Other,
    }
}

/// A run of packets whose numbers and timestamps continue each other.
struct Run {
    codec: Codec,
    /// The speech in each packet, in the units of timestamps.
    ticks: i64,
    /// Time of the first packet of the run.
    first_ns: i64,
    /// The speech with the highest number.
    last: Reached,
    /// Time by timestamps between the received speech.
    jumped_ns: i64,
    entries: Vec<Entry>,
}

/// The end of a run so far.
#[derive(Clone, Copy)]
struct Reached {
    packet: Packet,
    number: i64,
    sample: i64,
}

#[derive(Clone, Copy)]
struct Entry {
    number: i64,
    what: What,
}

#[derive(Clone, Copy)]
enum What {
    /// First sample of a packet of speech, counted from the run's first speech, and its time of
    /// arrival.
    Speech { sample: i64, arrived_ns: i64 },
    /// An event or comfort noise, with its timestamp.
    Other(u32),
}

impl Run {
    fn new(packet: &Packet, codec: Codec, ticks: i64) -> Run {
        let mut run = Run {
            codec,
            ticks,
            first_ns: packet.time_ns,
            last: Reached {
                packet: *packet,
                number: 0,
                sample: 0,
            },
            jumped_ns: 0,
            entries: Vec::new(),
        };
        run.push(0, 0, packet);
        run
    }

    fn push(&mut self, number: i64, sample: i64, packet: &Packet) {
        let what = What::Speech {
            sample,
            arrived_ns: packet.time_ns,
        };
        self.entries.push(Entry { number, what });
    }

    /// Difference of the packet's number to the last one, modulo 2^16 and as small as possible.
    fn ahead(&self, packet: &Packet) -> i64 {
        let last = self.last.packet.sequence;
        i64::from(packet.sequence.wrapping_sub(last).cast_signed())
    }

    /// Adds a packet of speech. Returns whether it fits the run.
    fn take(&mut self, packet: &Packet) -> bool {
        let Reached {
            packet: last,
            number,
            sample,
        } = self.last;
        let samples = self.ticks;
        let numbers = self.ahead(packet);
        let passed = i64::from(packet.timestamp.wrapping_sub(last.timestamp).cast_signed());
        if packet.ssrc != last.ssrc || numbers.abs() > DROPOUT_MAX {
            return false;
        }
        let jumped_ns = self.codec.ns(passed - samples);
        let fits = match numbers {
            0 => passed == 0,
            ..0 => passed <= -samples,
            1.. => {
                let waited_ns = packet.time_ns.saturating_sub(last.time_ns);
                let since_ns = packet.time_ns.saturating_sub(self.first_ns).max(0);
                let stood_still =
                    packet.marker && waited_ns > self.codec.ns(passed) + STOOD_STILL_NS;
                let has_time = jumped_ns == 0
                    || self.jumped_ns.saturating_add(jumped_ns)
                        <= since_ns.saturating_add(AHEAD_NS_MAX);
                passed >= samples && has_time && !stood_still
            }
        };
        if !fits {
            return false;
        }
        self.push(number + numbers, sample + passed, packet);
        if numbers > 0 {
            self.jumped_ns += jumped_ns;
            self.last = Reached {
                packet: *packet,
                number: number + numbers,
                sample: sample + passed,
            };
        }
        true
    }

    /// Notes the number of a packet without speech, if it is close to the last one.
    fn take_other(&mut self, packet: &Packet) {
        let numbers = self.ahead(packet);
        if packet.ssrc == self.last.packet.ssrc && numbers.abs() <= DROPOUT_MAX {
            self.entries.push(Entry {
                number: self.last.number + numbers,
                what: What::Other(packet.timestamp),
            });
        }
    }

    fn speech_packets(&self) -> usize {
        let is_speech = |entry: &&Entry| matches!(entry.what, What::Speech { .. });
        self.entries.iter().filter(is_speech).count()
    }
}

/// A packet of speech after everything else has been left out.
struct Row {
    place: i64,
    arrived_ns: i64,
}

/// The speech of a run, with places counted from `place` and times without the parts left out.
fn rows(run: &mut Run, mut place: i64, left_out: &mut LeftOut) -> Vec<Row> {
    let samples = run.ticks;
    run.entries
        .sort_by_key(|entry| (entry.number, matches!(entry.what, What::Other(_))));
    let mut rows: Vec<Row> = Vec::new();
    let mut before: Option<Entry> = None;
    // The sample after the last speech, and the numbers of packets without speech since then.
    let mut end: Option<i64> = None;
    let (mut missing, mut paused_ns) = (0_i64, 0_i64);
    let mut spoken = None;
    for entry in &run.entries {
        if let Some(before) = before {
            let is_one_event = match (before.what, entry.what) {
                (What::Other(one), What::Other(other)) => one == other,
                _ => false,
            };
            if !is_one_event {
                missing += (entry.number - before.number - 1).max(0);
            }
        }
        before = Some(*entry);
        let What::Speech { sample, arrived_ns } = entry.what else {
            continue;
        };
        if spoken != Some(entry.number) {
            if let Some(end) = end {
                let unheard = (sample - end).max(0);
                let lost = missing.min(unheard / samples);
                let silent = unheard - lost * samples;
                paused_ns += run.codec.ns(silent);
                left_out.pauses += u64::from(silent >= samples);
                place += lost + 1;
            }
            end = Some(sample + samples);
            missing = 0;
            spoken = Some(entry.number);
        }
        rows.push(Row {
            place,
            arrived_ns: arrived_ns.saturating_sub(paused_ns),
        });
    }
    left_out.silent_ns += paused_ns;
    rows
}

impl Stream {
    /// The stream's codec, and the speech in a packet in the units of timestamps, if it has any.
    pub(crate) fn speech(&self) -> Option<(Codec, u16)> {
        let mut packets = self.packets.iter();
        packets.find_map(|packet| match kind(packet, self.payload_types) {
            Kind::Speech(codec) => Some((codec, codec.ticks(packet)?)),
            _ => None,
        })
    }

    /// Why the stream has no speech.
    fn speechless(&self) -> Unplayable {
        let payload_type = self.packets.first().map_or(0, |packet| packet.payload_type);
        if self.payload_types.is_opus(payload_type) {
            Unplayable::NotOpus(payload_type)
        } else if self.payload_types.is_unknown(payload_type) {
            Unplayable::Unknown(payload_type)
        } else {
            Unplayable::PayloadType(payload_type)
        }
    }

    /// Extracts the stream's call.
    ///
    /// # Errors
    ///
    /// The first thing that makes it none.
    pub fn playable(&self) -> Result<Playable, Unplayable> {
        let of_first = self.packets.first().map_or(0, |packet| packet.payload_type);
        let (codec, ticks) = self.speech().ok_or_else(|| self.speechless())?;
        let mut left_out = LeftOut::default();
        let mut runs: Vec<Run> = Vec::new();
        let mut payload_type = None;
        for packet in &self.packets {
            match kind(packet, self.payload_types) {
                Kind::Speech(of_packet) if of_packet == codec => {
                    let of_packet = codec.ticks(packet);
                    let of_packet = of_packet.ok_or(Unplayable::NotOpus(packet.payload_type))?;
                    if of_packet != ticks || ticks == 0 {
                        return Err(unequal(codec, ticks, of_packet));
                    }
                    payload_type.get_or_insert(packet.payload_type);
                    // A late packet may belong to the previous run.
                    if !runs.iter_mut().rev().take(2).any(|run| run.take(packet)) {
                        runs.push(Run::new(packet, codec, ticks.into()));
                    }
                }
                Kind::Speech(_) | Kind::Other => {
                    let before = payload_type.unwrap_or(of_first);
                    return Err(Unplayable::Change(before, packet.payload_type));
                }
                Kind::Event | Kind::ComfortNoise => {
                    if let Kind::Event = kind(packet, self.payload_types) {
                        left_out.event_packets += 1;
                    } else {
                        left_out.comfort_noise_packets += 1;
                    }
                    if let Some(run) = runs.last_mut() {
                        run.take_other(packet);
                    }
                }
            }
        }
        let is_stray = |run: &Run| run.speech_packets() < 2;
        left_out.stray_packets = runs.iter().filter(|run| is_stray(run)).count() as u64;
        runs.retain(|run| !is_stray(run));
        left_out.restarts = (runs.len() as u64).saturating_sub(1);

        let packet_ns = codec.ns(ticks.into());
        let mut spoken: Vec<Row> = Vec::new();
        let (mut last_ns, mut begun_ns) = (None, None);
        for run in &mut runs {
            let last_of_run_ns = run.last.packet.time_ns;
            if let Some(last_ns) = last_ns {
                let silent_ns = run.first_ns.saturating_sub(last_ns) - packet_ns;
                left_out.silent_ns = left_out.silent_ns.saturating_add(silent_ns.max(0));
            }
            last_ns = Some(last_of_run_ns);
            let next = spoken.last().map_or(0, |row| row.place + 1);
            let mut rows = rows(run, next, &mut left_out);
            // A receiver begins anew, too: the first packet to arrive determines the time of all
            // others.
            let first = rows.iter().min_by_key(|row| (row.arrived_ns, row.place));
            let own_ns = first.map_or(0, |row| {
                row.arrived_ns
                    .saturating_sub(row.place.saturating_mul(packet_ns))
            });
            let later_ns = own_ns.saturating_sub(*begun_ns.get_or_insert(own_ns));
            for row in &mut rows {
                row.arrived_ns = row.arrived_ns.saturating_sub(later_ns);
            }
            spoken.append(&mut rows);
        }
        let (Some(first), Some(last)) = (spoken.first(), spoken.last()) else {
            return Err(Unplayable::Unsteady);
        };
        let numbers = last.place - first.place + 1;
        let received = spoken.len();
        if numbers > DROPOUT_MAX + LOST_FOR_ONE_MAX * received as i64 {
            return Err(Unplayable::Sparse { received, numbers });
        }
        let base = runs.first().map_or(0, |run| {
            let first = run
                .entries
                .iter()
                .find(|entry| matches!(entry.what, What::Speech { .. }));
            let behind = first.map_or(0, |entry| entry.number - run.last.number);
            i64::from(run.last.packet.sequence.wrapping_add(behind as u16))
        });
        Ok(Playable {
            codec,
            sequence: spoken.iter().map(|row| base + row.place).collect(),
            arrived_ns: spoken.iter().map(|row| row.arrived_ns).collect(),
            packet_ns,
            opus: self.opus(codec),
            left_out,
        })
    }

    /// How the stream's speech is coded, if that is Opus.
    fn opus(&self, codec: Codec) -> Option<opus::Coding> {
        if codec != Codec::Opus {
            return None;
        }
        let is_speech =
            |packet: &&Packet| matches!(kind(packet, self.payload_types), Kind::Speech(_));
        let speech = self.packets.iter().filter(is_speech);
        opus::Coding::of(speech.filter_map(|packet| Some((packet.opus?, packet.payload_bytes))))
    }
}

fn unequal(codec: Codec, one: u16, other: u16) -> Unplayable {
    let milliseconds = |ticks: u16| codec.ns(ticks.into()) as f64 / 1e6;
    match codec {
        Codec::G711(_) | Codec::G722 => Unplayable::Size(one, other),
        Codec::Opus => Unplayable::Duration(milliseconds(one), milliseconds(other)),
    }
}
