//! UDP sockets that send and receive several packets a system call.

use crate::{MediaError, clock};
use nix::{
    errno::Errno,
    sys::resource::{Resource, getrlimit, setrlimit},
    sys::socket::{
        ControlMessageOwned, MsgFlags, MultiHeaders, SockaddrStorage, getsockopt, recvmmsg,
        sendmmsg, setsockopt, sockopt,
    },
};
use std::{
    collections::{BTreeSet, HashSet},
    fs,
    io::{self, IoSlice, IoSliceMut},
    net::{Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket},
    os::{fd::AsRawFd, unix::fs::MetadataExt},
    time::Duration,
};

/// Size of the longest datagram that is received completely: more than Ethernet's.
pub const DATAGRAM_BYTES_MAX: usize = 2048;
/// Most packets of one system call.
pub const BATCH_MAX: usize = 64;
/// Longest wait for a packet between two checks of the stop flag.
const RECEIVE_WAIT: Duration = Duration::from_millis(RECEIVE_WAIT_MS as u64);
/// The same limit for a wait on several sockets, in ms.
pub const RECEIVE_WAIT_MS: u8 = 50;

/// A socket bound to `address`; port 0 stands for any free port.
///
/// # Errors
///
/// If the address cannot be used.
pub fn bind(address: SocketAddr) -> Result<UdpSocket, MediaError> {
    let bound = UdpSocket::bind(address).and_then(|socket| {
        socket.set_read_timeout(Some(RECEIVE_WAIT))?;
        Ok(socket)
    });
    bound.map_err(|source| MediaError::Bind { address, source })
}

/// A nonblocking socket bound to `address`, for use among many.
///
/// # Errors
///
/// If the address cannot be used.
pub fn bind_nonblocking(address: SocketAddr) -> Result<UdpSocket, MediaError> {
    let bound = UdpSocket::bind(address).and_then(|socket| {
        socket.set_nonblocking(true)?;
        Ok(socket)
    });
    bound.map_err(|source| MediaError::Bind { address, source })
}

/// Raises this process's limit of open files to the maximum that the system permits.
///
/// # Errors
///
/// If the system fails.
pub fn allow_many() -> Result<(), MediaError> {
    let failed = MediaError::system("ask for more sockets");
    let (_, most) = getrlimit(Resource::RLIMIT_NOFILE).map_err(&failed)?;
    setrlimit(Resource::RLIMIT_NOFILE, most, most).map_err(&failed)
}

/// The address of a socket.
///
/// # Errors
///
/// If the system does not say.
pub fn address(socket: &UdpSocket) -> Result<SocketAddr, MediaError> {
    socket
        .local_addr()
        .map_err(MediaError::system("ask for a socket's address"))
}

/// The unspecified address of the family of `to`, with any free port.
pub fn any_address_to(to: SocketAddr) -> SocketAddr {
    match to {
        SocketAddr::V4(_) => (Ipv4Addr::UNSPECIFIED, 0).into(),
        SocketAddr::V6(_) => (Ipv6Addr::UNSPECIFIED, 0).into(),
    }
}

/// Asks for a receive buffer of `bytes`, beyond the system's limit if that is permitted. Returns
/// its actual size. Linux counts the memory of a packet, about 770 octets for one of 172, and
/// doubles the requested size.
///
/// # Errors
///
/// If the system gives none.
pub fn set_receive_buffer(socket: &UdpSocket, bytes: usize) -> Result<usize, MediaError> {
    if setsockopt(socket, sockopt::RcvBufForce, &bytes).is_err() {
        setsockopt(socket, sockopt::RcvBuf, &bytes)
            .map_err(MediaError::system("set a receive buffer"))?;
    }
    getsockopt(socket, sockopt::RcvBuf).map_err(MediaError::system("ask for a receive buffer"))
}

/// Makes the kernel stamp each packet with its time of arrival.
///
/// # Errors
///
/// If it does not.
pub fn stamp_arrivals(socket: &UdpSocket) -> Result<(), MediaError> {
    setsockopt(socket, sockopt::ReceiveTimestampns, &true).map_err(MediaError::system(
        "have packets stamped with their time of arrival",
    ))
}

