//! Captures: our own, other tools' formats, and files that are none.

use laxity_media::{
    capture::Capture,
    g711::Law,
    rtp::{self, HEADER_BYTES, Header, PACKET_BYTES},
    signalling::PayloadTypes,
    speech::{Codec, LeftOut, Playable, Unplayable},
    streams::{Found, Unreadable, read},
};
use std::net::SocketAddr;

const SOURCE: &str = "192.0.2.1:40000";
const DESTINATION: &str = "192.0.2.2:30000";
const STREAM: &str = "cafebabe 192.0.2.1:40000>192.0.2.2:30000";
const START_NS: i64 = 1_700_000_000_000_000_000;

fn header(number: u16) -> Header {
    Header {
        marker: number == 0,
        law: Law::Mu,
        sequence: 65_530u16.wrapping_add(number),
        timestamp: (u32::MAX - 300).wrapping_add(160 * u32::from(number)),
        ssrc: 0xCAFE_BABE,
        payload: HEADER_BYTES..PACKET_BYTES,
    }
}

fn packet(header: &Header) -> Vec<u8> {
    let mut octets = [0xFF; PACKET_BYTES];
    rtp::write_header(header, &mut octets);
    octets.to_vec()
}

/// A capture of datagrams, 20 ms apart.
fn captured(datagrams: &[Vec<u8>]) -> Vec<u8> {
    let address = |text: &str| text.parse::<SocketAddr>().unwrap();
    let mut capture = Capture::new(Vec::new()).unwrap();
    for (number, datagram) in datagrams.iter().enumerate() {
        let time_ns = START_NS + number as i64 * 20_000_000;
        capture
            .write(time_ns, address(SOURCE), address(DESTINATION), datagram)
            .unwrap();
    }
    capture.into_inner()
}

fn stream_of(headers: &[Header]) -> Result<Playable, Unplayable> {
    let datagrams: Vec<_> = headers.iter().map(packet).collect();
    let found = read(&captured(&datagrams)[..], PayloadTypes::default()).unwrap();
    assert_eq!(found.streams.len(), 1);
    found.streams[0].playable()
}

#[test]
fn a_stream_is_read_as_it_was_written() {
    let numbers = [0u16, 1, 3, 2, 5, 5, 9];
    let datagrams: Vec<_> = numbers
        .iter()
        .map(|&number| packet(&header(number)))
        .collect();
    let found = read(&captured(&datagrams)[..], PayloadTypes::default()).unwrap();
    assert_eq!((found.packets, found.not_udp, found.not_rtp), (7, 0, 0));
    let [stream] = &found.streams[..] else {
        panic!("{found:?}")
    };
    assert_eq!(stream.to_string(), STREAM);
    let playable = stream.playable().unwrap();
    // Numbers and times wrap; 6 to 8 are lost, 5 is duplicated, 2 and 3 are exchanged.
    assert_eq!(
        playable.sequence,
        [0, 1, 2, 3, 5, 5, 9].map(|number| 65_530 + number)
    );
    assert_eq!(playable.codec, Codec::G711(Law::Mu));
    assert_eq!(playable.packet_ns, 20_000_000);
    let times = [0, 1, 3, 2, 4, 5, 6].map(|at| START_NS + at * 20_000_000);
    assert_eq!(playable.arrived_ns, times);
    assert_eq!(playable.left_out, LeftOut::default());
}

#[test]
fn streams_are_told_apart_by_their_source_and_addresses() {
    let mut datagrams = Vec::new();
    for number in 0..10 {
        datagrams.push(packet(&header(number)));
        datagrams.push(packet(&Header {
            ssrc: 7,
            law: Law::A,
            ..header(number)
        }));
    }
    let found = read(&captured(&datagrams)[..], PayloadTypes::default()).unwrap();
    let laws: Vec<_> = found
        .streams
        .iter()
        .map(|stream| (stream.ssrc, stream.playable().unwrap().codec))
        .collect();
    assert_eq!(
        laws,
        [
            (0xCAFE_BABE, Codec::G711(Law::Mu)),
            (7, Codec::G711(Law::A)),
        ]
    );
}

/// Streams without G.711 go on in each other, too. A second is enough, where the square of their number
/// would take an hour.
#[test]
fn many_streams_that_go_on_are_joined() {
    const STREAMS: u32 = 250_000;
    const G722: u8 = 9;
    let datagram = |number: u32| {
        let (ssrc, sequence) = (number / 2, number as u16 % 2);
        let mut octets = vec![0x80, G722];
        octets.extend(sequence.to_be_bytes());
        octets.extend((160 * u32::from(sequence)).to_be_bytes());
        octets.extend(ssrc.to_be_bytes());
        octets.extend([0xFF; 4]);
        octets
    };
    let datagrams: Vec<_> = (0..2 * STREAMS).map(datagram).collect();
    let found = read(&captured(&datagrams)[..], PayloadTypes::default()).unwrap();
    let packets: Vec<_> = found
        .streams
        .iter()
        .map(|each| each.packets.len())
        .collect();
    assert_eq!(packets, [2 * STREAMS as usize]);
}

