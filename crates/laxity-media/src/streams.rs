//! Finds the RTP streams in any capture: pcap and pcapng of Ethernet, of Linux's "any" interface or
//! of bare IP.
//!
//! Packets of one source and destination with one SSRC are a stream (RFC 3550, section 3), so that a stream is two of
//! them where both sides of a media server were captured. Pure but for the reader that the octets come from.

use crate::{
    opus, rtp,
    signalling::{self, PayloadTypes},
};
use etherparse::{EtherType, SlicedPacket, TransportSlice};
use pcap_file::{
    DataLink, PcapError, TsResolution,
    pcap::PcapReader,
    pcapng::{
        Block, PcapNgReader,
        blocks::interface_description::{InterfaceDescriptionBlock, InterfaceDescriptionOption},
    },
};
use std::{
    collections::BTreeMap,
    fmt,
    io::{self, Read},
    net::{IpAddr, SocketAddr},
};

/// First octets of pcapng; every other file is parsed as pcap, whose reader knows its four kinds of
/// magic.
const PCAPNG: [u8; 4] = 0x0A0D_0D0A_u32.to_be_bytes();
/// Size of the header of Linux's "any" interface, second version; it begins with the type of what
/// follows.
const SLL2_BYTES: usize = 20;
/// Size of the header of BSD's loopback interface.
const NULL_BYTES: usize = 4;
/// Default resolution of pcapng: microseconds.
const PCAPNG_RESOLUTION: u8 = 6;
/// RTCP's packet types without the marker bit (RFC 5761, section 4).
const RTCP: std::ops::RangeInclusive<u8> = 64..=95;
/// Longest pause after which a new source between the same addresses continues the previous call.
const GOES_ON_NS: i64 = 2_000_000_000;
/// Most RTP packets of a capture, which are kept in memory. 20 million are 111 hours of streams.
const PACKETS_MAX: u64 = 20_000_000;
/// Most streams, including those of one packet, which usually are no RTP.
const STREAMS_MAX: usize = 2_000_000;
/// Most changes that signalling makes to what payload types mean.
const DESCRIPTIONS_MAX: usize = 2_000_000;

/// Reasons why a capture cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum Unreadable {
    /// The file's first octets are those of no capture.
    #[error("it is neither pcap nor pcapng")]
    NotACapture,
    /// The capture does not fit into memory.
    #[error(
        "it has more than {PACKETS_MAX} packets of RTP, {STREAMS_MAX} streams or {DESCRIPTIONS_MAX} descriptions of \
         streams; split it (editcap -c)"
    )]
    TooMany,
    /// Packets are truncated.
    #[error(
        "packet {packet} was captured in part, {captured} of {actual} octets; capture without a limit (tcpdump -s 0)"
    )]
    Cut {
        /// Number of the packet, from 1.
        packet: u64,
        /// Octets in the capture.
        captured: u64,
        /// Octets of the original packet.
        actual: u64,
    },
    /// The link type is not supported.
    #[error("its packets are of link type {0:?}; Ethernet, Linux cooked and raw IP can be read")]
    Link(DataLink),
    /// Packets without a time.
    #[error("packet {packet} has no time")]
    NoTime {
        /// Number of the packet, from 1.
        packet: u64,
    },
    /// A field of the file is invalid.
    #[error("after packet {packet}: {why}")]
    Malformed {
        /// Number of the last valid packet, from 1.
        packet: u64,
        /// The reader's message.
        why: String,
    },
    /// The system cannot read the file.
    #[error("{0}")]
    System(io::Error),
}

/// Contents of a capture.
#[derive(Debug, Default)]
pub struct Found {
    /// Streams in the order of their first packets.
    pub streams: Vec<Stream>,
    /// Number of packets of all kinds.
    pub packets: u64,
    /// Number of packets that are not UDP.
    pub not_udp: u64,
    /// Number of UDP packets that are not RTP.
    pub not_rtp: u64,
    /// Number from 1 of the packet in which the file ends, if it is truncated.
    pub cut_packet: Option<u64>,
}

/// Packets with one source, destination and SSRC, or with several SSRCs each of which begins soon
/// after the previous one.
#[derive(Debug)]
pub struct Stream {
    /// Address of the sender.
    pub source: SocketAddr,
    /// Address of the receiver.
    pub destination: SocketAddr,
    /// RTP's synchronization source; the first, if there are several.
    pub ssrc: u32,
    /// Packets in the order of their arrival.
    pub packets: Vec<Packet>,
    /// What is known of its payload types.
    pub payload_types: PayloadTypes,
}

