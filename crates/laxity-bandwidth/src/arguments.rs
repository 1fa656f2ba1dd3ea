//! The command line of `laxity-bandwidth`. The program, its man pages and its shell completion are made from it.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::{Parser, Subcommand};

/// Enforce agreements about the bandwidth of virtual machines on a link
///
/// Each virtual machine has an agreed minimum, which it gets whenever it asks, and an agreed
/// maximum, which it never exceeds. Exit codes: 0 success; 2 refused input or a failure.
#[derive(Debug, Parser)]
#[command(name = "laxity-bandwidth", version)]
pub struct Arguments {
    /// What to do
    #[command(subcommand)]
    pub command: Command,
}

const SOCKET: &str = "/run/laxity-bandwidth/status.sock";

/// What to do.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Check an agreements file and show the rates that it gives
    Check {
        /// The agreements file; - is the standard input
        file: PathBuf,
    },
    /// Enforce the agreements until SIGTERM or SIGINT arrives
    Run {
        /// The agreements file, which is read again when it changes and on SIGHUP
        file: PathBuf,
        /// Show what would be done with the interfaces of this host, and change nothing
        #[arg(long)]
        dry_run: bool,
        /// Serve metrics for Prometheus at this address (GET /metrics)
        #[arg(long, value_name = "ADDRESS:PORT")]
        metrics: Option<SocketAddr>,
        /// The socket at which the daemon answers `status`
        #[arg(long, value_name = "PATH", default_value = SOCKET)]
        socket: PathBuf,
        /// Log in JSON, one object per line
        #[arg(long)]
        log_json: bool,
    },
    /// Show the table of a running daemon, every second on a terminal
    Status {
        /// The socket at which the daemon answers
        #[arg(long, value_name = "PATH", default_value = SOCKET)]
        socket: PathBuf,
        /// Show the table once
        #[arg(long)]
        once: bool,
        /// Print one JSON object
        #[arg(long)]
        json: bool,
    },
}
