//! `laxity-bandwidth`: holds virtual machines to agreements about a link.
#![forbid(unsafe_code)]

use std::collections::HashSet;
use std::io::{IsTerminal as _, Read as _};
use std::net::{SocketAddr, TcpListener};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use caps::{CapSet, Capability};
use clap::{Parser, Subcommand};
use laxity_bandwidth::agreements::format_rate;
use laxity_bandwidth::daemon::{self, Daemon};
use laxity_bandwidth::linux::Links;
use laxity_bandwidth::report::{Snapshot, serve_metrics, serve_status};
use laxity_bandwidth::{Agreements, Claim, Sharing, agreements, allocate};

/// Holds virtual machines to agreements about a link.
#[derive(Parser)]
#[command(name = "laxity bandwidth", version)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

const SOCKET: &str = "/run/laxity-bandwidth/status.sock";

#[derive(Subcommand)]
enum Command {
    /// Says what is wrong with an agreements file, and what it would give everyone
    Check {
        /// The agreements file
        file: PathBuf,
    },
    /// Holds everyone to the agreements until it is told to stop (SIGTERM, SIGINT)
    Run {
        /// The agreements file; read anew when it changes, and on SIGHUP
        file: PathBuf,
        /// Say what would be done with the interfaces that are there, and change nothing
        #[arg(long)]
        dry_run: bool,
        /// Answer Prometheus here (GET /metrics)
        #[arg(long, value_name = "ADDRESS:PORT")]
        metrics: Option<SocketAddr>,
        /// Where `status` asks
        #[arg(long, value_name = "PATH", default_value = SOCKET)]
        socket: PathBuf,
        /// Log as JSON, an object a line
        #[arg(long)]
        log_json: bool,
    },
    /// Shows a running daemon's table, again and again on a terminal
    Status {
        /// Where the daemon answers
        #[arg(long, value_name = "PATH", default_value = SOCKET)]
        socket: PathBuf,
        /// Show it once
        #[arg(long)]
        once: bool,
        /// One JSON object, once
        #[arg(long)]
        json: bool,
    },
}

fn main() -> ExitCode {
    let done = match Arguments::parse().command {
        Command::Check { file } => check(&file),
        Command::Run {
            file,
            dry_run: true,
            ..
        } => dry_run(&file),
        Command::Run {
            file,
            metrics,
            socket,
            log_json,
            ..
        } => run(&file, metrics, &socket, log_json),
        Command::Status { socket, once, json } => status(&socket, once, json),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) if message.starts_with("error") => {
            eprintln!("{message}");
            ExitCode::from(2)
        }
        Err(message) => {
            eprintln!("error: {message}");
            ExitCode::from(2)
        }
    }
}

fn check(file: &Path) -> Result<(), String> {
    let text =
        std::fs::read(file).map_err(|error| format!("cannot read {}: {error}", file.display()))?;
    let loaded = agreements::load(&text, &file.to_string_lossy(), &|_| true);
    show(&loaded.map_err(|error| error.to_string())?);
    Ok(())
}

fn dry_run(file: &Path) -> Result<(), String> {
    let links = Links::open().and_then(|mut links| links.all());
    let interfaces = links.map_err(|error| format!("cannot list the interfaces: {error}"))?;
    let agreements = daemon::read(file, &interfaces).map_err(|error| error.to_string())?;
    show(&agreements);
    println!("\nnothing was changed; `run` would");
    println!(
        "  make an HTB tree at {}, with a class for each of these",
        agreements.link.interface
    );
    for holder in &agreements.holders {
        let missing = if interfaces.contains_key(&holder.interface) {
            ""
        } else {
            " (when it comes)"
        };
        println!("  hold {} at {}{missing}", holder.name, holder.interface);
    }
    Ok(())
}

