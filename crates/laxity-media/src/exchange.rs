//! The model media server with a port for each party of each call, as session descriptions agree on them: what
//! [`control`](crate::control) asks for.

use crate::{
    MediaError, clock,
    control::{self, Description, Reply, Request},
    relay::{RelayOptions, RelayReport, process},
    socket::{self, Receiver},
};
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};
use std::{
    collections::HashMap,
    io::ErrorKind,
    net::{IpAddr, SocketAddr, UdpSocket},
    sync::{
        Arc, PoisonError, RwLock,
        atomic::{AtomicBool, Ordering},
    },
    thread,
};

/// Where the media server's own ports are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ports {
    /// The address that parties send to.
    pub address: IpAddr,
    /// The first and the last port.
    pub range: (u16, u16),
}

/// One party of a call: its packets come to `socket`, and the other's go from there to it.
struct Leg {
    number: u64,
    socket: UdpSocket,
    /// Where the party receives, once it has said so.
    to: RwLock<Option<SocketAddr>>,
}

/// A call: the party that offered first, and the other.
struct Call {
    from_tag: String,
    legs: [Arc<Leg>; 2],
}

/// What control and pool share.
struct Exchange {
    epoll: Epoll,
    /// By number: whose packets they are, and who gets them.
    legs: RwLock<HashMap<u64, [Arc<Leg>; 2]>>,
}

/// Relays the calls that `control` is told of, until `stop`.
///
/// # Errors
///
/// If the options make no sense or the system fails.
pub fn relay(
    control: &UdpSocket,
    ports: Ports,
    options: &RelayOptions,
    stop: &AtomicBool,
) -> Result<RelayReport, MediaError> {
    options.validate()?;
    if control::even_ports(ports.range, 0).next().is_none() {
        let (first, last) = ports.range;
        return Err(MediaError::Refused(format!(
            "there is no even port from {first} to {last}; give the lower one first"
        )));
    }
    let exchange = Exchange {
        epoll: Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)
            .map_err(MediaError::system("wait for several sockets"))?,
        legs: RwLock::default(),
    };
    thread::scope(|scope| {
        let handles: Vec<_> = (0..options.threads)
            .map(|_| scope.spawn(|| serve(&exchange, options, stop)))
            .collect();
        let mut switchboard = Switchboard {
            exchange: &exchange,
            ports,
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

/// Who knows the calls.
struct Switchboard<'e> {
    exchange: &'e Exchange,
    ports: Ports,
    transcode: bool,
    calls: HashMap<String, Call>,
    legs: u64,
    next_port: u16,
    /// Of calls that are over.
    report: RelayReport,
}

impl Switchboard<'_> {
    fn serve(&mut self, control: &UdpSocket, stop: &AtomicBool) -> Result<(), MediaError> {
        let mut datagram = [0; u16::MAX as usize];
        while !stop.load(Ordering::Relaxed) {
            let (bytes, from) = match control.recv_from(&mut datagram) {
                Ok(received) => received,
                Err(error)
                    if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) =>
                {
                    continue;
                }
                Err(error) => return Err(MediaError::system("receive")(error)),
            };
            let Some(message) = control::parse(&datagram[..bytes]) else {
                continue;
            };
            let reply = match &message.request {
                Ok(request) => self.answer(request).unwrap_or_else(Reply::error),
                Err(reason) => Reply::error(reason.clone()),
            };
            // Who does not get the answer asks again.
            let _ = control.send_to(&control::write(&message, &reply), from);
        }
        Ok(())
    }

    fn answer(&mut self, request: &Request) -> Result<Reply, String> {
        match request {
            Request::Ping => Ok(Reply::pong()),
            Request::Offer {
                call_id,
                from_tag,
                sdp,
            } => {
                let description = Description::parse(&sdp.0)?;
                if !self.calls.contains_key(&call_id.0) {
                    let call = self.open(&from_tag.0)?;
                    self.calls.insert(call_id.0.clone(), call);
                    self.report.calls += 1;
                }
                self.describe(&call_id.0, &from_tag.0, &description)
            }
            Request::Answer {
                call_id,
                to_tag,
                sdp,
                ..
            } => self.describe(&call_id.0, &to_tag.0, &Description::parse(&sdp.0)?),
            Request::Delete { call_id } => {
                let call = self
                    .calls
                    .remove(&call_id.0)
                    .ok_or_else(|| format!("there is no call {}", call_id.0))?;
                self.close(&call).map_err(|error| error.to_string())?;
                Ok(Reply::ok(None))
            }
        }
    }

    /// The party with `tag` says where it receives; the other is told where the server does.
    fn describe(
        &self,
        call_id: &str,
        tag: &str,
        description: &Description,
    ) -> Result<Reply, String> {
        let call = self
            .calls
            .get(call_id)
            .ok_or_else(|| format!("there is no call {call_id}"))?;
        let [offering, answering] = &call.legs;
        let (own, other) = if call.from_tag == tag {
            (offering, answering)
        } else {
            (answering, offering)
        };
        let reachable = Some(description.receives_at).filter(|to| control::is_reachable(*to));
        *own.to.write().unwrap_or_else(PoisonError::into_inner) = reachable;
        let to = socket::address(&other.socket).map_err(|error| error.to_string())?;
        Ok(Reply::ok(Some(description.sent_on(to, self.transcode))))
    }

    fn open(&mut self, from_tag: &str) -> Result<Call, String> {
        let legs = [self.leg()?, self.leg()?].map(Arc::new);
        for leg in &legs {
            // By edges: each packet wakes one thread of the pool, and which does not matter.
            let event = EpollEvent::new(EpollFlags::EPOLLIN | EpollFlags::EPOLLET, leg.number);
            let added = self.exchange.epoll.add(&leg.socket, event);
            added.map_err(|error| format!("cannot wait for a port: {}", error.desc()))?;
        }
        // Nobody has been told of the ports yet, so that nothing has come.
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
            from_tag: from_tag.to_owned(),
            legs,
        })
    }

    fn leg(&mut self) -> Result<Leg, String> {
        for port in control::even_ports(self.ports.range, self.next_port) {
            match socket::bind_nonblocking(SocketAddr::new(self.ports.address, port)) {
                Ok(socket) => {
                    self.next_port = port.saturating_add(1);
                    self.legs += 1;
                    return Ok(Leg {
                        number: self.legs,
                        socket,
                        to: RwLock::default(),
                    });
                }
                Err(MediaError::Bind { source, .. }) if source.kind() == ErrorKind::AddrInUse => {}
                Err(error) => return Err(error.to_string()),
            }
        }
        Err("no port is free".into())
    }

    fn close(&mut self, call: &Call) -> Result<(), MediaError> {
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

    /// Ends the calls that are left.
    fn clear(&mut self) -> Result<(), MediaError> {
        let calls: Vec<_> = self.calls.drain().map(|(_, call)| call).collect();
        let sockets = calls.iter().flat_map(|call| &call.legs);
        self.report.dropped += socket::dropped_of(sockets.map(|leg| &leg.socket))?;
        Ok(())
    }
}