/// Packets that the kernel has dropped since the socket was made, because its receive buffer was
/// full.
///
/// # Errors
///
/// If the system does not say.
pub fn dropped(socket: &UdpSocket) -> Result<u64, MediaError> {
    dropped_of([socket])
}

/// The sum of [`dropped`] over several sockets.
///
/// # Errors
///
/// If the system does not say.
pub fn dropped_of<'s>(sockets: impl IntoIterator<Item = &'s UdpSocket>) -> Result<u64, MediaError> {
    let failed = MediaError::system::<io::Error>("ask what a socket dropped");
    let mut tables = BTreeSet::new();
    let mut inodes = HashSet::new();
    for socket in sockets {
        let file = fs::metadata(format!("/proc/self/fd/{}", socket.as_raw_fd()));
        inodes.insert(file.map_err(&failed)?.ino());
        tables.insert(match address(socket)? {
            SocketAddr::V4(_) => "/proc/thread-self/net/udp",
            SocketAddr::V6(_) => "/proc/thread-self/net/udp6",
        });
    }
    let mut rows = String::new();
    for table in &tables {
        rows += &fs::read_to_string(table).map_err(&failed)?;
    }
    if tables.is_empty() {
        return Ok(0);
    }
    drops_of(&rows, &inodes)
        .ok_or_else(|| failed(io::Error::other("it is not in the kernel's table")))
}

/// The sum of the column `drops` over the sockets with these inodes in the kernel's tables of UDP
/// sockets; `None` if one is missing.
fn drops_of(table: &str, inodes: &HashSet<u64>) -> Option<u64> {
    let mut lines = table.lines();
    // Some titles of the header stand over two columns; these two columns are counted from the end
    // and from the beginning.
    if lines.next()?.split_whitespace().last()? != "drops" {
        return None;
    }
    let (mut found, mut drops) = (0, 0);
    for line in lines {
        let columns: Vec<_> = line.split_whitespace().collect();
        let inode = columns.get(9).and_then(|text| text.parse().ok());
        if inode.is_some_and(|inode| inodes.contains(&inode)) {
            found += 1;
            drops += columns.last()?.parse::<u64>().ok()?;
        }
    }
    (found == inodes.len()).then_some(drops)
}

/// A received datagram.
#[derive(Debug, Clone, Copy)]
pub struct Datagram {
    /// Length in octets, or the number of octets that were kept.
    pub bytes: usize,
    /// Whether it was longer than [`DATAGRAM_BYTES_MAX`].
    pub cut: bool,
    /// Internet address of the sender.
    pub source: Option<SocketAddr>,
    /// CLOCK_MONOTONIC at the kernel's reception, if the receiver asks for it.
    pub arrived_ns: Option<i64>,
}

/// Receives several datagrams a system call.
pub struct Receiver {
    headers: MultiHeaders<SockaddrStorage>,
    buffers: Vec<[u8; DATAGRAM_BYTES_MAX]>,
    datagrams: Vec<Datagram>,
}

impl Receiver {
    /// A receiver of up to `batch` datagrams at once.
    pub fn new(batch: usize) -> Receiver {
        Receiver {
            headers: MultiHeaders::preallocate(batch, None),
            buffers: vec![[0; DATAGRAM_BYTES_MAX]; batch],
            datagrams: Vec::with_capacity(batch),
        }
    }

    /// A receiver that also takes the kernel's times of arrival, for sockets with
    /// [`stamp_arrivals`].
    pub fn with_times(batch: usize) -> Receiver {
        let space = nix::cmsg_space!(nix::sys::time::TimeSpec);
        Receiver {
            headers: MultiHeaders::preallocate(batch, Some(space)),
            ..Receiver::new(batch)
        }
    }

