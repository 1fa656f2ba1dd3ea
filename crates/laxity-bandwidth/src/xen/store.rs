//! A connection to xenstore (`xen/io/xs_wire.h`) that reads, writes and removes keys. The only
//! crate for it is under the GPL-3.0, with which this licence is not compatible.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

const READ: u32 = 2;
const WRITE: u32 = 11;
const RM: u32 = 13;
const WATCH_EVENT: u32 = 15;
const ERROR: u32 = 16;
const PAYLOAD_BYTES_MAX: usize = 4096;

/// The socket of xenstored, and the kernel's device for it.
const SOCKET: &str = "/run/xenstored/socket";
const DEVICE: &str = "/dev/xen/xenbus";

trait Stream: Read + Write + Send {}
impl<T: Read + Write + Send> Stream for T {}

/// One connection.
pub struct Store {
    stream: Box<dyn Stream>,
    request: u32,
}

impl Store {
    /// Connects where a driver domain finds xenstore.
    ///
    /// # Errors
    ///
    /// The system's, as for all that follows; also if xenstore says no.
    pub fn open() -> io::Result<Store> {
        Store::connect(Path::new(SOCKET)).or_else(|_| {
            let device = File::options().read(true).write(true).open(DEVICE)?;
            Ok(Store::over(device))
        })
    }

    /// Connects to the socket of a xenstored.
    pub fn connect(socket: &Path) -> io::Result<Store> {
        /// Limit for an answer, so that a store that does not answer cannot stop the loop for good.
        const TIMEOUT: Duration = Duration::from_secs(5);
        let stream = UnixStream::connect(socket)?;
        stream.set_read_timeout(Some(TIMEOUT))?;
        stream.set_write_timeout(Some(TIMEOUT))?;
        Ok(Store::over(stream))
    }

    /// A connection over a stream that is open.
    pub fn over(stream: impl Read + Write + Send + 'static) -> Store {
        Store {
            stream: Box::new(stream),
            request: 0,
        }
    }

    /// A key's value; `None` if the key does not exist.
    pub fn read(&mut self, path: &str) -> io::Result<Option<String>> {
        match self.ask(READ, format!("{path}\0").as_bytes()) {
            Ok(value) => Ok(Some(String::from_utf8_lossy(&value).into_owned())),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Sets a key.
    pub fn write(&mut self, path: &str, value: &str) -> io::Result<()> {
        self.ask(WRITE, format!("{path}\0{value}").as_bytes())
            .map(|_| ())
    }

    /// Removes a key; a key that does not exist is no error.
    pub fn remove(&mut self, path: &str) -> io::Result<()> {
        match self.ask(RM, format!("{path}\0").as_bytes()) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }

    fn ask(&mut self, kind: u32, payload: &[u8]) -> io::Result<Vec<u8>> {
        self.request = self.request.wrapping_add(1);
        const TRANSACTION: u32 = 0;
        let header = [kind, self.request, TRANSACTION, payload.len() as u32];
        let mut message: Vec<u8> = header.into_iter().flat_map(u32::to_ne_bytes).collect();
        message.extend(payload);
        self.stream.write_all(&message)?;
        loop {
            let mut header = [0; 16];
            self.stream.read_exact(&mut header)?;
            let word =
                |at: usize| u32::from_ne_bytes(*header[at..].first_chunk().expect("16 bytes"));
            let (answer, request, length) = (word(0), word(4), word(12) as usize);
            if length > PAYLOAD_BYTES_MAX {
                let message = format!("xenstore answers with {length} bytes");
                return Err(io::Error::new(io::ErrorKind::InvalidData, message));
            }
            let mut payload = vec![0; length];
            self.stream.read_exact(&mut payload)?;
            match answer {
                WATCH_EVENT => {}
                _ if request != self.request => {}
                ERROR => return Err(refused(&payload)),
                _ => return Ok(payload),
            }
        }
    }
}

/// The error that xenstore names in its answer.
fn refused(payload: &[u8]) -> io::Error {
    let name = String::from_utf8_lossy(payload);
    let name = name.trim_end_matches('\0');
    let kind = match name {
        "ENOENT" => io::ErrorKind::NotFound,
        "EACCES" | "EPERM" => io::ErrorKind::PermissionDenied,
        _ => io::ErrorKind::Other,
    };
    io::Error::new(kind, format!("xenstore says {name}"))
}
