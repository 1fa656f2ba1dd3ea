//! `laxity-media`: loads a media server with real RTP streams, is one, and measures what arrives.
#![forbid(unsafe_code)]

use clap::{Args, Parser, Subcommand, ValueEnum};
use laxity_config::{input, parse_duration};
use laxity_media::{
    MediaError,
    calls::{self, CallsOptions},
    exchange::{self, Access, Ports},
    g711::Law,
    invite::{Invitation, Invited},
    load,
    machine::Usage,
    relay::{self, RelayOptions},
    report::Report,
    schedule::Schedule,
    session::Plan,
    sink::{self, SinkOptions},
    socket,
};
use std::{
    io::{self, BufReader},
    net::{IpAddr, SocketAddr},
    path::PathBuf,
    process::ExitCode,
    sync::atomic::{AtomicBool, Ordering},
    thread,
};

/// RTP streams to, through and from a media server.
///
/// Load and sink stand on one machine, so that there is one clock; the media server may be anything that sends on what
/// it gets, in one law of G.711 or the other.
#[derive(Parser)]
#[command(version)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
    /// One JSON object instead of tables
    #[arg(long, global = true)]
    json: bool,
}

#[derive(Subcommand)]
enum Command {
    /// Sends streams of G.711, and says how late it was itself
    Load {
        /// Where the media server listens
        #[arg(long, value_name = "ADDRESS:PORT")]
        to: SocketAddr,
        /// Where the streams come from; wherever the system sends to the server from, otherwise
        #[arg(long, value_name = "ADDRESS:PORT")]
        from: Option<SocketAddr>,
        #[command(flatten)]
        load: LoadArguments,
    },
    /// Is the model media server: a pool of threads that take a packet, work on it and send it on
    Relay {
        /// Where to listen
        #[arg(
            long,
            value_name = "ADDRESS:PORT",
            requires = "to",
            required_unless_present = "control"
        )]
        listen: Option<SocketAddr>,
        /// Where to send on
        #[arg(long, value_name = "ADDRESS:PORT", requires = "listen")]
        to: Option<SocketAddr>,
        /// Instead: where to be told of calls, by the ng protocol; each has ports of its own
        #[arg(
            long,
            value_name = "ADDRESS:PORT",
            conflicts_with = "listen",
            requires_all = ["address", "control_from"]
        )]
        control: Option<SocketAddr>,
        /// Addresses of signalling servers, which alone may tell of calls
        #[arg(
            long,
            value_name = "ADDRESS,...",
            value_delimiter = ',',
            requires = "control"
        )]
        control_from: Vec<IpAddr>,
        /// Calls that each of them may have at once; an equal share of the ports otherwise
        #[arg(long, value_name = "CALLS", requires = "control")]
        calls_a_source: Option<u32>,
        /// A call ends where for so long neither voice nor a word of it came
        #[arg(long, default_value = "5 min", value_parser = duration)]
        expire: Duration,
        /// The address of the calls' ports
        #[arg(long, requires = "control")]
        address: Option<IpAddr>,
        /// The calls' ports; the even ones are used
        #[arg(long, value_name = "FIRST-LAST", default_value = "30000-49999", value_parser = port_range)]
        ports: (u16, u16),
        #[command(flatten)]
        relay: RelayArguments,
    },
    /// Measures one load: delay, jitter, loss, order
    Sink {
        /// Where to listen
        #[arg(long, value_name = "ADDRESS:PORT")]
        listen: SocketAddr,
        /// How long to wait for the first packet
        #[arg(long, default_value = "10 s", value_parser = duration)]
        wait: Duration,
        #[command(flatten)]
        sink: SinkArguments,
    },
    /// Sends and measures the streams of calls, each from and at a port of its own, as it is told of them
    ///
    /// Orders are read, a line each: `open CALL LOCAL` (a party listens), `send CALL LOCAL REMOTE TYPE` (it sends to the
    /// media server, in RTP's payload type 0 or 8), `end CALL`, `begin` (see --duration). With the last order it ends.
    /// Addresses are ADDRESS:PORT.
    /// With a media server that speaks the ng protocol there need not be any: it is told of so many streams, for so long.
    Calls {
        /// Where the orders come from; the standard input otherwise
        #[arg(long, value_name = "FILE")]
        orders: Option<PathBuf>,
        /// Instead: where a media server is told of calls, by the ng protocol
        #[arg(long, value_name = "ADDRESS:PORT", conflicts_with = "orders")]
        media_server: Option<SocketAddr>,
        /// Streams through the media server, two to a call
        #[arg(long, default_value_t = 100, requires = "media_server")]
        streams: u32,
        /// How long all are sent, to the end by the clock of those who send: from the order `begin` on, before which nobody
        /// does, or from --begin on (10 s, if not given)
        #[arg(long, value_parser = duration)]
        duration: Option<Duration>,
        /// When they begin, in ns of CLOCK_REALTIME; at once otherwise
        #[arg(long, value_name = "NS", requires = "media_server")]
        begin: Option<i64>,
        #[command(flatten)]
        pace: PaceArguments,
        #[command(flatten)]
        sink: SinkArguments,
        /// Write when each packet was sent and arrived: numbers of 64 bits, little end first: stream, packet, both times in ns
        #[arg(long, value_name = "FILE")]
        packets: Option<PathBuf>,
        /// Write them of one call in this many
        #[arg(long, value_name = "CALLS", default_value_t = 1)]
        sample: u32,
    },
    /// All three in one process, for a quick answer
    Loop {
        /// Where the media server listens
        #[arg(long, value_name = "ADDRESS:PORT", default_value = "127.0.0.1:0")]
        relay_address: SocketAddr,
        /// Where the sink listens; the streams come from there too
        #[arg(long, value_name = "ADDRESS:PORT", default_value = "127.0.0.1:0")]
        sink_address: SocketAddr,
        #[command(flatten)]
        load: LoadArguments,
        #[command(flatten)]
        relay: RelayArguments,
        #[command(flatten)]
        sink: SinkArguments,
    },
}

