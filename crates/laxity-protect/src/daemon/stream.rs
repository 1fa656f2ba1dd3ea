//! A byte stream in both directions on a link, with messages in between: carries the dialogue of
//! `xl remus` and `xl migrate-receive`.

use std::convert::Infallible;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd as _, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, channel, sync_channel};
use std::thread;

use lz4_flex::block::{compress_prepend_size, decompress_size_prepended};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use super::xl::pause;
use crate::clock::now_ns;
use crate::protocol::Part;
use crate::protocol::message::{self, Message};
use crate::transport::{Closer, Link, Reader, Writer};

/// Most bytes of one read.
pub const PIECE_BYTES: usize = 64 << 10;
/// Pieces that wait to be sent; their producer has to wait while there are as many.
const OUT_MAX: usize = 16;
/// Received pieces that wait to be taken; the other side has to wait while there are as many.
const IN_MAX: usize = 1024;

/// Events of a connection.
#[derive(Debug)]
pub enum Event {
    /// A message of the other side.
    Message(Message<'static>),
    /// The connection of `xl remus` as its outgoing stream.
    Carrier(UnixStream),
    /// The connection has ended, for this reason.
    Ended(io::Error),
}

#[derive(Debug)]
enum Out {
    Message(Message<'static>),
    Bytes(Vec<u8>),
}

/// Sender of pieces of the stream.
#[derive(Debug, Clone)]
pub struct Stream(SyncSender<Out>);

/// Observations of the other side, which other threads read.
#[derive(Debug, Default)]
pub struct Signs {
    heard_ns: AtomicI64,
    /// Whether more has arrived than is taken here: the other side is not silent then.
    is_full: AtomicBool,
    acknowledged: AtomicU64,
    bytes: AtomicU64,
}

impl Signs {
    /// Time of the last sign of life, by the host's clock.
    pub fn heard_ns(&self) -> i64 {
        if self.is_full.load(Ordering::Relaxed) {
            return now_ns();
        }
        self.heard_ns.load(Ordering::Relaxed)
    }

    /// Number of checkpoints that the standby has acknowledged: each is a zero byte on the way
    /// back, where no other zeros occur.
    pub fn acknowledged(&self) -> u64 {
        self.acknowledged.load(Ordering::Relaxed)
    }

    /// Bytes of the stream in both directions, before compression.
    pub fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    fn note_back(&self, bytes: &[u8]) {
        let zeros = bytes.iter().filter(|byte| **byte == 0).count();
        self.acknowledged.fetch_add(zeros as u64, Ordering::Relaxed);
    }
}

/// A connection that carries one stream.
#[derive(Debug)]
pub struct Wire {
    /// Number of the connection, unique in this process.
    pub number: u64,
    closer: Closer,
    out: SyncSender<Out>,
    bytes: Option<Receiver<Vec<u8>>>,
    signs: Arc<Signs>,
}

impl Wire {
    /// Starts both directions. `tell` is called from the connection's own threads.
    ///
    /// # Errors
    ///
    /// If there is no room for a thread.
    pub fn start(
        number: u64,
        link: Link,
        tell: impl Fn(u64, Event) + Send + Clone + 'static,
    ) -> io::Result<Wire> {
        let Link {
            reader,
            writer,
            closer,
            ..
        } = link;
        let (out, outgoing) = sync_channel(OUT_MAX);
        let (taken, bytes) = sync_channel(IN_MAX);
        let signs = Arc::new(Signs::default());
        signs.heard_ns.store(now_ns(), Ordering::Relaxed);
        let (seen, told, both) = (signs.clone(), tell.clone(), closer.clone());
        thread::Builder::new()
            .name("receive".into())
            .spawn(move || {
                let ended = receive(reader, &taken, &seen, |message| {
                    told(number, Event::Message(message))
                });
                both.close();
                told(number, Event::Ended(ended));
            })?;
        let both = closer.clone();
        thread::Builder::new().name("send".into()).spawn(move || {
            if let Err(error) = send(writer, outgoing) {
                tell(number, Event::Ended(error));
            }
            both.close();
        })?;
        Ok(Wire {
            number,
            closer,
            out,
            bytes: Some(bytes),
            signs,
        })
    }

