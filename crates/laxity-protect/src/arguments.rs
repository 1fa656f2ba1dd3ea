//! The command line of `laxity-protect`. The program, its man pages and its shell completion are made from it.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};

#[cfg(feature = "faults")]
use crate::daemon::faults;

/// Keep virtual machines running when their host fails
///
/// Each protected virtual machine has a standby on another host, which receives checkpoints and
/// takes over when the first host is silent. Exit codes: 0 success; 2 refused input or a failure.
#[derive(Debug, Parser)]
#[command(name = "laxity-protect", version)]
pub struct Arguments {
    /// What to do
    #[command(subcommand)]
    pub command: Command,
}

/// Where a running daemon is asked.
#[derive(Debug, Args)]
pub struct Socket {
    /// The socket at which the daemon answers
    #[arg(
        long = "socket",
        value_name = "PATH",
        default_value = "/run/laxity-protect/control.sock"
    )]
    pub path: PathBuf,
}

/// Faults that a test asks for.
#[cfg(feature = "faults")]
#[derive(Debug, Args)]
pub struct Faults {
    /// Kill this process at a step of an epoch
    #[arg(long, value_name = "STEP:TIMES")]
    pub die_at: Option<faults::At>,
    /// Stop one thread of this process at a step of an epoch
    #[arg(long, value_name = "STEP:TIMES", conflicts_with = "die_at")]
    pub stall_at: Option<faults::At>,
}

/// The site file and the directory of keys.
#[derive(Debug, Args)]
pub struct KeysPlace {
    /// The site file
    pub file: PathBuf,
    /// The directory of site.key; each host gets site.crt, its own two files, and site.crl if there is one
    pub directory: PathBuf,
}

/// A change of keys that have been made.
#[derive(Debug, Subcommand)]
pub enum KeysChange {
    /// Make new keys and certificates for all hosts or some; the authority stays
    Renew {
        /// The site file and the directory of keys
        #[command(flatten)]
        place: KeysPlace,
        /// The hosts; all of the site by default
        names: Vec<String>,
    },
    /// Revoke certificates: hosts that have the new site.crl refuse them
    Revoke {
        /// The site file and the directory of keys
        #[command(flatten)]
        place: KeysPlace,
        /// The hosts
        #[arg(required = true)]
        names: Vec<String>,
    },
}

/// What to do.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Check a site file and say what it promises
    Check {
        /// The site file
        file: PathBuf,
        /// Print all settings, with defaults filled in, as one JSON object
        #[arg(long)]
        json: bool,
    },
    /// Make keys and certificates for all hosts of a site
    #[command(args_conflicts_with_subcommands = true)]
    Keys {
        /// The site file and the directory of keys
        #[command(flatten)]
        made: Option<KeysPlace>,
        /// A change of keys that have been made
        #[command(subcommand)]
        change: Option<KeysChange>,
    },
    /// Protect the virtual machines of this host until SIGTERM or SIGINT arrives
    Run {
        /// The site file, the same on all hosts
        file: PathBuf,
        /// The name of this host in the site file
        #[arg(long = "as", value_name = "HOST")]
        host: String,
        /// Take the site file's directories relative to this one
        #[arg(long, value_name = "DIRECTORY", default_value = "/")]
        root: PathBuf,
        /// Serve metrics for Prometheus at this address (GET /metrics)
        #[arg(long, value_name = "ADDRESS:PORT")]
        metrics: Option<SocketAddr>,
        /// The socket at which the daemon answers `status` and takes orders
        #[command(flatten)]
        socket: Socket,
        /// Log in JSON, one object per line
        #[arg(long)]
        log_json: bool,
        /// Faults that a test asks for
        #[cfg(feature = "faults")]
        #[command(flatten)]
        faults: Faults,
    },
    /// Carry the stream of `xl remus` to the daemon
    #[command(hide = true)]
    Carry {
        /// The socket at which the daemon waits for the stream
        socket: PathBuf,
        /// The name of the domain
        domain: String,
    },
    /// Show the table of a running daemon, every second on a terminal
    Status {
        /// Where the daemon answers
        #[command(flatten)]
        socket: Socket,
        /// Show the table once
        #[arg(long)]
        once: bool,
        /// Print one JSON object
        #[arg(long)]
        json: bool,
    },
    /// Move a virtual machine to its standby now, without loss
    Switchover {
        /// The virtual machine, which runs on this host
        vm: String,
        /// Where the daemon answers
        #[command(flatten)]
        socket: Socket,
    },
    /// Boot a virtual machine on this host, because no host runs it
    Start {
        /// The virtual machine
        vm: String,
        /// Boot it although the other host does not answer: you have made sure that it does not run there
        #[arg(long)]
        alone: bool,
        /// Where the daemon answers
        #[command(flatten)]
        socket: Socket,
    },
    /// Discard the standby's checkpoints so that its host can be switched off; the guest runs on, unprotected
    Unprotect {
        /// The virtual machine, which runs on this host
        vm: String,
        /// Where the daemon answers
        #[command(flatten)]
        socket: Socket,
    },
    /// Protect a virtual machine again
    Protect {
        /// The virtual machine, which runs on this host
        vm: String,
        /// Where the daemon answers
        #[command(flatten)]
        socket: Socket,
    },
    /// Continue without the other host, which does not answer: you have made sure that it is off
    GoOn {
        /// The virtual machine
        vm: String,
        /// Where the daemon answers
        #[command(flatten)]
        socket: Socket,
    },
}
