//! The format in which changed pages travel to the standby.
//!
//! A batch is a sequence of patches, each a kind, a page's number (32 bits, little endian) and what the kind needs:
//!
//! | kind | what follows | what becomes of the page |
//! |---|---|---|
//! | 0 | how many pages (32 bits) | these pages, from that one on, are zero |
//! | 1 | 4096 bytes | it has this content |
//! | 2 | a length (16 bits), so many bytes of LZ4 | it is combined, by exclusive or, with what these unpack to |
//!
//! Most pages that a guest writes to change in a few places, so that the exclusive or with what the standby has is
//! nearly all zeros, and LZ4 makes a few bytes of it. Where that does not pay, which the writer notices, pages are sent
//! whole.

use std::ops::Range;

use lz4_flex::block;
use memmap2::{Advice, MmapMut};

use super::memory::{PAGE_BYTES, Page};

const ZERO: u8 = 0;
const WHOLE: u8 = 1;
const DIFFERENCE: u8 = 2;
const HEAD_BYTES: usize = 5;
const ZERO_PAGE: Page = [0; PAGE_BYTES];

/// Errors of a batch.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BatchError {
    /// The batch ends in the middle of a patch.
    #[error("a batch of pages ends early, after {0} bytes")]
    Truncated(usize),
    /// The kind of a patch is unknown.
    #[error("a batch of pages has a patch of the unknown kind {0}")]
    Kind(u8),
    /// A page is beyond the end of the memory.
    #[error("a batch of pages names page {page}, but the memory has {pages} pages")]
    Beyond {
        /// Number of the page.
        page: u64,
        /// Number of pages of the memory.
        pages: usize,
    },
    /// A checkpoint has more patches than the memory has pages.
    #[error("a checkpoint has more patches than the memory has pages ({0})")]
    TooMany(usize),
    /// Packed contents do not unpack to a page.
    #[error("a batch of pages has an invalid encoding of page {0}")]
    Packed(u32),
}

/// Writes batches, and keeps a copy of the standby's memory.
#[derive(Debug)]
pub struct Writer {
    /// The standby's memory after everything written so far has been committed.
    copy: Copied,
    difference: Box<Page>,
    packed: Vec<u8>,
    /// Success of packing the last differences, from 0 (none) to [`Writer::TRUST`].
    trust: u32,
    until_next_try: u32,
}

/// Pages aligned for vector units and large TLB entries, because memory is compared with them
/// during pauses.
#[derive(Debug)]
struct Copied(MmapMut);

impl Copied {
    /// A copy of zero pages.
    fn new(pages: usize) -> Copied {
        let mapping = MmapMut::map_anon(pages * PAGE_BYTES).expect("there is memory for a copy");
        // A failure costs only time: small pages work, too.
        let _ = mapping.advise(Advice::HugePage);
        Copied(mapping)
    }

    fn pages(&self) -> &[Page] {
        self.0.as_chunks().0
    }

    fn pages_mut(&mut self) -> &mut [Page] {
        self.0.as_chunks_mut().0
    }
}

impl Writer {
    const TRUST: u32 = 16;
    /// Number of pages after which packing is tried again while it does not pay.
    const BETWEEN_TRIES: u32 = 32;
    /// Largest packed size for which unpacking pays.
    const PACKED_BYTES_MAX: usize = PAGE_BYTES * 3 / 4;

    /// A writer for a memory of `pages` zero pages.
    pub fn new(pages: usize) -> Writer {
        Writer {
            copy: Copied::new(pages),
            difference: Box::new(ZERO_PAGE),
            packed: vec![0; block::get_maximum_output_size(PAGE_BYTES)],
            trust: Writer::TRUST,
            until_next_try: 0,
        }
    }

    /// The standby's current or future memory.
    pub fn copy(&self) -> &[Page] {
        self.copy.pages()
    }

    /// Appends a patch that changes a page of the standby to `page`.
    pub fn change(&mut self, number: u32, page: &Page, batch: &mut Vec<u8>) {
        let copy = &mut self.copy.pages_mut()[number as usize];
        if *page == ZERO_PAGE {
            zero(batch, number as usize, 1);
        } else if self.trust > 0 || self.until_next_try == 0 {
            self.until_next_try = Writer::BETWEEN_TRIES;
            let both = page.iter().zip(copy.iter());
            for (out, (now, before)) in self.difference.iter_mut().zip(both) {
                *out = now ^ before;
            }
            let length = block::compress_into(&self.difference[..], &mut self.packed)
                .expect("there is room for the worst case");
            if length <= Writer::PACKED_BYTES_MAX {
                self.trust = (self.trust + 1).min(Writer::TRUST);
                head(batch, DIFFERENCE, number);
                batch.extend_from_slice(&(length as u16).to_le_bytes());
                batch.extend_from_slice(&self.packed[..length]);
            } else {
                self.trust = self.trust.saturating_sub(1);
                whole(batch, number, page);
            }
        } else {
            self.until_next_try -= 1;
            whole(batch, number, page);
        }
        *copy = *page;
    }

