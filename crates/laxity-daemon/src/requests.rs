//! Serves requests of clients that may be slow, silent or hostile: several at once, each with one
//! deadline for the whole request, and never more than [`AT_ONCE`].

use std::collections::VecDeque;
use std::io::{self, Read, Write};
use std::net::TcpListener;
use std::os::fd::{AsFd as _, AsRawFd as _, OwnedFd};
use std::os::unix::net::UnixListener;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::{self, MsgFlags, Shutdown, getsockopt, sockopt::PeerCredentials};

/// The time for a whole request, from the connection to the end of the answer.
pub const DEADLINE: Duration = Duration::from_secs(2);

/// Number of requests that are served at the same time. One more request ends the oldest: an honest
/// request lasts milliseconds, so the oldest of this many is one that waits for its deadline.
pub const AT_ONCE: usize = 32;

/// One side of a connection, whose reads and writes fail when its deadline has passed.
#[derive(Debug)]
pub struct Connection {
    socket: Arc<OwnedFd>,
    time: Duration,
    deadline: Instant,
}

impl Connection {
    fn new(socket: OwnedFd, time: Duration) -> Connection {
        Connection {
            socket: Arc::new(socket),
            time,
            deadline: Instant::now() + time,
        }
    }

    /// Begins a new deadline for the answer, after the daemon's own work has used some of the first
    /// one.
    pub fn begin_answer(&mut self) {
        self.deadline = Instant::now() + self.time;
    }

