//! The two ends of a gate: QEMU's stream of frames, and a tap device.

use std::collections::VecDeque;
use std::fs::{File, OpenOptions};
use std::io::{self, ErrorKind, Read as _, Write as _};
use std::net::Shutdown;
use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd};
use std::os::unix::fs::OpenOptionsExt as _;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;

use nix::net::if_::if_nametoindex;
use serde::Serialize;

use super::frames::{Deframer, FRAME_BYTES_MAX, length_of};

/// The network behind a gate.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Outside {
    /// An existing tap device, which the operator has put on a bridge.
    Tap(String),
    /// A stream socket in the format of QEMU's netdev `stream`, such as that of a virtual switch.
    Socket(PathBuf),
}

/// One end of a gate.
#[derive(Debug)]
pub enum Port {
    /// A tap device.
    Tap(Tap),
    /// A stream of frames.
    Stream(FrameStream),
}

impl Port {
    /// Opens the outside.
    ///
    /// # Errors
    ///
    /// If it is not there.
    pub fn open(outside: &Outside) -> io::Result<Port> {
        Ok(match outside {
            Outside::Tap(name) => Port::Tap(Tap::open(name)?),
            Outside::Socket(path) => Port::Stream(FrameStream::new(UnixStream::connect(path)?)?),
        })
    }

    /// The next received frame; `None` if there is none.
    ///
    /// # Errors
    ///
    /// If the other side has gone.
    pub fn receive(&mut self) -> io::Result<Option<&[u8]>> {
        match self {
            Port::Tap(tap) => tap.receive(),
            Port::Stream(stream) => stream.receive(),
        }
    }

    /// Whether the next frame has been read, so that waiting for the other side would be in vain.
    pub fn has_received(&self) -> bool {
        matches!(self, Port::Stream(stream) if stream.has_received())
    }

    /// Sends a frame. Returns false if there was no room and it is lost.
    ///
    /// # Errors
    ///
    /// If the other side has gone.
    pub fn send(&mut self, frame: &[u8]) -> io::Result<bool> {
        match self {
            Port::Tap(tap) => tap.send(frame),
            Port::Stream(stream) => stream.send(frame),
        }
    }

    /// Whether frames wait for room.
    pub fn has_pending(&self) -> bool {
        matches!(self, Port::Stream(stream) if stream.has_pending())
    }

    /// Sends waiting frames as far as there is room.
    ///
    /// # Errors
    ///
    /// If the other side has gone.
    pub fn flush(&mut self) -> io::Result<()> {
        match self {
            Port::Tap(_) => Ok(()),
            Port::Stream(stream) => stream.flush(),
        }
    }
}

impl AsFd for Port {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Port::Tap(tap) => tap.device.as_fd(),
            Port::Stream(stream) => stream.as_fd(),
        }
    }
}

impl AsFd for FrameStream {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }
}

/// A stream on which each frame is preceded by its length.
#[derive(Debug)]
pub struct FrameStream {
    stream: UnixStream,
    deframer: Deframer,
    part: Vec<u8>,
    /// Unsent bytes: the rest of a frame, and complete ones behind it.
    pending: VecDeque<u8>,
}

impl FrameStream {
    const PART_BYTES: usize = 256 << 10;
    /// Limit of unsent bytes; a frame beyond it is lost, as in any network.
    const PENDING_BYTES_MAX: usize = 1 << 20;

    /// Takes a stream, which does not block from then on.
    ///
    /// # Errors
    ///
    /// If the system refuses.
    pub fn new(stream: UnixStream) -> io::Result<FrameStream> {
        stream.set_nonblocking(true)?;
        Ok(FrameStream {
            stream,
            deframer: Deframer::default(),
            part: vec![0; FrameStream::PART_BYTES],
            pending: VecDeque::new(),
        })
    }

