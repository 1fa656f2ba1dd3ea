//! A link in use, with one thread for each direction.

use std::io;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, SyncSender, channel, sync_channel};
use std::thread;

use super::faults::{Step, reach};
use super::priority;
use crate::protocol::message::{self, Message};
use crate::protocol::{CheckpointId, Part};
use crate::transport::{Closer, Link};

/// Received frames that wait to be taken; the other side has to wait while there are as many.
const FRAMES_MAX: usize = 16;

/// Something to send.
#[derive(Debug)]
pub enum Outgoing {
    /// A message without data.
    Message(Message<'static>),
    /// A part of a checkpoint.
    Chunk(Part, Arc<Vec<u8>>),
    /// Sums of disks, see [`Message::Sums`].
    Sums(CheckpointId, Vec<u8>),
    /// Everything that this channel delivers, until its sender is dropped.
    All(Receiver<Outgoing>),
}

/// Events of a connection.
#[derive(Debug)]
pub enum Heard {
    /// A frame has been received.
    Frame,
    /// The connection has ended, for this reason.
    Ended(io::Error),
}

/// A connection to the other host.
#[derive(Debug)]
pub struct Connection {
    /// Number of the connection, unique in this process.
    pub number: u64,
    /// Sequence number of the next frame from the other side.
    pub sequence: u64,
    closer: Closer,
    outgoing: Sender<Outgoing>,
    frames: Receiver<Vec<u8>>,
}

impl Connection {
    /// Starts both directions. `tell` is called from the connection's own threads.
    ///
    /// # Errors
    ///
    /// If there is no room for a thread.
    pub fn start(
        number: u64,
        link: Link,
        tell: impl Fn(u64, Heard) + Send + Clone + 'static,
    ) -> io::Result<Connection> {
        let Link {
            mut reader,
            mut writer,
            closer,
            ..
        } = link;
        let (outgoing, queue) = channel();
        let (taken, frames): (SyncSender<Vec<u8>>, _) = sync_channel(FRAMES_MAX);
        let (told, both) = (tell.clone(), closer.clone());
        thread::Builder::new()
            .name("receive".into())
            .spawn(move || {
                // The driver says so where this is not allowed.
                let _ = priority::raise();
                let ended = loop {
                    match reader.frame() {
                        Ok(frame) => match taken.send(frame) {
                            Ok(()) => told(number, Heard::Frame),
                            Err(_) => return,
                        },
                        Err(error) => break error,
                    }
                };
                both.close();
                told(number, Heard::Ended(ended));
            })?;
        let both = closer.clone();
        thread::Builder::new().name("send".into()).spawn(move || {
            let _ = priority::raise();
            let (mut sequence, mut frame) = (0, Vec::new());
            let mut send = |outgoing: &Outgoing| -> io::Result<()> {
                let message = match outgoing {
                    Outgoing::Message(message) => *message,
                    Outgoing::Chunk(part, data) => Message::Chunk(*part, &data[..]),
                    Outgoing::Sums(id, sums) => Message::Sums(*id, sums),
                    Outgoing::All(_) => return Ok(()),
                };
                frame.clear();
                message::encode(&message, sequence, &mut frame);
                sequence += 1;
                writer.send(&frame)?;
                match message {
                    Message::Begin(_) => reach(Step::Begun),
                    Message::End { .. } => reach(Step::Sent),
                    _ => {}
                }
                Ok(())
            };
            for outgoing in queue {
                let sent = match &outgoing {
                    Outgoing::All(all) => all.iter().try_for_each(|each| send(&each)),
                    one => send(one),
                };
                if let Err(error) = sent {
                    tell(number, Heard::Ended(error));
                    break;
                }
            }
            both.close();
        })?;
        Ok(Connection {
            number,
            sequence: 0,
            closer,
            outgoing,
            frames,
        })
    }

    /// Sends something after everything that was sent before. A failure is reported as the end of
    /// the connection.
    pub fn send(&self, outgoing: Outgoing) {
        // A missing receiver means that the connection has ended, which has been reported.
        let _ = self.outgoing.send(outgoing);
    }

    /// A sender for a thread with much to send, which waits for its turn like all else.
    pub fn sender(&self) -> Sender<Outgoing> {
        self.outgoing.clone()
    }

    /// The next received frame; `None` if there is none.
    pub fn frame(&self) -> Option<Vec<u8>> {
        self.frames.try_recv().ok()
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.closer.close();
    }
}
