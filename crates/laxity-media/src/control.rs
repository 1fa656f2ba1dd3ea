//! The ng protocol, by which a SIP proxy announces calls to a media server: rtpengine speaks it,
//! and Kamailio's module `rtpengine` asks it. This module has no I/O.
//!
//! A datagram is a cookie that the answer repeats, a space, and a dictionary in bencode or in JSON.
//! An `offer` carries the session description (SDP, RFC 8866) of one party, an `answer` the
//! other's; the server answers each with the same description in which its own address stands, so
//! that each party sends to the server. Keys that it does not know are left alone, since a proxy
//! sends many that mean nothing here.

use crate::g711::Law;
use sdp_types::{Connection, Media, Session};
use serde::{Deserialize, Serialize, de};
use std::{
    fmt,
    net::{IpAddr, SocketAddr},
};

/// A question; the answer repeats its cookie.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Message<'d> {
    /// The token that distinguishes this question from others.
    pub cookie: &'d [u8],
    /// Encoding of the question, which the answer has to use, too.
    pub encoding: Encoding,
    /// The parsed question, or the reason why it is invalid.
    pub request: Result<Request, String>,
}

/// Encodings of a dictionary.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Encoding {
    /// The encoding of BitTorrent.
    Bencode,
    /// The encoding of JavaScript.
    Json,
}

/// The questions of a proxy.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(
    tag = "command",
    rename_all = "kebab-case",
    rename_all_fields = "kebab-case"
)]
pub enum Request {
    /// Asks whether the server is running.
    Ping,
    /// The party `from_tag` offers a session.
    Offer {
        /// The call.
        call_id: Text,
        /// Tag of the offering party.
        from_tag: Text,
        /// Tag of the other party, inside a dialog.
        to_tag: Option<Text>,
        /// Session description of the offering party.
        sdp: Text,
        /// Family of the other party's addresses, `IP4` or `IP6`; that of the offering party by
        /// default.
        #[serde(alias = "address family")]
        address_family: Option<Text>,
    },
    /// The party `to_tag` answers the offer of `from_tag`.
    Answer {
        /// The call.
        call_id: Text,
        /// Tag of the offering party.
        from_tag: Text,
        /// Tag of the answering party.
        to_tag: Text,
        /// Session description of the answering party.
        sdp: Text,
    },
    /// Ends a call.
    Delete {
        /// The call.
        call_id: Text,
        /// Tag of the party that ends the call.
        from_tag: Text,
        /// Tag of the other party, inside a dialog.
        to_tag: Option<Text>,
    },
}

/// The tags of a call's two parties (RFC 3261, 19.3). Knowing the tags proves that a client is a
/// party or signals for one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Parties {
    offering: String,
    answering: Option<String>,
    /// Whether both parties have used the dialog, so that no other phone can answer any more.
    settled: bool,
}

impl Parties {
    /// The parties of a call that `from` offers; `to` is the other party inside a dialog.
    pub fn new(from: &Text, to: Option<&Text>) -> Parties {
        Parties {
            offering: from.0.clone(),
            answering: to.map(|tag| tag.0.clone()),
            settled: to.is_some(),
        }
    }

    /// Index of the offering party: 0 is the party that offered first.
    ///
    /// # Errors
    ///
    /// If the tags are not those of this call.
    pub fn offer(&mut self, from: &Text, to: Option<&Text>) -> Result<usize, String> {
        self.settled |= to.is_some() && self.of(from, to).is_ok();
        self.of(from, to)
    }

    /// Index of the party that answers the offer of `from`. Another phone of the callee may answer
    /// until the dialog is settled.
    ///
    /// # Errors
    ///
    /// If the tags are not those of this call.
    pub fn answer(&mut self, from: &Text, to: &Text) -> Result<usize, String> {
        if !self.settled && from.0 == self.offering {
            self.answering = Some(to.0.clone());
        }
        self.of(from, Some(to)).map(|place| 1 - place)
    }

    /// Checks the tags of a request that ends the call.
    ///
    /// # Errors
    ///
    /// If the tags are not those of this call.
    pub fn end(&self, from: &Text, to: Option<&Text>) -> Result<(), String> {
        self.of(from, to).map(|_| ())
    }