/// The relevant fields of an RTP packet.
#[derive(Debug, Clone, Copy)]
pub struct Packet {
    /// Time of capture since 1970.
    pub time_ns: i64,
    /// RTP's payload type.
    pub payload_type: u8,
    /// RTP's sequence number, modulo 2^16.
    pub sequence: u16,
    /// RTP's timestamp, in samples modulo 2^32.
    pub timestamp: u32,
    /// RTP's synchronization source.
    pub ssrc: u32,
    /// Size of the payload in octets.
    pub payload_bytes: u16,
    /// RTP's marker: a talk spurt begins.
    pub marker: bool,
    /// What the payload says of itself if it is Opus.
    pub opus: Option<opus::Packet>,
}

impl fmt::Display for Stream {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Stream {
            source,
            destination,
            ssrc,
            ..
        } = self;
        write!(formatter, "{ssrc:08x} {source}>{destination}")
    }
}

impl Stream {
    /// Whether this stream begins soon after another has ended.
    fn begins_after(&self, before: &Stream) -> bool {
        let (Some(first), Some(last)) = (self.packets.first(), before.packets.last()) else {
            return false;
        };
        (last.time_ns..=last.time_ns.saturating_add(GOES_ON_NS)).contains(&first.time_ns)
    }

    /// Whether two of its packets have successive numbers, which rules out most accidental matches
    /// (RFC 3550, A.1).
    fn is_stream(&self) -> bool {
        self.packets
            .windows(2)
            .any(|pair| pair[1].sequence == pair[0].sequence.wrapping_add(1))
    }
}

/// The RTP streams in the octets of a capture. `told` counts where its signalling says nothing of a payload type.
///
/// # Errors
///
/// If it is no capture, not whole, or of packets that cannot be read.
pub fn read(mut octets: impl Read, told: PayloadTypes) -> Result<Found, Unreadable> {
    let mut beginning = Vec::new();
    (&mut octets)
        .take(PCAPNG.len() as u64)
        .read_to_end(&mut beginning)
        .map_err(Unreadable::System)?;
    let is_pcapng = beginning == PCAPNG;
    let octets = io::Cursor::new(beginning).chain(octets);
    let mut finder = Finder::default();
    if is_pcapng {
        finder.pcapng(octets)?;
    } else {
        finder.pcap(octets)?;
    }
    Ok(finder.found(told))
}

#[derive(Default)]
struct Finder {
    streams: Vec<Stream>,
    places: BTreeMap<(SocketAddr, SocketAddr, u32), usize>,
    /// What signalling said of the payload types of each receiver, and when.
    described: BTreeMap<SocketAddr, Vec<(i64, PayloadTypes)>>,
    descriptions: usize,
    packets: u64,
    rtp: u64,
    not_udp: u64,
    not_rtp: u64,
    cut_packet: Option<u64>,
}

impl Finder {
    fn pcap(&mut self, octets: impl Read) -> Result<(), Unreadable> {
        let mut reader = PcapReader::new(octets).map_err(|error| match error {
            PcapError::IoError(error) if error.kind() != io::ErrorKind::UnexpectedEof => {
                Unreadable::System(error)
            }
            _ => Unreadable::NotACapture,
        })?;
        let link = reader.header().datalink;
        let unit_ns = match reader.header().ts_resolution {
            TsResolution::MicroSecond => 1_000,
            TsResolution::NanoSecond => 1,
        };
        // Raw packets are read, because the reader reports truncated ones as errors otherwise.
        while let Some(packet) = reader.next_raw_packet() {
            let packet = match packet {
                Ok(packet) => packet,
                Err(error) => return self.end(error),
            };
            let time_ns =
                i64::from(packet.ts_sec) * 1_000_000_000 + i64::from(packet.ts_frac) * unit_ns;
            self.packet(link, time_ns, &packet.data, u64::from(packet.orig_len))?;
        }
        Ok(())
    }

