//! The RTP streams in a capture, anybody's: pcap and pcapng of Ethernet, of Linux's "any" or of bare IP.
//!
//! Packets of one source and destination with one SSRC are a stream (RFC 3550, section 3), so that a stream is two of
//! them where both sides of a media server were captured. Pure but for the reader that the octets come from.

use crate::rtp;
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

/// What pcapng begins with; the rest is taken for pcap, whose reader knows its own four beginnings.
const PCAPNG: [u8; 4] = 0x0A0D_0D0A_u32.to_be_bytes();
/// A header of Linux's "any" interface, second version; it begins with the type of what follows.
const SLL2_BYTES: usize = 20;
/// A header of BSD's loopback interface.
const NULL_BYTES: usize = 4;
/// pcapng counts microseconds where an interface says nothing else.
const PCAPNG_RESOLUTION: u8 = 6;
/// RTCP's packet types beneath the marker bit (RFC 5761, section 4).
const RTCP: std::ops::RangeInclusive<u8> = 64..=95;
/// A source that begins so soon after another between the same addresses goes on with its call.
const GOES_ON_NS: i64 = 2_000_000_000;
/// RTP packets of one capture: they are in memory, with all that is made of them. 20 million are 111 hours of streams.
const PACKETS_MAX: u64 = 20_000_000;
/// Streams, those of one packet included, which most often are no RTP.
const STREAMS_MAX: usize = 2_000_000;

/// Why a capture cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum Unreadable {
    /// The file's beginning is not that of one.
    #[error("it is neither pcap nor pcapng")]
    NotACapture,
    /// More than fits into memory.
    #[error(
        "it has more than {PACKETS_MAX} packets of RTP or {STREAMS_MAX} streams; split it (editcap -c)"
    )]
    TooMany,
    /// Its packets are not whole.
    #[error(
        "of packet {packet} only {captured} of {actual} octets were captured; capture without a limit (tcpdump -s 0)"
    )]
    Cut {
        /// From 1.
        packet: u64,
        /// Octets there are.
        captured: u64,
        /// Octets there were.
        actual: u64,
    },
    /// Nothing here knows what its packets begin with.
    #[error("its packets are of link type {0:?}; Ethernet, Linux cooked and raw IP can be read")]
    Link(DataLink),
    /// Packets without a time.
    #[error("packet {packet} has no time")]
    NoTime {
        /// From 1.
        packet: u64,
    },
    /// Some field of the file is wrong.
    #[error("after packet {packet}: {why}")]
    Malformed {
        /// The last whole one, from 1.
        packet: u64,
        /// What the reader says.
        why: String,
    },
    /// The system could not read it.
    #[error("{0}")]
    System(io::Error),
}

/// What was found in a capture.
#[derive(Debug, Default)]
pub struct Found {
    /// In the order of their first packets.
    pub streams: Vec<Stream>,
    /// Packets of all kinds.
    pub packets: u64,
    /// Those that are not UDP.
    pub not_udp: u64,
    /// UDP that is not RTP.
    pub not_rtp: u64,
    /// The packet in the middle of which the file ends, from 1, if it does.
    pub cut_packet: Option<u64>,
}

/// The packets with one source, destination and SSRC, or with several SSRCs of which each begins soon after the one before.
#[derive(Debug)]
pub struct Stream {
    /// Who sent it.
    pub source: SocketAddr,
    /// To whom.
    pub destination: SocketAddr,
    /// RTP's synchronization source; of several the first.
    pub ssrc: u32,
    /// In the order of their arrival.
    pub packets: Vec<Packet>,
}

/// What matters of one RTP packet.
#[derive(Debug, Clone, Copy)]
pub struct Packet {
    /// When it was captured, since 1970.
    pub time_ns: i64,
    /// RTP's payload type.
    pub payload_type: u8,
    /// RTP's number, modulo 2^16.
    pub sequence: u16,
    /// RTP's time, in samples modulo 2^32.
    pub timestamp: u32,
    /// RTP's synchronization source.
    pub ssrc: u32,
    /// The payload's octets.
    pub payload_bytes: u16,
    /// RTP's mark: a talk spurt begins.
    pub marker: bool,
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
    /// Whether it begins soon after another has ended, with speech of the same kind.
    fn goes_on_with(&self, before: &Stream) -> bool {
        let (Some(first), Some(last)) = (self.packets.first(), before.packets.last()) else {
            return false;
        };
        (last.time_ns..=last.time_ns.saturating_add(GOES_ON_NS)).contains(&first.time_ns)
            && self.speech() == before.speech()
    }

    /// Whether two of its packets follow each other in number: what is so by chance is not RTP (RFC 3550, A.1).
    fn is_stream(&self) -> bool {
        self.packets
            .windows(2)
            .any(|pair| pair[1].sequence == pair[0].sequence.wrapping_add(1))
    }
}

/// The RTP streams in the octets of a capture.
///
/// # Errors
///
/// If it is no capture, not whole, or of packets that cannot be read.
pub fn read(mut octets: impl Read) -> Result<Found, Unreadable> {
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
    Ok(finder.found())
}

#[derive(Default)]
struct Finder {
    streams: Vec<Stream>,
    places: BTreeMap<(SocketAddr, SocketAddr, u32), usize>,
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
        // Raw ones: of others the reader takes what was cut off for a mistake.
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
        // The reader has them too, but does not lend them while it lends a block.
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
                    // What the reader calls nanoseconds are the interface's units.
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

    /// A file that ends within a packet is good up to there.
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
            return Ok(());
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
            });
        }
        self.streams[place].packets.push(packet);
        Ok(())
    }

    fn found(self) -> Found {
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

/// The streams, of which one that goes on with another's call is part of that.
fn joined(streams: Vec<Stream>) -> Vec<Stream> {
    let mut joined: Vec<Stream> = Vec::new();
    let mut latest: BTreeMap<(SocketAddr, SocketAddr), usize> = BTreeMap::new();
    for stream in streams {
        let addresses = (stream.source, stream.destination);
        let before = latest.get(&addresses).map(|&place| &mut joined[place]);
        match before {
            Some(before) if stream.goes_on_with(before) => before.packets.extend(stream.packets),
            _ => {
                latest.insert(addresses, joined.len());
                joined.push(stream);
            }
        }
    }
    joined
}

/// How an interface of pcapng counts time: an exponent of ten or, with the highest bit, of two, both negative.
fn resolution(interface: &InterfaceDescriptionBlock<'_>) -> u8 {
    let said = interface.options.iter().find_map(|option| match option {
        InterfaceDescriptionOption::IfTsResol(resolution) => Some(*resolution),
        _ => None,
    });
    said.unwrap_or(PCAPNG_RESOLUTION)
}

/// Units of an interface of pcapng as nanoseconds, if they are that many.
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

/// The UDP datagram in a packet, if there is one.
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

/// The packet, if the octets are RTP.
fn rtp_packet(octets: &[u8], time_ns: i64) -> Option<Packet> {
    let packet = rtp::packet(octets).ok()?;
    let found = Packet {
        time_ns,
        payload_type: packet.payload_type(),
        sequence: packet.sequence_number(),
        timestamp: packet.timestamp(),
        ssrc: packet.ssrc(),
        // A datagram has fewer.
        payload_bytes: u16::try_from(packet.payload_len()).ok()?,
        marker: packet.marker_bit(),
    };
    (!RTCP.contains(&found.payload_type)).then_some(found)
}