#[derive(Args)]
struct LoadArguments {
    /// Streams, each a packet of 172 octets every 20 ms
    #[arg(long, default_value_t = 100)]
    streams: u32,
    /// How long to send
    #[arg(long, default_value = "10 s", value_parser = duration)]
    duration: Duration,
    #[command(flatten)]
    pace: PaceArguments,
    /// Which of G.711's laws
    #[arg(long, value_enum, default_value_t = LawArgument::Mu)]
    law: LawArgument,
}

#[derive(Args)]
struct PaceArguments {
    /// Between two wake-ups; what is due in between is sent together
    #[arg(long, default_value = "250 us", value_parser = duration)]
    tick: Duration,
    /// Threads that send
    #[arg(long, default_value_t = 1)]
    senders: u32,
}

#[derive(Args)]
struct RelayArguments {
    /// Threads of the pool
    #[arg(long, default_value_t = 2)]
    threads: u32,
    /// CPU time that a packet takes besides receiving and sending it
    #[arg(long, default_value = "0 us", value_parser = duration)]
    work: Duration,
    /// Send on in the other law of G.711
    #[arg(long)]
    transcode: bool,
    /// Packets that a thread takes at once, if they are there
    #[arg(long, default_value_t = 1)]
    batch: u32,
    /// Octets of the socket's receive buffer, as the kernel counts them; the system's default otherwise
    #[arg(long, value_name = "BYTES")]
    receive_buffer: Option<usize>,
}

#[derive(Args)]
struct SinkArguments {
    /// A packet that takes longer is counted as late
    #[arg(long, default_value = "60 ms", value_parser = duration)]
    playout: Duration,
    /// Write all that comes to a pcap file
    #[arg(long, value_name = "FILE")]
    capture: Option<PathBuf>,
}

#[derive(Clone, Copy, ValueEnum)]
enum LawArgument {
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
#[derive(Clone, Copy)]
struct Duration(i64);

fn duration(text: &str) -> Result<Duration, String> {
    parse_duration(text).map(Duration)
}

fn port_range(text: &str) -> Result<(u16, u16), String> {
    let (first, last) = text.split_once('-').ok_or("give FIRST-LAST")?;
    let port = |text: &str| text.parse().map_err(|_| format!("`{text}` is no port"));
    Ok((port(first)?, port(last)?))
}

impl LoadArguments {
    fn schedule(&self) -> Result<Schedule, MediaError> {
        Schedule::new(
            self.streams,
            self.duration.0,
            self.pace.tick.0,
            self.pace.senders,
        )
    }
}

impl RelayArguments {
    fn options(&self) -> RelayOptions {
        RelayOptions {
            threads: self.threads,
            work_ns: self.work.0,
            transcode: self.transcode,
            batch: self.batch,
        }
    }

