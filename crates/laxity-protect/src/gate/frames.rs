//! Ethernet frames: their format on a stream, the addresses that they claim, and announcements of
//! addresses.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Address of an Ethernet interface.
pub type Mac = [u8; 6];

/// Largest frame: QEMU's own limit (NET_BUFSIZE).
pub const FRAME_BYTES_MAX: usize = 4096 + 65536;
const LENGTH_BYTES: usize = 4;

/// Takes frames from a stream in QEMU's `stream` format: each behind its length (32 bits, big
/// endian).
#[derive(Debug, Default)]
pub struct Deframer {
    received: Vec<u8>,
    taken: usize,
}

/// A length beyond any frame's: the stream is out of step for good.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a frame of {0} bytes is announced; QEMU's are at most {FRAME_BYTES_MAX}")]
pub struct OutOfStep(pub usize);

impl Deframer {
    /// Appends received bytes.
    pub fn add(&mut self, bytes: &[u8]) {
        self.received.drain(..self.taken);
        self.taken = 0;
        self.received.extend_from_slice(bytes);
    }

    /// The next complete frame.
    ///
    /// # Errors
    ///
    /// If the stream is out of step.
    pub fn frame(&mut self) -> Result<Option<&[u8]>, OutOfStep> {
        let Some(length) = self.next_length()? else {
            return Ok(None);
        };
        let begin = self.taken + LENGTH_BYTES;
        self.taken = begin + length;
        Ok(Some(&self.received[begin..self.taken]))
    }

    /// Whether a complete frame has been received.
    ///
    /// # Errors
    ///
    /// If the stream is out of step.
    pub fn has_frame(&self) -> Result<bool, OutOfStep> {
        Ok(self.next_length()?.is_some())
    }

    /// Length of the next frame, if it is complete.
    fn next_length(&self) -> Result<Option<usize>, OutOfStep> {
        let rest = &self.received[self.taken..];
        let Some((length, rest)) = rest.split_first_chunk::<LENGTH_BYTES>() else {
            return Ok(None);
        };
        let length = u32::from_be_bytes(*length) as usize;
        if length > FRAME_BYTES_MAX {
            return Err(OutOfStep(length));
        }
        Ok((rest.len() >= length).then_some(length))
    }

    /// Whether the stream is between two frames.
    pub fn is_between(&self) -> bool {
        self.received.len() == self.taken
    }
}

/// The length that precedes a frame on a stream.
pub fn length_of(frame: &[u8]) -> [u8; LENGTH_BYTES] {
    (frame.len() as u32).to_be_bytes()
}

const HEADER_BYTES: usize = 14;
const ARP: u16 = 0x0806;
const IPV6: u16 = 0x86dd;
const ICMPV6: u8 = 58;
const NEIGHBOUR_SOLICITATION: u8 = 135;
const NEIGHBOUR_ADVERTISEMENT: u8 = 136;
/// Hardware type Ethernet, protocol IPv4, and the lengths of their addresses.
const ARP_ETHERNET_IPV4: [u8; 6] = [0, 1, 8, 0, 6, 4];
const ARP_REQUEST: [u8; 2] = [0, 1];
const BROADCAST: Mac = [0xff; 6];
const ALL_NODES: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1);
const ALL_NODES_MAC: Mac = [0x33, 0x33, 0, 0, 0, 1];
/// Hop limit of neighbour discovery, which no router lets through (RFC 4861, 4.3).
const HOP_LIMIT: u8 = 255;

/// The address that a frame claims for its sender by ARP (RFC 826) or by neighbour discovery (RFC
/// 4861). The source of other packets may be another host's, as a router's packets show.
pub fn claimed_address(frame: &[u8], sender: Mac) -> Option<IpAddr> {
    let (header, rest) = frame.split_at_checked(HEADER_BYTES)?;
    if header[6..12] != sender {
        return None;
    }
    match u16::from_be_bytes([header[12], header[13]]) {
        ARP => {
            let arp = rest.first_chunk::<28>()?;
            let is_ours = arp[..6] == ARP_ETHERNET_IPV4 && arp[8..14] == sender;
            let address = Ipv4Addr::from(*arp[14..].first_chunk::<4>()?);
            (is_ours && is_anybodys_v4(address)).then_some(IpAddr::V4(address))
        }
        IPV6 => {
            let (header, rest) = rest.split_first_chunk::<40>()?;
            if header[6] != ICMPV6 || header[7] != HOP_LIMIT {
                return None;
            }
            let message = rest.first_chunk::<24>()?;
            let address = match message[0] {
                NEIGHBOUR_SOLICITATION => &header[8..],
                NEIGHBOUR_ADVERTISEMENT => &message[8..],
                _ => return None,
            };
            let address = Ipv6Addr::from(*address.first_chunk::<16>()?);
            let is_anybodys =
                !address.is_unspecified() && !address.is_multicast() && !address.is_loopback();
            is_anybodys.then_some(IpAddr::V6(address))
        }
        _ => None,
    }
}

fn is_anybodys_v4(address: Ipv4Addr) -> bool {
    !address.is_unspecified()
        && !address.is_broadcast()
        && !address.is_multicast()
        && !address.is_loopback()
}

