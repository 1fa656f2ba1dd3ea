//! Finds the pages of a guest's memory that have changed since the last look.
//!
//! The kernel knows, if QEMU runs with the write tracker (`tracker.c`): [`Tracker`]. Where it does not, memory is held
//! against [`Fingerprints`] of what it was. To check either, memory is compared with a copy, byte by byte: [`check`],
//! a few pages in each pause, as [`Patrol`] has it.

use std::fs::{self, File};
use std::hash::{BuildHasher as _, RandomState};
use std::io;
use std::mem::MaybeUninit;
use std::num::NonZero;
use std::ops::Range;
use std::os::fd::AsRawFd as _;
use std::thread;
use std::time::Duration;

use twox_hash::XxHash3_128;

use super::memory::{Memory, PAGE_BYTES, Page};

/// Number of pages to look at below which starting a thread does not pay.
const SHARE_PAGES_MIN: usize = 4096;
/// The same for pages to copy, which lie apart and are in no cache.
const COPIED_PAGES_MIN: usize = 512;

/// Pages of one thread's share, which are at least `least`. One CPU cannot use the whole bandwidth
/// of the memory, and the CPUs of a paused guest are idle.
fn share(pages: usize, least: usize) -> usize {
    let cpus = thread::available_parallelism().map_or(1, NonZero::get);
    pages.div_ceil(cpus).max(least)
}

fn share_pages(pages: usize) -> usize {
    share(pages, SHARE_PAGES_MIN)
}

/// Makes `contents` those of the pages that have changed.
pub fn gather(now: &[Page], changed: &[u32], contents: &mut Vec<Page>) {
    gather_in_shares(
        share(changed.len(), COPIED_PAGES_MIN),
        now,
        changed,
        contents,
    );
}

fn gather_in_shares(share: usize, now: &[Page], changed: &[u32], contents: &mut Vec<Page>) {
    contents.clear();
    contents.reserve(changed.len());
    let room = &mut contents.spare_capacity_mut()[..changed.len()];
    let copy = |(changed, room): (&[u32], &mut [MaybeUninit<Page>])| {
        for (&page, room) in changed.iter().zip(room) {
            room.write(now[page as usize]);
        }
    };
    let mut shares = changed.chunks(share).zip(room.chunks_mut(share));
    let first = shares.next();
    thread::scope(|scope| {
        for share in shares {
            scope.spawn(move || copy(share));
        }
        first.map(copy);
    });
    // SAFETY: there is room for so many, and each share has written all of its own; a thread that
    // panics makes the scope panic.
    unsafe { contents.set_len(changed.len()) };
}

/// Appends the pages whose contents differ between two memories of the same size, in order.
///
/// The comparison of a page is the C library's `memcmp`, which has a version for each kind of vector unit.
pub fn compare(now: &[Page], before: &[Page], changed: &mut Vec<u32>) {
    compare_in_shares(share_pages(now.len()), now, before, changed);
}

fn compare_in_shares(share_pages: usize, now: &[Page], before: &[Page], changed: &mut Vec<u32>) {
    assert_eq!(now.len(), before.len());
    let shares = now.chunks(share_pages).zip(before.chunks(share_pages));
    in_shares(shares, share_pages, changed, |(now, before), at| {
        now[at] != before[at]
    });
}

/// Corrects `changed`, pages that something else has found, by a comparison of the pages in `range`. Returns how many
/// of those that differ it had not found.
pub fn check(now: &[Page], before: &[Page], range: Range<usize>, changed: &mut Vec<u32>) -> usize {
    let first = range.start;
    let below = |limit: usize| changed.partition_point(|&page| (page as usize) < limit);
    let found = below(first)..below(range.end);
    let mut differing = Vec::new();
    compare(&now[range.clone()], &before[range], &mut differing);
    for page in &mut differing {
        *page += first as u32;
    }
    let is_missed = |page: &&u32| changed[found.clone()].binary_search(page).is_err();
    let missed = differing.iter().filter(is_missed).count();
    changed.splice(found, differing);
    missed
}

/// Time in which each page is compared once.
const PATROL: Duration = Duration::from_secs(60);

/// Chooses the pages that are compared next.
///
/// A guest stands still meanwhile, so that no pause has more than what came due since the last one.
#[derive(Debug, Default)]
pub struct Patrol {
    next: usize,
}

impl Patrol {
    /// The pages to compare so long after the last time, so that each page's turn comes once a minute: of `pages`, in
    /// order and in circles. At most those of a second, however long ago that was.
    pub fn take(&mut self, pages: usize, since: Duration) -> Range<usize> {
        let since = since.min(Duration::from_secs(1));
        let due = pages as f64 * since.as_secs_f64() / PATROL.as_secs_f64();
        let due = due.ceil() as usize;
        let first = if self.next < pages { self.next } else { 0 };
        self.next = pages.min(first + due);
        first..self.next
    }
}

