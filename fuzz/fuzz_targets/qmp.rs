//! QEMU's machine protocol from a QEMU that a guest has taken over: whatever lines come, each is an answer, an event or
//! an error, and no call waits for more than has been sent.
//!
//! An even first octet puts a valid greeting before the rest.
#![no_main]

use std::io::Write as _;
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::time::Duration;

use laxity_protect::guest::qmp::Qmp;
use libfuzzer_sys::fuzz_target;
use serde_json::json;

const GREETING: &[u8] = b"{\"QMP\":{\"version\":{\"qemu\":{\"micro\":22,\"minor\":2,\"major\":7}}}}\r\n{\"return\":{},\"id\":1}\n";
/// Limit of the input, so that a socket's buffer takes all of it at once.
const BYTES_MAX: usize = 64 << 10;

fuzz_target!(|data: &[u8]| {
    let (first, rest) = data.split_first().unwrap_or((&0, data));
    let (ours, mut theirs) = UnixStream::pair().expect("the system has sockets");
    if first % 2 == 0 {
        theirs.write_all(GREETING).expect("it fits");
    }
    theirs
        .write_all(&rest[..rest.len().min(BYTES_MAX)])
        .expect("it fits");
    theirs.shutdown(Shutdown::Write).expect("it is open");
    let Ok(mut qemu) = Qmp::greet(ours, Duration::from_secs(60)) else {
        return;
    };
    let _ = qemu.execute("query-status", json!({}));
    while let Ok(Some(event)) = qemu.event(Duration::from_secs(60)) {
        assert!(rest.len() >= event.name.len());
    }
    let _ = qemu.execute("query-migrate", json!({ "argument": 1 }));
});
