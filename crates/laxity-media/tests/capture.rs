//! Captures read back by another crate's reader, and by tshark where it is installed.

use etherparse::SlicedPacket;
use laxity_media::{
    capture::Capture,
    g711::Law,
    rtp::{self, HEADER_BYTES, Header, PACKET_BYTES},
    statistics::{Arrival, StreamStatistics},
};
use pcap_file::{DataLink, pcap::PcapReader};
use std::{fs, net::SocketAddr, process::Command, time::Duration};

const SOURCE: &str = "192.0.2.1:40000";
const DESTINATION: &str = "192.0.2.2:30000";

fn address(text: &str) -> SocketAddr {
    text.parse().unwrap()
}

/// A stream without packets 3 to 5, with varying delays; and its statistics.
fn capture() -> (Vec<u8>, Vec<Vec<u8>>, StreamStatistics) {
    let mut capture = Capture::new(Vec::new()).unwrap();
    let mut statistics = StreamStatistics::new(50, 60_000_000);
    let mut packets = Vec::new();
    for number in (0..50).filter(|number| !(3..6).contains(number)) {
        let mut octets = [number as u8; PACKET_BYTES];
        let header = Header {
            marker: number == 0,
            law: Law::Mu,
            sequence: 65_520u16.wrapping_add(number as u16),
            timestamp: 160 * number as u32,
            ssrc: 0xCAFE_BABE,
            payload: HEADER_BYTES..PACKET_BYTES,
        };
        rtp::write_header(&header, &mut octets);
        let arrival = Arrival {
            position: number,
            timestamp: header.timestamp,
            sent_ns: number * 20_000_000,
            arrived_ns: number * 20_000_000 + number % 7 * 1_000_000,
        };
        statistics.record(&arrival);
        let realtime_ns = 1_700_000_000_000_000_000 + arrival.arrived_ns;
        capture
            .write(realtime_ns, address(SOURCE), address(DESTINATION), &octets)
            .unwrap();
        packets.push(octets.to_vec());
    }
    (capture.into_inner(), packets, statistics)
}

#[test]
fn what_is_written_is_read() {
    let (file, packets, _) = capture();
    let mut reader = PcapReader::new(&file[..]).unwrap();
    assert_eq!(reader.header().datalink, DataLink::RAW);
    for (number, octets) in packets.iter().enumerate() {
        let packet = reader.next_packet().unwrap().unwrap();
        if number == 1 {
            let time = Duration::from_nanos(1_700_000_000_000_000_000 + 21_000_000);
            assert_eq!(packet.timestamp, time);
        }
        let sliced = SlicedPacket::from_ip(&packet.data).unwrap();
        let Some(etherparse::TransportSlice::Udp(udp)) = sliced.transport else {
            panic!("no UDP");
        };
        assert_eq!(
            (udp.source_port(), udp.destination_port()),
            (40_000, 30_000)
        );
        assert_eq!(udp.payload(), octets);
    }
    assert!(reader.next_packet().is_none());
}

#[test]
fn addresses_of_two_kinds_are_refused_and_ipv6_is_not() {
    let mut capture = Capture::new(Vec::new()).unwrap();
    let (four, six) = (address(SOURCE), address("[2001:db8::1]:5004"));
    assert!(capture.write(0, four, six, &[1]).is_err());
    capture.write(0, six, six, &[1]).unwrap();
    let file = capture.into_inner();
    let mut reader = PcapReader::new(&file[..]).unwrap();
    assert_eq!(
        reader.next_packet().unwrap().unwrap().data.len(),
        40 + 8 + 1
    );
}

#[test]
fn tshark_sees_the_stream_as_we_do() {
    if Command::new("tshark").arg("--version").output().is_err() {
        println!("SKIPPED: tshark is not installed");
        return;
    }
    let (file, _, statistics) = capture();
    let path = std::env::temp_dir().join(format!("laxity-media-{}.pcap", std::process::id()));
    fs::write(&path, file).unwrap();
    let output = Command::new("tshark")
        .arg("-r")
        .arg(&path)
        .args(["-q", "-d", "udp.port==30000,rtp", "-z", "rtp,streams"])
        .output()
        .unwrap();
    fs::remove_file(&path).unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let line = text
        .lines()
        .find(|line| line.contains("0xCAFEBABE"))
        .unwrap_or_else(|| panic!("tshark sees no stream: {text}"));
    let columns: Vec<_> = line.split_whitespace().collect();
    let begin = columns
        .iter()
        .position(|&column| column == "0xCAFEBABE")
        .unwrap();
    // Payload, packets, lost and its share, minimum, mean and maximum of deltas, then of jitter; in ms.
    assert_eq!(
        &columns[begin + 1..begin + 4],
        ["g711U", "47", "3"],
        "{line}"
    );
    let jitter_ms_max: f64 = columns[begin + 10].parse().unwrap();
    let ours_ms = statistics.report(0).jitter_ns_max.unwrap() / 1e6;
    assert!((jitter_ms_max - ours_ms).abs() < 0.001, "{line}: {ours_ms}");
}
