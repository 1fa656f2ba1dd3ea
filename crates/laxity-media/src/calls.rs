//! Both parties of calls: sends each party's stream from a port of its own, and measures the stream
//! that the other party receives. The orders of a signalling program begin and end the calls: see
//! [`orders`](crate::orders).

use crate::{
    MediaError, clock,
    distribution::{Distribution, Quantiles},
    g711::Law,
    load::{self, LoadReport, Part, Size, run_of},
    machine,
    orders::{Calls, Order, other_stream},
    rtp::PACKET_BYTES,
    schedule::{PERIOD_NS, Phase, Schedule, Window},
    session::{Got, Session, Taken},
    sink::{CaptureFile, LINGER_NS, SinkReport},
    socket::{self, BATCH_MAX, Receiver},
    stamp::{PACKETS_MAX, STREAMS_MAX, Stamp},
};
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};
use schemars::JsonSchema;
use serde::Serialize;
use std::{
    collections::{HashMap, HashSet, VecDeque},
    fs::File,
    io::{self, BufRead, BufWriter, Read as _, Write},
    iter,
    net::{SocketAddr, UdpSocket},
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
        mpsc::{self, RecvTimeoutError, TryRecvError},
    },
    thread,
    time::Duration,
};

/// Longest wait for an order between two checks of the stop flag.
const ORDER_WAIT: Duration = Duration::from_millis(10);

/// Limit of an order in bytes: far more than one has, and few enough to wait for the end of the
/// line.
const ORDER_BYTES_MAX: u64 = 1_000;

/// Orders that have been read and not carried out yet; the reader waits while there are as many.
const ORDERS_WAITING_MAX: usize = 10_000;

/// Time from the order `begin` to the first packet, enough to notify all threads.
const BEGIN_AFTER_NS: i64 = 50_000_000;

/// Longest wait for packets after the last one was sent; packets that arrive later waited in a
/// server that is far behind.
const LINGER_NS_MAX: i64 = 20_000_000_000;

/// Options for sending and measuring calls.
#[derive(Debug, Clone)]
pub struct CallsOptions {
    /// Interval between two wake-ups of the senders.
    pub tick_ns: i64,
    /// Number of threads that send.
    pub threads: u32,
    /// Time to send from the order `begin` on; without it the orders alone decide.
    pub duration_ns: Option<i64>,
    /// Delay beyond which a packet is late.
    pub playout_ns: i64,
    /// Path of a capture of all received packets.
    pub capture: Option<PathBuf>,
    /// Path of a file with the times at which each packet was sent and received.
    pub packets: Option<PathBuf>,
    /// Interval of the calls in that file: one of this many is written.
    pub sample: u32,
}

/// Results of all calls.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct CallsReport {
    /// Number of calls of which at least one party had a port.
    pub calls: u32,
    /// Highest number of streams that were sent at the same time.
    pub streams_most: u32,
    /// Number of parties for whom there was no port.
    pub refused: u32,
    /// The system's error for the last of these.
    pub error: Option<String>,
    /// Setup times, from when the first party of a call had its port to when it was to send.
    pub setup: Option<Quantiles>,
}

/// Messages to a sending thread.
enum Change {
    Send(Sending),
    End(u16),
    Window(Window),
}

/// A stream that is being sent.
struct Sending {
    stream: u16,
    socket: Arc<UdpSocket>,
    to: SocketAddr,
    law: Law,
    packet: u32,
}

/// Messages to the measuring thread.
enum Door {
    Open(u16, Arc<UdpSocket>),
    Close(u16),
}

/// The next line without its end; `None` after the last.
fn next_line(orders: &mut impl BufRead) -> io::Result<Option<String>> {
    let mut line = String::new();
    if orders.take(ORDER_BYTES_MAX).read_line(&mut line)? as u64 == ORDER_BYTES_MAX
        && !line.ends_with('\n')
    {
        return Err(io::Error::other(format!(
            "a line has {ORDER_BYTES_MAX} bytes or more"
        )));
    }
    Ok((!line.is_empty()).then(|| line.trim_end_matches(['\r', '\n']).to_owned()))
}

