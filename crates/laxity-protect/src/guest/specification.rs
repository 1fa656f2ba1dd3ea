//! What a guest is, as its owner says, and what that is in QEMU's words.

use std::ffi::OsString;
use std::os::fd::RawFd;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::confinement::{Handed, NotHanded};

/// What runs the guest's instructions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Accelerator {
    /// KVM where it is, emulation elsewhere.
    Auto,
    /// The processor.
    Kvm,
    /// QEMU's emulation.
    Tcg,
}

/// What the machine looks like to its guest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// A PC with PCI.
    Pc,
    /// The least that a Linux with virtio needs: less state, so shorter pauses.
    Microvm,
}

/// How it is found out which pages changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Changes {
    /// By the tracker where the kernel can, by looking through all memory elsewhere.
    Auto,
    /// By the kernel's notes, and not at all without.
    Tracker,
    /// By looking through all memory.
    Comparison,
}

/// What a guest is, as its owner says.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Specification {
    /// For people.
    pub name: String,
    /// The same wherever the guest is: QEMU's user is chosen by it.
    pub number: u64,
    /// The QEMU, by its path or a name on the path.
    pub program: PathBuf,
    /// What the guest sees.
    pub kind: Kind,
    /// What runs it.
    pub accelerator: Accelerator,
    /// The processor's model, as QEMU names it; QEMU's default if there is none.
    pub cpu: Option<String>,
    /// How many.
    pub vcpus: u32,
    /// A multiple of a page.
    pub memory_bytes: u64,
    /// What it boots; the first disk if there is none.
    pub kernel: Option<PathBuf>,
    /// Its first root.
    pub initrd: Option<PathBuf>,
    /// The kernel's arguments.
    pub append: String,
    /// Images that it may read and not write.
    pub disks: Vec<PathBuf>,
    /// Of its network interface.
    pub mac: [u8; 6],
    /// Where its serial console goes.
    pub console: Option<PathBuf>,
    /// More words for QEMU.
    pub arguments: Vec<String>,
    /// How changed pages are found.
    pub changes: Changes,
}

impl Specification {
    /// What must be the same on both hosts, for a state from one to be of use on the other, in words.
    pub fn essence(&self) -> String {
        let cpu = self.cpu.as_deref().unwrap_or("default");
        let mac = self.mac.map(|byte| format!("{byte:02x}")).join(":");
        format!(
            "{:?}, {} VCPUs of model {cpu}, {} bytes, {mac}, {} disks, {:?}",
            self.kind,
            self.vcpus,
            self.memory_bytes,
            self.disks.len(),
            self.arguments
        )
    }
}

/// The older of virtio's two ways onto a PCI bus. Of the newer one QEMU saves, in every pause, all 1,024 queues that a
/// device could have: 45 KiB for each device.
const LEGACY: &str = "disable-modern=on";

/// The guest's files, as QEMU finds them.
#[derive(Debug)]
pub(super) struct Files {
    kernel: Option<PathBuf>,
    initrd: Option<PathBuf>,
    disks: Vec<PathBuf>,
    console: Option<[OsString; 2]>,
}

impl Files {
    /// Opens them.
    ///
    /// # Errors
    ///
    /// If one cannot be opened, or QEMU would not be let to.
    pub(super) fn open(
        specification: &Specification,
        handed: &mut Handed,
    ) -> Result<Files, NotHanded> {
        let mut to_read = |path: &PathBuf| handed.for_reading(path);
        let kernel = specification
            .kernel
            .as_ref()
            .map(&mut to_read)
            .transpose()?;
        let initrd = specification
            .initrd
            .as_ref()
            .map(|path| handed.for_booting(path))
            .transpose()?;
        let mut to_read = |path: &PathBuf| handed.for_reading(path);
        let disks = specification
            .disks
            .iter()
            .map(&mut to_read)
            .collect::<Result<_, _>>()?;
        let console = specification.console.as_ref();
        let console = console.map(|path| handed.for_appending(path)).transpose()?;
        Ok(Files {
            kernel,
            initrd,
            disks,
            console,
        })
    }
}

