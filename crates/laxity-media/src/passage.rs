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

/// Readings of the clock that find out what one takes.
const CLOCK_READINGS: u32 = 100;

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
    /// The thread's steps to the packet.
    pub steps: Steps,
}

/// The steps of a thread from the end of one packet to the end of the next one.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Steps {
    /// CLOCK_MONOTONIC when the thread had nothing left to do and began to wait. A packet that arrived later woke it.
    pub waited_ns: i64,
    /// CLOCK_MONOTONIC when the thread was told of a packet.
    pub woken_ns: i64,
    /// CPU time from the end of the packet before until the thread waited.
    pub end_cpu_ns: i64,
    /// CPU time of the system call that received the packet.
    pub receive_cpu_ns: i64,
    /// CPU time of processing the packet.
    pub process_cpu_ns: i64,
    /// CLOCK_MONOTONIC when the thread began to send the packet on.
    pub sent_ns: i64,
    /// CPU time of the system call that sent it on.
    pub send_cpu_ns: i64,
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
        let read = || clock::thread_cpu_ns();
        let clock_ns = (0..CLOCK_READINGS).map(|_| -(read() - read())).min();
        Seen {
            whole: self,
            thread: nix::unistd::gettid().as_raw(),
            clock_ns: clock_ns.unwrap_or(0),
            used_ns: clock::thread_cpu_ns(),
            step_ns: clock::thread_cpu_ns(),
            steps: Steps::default(),
            kept: Vec::new(),
            unkept: 0,
        }
    }
}

/// The passages that one thread has seen.
pub struct Seen<'p> {
    whole: &'p Passages,
    thread: i32,
    /// CPU time of reading the clock once.
    clock_ns: i64,
    /// CPU time of the thread up to the end of the last packet.
    used_ns: i64,
    /// CPU time of the thread up to the end of the last step.
    step_ns: i64,
    /// Those to the present packet.
    steps: Steps,
    kept: Vec<Passage>,
    unkept: u64,
}

impl Seen<'_> {
    /// Notes that the thread waits for a packet.
    pub fn wait(&mut self) {
        self.steps.end_cpu_ns = self.step();
        self.steps.waited_ns = clock::monotonic_ns();
    }

    /// Notes that the thread was told of a packet.
    pub fn wake(&mut self) {
        self.steps.woken_ns = clock::monotonic_ns();
        self.step();
    }

    /// Notes that the thread has received packets.
    pub fn receive(&mut self) {
        self.steps.receive_cpu_ns = self.step();
    }

    /// Notes that the thread has processed a packet.
    pub fn process(&mut self) {
        self.steps.process_cpu_ns = self.step();
        self.steps.sent_ns = clock::monotonic_ns();
    }

    /// CPU time since the last step, without that of reading the clock.
    fn step(&mut self) -> i64 {
        let now_ns = clock::thread_cpu_ns();
        let before_ns = std::mem::replace(&mut self.step_ns, now_ns);
        (now_ns - before_ns - self.clock_ns).max(0)
    }

    /// Notes that the thread, which is the calling one, has sent on the packet with that stamp.
    pub fn left(&mut self, stamp: &Stamp, arrived_ns: i64) {
        self.steps.send_cpu_ns = self.step();
        let used_ns = self.step_ns;
        let work_ns = used_ns - std::mem::replace(&mut self.used_ns, used_ns);
        let left_ns = clock::monotonic_ns();
        // Further packets of the same socket are found without looking.
        let next = Steps {
            waited_ns: left_ns,
            woken_ns: left_ns,
            ..Steps::default()
        };
        let steps = std::mem::replace(&mut self.steps, next);
        if self.kept.len() == KEPT_MAX {
            self.unkept += 1;
            return;
        }
        self.kept.push(Passage {
            stream: stamp.stream,
            packet: stamp.packet,
            thread: self.thread,
            arrived_ns,
            left_ns,
            work_ns,
            steps,
        });
    }

    /// Writes for each passage thirteen little-endian numbers of 64 bits: stream, packet, thread, time of arrival,
    /// time of leaving, CPU time, and the thread's steps, in ns. Returns how many were too many to be kept.
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
    fn numbers(&self) -> [i64; 13] {
        [
            self.stream.into(),
            self.packet.into(),
            self.thread.into(),
            self.arrived_ns,
            self.left_ns,
            self.work_ns,
            self.steps.waited_ns,
            self.steps.woken_ns,
            self.steps.end_cpu_ns,
            self.steps.receive_cpu_ns,
            self.steps.process_cpu_ns,
            self.steps.sent_ns,
            self.steps.send_cpu_ns,
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
