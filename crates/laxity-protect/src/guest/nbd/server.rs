//! A server for one disk and one client, which is a guest's QEMU: the guest's disk is a disk of
//! this process, so that each of its writes passes here.
//!
//! Only what QEMU needs is served: the fixed newstyle handshake with one export of any name, then
//! reads, writes and flushes, one after the other and with simple replies. The client is not
//! trusted: every length is checked before anything is read or allocated.

use std::io::{self, Read, Write};

use super::super::disk::{BLOCK_BYTES, Disk};
use super::{
    DISCONNECT, EXPORT_NAME, FLUSH, GREETING, OPTION, OPTION_REPLY, READ, REPLY, REQUEST,
    REQUEST_BYTES, TRANSFER_BYTES_MAX, WRITE, refused, take,
};

/// Handshake flags: the fixed newstyle, and no zeros after an export's name.
const HANDSHAKE: u16 = 1 | 2;
/// Transmission flags: there are flags, flushes, and writes that are flushed at once.
const TRANSMISSION: u16 = 1 | 4 | 8;

const ABORT: u32 = 2;
const INFO: u32 = 6;
const GO: u32 = 7;

const ACKNOWLEDGED: u32 = 1;
const INFORMATION: u32 = 3;
const UNSUPPORTED: u32 = 0x8000_0001;

/// Flag of a request: the write is flushed before its reply.
const FORCED: u16 = 1;

const SECTOR_BYTES: u32 = 512;
/// Longest data of an option: an export's name has at most 4 KiB, and a few words follow.
const OPTION_BYTES_MAX: u32 = 8 << 10;
/// Most options before the transmission begins.
const OPTIONS_MAX: usize = 32;

const EPERM: u32 = 1;
const EIO: u32 = 5;
const EINVAL: u32 = 22;

/// Serves a disk until the client disconnects.
///
/// # Errors
///
/// If the connection breaks, or the client does not keep to the protocol.
pub fn serve(client: &mut (impl Read + Write), disk: &Disk) -> io::Result<()> {
    if !negotiate(client, disk.bytes())? {
        return Ok(());
    }
    let mut data = Vec::new();
    loop {
        let mut request = [0; REQUEST_BYTES];
        client.read_exact(&mut request)?;
        let mut rest = &request[..];
        let magic = u32::from_be_bytes(take(&mut rest));
        let flags = u16::from_be_bytes(take(&mut rest));
        let kind = u16::from_be_bytes(take(&mut rest));
        let handle: [u8; 8] = take(&mut rest);
        let offset = u64::from_be_bytes(take(&mut rest));
        let length = u32::from_be_bytes(take(&mut rest));
        if magic != REQUEST {
            return Err(refused("a request with an invalid start"));
        }
        let transfers = matches!(kind, READ | WRITE);
        if transfers && length > TRANSFER_BYTES_MAX {
            return Err(refused("a request that is longer than agreed"));
        }
        data.clear();
        if transfers {
            data.resize(length as usize, 0);
        }
        if kind == WRITE {
            client.read_exact(&mut data)?;
        }
        let end = offset.checked_add(u64::from(length));
        let fits = end.is_some_and(|end| end <= disk.bytes());
        let done = match kind {
            READ | WRITE if !fits => Err(EINVAL),
            READ => disk.read(offset, &mut data).map_err(number_of),
            WRITE => disk
                .write(offset, &data)
                .and_then(|()| match flags & FORCED {
                    0 => Ok(()),
                    _ => disk.flush(),
                })
                .map_err(number_of),
            FLUSH => disk.flush().map_err(number_of),
            DISCONNECT => return Ok(()),
            _ => Err(EINVAL),
        };
        let mut reply = Vec::with_capacity(16 + data.len());
        reply.extend_from_slice(&REPLY.to_be_bytes());
        reply.extend_from_slice(&done.err().unwrap_or(0).to_be_bytes());
        reply.extend_from_slice(&handle);
        if kind == READ && done.is_ok() {
            reply.extend_from_slice(&data);
        }
        client.write_all(&reply)?;
    }
}

/// Agrees on the export. Returns whether the transmission begins.
fn negotiate(client: &mut (impl Read + Write), bytes: u64) -> io::Result<bool> {
    let mut greeting = Vec::new();
    greeting.extend_from_slice(&GREETING.to_be_bytes());
    greeting.extend_from_slice(&OPTION.to_be_bytes());
    greeting.extend_from_slice(&HANDSHAKE.to_be_bytes());
    client.write_all(&greeting)?;
    let mut flags = [0; 4];
    client.read_exact(&mut flags)?;
    let wants_zeros = u32::from_be_bytes(flags) & 2 == 0;
    for _ in 0..OPTIONS_MAX {
        let mut head = [0; 16];
        client.read_exact(&mut head)?;
        let mut rest = &head[..];
        let magic = u64::from_be_bytes(take(&mut rest));
        let option = u32::from_be_bytes(take(&mut rest));
        let length = u32::from_be_bytes(take(&mut rest));
        if magic != OPTION || length > OPTION_BYTES_MAX {
            return Err(refused("an option with an invalid start"));
        }
        let mut data = vec![0; length as usize];
        client.read_exact(&mut data)?;
        let export = [&bytes.to_be_bytes()[..], &TRANSMISSION.to_be_bytes()].concat();
        match option {
            EXPORT_NAME => {
                let zeros = if wants_zeros { 124 } else { 0 };
                client.write_all(&[export, vec![0; zeros]].concat())?;
                return Ok(true);
            }
            ABORT => {
                answer(client, option, ACKNOWLEDGED, &[])?;
                return Ok(false);
            }
            INFO | GO => {
                let export = [&[0, 0][..], &export].concat();
                answer(client, option, INFORMATION, &export)?;
                let mut sizes = vec![0, 3];
                for size in [SECTOR_BYTES, BLOCK_BYTES as u32, TRANSFER_BYTES_MAX] {
                    sizes.extend_from_slice(&size.to_be_bytes());
                }
                answer(client, option, INFORMATION, &sizes)?;
                answer(client, option, ACKNOWLEDGED, &[])?;
                if option == GO {
                    return Ok(true);
                }
            }
            _ => answer(client, option, UNSUPPORTED, &[])?,
        }
    }
    Err(refused("options without end"))
}

