//! `laxity-protect`: keeps virtual machines going when their host fails.
#![forbid(unsafe_code)]

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::{Parser, Subcommand};
use laxity_config::{FILE_BYTES_MAX, input};
use laxity_daemon::{exit_code, silent, start_log, watch};
use laxity_protect::daemon::control::{Answer, Request, ask};
#[cfg(feature = "faults")]
use laxity_protect::daemon::faults;
use laxity_protect::daemon::{self, Options};
use laxity_protect::protocol::{Mode, StandbyLost};
use laxity_protect::report::Snapshot;
use laxity_protect::site::{self, Domain, Site};
use laxity_protect::transport::{KeysError, authority};

/// Keeps virtual machines going when their host fails.
#[derive(Parser)]
#[command(name = "laxity protect", version)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

const SOCKET: &str = "/run/laxity-protect/control.sock";

#[derive(clap::Args)]
struct Socket {
    /// Where the daemon answers
    #[arg(long, value_name = "PATH", default_value = SOCKET)]
    socket: PathBuf,
}

#[derive(clap::Args)]
struct KeysPlace {
    /// The site file
    file: PathBuf,
    /// The directory with site.key; each host gets site.crt, its own two files, and site.crl if there is one
    directory: PathBuf,
}

#[derive(Subcommand)]
enum KeysChange {
    /// Makes new keys and certificates, for all hosts or some; the authority stays
    Renew {
        #[command(flatten)]
        place: KeysPlace,
        /// Whose
        names: Vec<String>,
    },
    /// Takes certificates back: hosts that have the new site.crl refuse them
    Revoke {
        #[command(flatten)]
        place: KeysPlace,
        /// Whose
        #[arg(required = true)]
        names: Vec<String>,
    },
}

#[derive(Subcommand)]
enum Command {
    /// Says what is wrong with a site file, and what it promises
    Check {
        /// The site file
        file: PathBuf,
        /// All that it says and leaves to defaults, as one JSON object
        #[arg(long)]
        json: bool,
    },
    /// Makes keys and certificates for all hosts of a site
    #[command(args_conflicts_with_subcommands = true)]
    Keys {
        #[command(flatten)]
        made: Option<KeysPlace>,
        #[command(subcommand)]
        change: Option<KeysChange>,
    },
    /// Protects the virtual machines that have a part on this host, until it is told to stop (SIGTERM, SIGINT)
    Run {
        /// The site file, the same on all hosts
        file: PathBuf,
        /// Which of its hosts this is
        #[arg(long = "as", value_name = "HOST")]
        host: String,
        /// Keep what is this host's own below this directory: the site file's directories are taken from here on
        #[arg(long, value_name = "DIRECTORY", default_value = "/")]
        root: PathBuf,
        /// Answer Prometheus here (GET /metrics)
        #[arg(long, value_name = "ADDRESS:PORT")]
        metrics: Option<SocketAddr>,
        /// Where `status` and the orders ask
        #[arg(long, value_name = "PATH", default_value = SOCKET)]
        socket: PathBuf,
        /// Log as JSON, an object a line
        #[arg(long)]
        log_json: bool,
        #[cfg(feature = "faults")]
        #[command(flatten)]
        faults: Faults,
    },
    /// The way of `xl remus` to the daemon
    #[command(hide = true)]
    Carry {
        /// Where the daemon waits for it
        socket: PathBuf,
        /// The domain, as xl knows it
        domain: String,
    },
    /// Shows a running daemon's table, again and again on a terminal
    Status {
        #[command(flatten)]
        socket: Socket,
        /// Show it once
        #[arg(long)]
        once: bool,
        /// One JSON object, once
        #[arg(long)]
        json: bool,
    },
    /// Lets the standby take over now, and loses nothing
    Switchover {
        /// The virtual machine, which this host has
        vm: String,
        #[command(flatten)]
        socket: Socket,
    },
    /// Boots a virtual machine here, as nobody has it
    Start {
        /// The virtual machine
        vm: String,
        /// Although the other host does not answer: you have made sure that it does not run the virtual machine
        #[arg(long)]
        alone: bool,
        #[command(flatten)]
        socket: Socket,
    },
    /// Lets the standby forget what it has, so that it may be taken away: the guest goes on, unprotected
    Unprotect {
        /// The virtual machine, which this host has
        vm: String,
        #[command(flatten)]
        socket: Socket,
    },
    /// Protects a virtual machine again
    Protect {
        /// The virtual machine, which this host has
        vm: String,
        #[command(flatten)]
        socket: Socket,
    },
    /// Goes on although the other host does not answer: you have made sure that it is off
    GoOn {
        /// The virtual machine
        vm: String,
        #[command(flatten)]
        socket: Socket,
    },
}

/// What a test lets this process do at a step of an epoch.
#[cfg(feature = "faults")]
#[derive(clap::Args)]
struct Faults {
    /// Kill this process there
    #[arg(long, value_name = "STEP:TIMES")]
    die_at: Option<faults::At>,
    /// Let one thread of this process stand still there
    #[arg(long, value_name = "STEP:TIMES", conflicts_with = "die_at")]
    stall_at: Option<faults::At>,
}

