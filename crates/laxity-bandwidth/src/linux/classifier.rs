//! The eBPF program at the link that finds the interface by which a packet entered the host, and so
//! the packet's owner.
//!
//! No other sign is reliable: addresses can be forged, and marks are not built everywhere. Some forty instructions of
//! eBPF look the number of the interface up in a map, look whether the packet asks for expedited forwarding, count it
//! and answer with the class. Aya and libbpf would load it from an object file that a compiler must have made first; a
//! few system calls do, too.
//!
//! The counts lie in memory that the daemon reads, so idle senders are known without a system call. A shorter program
//! at the interfaces of virtual machines only counts what they are sent, for the same reason.
#![allow(unsafe_code)]

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};

use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::tc::{
    TcAttribute, TcFilterBpfOption, TcHandle, TcHeader, TcMessage, TcOption,
};

use super::htb;

/// Constants and structures of `linux/bpf.h`.
mod abi {
    pub const MAP_CREATE: libc::c_long = 0;
    pub const MAP_UPDATE_ELEM: libc::c_long = 2;
    pub const MAP_DELETE_ELEM: libc::c_long = 3;
    pub const PROG_LOAD: libc::c_long = 5;
    pub const MAP_TYPE_HASH: u32 = 1;
    pub const MAP_TYPE_ARRAY: u32 = 2;
    pub const PROG_TYPE_SCHED_CLS: u32 = 3;
    /// The map does not allocate all its memory at once.
    pub const F_NO_PREALLOC: u32 = 1;
    /// The map's memory can be mapped (Linux 5.5).
    pub const F_MMAPABLE: u32 = 1 << 10;

    #[repr(C)]
    #[derive(Default)]
    pub struct MapCreate {
        pub map_type: u32,
        pub key_size: u32,
        pub value_size: u32,
        pub max_entries: u32,
        pub map_flags: u32,
    }

    #[repr(C)]
    #[derive(Default)]
    pub struct MapElement {
        pub map_fd: u32,
        pub padding: u32,
        pub key: u64,
        pub value: u64,
        pub flags: u64,
    }

    #[repr(C)]
    #[derive(Default)]
    pub struct ProgLoad {
        pub prog_type: u32,
        pub insn_cnt: u32,
        pub insns: u64,
        pub license: u64,
        pub log_level: u32,
        pub log_size: u32,
        pub log_buf: u64,
        pub kern_version: u32,
        pub prog_flags: u32,
    }
}

/// Number of entries of the map.
const INTERFACES_MAX: u32 = 65_536;
/// Number of classes, which are known by the lower half of their handles.
const CLASSES: usize = 65_536;

/// The loaded program, its map of interfaces, and its counters.
pub struct Classifier {
    map: OwnedFd,
    program: OwnedFd,
    counts: Counts,
}

impl Classifier {
    /// Loads the program. Every packet belongs to the class `others` until [`Classifier::set`] says
    /// otherwise. Packets with expedited forwarding (RFC 3246) belong to the class whose handle is
    /// less by `expedited`.
    pub fn load(others: u32, expedited: u16) -> io::Result<Classifier> {
        Classifier::of(|map, counts| program(map, counts, others, expedited))
    }

    /// Loads a program that only counts the packets that leave by an interface, under the number that
    /// [`Classifier::set`] gave it, or under `others`. It leaves their classes to others.
    pub fn counting(others: u16) -> io::Result<Classifier> {
        Classifier::of(|map, counts| counting_program(map, counts, others))
    }

    fn of(program: impl FnOnce(RawFd, RawFd) -> Vec<u64>) -> io::Result<Classifier> {
        let map = call(
            abi::MAP_CREATE,
            &abi::MapCreate {
                map_type: abi::MAP_TYPE_HASH,
                key_size: 4,
                value_size: 4,
                max_entries: INTERFACES_MAX,
                map_flags: abi::F_NO_PREALLOC,
            },
        )?;
        let map = owned(map);
        let counts = call(
            abi::MAP_CREATE,
            &abi::MapCreate {
                map_type: abi::MAP_TYPE_ARRAY,
                key_size: 4,
                value_size: size_of::<AtomicU64>() as u32,
                max_entries: CLASSES as u32,
                map_flags: abi::F_MMAPABLE,
            },
        )?;
        let counts = owned(counts);
        let instructions = program(map.as_raw_fd(), counts.as_raw_fd());
        let program = call(
            abi::PROG_LOAD,
            &abi::ProgLoad {
                prog_type: abi::PROG_TYPE_SCHED_CLS,
                insn_cnt: instructions.len() as u32,
                insns: instructions.as_ptr() as u64,
                license: c"Dual MIT/GPL".as_ptr() as u64,
                ..abi::ProgLoad::default()
            },
        )?;
        Ok(Classifier {
            map,
            program: owned(program),
            counts: Counts::map(&counts)?,
        })
    }