/// Carries out `orders` until they end or `stop`.
///
/// # Errors
///
/// If an order makes no sense, a file cannot be written, or the system fails.
pub fn run(
    orders: impl BufRead + Send + 'static,
    options: &CallsOptions,
    stop: &AtomicBool,
) -> Result<(CallsReport, LoadReport, SinkReport), MediaError> {
    // The schedule of one stream checks the tick and the number of threads for any number of
    // streams.
    Schedule::new(1, PERIOD_NS, options.tick_ns, options.threads)?;
    if options.sample == 0 {
        return Err(MediaError::Refused(
            "--sample must be at least 1, which writes all calls".into(),
        ));
    }
    socket::allow_many()?;
    let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)
        .map_err(MediaError::system("wait for several sockets"))?;
    let start_ns = clock::monotonic_ns() + PERIOD_NS;
    let writers = Writers::create(options)?;
    // Number of packets that can arrive at most; unknown while streams are being sent.
    let sent_in_all = AtomicU64::new(u64::MAX);
    let (door, doors) = mpsc::channel();
    thread::scope(|scope| {
        let (changes, handles): (Vec<_>, Vec<_>) = (0..options.threads)
            .map(|thread| {
                let (sender, changes) = mpsc::channel();
                let send = move || send(&changes, options, thread, start_ns);
                (sender, scope.spawn(send))
            })
            .unzip();
        let measuring = scope.spawn(|| {
            let mut sink = Sink {
                epoll: &epoll,
                doors,
                sockets: HashMap::new(),
                session: Session::of_calls(options.playout_ns, run_of(start_ns)),
                fetched_late: Distribution::default(),
                dropped: 0,
                writers,
            };
            let measured = sink.measure(&sent_in_all);
            if measured.is_err() {
                stop.store(true, Ordering::Relaxed);
            }
            measured.map(|real_time| (real_time, sink))
        });
        let mut parties = Parties {
            epoll: &epoll,
            duration_ns: options.duration_ns,
            window: Window::ALWAYS,
            changes,
            door,
            calls: Calls::default(),
            sockets: HashMap::new(),
            sending: HashSet::new(),
            closing: VecDeque::new(),
            opened_ns: HashMap::new(),
            setup: Distribution::default(),
            streams: 0,
            streams_most: 0,
            refused: 0,
            error: None,
        };
        let obeyed = parties.obey(orders, stop);
        // The sending threads end when nobody can notify them of changes any more.
        let begin_ns = parties.window.begin_ns.max(start_ns);
        let (report, streams) = parties.finish();
        let parts: Vec<_> = handles
            .into_iter()
            .map(|handle| handle.join().expect("a thread of the load does not panic"))
            .collect();
        let mut sent = vec![0; 2 * report.calls as usize];
        let mut whole = Vec::new();
        for part in parts {
            let (part, of_streams) = part;
            for (stream, packets) in of_streams {
                sent[usize::from(stream)] = packets;
            }
            whole.push(Ok(part));
        }
        let all = sent.iter().map(|packets| u64::from(*packets)).sum();
        sent_in_all.store(all, Ordering::Relaxed);
        let (real_time, sink) = measuring.join().expect("the sink does not panic")?;
        obeyed?;
        let size = Size {
            streams,
            threads: options.threads,
            tick_ns: options.tick_ns,
        };
        let sunk = SinkReport {
            session: sink.session.report_of(&sent),
            real_time,
            dropped: sink.dropped,
            fetched_late: sink.fetched_late.quantiles(),
        };
        Ok((report, load::report(size, begin_ns, whole)?, sunk))
    })
}