#[test]
fn what_is_not_rtp_is_counted_and_left_alone() {
    let mut datagrams: Vec<_> = (0..4).map(|number| packet(&header(number))).collect();
    datagrams.push(b"INVITE sip:someone@192.0.2.2 SIP/2.0\r\n".to_vec());
    // A sender report of RTCP.
    datagrams.push([&[0x80, 200, 0, 6][..], &[0; 24]].concat());
    datagrams.push(vec![]);
    // A single datagram that looks like RTP.
    datagrams.push(packet(&Header {
        ssrc: 9,
        ..header(0)
    }));
    let found = read(&captured(&datagrams)[..], PayloadTypes::default()).unwrap();
    assert_eq!(
        (found.streams.len(), found.packets, found.not_rtp),
        (1, 8, 4)
    );
}

#[test]
fn what_is_no_single_call_of_g711_says_why() {
    let good: Vec<_> = (0..6).map(header).collect();
    assert!(stream_of(&good).is_ok());

    let mut law = good.clone();
    law[4].law = Law::A;
    assert_eq!(stream_of(&law), Err(Unplayable::Change(0, 8)));

    let mut datagrams: Vec<_> = good.iter().map(packet).collect();
    datagrams[5].truncate(HEADER_BYTES + 80);
    let found = read(&captured(&datagrams)[..], PayloadTypes::default()).unwrap();
    assert_eq!(found.streams[0].playable(), Err(Unplayable::Size(160, 80)));

    for datagram in &mut datagrams {
        datagram[1] = 18; // G.729
    }
    let found = read(&captured(&datagrams)[..], PayloadTypes::default()).unwrap();
    assert_eq!(
        found.streams[0].playable(),
        Err(Unplayable::PayloadType(18))
    );
}

#[test]
fn g722_has_the_timestamps_of_g711() {
    let mut datagrams: Vec<_> = [0, 1, 3].map(|number| packet(&header(number))).into();
    for datagram in &mut datagrams {
        datagram[1] = datagram[1] & 0x80 | 9;
    }
    let found = read(&captured(&datagrams)[..], PayloadTypes::default()).unwrap();
    let playable = found.streams[0].playable().unwrap();
    assert_eq!(playable.codec, Codec::G722);
    assert_eq!(playable.sequence, [65_530, 65_531, 65_533]);
    assert_eq!(playable.packet_ns, 20_000_000);
    datagrams.push(packet(&header(4)));
    let found = read(&captured(&datagrams)[..], PayloadTypes::default()).unwrap();
    assert_eq!(found.streams[0].playable(), Err(Unplayable::Change(9, 0)));
}

#[test]
fn what_is_no_capture_is_refused() {
    for octets in [&b""[..], b"GIF89a", b"[host]\ncpus = 1\n", &[0; 200]] {
        assert!(
            matches!(
                read(octets, PayloadTypes::default()),
                Err(Unreadable::NotACapture)
            ),
            "{octets:?}"
        );
    }
}

#[test]
fn a_capture_that_ends_early_is_read_up_to_there() {
    let datagrams: Vec<_> = (0..3).map(|number| packet(&header(number))).collect();
    let whole = captured(&datagrams);
    let of_packet = (whole.len() - 24) / 3;
    for end in 0..=whole.len() {
        match read(&whole[..end], PayloadTypes::default()) {
            Err(Unreadable::NotACapture) => assert!(end < 24, "{end}"),
            Ok(found) => {
                let packets = ((end - 24) / of_packet) as u64;
                let is_cut = (end - 24) % of_packet != 0;
                assert_eq!(found.packets, packets, "{end}");
                assert_eq!(found.cut_packet, is_cut.then_some(packets + 1), "{end}");
            }
            Err(other) => panic!("{end}: {other}"),
        }
    }
}

#[test]
fn packets_that_were_cut_and_links_that_nobody_knows_are_refused() {
    let mut octets = captured(&[packet(&header(0))]);
    octets[39] += 1; // The packet's length before it was captured.
    let error = read(&octets[..], PayloadTypes::default()).unwrap_err();
    assert!(
        matches!(
            error,
            Unreadable::Cut {
                packet: 1,
                captured: 200,
                actual: 201
            }
        ),
        "{error}"
    );

    let mut octets = captured(&[packet(&header(0))]);
    octets[23] = 105; // IEEE 802.11
    let error = read(&octets[..], PayloadTypes::default()).unwrap_err();
    assert!(error.to_string().contains("IEEE802_11"), "{error}");
}