    /// The standby's memory, to be initialized before anything is sent.
    pub fn copy_mut(&mut self) -> &mut [Page] {
        self.copy.pages_mut()
    }

    /// Appends patches that set pages to their contents in the copy, whatever the standby has
    /// there.
    pub fn renewal(&self, pages: Range<usize>, batch: &mut Vec<u8>) {
        let mut zeros = 0;
        for number in pages.clone() {
            let page = &self.copy.pages()[number];
            if *page == ZERO_PAGE {
                zeros += 1;
                continue;
            }
            zero(batch, number - zeros, zeros);
            zeros = 0;
            whole(batch, number as u32, page);
        }
        zero(batch, pages.end - zeros, zeros);
    }
}

fn head(batch: &mut Vec<u8>, kind: u8, page: u32) {
    batch.push(kind);
    batch.extend_from_slice(&page.to_le_bytes());
}

fn whole(batch: &mut Vec<u8>, number: u32, page: &Page) {
    head(batch, WHOLE, number);
    batch.extend_from_slice(page);
}

fn zero(batch: &mut Vec<u8>, first: usize, count: usize) {
    if count > 0 {
        head(batch, ZERO, first as u32);
        batch.extend_from_slice(&(count as u32).to_le_bytes());
    }
}

/// Most bytes in the batches of one checkpoint: each page with its head, and every second page
/// zero.
pub fn batch_bytes_max(memory_bytes: u64) -> u64 {
    const LONGEST_PATCH_BYTES: u64 = (2 * HEAD_BYTES + PAGE_BYTES) as u64;
    memory_bytes / PAGE_BYTES as u64 * LONGEST_PATCH_BYTES
}

/// Batches that were received and checked, and not applied yet. Applying them cannot fail.
#[derive(Debug, Default)]
pub struct Staged {
    patches: Vec<Patch>,
    contents: Vec<Page>,
}

#[derive(Debug)]
enum Patch {
    Zero {
        first: u32,
        count: u32,
    },
    /// Page to replace with the next contents.
    Whole(u32),
    /// Page to combine with the next contents by exclusive or.
    Difference(u32),
}

impl Staged {
    /// Stages a batch for a memory of `pages` pages.
    ///
    /// # Errors
    ///
    /// If it is no batch, or not for such a memory. What was staged is worth nothing then.
    pub fn add(&mut self, batch: &[u8], pages: usize) -> Result<(), BatchError> {
        let mut rest = batch;
        while !rest.is_empty() {
            let truncated = || BatchError::Truncated(batch.len());
            let head: &[u8; HEAD_BYTES] = rest
                .split_off(..HEAD_BYTES)
                .and_then(first)
                .ok_or_else(truncated)?;
            let [kind, number @ ..] = *head;
            let number = u32::from_le_bytes(number);
            let mut last = u64::from(number);
            let patch = match kind {
                ZERO => {
                    let count = rest.split_off(..4).and_then(first).ok_or_else(truncated)?;
                    let count = u32::from_le_bytes(*count);
                    last += u64::from(count.max(1) - 1);
                    Patch::Zero {
                        first: number,
                        count,
                    }
                }
                WHOLE => {
                    let page = rest
                        .split_off(..PAGE_BYTES)
                        .and_then(first)
                        .ok_or_else(truncated)?;
                    self.contents.push(*page);
                    Patch::Whole(number)
                }
                DIFFERENCE => {
                    let length = rest.split_off(..2).and_then(first).ok_or_else(truncated)?;
                    let length = usize::from(u16::from_le_bytes(*length));
                    let packed = rest.split_off(..length).ok_or_else(truncated)?;
                    let mut page = ZERO_PAGE;
                    if block::decompress_into(packed, &mut page).ok() != Some(PAGE_BYTES) {
                        return Err(BatchError::Packed(number));
                    }
                    self.contents.push(page);
                    Patch::Difference(number)
                }
                unknown => return Err(BatchError::Kind(unknown)),
            };
            if last >= pages as u64 {
                return Err(BatchError::Beyond { page: last, pages });
            }
            // A few bytes may unpack to a page, so the number of patches has to be limited, too.
            if self.patches.len() >= pages {
                return Err(BatchError::TooMany(pages));
            }
            self.patches.push(patch);
        }
        Ok(())
    }

    /// Number of staged bytes.
    pub fn bytes(&self) -> usize {
        self.contents.len() * PAGE_BYTES
    }

