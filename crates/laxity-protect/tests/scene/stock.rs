//! A scene's guest in a QEMU as people start it, with neither a daemon nor protection: what the cost
//! of protection is held against. All but the guest's size and disk is as QEMU has it by default.

use std::process::{Child, Command, Stdio};

use laxity_protect::gate::Outside;
use laxity_protect::guest::{Bus, Format};

use super::{Scene, ip};

/// A running QEMU, which ends when this is dropped.
pub struct Stock {
    qemu: Child,
}

impl Stock {
    /// Starts a host's guest with the host's disk, which QEMU opens itself, and its tap device. No
    /// daemon of the scene runs.
    pub fn start(scene: &Scene, host: usize) -> Stock {
        let vm = scene.vm(host);
        let guest = &vm.guest;
        let (kernel, initrd) = (guest.kernel.as_ref(), guest.initrd.as_ref());
        let format = match guest.format {
            Format::Raw => "raw",
            Format::Qcow2 => "qcow2",
        };
        let disk = match guest.bus {
            Bus::VirtioBlk => "virtio-blk-pci,drive=disk",
            Bus::VirtioScsi => "scsi-hd,drive=disk",
        };
        let mac = guest.mac.map(|byte| format!("{byte:02x}")).join(":");
        let mut command = Command::new(&guest.program);
        command.args(["-nodefaults", "-no-user-config", "-display", "none"]);
        command.args(["-machine", "pc", "-accel", "tcg"]);
        command.args(["-smp", &guest.vcpus.to_string()]);
        command.args(["-m", &format!("{}B", guest.memory_bytes)]);
        command.arg("-kernel").arg(kernel.expect("it has one"));
        command.arg("-initrd").arg(initrd.expect("it has one"));
        command.args(["-append", &guest.append]);
        command.args(["-device", "virtio-scsi-pci"]);
        let image = guest.volumes[0].display();
        command.args([
            "-drive",
            &format!("id=disk,if=none,format={format},file={image}"),
        ]);
        command.args(["-device", disk, "-device", "virtio-rng-pci"]);
        let Outside::Tap(tap) = &vm.outside else {
            panic!("scenes have tap devices")
        };
        let tap = format!("tap,id=network,ifname={tap},script=no,downscript=no");
        command.args(["-netdev", &tap]);
        command.args([
            "-device",
            &format!("virtio-net-pci,netdev=network,romfile=,mac={mac}"),
        ]);
        let qemu = command.stdin(Stdio::null()).spawn().unwrap();
        // The guest's address was another card's in the last turn.
        ip("neighbour flush dev br0");
        Stock { qemu }
    }
}

impl Drop for Stock {
    fn drop(&mut self) {
        let _ = self.qemu.kill();
        let _ = self.qemu.wait();
    }
}