/// Carries out orders.
struct Parties<'e> {
    epoll: &'e Epoll,
    duration_ns: Option<i64>,
    /// The time to send, known from the order `begin` on if a duration was given.
    window: Window,
    changes: Vec<mpsc::Sender<Change>>,
    door: mpsc::Sender<Door>,
    calls: Calls,
    sockets: HashMap<u16, Arc<UdpSocket>>,
    sending: HashSet<u16>,
    /// Streams that have ended, with the time from which none of their packets is expected any
    /// more.
    closing: VecDeque<(i64, u16)>,
    /// The time at which the first party of each call in setup got its port.
    opened_ns: HashMap<u16, i64>,
    setup: Distribution,
    /// Number of streams that are being sent now, and the highest such number so far.
    streams: u32,
    streams_most: u32,
    refused: u32,
    error: Option<String>,
}

impl Parties<'_> {
    fn obey(
        &mut self,
        orders: impl BufRead + Send + 'static,
        stop: &AtomicBool,
    ) -> Result<(), MediaError> {
        if self.duration_ns.is_some() {
            // Real-time priority keeps orders from waiting for other work on the machine. Without
            // the permission they wait.
            machine::become_real_time();
        }
        let (line, lines) = mpsc::sync_channel(ORDERS_WAITING_MAX);
        // A thread that waits for a line cannot be stopped, so it is detached.
        thread::spawn(move || {
            let mut orders = orders;
            let read = iter::from_fn(|| next_line(&mut orders).transpose());
            let mut stamped = read.map(|read| (clock::monotonic_ns(), read));
            stamped.try_for_each(|read| line.send(read).ok())
        });
        while !stop.load(Ordering::Relaxed) && self.window.at(clock::monotonic_ns()) != Phase::After
        {
            match lines.recv_timeout(ORDER_WAIT) {
                Ok((read_ns, line)) => {
                    let line = line.map_err(MediaError::system("read orders"))?;
                    self.carry_out(&Order::parse(&line)?, read_ns)?;
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => break,
            }
            let now_ns = clock::monotonic_ns();
            while self
                .closing
                .front()
                .is_some_and(|(at_ns, _)| *at_ns <= now_ns)
            {
                if let Some((_, stream)) = self.closing.pop_front() {
                    // A sink that has ended has reported its own error.
                    let _ = self.door.send(Door::Close(other_stream(stream)));
                }
            }
        }
        Ok(())
    }

    fn carry_out(&mut self, order: &Order<'_>, read_ns: i64) -> Result<(), MediaError> {
        match *order {
            Order::Begin => {
                let Some(duration_ns) = self.duration_ns else {
                    return Err(MediaError::Refused(
                        "the order `begin` needs a duration; give --duration".into(),
                    ));
                };
                // All threads are notified within this time.
                let begin_ns = clock::monotonic_ns() + BEGIN_AFTER_NS;
                self.window = Window {
                    begin_ns,
                    end_ns: begin_ns + duration_ns,
                };
                for changes in &self.changes {
                    // A thread that has ended has reported its own error.
                    let _ = changes.send(Change::Window(self.window));
                }
            }
            Order::Open { call, local } => {
                let stream = self.open(call, local)?;
                if stream < other_stream(stream) {
                    self.opened_ns.entry(stream).or_insert(read_ns);
                }
            }
            Order::Send {
                call,
                local,
                remote,
                law,
            } => {
                let stream = self.open(call, local)?;
                let Some(socket) = self.sockets.get(&stream) else {
                    return Ok(());
                };
                if self.sending.insert(stream) {
                    self.streams += 1;
                    self.streams_most = self.streams_most.max(self.streams);
                    if let Some(opened_ns) = self.opened_ns.remove(&stream) {
                        self.setup.record(read_ns - opened_ns, 1);
                    }
                    self.tell(Change::Send(Sending {
                        stream,
                        socket: socket.clone(),
                        to: remote,
                        law,
                        packet: 0,
                    }));
                }
            }
            Order::End { call } => {
                let until_ns = clock::monotonic_ns() + LINGER_NS;
                for stream in self.calls.streams(call) {
                    if self.sockets.remove(&stream).is_some() {
                        self.streams -= u32::from(self.sending.contains(&stream));
                        self.tell(Change::End(stream));
                        self.closing.push_back((until_ns, stream));
                    }
                }
            }
        }
        Ok(())
    }

    fn open(&mut self, call: &str, local: SocketAddr) -> Result<u16, MediaError> {
        let (stream, new) = self.calls.stream(call, local)?;
        if !new {
            return Ok(stream);
        }
        match socket::bind_nonblocking(local) {
            Ok(bound) => {
                socket::stamp_arrivals(&bound)?;
                let bound = Arc::new(bound);
                // A party receives the stream that the other one sends.
                let incoming = other_stream(stream);
                let _ = self.door.send(Door::Open(incoming, bound.clone()));
                let event = EpollEvent::new(EpollFlags::EPOLLIN, incoming.into());
                self.epoll
                    .add(&*bound, event)
                    .map_err(MediaError::system("wait for a socket"))?;
                self.sockets.insert(stream, bound);
            }
            Err(error) => {
                self.refused += 1;
                self.error = Some(error.to_string());
            }
        }
        Ok(stream)
    }

    /// Both streams of a call belong to the same thread.
    fn tell(&self, change: Change) {
        let (Change::Send(Sending { stream, .. }) | Change::End(stream)) = &change else {
            unreachable!("a window is told to all threads")
        };
        let thread = usize::from(stream / 2) % self.changes.len();
        // A thread that has ended has reported its own error.
        let _ = self.changes[thread].send(change);
    }

    /// The results of the calls, and the number of streams that they sent.
    fn finish(self) -> (CallsReport, u32) {
        let report = CallsReport {
            calls: self.calls.count(),
            streams_most: self.streams_most,
            refused: self.refused,
            error: self.error,
            setup: self.setup.quantiles(),
        };
        (report, self.sending.len() as u32)
    }
}

