//! Real RTP streams, a media server that relays them, and measurements of what arrives.
//!
//! [`load`] sends G.711 streams from absolute times, [`relay`] is the model media server of *Performance
//! Implications of Hosting Enterprise Telephony Applications on Virtualized Multi-Core Platforms*
//! (IPTComm 2009, section 4), [`sink`] measures what arrives. As in the paper the packets carry the time
//! at which they were sent, and load and sink stand on the same machine, so that there is one clock.
//!
//! Streams share a port, or each has its own, as calls are set up: [`calls`] and [`exchange`] in
//! the place of load, sink and relay.
//!
//! Modules without I/O: [`rtp`] and [`stamp`] (packets), [`g711`], [`schedule`] (the times of sending), [`statistics`]
//! (of one stream) and [`session`] (of all streams), [`control`] and [`orders`] (the set-up of calls), [`capture`]
//! (pcap), [`streams`] (found in any capture), [`signalling`] and [`opus`] (what captures say of Opus), [`report`].
//! Modules with I/O: [`socket`], [`clock`] and [`machine`], and on them [`load`], [`relay`], [`sink`], [`calls`],
//! [`exchange`], [`mix`] (conferences, and what mixing takes) and [`passage`] (the times of each packet at the media
//! server).
#![forbid(unsafe_code)]

pub mod arguments;
pub mod calls;
pub mod capture;
pub mod clock;
pub mod control;
pub mod distribution;
mod error;
pub mod exchange;
pub mod g711;
pub mod invite;
pub mod load;
pub mod machine;
pub mod mix;
pub mod opus;
pub mod orders;
pub mod passage;
pub mod relay;
pub mod report;
pub mod rtp;
pub mod schedule;
pub mod session;
pub mod signalling;
pub mod sink;
pub mod socket;
pub mod speech;
pub mod stamp;
pub mod statistics;
pub mod streams;

pub use error::MediaError;
