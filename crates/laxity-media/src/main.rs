//! `laxity-media`: loads a media server with real RTP streams, is one, and measures what arrives.
#![forbid(unsafe_code)]

use clap::Parser as _;
use laxity_config::input;
use laxity_media::{
    MediaError,
    arguments::{Arguments, Command, LoadArguments, RelayArguments, SinkArguments},
    calls::{self, CallsOptions},
    exchange::{self, Access, Ports},
    invite::{Invitation, Invited},
    load,
    machine::Usage,
    passage::Passages,
    relay,
    report::Report,
    session::Plan,
    sink::{self, SinkOptions},
    socket,
};
use std::{
    io::{self, BufReader, Write as _},
    net::SocketAddr,
    process::ExitCode,
    sync::atomic::{AtomicBool, Ordering},
    thread,
};

fn bind(address: SocketAddr, relay: &RelayArguments) -> Result<std::net::UdpSocket, MediaError> {
    let socket = socket::bind(address)?;
    if let Some(bytes) = relay.receive_buffer {
        socket::set_receive_buffer(&socket, bytes)?;
    }
    Ok(socket)
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    match run(&arguments.command) {
        Ok(report) => {
            let text = if arguments.json {
                serde_json::to_string(&report).expect("a report is JSON") + "\n"
            } else {
                report.to_string()
            };
            // The standard library's macros would panic.
            if let Err(error) = io::stdout().lock().write_all(text.as_bytes()) {
                eprintln!("error: cannot write the report: {error}");
                return ExitCode::from(2);
            }
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
            passages,
            relay,
        } => Report {
            relay: Some(match (listen, to, control) {
                (Some(listen), Some(to), _) => {
                    relay::relay(&bind(*listen, relay)?, *to, &relay.options(), &STOP)?
                }
                (_, _, Some(control)) => {
                    let ports = Ports {
                        addresses: address.clone(),
                        range: *ports,
                    };
                    let access = Access {
                        from: control_from.clone(),
                        calls: *calls_a_source,
                        expire_ns: expire.0,
                    };
                    socket::allow_many()?;
                    let control = socket::bind(*control)?;
                    let passages = passages.as_deref().map(Passages::create).transpose()?;
                    let options = relay.options();
                    exchange::relay(&control, ports, &access, &options, passages, &STOP)?
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
    let relay_socket = bind(relay_address, relay)?;
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