    fn pcapng(&mut self, octets: impl Read) -> Result<(), Unreadable> {
        let mut reader = match PcapNgReader::new(octets) {
            Ok(reader) => reader,
            Err(error) => return self.end(error),
        };
        // A copy of the reader's interfaces, which it does not lend while it lends a block.
        let mut interfaces: Vec<(DataLink, u8)> = Vec::new();
        while let Some(block) = reader.next_block() {
            let block = match block {
                Ok(block) => block,
                Err(error) => return self.end(error),
            };
            match block {
                Block::SectionHeader(_) => interfaces.clear(),
                Block::InterfaceDescription(interface) => {
                    interfaces.push((interface.linktype, resolution(&interface)));
                }
                Block::EnhancedPacket(packet) => {
                    let &(link, resolution) = interfaces
                        .get(packet.interface_id as usize)
                        .ok_or_else(|| Unreadable::Malformed {
                            packet: self.packets,
                            why: format!("there is no interface {}", packet.interface_id),
                        })?;
                    // The reader's nanoseconds are in fact the interface's units.
                    let units = packet.timestamp.as_nanos() as u64;
                    let time_ns = nanoseconds(units, resolution).ok_or(Unreadable::NoTime {
                        packet: self.packets + 1,
                    })?;
                    let actual = u64::from(packet.original_len);
                    self.packet(link, time_ns, &packet.data, actual)?;
                }
                Block::SimplePacket(_) | Block::Packet(_) => {
                    return Err(Unreadable::NoTime {
                        packet: self.packets + 1,
                    });
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// Accepts a file that ends within a packet up to there.
    fn end(&mut self, error: PcapError) -> Result<(), Unreadable> {
        match error {
            PcapError::IncompleteBuffer => self.cut_packet = Some(self.packets + 1),
            PcapError::IoError(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
                self.cut_packet = Some(self.packets + 1);
            }
            PcapError::IoError(error) => return Err(Unreadable::System(error)),
            error => {
                return Err(Unreadable::Malformed {
                    packet: self.packets,
                    why: error.to_string(),
                });
            }
        }
        Ok(())
    }

    fn packet(
        &mut self,
        link: DataLink,
        time_ns: i64,
        octets: &[u8],
        actual: u64,
    ) -> Result<(), Unreadable> {
        self.packets += 1;
        if (octets.len() as u64) < actual {
            return Err(Unreadable::Cut {
                packet: self.packets,
                captured: octets.len() as u64,
                actual,
            });
        }
        let Some((source, destination, payload)) = datagram(link, octets)? else {
            self.not_udp += 1;
            return Ok(());
        };
        let Some(packet) = rtp_packet(payload, time_ns) else {
            self.not_rtp += 1;
            return self.signalling(payload, time_ns);
        };
        let (ssrc, next) = (packet.ssrc, self.streams.len());
        self.rtp += 1;
        if self.rtp > PACKETS_MAX || next > STREAMS_MAX {
            return Err(Unreadable::TooMany);
        }
        let place = *self
            .places
            .entry((source, destination, ssrc))
            .or_insert(next);
        if place == next {
            self.streams.push(Stream {
                source,
                destination,
                ssrc,
                packets: Vec::new(),
                payload_types: PayloadTypes::default(),
            });
        }
        self.streams[place].packets.push(packet);
        Ok(())
    }

    fn signalling(&mut self, datagram: &[u8], time_ns: i64) -> Result<(), Unreadable> {
        for (receiver, payload_types) in signalling::described(datagram) {
            let of_receiver = self.described.entry(receiver).or_default();
            // Messages are repeated until they are answered.
            if of_receiver
                .last()
                .is_none_or(|last| last.1 != payload_types)
            {
                of_receiver.push((time_ns, payload_types));
                self.descriptions += 1;
            }
        }
        if self.descriptions > DESCRIPTIONS_MAX {
            return Err(Unreadable::TooMany);
        }
        Ok(())
    }

    fn found(mut self, told: PayloadTypes) -> Found {
        for stream in &mut self.streams {
            // A port is another call's later.
            let end_ns = stream.packets.last().map_or(0, |packet| packet.time_ns);
            let of_receiver = self.described.get(&stream.destination);
            let said = of_receiver.and_then(|said| said.iter().rev().find(|said| said.0 <= end_ns));
            stream.payload_types = said.map_or(told, |&(_, said)| said.or(told));
        }
        let (streams, others): (Vec<_>, Vec<_>) =
            self.streams.into_iter().partition(Stream::is_stream);
        let strays: usize = others.iter().map(|stream| stream.packets.len()).sum();
        Found {
            streams: joined(streams),
            packets: self.packets,
            not_udp: self.not_udp,
            not_rtp: self.not_rtp + strays as u64,
            cut_packet: self.cut_packet,
        }
    }
}

/// The streams, in which each that continues another's call has been joined to it.
fn joined(streams: Vec<Stream>) -> Vec<Stream> {
    let mut joined: Vec<Stream> = Vec::new();
    // The place of the latest stream between two addresses, with its kind of speech, which stays the
    // same: to look for it in all packets again would take the square of their number.
    let mut latest: BTreeMap<_, (usize, _)> = BTreeMap::new();
    for stream in streams {
        let (addresses, speech) = ((stream.source, stream.destination), stream.speech());
        let before = latest.get(&addresses);
        let place = before.filter(|&&(place, of_before)| {
            speech == of_before && stream.begins_after(&joined[place])
        });
        match place {
            Some(&(place, _)) => joined[place].packets.extend(stream.packets),
            None => {
                latest.insert(addresses, (joined.len(), speech));
                joined.push(stream);
            }
        }
    }
    joined
}

/// Resolution of a pcapng interface: a negative exponent of ten or, with the highest bit, of two.
fn resolution(interface: &InterfaceDescriptionBlock<'_>) -> u8 {
    let said = interface.options.iter().find_map(|option| match option {
        InterfaceDescriptionOption::IfTsResol(resolution) => Some(*resolution),
        _ => None,
    });
    said.unwrap_or(PCAPNG_RESOLUTION)
}

/// Units of a pcapng interface as nanoseconds, unless they overflow.
fn nanoseconds(units: u64, resolution: u8) -> Option<i64> {
    let (base, exponent) = if resolution & 0x80 == 0 {
        (10u128, u32::from(resolution))
    } else {
        (2, u32::from(resolution & 0x7F))
    };
    let units_a_second = base.checked_pow(exponent)?;
    i64::try_from(u128::from(units) * 1_000_000_000 / units_a_second).ok()
}

/// Source, destination and payload.
type Datagram<'a> = (SocketAddr, SocketAddr, &'a [u8]);

/// The UDP datagram in a packet; `None` if there is none.
fn datagram(link: DataLink, octets: &[u8]) -> Result<Option<Datagram<'_>>, Unreadable> {
    let sliced = match link {
        DataLink::ETHERNET => SlicedPacket::from_ethernet(octets),
        DataLink::RAW | DataLink::IPV4 | DataLink::IPV6 => SlicedPacket::from_ip(octets),
        DataLink::LINUX_SLL => SlicedPacket::from_linux_sll(octets),
        DataLink::LINUX_SLL2 if octets.len() >= SLL2_BYTES => {
            let ether_type = EtherType(u16::from_be_bytes([octets[0], octets[1]]));
            SlicedPacket::from_ether_type(ether_type, &octets[SLL2_BYTES..])
        }
        DataLink::NULL | DataLink::LOOP if octets.len() >= NULL_BYTES => {
            SlicedPacket::from_ip(&octets[NULL_BYTES..])
        }
        DataLink::LINUX_SLL2 | DataLink::NULL | DataLink::LOOP => return Ok(None),
        other => return Err(Unreadable::Link(other)),
    };
    let Ok(sliced) = sliced else { return Ok(None) };
    let Some(TransportSlice::Udp(udp)) = &sliced.transport else {
        return Ok(None);
    };
    let addresses: (IpAddr, IpAddr) = match &sliced.net {
        Some(etherparse::NetSlice::Ipv4(ip)) => (
            ip.header().source_addr().into(),
            ip.header().destination_addr().into(),
        ),
        Some(etherparse::NetSlice::Ipv6(ip)) => (
            ip.header().source_addr().into(),
            ip.header().destination_addr().into(),
        ),
        _ => return Ok(None),
    };
    Ok(Some((
        SocketAddr::new(addresses.0, udp.source_port()),
        SocketAddr::new(addresses.1, udp.destination_port()),
        udp.payload(),
    )))
}

/// The fields of an RTP packet; `None` if the octets are not RTP.
fn rtp_packet(octets: &[u8], time_ns: i64) -> Option<Packet> {
    let packet = rtp::packet(octets).ok()?;
    let found = Packet {
        time_ns,
        payload_type: packet.payload_type(),
        sequence: packet.sequence_number(),
        timestamp: packet.timestamp(),
        ssrc: packet.ssrc(),
        // The length always fits: a datagram is shorter.
        payload_bytes: u16::try_from(packet.payload_len()).ok()?,
        marker: packet.marker_bit(),
        opus: opus::Packet::parse(packet.payload()),
    };
    (!RTCP.contains(&found.payload_type)).then_some(found)
}
