//! The command line of `laxity-media`. The program, its man pages and its shell completion are made from it.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};
use laxity_config::{MICROSECOND_NS, MILLISECOND_NS, SECOND_NS, parse_duration};

use crate::MediaError;
use crate::g711::Law;
use crate::relay::RelayOptions;
use crate::schedule::Schedule;

/// Send real RTP streams through a media server and measure what arrives
///
/// Load and sink run on one machine, so that they share a clock. The media server may be any that forwards what it
/// receives, in either law of G.711.
/// Exit codes: 0 success; 1 calls were set up later than --begin; 2 refused input or a failure.
#[derive(Debug, Parser)]
#[command(name = "laxity-media", version)]
pub struct Arguments {
    /// What to do
    #[command(subcommand)]
    pub command: Command,
    /// Print one JSON object instead of tables
    #[arg(long, global = true)]
    pub json: bool,
}

/// What to do.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Send G.711 streams, and report how late each packet was sent
    Load {
        /// Address at which the media server receives
        #[arg(long, value_name = "ADDRESS:PORT")]
        to: SocketAddr,
        /// Address from which the streams are sent; chosen by the system by default
        #[arg(long, value_name = "ADDRESS:PORT")]
        from: Option<SocketAddr>,
        /// The streams
        #[command(flatten)]
        load: LoadArguments,
    },
    /// Run the model media server: a pool of threads that receive a packet, work on it and forward it
    Relay {
        /// Address at which packets are received
        #[arg(
            long,
            value_name = "ADDRESS:PORT",
            requires = "to",
            required_unless_present = "control"
        )]
        listen: Option<SocketAddr>,
        /// Address to which packets are forwarded
        #[arg(long, value_name = "ADDRESS:PORT", requires = "listen")]
        to: Option<SocketAddr>,
        /// In place of --listen: address for the ng protocol, by which calls are set up with ports of their own
        #[arg(
            long,
            value_name = "ADDRESS:PORT",
            conflicts_with = "listen",
            requires_all = ["address", "control_from"]
        )]
        control: Option<SocketAddr>,
        /// Addresses of the signalling servers that may set up calls
        #[arg(
            long,
            value_name = "ADDRESS,...",
            value_delimiter = ',',
            requires = "control"
        )]
        control_from: Vec<IpAddr>,
        /// Greatest number of simultaneous calls of each signalling server; an equal share of the ports by default
        #[arg(long, value_name = "CALLS", requires = "control")]
        calls_a_source: Option<u32>,
        /// Time without voice and without orders after which a call ends
        #[arg(long, default_value = "5 min", value_name = "TIME", value_parser = seconds)]
        expire: Duration,
        /// Addresses of the calls' ports: one of IPv4, one of IPv6, or both
        #[arg(
            long,
            value_name = "ADDRESS,...",
            value_delimiter = ',',
            requires = "control"
        )]
        address: Vec<IpAddr>,
        /// Range of the calls' ports, of which the even ones are used
        #[arg(long, value_name = "FIRST-LAST", default_value = "30000-49999", value_parser = port_range)]
        ports: (u16, u16),
        /// With --control: write when each packet of a load was here. 64-bit little-endian numbers for stream,
        /// packet, thread, time of arrival, time of leaving and CPU time, in ns; written at the end
        #[arg(long, requires = "control", value_name = "FILE")]
        passages: Option<PathBuf>,
        /// The pool of threads
        #[command(flatten)]
        relay: RelayArguments,
    },
    /// Receive one load, and report delay, jitter, loss and order
    Sink {
        /// Address at which packets are received
        #[arg(long, value_name = "ADDRESS:PORT")]
        listen: SocketAddr,
        /// Longest time to wait for the first packet
        #[arg(long, default_value = "10 s", value_name = "TIME", value_parser = seconds)]
        wait: Duration,
        /// What is counted
        #[command(flatten)]
        sink: SinkArguments,
    },
    /// Send and measure the streams of calls, each from and to a port of its own
    ///
    /// Orders are read line by line: `open CALL LOCAL` (a party listens), `send CALL LOCAL REMOTE
    /// TYPE` (it sends to the media server, with RTP payload type 0 or 8), `end CALL`, `begin` (see
    /// --duration). The command ends with the last order. Addresses are ADDRESS:PORT. With
    /// --media-server the command sets up the calls itself, by the ng protocol, and no orders are
    /// needed.
    Calls {
        /// File of the orders; the standard input by default
        #[arg(long, value_name = "FILE")]
        orders: Option<PathBuf>,
        /// In place of orders: address at which a media server takes calls by the ng protocol
        #[arg(long, value_name = "ADDRESS:PORT", conflicts_with = "orders")]
        media_server: Option<SocketAddr>,
        /// Number of streams through the media server, two per call
        #[arg(long, default_value_t = 100, requires = "media_server")]
        streams: u32,
        /// Time for which streams are sent: from the order `begin`, before which none is sent, or
        /// from --begin (then 10 s by default)
        #[arg(long, value_name = "TIME", value_parser = seconds)]
        duration: Option<Duration>,
        /// Time at which sending begins, in ns of CLOCK_REALTIME; at once by default
        #[arg(long, value_name = "NS", requires = "media_server")]
        begin: Option<i64>,
        /// How packets are sent
        #[command(flatten)]
        pace: PaceArguments,
        /// What is counted
        #[command(flatten)]
        sink: SinkArguments,
        /// Write the times of each packet: 64-bit little-endian numbers for stream, packet, time
        /// sent and time received, in ns
        #[arg(long, value_name = "FILE")]
        packets: Option<PathBuf>,
        /// With --packets: write every Nth call
        #[arg(long, value_name = "N", default_value_t = 1)]
        sample: u32,
    },
    /// Run load, relay and sink in one process, for a quick answer
    Loop {
        /// Address at which the media server receives
        #[arg(long, value_name = "ADDRESS:PORT", default_value = "127.0.0.1:0")]
        relay_address: SocketAddr,
        /// Address at which the sink receives; the streams are sent from the same host address
        #[arg(long, value_name = "ADDRESS:PORT", default_value = "127.0.0.1:0")]
        sink_address: SocketAddr,
        /// The streams
        #[command(flatten)]
        load: LoadArguments,
        /// The pool of threads
        #[command(flatten)]
        relay: RelayArguments,
        /// What is counted
        #[command(flatten)]
        sink: SinkArguments,
    },
}