    /// Index of the party `from`, where `to` is the other party if it is named.
    fn of(&self, from: &Text, to: Option<&Text>) -> Result<usize, String> {
        let offering = Some(&self.offering);
        let tags = [offering, self.answering.as_ref()];
        let is_other = |place: usize| to.is_none_or(|to| tags[1 - place] == Some(&to.0));
        (0..2)
            .find(|&place| tags[place] == Some(&from.0) && is_other(place))
            .ok_or_else(|| "the tags belong to another dialog".into())
    }
}

/// Text: octets in bencode, a string in JSON.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct Text(pub String);

impl<'d> Deserialize<'d> for Text {
    fn deserialize<D: de::Deserializer<'d>>(deserializer: D) -> Result<Text, D::Error> {
        struct Visitor;
        impl de::Visitor<'_> for Visitor {
            type Value = Text;
            fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str("a string")
            }
            fn visit_str<E: de::Error>(self, text: &str) -> Result<Text, E> {
                Ok(Text(text.to_owned()))
            }
            fn visit_bytes<E: de::Error>(self, octets: &[u8]) -> Result<Text, E> {
                let text = std::str::from_utf8(octets).map_err(E::custom)?;
                self.visit_str(text)
            }
        }
        deserializer.deserialize_any(Visitor)
    }
}

/// The answer to a question.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct Reply {
    #[serde(skip_serializing_if = "Option::is_none")]
    error_reason: Option<String>,
    result: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    sdp: Option<String>,
}

impl Reply {
    /// The answer that the server is running.
    pub fn pong() -> Reply {
        Reply {
            result: "pong",
            ..Reply::default()
        }
    }

    /// The answer that the request was carried out, with the description for the other party if
    /// there is one.
    pub fn ok(sdp: Option<String>) -> Reply {
        Reply {
            result: "ok",
            sdp,
            ..Reply::default()
        }
    }

    /// The answer that the request was refused.
    pub fn error(reason: String) -> Reply {
        Reply {
            result: "error",
            error_reason: Some(reason),
            ..Reply::default()
        }
    }
}

/// The media server's answer to a question in JSON.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct Answer {
    /// Reason of a refusal, if the request was refused.
    pub error_reason: Option<String>,
    /// The description for the other party.
    pub sdp: Option<String>,
}

impl Answer {
    /// Parses a datagram. Returns `None` if it answers a question with another cookie, and an error
    /// that says why it is invalid.
    pub fn parse(datagram: &[u8], cookie: &str) -> Option<Result<Answer, String>> {
        let body = datagram
            .strip_prefix(cookie.as_bytes())?
            .strip_prefix(b" ")?;
        Some(serde_json::from_slice(body).map_err(|error| error.to_string()))
    }
}

/// A session description (RFC 8866) of one G.711 stream that is received at an address.
pub fn describe(receives_at: SocketAddr, law: Law) -> String {
    let family = if receives_at.is_ipv4() { "IP4" } else { "IP6" };
    let (address, port) = (receives_at.ip(), receives_at.port());
    let payload_type = law.payload_type();
    format!(
        "v=0\r\no=- 1 1 IN {family} {address}\r\ns=-\r\nc=IN {family} {address}\r\nt=0 0\r\n\
         m=audio {port} RTP/AVP {payload_type}\r\n"
    )
}

/// Parses a datagram. Returns `None` if it has no cookie that an answer could repeat.
pub fn parse(datagram: &[u8]) -> Option<Message<'_>> {
    let space = datagram.iter().position(|&octet| octet == b' ')?;
    let (cookie, body) = (&datagram[..space], &datagram[space + 1..]);
    let (encoding, request) = if body.first() == Some(&b'{') {
        let request = serde_json::from_slice(body).map_err(|error| error.to_string());
        (Encoding::Json, request)
    } else {
        let request = bt_bencode::from_slice(body).map_err(|error| error.to_string());
        (Encoding::Bencode, request)
    };
    Some(Message {
        cookie,
        encoding,
        request,
    })
}

/// The datagram that answers a message.
pub fn write(message: &Message<'_>, reply: &Reply) -> Vec<u8> {
    let body = match message.encoding {
        Encoding::Json => serde_json::to_vec(reply).expect("a reply is JSON"),
        Encoding::Bencode => bt_bencode::to_vec(reply).expect("a reply is bencode"),
    };
    [message.cookie, b" ", &body].concat()
}

/// Transports of voice that is encrypted between the parties, whose keys a relay need not know: SRTP
/// with keys in the descriptions (RFC 4568), and with keys that the parties agree on by DTLS beside
/// their voice (RFC 5764).
const SECURED: [&str; 2] = ["RTP/SAVP", "UDP/TLS/RTP/SAVP"];