/// What everyone gets when all ask for all they may have.
fn show(agreements: &Agreements) {
    for warning in &agreements.warnings {
        println!("warning: {warning}");
    }
    let claims = agreements.holders.iter().map(|holder| Claim {
        agreement: holder.agreement,
        demand_bit_s: u64::MAX,
    });
    let claims: Vec<Claim> = claims.collect();
    let link_bit_s = agreements.link.rate_bit_s - agreements.link.reserve_bit_s;
    let rates = allocate(link_bit_s, agreements.sharing, &claims);
    let sharing = match agreements.sharing {
        Sharing::Weighted => "by weight",
        Sharing::ByClass => "by class",
    };
    println!(
        "{} carries {}, of which {} are reserved; what is left after the minima is shared {sharing}",
        agreements.link.interface,
        format_rate(agreements.link.rate_bit_s),
        format_rate(agreements.link.reserve_bit_s)
    );
    println!("when all ask for all they may have:");
    for (holder, rate) in agreements.holders.iter().zip(rates) {
        println!(
            "  {:16} class {}, {} to {}: {:.1} Mbit/s",
            holder.name,
            holder.agreement.class,
            format_rate(holder.agreement.minimum_bit_s),
            format_rate(holder.agreement.maximum_bit_s),
            rate as f64 / 1e6
        );
    }
}

fn run(
    file: &Path,
    metrics: Option<SocketAddr>,
    socket: &Path,
    log_json: bool,
) -> Result<(), String> {
    let log = tracing_subscriber::fmt()
        .with_writer(std::io::stderr)
        .with_target(false);
    if log_json {
        log.json().init();
    } else {
        log.with_ansi(std::io::stderr().is_terminal()).init();
    }
    // What can be refused is, before anything is changed.
    let metrics = metrics.map(|address| {
        TcpListener::bind(address).map_err(|error| format!("cannot listen on {address}: {error}"))
    });
    let metrics = metrics.transpose()?;
    let status = listen(socket)?;
    let daemon = Daemon::start(file).map_err(|error| error.to_string())?;
    // Before there are other threads: each has its own.
    drop_capabilities().map_err(|error| format!("cannot drop capabilities: {error}"))?;
    let told = |error| format!("cannot start a thread: {error}");
    serve_status(status, daemon.shared()).map_err(told)?;
    if let Some(metrics) = metrics {
        serve_metrics(metrics, daemon.shared()).map_err(told)?;
    }
    tracing::info!(file = %file.display(), "agreements in force");
    let done = daemon.run();
    let _ = std::fs::remove_file(socket);
    done.map_err(|error| error.to_string())
}

/// A socket that nobody answers any more is in the way.
fn listen(socket: &Path) -> Result<UnixListener, String> {
    let failed = |error: std::io::Error| format!("cannot listen on {}: {error}", socket.display());
    if UnixStream::connect(socket).is_ok() {
        return Err(format!(
            "a daemon answers on {} already; stop it, or give this one another --socket",
            socket.display()
        ));
    }
    if let Some(directory) = socket.parent() {
        std::fs::create_dir_all(directory).map_err(failed)?;
    }
    let _ = std::fs::remove_file(socket);
    UnixListener::bind(socket).map_err(failed)
}

/// All but what traffic control and its classifier need.
fn drop_capabilities() -> Result<(), caps::errors::CapsError> {
    let had = caps::read(None, CapSet::Permitted)?;
    let needed = [Capability::CAP_NET_ADMIN, Capability::CAP_BPF];
    let kept: HashSet<Capability> = needed
        .into_iter()
        .filter(|each| had.contains(each))
        .collect();
    caps::set(None, CapSet::Effective, &kept)?;
    caps::set(None, CapSet::Inheritable, &HashSet::new())?;
    caps::set(None, CapSet::Permitted, &kept)
}

fn status(socket: &Path, once: bool, json: bool) -> Result<(), String> {
    const BETWEEN: Duration = Duration::from_secs(1);
    loop {
        let answer = ask(socket).map_err(|error| {
            format!(
                "no daemon answers on {}: {error}; is it running?",
                socket.display()
            )
        })?;
        if json {
            println!("{answer}");
            return Ok(());
        }
        let snapshot: Snapshot = serde_json::from_str(&answer)
            .map_err(|error| format!("what answers is no daemon of this version: {error}"))?;
        if once || !std::io::stdout().is_terminal() {
            print!("{}", snapshot.table());
            return Ok(());
        }
        print!("\x1b[H\x1b[2J{}", snapshot.table());
        std::thread::sleep(BETWEEN);
    }
}

fn ask(socket: &Path) -> std::io::Result<String> {
    let mut answer = String::new();
    UnixStream::connect(socket)?.read_to_string(&mut answer)?;
    Ok(answer)
}