/// The fingerprint of each page of a memory at the last look, of 128 bits (XXH3).
///
/// Looking reads the memory alone, where a comparison reads the copy as well, and both are limited
/// by what the memory gives. Two contents have the same fingerprint with a probability of 2 to the
/// power of -128, unless somebody makes them for that who knows the seed, which is drawn anew each
/// time: a guest could deceive only itself.
#[derive(Debug)]
pub struct Fingerprints {
    seed: u64,
    of: Vec<u128>,
}

impl Fingerprints {
    /// The fingerprints of a memory of `pages` zero pages.
    pub fn new(pages: usize) -> Fingerprints {
        // The standard library draws its keys from the system's random source.
        let seed = RandomState::new().hash_one(0);
        let zero = XxHash3_128::oneshot_with_seed(seed, &[0; PAGE_BYTES]);
        Fingerprints {
            seed,
            of: vec![zero; pages],
        }
    }

    /// Appends the pages that have changed since the last call, in order.
    ///
    /// # Panics
    ///
    /// If the memory is of another size.
    pub fn take(&mut self, now: &[Page], changed: &mut Vec<u32>) {
        self.take_in_shares(share_pages(now.len()), now, changed);
    }

    fn take_in_shares(&mut self, share_pages: usize, now: &[Page], changed: &mut Vec<u32>) {
        assert_eq!(now.len(), self.of.len());
        let seed = self.seed;
        let shares = now.chunks(share_pages).zip(self.of.chunks_mut(share_pages));
        in_shares(shares, share_pages, changed, |(now, before), at| {
            let fingerprint = XxHash3_128::oneshot_with_seed(seed, &now[at]);
            std::mem::replace(&mut before[at], fingerprint) != fingerprint
        });
    }
}