/// A frame that tells the link where an address is now: a gratuitous ARP (RFC 5227, 2.3), or an
/// unsolicited neighbour advertisement (RFC 4861, 7.2.6).
pub fn announcement(address: IpAddr, owner: Mac) -> Vec<u8> {
    match address {
        IpAddr::V4(address) => {
            let mut frame = ethernet(BROADCAST, owner, ARP);
            frame.extend(ARP_ETHERNET_IPV4);
            frame.extend(ARP_REQUEST);
            frame.extend(owner);
            frame.extend(address.octets());
            frame.extend(Mac::default());
            frame.extend(address.octets());
            frame
        }
        IpAddr::V6(address) => {
            const OVERRIDE: u8 = 0x20;
            const TARGET_LINK_LAYER_ADDRESS: [u8; 2] = [2, 1];
            let mut message = vec![NEIGHBOUR_ADVERTISEMENT, 0, 0, 0, OVERRIDE, 0, 0, 0];
            message.extend(address.octets());
            message.extend(TARGET_LINK_LAYER_ADDRESS);
            message.extend(owner);
            let sum = checksum(address, ALL_NODES, &message);
            message[2..4].copy_from_slice(&sum.to_be_bytes());
            let mut frame = ethernet(ALL_NODES_MAC, owner, IPV6);
            frame.extend([0x60, 0, 0, 0]);
            frame.extend((message.len() as u16).to_be_bytes());
            frame.extend([ICMPV6, HOP_LIMIT]);
            frame.extend(address.octets());
            frame.extend(ALL_NODES.octets());
            frame.extend(message);
            frame
        }
    }
}

fn ethernet(to: Mac, from: Mac, kind: u16) -> Vec<u8> {
    [&to[..], &from[..], &kind.to_be_bytes()[..]].concat()
}

/// Checksum of an ICMPv6 message with its pseudo header (RFC 8200, 8.1).
fn checksum(from: Ipv6Addr, to: Ipv6Addr, message: &[u8]) -> u16 {
    let length = (message.len() as u32).to_be_bytes();
    let all = [
        &from.octets()[..],
        &to.octets(),
        &length,
        &[0, 0, 0, ICMPV6],
        message,
    ]
    .concat();
    let words = all.chunks(2).map(|pair| {
        let [high, low] = [pair[0], *pair.get(1).unwrap_or(&0)];
        u32::from(u16::from_be_bytes([high, low]))
    });
    let mut sum: u32 = words.sum();
    while sum > u32::from(u16::MAX) {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !(sum as u16)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const OWNER: Mac = [0x52, 0x54, 0, 1, 2, 3];

    #[test]
    fn an_announcement_claims_its_address() {
        for address in ["192.0.2.7", "2001:db8::7", "fe80::5054:ff:fe01:203"] {
            let address: IpAddr = address.parse().unwrap();
            let frame = announcement(address, OWNER);
            assert_eq!(claimed_address(&frame, OWNER), Some(address));
            assert_eq!(claimed_address(&frame, BROADCAST), None);
        }
    }

    #[test]
    fn the_checksum_is_the_standards() {
        let frame = announcement("fe80::1".parse().unwrap(), OWNER);
        let message = &frame[HEADER_BYTES + 40..];
        // The sum over a message with a correct checksum is zero.
        assert_eq!(checksum("fe80::1".parse().unwrap(), ALL_NODES, message), 0);
        assert_eq!(frame.len(), HEADER_BYTES + 40 + 32);
    }

    #[test]
    fn what_is_nobodys_is_not_learned() {
        let mut frame = announcement("192.0.2.7".parse().unwrap(), OWNER);
        frame[HEADER_BYTES + 14..][..4].fill(0);
        assert_eq!(claimed_address(&frame, OWNER), None, "an ARP probe");
        let mut frame = announcement("fe80::1".parse().unwrap(), OWNER);
        frame[HEADER_BYTES + 7] = 64;
        assert_eq!(claimed_address(&frame, OWNER), None, "from behind a router");
    }

    proptest! {
        #[test]
        fn frames_come_out_as_they_went_in(
            frames in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..200), 0..20),
            cuts in prop::collection::vec(1_usize..300, 1..50),
        ) {
            let mut stream = Vec::new();
            for frame in &frames {
                stream.extend(length_of(frame));
                stream.extend(frame);
            }
            let (mut deframer, mut out, mut rest) = (Deframer::default(), Vec::new(), &stream[..]);
            for cut in cuts.iter().cycle() {
                let (part, behind) = rest.split_at((*cut).min(rest.len()));
                deframer.add(part);
                rest = behind;
                while let Some(frame) = deframer.frame().unwrap() {
                    out.push(frame.to_vec());
                }
                if rest.is_empty() {
                    break;
                }
            }
            prop_assert_eq!(out, frames);
            prop_assert!(deframer.is_between());
        }

        #[test]
        fn no_frame_is_too_odd(frame in prop::collection::vec(any::<u8>(), 0..100)) {
            let _ = claimed_address(&frame, OWNER);
        }
    }
}
