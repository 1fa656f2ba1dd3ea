//! `laxity-protect`: keeps virtual machines running when their host fails.
#![forbid(unsafe_code)]

use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::Parser as _;
use laxity_config::{FILE_BYTES_MAX, input};
use laxity_daemon::{exit_code, println, silent, start_log, watch};
#[cfg(feature = "faults")]
use laxity_protect::arguments::Faults;
use laxity_protect::arguments::{Arguments, Command, KeysChange, KeysPlace};
use laxity_protect::daemon::control::{Answer, Request, ask};
#[cfg(feature = "faults")]
use laxity_protect::daemon::faults;
use laxity_protect::daemon::{self, Options};
use laxity_protect::protocol::{LEASE_INTERVALS, Mode, StandbyLost};
use laxity_protect::report::Snapshot;
use laxity_protect::site::{self, Domain, Site};
use laxity_protect::transport::{KeysError, authority};

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
            arm(&faults);
            let options = Options {
                host,
                socket: socket.path,
                metrics,
            };
            run(&file, &root, &options, log_json)
        }
        Command::Carry { socket, domain } => daemon::carry(&socket, &domain)
            .map_err(|error| format!("{}: {error}", socket.display())),
        Command::Status { socket, once, json } => status(&socket.path, once, json),
        Command::Switchover { vm, socket } => switchover(vm, &socket.path),
        Command::Start { vm, alone, socket } => order(&socket.path, &Request::Start { vm, alone }),
        Command::Unprotect { vm, socket } => order(&socket.path, &Request::Unprotect { vm }),
        Command::Protect { vm, socket } => order(&socket.path, &Request::Protect { vm }),
        Command::GoOn { vm, socket } => order(&socket.path, &Request::GoOn { vm }),
    };
    exit_code(done)
}

#[cfg(feature = "faults")]
fn arm(faults: &Faults) {
    let dies = faults.die_at.map(|at| (at, faults::End::Death));
    let stalls = faults.stall_at.map(|at| (at, faults::End::Standstill));
    if let Some((at, end)) = dies.or(stalls) {
        faults::arm(at, end);
    }
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

/// Prints what a site promises, in the operator's words.
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
        println!("{}: starts on {begins}; its standby is {standby}", vm.name);
        println!(
            "  a checkpoint every {} to {} ms; its host counts as failed after {} to {} ms of silence",
            ms(settings.interval.minimum_ns),
            ms(settings.interval.maximum_ns),
            ms(settings.detection_min_ns),
            ms(settings.detection_ns)
        );
        match settings.mode {
            Mode::Net => {
                println!("  net: sent output is never undone; output waits for its checkpoint")
            }
            Mode::NoNet => println!(
                "  no-net: output leaves at once; a failure undoes everything since the last\n    \
                 checkpoint, and the standby takes over after {} to {} ms at the earliest",
                ms(LEASE_INTERVALS * settings.interval.minimum_ns),
                ms(settings.lease_ns)
            ),
        }
        match (settings.standby_lost, settings.witness) {
            (StandbyLost::Stop, _) => {
                println!(
                    "  when its standby is silent, the guest pauses until the standby or you answer"
                );
            }
            (StandbyLost::Continue, true) => println!(
                "  when its standby is silent, the guest runs on, unprotected, if the\n    \
                 witness bars the standby from taking over"
            ),
            (StandbyLost::Continue, false) => println!(
                "  AT YOUR RISK: when its standby is silent, the guest runs on; if only the\n    \
                 connection was lost, the standby takes over too, and both send"
            ),
        }
        let (disks, volumes) = (vm.guest.disks.len(), vm.guest.volumes.len());
        println!(
            "  protected: memory, devices and {}{}",
            number(volumes, "disk"),
            match disks {
                0 => String::new(),
                _ => format!("; {} can only be read", number(disks, "more disk")),
            }
        );
    }
    for domain in &site.xen_domains {
        show_domain(domain);
    }
    if let Some(domain) = &site.domain {
        println!("DNS records of {domain}:");
        for record in site.records() {
            println!("  {record}");
        }
    }
}

/// `no disks`, `1 disk`, `2 disks`.
fn number(count: usize, what: &str) -> String {
    match count {
        0 => format!("no {what}s"),
        1 => format!("1 {what}"),
        _ => format!("{count} {what}s"),
    }
}

/// Prints what Remus promises for a domain of Xen.
fn show_domain(domain: &Domain) {
    let [begins, standby] = &domain.hosts;
    let settings = &domain.settings;
    let ms = |ns: i64| ns as f64 / 1e6;
    println!(
        "{}: a domain of Xen; starts on {begins}; its standby is {standby}",
        domain.name
    );
    println!(
        "  xl remus takes a checkpoint, then waits for {} ms until the next; a host\n    counts as failed after {} ms of silence",
        ms(settings.interval.minimum_ns),
        ms(settings.detection_ns)
    );
    match settings.mode {
        Mode::Net => println!(
            "  net: output waits for its checkpoint, if libxl supports network buffering\n    (docs/how-to/xen.md)"
        ),
        Mode::NoNet => println!("  no-net: output leaves at once"),
    }
    match settings.standby_lost {
        StandbyLost::Stop => {
            println!(
                "  when its standby is silent, the domain pauses until the standby or you answer"
            )
        }
        StandbyLost::Continue => println!(
            "  AT YOUR RISK: when its standby is silent, the domain runs on; if only the\n    \
             connection was lost, the standby takes over too, and both send"
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
                "made keys for {}; keep site.key away from all hosts: it is needed for new certificates only",
                listed(&owners)
            );
        }
        (None, Some(KeysChange::Renew { place, names })) => {
            let owners = owners(&place, &names)?;
            authority::renew(&place.directory, &owners).map_err(told)?;
            println!(
                "made new keys for {}; copy them to the hosts and restart their daemons",
                listed(&owners)
            );
        }
        (None, Some(KeysChange::Revoke { place, names })) => {
            let owners = owners(&place, &names)?;
            authority::revoke(&place.directory, &names).map_err(told)?;
            println!(
                "revoked the certificates of {}; copy site.crl to all hosts and restart their daemons",
                listed(&owners)
            );
        }
        (None, None) => return Err("name a site file and a directory".into()),
    }
    Ok(())
}

/// All owners of keys at a site, or only the named ones.
fn owners(place: &KeysPlace, names: &[String]) -> Result<Vec<authority::Owner>, String> {
    let all = read(&place.file, Path::new("/"), &|_| true)?.owners_of_keys();
    if let Some(unknown) = names
        .iter()
        .find(|&name| all.iter().all(|(each, _)| each != name))
    {
        return Err(format!(
            "no owner of keys is named `{unknown}`: the owners are {}",
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
        Answer::Taken => Err("the program that answers is not a daemon of this version".into()),
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

/// Switches over and waits until the other host has the guest.
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
            Some("empty" | "hanging" | "armed") => {
                println!(
                    "{vm} runs on the other host after {} ms",
                    begun.elapsed().as_millis()
                );
                return Ok(());
            }
            Some("switching" | "waiting") => std::thread::sleep(BETWEEN),
            _ => {
                return Err(format!(
                    "{vm} was not switched over; the log of the daemon gives the reason"
                ));
            }
        }
    }
    Err(format!(
        "{vm} has not been switched over within {} s",
        TIMEOUT.as_secs()
    ))
}
