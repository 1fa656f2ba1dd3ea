//! The pause of a real guest for a checkpoint, and the times of its steps: with the tracker and by
//! comparison, for guests of two sizes that write to some pages all the time, and for a large one that
//! writes to many. `make protect-guest` builds the guest. Epochs follow each other on one guest, and
//! their spread matters.

use std::fs;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use laxity_protect::guest::patches::Writer;
use laxity_protect::guest::{
    Accelerator, Bus, Captured, Changes, Fingerprints, Format, Kind, PAGE_BYTES, Page, Patrol,
    Qemu, Specification, compare,
};

const EPOCHS: u32 = 400;
const INTERVAL: Duration = Duration::from_millis(25);

/// Guests that differ in nothing but the kind of machine, the size and the way to find changes.
struct Load {
    name: &'static str,
    vcpus: u32,
    /// Number of pages that the guest writes to every 10 ms.
    dirty_pages: u32,
    kinds: &'static [Kind],
    memories_mib: &'static [u64],
    changes: &'static [Changes],
}

const LOADS: [Load; 2] = [
    Load {
        name: "small",
        vcpus: 1,
        dirty_pages: 64,
        kinds: &[Kind::Pc, Kind::Microvm],
        memories_mib: &[128, 512],
        changes: &[Changes::Tracker, Changes::Comparison],
    },
    // A comparison of so much memory takes longer than an epoch.
    Load {
        name: "large",
        vcpus: 4,
        dirty_pages: 5000,
        kinds: &[Kind::Pc],
        memories_mib: &[1024],
        changes: &[Changes::Tracker],
    },
];

fn main() {
    let built = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/protect");
    if !built.join("counter.cpio").exists() {
        eprintln!("SKIPPED: the guest is not built: make protect-guest");
        return;
    }
    // Cargo passes options of its own.
    let named: Vec<String> = std::env::args()
        .skip(1)
        .filter(|word| !word.starts_with('-'))
        .collect();
    let is_wanted = |load: &&Load| named.is_empty() || named.iter().any(|name| name == load.name);
    let accelerator = match std::env::var("LAXITY_ACCELERATOR").as_deref() {
        Ok("kvm") => Accelerator::Kvm,
        _ => Accelerator::Tcg,
    };
    for load in LOADS.iter().filter(is_wanted) {
        look_alone();
        println!(
            "{EPOCHS} epochs of {} ms; VCPUs: {}; pages written every 10 ms: {}; medians in ms, and of the pause the \
             99th percentile",
            INTERVAL.as_millis(),
            load.vcpus,
            load.dirty_pages
        );
        println!(
            "{:8} {:>6} {:11} {:>6} | {:>6} {:>6} | {:>7} {:>6} {:>6} {:>6} | {:>6} {:>7} {:>6}",
            "machine",
            "MiB",
            "changes",
            "before",
            "pause",
            "p99",
            "devices",
            "find",
            "copy",
            "resume",
            "pages",
            "KiB",
            "encode"
        );
        for &kind in load.kinds {
            for &mib in load.memories_mib {
                for &changes in load.changes {
                    let guest = Specification {
                        name: "bench".into(),
                        number: 0,
                        program: "qemu-system-x86_64".into(),
                        kind,
                        accelerator,
                        cpu: None,
                        vcpus: load.vcpus,
                        memory_bytes: mib << 20,
                        kernel: Some(built.join("kernel")),
                        initrd: Some(built.join("counter.cpio")),
                        append: append(load.dirty_pages),
                        disks: Vec::new(),
                        volumes: Vec::new(),
                        bus: Bus::VirtioBlk,
                        format: Format::Raw,
                        mac: [0x52, 0x54, 0, 0, 0, 1],
                        console: Some(directory().join("console")),
                        arguments: Vec::new(),
                        changes,
                    };
                    measure(&guest, mib);
                }
            }
        }
    }
}

/// Time to find changed pages without a guest where the kernel does not track them: by
/// fingerprints, and in turn by the full comparison that checks them.
fn look_alone() {
    const PAGES: usize = (256 << 20) / PAGE_BYTES;
    let before: Vec<Page> = vec![[1; PAGE_BYTES]; PAGES];
    let mut now = before.clone();
    let mut fingerprints = Fingerprints::new(PAGES);
    fingerprints.take(&now, &mut Vec::new());
    let mut changed = Vec::new();
    let mut best_s = [f64::INFINITY; 2];
    for round in 1..=5 {
        now[PAGES / 2][17] = 1 + round;
        for (way, best_s) in best_s.iter_mut().enumerate() {
            changed.clear();
            let begun = Instant::now();
            match way {
                0 => fingerprints.take(&now, &mut changed),
                _ => compare(&now, &before, &mut changed),
            }
            *best_s = best_s.min(begun.elapsed().as_secs_f64());
            assert_eq!(changed, [PAGES as u32 / 2]);
        }
    }
    let [fingerprints, comparison] =
        best_s.map(|best_s| (PAGES * PAGE_BYTES) as f64 / best_s / 1e9);
    println!(
        "alone: fingerprints {fingerprints:.1} GB/s of guest memory, comparison {comparison:.1}: {:.2} times as fast",
        fingerprints / comparison
    );
}