    /// See [`Port::receive`].
    ///
    /// # Errors
    ///
    /// If the other side has gone, or is out of step.
    pub fn receive(&mut self) -> io::Result<Option<&[u8]>> {
        while !self.deframer.has_frame().map_err(io::Error::other)? {
            match self.stream.read(&mut self.part) {
                Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
                Ok(count) => self.deframer.add(&self.part[..count]),
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(None),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        self.deframer.frame().map_err(io::Error::other)
    }

    /// See [`Port::has_received`]. A stream that is out of step has something to tell, too.
    pub fn has_received(&self) -> bool {
        self.deframer.has_frame().unwrap_or(true)
    }

    /// Whether the received bytes end with a complete frame.
    pub fn is_between(&self) -> bool {
        self.deframer.is_between()
    }

    /// See [`Port::send`].
    ///
    /// # Errors
    ///
    /// If the other side has gone.
    pub fn send(&mut self, frame: &[u8]) -> io::Result<bool> {
        self.flush()?;
        if self.pending.len() + frame.len() > FrameStream::PENDING_BYTES_MAX {
            return Ok(false);
        }
        self.pending.extend(length_of(frame));
        self.pending.extend(frame);
        self.flush()?;
        Ok(true)
    }

    /// See [`Port::has_pending`].
    pub fn has_pending(&self) -> bool {
        !self.pending.is_empty()
    }

    /// See [`Port::flush`].
    ///
    /// # Errors
    ///
    /// If the other side has gone.
    pub fn flush(&mut self) -> io::Result<()> {
        while !self.pending.is_empty() {
            match self.stream.write(self.pending.make_contiguous()) {
                Ok(count) => drop(self.pending.drain(..count)),
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Ends the connection even if another process holds a copy of the descriptor: the other side
    /// sees that at once.
    pub fn end(self) {
        // Shutting down fails only where the other side has ended the connection before.
        let _ = self.stream.shutdown(Shutdown::Both);
    }
}

/// A tap device: the host's end of a cable to the guest.
#[derive(Debug)]
pub struct Tap {
    device: File,
    frame: Vec<u8>,
}

// SAFETY of its callers: the argument is a `struct ifreq`, which the kernel reads.
nix::ioctl_write_ptr_bad!(tunsetiff, TUNSETIFF, libc::ifreq);
/// The request _IOW('T', 202, int) of linux/if_tun.h.
const TUNSETIFF: libc::c_ulong = 0x4004_54ca;

impl Tap {
    fn open(name: &str) -> io::Result<Tap> {
        if if_nametoindex(name).is_err() {
            let help = format!(
                "there is no interface {name}: make it, and put it on the bridge (ip tuntap add dev {name} mode tap; \
                 ip link set {name} master BRIDGE up)"
            );
            return Err(io::Error::new(ErrorKind::NotFound, help));
        }
        let mut options = OpenOptions::new();
        let device = options
            .read(true)
            .write(true)
            .custom_flags(libc::O_NONBLOCK)
            .open("/dev/net/tun")?;
        // SAFETY: a structure of integers and bytes, for which zeros are a value.
        let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
        let room = request.ifr_name.len() - 1;
        for (to, from) in request.ifr_name.iter_mut().zip(name.bytes().take(room)) {
            *to = from as libc::c_char;
        }
        request.ifr_ifru.ifru_flags = (libc::IFF_TAP | libc::IFF_NO_PI) as libc::c_short;
        // SAFETY: the descriptor is that of the tun device, and `request` lives until the call is over.
        unsafe { tunsetiff(device.as_raw_fd(), &raw const request) }?;
        Ok(Tap {
            device,
            frame: vec![0; FRAME_BYTES_MAX],
        })
    }

    fn receive(&mut self) -> io::Result<Option<&[u8]>> {
        loop {
            match self.device.read(&mut self.frame) {
                Ok(count) => return Ok(Some(&self.frame[..count])),
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(None),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }

    fn send(&mut self, frame: &[u8]) -> io::Result<bool> {
        loop {
            match self.device.write(frame) {
                Ok(_) => return Ok(true),
                // The frame is lost if the device is full or down, or the frame is invalid: an
                // operator may take a link down and up again.
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(false),
                Err(error) if matches!(error.raw_os_error(), Some(libc::EIO | libc::EINVAL)) => {
                    return Ok(false);
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }
}
