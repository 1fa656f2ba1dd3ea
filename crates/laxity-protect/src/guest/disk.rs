//! A disk that a guest writes to: its image on this host, and what is known of the image on the
//! other host.
//!
//! The host with the guest writes to its image at once, and notes which blocks the other image may
//! have otherwise. These travel with the checkpoint at the end of their epoch; the other host puts
//! them by ([`Staged`]) and writes them only when that checkpoint becomes the current one. A host
//! that begins to follow sends sums of its image, so that only the pieces that differ are copied,
//! whatever happened to either image before.

use std::fmt::Display;
use std::fs::{File, OpenOptions};
use std::io::{self, Read as _};
use std::ops::Range;
use std::os::unix::fs::{FileExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use laxity_config::input;
use nix::errno::Errno;
use nix::fcntl::{FallocateFlags, Flock, FlockArg, PosixFadviseAdvice, fallocate, posix_fadvise};
use twox_hash::XxHash3_128;

use super::confinement::User;
use super::qcow2::{self, Qcow2};

/// Size of the blocks of which changes are noted.
pub const BLOCK_BYTES: usize = 4096;
/// Size of the pieces of which sums are compared.
const PIECE_BYTES: usize = 64 << 10;
const PIECE_BLOCKS: u64 = (PIECE_BYTES / BLOCK_BYTES) as u64;
/// Size of a block's place, its disk in the highest byte, which precedes its contents.
const PLACE_BYTES: usize = 8;
const RECORD_BYTES: usize = PLACE_BYTES + BLOCK_BYTES;
const DISK_SHIFT: u32 = 56;
const SUM_BYTES: usize = 16;
/// Pieces of one message with sums: comparing them keeps no checkpoint waiting for long.
const PIECES_A_MESSAGE: u64 = 128;
/// Blocks that are read or written at once: 1 MiB.
const RUN_BLOCKS: usize = (1 << 20) / BLOCK_BYTES;
/// Blocks of one part of a checkpoint.
const BATCH_BLOCKS: usize = 60;
/// Blocks that a checkpoint has while the disks are being copied, besides as many as the guest has
/// written in its epoch, so that less is left after each: 16 MiB.
const COPIED_BLOCKS: u64 = (16 << 20) / BLOCK_BYTES as u64;
/// Blocks that a guest may write in an epoch before its writes wait for the end of the epoch: 64
/// MiB.
const EPOCH_BLOCKS_MAX: u64 = (64 << 20) / BLOCK_BYTES as u64;
/// How to make an image.
const HELP: &str =
    "make it with (umask 077; truncate -s 1G IMAGE), say, of the same size on both hosts";
/// Longest wait for the end of a QEMU that had an image open for a daemon that was killed.
const LOCK_TIMEOUT: Duration = Duration::from_secs(10);
const QCOW2: &str = "qcow2";
/// Formats of images that are not raw, with what they begin with.
const FORMATS: [(&str, &[u8]); 3] = [
    (QCOW2, qcow2::MAGIC),
    ("VMDK", b"KDMV"),
    ("VHDX", b"vhdxfile"),
];
/// Bytes of an image that tell its format.
const FORMAT_BYTES: u64 = 8;
/// Rights of others than the owner, of which an image gives none: a guest's disk has its passwords
/// and keys.
const OTHERS: u32 = 0o077;
/// Limit of the number of a guest's disks.
pub const DISKS_MAX: usize = 8;
/// Longest queue of a disk's requests, or of those of all disks behind one SCSI controller, which
/// bounds what is on its way when an epoch ends.
pub(super) const QUEUE_REQUESTS: u64 = 64;
/// Blocks of the longest request that Linux makes unless it is told otherwise, which has 1280 KiB
/// and may begin and end within a block.
const REQUEST_BLOCKS: u64 = (1280 << 10) / BLOCK_BYTES as u64 + 1;
/// Blocks of each disk that a checkpoint has at most: those of writes that did not wait, and of those
/// that were on their way when its epoch ended.
const STAGED_BLOCKS_MAX: u64 = EPOCH_BLOCKS_MAX + (QUEUE_REQUESTS + 1) * REQUEST_BLOCKS;

/// Limit of the part of a checkpoint that disks have, however few they are: where checkpoints cannot be
/// taken, each epoch's part adds to the next one's.
pub const STAGED_BYTES_MAX: usize = DISKS_MAX * STAGED_BLOCKS_MAX as usize * RECORD_BYTES;

/// The image of a disk, locked against other processes.
#[derive(Debug)]
enum Image {
    Raw(Flock<File>),
    Qcow2(Box<Qcow2>),
}

impl Image {
    fn read(&self, offset: u64, into: &mut [u8]) -> io::Result<()> {
        match self {
            Image::Raw(file) => file.read_exact_at(into, offset),
            Image::Qcow2(image) => image.read(offset, into),
        }
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        match self {
            Image::Raw(file) => file.write_all_at(data, offset),
            Image::Qcow2(image) => image.write(offset, data),
        }
    }

    fn flush(&self) -> io::Result<()> {
        match self {
            Image::Raw(file) => file.sync_data(),
            Image::Qcow2(image) => image.flush(),
        }
    }
}

/// A disk and its image.
#[derive(Debug)]
pub struct Disk {
    /// Place of the image.
    path: PathBuf,
    image: Image,
    bytes: u64,
    state: Mutex<State>,
    /// Woken when writes may go on.
    goes_on: Condvar,
    /// Whether anything may have been written since the last flush began, here or before the image
    /// was opened.
    is_unflushed: AtomicBool,
    /// Held while the image is flushed, so that no flush ends before one that began earlier. An
    /// error stays: the system tells it once, and may have dropped what was to be written.
    flushing: Mutex<Option<String>>,
    /// Time at which the flush began that has not ended.
    flushes_since: Mutex<Option<Instant>>,
    /// Threads that serve the disk to a guest, or did.
    servers: Mutex<Vec<JoinHandle<()>>>,
}

#[derive(Debug)]
struct State {
    /// Pieces of which the other image's sum has not come.
    unknown: Bits,
    /// Blocks that belong to a coming checkpoint.
    differs: Bits,
    /// How many of these were added by the guest since the last checkpoint.
    written: u64,
    /// Whether the guest runs here.
    may_write: bool,
    /// Whether the guest's output waits for checkpoints, so that they must not grow without end.
    is_bounded: bool,
    /// Whether all writes have to end now, because the guest is being paused.
    drains: bool,
    /// An error of the image that nobody has taken notice of.
    failure: Option<String>,
}

/// Refuses an image of a format other than raw: a guest would see the image itself as its disk. What
/// a guest has written to a raw image may look like such a format, too.
///
/// # Errors
///
/// If the image is of another format, or cannot be read.
pub fn refuse_other_formats(path: &Path) -> io::Result<()> {
    let mut begins = Vec::new();
    input::open(path)
        .and_then(|image| image.take(FORMAT_BYTES).read_to_end(&mut begins))
        .map_err(|error| told(path, error))?;
    match FORMATS.iter().find(|(_, with)| begins.starts_with(with)) {
        None => Ok(()),
        Some((format, _)) => {
            let also = match *format {
                QCOW2 => {
                    "; images of `volumes` may be what they are with volume-format = \"qcow2\""
                }
                _ => "",
            };
            let what = format!(
                "it is an image of the format {format}, and a guest here has raw ones: make one of \
                 it with `qemu-img convert -O raw IMAGE RAW`, on both hosts{also}"
            );
            Err(told(path, what))
        }
    }
}

/// An error with the place of the image that it is about.
fn told(path: &Path, what: impl Display) -> io::Error {
    io::Error::other(format!("{}: {what}", path.display()))
}

/// Opens an image and locks it, if necessary after a wait. Returns the size of its file, too.
fn lock(path: &Path, timeout: Duration) -> io::Result<(Flock<File>, u64)> {
    let mut image = OpenOptions::new()
        .read(true)
        .write(true)
        .custom_flags(libc::O_NONBLOCK)
        .open(path)
        .map_err(|error| told(path, error))?;
    let metadata = image.metadata()?;
    if !metadata.is_file() {
        return Err(told(path, format!("it is not a regular file: {HELP}")));
    }
    let mode = metadata.mode() & 0o7777;
    if mode & OTHERS != 0 {
        let what = format!(
            "users other than its owner may use it (mode {mode:04o}), and it holds the guest's data: \
             chmod 600 {}",
            path.display()
        );
        return Err(told(path, what));
    }
    let deadline = Instant::now() + timeout;
    loop {
        image = match Flock::lock(image, FlockArg::LockExclusiveNonblock) {
            Ok(locked) => return Ok((locked, metadata.len())),
            Err((image, Errno::EWOULDBLOCK)) if Instant::now() < deadline => image,
            Err(_) => {
                return Err(told(
                    path,
                    "another disk or process uses it: give each disk an image of its own",
                ));
            }
        };
        thread::sleep(Duration::from_millis(10));
    }
}

fn refuse_parts_of_blocks(path: &Path, bytes: u64, help: &str) -> io::Result<()> {
    if bytes > 0 && bytes.is_multiple_of(BLOCK_BYTES as u64) {
        return Ok(());
    }
    let what = format!("its size, {bytes} bytes, is not a multiple of {BLOCK_BYTES}: {help}");
    Err(told(path, what))
}

/// Flushes a file, and drops what the system has cached of it. After a flush that failed the cache may
/// have what the disk lost, marked as written: a sum of it would be that of the other host's block,
/// and the block would not be copied. What is read from now on comes from the disk.
fn read_anew(path: &Path, image: &File) -> io::Result<()> {
    image
        .sync_data()
        .map_err(|error| told(path, format!("it cannot be flushed: {error}")))?;
    posix_fadvise(image, 0, 0, PosixFadviseAdvice::POSIX_FADV_DONTNEED)
        .map_err(|error| told(path, format!("its cache cannot be dropped: {error}")))
}

impl Disk {
    /// Opens and locks a raw image. All of its room is taken now, so that no later write finds the
    /// file system full.
    ///
    /// # Errors
    ///
    /// If it is no regular file of whole blocks, others than its owner may read or write it, another
    /// process has it, or there is no room.
    pub fn open(path: &Path) -> io::Result<Disk> {
        let (image, bytes) = lock(path, Duration::ZERO)?;
        refuse_parts_of_blocks(path, bytes, HELP)?;
        fallocate(&*image, FallocateFlags::empty(), 0, bytes as i64).map_err(|error| {
            let what = match error {
                Errno::ENOSPC | Errno::EDQUOT => "there is no room for",
                Errno::EOPNOTSUPP => "this file system cannot reserve space for",
                _ => "no space could be reserved for",
            };
            told(
                path,
                format!("{what} all of its {bytes} bytes, which the guest may write: {error}"),
            )
        })?;
        read_anew(path, &image)?;
        Ok(Disk::new(path, Image::Raw(image), bytes))
    }

    /// Opens and locks an image of the format qcow2, in a QEMU that ends with the calling thread.
    ///
    /// # Errors
    ///
    /// If it is no such image, its disk is not of whole blocks, others than its owner may read or
    /// write it, another process has it, or [QEMU](Qcow2::open) cannot open it.
    pub fn open_qcow2(path: &Path, program: &Path, user: Option<User>) -> io::Result<Disk> {
        let (image, _) = lock(path, LOCK_TIMEOUT)?;
        read_anew(path, &image)?;
        let image = Qcow2::open(image, path, program, user)?;
        let bytes = image.bytes();
        refuse_parts_of_blocks(path, bytes, "`qemu-img resize` makes it one")?;
        Ok(Disk::new(path, Image::Qcow2(image.into()), bytes))
    }

    fn new(path: &Path, image: Image, bytes: u64) -> Disk {
        Disk {
            path: path.into(),
            image,
            bytes,
            state: Mutex::new(State {
                unknown: Bits::new(bytes.div_ceil(PIECE_BYTES as u64)),
                differs: Bits::new(bytes / BLOCK_BYTES as u64),
                written: 0,
                may_write: false,
                is_bounded: false,
                drains: false,
                failure: None,
            }),
            goes_on: Condvar::new(),
            is_unflushed: AtomicBool::new(true),
            flushing: Mutex::new(None),
            flushes_since: Mutex::new(None),
            servers: Mutex::default(),
        }
    }

    /// Place of the image.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Size in bytes.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Says whether the guest runs here, so that it may write.
    pub fn may_write(&self, may: bool) {
        self.state().may_write = may;
    }

    /// Says whether writes wait when an epoch has many.
    pub fn bound(&self, is_bounded: bool) {
        self.state().is_bounded = is_bounded;
        self.goes_on.notify_all();
    }

    /// Takes a thread that serves the disk.
    pub fn is_served_by(&self, server: JoinHandle<()>) {
        let mut servers = self.servers.lock().unwrap_or_else(PoisonError::into_inner);
        servers.push(server);
    }

    /// The guest has ended: no write of it begins any more, and one that waits ends.
    pub fn end(&self) {
        let mut state = self.state();
        state.may_write = false;
        state.drains = true;
        self.goes_on.notify_all();
    }

    /// Waits until nothing that a guest which has ended had begun is left, which is for as long as
    /// the image hangs.
    pub fn settle(&self) {
        let servers =
            std::mem::take(&mut *self.servers.lock().unwrap_or_else(PoisonError::into_inner));
        for server in servers {
            let _ = server.join();
        }
        self.drain(false);
    }

    /// Says whether the guest is being paused, for which no write may wait.
    pub fn drain(&self, drains: bool) {
        self.state().drains = drains;
        self.goes_on.notify_all();
    }

    /// Reads for the guest.
    ///
    /// # Errors
    ///
    /// Those of the image.
    pub fn read(&self, offset: u64, into: &mut [u8]) -> io::Result<()> {
        self.noted("read", self.image.read(offset, into))
    }

    /// Notes an error of the image.
    fn noted(&self, what: &str, done: io::Result<()>) -> io::Result<()> {
        done.inspect_err(|error| {
            let failure = format!("cannot {what} {}: {error}", self.path.display());
            self.state().failure = Some(failure);
        })
    }

    /// The last error of the image since this was asked last.
    pub fn take_failure(&self) -> Option<String> {
        self.state().failure.take()
    }

    /// Writes for the guest.
    ///
    /// # Errors
    ///
    /// If the guest does not run here, and those of the image.
    pub fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        let mut state = self.state();
        while state.is_bounded && !state.drains && state.written >= EPOCH_BLOCKS_MAX {
            let woken = self.goes_on.wait(state);
            state = woken.unwrap_or_else(PoisonError::into_inner);
        }
        if !state.may_write {
            return Err(io::ErrorKind::PermissionDenied.into());
        }
        if data.is_empty() {
            return Ok(());
        }
        let end = offset + data.len() as u64;
        // The blocks are noted before they change: a comparison that reads them meanwhile counts
        // for nothing then.
        let before = state.differs.count;
        for block in offset / BLOCK_BYTES as u64..end.div_ceil(BLOCK_BYTES as u64) {
            state.differs.set(block);
        }
        state.written += state.differs.count - before;
        drop(state);
        self.put(offset, data)
    }

    /// Writes to the image. A flush that begins later than this ends has it.
    fn put(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        let done = self.image.write(offset, data);
        self.is_unflushed.store(true, Ordering::Release);
        self.noted("write to", done)
    }

    /// Makes all that was written survive a failure of this host.
    ///
    /// # Errors
    ///
    /// Those of the image, from the first one on for good.
    pub fn flush(&self) -> io::Result<()> {
        let mut failed = self.flushing.lock().unwrap_or_else(PoisonError::into_inner);
        if failed.is_none() && self.is_unflushed.swap(false, Ordering::AcqRel) {
            self.flushes(Some(Instant::now()));
            if let Err(error) = self.image.flush() {
                *failed = Some(error.to_string());
            }
            self.flushes(None);
        }
        let done = match &*failed {
            Some(reason) => Err(io::Error::other(reason.clone())),
            None => Ok(()),
        };
        self.noted("flush", done)
    }

    /// Notes since when a flush has not ended.
    pub(crate) fn flushes(&self, since: Option<Instant>) {
        *self
            .flushes_since
            .lock()
            .unwrap_or_else(PoisonError::into_inner) = since;
    }

    /// Time at which a flush began that has not ended, of an image that may hang.
    pub fn flushes_since(&self) -> Option<Instant> {
        *self
            .flushes_since
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// Nothing is known of the other image any more.
    pub fn forget(&self) {
        let mut state = self.state();
        state.unknown.set_all();
        state.differs.clear_all();
        state.written = 0;
    }

    /// Notes that blocks belong to a coming checkpoint.
    fn differ(&self, blocks: impl Iterator<Item = u64>) {
        let mut state = self.state();
        for block in blocks {
            state.differs.set(block);
        }
    }

    /// Bytes that the other image may have otherwise.
    pub fn left_bytes(&self) -> u64 {
        let state = self.state();
        let unknown = state.unknown.count * PIECE_BYTES as u64;
        (unknown + state.differs.count * BLOCK_BYTES as u64).min(self.bytes)
    }

    fn pieces(&self) -> u64 {
        self.bytes.div_ceil(PIECE_BYTES as u64)
    }

    /// The sum of a piece, for which its contents are read into `piece`.
    fn sum(&self, number: u64, piece: &mut Vec<u8>) -> io::Result<[u8; SUM_BYTES]> {
        let begin = number * PIECE_BYTES as u64;
        let length = (self.bytes - begin).min(PIECE_BYTES as u64);
        piece.resize(length as usize, 0);
        self.read(begin, piece)?;
        Ok(XxHash3_128::oneshot(piece).to_le_bytes())
    }
}

/// Messages with the sums of all disks, one after the other.
pub fn sums(disks: &[Arc<Disk>]) -> impl Iterator<Item = io::Result<Vec<u8>>> {
    let all = disks.iter().enumerate().flat_map(|(number, disk)| {
        let firsts = (0..disk.pieces()).step_by(PIECES_A_MESSAGE as usize);
        firsts.map(move |first| (number, disk, first))
    });
    all.map(|(number, disk, first)| {
        let mut message = place(number, first).to_vec();
        let mut piece = Vec::new();
        for each in first..(first + PIECES_A_MESSAGE).min(disk.pieces()) {
            message.extend(disk.sum(each, &mut piece)?);
        }
        Ok(message)
    })
}

/// Compares a message with sums of the other host's images with the images here, while the guest
/// runs.
///
/// # Errors
///
/// If it is none of such disks.
pub fn compare(disks: &[Arc<Disk>], message: &[u8]) -> io::Result<()> {
    let refused = || io::Error::other("sums of other disks than these");
    let (place, sums) = message.split_first_chunk().ok_or_else(refused)?;
    let (number, first) = placed(*place);
    let disk = disks.get(number).ok_or_else(refused)?;
    let count = (sums.len() / SUM_BYTES) as u64;
    let fits = first < disk.pieces() && count <= PIECES_A_MESSAGE.min(disk.pieces() - first);
    if !fits || !sums.len().is_multiple_of(SUM_BYTES) {
        return Err(refused());
    }
    let mut piece = Vec::new();
    for (number, sum) in (first..).zip(sums.chunks_exact(SUM_BYTES)) {
        if !disk.state().unknown.has(number) {
            continue;
        }
        // A piece that cannot be read is left for the checkpoints, which cannot be taken as long as
        // that is so.
        let is_same = disk.sum(number, &mut piece).is_ok_and(|here| here == sum);
        let begin = number * PIECE_BLOCKS;
        let end = (begin + PIECE_BLOCKS).min(disk.bytes / BLOCK_BYTES as u64);
        if !is_same {
            disk.differ(begin..end);
        }
        disk.state().unknown.clear(number);
    }
    Ok(())
}

/// How many blocks a checkpoint gets at the end of an epoch.
fn most_of(disks: &[Arc<Disk>], all: bool) -> u64 {
    let mut written = 0;
    let mut is_bounded = true;
    for disk in disks {
        let mut state = disk.state();
        written += std::mem::take(&mut state.written);
        is_bounded &= state.is_bounded;
    }
    let most = disks.len() as u64 * STAGED_BLOCKS_MAX;
    match (all, is_bounded) {
        (true, true) => u64::MAX,
        (true, false) => most,
        (false, _) => most.min(COPIED_BLOCKS + written),
    }
}

/// The disks' part of a checkpoint.
#[derive(Debug, Default)]
pub struct Taken {
    /// Blocks, each behind its place, in batches.
    pub batches: Vec<Vec<u8>>,
    /// Bytes that the other images may have otherwise, with this checkpoint.
    pub left_bytes: u64,
}

impl Taken {
    /// Takes the blocks for a checkpoint of a guest that stands still: all that differ, or, while
    /// the disks are being copied, the next ones. As long as no write waits, all may be too many:
    /// some are left then.
    ///
    /// # Errors
    ///
    /// If an image cannot be read; all blocks still belong to a coming checkpoint then.
    pub fn take(disks: &[Arc<Disk>], all: bool) -> io::Result<Taken> {
        let mut taken = Taken::default();
        let mut most = most_of(disks, all);
        let mut contents = Vec::new();
        for (number, disk) in disks.iter().enumerate() {
            let blocks = disk.state().differs.first(most);
            most -= blocks.len() as u64;
            for run in runs(&blocks) {
                contents.resize(run.len() * BLOCK_BYTES, 0);
                if let Err(error) = disk.read(run[0] * BLOCK_BYTES as u64, &mut contents) {
                    taken.put_back(disks);
                    return Err(error);
                }
                for (&block, contents) in run.iter().zip(contents.chunks_exact(BLOCK_BYTES)) {
                    disk.state().differs.clear(block);
                    taken.put(number, block, contents);
                }
            }
            taken.left_bytes += disk.left_bytes();
            disk.goes_on.notify_all();
        }
        Ok(taken)
    }

    fn put(&mut self, disk: usize, block: u64, contents: &[u8]) {
        let is_full = |batch: &&mut Vec<u8>| batch.len() >= BATCH_BLOCKS * RECORD_BYTES;
        if self.batches.last_mut().as_ref().is_none_or(is_full) {
            self.batches.push(Vec::new());
        }
        let batch = self.batches.last_mut().expect("there is one");
        batch.extend_from_slice(&place(disk, block));
        batch.extend_from_slice(contents);
    }

    /// The checkpoint will not be sent: its blocks belong to a coming one.
    pub fn put_back(&self, disks: &[Arc<Disk>]) {
        for record in self
            .batches
            .iter()
            .flat_map(|batch| batch.chunks_exact(RECORD_BYTES))
        {
            let (place, _) = record.split_first_chunk().expect("it is longer");
            let (number, block) = placed(*place);
            disks[number].differ(std::iter::once(block));
            disks[number].state().written += 1;
        }
    }
}

/// Blocks that follow each other, so many at a time that one read has them: an image in a process of
/// its own takes some ten microseconds for each.
fn runs(blocks: &[u64]) -> impl Iterator<Item = &[u64]> {
    let follow = blocks.chunk_by(|block, next| block + 1 == *next);
    follow.flat_map(|run| run.chunks(RUN_BLOCKS))
}

fn place(disk: usize, number: u64) -> [u8; PLACE_BYTES] {
    ((disk as u64) << DISK_SHIFT | number).to_le_bytes()
}

fn placed(place: [u8; PLACE_BYTES]) -> (usize, u64) {
    let place = u64::from_le_bytes(place);
    let number = place & ((1 << DISK_SHIFT) - 1);
    ((place >> DISK_SHIFT) as usize, number)
}

/// The blocks of a checkpoint that has not become the current one.
#[derive(Debug, Default)]
pub struct Staged {
    batches: Vec<Vec<u8>>,
    bytes: usize,
}

impl Staged {
    /// Puts a part of a checkpoint by.
    ///
    /// # Errors
    ///
    /// If it is none of these disks, or too much.
    pub fn add(&mut self, batch: &[u8], disks: &[Arc<Disk>]) -> Result<(), String> {
        let is_there = |record: &[u8]| {
            let (place, _) = record.split_first_chunk().expect("it is longer");
            let (number, block) = placed(*place);
            let disk = disks.get(number);
            disk.is_some_and(|disk| block < disk.bytes / BLOCK_BYTES as u64)
        };
        let mut records = batch.chunks_exact(RECORD_BYTES);
        if !records.all(is_there) || !batch.len().is_multiple_of(RECORD_BYTES) {
            return Err("it has blocks of other disks than these".into());
        }
        self.bytes += batch.len();
        if self.bytes > STAGED_BYTES_MAX {
            return Err("it has more blocks of disks than a checkpoint may have".into());
        }
        self.batches.push(batch.to_vec());
        Ok(())
    }

    /// Drops everything.
    pub fn discard(&mut self) {
        *self = Staged::default();
    }

    /// Writes everything to the images.
    ///
    /// # Errors
    ///
    /// Those of an image, which is of no use then until it is copied anew.
    pub fn apply(&mut self, disks: &[Arc<Disk>]) -> io::Result<()> {
        let staged = std::mem::take(self);
        let mut run = Vec::new();
        let mut begins = (0, 0);
        for record in staged
            .batches
            .iter()
            .flat_map(|batch| batch.chunks_exact(RECORD_BYTES))
        {
            let (place, contents) = record.split_first_chunk().expect("it was checked");
            let (number, block) = placed(*place);
            let blocks = run.len() / BLOCK_BYTES;
            if (number, block) != (begins.0, begins.1 + blocks as u64) || blocks == RUN_BLOCKS {
                put_run(disks, begins, &run)?;
                run.clear();
                begins = (number, block);
            }
            run.extend_from_slice(contents);
        }
        put_run(disks, begins, &run)
    }
}

/// Writes blocks that follow each other on a disk from a block on.
fn put_run(disks: &[Arc<Disk>], (disk, block): (usize, u64), run: &[u8]) -> io::Result<()> {
    match run {
        [] => Ok(()),
        _ => disks[disk].put(block * BLOCK_BYTES as u64, run),
    }
}

/// A set of numbers below a limit.
#[derive(Debug)]
struct Bits {
    words: Vec<u64>,
    limit: u64,
    /// Number of members.
    count: u64,
}

impl Bits {
    fn new(limit: u64) -> Bits {
        Bits {
            words: vec![0; limit.div_ceil(64) as usize],
            limit,
            count: 0,
        }
    }

    fn has(&self, number: u64) -> bool {
        self.words[(number / 64) as usize] & 1 << (number % 64) != 0
    }

    fn set(&mut self, number: u64) {
        self.count += u64::from(!self.has(number));
        self.words[(number / 64) as usize] |= 1 << (number % 64);
    }

    fn clear(&mut self, number: u64) {
        self.count -= u64::from(self.has(number));
        self.words[(number / 64) as usize] &= !(1 << (number % 64));
    }

    fn set_all(&mut self) {
        self.clear_all();
        (0..self.limit).for_each(|number| self.set(number));
    }

    fn clear_all(&mut self) {
        self.words.fill(0);
        self.count = 0;
    }

    /// The lowest members, `most` of them if there are as many.
    fn first(&self, most: u64) -> Vec<u64> {
        let words = self.words.iter().zip((0..).step_by(64));
        let members = words
            .filter(|(word, _)| **word != 0)
            .flat_map(|(word, first)| {
                let bits: Range<u64> = 0..64;
                bits.filter(move |bit| word & 1 << bit != 0)
                    .map(move |bit| first + bit)
            });
        members
            .take(usize::try_from(most).unwrap_or(usize::MAX))
            .collect()
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::super::qcow2::tests::{Made, has_programs};
    use super::*;
    use nix::sys::statfs::{TMPFS_MAGIC, statfs};
    use rand_core::{RngCore as _, SeedableRng as _};
    use std::fs::Permissions;
    use std::os::unix::fs::PermissionsExt as _;

    const BLOCKS: u64 = 40;

    /// A disk of a few zero blocks, whose image has no name any more.
    pub fn disk(name: &str) -> Disk {
        disk_of(name, BLOCKS)
    }

    fn disk_of(name: &str, blocks: u64) -> Disk {
        let name = format!("laxity-disk-{}-{name}", std::process::id());
        let path = std::env::temp_dir().join(name);
        let image = image(&path);
        image.set_len(blocks * BLOCK_BYTES as u64).unwrap();
        let disk = Disk::open(&path).unwrap();
        let locked = Disk::open(&path).unwrap_err().to_string();
        assert!(locked.contains("an image of its own"), "{locked}");
        std::fs::remove_file(path).unwrap();
        disk
    }

    /// A new file that nobody else may read.
    fn image(path: &Path) -> File {
        let mut options = OpenOptions::new();
        let options = options.write(true).create(true).truncate(true).mode(0o600);
        options.open(path).unwrap()
    }

    #[test]
    fn an_image_that_others_may_read_or_write_is_refused() {
        let name = format!("laxity-disk-{}-others", std::process::id());
        let path = std::env::temp_dir().join(name);
        image(&path).set_len(BLOCK_BYTES as u64).unwrap();
        for mode in [0o604, 0o602, 0o640] {
            std::fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
            let refused = Disk::open(&path).unwrap_err().to_string();
            assert!(refused.contains("chmod 600 /"), "{refused}");
        }
        std::fs::set_permissions(&path, Permissions::from_mode(0o600)).unwrap();
        Disk::open(&path).unwrap();
        std::fs::remove_file(path).unwrap();
    }

    fn contents(disk: &Disk) -> Vec<u8> {
        let mut contents = vec![0; disk.bytes() as usize];
        disk.read(0, &mut contents).unwrap();
        contents
    }

    /// A disk that takes everything and cannot be flushed.
    pub fn unflushable_disk(name: &str) -> Disk {
        let mut disk = disk(name);
        disk.image = unflushable();
        disk
    }

    fn unflushable() -> Image {
        special("/dev/zero")
    }

    /// A device in place of an image.
    fn special(path: &str) -> Image {
        let image = OpenOptions::new().read(true).write(true).open(path);
        Image::Raw(Flock::lock(image.unwrap(), FlockArg::LockShared).unwrap())
    }

    #[test]
    fn what_a_checkpoint_writes_is_flushed_with_what_the_guest_writes() {
        let (mut here, mut there) = (disk("flush-here"), disk("flush-there"));
        here.may_write(true);
        for disk in [&mut here, &mut there] {
            disk.flush().unwrap();
            disk.image = unflushable();
            disk.flush().expect("nothing was written");
        }
        let disks = [Arc::new(here), Arc::new(there)];
        disks[0].write(0, b"the guest's").unwrap();
        disks[0].flush().expect_err("it reaches the image");
        let mut staged = Staged::default();
        let block = [&place(1, 7)[..], &[1; BLOCK_BYTES]].concat();
        staged.add(&block, &disks).unwrap();
        staged.apply(&disks).unwrap();
        disks[1].flush().expect_err("it reaches the image");
    }

    /// QEMU keeps tables of the format to itself until a flush.
    #[test]
    fn a_flush_reaches_an_image_of_another_format() {
        if !has_programs() {
            return;
        }
        let made = Made::new("flushed", &[], BLOCKS * BLOCK_BYTES as u64);
        let mut disk = made.open().unwrap();
        disk.may_write(true);
        disk.write(0, b"abc").unwrap();
        disk.flush().unwrap();
        let Image::Qcow2(image) = &mut disk.image else {
            panic!("it is of another format")
        };
        image.kill();
        drop(disk);
        assert!(made.inside().starts_with(b"abc"));
    }

    /// Linux tells one flush of an error, and the next one that all is well.
    #[test]
    fn no_flush_is_one_after_an_error() {
        let mut disk = disk("flush-error");
        let image = std::mem::replace(&mut disk.image, unflushable());
        disk.flush().unwrap_err();
        disk.image = image;
        disk.flush().expect_err("what was written may be lost");
        disk.may_write(true);
        disk.write(0, b"more").unwrap();
        disk.flush().expect_err("what was written may be lost");
    }

    #[test]
    fn an_error_of_the_image_is_told_once() {
        let mut disk = disk("failure");
        disk.may_write(true);
        assert_eq!(disk.take_failure(), None);
        disk.image = unflushable();
        disk.flush().unwrap_err();
        let flushed = disk.take_failure().unwrap();
        assert!(flushed.starts_with("cannot flush /"), "{flushed}");
        assert_eq!(disk.take_failure(), None);
        // There is nothing to read, and no room.
        for (device, what) in [("/dev/null", "read"), ("/dev/full", "write to")] {
            disk.image = special(device);
            let done = match what {
                "read" => disk.read(0, &mut [0]),
                _ => disk.write(0, b"more"),
            };
            done.unwrap_err();
            let failure = disk.take_failure().unwrap();
            assert!(
                failure.starts_with(&format!("cannot {what} /")),
                "{failure}"
            );
        }
        disk.may_write(false);
        disk.write(0, b"more").unwrap_err();
        assert_eq!(
            disk.take_failure(),
            None,
            "the guest waits, and the image is well"
        );
    }

    #[test]
    fn an_end_waits_for_no_write_and_what_follows_does() {
        let disk = Arc::new(disk("settles"));
        disk.may_write(true);
        disk.bound(true);
        disk.state().written += EPOCH_BLOCKS_MAX;
        let (begin, begun) = std::sync::mpsc::channel::<()>();
        let (late, served) = (disk.clone(), disk.clone());
        disk.is_served_by(std::thread::spawn(move || {
            late.write(0, b"late").unwrap_err();
            // The image hangs.
            begun.recv().unwrap();
        }));
        disk.end();
        let settled = std::thread::spawn(move || served.settle());
        std::thread::sleep(std::time::Duration::from_millis(50));
        assert!(!settled.is_finished(), "its server has not ended");
        begin.send(()).unwrap();
        settled.join().unwrap();
        assert!(contents(&disk).starts_with(b"\0"));
    }

    #[test]
    fn what_was_written_before_an_image_was_opened_is_flushed() {
        let mut disk = disk("flush-opened");
        disk.image = unflushable();
        disk.flush().expect_err("it reaches the image");
    }

    fn fill(disk: &Disk, block: u64, value: u8) {
        let offset = block * BLOCK_BYTES as u64;
        disk.image.write(offset, &[value; BLOCK_BYTES]).unwrap();
    }

    #[test]
    fn an_image_follows_from_checkpoint_to_checkpoint() {
        for seed in 0..20 {
            follow(seed, [disk("here"), disk("there")]);
        }
    }

    /// Images that have the same blocks elsewhere in their files, or have no file's room for some.
    #[test]
    fn an_image_follows_one_of_another_format() {
        if !has_programs() {
            return;
        }
        for (seed, is_here) in [(20, false), (21, true)] {
            let made = Made::new(
                "follows",
                &["-o", "cluster_size=4k"],
                BLOCKS * BLOCK_BYTES as u64,
            );
            let mut disks = [disk("raw"), made.open().unwrap()];
            if is_here {
                disks.reverse();
            }
            follow(seed, disks);
        }
    }

    /// The other image equals the one here at each checkpoint that has all blocks, and at no other
    /// time does it have any block that the last one did not have.
    fn follow(seed: u64, disks: [Disk; 2]) {
        let mut random = rand_pcg::Pcg64Mcg::seed_from_u64(seed);
        let mut below = |limit: u64| random.next_u64() % limit;
        let disks = disks.map(|disk| [Arc::new(disk)]);
        let [here, there] = &disks;
        here[0].may_write(true);
        for _ in 0..below(30) {
            fill(&disks[below(2) as usize][0], below(BLOCKS), below(3) as u8);
        }
        here[0].forget();
        let mut sums: Vec<Vec<u8>> = sums(there).map(Result::unwrap).collect();
        let mut staged = Staged::default();
        for round in 0..30 {
            for _ in 0..below(9) {
                let data = vec![below(4) as u8; 1 + below(9_000) as usize];
                let offset = below(here[0].bytes() - data.len() as u64);
                here[0].write(offset, &data).unwrap();
            }
            if round % 2 == 0
                && let Some(sums) = sums.pop()
            {
                compare(here, &sums).unwrap();
            }
            let taken = Taken::take(here, true).unwrap();
            if below(4) == 0 {
                taken.put_back(here);
                continue;
            }
            let (before, cut) = (contents(&there[0]), contents(&here[0]));
            for batch in &taken.batches {
                staged.add(batch, there).unwrap();
            }
            assert_eq!(
                contents(&there[0]),
                before,
                "seed {seed}: written too early"
            );
            staged.apply(there).unwrap();
            let is_same = contents(&there[0]) == cut;
            assert!(is_same || !sums.is_empty(), "seed {seed}, round {round}");
        }
        assert_eq!(sums.len(), 0);
    }

    #[test]
    fn only_what_differs_is_copied() {
        let disks = [disk("same-here"), disk("same-there")].map(|disk| [Arc::new(disk)]);
        let [here, there] = &disks;
        fill(&here[0], 17, 1);
        here[0].forget();
        assert_eq!(here[0].left_bytes(), here[0].bytes());
        for message in sums(there) {
            compare(here, &message.unwrap()).unwrap();
        }
        assert_eq!(here[0].left_bytes(), PIECE_BYTES as u64);
        let taken = Taken::take(here, false).unwrap();
        let bytes: usize = taken.batches.iter().map(Vec::len).sum();
        assert_eq!(bytes, PIECE_BLOCKS as usize * RECORD_BYTES);
        assert_eq!(here[0].left_bytes(), 0);
    }

    /// Runs that are longer than one read or write, with a gap, and one that ends with its disk.
    #[test]
    fn blocks_that_follow_each_other_travel_together() {
        let blocks = 3 * RUN_BLOCKS as u64 + 5;
        let two = |name: &str| [0, 1].map(|n| Arc::new(disk_of(&format!("{name}-{n}"), blocks)));
        let (here, there) = (two("runs-here"), two("runs-there"));
        for (number, disk) in here.iter().enumerate() {
            disk.may_write(true);
            for block in (0..blocks).filter(|block| block % 700 != 3) {
                let value = (block % 251) as u8 + number as u8;
                disk.write(block * BLOCK_BYTES as u64, &[value; BLOCK_BYTES])
                    .unwrap();
            }
        }
        let mut staged = Staged::default();
        let taken = Taken::take(&here, true).unwrap();
        for batch in &taken.batches {
            staged.add(batch, &there).unwrap();
        }
        staged.apply(&there).unwrap();
        for (here, there) in here.iter().zip(&there) {
            assert!(contents(here) == contents(there));
        }
    }

    /// A guest that writes more in each epoch than is copied besides.
    #[test]
    fn less_is_left_after_each_checkpoint_whatever_the_guest_writes() {
        let blocks = 4 * COPIED_BLOCKS;
        let disks = [Arc::new(disk_of("busy", blocks))];
        let disk = &disks[0];
        disk.may_write(true);
        disk.differ(0..blocks);
        let mut left_bytes = disk.left_bytes();
        let mut checkpoints = 0;
        while left_bytes > 0 {
            // The lowest blocks, again and again.
            for block in 0..COPIED_BLOCKS + 1 {
                disk.write(block * BLOCK_BYTES as u64, b"busy").unwrap();
            }
            let taken = Taken::take(&disks, false).unwrap();
            assert!(taken.left_bytes < left_bytes, "after {checkpoints}");
            left_bytes = taken.left_bytes;
            checkpoints += 1;
        }
        assert!(checkpoints > 1, "one had all of them");
    }

    #[test]
    fn as_much_as_no_standby_takes_is_left_as_long_as_writes_do_not_wait() {
        let disks = [Arc::new(disk("much"))];
        assert_eq!(most_of(&disks, true), STAGED_BLOCKS_MAX);
        let two = [disks[0].clone(), Arc::new(disk("much-more"))];
        assert_eq!(most_of(&two, true), 2 * STAGED_BLOCKS_MAX);
        disks[0].bound(true);
        assert_eq!(most_of(&disks, true), u64::MAX);
    }

    /// The operator's page says how much memory disks take (docs/how-to/protection.md).
    #[test]
    fn what_a_checkpoint_has_of_disks_is_bounded() {
        let epoch = STAGED_BLOCKS_MAX as usize * RECORD_BYTES;
        assert_eq!(epoch.div_ceil(1 << 20), 146);
        assert_eq!(STAGED_BYTES_MAX.div_ceil(1 << 20), 1167);
        let disks = [Arc::new(disk("memory"))];
        let block = [&place(0, 1)[..], &[0; BLOCK_BYTES]].concat();
        let mut staged = Staged {
            bytes: STAGED_BYTES_MAX - RECORD_BYTES,
            ..Staged::default()
        };
        staged.add(&block, &disks).unwrap();
        let more = staged.add(&block, &disks).unwrap_err();
        assert!(more.contains("more blocks"), "{more}");
    }

    /// Pages of a file that the system has in its cache.
    fn cached_pages(path: &Path, bytes: usize) -> usize {
        let file = File::open(path).unwrap();
        let mut pages = vec![0_u8; bytes.div_ceil(4096)];
        // SAFETY: the mapping is of this file, is not read, and ends here.
        unsafe {
            use std::os::fd::AsRawFd as _;
            let (at, shared) = (std::ptr::null_mut(), libc::MAP_SHARED);
            let at = libc::mmap(at, bytes, libc::PROT_READ, shared, file.as_raw_fd(), 0);
            assert_ne!(at, libc::MAP_FAILED);
            assert_eq!(libc::mincore(at, bytes, pages.as_mut_ptr()), 0);
            assert_eq!(libc::munmap(at, bytes), 0);
        }
        pages.iter().filter(|page| **page & 1 != 0).count()
    }

    #[test]
    fn what_is_read_of_an_image_comes_from_the_disk_and_not_from_a_cache() {
        const BYTES: usize = 1 << 20;
        let program = std::env::current_exe().unwrap();
        let directory = program.parent().unwrap();
        if statfs(directory).unwrap().filesystem_type() == TMPFS_MAGIC {
            eprintln!("SKIPPED: {} is in memory alone", directory.display());
            return;
        }
        let path = directory.join(format!("cached-{}.disk", std::process::id()));
        image(&path).write_all_at(&vec![1; BYTES], 0).unwrap();
        File::open(&path).unwrap().sync_all().unwrap();
        // Whoever needs memory may take the pages from the cache before they are counted.
        let is_cached = |_| {
            let bytes = std::fs::read(&path).unwrap().len();
            cached_pages(&path, bytes) > 0
        };
        assert!((0..1000).any(is_cached), "nothing stays in the cache");
        let opened = Disk::open(&path);
        let after = cached_pages(&path, BYTES);
        std::fs::remove_file(&path).unwrap();
        opened.unwrap();
        assert_eq!(after, 0);
    }

    #[test]
    fn a_flush_that_does_not_end_is_seen() {
        let disk = disk("hangs");
        assert_eq!(disk.flushes_since(), None);
        disk.flush().unwrap();
        assert_eq!(disk.flushes_since(), None);
        let begun = Instant::now();
        disk.flushes(Some(begun));
        assert_eq!(disk.flushes_since(), Some(begun));
    }

    #[test]
    fn a_piece_that_cannot_be_read_is_not_forgotten() {
        let mut here = disk("unreadable");
        let image = std::mem::replace(&mut here.image, special("/dev/null"));
        let mut disks = [Arc::new(here)];
        let there = [Arc::new(disk("readable"))];
        disks[0].forget();
        for message in sums(&there) {
            compare(&disks, &message.unwrap()).unwrap();
        }
        assert!(disks[0].take_failure().is_some());
        Taken::take(&disks, false).unwrap_err();
        // The image can be read again.
        Arc::get_mut(&mut disks[0]).unwrap().image = image;
        let taken = Taken::take(&disks, false).unwrap();
        let bytes: usize = taken.batches.iter().map(Vec::len).sum();
        assert_eq!(bytes, BLOCKS as usize * RECORD_BYTES);
        assert_eq!(taken.left_bytes, 0);
    }

    #[test]
    fn blocks_and_sums_of_other_disks_are_refused() {
        let disks = [Arc::new(disk("others"))];
        let block = |number, block| [&place(number, block)[..], &[0; BLOCK_BYTES]].concat();
        let mut staged = Staged::default();
        staged.add(&block(0, BLOCKS - 1), &disks).unwrap();
        for wrong in [block(1, 0), block(0, BLOCKS), vec![0; RECORD_BYTES - 1]] {
            assert!(staged.add(&wrong, &disks).is_err());
        }
        let sum = |number, first, bytes| [&place(number, first)[..], &vec![0; bytes]].concat();
        compare(&disks, &sum(0, 2, SUM_BYTES)).unwrap();
        for wrong in [
            sum(1, 0, SUM_BYTES),
            sum(0, 3, 0),
            sum(0, 2, 2 * SUM_BYTES),
            sum(0, 0, 1),
            vec![0; 7],
        ] {
            assert!(compare(&disks, &wrong).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn writes_wait_when_an_epoch_has_too_many() {
        let disk = disk("bounded");
        disk.may_write(true);
        disk.bound(true);
        disk.state().written += EPOCH_BLOCKS_MAX;
        std::thread::scope(|scope| {
            let written = scope.spawn(|| disk.write(0, b"late"));
            std::thread::sleep(std::time::Duration::from_millis(50));
            assert!(contents(&disk).starts_with(b"\0"), "it has not waited");
            disk.drain(true);
            written.join().unwrap().unwrap();
        });
        assert!(contents(&disk).starts_with(b"late"));
    }
}
