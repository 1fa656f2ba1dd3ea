//! The connection between two hosts: TCP with TLS 1.3, both sides authenticated by certificates.
//!
//! A [`Link`] is one connection for one virtual machine. After the handshake each side says which machine it means, and
//! what its guest runs on; then come the frames of [`protocol::message`](crate::protocol::message), one thread for each
//! direction.

pub mod authority;
mod keys;
mod web;

use std::io::{self, ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use nix::sys::socket::{setsockopt, sockopt};
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConnection, Connection, ServerConnection};
use serde::{Deserialize, Serialize};
use webpki::EndEntityCert;

use crate::protocol::message::{LENGTH_BYTES, rest_bytes};
pub(crate) use keys::REVOKED;
pub use keys::{Keys, KeysError};

/// Longest time for the handshake and the preamble together, and for sending one frame. A slower
/// host is useless as a standby.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(5);
/// Most bytes of one read.
const PART_BYTES: usize = 64 << 10;

/// The preamble of each side, before the first frame.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Preamble {
    /// Name of the virtual machine.
    pub vm: String,
    /// Properties of the guest that must be the same on both sides for a state to be usable, in
    /// words.
    pub guest: String,
}

/// An established connection.
#[derive(Debug)]
pub struct Link {
    /// Authenticated name of the other side.
    pub peer: String,
    /// Preamble of the other side.
    pub preamble: Preamble,
    /// Receiving direction.
    pub reader: Reader,
    /// Sending direction.
    pub writer: Writer,
    /// Handle that ends both directions.
    pub closer: Closer,
}

/// Connects to a host.
///
/// # Errors
///
/// If it does not answer, is another, or does not know us.
pub fn dial(keys: &Keys, address: SocketAddr, peer: &str, preamble: &Preamble) -> io::Result<Link> {
    let deadline = Instant::now() + TIMEOUT;
    let stream = TcpStream::connect_timeout(&address, TIMEOUT)?;
    let name = ServerName::try_from(peer.to_string()).map_err(io::Error::other)?;
    let client = ClientConnection::new(keys.client.clone(), name).map_err(io::Error::other)?;
    let (mut link, _) = handshake(stream, client.into(), deadline)?;
    link.say(preamble)?;
    link.preamble = link.hear()?;
    link.peer = peer.into();
    Ok(link)
}

/// Accepts a connection from [`dial`], whose client has until the deadline to authenticate and to
/// send its preamble. `answer` receives the client's name, one of `hosts`, and its preamble; it
/// returns the answer, or a refusal in words for the log.
///
/// # Errors
///
/// If it does not prove to be one of the hosts, or was refused.
pub fn accept(
    keys: &Keys,
    stream: TcpStream,
    deadline: Instant,
    hosts: &[String],
    answer: impl FnOnce(&str, &Preamble) -> Result<Preamble, String>,
) -> io::Result<Link> {
    let server = ServerConnection::new(keys.server.clone()).map_err(io::Error::other)?;
    let (mut link, certificate) = handshake(stream, server.into(), deadline)?;
    let certificate = EndEntityCert::try_from(&certificate).map_err(io::Error::other)?;
    let is_for = |host: &&String| {
        ServerName::try_from(host.as_str())
            .is_ok_and(|name| certificate.verify_is_valid_for_subject_name(&name).is_ok())
    };
    let peer = hosts
        .iter()
        .find(is_for)
        .ok_or_else(|| io::Error::other("its certificate names none of the hosts"))?;
    link.peer.clone_from(peer);
    link.preamble = link.hear()?;
    let answer = answer(peer, &link.preamble).map_err(io::Error::other)?;
    link.say(&answer)?;
    Ok(link)
}

/// A link whose other side has authenticated and not sent its preamble yet.
fn handshake(
    stream: TcpStream,
    mut tls: Connection,
    deadline: Instant,
) -> io::Result<(Link, CertificateDer<'static>)> {
    stream.set_nodelay(true)?;
    stream.set_write_timeout(Some(TIMEOUT))?;
    setsockopt(&stream, sockopt::KeepAlive, &true)?;
    setsockopt(
        &stream,
        sockopt::TcpUserTimeout,
        &(TIMEOUT.as_millis() as u32),
    )?;
    while tls.is_handshaking() {
        tls.complete_io(&mut Until {
            stream: &stream,
            deadline,
        })?;
    }
    let certificate = tls
        .peer_certificates()
        .and_then(<[_]>::first)
        .ok_or(ErrorKind::PermissionDenied)?;
    let certificate = certificate.clone().into_owned();
    // Sent data is encrypted in the given parts, without a buffer.
    tls.set_buffer_limit(None);
    let tls = Arc::new(Mutex::new(tls));
    let stream = Arc::new(stream);
    let link = Link {
        peer: String::new(),
        preamble: Preamble::default(),
        reader: Reader {
            stream: stream.clone(),
            deadline: Some(deadline),
            tls: tls.clone(),
            received: Vec::new(),
            taken: 0,
        },
        writer: Writer {
            stream: stream.clone(),
            tls,
            encrypted: Vec::new(),
        },
        closer: Closer(stream),
    };
    Ok((link, certificate))
}

