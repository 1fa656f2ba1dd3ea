//! The trial of this host's QEMU: its version, and whether its accelerator runs the instructions that an operating
//! system needs.

use std::ffi::OsString;
use std::io::Read as _;
use std::time::{Duration, Instant};

use serde_json::json;

use super::confinement::{Handed, User, sealed};
use super::process::{GuestError, NO_MACHINE, START_TIMEOUT, spawn, system};
use super::qemu::probe;
use super::qmp::{Qmp, QmpError};
use super::specification::{Accelerator, Specification, accelerators, machine};

/// A program in place of a firmware, which ends QEMU by its debugging exit.
const PROGRAM: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/trial.bin"));
/// QEMU's exit code for `RAN` of `trial.S`.
const RAN_CODE: i32 = 0x2a << 1 | 1;
/// Largest part of QEMU's complaints that is read.
const SAID_BYTES_MAX: u64 = 4096;

/// Starts the program without a guest, and returns its version and the accelerator that runs
/// the guest, in words and in QEMU's terms; both must be the same on both hosts.
///
/// KVM is tried by running a small program, since there are computers whose KVM can be opened,
/// and runs no usual operating system.
///
/// # Errors
///
/// The same as those of [`Qemu::start`](super::Qemu::start).
pub fn probe_program(specification: &Specification) -> Result<(String, Accelerator), GuestError> {
    let mut words: Vec<OsString> = NO_MACHINE.map(OsString::from).into();
    // A QEMU without emulation begins with KVM alone.
    words.extend(accelerators(match specification.accelerator {
        Accelerator::Tcg => Accelerator::Tcg,
        _ => Accelerator::Auto,
    }));
    let user = User::of(
        specification.number,
        specification.accelerator != Accelerator::Tcg,
    );
    let (mut child, mut qmp) = spawn(&specification.program, &words, &[], Vec::new(), user)?;
    let found = probe(&mut qmp);
    let _ = child.kill();
    let _ = child.wait();
    found?;
    let (name, accelerator) = match specification.accelerator {
        Accelerator::Tcg => ("tcg", Accelerator::Tcg),
        wanted => match (wanted, try_accelerator(specification, Accelerator::Kvm)?) {
            (_, Ok(())) => ("kvm", Accelerator::Kvm),
            (Accelerator::Kvm, Err(reason)) => return Err(GuestError::Kvm(reason)),
            (_, Err(reason)) => {
                tracing::info!(vm = specification.name, "emulated, without KVM: {reason}");
                ("tcg", Accelerator::Tcg)
            }
        },
    };
    Ok((format!("QEMU {} with {name}", qmp.version()), accelerator))
}

/// Runs a small program with an accelerator, on the guest's kind of machine and processor. Returns
/// the reason if the accelerator does not run it.
///
/// # Errors
///
/// If it cannot be tried, or QEMU does not answer in time, which tells nothing about the accelerator.
fn try_accelerator(
    specification: &Specification,
    accelerator: Accelerator,
) -> Result<Result<(), String>, GuestError> {
    let user = User::of(specification.number, accelerator != Accelerator::Tcg);
    let program = sealed(c"laxity-trial", PROGRAM).map_err(system("write a program"))?;
    let mut handed = Handed::default();
    let firmware = handed.open(program);
    let mut words: Vec<OsString> = ["-nodefaults", "-no-user-config", "-no-reboot", "-S"]
        .into_iter()
        .chain(["-display", "none", "-m", "16M"])
        .chain(["-device", "isa-debug-exit,iobase=0xf4,iosize=1"])
        .chain(["-machine", machine(specification.kind), "-bios"])
        .map(OsString::from)
        .collect();
    words.push(firmware.into());
    if let Some(cpu) = &specification.cpu {
        words.extend(["-cpu", cpu].map(OsString::from));
    }
    words.extend(accelerators(accelerator));
    let files = handed.descriptors().collect();
    let spawned = spawn(&specification.program, &words, &[], files, user);
    let (mut child, mut qmp) = match spawned {
        Ok(spawned) => spawned,
        Err(GuestError::Ended { said, .. }) => return Ok(Err(said)),
        Err(error) => return Err(error),
    };
    let over = wait_for_end(&mut qmp, START_TIMEOUT);
    if !matches!(over, Ok(Ok(()))) {
        let _ = child.kill();
    }
    let status = child.wait().map_err(system("wait for QEMU"))?;
    let over = over?;
    if over.is_ok() && status.code() == Some(RAN_CODE) {
        return Ok(Ok(()));
    }
    let mut said = Vec::new();
    if let Some(stderr) = child.stderr.take() {
        let _ = stderr.take(SAID_BYTES_MAX).read_to_end(&mut said);
    }
    let said = String::from_utf8_lossy(&said);
    let complaint = said.lines().find(|line| !line.contains("warning:"));
    let end = over
        .err()
        .unwrap_or_else(|| format!("it ended with {status}"));
    Ok(Err(match complaint {
        Some(complaint) => format!("{end}: {complaint}"),
        None => end,
    }))
}