    /// Sends a message, unless so much of the stream waits before it that the stream is itself a
    /// sign of life.
    pub fn send(&self, message: Message<'static>) {
        let _ = match message {
            Message::Heartbeat => self.out.try_send(Out::Message(message)).ok(),
            _ => self.out.send(Out::Message(message)).ok(),
        };
    }

    /// Sender of pieces of the stream.
    pub fn stream(&self) -> Stream {
        Stream(self.out.clone())
    }

    /// Receiver of the stream's pieces; returns it only once.
    pub fn take_bytes(&mut self) -> Option<Receiver<Vec<u8>>> {
        self.bytes.take()
    }

    /// Whether it has carried no stream so far.
    pub fn is_fresh(&self) -> bool {
        self.bytes.is_some()
    }

    /// Observations of the other side.
    pub fn signs(&self) -> Arc<Signs> {
        self.signs.clone()
    }
}

impl Drop for Wire {
    fn drop(&mut self) {
        self.closer.close();
    }
}

fn send(mut writer: Writer, outgoing: Receiver<Out>) -> io::Result<()> {
    let mut frame = Vec::new();
    for (sequence, out) in (0..).zip(outgoing) {
        frame.clear();
        match out {
            Out::Message(message) => message::encode(&message, sequence, &mut frame),
            Out::Bytes(bytes) => {
                // Compression pays because most of a guest's memory is zero at first.
                let packed = compress_prepend_size(&bytes);
                message::encode(&Message::Chunk(Part::Ram, &packed), sequence, &mut frame);
            }
        }
        writer.send(&frame)?;
    }
    Ok(())
}

fn receive(
    mut reader: Reader,
    taken: &SyncSender<Vec<u8>>,
    signs: &Signs,
    tell: impl Fn(Message<'static>),
) -> io::Error {
    for sequence in 0.. {
        let frame = match reader.frame() {
            Ok(frame) => frame,
            Err(error) => return error,
        };
        signs.heard_ns.store(now_ns(), Ordering::Relaxed);
        match message::decode(&frame, sequence) {
            Ok(Message::Chunk(_, packed)) => {
                let bytes = match unpack(packed) {
                    Ok(bytes) => bytes,
                    Err(error) => return error,
                };
                signs.bytes.fetch_add(bytes.len() as u64, Ordering::Relaxed);
                signs.is_full.store(true, Ordering::Relaxed);
                // A receiver that has gone needs no more pieces.
                let _ = taken.send(bytes);
                signs.is_full.store(false, Ordering::Relaxed);
            }
            Ok(Message::Hello(hello)) => tell(Message::Hello(hello)),
            Ok(Message::Disarm { term }) => tell(Message::Disarm { term }),
            Ok(Message::Heartbeat) => {}
            Ok(other) => return io::Error::other(format!("{other:?} does not belong to a stream")),
            Err(refused) => return io::Error::other(refused),
        }
    }
    io::ErrorKind::UnexpectedEof.into()
}

/// The piece of a stream in a message.
///
/// # Errors
///
/// If it is damaged, or longer than any piece.
pub fn unpack(packed: &[u8]) -> io::Result<Vec<u8>> {
    let claimed = packed
        .first_chunk()
        .map_or(0, |bytes| u32::from_le_bytes(*bytes));
    if claimed as usize > PIECE_BYTES {
        return Err(io::Error::other(format!(
            "a piece of {claimed} bytes: no piece is so long"
        )));
    }
    decompress_size_prepended(packed).map_err(io::Error::other)
}

/// A thread that copies everything from `from` to the stream until its end; `back` counts the
/// acknowledgements in it.
///
/// # Errors
///
/// If there is no room for a thread.
pub fn copy_out(
    mut from: impl Read + Send + 'static,
    to: Stream,
    back: Option<Arc<Signs>>,
) -> io::Result<()> {
    let spawned = thread::Builder::new().name("out".into()).spawn(move || {
        let mut piece = vec![0; PIECE_BYTES];
        while let Ok(count @ 1..) = from.read(&mut piece) {
            let sent = to.0.send(Out::Bytes(piece[..count].to_vec()));
            if let Some(signs) = &back {
                signs.note_back(&piece[..count]);
                signs.bytes.fetch_add(count as u64, Ordering::Relaxed);
            }
            if sent.is_err() {
                return;
            }
        }
    });
    spawned.map(drop)
}

/// A thread that writes the received pieces to `to` until there are no more, and closes `to` when
/// `open` has been dropped, too: for xl the end of its input is the end of the other host. `back`
/// counts the acknowledgements in the pieces.
///
/// # Errors
///
/// If there is no room for a thread.
pub fn copy_in(
    pieces: Receiver<Vec<u8>>,
    mut to: impl Write + Send + 'static,
    open: Receiver<Infallible>,
    back: Option<Arc<Signs>>,
) -> io::Result<()> {
    let spawned = thread::Builder::new().name("in".into()).spawn(move || {
        for piece in pieces {
            if let Some(signs) = &back {
                signs.note_back(&piece);
            }
            if to.write_all(&piece).is_err() {
                return;
            }
        }
        // Nothing is ever sent on this channel; only its end matters.
        let _ = open.recv();
    });
    spawned.map(drop)
}

/// The program that `xl remus` starts as its outgoing stream: copies between its standard input and
/// output and the daemon's socket. It ends with xl, or when the daemon sends SIGTERM. If the daemon
/// ends without that, the other host takes over: the domain is paused before this program ends,
/// because Remus lets the domain run on at the end of its stream, whatever the other host does.
///
/// # Errors
///
/// If the daemon does not wait for it, or has gone.
pub fn carry(socket: &Path, domain: &str) -> io::Result<()> {
    let mut daemon = UnixStream::connect(socket)?;
    let mut back = daemon.try_clone()?;
    // The output is not buffered by lines: an acknowledgement is a single byte that must not wait.
    let mut output = File::from(io::stdout().as_fd().try_clone_to_owned()?);
    let (gone, is_gone) = channel();
    let there = gone.clone();
    thread::Builder::new().name("back".into()).spawn(move || {
        // Pieces are copied one by one, because the library's copy function would hold small ones
        // back.
        let mut piece = vec![0; PIECE_BYTES];
        while let Ok(count @ 1..) = back.read(&mut piece) {
            if output.write_all(&piece[..count]).is_err() {
                return;
            }
        }
        let _ = gone.send(Who::Daemon);
    })?;
    thread::Builder::new().name("there".into()).spawn(move || {
        let mut piece = vec![0; PIECE_BYTES];
        let mut input = io::stdin().lock();
        while let Ok(count @ 1..) = input.read(&mut piece) {
            if daemon.write_all(&piece[..count]).is_err() {
                return;
            }
        }
        let _ = there.send(Who::Xl);
    })?;
    match is_gone.recv() {
        Ok(Who::Daemon) if !has_ended(io::stdin().as_fd())? => {
            let paused = pause(domain);
            let why = "the daemon has gone, and the other host may take over";
            Err(io::Error::other(match paused {
                Ok(()) => format!("{why}: the domain is paused"),
                Err(error) => format!("{why}: {error}"),
            }))
        }
        _ => Ok(()),
    }
}

/// The side that ended first.
enum Who {
    Xl,
    Daemon,
}

/// Whether nobody writes into a pipe any more.
fn has_ended(pipe: BorrowedFd<'_>) -> io::Result<bool> {
    let mut polled = [PollFd::new(pipe, PollFlags::empty())];
    poll(&mut polled, PollTimeout::ZERO)?;
    let said = polled[0].revents().unwrap_or(PollFlags::empty());
    Ok(said.contains(PollFlags::POLLHUP))
}