fn answer(client: &mut impl Write, option: u32, kind: u32, data: &[u8]) -> io::Result<()> {
    let mut reply = OPTION_REPLY.to_be_bytes().to_vec();
    for number in [option, kind, data.len() as u32] {
        reply.extend_from_slice(&number.to_be_bytes());
    }
    reply.extend_from_slice(data);
    client.write_all(&reply)
}

/// The protocol's number of an error.
fn number_of(error: io::Error) -> u32 {
    match error.kind() {
        io::ErrorKind::PermissionDenied => EPERM,
        _ => EIO,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::guest::disk::tests::disk;
    use std::os::unix::net::UnixStream;
    use std::thread;

    /// What a client sends from its flags on until the transmission begins.
    fn opening() -> Vec<u8> {
        let mut opening = 3_u32.to_be_bytes().to_vec();
        opening.extend_from_slice(&OPTION.to_be_bytes());
        opening.extend_from_slice(&EXPORT_NAME.to_be_bytes());
        opening.extend_from_slice(&0_u32.to_be_bytes());
        opening
    }

    fn request(flags: u16, kind: u16, offset: u64, length: u32) -> Vec<u8> {
        let mut request = REQUEST.to_be_bytes().to_vec();
        request.extend_from_slice(&flags.to_be_bytes());
        request.extend_from_slice(&kind.to_be_bytes());
        request.extend_from_slice(b"a handle");
        request.extend_from_slice(&offset.to_be_bytes());
        request.extend_from_slice(&length.to_be_bytes());
        request
    }

    /// Sends bytes to a server of the disk. Returns everything that it answers, and how it ends.
    fn told(disk: &Disk, bytes: &[u8]) -> (Vec<u8>, io::Result<()>) {
        let (mut client, mut server) = UnixStream::pair().unwrap();
        thread::scope(|scope| {
            let served = scope.spawn(move || serve(&mut server, disk));
            client.write_all(bytes).unwrap();
            let mut answers = Vec::new();
            client.read_to_end(&mut answers).unwrap();
            (answers, served.join().unwrap())
        })
    }

    /// The errors of all answers to requests without data.
    fn errors(disk: &Disk, requests: &[Vec<u8>]) -> Vec<u32> {
        let mut bytes = opening();
        bytes.extend(requests.concat());
        bytes.extend(request(0, DISCONNECT, 0, 0));
        let (answers, ended) = told(disk, &bytes);
        ended.unwrap();
        let replies = &answers[18 + 10..];
        assert!(replies.len().is_multiple_of(16), "{answers:?}");
        let errors = replies.chunks(16).map(|reply| {
            assert_eq!(reply[..4], REPLY.to_be_bytes());
            assert_eq!(&reply[8..], b"a handle");
            u32::from_be_bytes(reply[4..8].try_into().unwrap())
        });
        errors.collect()
    }

    #[test]
    fn a_write_is_read_again_and_nothing_lies_beyond_the_end() {
        let disk = disk("nbd");
        disk.may_write(true);
        let mut write = request(FORCED, WRITE, 4096, 3);
        write.extend_from_slice(b"abc");
        let mut beyond = request(0, WRITE, disk.bytes() - 1, 3);
        beyond.extend_from_slice(b"abc");
        let far = request(0, READ, u64::MAX, 3);
        let unknown = request(0, 99, 0, 0);
        let asked = [write, beyond, far, unknown, request(0, FLUSH, 0, 0)];
        assert_eq!(errors(&disk, &asked), [0, EINVAL, EINVAL, EINVAL, 0]);
        let mut bytes = opening();
        bytes.extend(request(0, READ, 4095, 5));
        bytes.extend(request(0, DISCONNECT, 0, 0));
        let (answers, _) = told(&disk, &bytes);
        assert!(answers.ends_with(b"a handle\0abc\0"), "{answers:?}");
    }

    #[test]
    fn a_guest_that_waits_writes_nothing() {
        let disk = disk("nbd-waits");
        let mut write = request(0, WRITE, 0, 3);
        write.extend_from_slice(b"abc");
        assert_eq!(errors(&disk, &[write]), [EPERM]);
        let mut read = [1; 3];
        disk.read(0, &mut read).unwrap();
        assert_eq!(read, [0; 3]);
    }

    #[test]
    fn a_client_that_does_not_keep_to_the_protocol_is_refused() {
        let disk = disk("nbd-refuses");
        let mut long = opening();
        long.extend(request(0, READ, 0, TRANSFER_BYTES_MAX + 1));
        let mut other = opening();
        other.extend([7; REQUEST_BYTES]);
        let mut option = 3_u32.to_be_bytes().to_vec();
        option.extend_from_slice(&OPTION.to_be_bytes());
        option.extend_from_slice(&GO.to_be_bytes());
        option.extend_from_slice(&u32::MAX.to_be_bytes());
        for bytes in [long, other, option] {
            assert!(told(&disk, &bytes).1.is_err());
        }
    }
}
