//! The write tracker on another process that maps a file and writes to it like QEMU: the kernel's
//! records are compared with the actual writes. The other process is this program again, with the
//! tracker preloaded.
//!
//! The other process is this program again, with the tracker preloaded.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{BufRead as _, BufReader, Write as _};
use std::num::NonZeroUsize;
use std::os::fd::AsRawFd as _;
use std::path::Path;
use std::process::{Command, Stdio};

use laxity_protect::guest::{Memory, PAGE_BYTES, TRACKER, Tracker, compare};
use nix::sys::mman::{MapFlags, ProtFlags, mmap};
use rand_core::{RngCore as _, SeedableRng as _};

const PAGES: usize = 3000;
const CHILD: &str = "LAXITY_TRACKED_CHILD";

/// Writes to each page whose number arrives, one a line; an empty line asks for an answer.
fn write_as_told(path: &Path) {
    let file = File::options().read(true).write(true).open(path).unwrap();
    let length = NonZeroUsize::new(PAGES * PAGE_BYTES).unwrap();
    // SAFETY: a new mapping of a file of this length.
    let start = unsafe {
        mmap(
            None,
            length,
            ProtFlags::PROT_READ | ProtFlags::PROT_WRITE,
            MapFlags::MAP_SHARED,
            &file,
            0,
        )
    };
    let start = start.unwrap().cast::<u8>();
    println!("\nready");
    for line in std::io::stdin().lines().map_while(Result::ok) {
        if line.is_empty() {
            println!("written");
        } else {
            let page: usize = line.parse().unwrap();
            assert!(page < PAGES);
            // SAFETY: so many pages are mapped, and nobody else in this process knows of them.
            unsafe {
                let byte = start.add(page * PAGE_BYTES + page % PAGE_BYTES);
                byte.write_volatile(byte.read_volatile().wrapping_add(1));
            }
        }
    }
}

#[test]
fn every_write_is_noted() {
    let directory = Path::new("/dev/shm").join(format!("laxity-tracker-{}", std::process::id()));
    if let Some(path) = std::env::var_os(CHILD) {
        return write_as_told(Path::new(&path));
    }
    fs::create_dir_all(&directory).unwrap();
    let library = directory.join("tracker.so");
    fs::write(&library, TRACKER).unwrap();
    let (memory, file) = Memory::create((PAGES * PAGE_BYTES) as u64, None).unwrap();
    let path = format!("/proc/{}/fd/{}", std::process::id(), file.as_raw_fd());
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["every_write_is_noted", "--exact", "--nocapture"])
        .env("LD_PRELOAD", &library)
        .env("LAXITY_GUEST_MEMORY", &path)
        .env(CHILD, &path)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut orders = child.stdin.take().unwrap();
    let mut answers = BufReader::new(child.stdout.take().unwrap())
        .lines()
        .map_while(Result::ok);
    assert!(answers.any(|line| line == "ready"));
    match Tracker::open(child.id(), &memory) {
        Ok(mut tracker) => {
            for seed in 0..60 {
                let mut random = rand_pcg::Pcg64Mcg::seed_from_u64(seed);
                // SAFETY: the child writes when it is told to.
                let before = unsafe { memory.pages() }.to_vec();
                let mut expected = BTreeSet::new();
                let mut order = String::new();
                let writes = [0, 1, 20, 2 * PAGES][random.next_u32() as usize % 4];
                for _ in 0..writes {
                    let page = random.next_u32() % PAGES as u32;
                    expected.insert(page);
                    order += &format!("{page}\n");
                }
                orders.write_all((order + "\n").as_bytes()).unwrap();
                assert!(answers.any(|line| line == "written"));
                let mut noted = Vec::new();
                tracker.take(&mut noted).unwrap();
                assert!(noted.is_sorted());
                let missed = expected
                    .iter()
                    .filter(|page| noted.binary_search(page).is_err());
                assert_eq!(missed.count(), 0, "seed {seed}");
                let mut differ = Vec::new();
                // SAFETY: as above.
                compare(unsafe { memory.pages() }, &before, &mut differ);
                assert!(
                    differ.iter().all(|page| expected.contains(page)),
                    "seed {seed}"
                );
                assert!(
                    noted.len() <= expected.len() + 1,
                    "seed {seed}: {} of {}",
                    noted.len(),
                    expected.len()
                );
                let mut again = Vec::new();
                tracker.take(&mut again).unwrap();
                assert_eq!(again, [0; 0], "seed {seed}: nothing was written since");
            }
        }
        Err(reason) => eprintln!("SKIPPED: {reason}"),
    }
    drop(orders);
    child.wait().unwrap();
    fs::remove_dir_all(&directory).unwrap();
}