    /// Waits for a datagram, for a short time if the socket blocks, and receives all that are
    /// there. Returns their number.
    ///
    /// # Errors
    ///
    /// If the system fails.
    pub fn receive(&mut self, socket: &UdpSocket) -> Result<usize, MediaError> {
        self.datagrams.clear();
        let mut slices: Vec<_> = self
            .buffers
            .iter_mut()
            .map(|buffer| [IoSliceMut::new(buffer)])
            .collect();
        let received = recvmmsg(
            socket.as_raw_fd(),
            &mut self.headers,
            slices.iter_mut(),
            MsgFlags::MSG_WAITFORONE,
            None,
        );
        let messages = match received {
            Err(Errno::EAGAIN | Errno::EINTR) => return Ok(0),
            received => received.map_err(MediaError::system("receive"))?,
        };
        let mut offset_ns = None;
        for message in messages {
            let stamp = message.cmsgs().ok().and_then(|mut messages| {
                messages.find_map(|message| match message {
                    ControlMessageOwned::ScmTimestampns(time) => Some(clock::to_ns(time)),
                    _ => None,
                })
            });
            let arrived_ns = stamp.map(|realtime_ns| {
                realtime_ns - *offset_ns.get_or_insert_with(clock::realtime_offset_ns)
            });
            self.datagrams.push(Datagram {
                bytes: message.bytes.min(DATAGRAM_BYTES_MAX),
                cut: message.flags.contains(MsgFlags::MSG_TRUNC),
                source: message.address.and_then(internet_address),
                arrived_ns,
            });
        }
        Ok(self.datagrams.len())
    }

    /// The datagrams of the last [`receive`](Receiver::receive); their octets may be changed.
    pub fn datagrams(&mut self) -> impl Iterator<Item = (&Datagram, &mut [u8])> {
        self.datagrams
            .iter()
            .zip(&mut self.buffers)
            .map(|(datagram, buffer)| (datagram, &mut buffer[..datagram.bytes]))
    }
}

fn internet_address(address: SockaddrStorage) -> Option<SocketAddr> {
    address
        .as_sockaddr_in()
        .map(|&address| address.into())
        .or_else(|| address.as_sockaddr_in6().map(|&address| address.into()))
}

/// Sends several datagrams to one address in one system call.
pub struct Sender<'s> {
    socket: &'s UdpSocket,
    headers: MultiHeaders<SockaddrStorage>,
    to: Vec<Option<SockaddrStorage>>,
    /// Datagrams that the system refused.
    pub failed: u64,
    /// The system's error for the last of these.
    pub error: Option<Errno>,
}

