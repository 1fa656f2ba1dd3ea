//! The network block device protocol, as far as disks need it: a server for a guest's QEMU, and a
//! client of a QEMU that has an image open.

pub(super) mod client;
pub mod server;

use std::io;

const GREETING: u64 = 0x4e42_444d_4147_4943;
const OPTION: u64 = 0x4948_4156_454f_5054;
const OPTION_REPLY: u64 = 0x0003_e889_0455_65a9;
const REQUEST: u32 = 0x2560_9513;
const REPLY: u32 = 0x6744_6698;

const EXPORT_NAME: u32 = 1;

const READ: u16 = 0;
const WRITE: u16 = 1;
const DISCONNECT: u16 = 2;
const FLUSH: u16 = 3;

const REQUEST_BYTES: usize = 28;
/// Longest read or write, which a guest's QEMU is told.
pub(super) const TRANSFER_BYTES_MAX: u32 = 1 << 20;

fn take<const BYTES: usize>(rest: &mut &[u8]) -> [u8; BYTES] {
    let (taken, left) = rest.split_first_chunk().expect("it has a fixed size");
    *rest = left;
    *taken
}

fn refused(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what)
}