/// The words behind QEMU's name. `sockets` are the descriptors of control and network.
pub(super) fn command_line(
    specification: &Specification,
    files: &Files,
    memory: &Path,
    sockets: [RawFd; 2],
    waits: bool,
) -> Vec<OsString> {
    let Specification { kind, vcpus, .. } = specification;
    let [control, network] = sockets;
    let mut words: Vec<OsString> = Vec::new();
    let mut say = |these: &[&str]| words.extend(these.iter().map(OsString::from));
    let machine = match kind {
        Kind::Pc => "pc",
        Kind::Microvm => "microvm,acpi=on,rtc=on",
    };
    // What is protected keeps its devices: a standby would not know of others. So there is no state of plugging to save.
    if *kind == Kind::Pc {
        for controller in [
            "acpi-root-pci-hotplug",
            "acpi-pci-hotplug-with-bridge-support",
        ] {
            say(&["-global", &format!("PIIX4_PM.{controller}=off")]);
        }
    }
    // With each state QEMU sends a description of its format, for people, which is longer than the state.
    let machine = format!("{machine},suppress-vmdesc=on");
    say(&[
        "-name",
        &escaped(&specification.name),
        "-nodefaults",
        "-no-user-config",
    ]);
    say(&["-display", "none", "-no-shutdown"]);
    say(&["-machine", &format!("{machine},memory-backend=memory")]);
    if let Some(cpu) = &specification.cpu {
        say(&["-cpu", cpu]);
    }
    let bytes = specification.memory_bytes;
    let path = escaped(&memory.to_string_lossy());
    say(&["-smp", &vcpus.to_string(), "-m", &format!("{bytes}B")]);
    say(&[
        "-object",
        &format!("memory-backend-file,id=memory,share=on,mem-path={path},size={bytes}B"),
    ]);
    let address = format!("addr.type=fd,addr.str={network}");
    say(&[
        "-netdev",
        &format!("stream,id=network,server=off,{address}"),
    ]);
    let mac = specification
        .mac
        .map(|byte| format!("{byte:02x}"))
        .join(":");
    let card = match kind {
        Kind::Pc => format!("virtio-net-pci,netdev=network,mac={mac},romfile=,{LEGACY}"),
        Kind::Microvm => format!("virtio-net-device,netdev=network,mac={mac}"),
    };
    say(&["-device", &card, "-device", &random_device(*kind)]);
    if let Some(kernel) = &files.kernel {
        say(&["-kernel", &kernel.to_string_lossy()]);
    }
    if let Some(initrd) = &files.initrd {
        say(&["-initrd", &initrd.to_string_lossy()]);
    }
    if !specification.append.is_empty() {
        say(&["-append", &specification.append]);
    }
    if files.console.is_some() {
        say(&[
            "-chardev",
            "file,id=console,path=/dev/fdset/1,append=on",
            "-serial",
            "chardev:console",
        ]);
    }
    for (number, disk) in files.disks.iter().enumerate() {
        let path = escaped(&disk.to_string_lossy());
        say(&[
            "-drive",
            &format!("id=disk{number},if=none,format=raw,readonly=on,file={path}"),
        ]);
        let device = match kind {
            Kind::Pc => format!("virtio-blk-pci,{LEGACY}"),
            Kind::Microvm => "virtio-blk-device".into(),
        };
        say(&["-device", &format!("{device},drive=disk{number}")]);
    }
    words.extend(files.console.iter().flatten().cloned());
    words.extend(accelerators(specification.accelerator));
    words.extend(control_words(control));
    words.extend(specification.arguments.iter().map(OsString::from));
    if waits {
        words.extend(["-incoming", "defer"].map(OsString::from));
    }
    words
}

pub(super) fn accelerators(accelerator: Accelerator) -> Vec<OsString> {
    let names = match accelerator {
        Accelerator::Auto => &["kvm", "tcg"][..],
        Accelerator::Kvm => &["kvm"],
        Accelerator::Tcg => &["tcg"],
    };
    names
        .iter()
        .flat_map(|name| ["-accel", name])
        .map(OsString::from)
        .collect()
}

pub(super) fn control_words(control: RawFd) -> [OsString; 4] {
    let socket = format!("socket,id=control,fd={control}");
    ["-chardev", &socket, "-mon", "chardev=control,mode=control"].map(OsString::from)
}

/// Without a source of chance Linux waits for one.
fn random_device(kind: Kind) -> String {
    match kind {
        Kind::Pc => format!("virtio-rng-pci,{LEGACY}"),
        Kind::Microvm => "virtio-rng-device".into(),
    }
}

/// Inside QEMU's options a comma ends a value; two are one.
fn escaped(value: &str) -> String {
    value.replace(',', ",,")
}