/// One sending thread: each of its streams has one of the thread's slots in every 20 ms. Returns
/// the thread's statistics and the number of packets of each stream.
fn send(
    changes: &mpsc::Receiver<Change>,
    options: &CallsOptions,
    thread: u32,
    start_ns: i64,
) -> (Part, Vec<(u16, u32)>) {
    let mut part = Part::begin();
    let mut ended = Vec::new();
    let due_ns: Vec<i64> = (i64::from(thread)..PERIOD_NS / options.tick_ns)
        .step_by(options.threads as usize)
        .map(|slot| start_ns + slot * options.tick_ns)
        .collect();
    let mut slots: Vec<Vec<Sending>> = due_ns.iter().map(|_| Vec::new()).collect();
    let mut packet = [0; PACKET_BYTES];
    let mut window = match options.duration_ns {
        Some(_) => Window::NOT_YET,
        None => Window::ALWAYS,
    };
    for turn in 0.. {
        let (round, slot) = (turn / due_ns.len(), turn % due_ns.len());
        // The thread also wakes once in 20 ms to receive changes.
        if slot > 0 && slots[slot].is_empty() {
            continue;
        }
        let due_ns = due_ns[slot] + round as i64 * PERIOD_NS;
        let phase = window.at(due_ns);
        clock::sleep_until(due_ns.min(window.end_ns));
        if phase == Phase::After {
            ended.extend(slots.iter().flatten().map(Sending::result));
            break;
        }
        let late_ns = clock::monotonic_ns() - due_ns;
        if phase == Phase::Within && !slots[slot].is_empty() {
            part.wake_up_late.record(late_ns, 1);
            for sending in &mut slots[slot] {
                sending.send(start_ns, due_ns, &mut packet, &mut part);
            }
        }
        loop {
            match changes.try_recv() {
                Ok(Change::Send(sending)) => {
                    let emptiest = slots.iter_mut().min_by_key(|slot| slot.len());
                    emptiest.expect("there are slots").push(sending);
                }
                Ok(Change::End(stream)) => {
                    for slot in &mut slots {
                        let ends = |sending: &mut Sending| sending.stream == stream;
                        ended.extend(slot.extract_if(.., ends).map(|sending| sending.result()));
                    }
                }
                Ok(Change::Window(told)) => window = told,
                Err(TryRecvError::Empty) => break,
                Err(TryRecvError::Disconnected) if options.duration_ns.is_none() => {
                    ended.extend(slots.iter().flatten().map(Sending::result));
                    part.ended_ns = clock::monotonic_ns();
                    return (part, ended);
                }
                // The parties have ended, and this thread ends with its window.
                Err(TryRecvError::Disconnected) => {
                    window.end_ns = window.end_ns.min(clock::monotonic_ns());
                    break;
                }
            }
        }
    }
    part.ended_ns = clock::monotonic_ns();
    (part, ended)
}