impl Link {
    /// Sends the preamble: a line of JSON behind its length (32 bits, little endian).
    fn say(&mut self, preamble: &Preamble) -> io::Result<()> {
        let text = serde_json::to_vec(preamble)?;
        let length = (text.len() as u32).to_le_bytes();
        self.writer.send(&[&length[..], &text].concat())
    }

    fn hear(&mut self) -> io::Result<Preamble> {
        const BYTES_MAX: usize = 4096;
        let length = u32::from_le_bytes(*self.reader.take()?) as usize;
        if length > BYTES_MAX {
            return Err(io::Error::other("its first message is too long"));
        }
        let preamble = serde_json::from_slice(self.reader.take_some(length)?)?;
        // The protocol judges silence from now on.
        self.reader.deadline = None;
        self.reader.stream.set_read_timeout(None)?;
        Ok(preamble)
    }
}

/// Receives frames from a link.
#[derive(Debug)]
pub struct Reader {
    stream: Arc<TcpStream>,
    /// Deadline for the preamble; `None` after it.
    deadline: Option<Instant>,
    tls: Arc<Mutex<Connection>>,
    /// Decrypted bytes; those before `taken` have been used.
    received: Vec<u8>,
    taken: usize,
}

impl Reader {
    /// Waits for the next frame, length included.
    ///
    /// # Errors
    ///
    /// If the link has ended, or what comes is no frame.
    pub fn frame(&mut self) -> io::Result<Vec<u8>> {
        let length: [u8; LENGTH_BYTES] = *self.take()?;
        let rest = self.take_some(rest_bytes(length).map_err(io::Error::other)?)?;
        Ok([&length[..], rest].concat())
    }

    fn take<const BYTES: usize>(&mut self) -> io::Result<&[u8; BYTES]> {
        let taken = self.take_some(BYTES)?;
        Ok(taken.first_chunk().expect("so many were taken"))
    }

    fn take_some(&mut self, bytes: usize) -> io::Result<&[u8]> {
        self.fill(bytes)?;
        let begin = self.taken;
        self.taken += bytes;
        Ok(&self.received[begin..self.taken])
    }

    /// Reads until at least `bytes` bytes can be taken.
    fn fill(&mut self, bytes: usize) -> io::Result<()> {
        let mut part = [0; PART_BYTES];
        while self.received.len() - self.taken < bytes {
            // Data may have arrived together with the handshake.
            let mut tls = self.tls.lock().unwrap_or_else(PoisonError::into_inner);
            self.received.drain(..self.taken);
            self.taken = 0;
            take(&mut tls, &mut self.received)?;
            drop(tls);
            if self.received.len() >= bytes {
                break;
            }
            let count = match self.deadline {
                Some(deadline) => Until {
                    stream: &self.stream,
                    deadline,
                }
                .read(&mut part)?,
                None => (&*self.stream).read(&mut part)?,
            };
            if count == 0 {
                return Err(ErrorKind::UnexpectedEof.into());
            }
            let mut encrypted = &part[..count];
            let mut tls = self.tls.lock().unwrap_or_else(PoisonError::into_inner);
            while !encrypted.is_empty() {
                tls.read_tls(&mut encrypted)?;
                tls.process_new_packets().map_err(io::Error::other)?;
                take(&mut tls, &mut self.received)?;
            }
        }
        Ok(())
    }
}

/// A stream with one deadline for all reads: a timeout for each read would let the other side take
/// as long as it likes.
struct Until<'s> {
    stream: &'s TcpStream,
    deadline: Instant,
}

impl Read for Until<'_> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let left = self.deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(ErrorKind::TimedOut.into());
        }
        self.stream.set_read_timeout(Some(left))?;
        self.stream.read(into)
    }
}

impl Write for Until<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.stream.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.stream.flush()
    }
}

/// Takes all decrypted bytes.
fn take(tls: &mut Connection, into: &mut Vec<u8>) -> io::Result<()> {
    match tls.reader().read_to_end(into) {
        Ok(_) => Ok(()),
        Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(()),
        Err(error) => Err(error),
    }
}

/// Sends frames on a link.
#[derive(Debug)]
pub struct Writer {
    stream: Arc<TcpStream>,
    tls: Arc<Mutex<Connection>>,
    encrypted: Vec<u8>,
}

impl Writer {
    /// Sends a frame. Waits while the other side does not take earlier frames.
    ///
    /// # Errors
    ///
    /// If the link has ended, or the other side takes nothing for too long.
    pub fn send(&mut self, frame: &[u8]) -> io::Result<()> {
        // The frame is sent in parts, so that received data does not wait for long.
        for part in frame.chunks(PART_BYTES) {
            self.encrypted.clear();
            let mut tls = self.tls.lock().unwrap_or_else(PoisonError::into_inner);
            tls.writer().write_all(part)?;
            while tls.wants_write() {
                tls.write_tls(&mut self.encrypted)?;
            }
            drop(tls);
            (&*self.stream).write_all(&self.encrypted)?;
        }
        Ok(())
    }
}

/// Ends a link from any thread.
#[derive(Debug, Clone)]
pub struct Closer(Arc<TcpStream>);

impl Closer {
    /// Ends the link now.
    pub fn close(&self) {
        // The link may have ended before.
        let _ = self.0.shutdown(Shutdown::Both);
    }
}

#[cfg(test)]
mod tests;
