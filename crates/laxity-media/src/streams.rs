//! The RTP streams in a capture, anybody's: pcap and pcapng of Ethernet, of Linux's "any" or of bare IP.
//!
//! Packets of one source and destination with one SSRC are a stream (RFC 3550, section 3), so that a stream is two of
//! them where both sides of a media server were captured. Pure but for the reader that the octets come from.

use crate::{g711::Law, rtp};
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
/// Numbers that two packets of one stream may be apart (RFC 3550, A.1); further, it was begun anew.
const DROPOUT_MAX: i64 = 3_000;

/// Why a capture cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum Unreadable {
    /// The file's beginning is not that of one.
    #[error("it is neither pcap nor pcapng")]
    NotACapture,
    /// It ends within a packet.
    #[error("it ends in the middle of packet {packet}; the file is truncated")]
    Truncated {
        /// From 1.
        packet: u64,
    },
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
}

/// The packets with one source, destination and SSRC.
#[derive(Debug)]
pub struct Stream {
    /// Who sent it.
    pub source: SocketAddr,
    /// To whom.
    pub destination: SocketAddr,
    /// RTP's synchronization source.
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
    /// The payload's octets.
    pub payload_bytes: usize,
}

/// A stream of G.711 that a receiver would play from end to end.
#[derive(Debug, PartialEq, Eq)]
pub struct Playable {
    /// Which law.
    pub law: Law,
    /// Of each packet in the order of arrival: its number, counted on from the first's.
    pub sequence: Vec<i64>,
    /// Of each packet, since 1970.
    pub arrived_ns: Vec<i64>,
    /// Samples of each.
    pub packet_samples: u32,
}

/// Why a stream is not one call of G.711.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Unplayable {
    /// Another codec.
    #[error("has payload type {0}; 0 (PCMU) or 8 (PCMA) was expected")]
    PayloadType(u8),
    /// Two codecs, or tones and comfort noise between the speech.
    #[error("changes from payload type {0} to {1}")]
    Change(u8, u8),
    /// Of one size only the time of each packet is known.
    #[error("has packets of {0} and of {1} octets")]
    Size(usize, usize),
    /// It starts anew, or it is two.
    #[error("has sequence number {after} after {before}")]
    Jump {
        /// The packet before.
        before: u16,
        /// And the one that does not belong to it.
        after: u16,
    },
    /// Silence is not sent, or its clock jumps.
    #[error(
        "pauses at sequence number {0} (its timestamps jump, as with silence suppression); \
         only unbroken streams can be scored"
    )]
    Pause(u16),
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
    /// The stream as a call, if it is one of G.711 from end to end.
    ///
    /// # Errors
    ///
    /// The first thing that makes it none.
    pub fn playable(&self) -> Result<Playable, Unplayable> {
        let Some(&first) = self.packets.first() else {
            unreachable!("a stream begins with a packet");
        };
        let law = Law::of_payload_type(first.payload_type)
            .ok_or(Unplayable::PayloadType(first.payload_type))?;
        let mut sequence = Vec::with_capacity(self.packets.len());
        let mut before = first;
        let mut number = i64::from(first.sequence);
        for packet in &self.packets {
            if packet.payload_type != first.payload_type {
                return Err(Unplayable::Change(first.payload_type, packet.payload_type));
            }
            if packet.payload_bytes != first.payload_bytes || packet.payload_bytes == 0 {
                return Err(Unplayable::Size(first.payload_bytes, packet.payload_bytes));
            }
            // As near to the one before as it can be.
            let step = i64::from(packet.sequence.wrapping_sub(before.sequence).cast_signed());
            if step.abs() > DROPOUT_MAX {
                return Err(Unplayable::Jump {
                    before: before.sequence,
                    after: packet.sequence,
                });
            }
            number += step;
            let samples = (number - i64::from(first.sequence)) * first.payload_bytes as i64;
            // Both count modulo 2^32.
            if packet.timestamp != first.timestamp.wrapping_add(samples as u32) {
                return Err(Unplayable::Pause(packet.sequence));
            }
            sequence.push(number);
            before = *packet;
        }
        Ok(Playable {
            law,
            sequence,
            arrived_ns: self.packets.iter().map(|packet| packet.time_ns).collect(),
            packet_samples: first.payload_bytes as u32,
        })
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
    not_udp: u64,
    not_rtp: u64,
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
            let packet = packet.map_err(|error| self.unreadable(error))?;
            let time_ns =
                i64::from(packet.ts_sec) * 1_000_000_000 + i64::from(packet.ts_frac) * unit_ns;
            self.packet(link, time_ns, &packet.data, u64::from(packet.orig_len))?;
        }
        Ok(())
    }

    fn pcapng(&mut self, octets: impl Read) -> Result<(), Unreadable> {
        let mut reader = PcapNgReader::new(octets).map_err(|error| self.unreadable(error))?;
        // The reader has them too, but does not lend them while it lends a block.
        let mut interfaces: Vec<(DataLink, u8)> = Vec::new();
        while let Some(block) = reader.next_block() {
            match block.map_err(|error| self.unreadable(error))? {
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

    fn unreadable(&self, error: PcapError) -> Unreadable {
        match error {
            PcapError::IncompleteBuffer => Unreadable::Truncated {
                packet: self.packets + 1,
            },
            PcapError::IoError(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
                Unreadable::Truncated {
                    packet: self.packets + 1,
                }
            }
            PcapError::IoError(error) => Unreadable::System(error),
            error => Unreadable::Malformed {
                packet: self.packets,
                why: error.to_string(),
            },
        }
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
        let Some((ssrc, packet)) = rtp_packet(payload, time_ns) else {
            self.not_rtp += 1;
            return Ok(());
        };
        let next = self.streams.len();
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
            streams,
            packets: self.packets,
            not_udp: self.not_udp,
            not_rtp: self.not_rtp + strays as u64,
        }
    }
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

/// SSRC and packet, if the octets are RTP.
fn rtp_packet(octets: &[u8], time_ns: i64) -> Option<(u32, Packet)> {
    let packet = rtp::packet(octets).ok()?;
    let found = Packet {
        time_ns,
        payload_type: packet.payload_type(),
        sequence: packet.sequence_number(),
        timestamp: packet.timestamp(),
        payload_bytes: packet.payload_len(),
    };
    (!RTCP.contains(&found.payload_type)).then_some((packet.ssrc(), found))
}