impl<'s> Sender<'s> {
    /// A sender to `to`.
    ///
    /// # Errors
    ///
    /// If nothing can be sent there from `socket`, whatever the network.
    pub fn new(socket: &'s UdpSocket, to: SocketAddr) -> Result<Sender<'s>, MediaError> {
        let from = address(socket)?;
        if to.port() == 0 {
            return Err(MediaError::Refused(format!(
                "cannot send to {to}: port 0 is not a port; give the port of the receiver"
            )));
        }
        if from.is_ipv4() != to.is_ipv4() {
            return Err(MediaError::Refused(format!(
                "cannot send from {from} to {to}: give two addresses of IPv4, or two of IPv6"
            )));
        }
        Ok(Sender {
            socket,
            headers: MultiHeaders::preallocate(BATCH_MAX, None),
            to: vec![Some(to.into()); BATCH_MAX],
            failed: 0,
            error: None,
        })
    }

    /// Sends `packets`, at most [`BATCH_MAX`]. Returns how many the system accepted; the others
    /// count as failed.
    pub fn send<'p>(&mut self, packets: impl Iterator<Item = &'p [u8]>) -> u64 {
        let slices: Vec<_> = packets.map(|packet| [IoSlice::new(packet)]).collect();
        assert!(slices.len() <= BATCH_MAX);
        let (mut next, mut sent) = (0, 0);
        while next < slices.len() {
            let result = sendmmsg(
                self.socket.as_raw_fd(),
                &mut self.headers,
                &slices[next..],
                &self.to,
                [],
                MsgFlags::empty(),
            )
            .map(|results| results.count());
            match result {
                Ok(count) => {
                    next += count;
                    sent += count as u64;
                }
                Err(Errno::EINTR) => {}
                // The system refused the first remaining packet; those after it may be accepted.
                Err(error) => {
                    self.failed += 1;
                    self.error = Some(error);
                    next += 1;
                }
            }
        }
        sent
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_kernel_dropped_is_read_from_its_table() {
        let table = "   sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode ref pointer drops
  361: 0100007F:A1B2 00000000:0000 07 00000000:00000300 00:00000000 00000000  1000        0 98765 2 0000000000000000 42
  400: 0100007F:A1B3 00000000:0000 07 00000000:00000000 00:00000000 00000000     0        0 98766 2 0000000000000000 1
";
        let drops = |table, inodes: &[u64]| drops_of(table, &inodes.iter().copied().collect());
        assert_eq!(drops(table, &[98_765]), Some(42));
        assert_eq!(drops(table, &[98_766]), Some(1));
        assert_eq!(drops(table, &[98_765, 98_766]), Some(43));
        assert_eq!(drops(table, &[98_765, 1_000]), None);
        assert_eq!(drops("", &[98_765]), None);
    }

    /// Receives until `enough` returns true, for at most 30 s: the kernel may deliver packets some
    /// time after they were sent.
    fn receive_until(
        socket: &UdpSocket,
        receiver: &mut Receiver,
        mut enough: impl FnMut(&[Datagram]) -> bool,
    ) -> Vec<Datagram> {
        let mut seen = Vec::new();
        let deadline_ns = clock::monotonic_ns() + 30_000_000_000;
        while !enough(&seen) {
            assert!(clock::monotonic_ns() < deadline_ns, "{seen:?} is all");
            receiver.receive(socket).unwrap();
            seen.extend(receiver.datagrams().map(|(datagram, _)| *datagram));
        }
        seen
    }

    #[test]
    fn a_full_receive_buffer_is_seen_to_drop() {
        let socket = bind("127.0.0.1:0".parse().unwrap()).unwrap();
        // The kernel's smallest buffer is about 2 KiB: a few packets.
        set_receive_buffer(&socket, 1).unwrap();
        assert_eq!(dropped(&socket).unwrap(), 0);
        let mut sender = Sender::new(&socket, address(&socket).unwrap()).unwrap();
        let packets = [[0u8; 172]; BATCH_MAX];
        assert_eq!(sender.send(packets.iter().map(|packet| &packet[..])), 64);

        let mut receiver = Receiver::new(BATCH_MAX);
        let seen = receive_until(&socket, &mut receiver, |seen| {
            seen.len() as u64 + dropped(&socket).unwrap() == 64
        });
        assert!(dropped(&socket).unwrap() > 0 && !seen.is_empty());
        assert!(seen.iter().all(|datagram| datagram.bytes == 172
            && !datagram.cut
            && datagram.source == socket.local_addr().ok()
            && datagram.arrived_ns.is_none()));
        assert_eq!(receiver.receive(&socket).unwrap(), 0);
    }

    #[test]
    fn times_of_arrival_are_of_the_monotonic_clock() {
        let socket = bind("[::1]:0".parse().unwrap())
            .or_else(|_| bind("127.0.0.1:0".parse().unwrap()))
            .unwrap();
        stamp_arrivals(&socket).unwrap();
        let mut receiver = Receiver::with_times(4);
        for _ in 0..3 {
            let before_ns = clock::monotonic_ns();
            let mut sender = Sender::new(&socket, address(&socket).unwrap()).unwrap();
            sender.send([&[0u8; 3000][..], &[], &[1]].into_iter());
            let seen = receive_until(&socket, &mut receiver, |seen| seen.len() == 3);
            let after_ns = clock::monotonic_ns();
            let lengths: Vec<_> = seen
                .iter()
                .map(|datagram| (datagram.bytes, datagram.cut))
                .collect();
            assert_eq!(
                lengths,
                [(DATAGRAM_BYTES_MAX, true), (0, false), (1, false)]
            );
            for datagram in seen {
                let arrived_ns = datagram.arrived_ns.expect("it was asked for");
                // Tolerance for a thread that is stopped between two clock readings; the clocks are
                // years apart.
                const SLACK_NS: i64 = 10_000_000_000;
                assert!((before_ns - SLACK_NS..after_ns + SLACK_NS).contains(&arrived_ns));
            }
        }
    }
}