    fn bind(&self, address: SocketAddr) -> Result<std::net::UdpSocket, MediaError> {
        let socket = socket::bind(address)?;
        if let Some(bytes) = self.receive_buffer {
            socket::set_receive_buffer(&socket, bytes)?;
        }
        Ok(socket)
    }
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    match run(&arguments.command) {
        Ok(report) if arguments.json => {
            println!(
                "{}",
                serde_json::to_string(&report).expect("a report is JSON")
            );
            ExitCode::SUCCESS
        }
        Ok(report) => {
            print!("{report}");
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::from(if matches!(error, MediaError::Late { .. }) {
                1
            } else {
                2
            })
        }
    }
}

/// Default length of calls that this program sets up.
const INVITED_NS: i64 = 10_000_000_000;

/// Flag that an interrupt sets: the command ends early and reports its results so far.
static STOP: AtomicBool = AtomicBool::new(false);

fn run(command: &Command) -> Result<Report, MediaError> {
    ctrlc::set_handler(|| STOP.store(true, Ordering::Relaxed))
        .expect("nothing else handles interrupts");
    let before = Usage::read()?;
    let report = match command {
        Command::Load { to, from, load } => {
            let schedule = load.schedule()?;
            let socket = socket::bind(from.unwrap_or(socket::any_address_to(*to)))?;
            Report {
                load: Some(load::load(&socket, *to, load.law.into(), &schedule, &STOP)?),
                ..Report::default()
            }
        }
        Command::Relay {
            listen,
            to,
            control,
            control_from,
            calls_a_source,
            expire,
            address,
            ports,
            relay,
        } => Report {
            relay: Some(match (listen, to, control, address) {
                (Some(listen), Some(to), ..) => {
                    relay::relay(&relay.bind(*listen)?, *to, &relay.options(), &STOP)?
                }
                (_, _, Some(control), Some(address)) => {
                    let ports = Ports {
                        address: *address,
                        range: *ports,
                    };
                    let access = Access {
                        from: control_from.clone(),
                        calls: *calls_a_source,
                        expire_ns: expire.0,
                    };
                    socket::allow_many()?;
                    let control = socket::bind(*control)?;
                    exchange::relay(&control, ports, &access, &relay.options(), &STOP)?
                }
                _ => unreachable!("the arguments ask for each other"),
            }),
            ..Report::default()
        },
        Command::Calls {
            orders,
            media_server,
            streams,
            duration,
            begin,
            pace,
            sink,
            packets,
            sample,
        } => {
            let options = CallsOptions {
                // Calls of an invitation end by their own orders.
                duration_ns: duration.filter(|_| media_server.is_none()).map(|it| it.0),
                tick_ns: pace.tick.0,
                threads: pace.senders,
                playout_ns: sink.playout.0,
                capture: sink.capture.clone(),
                packets: packets.clone(),
                sample: *sample,
            };
            let (calls, load, sink) = match (orders, media_server) {
                (Some(path), _) => {
                    let file = input::open(path).map_err(|source| MediaError::Orders {
                        path: path.clone(),
                        source,
                    })?;
                    calls::run(BufReader::new(file), &options, &STOP)?
                }
                (None, Some(media_server)) => {
                    let invited = Invited::set_up(Invitation {
                        media_server: *media_server,
                        streams: *streams,
                        duration_ns: duration.map_or(INVITED_NS, |it| it.0),
                        begin_ns: *begin,
                    })?;
                    invited.with_orders(&STOP, |orders| {
                        calls::run(BufReader::new(orders), &options, &STOP)
                    })?
                }
                (None, None) => calls::run(BufReader::new(io::stdin()), &options, &STOP)?,
            };
            Report {
                calls: Some(calls),
                load: Some(load),
                sink: Some(sink),
                ..Report::default()
            }
        }
        Command::Sink { listen, wait, sink } => {
            let options = SinkOptions {
                playout_ns: sink.playout.0,
                wait_ns: wait.0,
                plan: None,
                capture: sink.capture.clone(),
            };
            let socket = socket::bind(*listen)?;
            Report {
                sink: Some(sink::measure(&socket, &options, &STOP)?),
                ..Report::default()
            }
        }
        Command::Loop {
            relay_address,
            sink_address,
            load,
            relay,
            sink,
        } => run_loop(*relay_address, *sink_address, load, relay, sink)?,
    };
    Ok(Report {
        machine: Usage::read()?.since(&before),
        ..report
    })
}

fn run_loop(
    relay_address: SocketAddr,
    sink_address: SocketAddr,
    load: &LoadArguments,
    relay: &RelayArguments,
    sink: &SinkArguments,
) -> Result<Report, MediaError> {
    let schedule = load.schedule()?;
    let relay_options = relay.options();
    relay_options.validate()?;
    let sink_options = SinkOptions {
        playout_ns: sink.playout.0,
        wait_ns: schedule.duration_ns() + 5_000_000_000,
        plan: Some(Plan {
            streams: schedule.streams(),
            packets: schedule.packets(),
        }),
        capture: sink.capture.clone(),
    };
    let relay_socket = relay.bind(relay_address)?;
    let sink_socket = socket::bind(sink_address)?;
    let load_socket = socket::bind(SocketAddr::new(sink_address.ip(), 0))?;
    let (relay_to, load_to) = (
        socket::address(&sink_socket)?,
        socket::address(&relay_socket)?,
    );
    let relay_stop = AtomicBool::new(false);
    thread::scope(|scope| {
        let relaying = scope.spawn(|| {
            stop_if_failed(relay::relay(
                &relay_socket,
                relay_to,
                &relay_options,
                &relay_stop,
            ))
        });
        let measuring =
            scope.spawn(|| stop_if_failed(sink::measure(&sink_socket, &sink_options, &STOP)));
        let law = load.law.into();
        let loaded = stop_if_failed(load::load(&load_socket, load_to, law, &schedule, &STOP));
        let measured = measuring.join().expect("the sink does not panic");
        relay_stop.store(true, Ordering::Relaxed);
        let relayed = relaying.join().expect("the relay does not panic");
        Ok(Report {
            load: Some(loaded?),
            relay: Some(relayed?),
            sink: Some(measured?),
            ..Report::default()
        })
    })
}

/// The failure of one of the three parts ends the others.
fn stop_if_failed<T>(result: Result<T, MediaError>) -> Result<T, MediaError> {
    if result.is_err() {
        STOP.store(true, Ordering::Relaxed);
    }
    result
}