impl Sending {
    fn result(&self) -> (u16, u32) {
        (self.stream, self.packet)
    }

    fn send(
        &mut self,
        start_ns: i64,
        due_ns: i64,
        packet: &mut [u8; PACKET_BYTES],
        part: &mut Part,
    ) {
        if self.packet == PACKETS_MAX {
            return;
        }
        let stamp = Stamp {
            run: run_of(start_ns),
            stream: self.stream,
            // The largest possible number, since the actual number is not known yet.
            streams: STREAMS_MAX as u16,
            packet: self.packet,
            packets: PACKETS_MAX,
            sent_ns: clock::monotonic_ns(),
        };
        packet.fill(self.law.encode(0));
        load::write(&stamp, self.law, packet);
        self.packet += 1;
        part.due += 1;
        match self.socket.send_to(packet, self.to) {
            Ok(_) => {
                part.sent += 1;
                part.packet_late.record(clock::monotonic_ns() - due_ns, 1);
            }
            Err(error) => {
                part.failed += 1;
                part.error = error.raw_os_error().map(nix::errno::Errno::from_raw);
            }
        }
    }
}

/// Measures what the parties receive.
struct Sink<'e> {
    epoll: &'e Epoll,
    doors: mpsc::Receiver<Door>,
    /// Sockets by the stream that each receives.
    sockets: HashMap<u16, Arc<UdpSocket>>,
    session: Session,
    fetched_late: Distribution,
    dropped: u64,
    writers: Writers,
}

