//! A client of one export, whose server is trusted to keep to the protocol: it is a QEMU that this
//! process started.

use std::io::{self, Read as _, Write as _};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;

use super::{
    DISCONNECT, EXPORT_NAME, FLUSH, GREETING, OPTION, READ, REPLY, REQUEST, REQUEST_BYTES, WRITE,
    refused, take,
};

/// Handshake flags: the fixed newstyle, and no zeros after the size.
const FLAGS: u32 = 1 | 2;
const GREETING_BYTES: usize = 18;
const EXPORT_BYTES: usize = 10;
const REPLY_BYTES: usize = 16;

/// A connection to an export. One that broke refuses everything.
#[derive(Debug)]
pub struct Client(UnixStream);

impl Client {
    /// Agrees on the export of this name. Returns its size in bytes, too.
    ///
    /// # Errors
    ///
    /// If there is none, or the other end is no server.
    pub fn open(mut server: UnixStream, export: &str) -> io::Result<(Client, u64)> {
        let mut greeting = [0; GREETING_BYTES];
        server.read_exact(&mut greeting)?;
        let mut rest = &greeting[..];
        let words = [take(&mut rest), take(&mut rest)].map(u64::from_be_bytes);
        if words != [GREETING, OPTION] {
            return Err(refused("it greets as no server of disks"));
        }
        let mut asked = FLAGS.to_be_bytes().to_vec();
        asked.extend_from_slice(&OPTION.to_be_bytes());
        asked.extend_from_slice(&EXPORT_NAME.to_be_bytes());
        asked.extend_from_slice(&(export.len() as u32).to_be_bytes());
        asked.extend_from_slice(export.as_bytes());
        server.write_all(&asked)?;
        let mut agreed = [0; EXPORT_BYTES];
        server.read_exact(&mut agreed)?;
        let bytes = u64::from_be_bytes(take(&mut &agreed[..]));
        Ok((Client(server), bytes))
    }

    /// Reads from an offset on.
    ///
    /// # Errors
    ///
    /// The server's, or that it has gone.
    pub fn read(&mut self, offset: u64, into: &mut [u8]) -> io::Result<()> {
        self.ask(READ, offset, into.len(), &[], into)
    }

    /// Writes from an offset on.
    ///
    /// # Errors
    ///
    /// The server's, or that it has gone.
    pub fn write(&mut self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.ask(WRITE, offset, data.len(), data, &mut [])
    }

    /// Makes the server flush all writes that it has answered, by whichever connection.
    ///
    /// # Errors
    ///
    /// The server's, or that it has gone.
    pub fn flush(&mut self) -> io::Result<()> {
        self.ask(FLUSH, 0, 0, &[], &mut [])
    }

    fn ask(
        &mut self,
        kind: u16,
        offset: u64,
        length: usize,
        data: &[u8],
        into: &mut [u8],
    ) -> io::Result<()> {
        match self.exchange(&request(kind, offset, length), data, into) {
            Ok(0) => Ok(()),
            // The numbers of the protocol's errors are Linux's.
            Ok(number) => Err(io::Error::from_raw_os_error(number as i32)),
            Err(error) => {
                // Nothing that still comes would be an answer to what is asked next.
                let _ = self.0.shutdown(Shutdown::Both);
                let gone = format!("the QEMU that has the image open is gone: {error}");
                Err(io::Error::other(gone))
            }
        }
    }

    /// Sends a request and reads its answer. Returns the number of the server's error, or 0.
    fn exchange(&mut self, request: &[u8], data: &[u8], into: &mut [u8]) -> io::Result<u32> {
        self.0.write_all(request)?;
        self.0.write_all(data)?;
        let mut reply = [0; REPLY_BYTES];
        self.0.read_exact(&mut reply)?;
        let mut rest = &reply[..];
        if u32::from_be_bytes(take(&mut rest)) != REPLY {
            return Err(refused("an answer with an invalid start"));
        }
        let error = u32::from_be_bytes(take(&mut rest));
        if error == 0 {
            self.0.read_exact(into)?;
        }
        Ok(error)
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        let _ = self.0.write_all(&request(DISCONNECT, 0, 0));
    }
}

/// A request. Its handle is 0, because one is on its way at a time.
fn request(kind: u16, offset: u64, length: usize) -> Vec<u8> {
    let mut request = Vec::with_capacity(REQUEST_BYTES);
    request.extend_from_slice(&REQUEST.to_be_bytes());
    request.extend_from_slice(&0_u16.to_be_bytes());
    request.extend_from_slice(&kind.to_be_bytes());
    request.extend_from_slice(&0_u64.to_be_bytes());
    request.extend_from_slice(&offset.to_be_bytes());
    request.extend_from_slice(&(length as u32).to_be_bytes());
    request
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::super::super::disk::tests::disk;
    use super::super::server::serve;
    use super::*;

    #[test]
    fn a_server_and_a_client_agree() {
        let disk = disk("nbd-client");
        disk.may_write(true);
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        thread::scope(|scope| {
            let served = scope.spawn(|| serve(&mut theirs, &disk));
            let (mut client, bytes) = Client::open(ours, "any").unwrap();
            assert_eq!(bytes, disk.bytes());
            client.write(4095, b"abc").unwrap();
            client.flush().unwrap();
            let mut read = [1; 5];
            client.read(4094, &mut read).unwrap();
            assert_eq!(&read, b"\0abc\0");
            let beyond = client.read(bytes, &mut read).unwrap_err();
            assert_eq!(beyond.raw_os_error(), Some(libc::EINVAL));
            disk.may_write(false);
            let refused = client.write(0, b"abc").unwrap_err();
            assert_eq!(refused.raw_os_error(), Some(libc::EPERM));
            drop(client);
            served.join().unwrap().expect("the client takes its leave");
        });
    }

    #[test]
    fn a_connection_that_broke_refuses_everything() {
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        let mut client = Client(ours);
        // An answer to nothing that was asked, and one that would be good.
        theirs.write_all(&[7; REPLY_BYTES]).unwrap();
        let mut good = REPLY.to_be_bytes().to_vec();
        good.resize(REPLY_BYTES, 0);
        theirs.write_all(&good).unwrap();
        for _ in 0..2 {
            let gone = client.flush().unwrap_err().to_string();
            assert!(gone.contains("is gone"), "{gone}");
        }
        drop(theirs);
        client.read(0, &mut [0]).unwrap_err();
    }

    #[test]
    fn no_server_of_disks_is_refused() {
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        theirs.write_all(b"HTTP/1.1 200 OK\r\n\r\n").unwrap();
        Client::open(ours, "any").unwrap_err();
    }
}