/// The packets of our capture as a capture of `link_type`, each behind the header `link`.
fn behind(link: &[u8], link_type: u32) -> Found {
    let datagrams: Vec<_> = (0..3).map(|number| packet(&header(number))).collect();
    let plain = captured(&datagrams);
    let mut octets = plain[..24].to_vec();
    octets[20..24].copy_from_slice(&link_type.to_be_bytes());
    for record in plain[24..].chunks((plain.len() - 24) / 3) {
        let length = (record.len() - 16 + link.len()) as u32;
        octets.extend(&record[..8]);
        octets.extend(length.to_be_bytes());
        octets.extend(length.to_be_bytes());
        octets.extend(link);
        octets.extend(&record[16..]);
    }
    read(&octets[..], PayloadTypes::default()).unwrap()
}

#[test]
fn the_usual_links_are_read() {
    let vlan = [&[2; 12][..], &[0x81, 0, 0, 5, 8, 0]].concat();
    let sll = [&[0, 0, 0, 1, 0, 6][..], &[0; 8], &[8, 0]].concat();
    let sll2 = [&[8, 0][..], &[0; 18]].concat();
    for (link, link_type) in [
        (&[][..], 228),
        (&[&[2; 12][..], &[8, 0]].concat(), 1),
        (&vlan, 1),
        (&sll, 113),
        (&sll2, 276),
        (&[2, 0, 0, 0], 0),
    ] {
        let found = behind(link, link_type);
        assert_eq!(found.streams.len(), 1, "{link_type}: {found:?}");
        assert_eq!(found.streams[0].to_string(), STREAM);
        assert_eq!(found.streams[0].packets.len(), 3);
    }
    assert_eq!(behind(&[2], 1).not_udp, 3);
}

/// A block of pcapng.
fn block(kind: u32, body: &[u8]) -> Vec<u8> {
    let padded = body.len().next_multiple_of(4);
    let length = (padded as u32 + 12).to_le_bytes();
    let mut octets = [&kind.to_le_bytes()[..], &length, body].concat();
    octets.resize(padded + 8, 0);
    octets.extend(length);
    octets
}

/// Our capture as pcapng, with times in units of 10^-`resolution` s, or with the default
/// resolution.
fn pcapng(resolution: Option<u8>, units_a_second: i64) -> Vec<u8> {
    let plain = captured(
        &(0..3)
            .map(|number| packet(&header(number)))
            .collect::<Vec<_>>(),
    );
    let section = [
        &0x1A2B_3C4D_u32.to_le_bytes()[..],
        &[1, 0, 0, 0],
        &[0xFF; 8],
    ]
    .concat();
    let mut interface = vec![101, 0, 0, 0, 0, 0, 4, 0];
    if let Some(resolution) = resolution {
        interface.extend([9, 0, 1, 0, resolution, 0, 0, 0, 0, 0, 0, 0]);
    }
    let mut octets = [block(0x0A0D_0D0A, &section), block(1, &interface)].concat();
    for (number, record) in plain[24..].chunks((plain.len() - 24) / 3).enumerate() {
        let time_ns = i128::from(START_NS) + number as i128 * 20_000_000;
        let units = (time_ns * i128::from(units_a_second) / 1_000_000_000) as u64;
        let data = &record[16..];
        let body = [
            &0u32.to_le_bytes()[..],
            &((units >> 32) as u32).to_le_bytes(),
            &(units as u32).to_le_bytes(),
            &(data.len() as u32).to_le_bytes(),
            &(data.len() as u32).to_le_bytes(),
            data,
        ]
        .concat();
        octets.extend(block(6, &body));
    }
    octets
}

#[test]
fn pcapng_is_read_in_whatever_units_it_counts() {
    for (resolution, units_a_second) in [
        (None, 1_000_000),
        (Some(6), 1_000_000),
        (Some(9), 1_000_000_000),
        (Some(3), 1_000),
        (Some(0x80 | 20), 1 << 20),
    ] {
        let found = read(
            &pcapng(resolution, units_a_second)[..],
            PayloadTypes::default(),
        )
        .unwrap();
        let times = found.streams[0].playable().unwrap().arrived_ns;
        for (number, time_ns) in times.iter().enumerate() {
            let expected_ns = START_NS + number as i64 * 20_000_000;
            assert!(
                (expected_ns - time_ns).abs() <= 1_000_000_000 / units_a_second,
                "{resolution:?}"
            );
        }
    }
    let whole = pcapng(None, 1_000_000);
    let found = read(&whole[..whole.len() - 3], PayloadTypes::default()).unwrap();
    assert_eq!((found.packets, found.cut_packet), (2, Some(3)));
}
