//! A run of ten times the length takes no more memory, by what it allocates: neither the machine nor the allocator
//! matters.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

struct Counting;

static NOW: AtomicUsize = AtomicUsize::new(0);
static MOST: AtomicUsize = AtomicUsize::new(0);

// SAFETY: it only counts what the system's allocator does.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let now = NOW.fetch_add(layout.size(), Ordering::Relaxed) + layout.size();
        MOST.fetch_max(now, Ordering::Relaxed);
        // SAFETY: as the caller promises.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        NOW.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: as the caller promises.
        unsafe { System.dealloc(block, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// The most bytes that the run had at a time, its result included, and its jobs and packets.
fn bytes_of_run(text: &str, duration: &str) -> (usize, u64) {
    // Tests of one process run at the same time, and would count each other's.
    static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
    let _guard = ONE_AT_A_TIME.lock();
    let duration = format!("duration={duration}");
    let host = laxity_host::load(text, "host.toml", &[duration]).expect("it is right");
    let before = NOW.load(Ordering::Relaxed);
    MOST.store(before, Ordering::Relaxed);
    let (outcome, _) = laxity_sim::run(&host, laxity_trace::Off).expect("the policy takes it");
    let bytes = MOST.load(Ordering::Relaxed) - before;
    let jobs: u64 = outcome
        .result
        .domains
        .iter()
        .map(|domain| domain.jobs)
        .sum();
    let calls = outcome
        .result
        .telephony
        .map_or(0, |found| found.voice.streams);
    (bytes, jobs + calls)
}

#[test]
fn jobs_take_no_memory() {
    let host = r#"
        [host]
        cpus = 1
        policy = "deferrable"
        [[domain]]
        name = "control"
        budget = "40 us"
        period = "50 us"
        tasks = [
            { name = "short", cost = "1 us", period = "10 us" },
            { name = "late", cost = "30 us", period = "100 us", deadline = "60 us" },
        ]
    "#;
    let (once, jobs) = bytes_of_run(host, "11 s");
    let (ten_times, ten_times_jobs) = bytes_of_run(host, "110 s");
    assert!(
        jobs > 1 << 20 && ten_times_jobs >= 10 * jobs,
        "{jobs}, {ten_times_jobs} jobs"
    );
    assert!(
        ten_times <= once,
        "{once} bytes, and {ten_times} for ten times as long"
    );
}

#[test]
fn calls_take_no_memory_beside_streams_that_stay() {
    let host = r#"
        [host]
        cpus = 1
        policy = "credit"
        [[domain]]
        name = "media"
        workload = { kind = "media-server" }
        [[nic]]
        name = "eth0"
        rate = "1 Gbit/s"
        domain = "media"
        [calls]
        media-server = "media"
        streams = 1
        sample = 1000
        rate = "100 /s"
        hold = "20 ms"
    "#;
    let (once, calls) = bytes_of_run(host, "5 s");
    let (ten_times, ten_times_calls) = bytes_of_run(host, "50 s");
    assert!(
        calls >= 500 && ten_times_calls >= 10 * calls,
        "{calls}, {ten_times_calls} calls"
    );
    assert!(
        // Packets of streams that are kept for their voice quality grow up to a limit.
        ten_times < once + 100_000,
        "{once} bytes, and {ten_times} for ten times as long"
    );
}
