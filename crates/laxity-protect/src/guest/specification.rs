//! The specification of a guest in the owner's terms, and as QEMU's command line.

use std::ffi::OsString;
use std::os::fd::RawFd;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::confinement::{Handed, NotHanded};
use super::disk::QUEUE_REQUESTS;
use super::nbd::TRANSFER_BYTES_MAX;

/// The accelerator that runs the guest's instructions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Accelerator {
    /// KVM where it works, emulation elsewhere.
    Auto,
    /// KVM, on the processor itself.
    Kvm,
    /// TCG, QEMU's emulation.
    Tcg,
}

/// The machine type that the guest sees.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// A PC with PCI.
    Pc,
    /// A minimal machine for Linux with virtio, whose smaller device state makes pauses shorter.
    Microvm,
}

/// The way in which changed pages are found.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Changes {
    /// By the tracker where the kernel supports it, by comparing all memory elsewhere.
    Auto,
    /// By the tracker only; without it the guest is refused.
    Tracker,
    /// By comparing all memory.
    Comparison,
}

/// How the disks that a guest writes to are attached to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Bus {
    /// Each disk is a virtio device of its own.
    VirtioBlk,
    /// All disks are SCSI disks behind one virtio device.
    VirtioScsi,
}

/// Formats of the images of the disks that a guest writes to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Format {
    /// The contents of the disk and nothing else; all of its room is taken at the start.
    Raw,
    /// QEMU's own, which grows with what is written.
    Qcow2,
}

/// The specification of a guest in the owner's terms.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Specification {
    /// Name of the guest in messages.
    pub name: String,
    /// Number of the guest, the same on both hosts, which decides QEMU's user.
    pub number: u64,
    /// The QEMU program, by its path or by a name to be found on the path.
    pub program: PathBuf,
    /// Machine type.
    pub kind: Kind,
    /// Accelerator.
    pub accelerator: Accelerator,
    /// Processor model in QEMU's terms; `None` stands for QEMU's default.
    pub cpu: Option<String>,
    /// Number of VCPUs.
    pub vcpus: u32,
    /// Size of the memory in bytes, a multiple of a page.
    pub memory_bytes: u64,
    /// Kernel to boot; the first disk is booted if there is none.
    pub kernel: Option<PathBuf>,
    /// Initial root file system.
    pub initrd: Option<PathBuf>,
    /// Arguments of the kernel.
    pub append: String,
    /// Read-only disk images.
    pub disks: Vec<PathBuf>,
    /// Images of the disks that it writes to, which are protected.
    pub volumes: Vec<PathBuf>,
    /// How these are attached.
    pub bus: Bus,
    /// Their format on this host: the guest sees none of it.
    pub format: Format,
    /// Address of the network interface.
    pub mac: [u8; 6],
    /// File for the output of the serial console.
    pub console: Option<PathBuf>,
    /// Further arguments for QEMU.
    pub arguments: Vec<String>,
    /// The way in which changed pages are found.
    pub changes: Changes,
}

impl Specification {
    /// The properties that must be the same on both hosts for a state of one to be usable on the
    /// other, in words.
    pub fn essence(&self) -> String {
        let cpu = self.cpu.as_deref().unwrap_or("default");
        let mac = self.mac.map(|byte| format!("{byte:02x}")).join(":");
        format!(
            "{:?}, {} VCPUs of model {cpu}, {} bytes, {mac}, {} disks, {:?}, {:?}",
            self.kind,
            self.vcpus,
            self.memory_bytes,
            self.disks.len(),
            self.bus,
            self.arguments
        )
    }
}

/// The older of virtio's two PCI transports. QEMU saves all 1,024 possible queues of the newer one
/// in every pause: 45 KiB for each device.
const LEGACY: &str = "disable-modern=on";

/// Paths of the guest's files as QEMU opens them.
#[derive(Debug)]
pub(super) struct Files {
    kernel: Option<PathBuf>,
    initrd: Option<PathBuf>,
    disks: Vec<PathBuf>,
    console: Option<[OsString; 2]>,
}