/// A session description that offers or answers one G.711 stream.
#[derive(Debug, Clone)]
pub struct Description {
    session: Session,
    audio: usize,
    /// Whether the voice is encrypted between the parties.
    pub is_secured: bool,
    /// Address at which the party receives.
    pub receives_at: SocketAddr,
}

impl Description {
    /// Parses a description.
    ///
    /// # Errors
    ///
    /// Why it is none with G.711 over RTP.
    pub fn parse(text: &str) -> Result<Description, String> {
        let session = Session::parse(text.as_bytes())
            .map_err(|error| format!("the session description is not valid: {error}"))?;
        let is_secured = |media: &Media| SECURED.contains(&&*media.proto);
        let is_voice = |media: &Media| {
            media.media == "audio"
                && (media.proto == "RTP/AVP" || is_secured(media))
                && laws(&media.fmt).next().is_some()
        };
        let audio = session.medias.iter().position(is_voice).ok_or(
            "the session description has no audio over RTP/AVP, RTP/SAVP or UDP/TLS/RTP/SAVP with payload type 0 or 8",
        )?;
        let media = &session.medias[audio];
        let is_secured = is_secured(media);
        let connection = media.connections.first().or(session.connection.as_ref());
        let address = connection
            .ok_or("the session description has no address to send to (c=)")?
            .connection_address
            .parse()
            .map_err(|_| "the session description's address (c=) is not an Internet address")?;
        let receives_at = SocketAddr::new(address, media.port);
        Ok(Description {
            session,
            audio,
            is_secured,
            receives_at,
        })
    }

    /// The law that the party prefers to receive.
    pub fn law(&self) -> Law {
        laws(&self.session.medias[self.audio].fmt)
            .next()
            .expect("a description is one of G.711")
    }

    /// The description for the other party, who is to send to `to`; in the other law of G.711 if
    /// the server transcodes. Only the voice is passed on; other media are refused by port 0 (RFC
    /// 3264, section 6).
    pub fn sent_on(&self, to: SocketAddr, transcode: bool) -> String {
        let mut session = self.session.clone();
        session.connection = Some(Connection::from_ip_addr(to.ip()));
        for (place, media) in session.medias.iter_mut().enumerate() {
            media.connections.clear();
            media.num_ports = None;
            media.port = 0;
            // The server's RTCP is beside its RTP, too.
            media
                .attributes
                .retain(|attribute| attribute.attribute != "rtcp");
            if place == self.audio {
                media.port = to.port();
                rewrite_laws(media, transcode);
            }
        }
        let mut text = Vec::new();
        session.write(&mut text).expect("a vector takes all");
        String::from_utf8_lossy(&text).into_owned()
    }
}

/// The G.711 laws in a list of payload types.
fn laws(payload_types: &str) -> impl Iterator<Item = Law> + '_ {
    payload_types
        .split_whitespace()
        .filter_map(|text| Law::of_payload_type(text.parse().ok()?))
}

/// Keeps the preferred law only, or the other law in its place.
fn rewrite_laws(media: &mut Media, transcode: bool) {
    let Some(law) = laws(&media.fmt).next() else {
        return;
    };
    let law = if transcode { law.other() } else { law };
    media.fmt = law.payload_type().to_string();
    let of_payload_type = ["rtpmap", "fmtp"];
    media
        .attributes
        .retain(|attribute| !of_payload_type.contains(&attribute.attribute.as_str()));
}

/// The even ports of a range in turn, beginning at or after `first` and wrapping around. RTP uses
/// the even port and RTCP the odd one after it (RFC 3550, section 11).
pub fn even_ports(range: (u16, u16), first: u16) -> impl Iterator<Item = u16> {
    let (low, high) = (u32::from(range.0).next_multiple_of(2), u32::from(range.1));
    let count = if high < low { 0 } else { (high - low) / 2 + 1 };
    let skip = (u32::from(first).saturating_sub(low)).div_ceil(2);
    (0..count).map(move |step| (low + (skip + step) % count * 2) as u16)
}

/// Whether packets can be sent to an address.
pub fn is_reachable(address: SocketAddr) -> bool {
    let anywhere = match address.ip() {
        IpAddr::V4(address) => address.is_unspecified(),
        IpAddr::V6(address) => address.is_unspecified(),
    };
    !anywhere && address.port() != 0
}