    /// Asks that our root qdisc of an interface runs the program, in place of any other.
    pub fn filter(&self, interface: u32) -> RouteNetlinkMessage {
        /// All protocols, in network byte order as the kernel expects it.
        const ALL_PROTOCOLS: u16 = (libc::ETH_P_ALL as u16).to_be();
        const PRIORITY: u32 = 1;
        const HANDLE: u16 = 1;
        let header = TcHeader {
            index: interface as i32,
            handle: TcHandle {
                major: 0,
                minor: HANDLE,
            },
            parent: htb::class_handle(0),
            info: PRIORITY << 16 | u32::from(ALL_PROTOCOLS),
            ..TcHeader::default()
        };
        let options = [
            TcFilterBpfOption::ProgFd(self.program.as_raw_fd() as u32),
            TcFilterBpfOption::ProgName("laxity".into()),
        ];
        let attributes = vec![
            TcAttribute::Kind("bpf".into()),
            TcAttribute::Options(options.map(TcOption::Bpf).to_vec()),
        ];
        RouteNetlinkMessage::NewTrafficFilter(TcMessage::from_parts(header, attributes))
    }

    /// Assigns packets that enter by `interface` to the class with this handle from now on.
    pub fn set(&self, interface: u32, class: u32) -> io::Result<()> {
        self.element(abi::MAP_UPDATE_ELEM, &interface, Some(&class))
    }

    /// Assigns packets that enter by `interface` to the class of the others from now on.
    pub fn remove(&self, interface: u32) -> io::Result<()> {
        self.element(abi::MAP_DELETE_ELEM, &interface, None)
    }

    /// Number of packets so far of the class whose handle has this lower half.
    pub fn packets(&self, minor: u16) -> u64 {
        self.counts.all()[usize::from(minor)].load(Ordering::Acquire)
    }

    fn element(&self, command: libc::c_long, key: &u32, value: Option<&u32>) -> io::Result<()> {
        let element = abi::MapElement {
            map_fd: self.map.as_raw_fd() as u32,
            key: std::ptr::from_ref(key) as u64,
            // Fields that a command does not use must be zero.
            value: value.map_or(0, |value| std::ptr::from_ref(value) as u64),
            ..abi::MapElement::default()
        };
        call(command, &element).map(|_| ())
    }
}

/// The mapped array in which the program counts packets by class.
struct Counts(NonNull<AtomicU64>);

impl Counts {
    const BYTES: usize = CLASSES * size_of::<AtomicU64>();

    fn map(array: &OwnedFd) -> io::Result<Counts> {
        // SAFETY: a new mapping, at an address of the kernel's choice, takes nobody's memory.
        let address = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                Counts::BYTES,
                libc::PROT_READ,
                libc::MAP_SHARED,
                array.as_raw_fd(),
                0,
            )
        };
        if address == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let address = NonNull::new(address.cast()).ok_or(io::ErrorKind::InvalidData)?;
        Ok(Counts(address))
    }

    fn all(&self) -> &[AtomicU64] {
        // SAFETY: the mapping is as long, page-aligned, and stays as long as this; the kernel writes whole
        // words by atomic additions.
        unsafe { std::slice::from_raw_parts(self.0.as_ptr(), CLASSES) }
    }
}

impl Drop for Counts {
    fn drop(&mut self) {
        // SAFETY: it was mapped with this length, and no slice of it outlives this.
        unsafe { libc::munmap(self.0.as_ptr().cast(), Counts::BYTES) };
    }
}

fn call<T>(command: libc::c_long, attributes: &T) -> io::Result<RawFd> {
    // SAFETY: the kernel reads as many bytes as it is told there are, and all addresses in them are of
    // values that live until it returns.
    let result = unsafe {
        libc::syscall(
            libc::SYS_bpf,
            command,
            std::ptr::from_ref(attributes),
            size_of::<T>(),
        )
    };
    if result < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(result as RawFd)
}

fn owned(fd: RawFd) -> OwnedFd {
    // SAFETY: the kernel has just made it for us.
    unsafe { OwnedFd::from_raw_fd(fd) }
}

/// One instruction: code, registers (source in the upper half), offset, immediate.
const fn instruction(code: u8, registers: u8, offset: i16, immediate: i32) -> u64 {
    (code as u64)
        | (registers as u64) << 8
        | (offset as u16 as u64) << 16
        | (immediate as u32 as u64) << 32
}

/// `offsetof(struct __sk_buff, protocol)`
const PROTOCOL: i16 = 16;
/// `offsetof(struct __sk_buff, ingress_ifindex)`
const INGRESS_IFINDEX: i16 = 36;
/// `offsetof(struct __sk_buff, ifindex)`
const IFINDEX: i16 = 40;
const LOAD_BYTE: u8 = 0x71;
const LOAD_WORD: u8 = 0x61;
const STORE_WORD: u8 = 0x63;
const LOAD_WIDE: u8 = 0x18;
const ATOMIC: u8 = 0xdb;
const ATOMIC_ADD: i32 = 0;
const MOVE: u8 = 0xbf;
const SET: u8 = 0xb7;
const ADD: u8 = 0x07;
const AND: u8 = 0x57;
const CALL: u8 = 0x85;
const JUMP: u8 = 0x05;
const JUMP_IF: u8 = 0x15;
const JUMP_UNLESS: u8 = 0x55;
const EXIT: u8 = 0x95;
const MAP_LOOKUP_ELEM: i32 = 1;
const SKB_LOAD_BYTES_RELATIVE: i32 = 68;
const HDR_START_NET: i32 = 1;
const IS_MAP: u8 = 0x10;
const MINOR: i32 = 0xffff;
const IPV4: i32 = (libc::ETH_P_IP as u16).to_be() as i32;
const IPV6: i32 = (libc::ETH_P_IPV6 as u16).to_be() as i32;

