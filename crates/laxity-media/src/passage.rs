//! The passages that `relay --passages` writes: the times of each packet of a load at the media server, and the thread
//! that handled it.

use crate::{MediaError, clock, rtp, stamp::Stamp};
use std::{
    fs::File,
    io::{self, BufWriter, Write},
    path::{Path, PathBuf},
    sync::{Mutex, PoisonError},
};

/// Most passages that a thread keeps: 256 MiB. They are written when the thread ends, since a thread that writes to a
/// file would be late.
const KEPT_MAX: usize = (256 << 20) / size_of::<Passage>();

/// A packet's passage through the media server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Passage {
    /// Number of its stream.
    pub stream: u16,
    /// Number of the packet in its stream.
    pub packet: u32,
    /// Thread that relayed it, as the kernel numbers threads.
    pub thread: i32,
    /// CLOCK_MONOTONIC when the kernel had it for the server's socket.
    pub arrived_ns: i64,
    /// CLOCK_MONOTONIC when the system call that sent it on was over.
    pub left_ns: i64,
    /// CPU time that the thread used from the end of the packet before to then.
    pub work_ns: i64,
}

/// File of the passages that all threads of the pool have seen.
pub struct Passages {
    path: PathBuf,
    file: Mutex<BufWriter<File>>,
}

impl Passages {
    /// An empty file.
    ///
    /// # Errors
    ///
    /// If it cannot be written.
    pub fn create(path: &Path) -> Result<Passages, MediaError> {
        let file = File::create(path).map_err(|source| unwritten(path, source))?;
        Ok(Passages {
            path: path.to_path_buf(),
            file: Mutex::new(BufWriter::new(file)),
        })
    }

    /// What one thread, the calling one, has seen so far: nothing.
    pub fn of_thread(&self) -> Seen<'_> {
        Seen {
            whole: self,
            thread: nix::unistd::gettid().as_raw(),
            used_ns: clock::thread_cpu_ns(),
            kept: Vec::new(),
            unkept: 0,
        }
    }
}

/// The passages that one thread has seen.
pub struct Seen<'p> {
    whole: &'p Passages,
    thread: i32,
    /// CPU time of the thread up to the end of the last packet.
    used_ns: i64,
    kept: Vec<Passage>,
    unkept: u64,
}

impl Seen<'_> {
    /// Notes that the thread, which is the calling one, has sent on the packet with that stamp.
    pub fn left(&mut self, stamp: &Stamp, arrived_ns: i64) {
        let used_ns = clock::thread_cpu_ns();
        let work_ns = used_ns - std::mem::replace(&mut self.used_ns, used_ns);
        if self.kept.len() == KEPT_MAX {
            self.unkept += 1;
            return;
        }
        self.kept.push(Passage {
            stream: stamp.stream,
            packet: stamp.packet,
            thread: self.thread,
            arrived_ns,
            left_ns: clock::monotonic_ns(),
            work_ns,
        });
    }

    /// Writes for each passage six little-endian numbers of 64 bits: stream, packet, thread, time of arrival, time of
    /// leaving and CPU time, in ns. Returns how many were too many to be kept.
    ///
    /// # Errors
    ///
    /// If the file cannot be written.
    pub fn finish(self) -> Result<u64, MediaError> {
        let failed = |source| unwritten(&self.whole.path, source);
        let mut file = (self.whole.file.lock()).unwrap_or_else(PoisonError::into_inner);
        for passage in &self.kept {
            for number in passage.numbers() {
                file.write_all(&number.to_le_bytes()).map_err(failed)?;
            }
        }
        file.flush().map_err(failed)?;
        Ok(self.unkept)
    }
}

impl Passage {
    fn numbers(&self) -> [i64; 6] {
        [
            self.stream.into(),
            self.packet.into(),
            self.thread.into(),
            self.arrived_ns,
            self.left_ns,
            self.work_ns,
        ]
    }
}

/// The stamp of a packet that a load has sent; `None` for any other datagram.
pub fn stamp_of(octets: &[u8]) -> Option<Stamp> {
    let header = rtp::parse(octets).ok()?;
    Stamp::read(header.law, &octets[header.payload])
}

fn unwritten(path: &Path, source: io::Error) -> MediaError {
    MediaError::Packets {
        path: path.to_path_buf(),
        source,
    }
}