#[cfg(feature = "faults")]
impl Faults {
    fn arm(self) {
        let dies = self.die_at.map(|at| (at, faults::End::Death));
        let stalls = self.stall_at.map(|at| (at, faults::End::Standstill));
        if let Some((at, end)) = dies.or(stalls) {
            faults::arm(at, end);
        }
    }
}

fn main() -> ExitCode {
    let done = match Arguments::parse().command {
        Command::Check { file, json } => {
            read(&file, Path::new("/"), &|_| true).map(|site| show(&site, json))
        }
        Command::Keys { made, change } => keys(made, change),
        Command::Run {
            file,
            host,
            root,
            metrics,
            socket,
            log_json,
            #[cfg(feature = "faults")]
            faults,
        } => {
            #[cfg(feature = "faults")]
            faults.arm();
            let options = Options {
                host,
                socket,
                metrics,
            };
            run(&file, &root, &options, log_json)
        }
        Command::Carry { socket, domain } => daemon::carry(&socket, &domain)
            .map_err(|error| format!("{}: {error}", socket.display())),
        Command::Status { socket, once, json } => status(&socket.socket, once, json),
        Command::Switchover { vm, socket } => switchover(vm, &socket.socket),
        Command::Start { vm, alone, socket } => {
            order(&socket.socket, &Request::Start { vm, alone })
        }
        Command::Unprotect { vm, socket } => order(&socket.socket, &Request::Unprotect { vm }),
        Command::Protect { vm, socket } => order(&socket.socket, &Request::Protect { vm }),
        Command::GoOn { vm, socket } => order(&socket.socket, &Request::GoOn { vm }),
    };
    exit_code(done)
}

fn read(file: &Path, root: &Path, is_there: &dyn Fn(&Path) -> bool) -> Result<Site, String> {
    let failed = |error| format!("cannot read {}: {error}", file.display());
    let text = input::read_argument(file, FILE_BYTES_MAX).map_err(failed)?;
    let [base, root] = [file, root].map(std::path::absolute);
    let (base, root) = (base.map_err(failed)?, root.map_err(failed)?);
    let base = base.parent().unwrap_or(Path::new("/"));
    let name = file.to_string_lossy();
    site::load(&text, &name, base, &root, is_there).map_err(|error| error.to_string())
}

/// Prints what a site promises, in the operator's terms.
fn show(site: &Site, json: bool) {
    if json {
        let text = serde_json::to_string(site).expect("a site is JSON");
        println!("{text}");
        return;
    }
    for vm in &site.vms {
        let [begins, standby] = &vm.hosts;
        let settings = &vm.settings;
        let ms = |ns: i64| ns as f64 / 1e6;
        println!("{}: begins on {begins}, and {standby} takes over", vm.name);
        println!(
            "  a checkpoint every {} to {} ms; a host that is silent for {} ms is taken for lost",
            ms(settings.interval.minimum_ns),
            ms(settings.interval.maximum_ns),
            ms(settings.detection_ns)
        );
        match settings.mode {
            Mode::Net => println!(
                "  net: nothing that anybody has seen is lost; answers wait for their checkpoint"
            ),
            Mode::NoNet => println!(
                "  no-net: answers leave at once; a failure loses what happened since the last checkpoint, and the \
                 standby waits for {} ms",
                ms(settings.lease_ns)
            ),
        }
        match (settings.standby_lost, settings.witness) {
            (StandbyLost::Stop, _) => {
                println!("  when its standby is silent it waits, silent too, for it or for you");
            }
            (StandbyLost::Continue, true) => println!(
                "  when its standby is silent it asks the witness, and goes on, unprotected, if that says that the standby \
                 may not"
            ),
            (StandbyLost::Continue, false) => println!(
                "  AT YOUR RISK: when its standby is silent it goes on, and if that has only lost the connection and \
                 taken over, both are heard"
            ),
        }
        let disks = vm.guest.disks.len();
        println!("  protected: memory and devices; {disks} disks, which it can only read");
    }
    for domain in &site.xen_domains {
        show_domain(domain);
    }
    if let Some(domain) = &site.domain {
        println!("DNS is to have of {domain}:");
        for record in site.records() {
            println!("  {record}");
        }
    }
}