/// Lets QEMU run, and returns when it has ended, or the reason why it never will.
///
/// # Errors
///
/// If QEMU does not answer, or has not ended within `timeout`.
fn wait_for_end(qmp: &mut Qmp, timeout: Duration) -> Result<Result<(), String>, QmpError> {
    let deadline = Instant::now() + timeout;
    let mut next = qmp.execute("cont", json!({})).map(drop);
    loop {
        match next {
            Ok(()) => {}
            Err(QmpError::Gone) => return Ok(Ok(())),
            Err(error) => return Err(error),
        }
        let left = deadline.saturating_duration_since(Instant::now());
        match qmp.event(left) {
            Ok(Some(event)) if event.name == "STOP" => {
                return Ok(Err("it stopped at an instruction that it cannot run".into()));
            }
            Ok(None) if left == Duration::ZERO => {
                let waited_for = "the end of a trial of its accelerator".into();
                return Err(QmpError::Silent {
                    waited_for,
                    timeout,
                });
            }
            heard => next = heard.map(drop),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;
    use std::os::unix::fs::PermissionsExt as _;
    use std::os::unix::net::UnixStream;
    use std::path::{Path, PathBuf};
    use std::{env, fs};

    use super::super::{Bus, Changes, Format, Kind};
    use super::*;

    const QEMU: &str = "qemu-system-x86_64";
    /// One without 64-bit mode.
    const OLD: &str = "qemu64,-lm";

    fn qemu() -> Option<PathBuf> {
        let path = env::var_os("PATH")?;
        let found = env::split_paths(&path)
            .map(|directory| directory.join(QEMU))
            .find(|program| program.is_file());
        if found.is_none() {
            eprintln!("SKIPPED: there is no {QEMU}");
        }
        found
    }

    fn guest(program: &Path, kind: Kind, cpu: Option<&str>) -> Specification {
        Specification {
            name: "trial".into(),
            number: 1,
            program: program.into(),
            kind,
            accelerator: Accelerator::Auto,
            cpu: cpu.map(Into::into),
            vcpus: 1,
            memory_bytes: 64 << 20,
            kernel: None,
            initrd: None,
            append: String::new(),
            disks: Vec::new(),
            volumes: Vec::new(),
            bus: Bus::VirtioBlk,
            format: Format::Raw,
            mac: [0; 6],
            console: None,
            arguments: Vec::new(),
            changes: Changes::Auto,
        }
    }

    #[test]
    fn a_machine_that_runs_operating_systems_passes_and_others_fail() {
        let Some(program) = qemu() else { return };
        for kind in [Kind::Pc, Kind::Microvm] {
            for cpu in [None, Some("max")] {
                let done = try_accelerator(&guest(&program, kind, cpu), Accelerator::Tcg);
                assert_eq!(done.unwrap(), Ok(()), "{kind:?} {cpu:?}");
            }
            let done = try_accelerator(&guest(&program, kind, Some(OLD)), Accelerator::Tcg);
            let reason = done.unwrap().unwrap_err();
            assert!(reason.starts_with("it ended with"), "{kind:?}: {reason}");
        }
    }

    #[test]
    fn a_trial_without_end_says_nothing_of_the_accelerator() {
        let (control, mut theirs) = UnixStream::pair().unwrap();
        let answers = r#"{"QMP": {"version": {"qemu": {"major": 7, "minor": 2, "micro": 0}}}}
{"return": {}, "id": 1}
{"return": {}, "id": 2}
"#;
        theirs.write_all(answers.as_bytes()).unwrap();
        let mut qmp = Qmp::greet(control, START_TIMEOUT).unwrap();
        let done = wait_for_end(&mut qmp, Duration::from_millis(20));
        assert!(matches!(done, Err(QmpError::Silent { .. })), "{done:?}");
    }

    /// QEMU is told to emulate where it is told to use KVM, with further words for a trial: that is
    /// a KVM which runs what these words leave.
    fn with_kvm(name: &str, further: &str, qemu: &Path) -> PathBuf {
        let name = format!("laxity-trial-{name}-{}", std::process::id());
        let path = env::temp_dir().join(name);
        let script = format!(
            "#!/bin/sh\nmore=\ntrial=\nfirst=1\nfor word; do\n\
             [ -z \"$first\" ] || set --\nfirst=\n\
             [ \"$word\" != -bios ] || trial=1\n\
             [ \"$word\" != kvm ] || {{ word=tcg; more=${{trial:+'{further}'}}; }}\n\
             set -- \"$@\" \"$word\"\ndone\nexec {} \"$@\" $more\n",
            qemu.display()
        );
        fs::write(&path, script).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        path
    }

    #[test]
    fn auto_is_kvm_where_it_runs_the_trial_and_emulation_elsewhere() {
        let Some(program) = qemu() else { return };
        let good = with_kvm("good", "", &program);
        let bad = with_kvm("bad", &format!("-cpu {OLD}"), &program);
        let probed = |program: &Path, accelerator| {
            let guest = guest(program, Kind::Pc, None);
            probe_program(&Specification {
                accelerator,
                ..guest
            })
        };
        let (name, accelerator) = probed(&good, Accelerator::Auto).unwrap();
        assert_eq!(accelerator, Accelerator::Kvm);
        assert!(name.ends_with("with kvm"), "{name}");
        let (name, accelerator) = probed(&bad, Accelerator::Auto).unwrap();
        assert_eq!(accelerator, Accelerator::Tcg);
        assert!(name.ends_with("with tcg"), "{name}");
        let (_, accelerator) = probed(&bad, Accelerator::Tcg).unwrap();
        assert_eq!(accelerator, Accelerator::Tcg);
        // One without emulation is not asked to emulate.
        let alone = good.with_extension("alone");
        let script = format!(
            "#!/bin/sh\ncase \" $* \" in *' kvm '*) exec {} \"$@\";; esac\n\
             echo 'invalid accelerator tcg' >&2; exit 1\n",
            good.display()
        );
        fs::write(&alone, script).unwrap();
        fs::set_permissions(&alone, fs::Permissions::from_mode(0o755)).unwrap();
        let (_, accelerator) = probed(&alone, Accelerator::Kvm).unwrap();
        assert_eq!(accelerator, Accelerator::Kvm);
        fs::remove_file(alone).unwrap();
        let refused = probed(&bad, Accelerator::Kvm).unwrap_err();
        assert!(matches!(refused, GuestError::Kvm(_)), "{refused}");
        fs::remove_file(good).unwrap();
        fs::remove_file(bad).unwrap();
    }
}