    /// Applies everything that was staged, in order, and empties the stage.
    ///
    /// # Panics
    ///
    /// If the memory is not of the size that was staged for.
    pub fn apply(&mut self, memory: &mut [Page]) {
        let mut contents = self.contents.iter();
        for patch in self.patches.drain(..) {
            match patch {
                Patch::Zero { first, count } => {
                    for page in &mut memory[first as usize..][..count as usize] {
                        // Writing to an absent zero page would allocate it.
                        if *page != ZERO_PAGE {
                            *page = ZERO_PAGE;
                        }
                    }
                }
                Patch::Whole(number) => {
                    memory[number as usize] = *contents.next().expect("staged with its content");
                }
                Patch::Difference(number) => {
                    let difference = contents.next().expect("staged with its content");
                    let page = &mut memory[number as usize];
                    for (byte, difference) in page.iter_mut().zip(difference) {
                        *byte ^= difference;
                    }
                }
            }
        }
        self.contents.clear();
    }

    /// Drops everything that was staged.
    pub fn discard(&mut self) {
        self.patches.clear();
        self.contents.clear();
    }
}

fn first<const N: usize>(bytes: &[u8]) -> Option<&[u8; N]> {
    bytes.first_chunk()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::guest::changes::compare;
    use rand_core::{RngCore, SeedableRng as _};

    const PAGES: usize = 96;

    fn scribble(random: &mut impl RngCore, memory: &mut [Page]) {
        for _ in 0..random.next_u32() % 30 {
            let page = &mut memory[random.next_u32() as usize % PAGES];
            match random.next_u32() % 4 {
                0 => *page = ZERO_PAGE,
                1 => random.fill_bytes(page),
                _ => page[random.next_u32() as usize % PAGE_BYTES] = random.next_u32() as u8,
            }
        }
    }

    /// A standby that applies every epoch has the same memory as the primary.
    #[test]
    fn epochs_arrive() {
        for seed in 0..100 {
            let mut random = rand_pcg::Pcg64Mcg::seed_from_u64(seed);
            let mut primary = vec![ZERO_PAGE; PAGES];
            let mut standby = primary.clone();
            // The first, full checkpoint overwrites any earlier contents.
            scribble(&mut random, &mut standby);
            let (mut writer, mut staged) = (Writer::new(PAGES), Staged::default());
            for epoch in 0..20 {
                scribble(&mut random, &mut primary);
                let mut batch = Vec::new();
                if epoch == 0 {
                    writer.copy_mut().copy_from_slice(&primary);
                    writer.renewal(0..PAGES, &mut batch);
                } else {
                    let mut changed = Vec::new();
                    compare(&primary, writer.copy(), &mut changed);
                    for number in changed {
                        writer.change(number, &primary[number as usize], &mut batch);
                    }
                }
                if random.next_u32() % 5 == 0 {
                    // A batch that is cut off, as by a broken connection, has no effect.
                    let half = &batch[..random.next_u32() as usize % (batch.len() + 1)];
                    let _ = staged.add(half, PAGES);
                    staged.discard();
                }
                staged.add(&batch, PAGES).unwrap();
                staged.apply(&mut standby);
                assert!(standby == primary, "seed {seed}, epoch {epoch}");
                assert!(writer.copy() == primary, "seed {seed}, epoch {epoch}");
            }
        }
    }

    #[test]
    fn what_does_not_pack_is_not_tried_for_long() {
        let mut random = rand_pcg::Pcg64Mcg::seed_from_u64(1);
        let mut writer = Writer::new(1);
        let mut batch = Vec::new();
        let mut page = ZERO_PAGE;
        for _ in 0..1_000 {
            random.fill_bytes(&mut page);
            writer.change(0, &page, &mut batch);
        }
        assert_eq!(writer.trust, 0);
        assert_eq!(batch.len(), 1_000 * (HEAD_BYTES + PAGE_BYTES));
        for _ in 0..1_000 {
            page[0] ^= 1;
            batch.clear();
            writer.change(0, &page, &mut batch);
        }
        assert!(batch.len() < 64, "{}", batch.len());
    }

    #[test]
    fn what_is_no_batch_is_refused() {
        let add = |bytes: &[u8]| Staged::default().add(bytes, PAGES);
        assert_eq!(add(&[WHOLE, 0, 0, 0, 0, 1]), Err(BatchError::Truncated(6)));
        assert_eq!(add(&[9, 0, 0, 0, 0]), Err(BatchError::Kind(9)));
        let beyond = |page| Err(BatchError::Beyond { page, pages: PAGES });
        assert_eq!(add(&[ZERO, 90, 0, 0, 0, 7, 0, 0, 0]), beyond(96));
        assert_eq!(
            add(&[ZERO, 90, 0, 0, 0, 255, 255, 255, 255]),
            beyond(90 + 0xffff_fffe)
        );
        assert_eq!(add(&[ZERO, 90, 0, 0, 0, 6, 0, 0, 0]), Ok(()));
        let one = [ZERO, 1, 0, 0, 0, 1, 0, 0, 0];
        assert_eq!(add(&one.repeat(PAGES)), Ok(()));
        assert_eq!(add(&one.repeat(PAGES + 1)), Err(BatchError::TooMany(PAGES)));
        assert_eq!(
            add(&[DIFFERENCE, 3, 0, 0, 0, 1, 0, 0]),
            Err(BatchError::Packed(3))
        );
    }
}