impl Files {
    /// Opens the guest's files.
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

/// Descriptors of QEMU's ends of its connections to the daemon.
pub(super) struct Sockets {
    pub network: RawFd,
    /// One for each disk that the guest writes to.
    pub volumes: Vec<RawFd>,
}

/// The arguments after QEMU's name.
pub(super) fn command_line(
    specification: &Specification,
    files: &Files,
    memory: &Path,
    sockets: &Sockets,
    waits: bool,
) -> Vec<OsString> {
    let Specification { kind, vcpus, .. } = specification;
    let Sockets { network, volumes } = sockets;
    let mut words: Vec<OsString> = Vec::new();
    let mut say = |these: &[&str]| words.extend(these.iter().map(OsString::from));
    // Hot plug is disabled: a standby would not know of new devices, and the state of plugging need
    // not be saved.
    if *kind == Kind::Pc {
        for controller in [
            "acpi-root-pci-hotplug",
            "acpi-pci-hotplug-with-bridge-support",
        ] {
            say(&["-global", &format!("PIIX4_PM.{controller}=off")]);
        }
    }
    // QEMU would otherwise append to each state a description of its format that is longer than the
    // state.
    let machine = format!("{},suppress-vmdesc=on", machine(*kind));
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
        let device = block_device(*kind);
        say(&["-device", &format!("{device},drive=disk{number}")]);
    }
    if specification.bus == Bus::VirtioScsi && !volumes.is_empty() {
        let controller = match kind {
            Kind::Pc => format!("virtio-scsi-pci,{LEGACY}"),
            Kind::Microvm => "virtio-scsi-device".into(),
        };
        let queue = format!("num_queues=1,virtqueue_size={QUEUE_REQUESTS},hotplug=off");
        say(&["-device", &format!("{controller},id=scsi,{queue}")]);
    }
    for (number, socket) in volumes.iter().enumerate() {
        let server = format!("server.type=fd,server.str={socket}");
        say(&[
            "-blockdev",
            &format!("driver=nbd,node-name=volume{number},{server}"),
        ]);
        // The guest is told of an error, where QEMU would pause it, and nobody would let it go on.
        let device = match specification.bus {
            Bus::VirtioBlk => format!(
                "{},num-queues=1,queue-size={QUEUE_REQUESTS},discard=off,write-zeroes=off",
                block_device(*kind)
            ),
            // The limit is that of a request to write one block many times, too.
            Bus::VirtioScsi => format!(
                "scsi-hd,bus=scsi.0,scsi-id={number},discard_granularity=0,\
                 max_io_size={TRANSFER_BYTES_MAX}"
            ),
        };
        say(&[
            "-device",
            &format!("{device},drive=volume{number},werror=report,rerror=report"),
        ]);
    }
    words.extend(files.console.iter().flatten().cloned());
    words.extend(accelerators(specification.accelerator));
    words.extend(specification.arguments.iter().map(OsString::from));
    if waits {
        words.extend(["-incoming", "defer"].map(OsString::from));
    }
    words
}

pub(super) fn machine(kind: Kind) -> &'static str {
    match kind {
        Kind::Pc => "pc",
        Kind::Microvm => "microvm,acpi=on,rtc=on",
    }
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

fn block_device(kind: Kind) -> String {
    match kind {
        Kind::Pc => format!("virtio-blk-pci,{LEGACY}"),
        Kind::Microvm => "virtio-blk-device".into(),
    }
}

/// A virtio random device, because Linux waits at boot for a source of randomness.
fn random_device(kind: Kind) -> String {
    match kind {
        Kind::Pc => format!("virtio-rng-pci,{LEGACY}"),
        Kind::Microvm => "virtio-rng-device".into(),
    }
}

/// A value with its commas doubled, because a comma ends a value in QEMU's options.
fn escaped(value: &str) -> String {
    value.replace(',', ",,")
}
