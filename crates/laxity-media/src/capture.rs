//! Writes captures that tshark and Wireshark read: pcap files of IP packets.

use etherparse::PacketBuilder;
use pcap_file::{
    DataLink, TsResolution,
    pcap::{PcapHeader, PcapPacket, PcapWriter},
};
use std::{
    io::{self, Write},
    net::SocketAddr,
    time::Duration,
};

/// Hop limit of a written packet; no reader uses it.
const HOPS: u8 = 64;

/// A pcap file that is being written. Times have nanoseconds; each packet begins with its IP
/// header.
pub struct Capture<W: Write> {
    writer: PcapWriter<W>,
    buffer: Vec<u8>,
}

impl<W: Write> Capture<W> {
    /// Begins the file.
    ///
    /// # Errors
    ///
    /// If it cannot be written.
    pub fn new(writer: W) -> io::Result<Capture<W>> {
        let header = PcapHeader {
            datalink: DataLink::RAW,
            ts_resolution: TsResolution::NanoSecond,
            ..PcapHeader::default()
        };
        Ok(Capture {
            writer: PcapWriter::with_header(writer, header).map_err(io::Error::other)?,
            buffer: Vec::new(),
        })
    }

    /// Writes one datagram as a UDP packet that arrived at `realtime_ns` since 1970.
    ///
    /// # Errors
    ///
    /// If it cannot be written, or the two addresses are not of one kind.
    pub fn write(
        &mut self,
        realtime_ns: i64,
        source: SocketAddr,
        destination: SocketAddr,
        octets: &[u8],
    ) -> io::Result<()> {
        let ip = match (source, destination) {
            (SocketAddr::V4(source), SocketAddr::V4(destination)) => {
                PacketBuilder::ipv4(source.ip().octets(), destination.ip().octets(), HOPS)
            }
            (SocketAddr::V6(source), SocketAddr::V6(destination)) => {
                PacketBuilder::ipv6(source.ip().octets(), destination.ip().octets(), HOPS)
            }
            _ => return Err(io::Error::other("addresses of IPv4 and IPv6 in one packet")),
        };
        self.buffer.clear();
        ip.udp(source.port(), destination.port())
            .write(&mut self.buffer, octets)
            .map_err(io::Error::other)?;
        let time = Duration::from_nanos(realtime_ns.max(0) as u64);
        let packet = PcapPacket::new(time, self.buffer.len() as u32, &self.buffer);
        self.writer
            .write_packet(&packet)
            .map_err(io::Error::other)?;
        Ok(())
    }

    /// Ends the file, and returns its writer.
    pub fn into_inner(self) -> W {
        self.writer.into_writer()
    }
}
