//! What QEMU is on this host, and whether its accelerator runs what an operating system needs: by
//! having it run that.

use std::ffi::OsString;
use std::io::Read as _;
use std::time::{Duration, Instant};

use serde_json::json;

use super::confinement::{Handed, User, sealed};
use super::qemu::{GuestError, START_TIMEOUT, probe, spawn};
use super::qmp::{Qmp, QmpError};
use super::specification::{Accelerator, Specification, accelerators, control_words, machine};

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
    let words = |control| {
        let mut words: Vec<OsString> = Vec::new();
        words.extend(
            [
                "-nodefaults",
                "-no-user-config",
                "-display",
                "none",
                "-machine",
                "none",
            ]
            .map(OsString::from),
        );
        words.extend(accelerators(Accelerator::Tcg));
        words.extend(control_words(control));
        words
    };
    let user = User::of(specification.number, false);
    let (mut child, mut qmp) = spawn(&specification.program, words, &[], Vec::new(), user)?;
    let found = probe(&mut qmp);
    let _ = child.kill();
    let _ = child.wait();
    found?;
    let (name, accelerator) = match specification.accelerator {
        Accelerator::Tcg => ("tcg", Accelerator::Tcg),
        wanted => match (wanted, try_accelerator(specification, Accelerator::Kvm)) {
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

/// Runs a small program with an accelerator, on the guest's kind of machine and processor.
///
/// # Errors
///
/// The reason, if it does not come to its end.
fn try_accelerator(specification: &Specification, accelerator: Accelerator) -> Result<(), String> {
    let user = User::of(specification.number, accelerator != Accelerator::Tcg);
    let program = sealed(c"laxity-trial", PROGRAM).map_err(|error| error.to_string())?;
    let mut handed = Handed::default();
    let firmware = handed.open(program);
    let words = |control| {
        let mut words: Vec<OsString> = ["-nodefaults", "-no-user-config", "-no-reboot", "-S"]
            .into_iter()
            .chain(["-display", "none", "-m", "16M"])
            .chain(["-device", "isa-debug-exit,iobase=0xf4,iosize=1"])
            .chain(["-machine", machine(specification.kind), "-bios"])
            .map(OsString::from)
            .collect();
        words.push(firmware.clone().into());
        if let Some(cpu) = &specification.cpu {
            words.extend(["-cpu", cpu].map(OsString::from));
        }
        words.extend(accelerators(accelerator));
        words.extend(control_words(control));
        words
    };
    let files = handed.descriptors().collect();
    let spawned = spawn(&specification.program, words, &[], files, user);
    let (mut child, mut qmp) = spawned.map_err(|error| error.to_string())?;
    let over = wait_for_end(&mut qmp);
    if over.is_err() {
        let _ = child.kill();
    }
    let status = child.wait().map_err(|error| error.to_string())?;
    if over.is_ok() && status.code() == Some(RAN_CODE) {
        return Ok(());
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
    Err(match complaint {
        Some(complaint) => format!("{end}: {complaint}"),
        None => end,
    })
}

/// Lets QEMU run, and returns when it has ended.
fn wait_for_end(qmp: &mut Qmp) -> Result<(), String> {
    let deadline = Instant::now() + START_TIMEOUT;
    let mut next = qmp.execute("cont", json!({})).map(drop);
    loop {
        match next {
            Ok(()) => {}
            Err(QmpError::Gone) => return Ok(()),
            Err(error) => return Err(error.to_string()),
        }
        let left = deadline.saturating_duration_since(Instant::now());
        match qmp.event(left) {
            Ok(Some(event)) if event.name == "STOP" => {
                return Err("it stopped at an instruction that it cannot run".into());
            }
            Ok(None) if left == Duration::ZERO => {
                return Err(format!("it did not end in {} s", START_TIMEOUT.as_secs()));
            }
            heard => next = heard.map(drop),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;
    use std::path::{Path, PathBuf};
    use std::{env, fs};

    use super::super::{Changes, Kind};
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
                assert_eq!(done, Ok(()), "{kind:?} {cpu:?}");
            }
            let done = try_accelerator(&guest(&program, kind, Some(OLD)), Accelerator::Tcg);
            assert!(done.unwrap_err().starts_with("it ended with"), "{kind:?}");
        }
    }

    /// QEMU is told to emulate where it is told to use KVM, with further words: that is a KVM which
    /// runs what these words leave.
    fn with_kvm(name: &str, further: &str, qemu: &Path) -> PathBuf {
        let name = format!("laxity-trial-{name}-{}", std::process::id());
        let path = env::temp_dir().join(name);
        let script = format!(
            "#!/bin/sh\nmore=\nfirst=1\nfor word; do\n\
             [ -z \"$first\" ] || set --\nfirst=\n\
             [ \"$word\" != kvm ] || {{ word=tcg; more='{further}'; }}\n\
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
        let refused = probed(&bad, Accelerator::Kvm).unwrap_err();
        assert!(matches!(refused, GuestError::Kvm(_)), "{refused}");
        fs::remove_file(good).unwrap();
        fs::remove_file(bad).unwrap();
    }
}
