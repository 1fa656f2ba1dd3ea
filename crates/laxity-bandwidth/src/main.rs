//! `laxity-bandwidth`: enforces agreements about the bandwidth of virtual machines on a link.
#![forbid(unsafe_code)]

use std::collections::HashSet;
use std::io::Read as _;
use std::net::{SocketAddr, TcpListener};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::ExitCode;

use caps::{CapSet, Capability};
use clap::Parser as _;
use laxity_bandwidth::agreements::{Port, format_rate};
use laxity_bandwidth::arguments::{Arguments, Command};
use laxity_bandwidth::daemon::{self, Daemon};
use laxity_bandwidth::libvirt::Asked;
use laxity_bandwidth::linux::Links;
use laxity_bandwidth::report::{Snapshot, serve_metrics, serve_status};
use laxity_bandwidth::{Agreements, Attachment, Claim, Sharing, agreements, allocate};
use laxity_config::{FILE_BYTES_MAX, input};
use laxity_daemon::{exit_code, listen, println, silent, start_log, watch};

/// Upper bound of an answer's length: 20,000 agreements of less than a kilobyte each.
const ANSWER_BYTES_MAX: u64 = 32 << 20;

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
    exit_code(done)
}

fn check(file: &Path) -> Result<(), String> {
    let text = input::read_argument(file, FILE_BYTES_MAX)
        .map_err(|error| format!("cannot read {}: {error}", file.display()))?;
    let loaded = agreements::load(&text, &file.to_string_lossy(), &|_, _| Port::Usable);
    show(&loaded.map_err(|error| error.to_string())?);
    Ok(())
}

fn dry_run(file: &Path) -> Result<(), String> {
    let links = Links::open().and_then(|mut links| links.all());
    let interfaces = links.map_err(|error| format!("cannot list the interfaces: {error}"))?;
    let asked = Asked::default();
    let agreements =
        daemon::read(file, &interfaces, Some(&asked)).map_err(|error| error.to_string())?;
    show(&agreements);
    println!("\nnothing was changed; `run` would do this:");
    println!(
        "  create an HTB tree at {} with a class for each virtual machine",
        agreements.link.interface
    );
    let exists = |at: &Attachment| match at {
        Attachment::Interface(name) => interfaces.contains_key(name),
        Attachment::Card { domain, number } => {
            matches!(asked.interface(domain, *number), Ok(Some(_)))
        }
    };
    for holder in &agreements.holders {
        let missing = if exists(&holder.at) {
            ""
        } else {
            " (once the interface exists)"
        };
        println!("  limit {} at {}{missing}", holder.name, holder.at);
    }
    Ok(())
}

/// Prints the rate of each holder when all of them ask for as much as they may have.
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
        "{} carries {}, of which {} are reserved",
        agreements.link.interface,
        format_rate(agreements.link.rate_bit_s),
        format_rate(agreements.link.reserve_bit_s)
    );
    println!("the rest beyond the minima is shared {sharing}");
    println!("rates when every virtual machine asks for its maximum:");
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
    start_log(log_json);
    // Everything that can be refused is refused before anything is changed.
    let metrics = metrics.map(|address| {
        TcpListener::bind(address).map_err(|error| format!("cannot listen on {address}: {error}"))
    });
    let metrics = metrics.transpose()?;
    let (status, _file) = listen(socket)?;
    let daemon = Daemon::start(file).map_err(|error| error.to_string())?;
    // Each thread has capabilities of its own, so this happens before other threads are started.
    drop_capabilities().map_err(|error| format!("cannot drop capabilities: {error}"))?;
    let told = |error| format!("cannot start a thread: {error}");
    serve_status(status, daemon.shared()).map_err(told)?;
    if let Some(metrics) = metrics {
        serve_metrics(metrics, daemon.shared()).map_err(told)?;
    }
    tracing::info!(file = %file.display(), "agreements in force");
    daemon.run().map_err(|error| error.to_string())
}

/// Drops all capabilities but those that traffic control and its classifier need.
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
    let asked = || ask(socket).map_err(|error| silent(socket, error));
    if json {
        println!("{}", asked()?);
        return Ok(());
    }
    watch(once, || {
        let snapshot: Snapshot = serde_json::from_str(&asked()?).map_err(|error| {
            format!("the program that answers is not a daemon of this version: {error}")
        })?;
        Ok(snapshot.table())
    })
}

fn ask(socket: &Path) -> std::io::Result<String> {
    let mut answer = String::new();
    UnixStream::connect(socket)?
        .take(ANSWER_BYTES_MAX)
        .read_to_string(&mut answer)?;
    Ok(answer)
}
