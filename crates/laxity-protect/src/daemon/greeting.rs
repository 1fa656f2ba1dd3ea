//! Connections from outside whose clients have not yet proved to be another host.

use std::collections::VecDeque;
use std::io;
use std::net::{IpAddr, Shutdown, TcpListener, TcpStream};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use laxity_daemon::Allowance;
use tracing::warn;

/// Most unproven connections at a time, separately for the addresses of configured hosts and for
/// all others.
const UNPROVEN_MAX: usize = 256;
/// Most threads at a time that greet connections of one kind. The thread of a connection that lost
/// its place ends only when it gets the CPU.
const THREADS_MAX: usize = 2 * UNPROVEN_MAX;
/// Log records about refused connections in a second.
const REFUSALS_S_MAX: u32 = 1;

/// Unproven connections of one kind, the oldest first.
///
/// One more than there is room for takes the place of the oldest: strangers who only hold
/// connections open cannot keep a host out, however many they are, because its handshake is over
/// long before as many others have come.
#[derive(Debug, Default)]
struct Unproven {
    next: u64,
    threads: usize,
    streams: VecDeque<(u64, TcpStream)>,
}

impl Unproven {
    /// The connection's number; `None` if there are too many threads for one more.
    fn admit(&mut self, stream: TcpStream) -> Option<u64> {
        if self.threads >= THREADS_MAX {
            return None;
        }
        self.threads += 1;
        if self.streams.len() >= UNPROVEN_MAX
            && let Some((_, oldest)) = self.streams.pop_front()
        {
            // The connection's thread reads the end of the stream, and ends.
            let _ = oldest.shutdown(Shutdown::Both);
        }
        self.next += 1;
        self.streams.push_back((self.next, stream));
        Some(self.next)
    }

    /// The connection's thread is about to end.
    fn leave(&mut self, number: u64) {
        self.threads -= 1;
        self.streams.retain(|(each, _)| *each != number);
    }
}

/// Accepts connections for as long as the process lives, and greets each in a thread of its own.
/// The addresses of configured `hosts` have places that no other address can take.
///
/// # Errors
///
/// If there is no room for a thread.
pub fn serve(
    listener: TcpListener,
    hosts: Vec<IpAddr>,
    greet: impl Fn(TcpStream) -> io::Result<()> + Send + Sync + 'static,
) -> io::Result<()> {
    /// Pause after a failure that may pass, such as too many open files.
    const PAUSE: Duration = Duration::from_millis(100);
    let greet = Arc::new(greet);
    let refusals = Arc::new(Mutex::new(Allowance::new(REFUSALS_S_MAX)));
    let [configured, others] = [(); 2].map(|()| Arc::new(Mutex::new(Unproven::default())));
    let take = move || {
        loop {
            let Ok((stream, from)) = listener.accept() else {
                thread::sleep(PAUSE);
                continue;
            };
            let Ok(ours) = stream.try_clone() else {
                continue;
            };
            let is_configured = hosts.contains(&from.ip().to_canonical());
            let unproven = if is_configured { &configured } else { &others }.clone();
            let Some(number) = lock(&unproven).admit(ours) else {
                continue;
            };
            let (greet, refusals, counted) = (greet.clone(), refusals.clone(), unproven.clone());
            let spawned = thread::Builder::new().name("greet".into()).spawn(move || {
                if !is_configured {
                    yield_to_others();
                }
                let greeted = greet(stream);
                lock(&counted).leave(number);
                if let Err(why) = greeted
                    && let Some(unsaid) = lock(&refusals).take(Instant::now())
                {
                    let from = from.to_string();
                    warn!(from, unsaid, "a connection is refused: {why}");
                }
            });
            if spawned.is_err() {
                lock(&unproven).leave(number);
            }
        }
    };
    thread::Builder::new().name("listen".into()).spawn(take)?;
    Ok(())
}

/// Leaves the calling thread what the CPUs have to spare: handshakes of strangers, however many
/// there are, must not take the CPU from checkpoints. A thread of low priority would end its turn
/// before one that wakes up is served; an idle one is preempted at once.
fn yield_to_others() {
    // SAFETY: a structure of integers.
    let none: libc::sched_param = unsafe { std::mem::zeroed() };
    // SAFETY: the call reads the structure alone. Linux takes 0 for the calling thread, and lets
    // each enter this class.
    unsafe { libc::sched_setscheduler(0, libc::SCHED_IDLE, &none) };
}

fn lock<T>(of: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read as _;
    use std::sync::mpsc::channel;

    /// Threads that do not end, as on a host without CPU time for them, have a limit; one that ends
    /// makes room.
    #[test]
    fn threads_have_a_limit() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let stream = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let mut unproven = Unproven {
            threads: THREADS_MAX - 1,
            ..Unproven::default()
        };
        let admit = |unproven: &mut Unproven| unproven.admit(stream.try_clone().unwrap());
        let last = admit(&mut unproven).expect("there is room for one");
        assert_eq!(admit(&mut unproven), None);
        unproven.leave(last);
        assert!(admit(&mut unproven).is_some());
    }

    /// Silent strangers exceed the places, and a client that speaks is still served.
    #[test]
    fn strangers_make_room_for_the_newest() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let (heard, hears) = channel();
        let greet = move |mut stream: TcpStream| {
            let mut word = [0];
            stream.read_exact(&mut word)?;
            let _ = heard.send(word[0]);
            Ok(())
        };
        serve(listener, Vec::new(), greet).unwrap();
        let strangers: Vec<TcpStream> = (0..UNPROVEN_MAX + 20)
            .map(|_| TcpStream::connect(address).unwrap())
            .collect();
        let mut host = TcpStream::connect(address).unwrap();
        io::Write::write_all(&mut host, &[7]).unwrap();
        assert_eq!(hears.recv(), Ok(7));
        // Waits until the oldest connections have been closed.
        for mut stranger in strangers.into_iter().take(20) {
            assert_eq!(stranger.read(&mut [0]).unwrap(), 0);
        }
    }
}
