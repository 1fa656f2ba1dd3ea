//! The model media server with a port for each party of each call, agreed on by session
//! descriptions through [`control`](crate::control).

use crate::{
    MediaError, clock,
    control::{self, Description, Parties, Reply, Request},
    passage::{self, Passages, Seen},
    relay::{RelayOptions, RelayReport, process, work},
    socket::{self, Receiver},
};
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};
use std::{
    collections::HashMap,
    io::ErrorKind,
    net::{IpAddr, SocketAddr, UdpSocket},
    sync::{
        Arc, PoisonError, RwLock,
        atomic::{AtomicBool, AtomicI64, Ordering},
    },
    thread,
};

/// Addresses and ports of the media server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ports {
    /// The addresses that parties send to, at most one of IPv4 and one of IPv6.
    pub addresses: Vec<IpAddr>,
    /// The first and the last port.
    pub range: (u16, u16),
}

/// The addresses that may tell the media server of calls, and the number of calls each may have.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Access {
    /// The addresses of signalling servers; requests from other addresses are not answered.
    pub from: Vec<IpAddr>,
    /// Most calls that each address may have at the same time; `None` stands for an equal share of
    /// the ports.
    pub calls: Option<u32>,
    /// Time without media and requests after which a call ends.
    pub expire_ns: i64,
}

/// Interval of the search for expired calls.
const LOOK_NS: i64 = 100_000_000;

/// One party of a call: its packets arrive at `socket`, and the other party's packets leave from
/// there.
struct Leg {
    number: u64,
    socket: UdpSocket,
    /// Address at which the party receives, once it is known.
    to: RwLock<Option<SocketAddr>>,
    /// Whether the party's packets are passed on unread, since they are encrypted, or arrange that.
    is_secured: AtomicBool,
    /// Time of the party's last packet or request.
    heard_ns: AtomicI64,
}

/// A call: the party that offered first, and the other.
struct Call {
    parties: Parties,
    /// The signalling address that announced the call.
    source: IpAddr,
    legs: [Arc<Leg>; 2],
}

impl Call {
    fn heard_ns(&self) -> i64 {
        let heard = self
            .legs
            .iter()
            .map(|leg| leg.heard_ns.load(Ordering::Relaxed));
        heard.max().expect("a call has two legs")
    }
}

/// State shared by the control thread and the pool.
struct Exchange {
    epoll: Epoll,
    /// The party that sends to each socket and the party that receives its packets, by the socket's
    /// number.
    legs: RwLock<HashMap<u64, [Arc<Leg>; 2]>>,
    /// Where each packet's passage is written down, if it is.
    passages: Option<Passages>,
}

/// Relays the calls announced at `control`, until `stop`. When each packet was here goes to `passages`, if given.
///
/// # Errors
///
/// If the options make no sense or the system fails.
pub fn relay(
    control: &UdpSocket,
    ports: Ports,
    access: &Access,
    options: &RelayOptions,
    passages: Option<Passages>,
    stop: &AtomicBool,
) -> Result<RelayReport, MediaError> {
    options.validate()?;
    let (first, last) = ports.range;
    let calls = control::even_ports(ports.range, 0).count() / 2;
    let share = calls / access.from.len().max(1);
    if share == 0 {
        return Err(MediaError::Refused(format!(
            "the ports {first} to {last} are enough for {calls} calls, but {} addresses may set up calls; give the \
             lower port first, and at least two even ports for each address",
            access.from.len()
        )));
    }
    let of_ipv4 = ports.addresses.iter().filter(|it| it.is_ipv4()).count();
    if of_ipv4 > 1 || ports.addresses.len() - of_ipv4 > 1 {
        return Err(MediaError::Refused(
            "a call could have several addresses; give --address one of IPv4, one of IPv6, or both"
                .into(),
        ));
    }
    if access.expire_ns <= 0 {
        return Err(MediaError::Refused(
            "calls would expire immediately; give --expire \"5 min\", say".into(),
        ));
    }
    let exchange = Exchange {
        epoll: Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)
            .map_err(MediaError::system("wait for several sockets"))?,
        legs: RwLock::default(),
        passages,
    };
    thread::scope(|scope| {
        let handles: Vec<_> = (0..options.threads)
            .map(|_| scope.spawn(|| serve(&exchange, options, stop)))
            .collect();
        let mut switchboard = Switchboard {
            exchange: &exchange,
            ports,
            access,
            calls_max: access.calls.map_or(share, |calls| calls as usize),
            transcode: options.transcode,
            calls: HashMap::new(),
            legs: 0,
            next_port: 0,
            report: RelayReport::default(),
        };
        let controlled = switchboard.serve(control, stop);
        if controlled.is_err() {
            stop.store(true, Ordering::Relaxed);
        }
        let parts: Vec<_> = handles
            .into_iter()
            .map(|handle| handle.join().expect("a thread of the pool does not panic"))
            .collect();
        controlled?;
        switchboard.clear()?;
        let mut whole = switchboard.report;
        for part in parts {
            whole.add(&part?);
        }
        Ok(whole)
    })
}