fn directory() -> PathBuf {
    Path::new("/dev/shm").join(format!("laxity-protect-bench-{}", std::process::id()))
}

/// Arguments of the guest's kernel. It can calibrate the emulated microvm's clock only on an idle
/// host, and waits forever otherwise: it is told the host's value.
fn append(dirty_pages: u32) -> String {
    let said = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let mhz = said.lines().find(|line| line.starts_with("cpu MHz"));
    let mhz: Option<f64> = mhz
        .and_then(|line| line.split(':').nth(1))
        .and_then(|mhz| mhz.trim().parse().ok());
    let clock = mhz.map_or_else(String::new, |mhz| {
        format!(" tsc_early_khz={:.0}", 1e3 * mhz)
    });
    format!("quiet console=ttyS0 no_timer_check dirty={dirty_pages}{clock}")
}

/// Waits until the guest has booted, because a booting guest writes to other pages.
fn wait_until_it_works(guest: &Specification) {
    const PATIENCE: Duration = Duration::from_secs(120);
    let console = guest.console.as_ref().expect("it has one");
    let begun = Instant::now();
    loop {
        let said = fs::read(console).unwrap_or_default();
        let said = String::from_utf8_lossy(&said);
        if said.contains("counter: ready") {
            return;
        }
        assert!(begun.elapsed() < PATIENCE, "it does not come up:\n{said}");
        thread::sleep(Duration::from_millis(50));
    }
}

fn measure(guest: &Specification, mib: u64) {
    fs::create_dir_all(directory()).expect("there is room");
    // QEMU is handed the open file.
    fs::write(guest.console.as_ref().expect("it has one"), "").expect("there is room");
    let (mut qemu, mut network) = Qemu::start(guest, &[], false).expect("QEMU starts");
    // The guest's output is dropped.
    thread::spawn(move || {
        let mut some = [0; 4096];
        while network.read(&mut some).is_ok_and(|count| count > 0) {}
    });
    wait_until_it_works(guest);
    let mut writer = Writer::new(qemu.pages());
    let mut captured = Captured::default();
    let mut patrol = Patrol::default();
    let histogram =
        || Histogram::<u64>::new_with_max(60_000_000_000, 3).expect("these bounds can be had");
    let mut times: [Histogram<u64>; 9] = [(); 9].map(|()| histogram());
    for epoch in 0..=EPOCHS {
        let begun = Instant::now();
        let is_first = epoch == 0;
        let pages = writer.copy().len();
        let compared = match is_first || epoch == EPOCHS {
            true => 0..pages,
            false => patrol.take(pages, INTERVAL),
        };
        qemu.capture(&mut captured, writer.copy(), compared, || {})
            .expect("it is captured");
        let encoding = Instant::now();
        let mut batch = Vec::new();
        for (&page, contents) in captured.changed.iter().zip(&captured.contents) {
            writer.change(page, contents, &mut batch);
        }
        if !is_first {
            assert_eq!(captured.missed, 0, "the tracker missed pages");
            let timing = captured.timing;
            let all = [
                timing.before_ns,
                timing.pause_ns,
                timing.device_state_ns,
                timing.find_ns,
                timing.copy_ns,
                timing.resume_ns,
                captured.changed.len() as u64,
                (batch.len() + captured.device_state.len()) as u64 / 1024,
                encoding.elapsed().as_nanos() as u64,
            ];
            for (histogram, value) in times.iter_mut().zip(all) {
                histogram.saturating_record(value);
            }
        }
        thread::sleep(INTERVAL.saturating_sub(begun.elapsed()));
    }
    let ms = |at: usize| times[at].value_at_quantile(0.5) as f64 / 1e6;
    println!(
        "{:8} {mib:6} {:11} {:6.2} | {:6.2} {:6.2} | {:7.2} {:6.2} {:6.2} {:6.2} | {:6} {:7} {:6.2}",
        format!("{:?}", guest.kind).to_lowercase(),
        format!("{:?}", guest.changes).to_lowercase(),
        ms(0),
        ms(1),
        times[1].value_at_quantile(0.99) as f64 / 1e6,
        ms(2),
        ms(3),
        ms(4),
        ms(5),
        times[6].value_at_quantile(0.5),
        times[7].value_at_quantile(0.5),
        ms(8),
    );
    drop(qemu);
    let _ = fs::remove_dir_all(directory());
}
