//! What a guest's QEMU asks of its disk, and what another host says of its own: whatever bytes come, a server of
//! disks ends, and nothing is written beyond a disk or for a guest that waits.
#![no_main]

use std::fs::OpenOptions;
use std::io::{self, Read, Write};
use std::os::unix::fs::OpenOptionsExt as _;
use std::sync::{Arc, LazyLock};

use laxity_protect::guest::disk::{Disk, Staged, compare};
use laxity_protect::guest::nbd::server::serve;
use libfuzzer_sys::fuzz_target;

const BYTES: u64 = 3 * 65_536;

/// A disk whose image has no name any more.
static DISKS: LazyLock<[Arc<Disk>; 1]> = LazyLock::new(|| {
    let path = std::env::temp_dir().join(format!("laxity-fuzz-disk-{}", std::process::id()));
    let mut options = OpenOptions::new();
    let options = options.write(true).create(true).truncate(true).mode(0o600);
    options.open(&path).unwrap().set_len(BYTES).unwrap();
    let disk = Disk::open(&path).unwrap();
    std::fs::remove_file(path).unwrap();
    [Arc::new(disk)]
});

/// A client that says these bytes, and hears nothing.
struct Client<'a>(&'a [u8]);

impl Read for Client<'_> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        self.0.read(into)
    }
}

impl Write for Client<'_> {
    fn write(&mut self, said: &[u8]) -> io::Result<usize> {
        Ok(said.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fuzz_target!(|data: &[u8]| {
    let (first, rest) = data.split_first().unwrap_or((&0, data));
    let disk = &DISKS[0];
    let runs = first & 1 != 0;
    disk.may_write(runs);
    let before = disk.left_bytes();
    let _ = serve(&mut Client(rest), disk);
    assert!(
        runs || disk.left_bytes() == before,
        "a guest that waits has written"
    );
    let _ = compare(&DISKS[..], rest);
    let mut staged = Staged::default();
    if staged.add(rest, &DISKS[..]).is_ok() {
        staged.apply(&DISKS[..]).unwrap();
    }
    let mut end = [0; 1];
    assert!(disk.read(BYTES, &mut end).is_err(), "the image has grown");
    disk.forget();
});