/// Prints what Remus promises for a domain.
fn show_domain(domain: &Domain) {
    let [begins, standby] = &domain.hosts;
    let settings = &domain.settings;
    let ms = |ns: i64| ns as f64 / 1e6;
    println!(
        "{}: a domain of Xen, begins on {begins}, and {standby} takes over",
        domain.name
    );
    println!(
        "  xl remus takes a checkpoint every {} ms, and the time that it takes itself; a host that is silent for {} ms is \
         taken for lost",
        ms(settings.interval.minimum_ns),
        ms(settings.detection_ns)
    );
    match settings.mode {
        Mode::Net => println!(
            "  net: what it sends waits for its checkpoint, where libxl does (see docs/how-to/xen.md)"
        ),
        Mode::NoNet => println!("  no-net: what it sends leaves at once"),
    }
    match settings.standby_lost {
        StandbyLost::Stop => {
            println!("  when its standby is silent it is paused, until that or you say otherwise")
        }
        StandbyLost::Continue => println!(
            "  AT YOUR RISK: when its standby is silent it goes on, and if that has only lost the connection and taken \
             over, both are heard"
        ),
    }
    println!("  protected: memory and processors of a paravirtual guest; no disks");
}

fn keys(made: Option<KeysPlace>, change: Option<KeysChange>) -> Result<(), String> {
    let told = |error: KeysError| error.to_string();
    match (made, change) {
        (Some(place), _) => {
            let owners = owners(&place, &[])?;
            authority::make(&place.directory, &owners).map_err(told)?;
            println!(
                "made keys for {}; keep site.key where no host is, it is for new certificates only",
                listed(&owners)
            );
        }
        (None, Some(KeysChange::Renew { place, names })) => {
            let owners = owners(&place, &names)?;
            authority::renew(&place.directory, &owners).map_err(told)?;
            println!(
                "made new keys for {}; give them to the hosts and restart their daemons",
                listed(&owners)
            );
        }
        (None, Some(KeysChange::Revoke { place, names })) => {
            let owners = owners(&place, &names)?;
            authority::revoke(&place.directory, &names).map_err(told)?;
            println!(
                "took back the certificates of {}; give site.crl to all hosts and restart their daemons",
                listed(&owners)
            );
        }
        (None, None) => return Err("name a site file and a directory".into()),
    }
    Ok(())
}

/// All owners of keys at a site, or those that are named.
fn owners(place: &KeysPlace, names: &[String]) -> Result<Vec<authority::Owner>, String> {
    let all = read(&place.file, Path::new("/"), &|_| true)?.owners_of_keys();
    if let Some(unknown) = names
        .iter()
        .find(|&name| all.iter().all(|(each, _)| each != name))
    {
        return Err(format!(
            "nobody is called `{unknown}`: there are {}",
            listed(&all)
        ));
    }
    let is_named = |(name, _): &authority::Owner| names.is_empty() || names.contains(name);
    Ok(all.into_iter().filter(is_named).collect())
}

fn listed(owners: &[authority::Owner]) -> String {
    let names: Vec<&str> = owners.iter().map(|(name, _)| &**name).collect();
    names.join(", ")
}

fn run(file: &Path, root: &Path, options: &Options, log_json: bool) -> Result<(), String> {
    start_log(log_json);
    let site = read(file, root, &|path| path.exists())?;
    daemon::run(&site, options).map_err(|error| error.to_string())
}

fn asked(socket: &Path, request: &Request) -> Result<Answer, String> {
    ask(socket, request).map_err(|error| silent(socket, error))
}

fn snapshot(socket: &Path) -> Result<Snapshot, String> {
    match asked(socket, &Request::Status)? {
        Answer::Status(snapshot) => Ok(snapshot),
        Answer::Refused(why) => Err(why),
        Answer::Taken => Err("what answers is no daemon of this version".into()),
    }
}

fn status(socket: &Path, once: bool, json: bool) -> Result<(), String> {
    if json {
        let snapshot = serde_json::to_string(&snapshot(socket)?);
        println!("{}", snapshot.expect("a snapshot is JSON"));
        return Ok(());
    }
    watch(once, || Ok(snapshot(socket)?.table()))
}

fn order(socket: &Path, request: &Request) -> Result<(), String> {
    match asked(socket, request)? {
        Answer::Refused(why) => Err(why),
        Answer::Taken | Answer::Status(_) => Ok(()),
    }
}

/// Waits until the switchover is done and the other host has the guest.
fn switchover(vm: String, socket: &Path) -> Result<(), String> {
    const TIMEOUT: Duration = Duration::from_secs(30);
    const BETWEEN: Duration = Duration::from_millis(20);
    order(socket, &Request::Switchover { vm: vm.clone() })?;
    let begun = Instant::now();
    while begun.elapsed() < TIMEOUT {
        let snapshot = snapshot(socket)?;
        let state = snapshot
            .vms
            .iter()
            .find(|each| each.name == vm)
            .map(|each| &*each.state);
        match state {
            Some("empty" | "armed") => {
                println!(
                    "{vm} runs on the other host now, after {} ms",
                    begun.elapsed().as_millis()
                );
                return Ok(());
            }
            Some("switching" | "waiting") => std::thread::sleep(BETWEEN),
            _ => {
                return Err(format!(
                    "{vm} was not switched over; the daemon's log says why"
                ));
            }
        }
    }
    Err(format!(
        "{vm} is not switched over after {} s",
        TIMEOUT.as_secs()
    ))
}
