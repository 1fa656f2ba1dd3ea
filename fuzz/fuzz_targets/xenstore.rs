//! Answers of a xenstored: each is a value or an error, and values stay within the protocol's limit.
#![no_main]

use std::io::{self, Cursor, Read, Write};

use laxity_bandwidth::xen::Store;
use libfuzzer_sys::fuzz_target;

/// Answers with the input, whatever is asked.
struct Peer(Cursor<Vec<u8>>);

impl Read for Peer {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.0.read(buffer)
    }
}

impl Write for Peer {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fuzz_target!(|data: &[u8]| {
    let mut store = Store::over(Peer(Cursor::new(data.to_vec())));
    if let Ok(Some(value)) = store.read("backend/vif/3/0/rate") {
        assert!(value.len() <= 3 * data.len());
    }
    let _ = store.write("backend/vif/3/0/rate", "1500000,20000");
    let _ = store.remove("backend/vif/3/0/rate");
});