/// Appends the pages for which `differ` is true, in order; each share of pages is processed by a
/// thread.
fn in_shares<'p, Before: Send>(
    shares: impl Iterator<Item = (&'p [Page], Before)>,
    share_pages: usize,
    changed: &mut Vec<u32>,
    differ: impl Fn(&mut (&'p [Page], Before), usize) -> bool + Send + Copy,
) {
    let look = move |(number, mut share): (usize, (&'p [Page], Before))| {
        let pages = (0..share.0.len()).filter(|&at| differ(&mut share, at));
        let pages = pages.map(|at| (number * share_pages + at) as u32);
        pages.collect::<Vec<u32>>()
    };
    let mut shares = shares.enumerate();
    let first = shares.next();
    thread::scope(|scope| {
        let others: Vec<_> = shares
            .map(|share| scope.spawn(move || look(share)))
            .collect();
        changed.extend(first.map_or_else(Vec::new, look));
        for other in others {
            changed.extend(other.join().expect("looking does not fail"));
        }
    });
}

/// The kernel's record of written pages in QEMU's mapping of a file.
#[derive(Debug)]
pub struct Tracker {
    pagemap: File,
    start: u64,
    end: u64,
    regions: Vec<Region>,
}

/// `struct page_region` of linux/fs.h.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
struct Region {
    start: u64,
    end: u64,
    categories: u64,
}

/// `struct pm_scan_arg` of linux/fs.h.
#[repr(C)]
#[derive(Debug, Default)]
struct Scan {
    size: u64,
    flags: u64,
    start: u64,
    end: u64,
    walk_end: u64,
    regions: u64,
    regions_length: u64,
    pages_max: u64,
    inverted: u64,
    mask: u64,
    any_of: u64,
    returned: u64,
}

/// Protects matching pages again, and refuses a range that is not registered for it.
const WRITE_PROTECT_MATCHING: u64 = 1 << 0;
const CHECK_REGISTERED: u64 = 1 << 1;
const WRITTEN: u64 = 1 << 1;

// SAFETY of its callers: the argument is a `struct pm_scan_arg`, and what it points to outlives the call.
nix::ioctl_readwrite!(pagemap_scan, b'f', 16, Scan);

impl Tracker {
    /// Finds the process's mapping of a guest's memory, and starts tracking; all pages
    /// written before count as written now.
    ///
    /// # Errors
    ///
    /// In words for people, if the process does not map all of it once and in one piece, or the kernel does not note
    /// writes to it: it may be older than Linux 6.7, or this process may not look.
    pub fn open(process: u32, memory: &Memory) -> Result<Tracker, String> {
        let told = |error: io::Error| format!("process {process} cannot be inspected: {error}");
        let maps = fs::read_to_string(format!("/proc/{process}/maps")).map_err(told)?;
        let bytes = (memory.len() * PAGE_BYTES) as u64;
        let (start, end) = mapping_of(&maps, memory.inode(), bytes)
            .ok_or_else(|| format!("process {process} does not map the guest's memory"))?;
        let pagemap = File::open(format!("/proc/{process}/pagemap")).map_err(told)?;
        let mut tracker = Tracker {
            pagemap,
            start,
            end,
            // Room for every second page of 4 MiB; a scan continues where it had to stop.
            regions: vec![Region::default(); 512],
        };
        let mut ignored = Vec::new();
        tracker.take(&mut ignored).map_err(|error| {
            format!(
                "the kernel cannot track writes to the guest's memory: {error} (Linux 6.7 or newer can)"
            )
        })?;
        Ok(tracker)
    }

    /// Appends the pages that were written since the last call, in order.
    ///
    /// The guest must not run: devices may write to memory in a way that is noted late.
    ///
    /// # Errors
    ///
    /// If the process has gone.
    pub fn take(&mut self, changed: &mut Vec<u32>) -> io::Result<()> {
        let mut from = self.start;
        while from < self.end {
            let mut scan = Scan {
                size: size_of::<Scan>() as u64,
                flags: WRITE_PROTECT_MATCHING | CHECK_REGISTERED,
                start: from,
                end: self.end,
                regions: self.regions.as_mut_ptr() as u64,
                regions_length: self.regions.len() as u64,
                mask: WRITTEN,
                returned: WRITTEN,
                ..Scan::default()
            };
            // SAFETY: `scan` is what this ioctl takes; `regions` has room for as many as it says, and both outlive
            // the call.
            let found = unsafe { pagemap_scan(self.pagemap.as_raw_fd(), &raw mut scan) }?;
            for region in &self.regions[..found as usize] {
                let page = |address: u64| ((address - self.start) / PAGE_BYTES as u64) as u32;
                changed.extend(page(region.start)..page(region.end));
            }
            if scan.walk_end <= from {
                return Err(io::Error::other("the kernel's scan makes no progress"));
            }
            from = scan.walk_end;
        }
        Ok(())
    }
}

/// The address range at which a process maps a file of `bytes` bytes, from its /proc/PID/maps. The
/// kernel may show a mapping in pieces.
fn mapping_of(maps: &str, inode: u64, bytes: u64) -> Option<(u64, u64)> {
    let mut found: Option<(u64, u64)> = None;
    for line in maps.lines() {
        let mut words = line.split_ascii_whitespace();
        let (range, inode_word) = (words.next()?, words.nth(3)?);
        if inode_word.parse() != Ok(inode) {
            continue;
        }
        let (start, end) = range.split_once('-')?;
        let (start, end) = (
            u64::from_str_radix(start, 16).ok()?,
            u64::from_str_radix(end, 16).ok()?,
        );
        found = match found {
            None => Some((start, end)),
            Some((first, last)) if last == start => Some((first, end)),
            // Two mappings of the file cannot be QEMU's memory.
            Some(_) => return None,
        };
    }
    // A QEMU that was taken over can map the file twice, one behind the other.
    found.filter(|(start, end)| end - start == bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand_core::{RngCore as _, SeedableRng as _};

    #[test]
    fn a_mapping_in_pieces_is_one() {
        let maps = "55d0-55d1 r--p 00000000 00:01 7    /usr/bin/qemu\n\
                    7f00a000-7f00c000 rw-s 00000000 00:19 42    /dev/shm/memory\n\
                    7f00c000-7f00d000 rw-s 00002000 00:19 42    /dev/shm/memory\n\
                    7ffd0000-7ffd1000 rw-p 00000000 00:00 0     [stack]\n";
        assert_eq!(
            mapping_of(maps, 42, 0x3000),
            Some((0x7f00_a000, 0x7f00_d000))
        );
        assert_eq!(mapping_of(maps, 43, 0x3000), None);
        let twice = format!("{maps}7fff0000-7fff1000 rw-s 00000000 00:19 42 /dev/shm/memory\n");
        assert_eq!(mapping_of(&twice, 42, 0x3000), None);
        assert_eq!(mapping_of(maps, 42, 0x2000), None, "one more page follows");
    }

    /// Compares two pages byte by byte.
    fn differ_naively(a: &Page, b: &Page) -> bool {
        let mut differ = false;
        for at in 0..PAGE_BYTES {
            differ |= a[at] ^ b[at] != 0;
        }
        differ
    }

    #[test]
    fn no_difference_is_missed() {
        for seed in 0..200 {
            let mut random = rand_pcg::Pcg64Mcg::seed_from_u64(seed);
            let mut before = vec![[0; PAGE_BYTES]; 64];
            for page in &mut before {
                if random.next_u32() % 2 == 0 {
                    random.fill_bytes(page);
                }
            }
            let mut now = before.clone();
            for _ in 0..random.next_u32() % 40 {
                let page = random.next_u32() as usize % now.len();
                now[page][random.next_u32() as usize % PAGE_BYTES] ^= 1 << (random.next_u32() % 8);
            }
            let naive = (0..64).filter(|&page| differ_naively(&now[page], &before[page]));
            let naive: Vec<u32> = naive.map(|page| page as u32).collect();
            let mut found = Vec::new();
            compare(&now, &before, &mut found);
            assert_eq!(found, naive, "seed {seed}");
            found.clear();
            let share_pages = 1 + random.next_u32() as usize % 80;
            compare_in_shares(share_pages, &now, &before, &mut found);
            assert_eq!(found, naive, "seed {seed}, in shares of {share_pages}");
            let mut fingerprints = Fingerprints::new(before.len());
            fingerprints.take(&before, &mut Vec::new());
            found.clear();
            fingerprints.take_in_shares(share_pages, &now, &mut found);
            assert_eq!(found, naive, "seed {seed}, by fingerprints");
            found.clear();
            fingerprints.take(&now, &mut found);
            assert_eq!(found, [0; 0], "seed {seed}: they are what they were");
        }
    }

    #[test]
    fn a_check_finds_what_was_missed_in_its_range() {
        for seed in 0..500 {
            let mut random = rand_pcg::Pcg64Mcg::seed_from_u64(seed);
            let mut draw = |below: usize| random.next_u32() as usize % below;
            let before = vec![[0; PAGE_BYTES]; 40];
            let mut now = before.clone();
            let mut differs = [false; 40];
            let mut noted = [false; 40];
            for _ in 0..draw(40) {
                let page = draw(40);
                now[page][draw(PAGE_BYTES)] = 1;
                differs[page] = true;
                noted[page] = draw(4) > 0;
            }
            // A page that was written may have the same contents again.
            noted[draw(40)] = true;
            let first = draw(41);
            let range = first..first + draw(41 - first);
            let mut changed: Vec<u32> = (0..40).filter(|&page| noted[page as usize]).collect();
            let missed = check(&now, &before, range.clone(), &mut changed);
            let is_right = |page: usize| match range.contains(&page) {
                true => differs[page],
                false => noted[page],
            };
            let right: Vec<u32> = (0..40).filter(|&page| is_right(page as usize)).collect();
            assert_eq!(changed, right, "seed {seed}");
            let of_them = range.filter(|&page| differs[page] && !noted[page]);
            assert_eq!(missed, of_them.count(), "seed {seed}");
        }
    }

    #[test]
    fn a_patrol_comes_by_everywhere_in_time() {
        for (pages, pause_ms) in [(24_576, 25), (131_072, 25), (262_144, 400), (7, 10)] {
            let since = Duration::from_millis(pause_ms);
            let mut patrol = Patrol::default();
            let mut seen = vec![false; pages];
            let rounds = 60_000 / pause_ms + 1;
            for _ in 0..rounds {
                let range = patrol.take(pages, since);
                let most = pages * pause_ms as usize / 60_000 + 1;
                assert!((1..=most).contains(&range.len()), "{range:?} of {pages}");
                seen[range].fill(true);
            }
            assert!(seen.iter().all(|&seen| seen), "{pages} pages");
        }
        let mut patrol = Patrol::default();
        let late = patrol.take(6_000, Duration::from_secs(600));
        assert_eq!(
            late,
            0..100,
            "no pause is long because the last one is long ago"
        );
        assert_eq!(patrol.take(50, PATROL), 0..1, "another memory");
    }

    #[test]
    fn what_is_gathered_in_shares_is_what_one_gathers() {
        let now: Vec<Page> = (0..64).map(|page| [page; PAGE_BYTES]).collect();
        let mut contents = vec![[255; PAGE_BYTES]; 3];
        for seed in 0..200 {
            let mut random = rand_pcg::Pcg64Mcg::seed_from_u64(seed);
            let changed: Vec<u32> = (0..64).filter(|_| random.next_u32() % 3 == 0).collect();
            let share = 1 + random.next_u32() as usize % 70;
            gather_in_shares(share, &now, &changed, &mut contents);
            let expected: Vec<Page> = changed.iter().map(|&page| now[page as usize]).collect();
            assert!(contents == expected, "seed {seed}, shares of {share}");
        }
        gather(&now, &[], &mut contents);
        assert!(contents.is_empty());
    }

    #[test]
    fn what_was_never_looked_at_was_zero() {
        let mut pages = vec![[0; PAGE_BYTES]; 9];
        pages[5][4_000] = 1;
        let mut found = Vec::new();
        Fingerprints::new(9).take(&pages, &mut found);
        assert_eq!(found, [5]);
    }
}
