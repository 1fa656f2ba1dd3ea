//! RTP packets made by hand, octet by octet.

use laxity_media::{
    g711::Law,
    rtp::{HEADER_BYTES, Header, Malformed, PACKET_BYTES, parse, set_law, write_header},
};

/// Version 2, mu-law, sequence 0x1234, timestamp 0xA0, source 0xCAFEBABE; followed by `rest`.
fn packet(first: u8, second: u8, rest: &[u8]) -> Vec<u8> {
    let mut octets = vec![
        first, second, 0x12, 0x34, 0, 0, 0, 0xA0, 0xCA, 0xFE, 0xBA, 0xBE,
    ];
    octets.extend(rest);
    octets
}

#[test]
fn plain() {
    let header = parse(&packet(0x80, 0x80, &[7; 160])).unwrap();
    assert_eq!(
        header,
        Header {
            marker: true,
            law: Law::Mu,
            sequence: 0x1234,
            timestamp: 0xA0,
            ssrc: 0xCAFE_BABE,
            payload: 12..172,
        }
    );
    let header = parse(&packet(0x80, 0x08, &[])).unwrap();
    assert_eq!((header.marker, header.law), (false, Law::A));
    assert!(header.payload.is_empty());
}

#[test]
fn truncated_at_every_octet() {
    // Two contributing sources, an extension of one word, three octets of payload, two of padding.
    let rest = [
        1, 1, 1, 1, 2, 2, 2, 2, 0xBE, 0xDE, 0, 1, 9, 9, 9, 9, 5, 6, 7, 0, 2,
    ];
    let whole = packet(0x80 | 0x20 | 0x10 | 2, 0, &rest);
    let header = parse(&whole).unwrap();
    assert_eq!(&whole[header.payload], [5, 6, 7]);
    for length in 0..28 {
        let Err(Malformed::Truncated { expected, actual }) = parse(&whole[..length]) else {
            panic!("{length} octets were taken");
        };
        assert!(actual == length && expected > length);
    }
}

#[test]
fn contributing_sources_and_extension_are_not_payload() {
    let octets = packet(0x80 | 15, 0, &[0xAA; 15 * 4 + 1]);
    assert_eq!(parse(&octets).unwrap().payload, 72..73);
    let octets = packet(0x90, 0, &[0, 0, 0, 0, 0xAA]);
    assert_eq!(parse(&octets).unwrap().payload, 16..17);
    // The extension's length exceeds the packet.
    let octets = packet(0x90, 0, &[0, 0, 0xFF, 0xFF, 0xAA]);
    assert_eq!(
        parse(&octets),
        Err(Malformed::Truncated {
            expected: 16 + 4 * 0xFFFF,
            actual: 17
        })
    );
}

#[test]
fn padding_must_fit() {
    assert_eq!(
        parse(&packet(0xA0, 0, &[1, 2, 0, 2])).unwrap().payload,
        12..14
    );
    // The whole payload is padding.
    assert!(
        parse(&packet(0xA0, 0, &[0, 0, 3]))
            .unwrap()
            .payload
            .is_empty()
    );
    assert_eq!(parse(&packet(0xA0, 0, &[1, 0])), Err(Malformed::Padding));
    // The padding reaches into the header.
    assert!(matches!(
        parse(&packet(0xA0, 0, &[1, 3])),
        Err(Malformed::Truncated { .. })
    ));
    // The packet has no octet for the length of the padding.
    assert!(matches!(
        parse(&packet(0xA0, 0, &[])),
        Err(Malformed::Truncated { .. })
    ));
}

#[test]
fn other_versions_and_payload_types_are_named() {
    for version in [0, 1, 3] {
        let octets = packet(version << 6, 0, &[0; 160]);
        assert_eq!(parse(&octets), Err(Malformed::Version(version)));
    }
    for payload_type in (1..128).filter(|&payload_type| payload_type != 8) {
        let octets = packet(0x80, 0x80 | payload_type, &[0; 160]);
        let error = parse(&octets).unwrap_err();
        assert_eq!(error, Malformed::PayloadType(payload_type));
        assert!(error.to_string().contains("0 (PCMU) or 8 (PCMA)"));
    }
}

#[test]
fn what_is_written_is_read() {
    for law in [Law::Mu, Law::A] {
        for marker in [false, true] {
            let header = Header {
                marker,
                law,
                sequence: u16::MAX,
                timestamp: u32::MAX,
                ssrc: 0x0102_0304,
                payload: HEADER_BYTES..PACKET_BYTES,
            };
            let mut octets = [0x55; PACKET_BYTES];
            write_header(&header, &mut octets);
            assert_eq!(parse(&octets).unwrap(), header);
            assert!(octets[HEADER_BYTES..].iter().all(|&octet| octet == 0x55));

            set_law(&mut octets, law.other());
            let other = Header {
                law: law.other(),
                ..header
            };
            assert_eq!(parse(&octets).unwrap(), other);
        }
    }
}