/// Keeps the calls and answers requests about them.
struct Switchboard<'e> {
    exchange: &'e Exchange,
    ports: Ports,
    access: &'e Access,
    /// Most calls that each address may have.
    calls_max: usize,
    transcode: bool,
    calls: HashMap<String, Call>,
    legs: u64,
    next_port: u16,
    /// Totals of calls that are over.
    report: RelayReport,
}

impl Switchboard<'_> {
    fn serve(&mut self, control: &UdpSocket, stop: &AtomicBool) -> Result<(), MediaError> {
        let mut datagram = [0; u16::MAX as usize];
        let mut looked_ns = clock::monotonic_ns();
        while !stop.load(Ordering::Relaxed) {
            let now_ns = clock::monotonic_ns();
            if now_ns - looked_ns >= LOOK_NS {
                looked_ns = now_ns;
                self.expire(now_ns)?;
            }
            let (bytes, from) = match control.recv_from(&mut datagram) {
                Ok(received) => received,
                Err(error)
                    if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) =>
                {
                    continue;
                }
                Err(error) => return Err(MediaError::system("receive")(error)),
            };
            if !self.access.from.contains(&from.ip()) {
                self.report.refused += 1;
                continue;
            }
            let Some(message) = control::parse(&datagram[..bytes]) else {
                continue;
            };
            let reply = match &message.request {
                Ok(request) => self.answer(request, from.ip()).unwrap_or_else(Reply::error),
                Err(reason) => Reply::error(reason.clone()),
            };
            // A client that does not receive the answer asks again.
            let _ = control.send_to(&control::write(&message, &reply), from);
        }
        Ok(())
    }

    fn answer(&mut self, request: &Request, source: IpAddr) -> Result<Reply, String> {
        match request {
            Request::Ping => Ok(Reply::pong()),
            Request::Offer {
                call_id,
                from_tag,
                to_tag,
                sdp,
                address_family,
            } => {
                let description = self.description(&sdp.0)?;
                if !self.calls.contains_key(&call_id.0) {
                    let parties = Parties::new(from_tag, to_tag.as_ref());
                    let own = description.receives_at.is_ipv4();
                    let other = match address_family.as_ref().map(|family| &*family.0) {
                        None => own,
                        Some("IP4") => true,
                        Some("IP6") => false,
                        Some(other) => return Err(format!("{other:?} is neither IP4 nor IP6")),
                    };
                    let call = self.open(parties, source, [own, other])?;
                    self.calls.insert(call_id.0.clone(), call);
                    self.report.calls += 1;
                }
                let call = call(&mut self.calls, &call_id.0)?;
                let place = call.parties.offer(from_tag, to_tag.as_ref())?;
                self.describe(&call_id.0, place, &description)
            }
            Request::Answer {
                call_id,
                from_tag,
                to_tag,
                sdp,
            } => {
                let description = self.description(&sdp.0)?;
                let call = call(&mut self.calls, &call_id.0)?;
                let place = call.parties.answer(from_tag, to_tag)?;
                self.describe(&call_id.0, place, &description)
            }
            Request::Delete {
                call_id,
                from_tag,
                to_tag,
            } => {
                let call = call(&mut self.calls, &call_id.0)?;
                call.parties.end(from_tag, to_tag.as_ref())?;
                self.forget(&call_id.0).map_err(|error| error.to_string())?;
                Ok(Reply::ok(None))
            }
        }
    }

    /// Reads a description.
    ///
    /// Refuses one that names a port of this server: a single packet could go around for good
    /// between ports that forward to each other, and keep a thread and the calls busy.
    fn description(&self, sdp: &str) -> Result<Description, String> {
        let description = Description::parse(sdp)?;
        let at = description.receives_at;
        let (first, last) = self.ports.range;
        let is_ours = self.ports.addresses.contains(&at.ip().to_canonical());
        if is_ours && (first..=last).contains(&at.port()) {
            return Err(format!("{at} is a port of this media server"));
        }
        if description.is_secured && self.transcode {
            return Err("encrypted voice cannot be transcoded".into());
        }
        Ok(description)
    }

    /// Notes where one party receives, and returns the description with the server's address for
    /// the other.
    fn describe(
        &mut self,
        call_id: &str,
        place: usize,
        description: &Description,
    ) -> Result<Reply, String> {
        let call = call(&mut self.calls, call_id)?;
        let (own, other) = (&call.legs[place], &call.legs[1 - place]);
        own.heard_ns.store(clock::monotonic_ns(), Ordering::Relaxed);
        for leg in &call.legs {
            // Both parties have the transport of the offer (RFC 3264, 6.1).
            leg.is_secured
                .store(description.is_secured, Ordering::Relaxed);
        }
        let reachable = Some(description.receives_at).filter(|to| control::is_reachable(*to));
        let from = socket::address(&own.socket).map_err(|error| error.to_string())?;
        if let Some(to) = reachable.filter(|to| to.is_ipv4() != from.is_ipv4()) {
            return Err(format!(
                "the call sends to this party from {from}, not to {to}"
            ));
        }
        *own.to.write().unwrap_or_else(PoisonError::into_inner) = reachable;
        let to = socket::address(&other.socket).map_err(|error| error.to_string())?;
        Ok(Reply::ok(Some(description.sent_on(to, self.transcode))))
    }

    /// Opens a call between parties that are reached by IPv4 or not.
    fn open(
        &mut self,
        parties: Parties,
        source: IpAddr,
        by_ipv4: [bool; 2],
    ) -> Result<Call, String> {
        let own = self.calls.values().filter(|call| call.source == source);
        if own.count() >= self.calls_max {
            return Err(format!(
                "{source} has {} calls, which is the most that it may have",
                self.calls_max
            ));
        }
        let legs = [self.leg(by_ipv4[0])?, self.leg(by_ipv4[1])?].map(Arc::new);
        for leg in &legs {
            // Edge-triggered: each packet wakes one thread of the pool, whichever is idle.
            let event = EpollEvent::new(EpollFlags::EPOLLIN | EpollFlags::EPOLLET, leg.number);
            let added = self.exchange.epoll.add(&leg.socket, event);
            added.map_err(|error| format!("cannot wait for a port: {}", error.desc()))?;
        }
        // No packet can have arrived, since nobody knows the ports yet.
        let [one, other] = &legs;
        let mut known = self
            .exchange
            .legs
            .write()
            .unwrap_or_else(PoisonError::into_inner);
        known.insert(one.number, [one.clone(), other.clone()]);
        known.insert(other.number, [other.clone(), one.clone()]);
        drop(known);
        Ok(Call {
            parties,
            source,
            legs,
        })
    }

    fn leg(&mut self, by_ipv4: bool) -> Result<Leg, String> {
        let mut addresses = self.ports.addresses.iter();
        let Some(&address) = addresses.find(|address| address.is_ipv4() == by_ipv4) else {
            let family = if by_ipv4 { "IPv4" } else { "IPv6" };
            return Err(format!("this media server has no address of {family}"));
        };
        for port in control::even_ports(self.ports.range, self.next_port) {
            match socket::bind_nonblocking(SocketAddr::new(address, port)) {
                Ok(socket) => {
                    if self.exchange.passages.is_some() {
                        socket::stamp_arrivals(&socket).map_err(|error| error.to_string())?;
                    }
                    self.next_port = port.saturating_add(1);
                    self.legs += 1;
                    return Ok(Leg {
                        number: self.legs,
                        socket,
                        to: RwLock::default(),
                        is_secured: AtomicBool::new(false),
                        heard_ns: AtomicI64::new(clock::monotonic_ns()),
                    });
                }
                Err(MediaError::Bind { source, .. }) if source.kind() == ErrorKind::AddrInUse => {}
                Err(error) => return Err(error.to_string()),
            }
        }
        Err("no port is free".into())
    }

    /// Ends the calls without packets or requests for too long.
    fn expire(&mut self, now_ns: i64) -> Result<(), MediaError> {
        let over = |call: &Call| now_ns - call.heard_ns() >= self.access.expire_ns;
        let expired = self.calls.iter().filter(|(_, call)| over(call));
        let expired: Vec<_> = expired.map(|(call_id, _)| call_id.clone()).collect();
        for call_id in expired {
            self.forget(&call_id)?;
            self.report.expired += 1;
        }
        Ok(())
    }

    fn forget(&mut self, call_id: &str) -> Result<(), MediaError> {
        let Some(call) = self.calls.remove(call_id) else {
            return Ok(());
        };
        let mut known = self
            .exchange
            .legs
            .write()
            .unwrap_or_else(PoisonError::into_inner);
        for leg in &call.legs {
            known.remove(&leg.number);
        }
        drop(known);
        self.report.dropped += socket::dropped_of(call.legs.iter().map(|leg| &leg.socket))?;
        Ok(())
    }

    /// Ends all remaining calls.
    fn clear(&mut self) -> Result<(), MediaError> {
        let calls: Vec<_> = self.calls.drain().map(|(_, call)| call).collect();
        let sockets = calls.iter().flat_map(|call| &call.legs);
        self.report.dropped += socket::dropped_of(sockets.map(|leg| &leg.socket))?;
        Ok(())
    }
}