    /// Waits until the socket is ready for `events`.
    fn wait(&self, events: PollFlags) -> io::Result<()> {
        loop {
            let left = self.deadline.saturating_duration_since(Instant::now());
            // A ready socket must not hide that no time is left.
            if left.is_zero() {
                return Err(io::ErrorKind::TimedOut.into());
            }
            // The time left is rounded up, so that the last millisecond is not spent polling.
            let left_ms = left.as_micros().div_ceil(1_000);
            let timeout = PollTimeout::try_from(left_ms).unwrap_or(PollTimeout::MAX);
            let mut fds = [PollFd::new(self.socket.as_fd(), events)];
            match poll(&mut fds, timeout) {
                Ok(0) | Err(Errno::EINTR) => {}
                Ok(_) => return Ok(()),
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Does `transfer` as soon as the socket is ready for it.
    fn when_ready(
        &self,
        events: PollFlags,
        mut transfer: impl FnMut() -> nix::Result<usize>,
    ) -> io::Result<usize> {
        loop {
            self.wait(events)?;
            match transfer() {
                Err(Errno::EAGAIN | Errno::EINTR) => {}
                done => return Ok(done?),
            }
        }
    }
}

impl Read for Connection {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.when_ready(PollFlags::POLLIN, || {
            socket::recv(self.socket.as_raw_fd(), buffer, MsgFlags::MSG_DONTWAIT)
        })
    }
}

impl Write for Connection {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let flags = MsgFlags::MSG_DONTWAIT | MsgFlags::MSG_NOSIGNAL;
        self.when_ready(PollFlags::POLLOUT, || {
            socket::send(self.socket.as_raw_fd(), bytes, flags)
        })
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Answers everyone who connects over TCP.
///
/// # Errors
///
/// If the thread cannot be started.
pub fn serve_tcp(
    name: &str,
    listener: TcpListener,
    answer: impl Fn(&mut Connection) -> io::Result<()> + Send + Sync + 'static,
) -> io::Result<()> {
    let accept = move || Ok(listener.accept()?.0.into());
    serve(name, DEADLINE, accept, answer)
}

/// Answers root and the daemon's own user, and closes the connections of all other users.
///
/// # Errors
///
/// If the thread cannot be started.
pub fn serve_unix(
    name: &str,
    listener: UnixListener,
    answer: impl Fn(&mut Connection) -> io::Result<()> + Send + Sync + 'static,
) -> io::Result<()> {
    let accept = move || Ok(listener.accept()?.0.into());
    serve(name, DEADLINE, accept, move |connection| {
        let user = getsockopt(&connection.socket, PeerCredentials)?.uid();
        if user != 0 && user != nix::unistd::geteuid().as_raw() {
            tracing::warn!(user, "a request of another user was refused");
            return Ok(());
        }
        answer(connection)
    })
}

fn serve(
    name: &str,
    time: Duration,
    accept: impl Fn() -> io::Result<OwnedFd> + Send + 'static,
    answer: impl Fn(&mut Connection) -> io::Result<()> + Send + Sync + 'static,
) -> io::Result<()> {
    /// Pause after the system had no resources for another connection.
    const PAUSE: Duration = Duration::from_millis(100);
    let answer = Arc::new(answer);
    let served = Arc::new(Served::default());
    let worker = name.to_string();
    thread::Builder::new().name(name.into()).spawn(move || {
        loop {
            let Ok(socket) = accept() else {
                thread::sleep(PAUSE);
                continue;
            };
            let mut connection = Connection::new(socket, time);
            let place = Place::take(&served, &connection.socket);
            let answer = answer.clone();
            // Failing to start a thread closes the connection, because the closure owns it.
            let _ = thread::Builder::new().name(worker.clone()).spawn(move || {
                let _place = place;
                // A request that is not finished in time gets no answer; nothing else is affected.
                let _ = answer(&mut connection);
            });
        }
    })?;
    Ok(())
}

/// Connections that are served now, the oldest first.
#[derive(Debug, Default)]
struct Served {
    sockets: Mutex<VecDeque<Arc<OwnedFd>>>,
    one_less: Condvar,
}

impl Served {
    fn lock(&self) -> MutexGuard<'_, VecDeque<Arc<OwnedFd>>> {
        self.sockets.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A place among the requests that are served at the same time, held until this is dropped.
struct Place {
    served: Arc<Served>,
    socket: Arc<OwnedFd>,
}

impl Place {
    /// Takes a place, and ends the oldest connection if none is free.
    fn take(served: &Arc<Served>, socket: &Arc<OwnedFd>) -> Place {
        let sockets = served.lock();
        if let Some(oldest) = sockets.front().filter(|_| sockets.len() >= AT_ONCE) {
            let _ = socket::shutdown(oldest.as_raw_fd(), Shutdown::Both);
        }
        let mut sockets = served
            .one_less
            .wait_while(sockets, |sockets| sockets.len() >= AT_ONCE)
            .unwrap_or_else(PoisonError::into_inner);
        sockets.push_back(socket.clone());
        Place {
            served: served.clone(),
            socket: socket.clone(),
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut sockets = self.served.lock();
        sockets.retain(|each| !Arc::ptr_eq(each, &self.socket));
        self.served.one_less.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{SocketAddr, TcpStream};
    use std::sync::mpsc::{Receiver, channel};

    /// A server that reads one byte and answers one line, and the result of each of its requests.
    fn server(time: Duration) -> (SocketAddr, Receiver<io::Result<()>>) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let (tell, ends) = channel();
        let accept = move || Ok(listener.accept()?.0.into());
        serve("test", time, accept, move |connection| {
            let mut line = [0; 2];
            let done = connection
                .read_exact(&mut line)
                .and_then(|()| connection.write_all(b"answered"));
            tell.send(done).unwrap();
            Ok(())
        })
        .unwrap();
        (address, ends)
    }

    fn answer(address: SocketAddr) -> String {
        let mut stream = TcpStream::connect(address).unwrap();
        stream.write_all(b"?\n").unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).unwrap();
        text
    }

    /// The deadline is one hour, so only a free place for each client lets this test end in time.
    #[test]
    fn a_silent_client_keeps_nobody_waiting_and_more_than_enough_end_the_oldest() {
        let (address, ends) = server(Duration::from_secs(3_600));
        let mut silent: Vec<TcpStream> = (0..AT_ONCE)
            .map(|_| TcpStream::connect(address).unwrap())
            .collect();
        assert_eq!(answer(address), "answered");
        // The answered request took the place of the first silent one, and of no other.
        let ended = ends.recv().unwrap().unwrap_err();
        assert_eq!(ended.kind(), io::ErrorKind::UnexpectedEof);
        assert_eq!(silent[0].read(&mut [0; 1]).unwrap(), 0);
        assert!(ends.recv().unwrap().is_ok());
        let last = silent.last_mut().unwrap();
        last.write_all(b"?\n").unwrap();
        let mut text = String::new();
        last.read_to_string(&mut text).unwrap();
        assert_eq!(text, "answered");
    }

    /// One byte now and then does not extend a request's deadline.
    #[test]
    fn a_deadline_is_for_the_whole_request() {
        let (here, mut there) = std::os::unix::net::UnixStream::pair().unwrap();
        let mut connection = Connection::new(here.into(), Duration::from_millis(50));
        let error = loop {
            there.write_all(b"x").unwrap();
            if let Err(error) = connection.read_exact(&mut [0; 1]) {
                break error;
            }
        };
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        // An answer that nobody reads has the same deadline.
        connection.begin_answer();
        let error = loop {
            if let Err(error) = connection.write_all(&[0; 4096]) {
                break error;
            }
        };
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
    }
}