impl Sink<'_> {
    /// Receives until all sent packets have arrived or none is expected any more. Returns whether
    /// the thread ran in real time.
    fn measure(&mut self, sent_in_all: &AtomicU64) -> Result<bool, MediaError> {
        let real_time = machine::become_real_time();
        let mut receiver = Receiver::with_times(BATCH_MAX);
        let mut events = [EpollEvent::empty(); BATCH_MAX];
        // The time at which sending ended, and the time of the last packet.
        let mut over_ns = None;
        let mut last_ns = 0;
        loop {
            // Packets may have come while this thread did not run: only a look that began late enough
            // and found nothing ends the measurement.
            let looked_ns = clock::monotonic_ns();
            let is_out_of_time = over_ns.is_some_and(|over_ns| looked_ns > over_ns + LINGER_NS_MAX);
            let timeout = if is_out_of_time {
                EpollTimeout::ZERO
            } else {
                EpollTimeout::from(socket::RECEIVE_WAIT_MS)
            };
            let ready = match self.epoll.wait(&mut events, timeout) {
                Err(nix::errno::Errno::EINTR) => 0,
                waited => waited.map_err(MediaError::system("wait for several sockets"))?,
            };
            self.listen_at_doors()?;
            let all = sent_in_all.load(Ordering::Relaxed);
            if all != u64::MAX {
                let over_ns = *over_ns.get_or_insert_with(clock::monotonic_ns);
                let is_quiet = is_out_of_time || looked_ns > over_ns.max(last_ns) + LINGER_NS;
                if self.session.received() >= all || (ready == 0 && is_quiet) {
                    break;
                }
            }
            for event in &events[..ready] {
                self.receive(&mut receiver, event.data() as u16)?;
                last_ns = clock::monotonic_ns();
            }
        }
        self.dropped += socket::dropped_of(self.sockets.values().map(|socket| &**socket))?;
        self.writers.finish()?;
        Ok(real_time)
    }

    fn listen_at_doors(&mut self) -> Result<(), MediaError> {
        while let Ok(door) = self.doors.try_recv() {
            match door {
                Door::Open(stream, socket) => {
                    self.sockets.insert(stream, socket);
                }
                Door::Close(stream) => {
                    if let Some(socket) = self.sockets.remove(&stream) {
                        self.dropped += socket::dropped(&socket)?;
                    }
                }
            }
        }
        Ok(())
    }

    fn receive(&mut self, receiver: &mut Receiver, stream: u16) -> Result<(), MediaError> {
        let Some(socket) = self.sockets.get(&stream) else {
            return Ok(());
        };
        receiver.receive(socket)?;
        let now_ns = clock::monotonic_ns();
        for (datagram, octets) in receiver.datagrams() {
            // The first packets after a socket was asked for times may have none.
            let arrived_ns = datagram.arrived_ns.unwrap_or(now_ns);
            self.fetched_late.record(now_ns - arrived_ns, 1);
            let got = Got {
                arrived_ns,
                fetched_ns: now_ns,
            };
            if let (Some(capture), Some(source)) = (&mut self.writers.capture, datagram.source) {
                capture.write(arrived_ns, source, socket::address(socket)?, octets)?;
            }
            if datagram.cut {
                self.session.count_too_long();
            } else if let Some(taken) = self.session.record(octets, got, Some(stream))? {
                self.writers.packet(&taken)?;
            }
        }
        Ok(())
    }
}

/// Files that are written during the measurement.
struct Writers {
    capture: Option<CaptureFile>,
    packets: Option<(PathBuf, BufWriter<File>)>,
    sample: u32,
}

impl Writers {
    fn create(options: &CallsOptions) -> Result<Writers, MediaError> {
        let open = |path: &PathBuf| {
            let file = File::create(path).map_err(|source| unwritten(path, source))?;
            Ok((path.clone(), BufWriter::with_capacity(1 << 20, file)))
        };
        Ok(Writers {
            capture: options
                .capture
                .as_deref()
                .map(CaptureFile::create)
                .transpose()?,
            packets: options.packets.as_ref().map(open).transpose()?,
            sample: options.sample,
        })
    }

    /// Writes four little-endian numbers of 64 bits: stream, packet, time of sending and time of
    /// arrival, in ns.
    fn packet(&mut self, taken: &Taken) -> Result<(), MediaError> {
        let Some((path, writer)) = &mut self.packets else {
            return Ok(());
        };
        if u32::from(taken.stream / 2) % self.sample != 0 {
            return Ok(());
        }
        let numbers = [
            i64::from(taken.stream),
            i64::from(taken.packet),
            taken.sent_ns,
            taken.arrived_ns,
        ];
        let octets: Vec<u8> = numbers.into_iter().flat_map(i64::to_le_bytes).collect();
        writer
            .write_all(&octets)
            .map_err(|source| unwritten(path, source))
    }

    fn finish(&mut self) -> Result<(), MediaError> {
        if let Some(capture) = self.capture.take() {
            capture.finish()?;
        }
        if let Some((path, mut writer)) = self.packets.take() {
            writer.flush().map_err(|source| unwritten(&path, source))?;
        }
        Ok(())
    }
}

fn unwritten(path: &Path, source: io::Error) -> MediaError {
    MediaError::Packets {
        path: path.to_path_buf(),
        source,
    }
}