/// One thread of the pool.
fn serve(
    exchange: &Exchange,
    options: &RelayOptions,
    stop: &AtomicBool,
) -> Result<RelayReport, MediaError> {
    let mut report = RelayReport::default();
    let mut receiver = Receiver::new(options.batch as usize);
    let mut events = [EpollEvent::empty()];
    while !stop.load(Ordering::Relaxed) {
        match exchange
            .epoll
            .wait(&mut events, EpollTimeout::from(socket::RECEIVE_WAIT_MS))
        {
            Ok(0) | Err(nix::errno::Errno::EINTR) => continue,
            waited => waited.map_err(MediaError::system("wait for several sockets"))?,
        };
        let legs = exchange.legs.read().unwrap_or_else(PoisonError::into_inner);
        // A call that has ended meanwhile is in no list any more.
        let Some([from, to]) = legs.get(&events[0].data()).cloned() else {
            continue;
        };
        drop(legs);
        // An edge tells of all packets that are there.
        loop {
            let received = receiver.receive(&from.socket)?;
            report.received += received as u64;
            for (datagram, octets) in receiver.datagrams() {
                relay_one(&to, datagram.cut, octets, options, &mut report);
            }
            if received < options.batch as usize {
                break;
            }
        }
    }
    report.cpu_ns = clock::thread_cpu_ns();
    Ok(report)
}

/// Sends one packet on to its party.
fn relay_one(
    to: &Leg,
    cut: bool,
    octets: &mut [u8],
    options: &RelayOptions,
    report: &mut RelayReport,
) {
    if cut {
        report.invalid.too_long += 1;
        return;
    }
    if let Err(malformed) = process(octets, options) {
        report.invalid.count(malformed);
        return;
    }
    let party = *to.to.read().unwrap_or_else(PoisonError::into_inner);
    match party.map(|party| to.socket.send_to(octets, party)) {
        Some(Ok(_)) => report.forwarded += 1,
        // To a party that has not answered yet, nothing can be sent.
        Some(Err(_)) | None => report.failed += 1,
    }
}