/// The streams of a load.
#[derive(Debug, Args)]
pub struct LoadArguments {
    /// Number of streams, each of which sends a packet of 172 octets every 20 ms
    #[arg(long, default_value_t = 100)]
    pub streams: u32,
    /// Time for which streams are sent
    #[arg(long, default_value = "10 s", value_name = "TIME", value_parser = seconds)]
    pub duration: Duration,
    /// How packets are sent
    #[command(flatten)]
    pub pace: PaceArguments,
    /// The law of G.711
    #[arg(long, value_enum, default_value_t = LawArgument::Mu)]
    pub law: LawArgument,
}

/// How packets are sent.
#[derive(Debug, Args)]
pub struct PaceArguments {
    /// Time between two wake-ups of a sender; packets due in between are sent together
    #[arg(long, default_value = "250 us", value_name = "TIME", value_parser = microseconds)]
    pub tick: Duration,
    /// Number of threads that send
    #[arg(long, default_value_t = 1)]
    pub senders: u32,
}

/// The pool of threads of the model media server.
#[derive(Debug, Args)]
pub struct RelayArguments {
    /// Number of threads in the pool
    #[arg(long, default_value_t = 2)]
    pub threads: u32,
    /// CPU time per packet, besides that of receiving and sending it
    #[arg(long, default_value = "0 us", value_name = "TIME", value_parser = microseconds)]
    pub work: Duration,
    /// Forward packets in the other law of G.711
    #[arg(long)]
    pub transcode: bool,
    /// Greatest number of packets that a thread receives at once
    #[arg(long, default_value_t = 1)]
    pub batch: u32,
    /// Size of the socket's receive buffer in octets, as the kernel counts them; the system's by default
    #[arg(long, value_name = "BYTES")]
    pub receive_buffer: Option<usize>,
}

/// What is counted of the packets that arrive.
#[derive(Debug, Args)]
pub struct SinkArguments {
    /// Delay above which a packet is counted as late
    #[arg(long, default_value = "60 ms", value_name = "TIME", value_parser = milliseconds)]
    pub playout: Duration,
    /// Write all packets that arrive to a pcap file
    #[arg(long, value_name = "FILE")]
    pub capture: Option<PathBuf>,
}

/// A law of G.711, as an argument.
#[derive(Debug, Clone, Copy, ValueEnum)]
pub enum LawArgument {
    /// mu-law, PCMU
    Mu,
    /// A-law, PCMA
    A,
}

impl From<LawArgument> for Law {
    fn from(law: LawArgument) -> Law {
        match law {
            LawArgument::Mu => Law::Mu,
            LawArgument::A => Law::A,
        }
    }
}

/// A time in nanoseconds, as an argument.
#[derive(Debug, Clone, Copy)]
pub struct Duration(pub i64);

/// Parses a time that is most often written in seconds.
fn seconds(text: &str) -> Result<Duration, String> {
    parse_duration(text, SECOND_NS).map(Duration)
}

/// Parses a time that is most often written in milliseconds.
fn milliseconds(text: &str) -> Result<Duration, String> {
    parse_duration(text, MILLISECOND_NS).map(Duration)
}

/// Parses a time that is most often written in microseconds.
fn microseconds(text: &str) -> Result<Duration, String> {
    parse_duration(text, MICROSECOND_NS).map(Duration)
}

fn port_range(text: &str) -> Result<(u16, u16), String> {
    let (first, last) = text.split_once('-').ok_or("give FIRST-LAST")?;
    let port = |text: &str| {
        text.parse()
            .map_err(|_| format!("`{text}` is not a port number"))
    };
    Ok((port(first)?, port(last)?))
}

impl LoadArguments {
    /// When each packet is sent.
    ///
    /// # Errors
    ///
    /// If the arguments are out of their bounds.
    pub fn schedule(&self) -> Result<Schedule, MediaError> {
        Schedule::new(
            self.streams,
            self.duration.0,
            self.pace.tick.0,
            self.pace.senders,
        )
    }
}

impl RelayArguments {
    /// How the pool works.
    pub fn options(&self) -> RelayOptions {
        RelayOptions {
            threads: self.threads,
            work_ns: self.work.0,
            transcode: self.transcode,
            batch: self.batch,
        }
    }
}