/// Looks an interface up, whose number is at this offset of `struct __sk_buff`.
fn owner(interface: i16, map: RawFd, others: u32) -> [u64; 11] {
    [
        instruction(MOVE, 0x17, 0, 0),              // r7 = skb
        instruction(LOAD_WORD, 0x12, interface, 0), // r2 = the interface
        instruction(STORE_WORD, 0x2a, -4, 0),       // the key, on the stack
        instruction(LOAD_WIDE, IS_MAP | 1, 0, map), // r1 = map
        0,
        instruction(MOVE, 0xa2, 0, 0), // r2 = &key
        instruction(ADD, 0x02, 0, -4),
        instruction(CALL, 0, 0, MAP_LOOKUP_ELEM),
        instruction(SET, 0x06, 0, others as i32), // r6 = the others' class
        instruction(JUMP_IF, 0, 1, 0),
        instruction(LOAD_WORD, 0x06, 0, 0), // r6 = the class
    ]
}

/// Counts a packet by the lower half of what `owner` found.
fn count(counts: RawFd) -> [u64; 11] {
    [
        instruction(MOVE, 0x61, 0, 0), // r1 = its minor number
        instruction(AND, 0x01, 0, MINOR),
        instruction(STORE_WORD, 0x1a, -4, 0),          // the key
        instruction(LOAD_WIDE, IS_MAP | 1, 0, counts), // r1 = counts
        0,
        instruction(MOVE, 0xa2, 0, 0), // r2 = &key
        instruction(ADD, 0x02, 0, -4),
        instruction(CALL, 0, 0, MAP_LOOKUP_ELEM),
        instruction(JUMP_IF, 0, 2, 0), // never, but the verifier does not know
        instruction(SET, 0x01, 0, 1),  // *r0 += 1
        instruction(ATOMIC, 0x10, 0, ATOMIC_ADD),
    ]
}

/// The program for the interfaces of virtual machines.
fn counting_program(map: RawFd, counts: RawFd, others: u16) -> Vec<u64> {
    let end = [
        instruction(SET, 0, 0, 0), // r0 = no class
        instruction(EXIT, 0, 0, 0),
    ];
    [
        &owner(IFINDEX, map, others.into())[..],
        &count(counts),
        &end,
    ]
    .concat()
}

/// The program for the link.
fn program(map: RawFd, counts: RawFd, others: u32, expedited: u16) -> Vec<u64> {
    // The first two bytes of the IP header have the DSCP: in version 4 the upper six bits of the second, in version 6
    // the lower four of the first and the upper two of the second. That of expedited forwarding is 46.
    let urgency = [
        instruction(LOAD_WORD, 0x78, PROTOCOL, 0), // r8 = skb->protocol
        instruction(MOVE, 0x71, 0, 0),             // r1 = skb
        instruction(SET, 0x02, 0, 0),              // r2 = the offset
        instruction(MOVE, 0xa3, 0, 0),             // r3 = where to
        instruction(ADD, 0x03, 0, -8),
        instruction(SET, 0x04, 0, 2), // r4 = two bytes
        instruction(SET, 0x05, 0, HDR_START_NET),
        instruction(CALL, 0, 0, SKB_LOAD_BYTES_RELATIVE),
        instruction(JUMP_UNLESS, 0, 13, 0), // it is shorter
        instruction(JUMP_IF, 0x08, 8, IPV4),
        instruction(JUMP_UNLESS, 0x08, 11, IPV6),
        instruction(LOAD_BYTE, 0xa1, -8, 0),
        instruction(AND, 0x01, 0, 0x0f),
        instruction(JUMP_UNLESS, 0x01, 8, 0x0b),
        instruction(LOAD_BYTE, 0xa1, -7, 0),
        instruction(AND, 0x01, 0, 0xc0),
        instruction(JUMP_UNLESS, 0x01, 5, 0x80),
        instruction(JUMP, 0, 3, 0),
        instruction(LOAD_BYTE, 0xa1, -7, 0), // version 4
        instruction(AND, 0x01, 0, 0xfc),
        instruction(JUMP_UNLESS, 0x01, 1, 0xb8),
        instruction(ADD, 0x06, 0, -i32::from(expedited)), // r6 = the class for such packets
    ];
    let end = [
        instruction(MOVE, 0x60, 0, 0), // r0 = the class
        instruction(EXIT, 0, 0, 0),
    ];
    [
        &owner(INGRESS_IFINDEX, map, others)[..],
        &urgency,
        &count(counts),
        &end,
    ]
    .concat()
}
