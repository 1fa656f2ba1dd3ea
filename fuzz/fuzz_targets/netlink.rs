//! Datagrams on netlink sockets, as answers to the bandwidth daemon and as notifications: none trips a parser.
#![no_main]

use laxity_bandwidth::linux::parse_all;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| parse_all(data));