fn call<'c>(calls: &'c mut HashMap<String, Call>, call_id: &str) -> Result<&'c mut Call, String> {
    calls
        .get_mut(call_id)
        .ok_or_else(|| format!("there is no call {call_id}"))
}

/// One thread of the pool.
fn serve(
    exchange: &Exchange,
    options: &RelayOptions,
    stop: &AtomicBool,
) -> Result<RelayReport, MediaError> {
    let mut report = RelayReport::default();
    let mut seen = exchange.passages.as_ref().map(Passages::of_thread);
    let mut receiver = match seen {
        Some(_) => Receiver::with_times(options.batch as usize),
        None => Receiver::new(options.batch as usize),
    };
    let mut events = [EpollEvent::empty()];
    while !stop.load(Ordering::Relaxed) {
        seen.iter_mut().for_each(Seen::wait);
        match exchange
            .epoll
            .wait(&mut events, EpollTimeout::from(socket::RECEIVE_WAIT_MS))
        {
            Ok(0) | Err(nix::errno::Errno::EINTR) => continue,
            waited => waited.map_err(MediaError::system("wait for several sockets"))?,
        };
        seen.iter_mut().for_each(Seen::wake);
        let legs = exchange.legs.read().unwrap_or_else(PoisonError::into_inner);
        // A call that has ended in the meantime is not in the list any more.
        let Some([from, to]) = legs.get(&events[0].data()).cloned() else {
            continue;
        };
        drop(legs);
        from.heard_ns
            .store(clock::monotonic_ns(), Ordering::Relaxed);
        // An edge announces all packets that have arrived so far.
        loop {
            let received = receiver.receive(&from.socket)?;
            report.received += received as u64;
            seen.iter_mut().for_each(Seen::receive);
            for (datagram, octets) in receiver.datagrams() {
                // It is read before the packet leaves in another law.
                let stamp = seen.as_ref().and_then(|_| passage::stamp_of(octets));
                relay_one(&to, datagram.cut, octets, options, &mut report, &mut seen);
                if let (Some(seen), Some(stamp), Some(arrived_ns)) =
                    (&mut seen, stamp, datagram.arrived_ns)
                {
                    seen.left(&stamp, arrived_ns);
                }
            }
            if received < options.batch as usize {
                break;
            }
        }
    }
    report.cpu_ns = clock::thread_cpu_ns();
    report.unwritten = seen.map_or(Ok(0), Seen::finish)?;
    Ok(report)
}

/// Sends one packet to the other party.
fn relay_one(
    to: &Leg,
    cut: bool,
    octets: &mut [u8],
    options: &RelayOptions,
    report: &mut RelayReport,
    seen: &mut Option<Seen<'_>>,
) {
    if cut {
        report.invalid.too_long += 1;
        return;
    }
    if to.is_secured.load(Ordering::Relaxed) {
        work(options.work_ns);
    } else if let Err(malformed) = process(octets, options) {
        report.invalid.count(malformed);
        return;
    }
    seen.iter_mut().for_each(Seen::process);
    let party = *to.to.read().unwrap_or_else(PoisonError::into_inner);
    match party.map(|party| to.socket.send_to(octets, party)) {
        Some(Ok(_)) => report.forwarded += 1,
        // A party that has not answered yet has no address to send to.
        Some(Err(_)) | None => report.failed += 1,
    }
}
