//! The program at the link that tells by which interface a packet came into the host, and so whose it is.
//!
//! Nothing else tells: addresses can be forged, and marks are not built everywhere. Ten instructions of
//! eBPF look the number of the interface up in a map and answer with the class. Aya and libbpf would
//! load it from an object file that a compiler must have made first; three system calls do, too.
#![allow(unsafe_code)]

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};

/// `linux/bpf.h`
mod abi {
    pub const MAP_CREATE: libc::c_long = 0;
    pub const MAP_UPDATE_ELEM: libc::c_long = 2;
    pub const MAP_DELETE_ELEM: libc::c_long = 3;
    pub const PROG_LOAD: libc::c_long = 5;
    pub const MAP_TYPE_HASH: u32 = 1;
    pub const PROG_TYPE_SCHED_CLS: u32 = 3;
    /// Does not take all memory at once.
    pub const F_NO_PREALLOC: u32 = 1;

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

/// Entries of the map.
const INTERFACES_MAX: u32 = 65_536;

/// The program, loaded, and the map that it looks into.
pub struct Classifier {
    map: OwnedFd,
    program: OwnedFd,
}

impl Classifier {
    /// Loads it. Every packet is of nobody until [`Classifier::set`] says otherwise.
    pub fn load() -> io::Result<Classifier> {
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
        let instructions = program(map.as_raw_fd());
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
        })
    }

    /// For the filter that runs it.
    pub fn program(&self) -> RawFd {
        self.program.as_raw_fd()
    }

    /// From now on what comes by `interface` is of the class with this handle.
    pub fn set(&self, interface: u32, class: u32) -> io::Result<()> {
        self.element(abi::MAP_UPDATE_ELEM, &interface, Some(&class))
    }

    /// From now on what comes by `interface` is of nobody.
    pub fn remove(&self, interface: u32) -> io::Result<()> {
        self.element(abi::MAP_DELETE_ELEM, &interface, None)
    }

    fn element(&self, command: libc::c_long, key: &u32, value: Option<&u32>) -> io::Result<()> {
        let element = abi::MapElement {
            map_fd: self.map.as_raw_fd() as u32,
            key: std::ptr::from_ref(key) as u64,
            // What a command has no use for must be zero.
            value: value.map_or(0, |value| std::ptr::from_ref(value) as u64),
            ..abi::MapElement::default()
        };
        call(command, &element).map(|_| ())
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

fn program(map: RawFd) -> [u64; 11] {
    /// `offsetof(struct __sk_buff, ingress_ifindex)`
    const INGRESS_IFINDEX: i16 = 36;
    const LOAD_WORD: u8 = 0x61;
    const STORE_WORD: u8 = 0x63;
    const LOAD_WIDE: u8 = 0x18;
    const MOVE: u8 = 0xbf;
    const ADD: u8 = 0x07;
    const CALL: u8 = 0x85;
    const JUMP_IF_ZERO: u8 = 0x15;
    const EXIT: u8 = 0x95;
    const MAP_LOOKUP_ELEM: i32 = 1;
    const IS_MAP: u8 = 0x10;
    [
        instruction(LOAD_WORD, 0x12, INGRESS_IFINDEX, 0), // r2 = skb->ingress_ifindex
        instruction(STORE_WORD, 0x2a, -4, 0),             // the key, on the stack
        instruction(LOAD_WIDE, IS_MAP | 1, 0, map),       // r1 = map
        0,
        instruction(MOVE, 0xa2, 0, 0), // r2 = &key
        instruction(ADD, 0x02, 0, -4),
        instruction(CALL, 0, 0, MAP_LOOKUP_ELEM),
        instruction(JUMP_IF_ZERO, 0, 2, 0), // none: 0 is "no class"
        instruction(LOAD_WORD, 0x00, 0, 0), // r0 = the class
        instruction(EXIT, 0, 0, 0),
        instruction(EXIT, 0, 0, 0),
    ]
}
