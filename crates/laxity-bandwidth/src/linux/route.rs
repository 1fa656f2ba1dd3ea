//! Netlink sockets: requests with their answers, dumps, and news of interfaces.

use std::collections::HashMap;
use std::io;
use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd};

use netlink_packet_core::{
    NLM_F_ACK, NLM_F_DUMP, NLM_F_ECHO, NLM_F_REQUEST, NLMSG_DONE, NLMSG_ERROR, NetlinkBuffer,
    NetlinkDeserializable, NetlinkHeader, NetlinkMessage, NetlinkPayload,
};
use netlink_packet_route::link::{InfoKind, LinkAttribute, LinkInfo, LinkMessage};
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage};
use netlink_sys::{Socket, SocketAddr, protocols::NETLINK_ROUTE};

use crate::shaper::Change;

/// Size of the buffer, large enough for any datagram of the kernel's.
const BUFFER_BYTES: usize = 1 << 20;
/// Requests in one datagram, whose answers must fit the socket's buffer.
const REQUESTS_MAX: usize = 64;
/// Requests in one datagram whose answers are descriptions of up to a page each.
const QUESTIONS_MAX: usize = 32;

const RTM_NEWLINK: u16 = 16;
const RTM_DELLINK: u16 = 17;
const RTM_NEWQDISC: u16 = 36;
const RTM_DELQDISC: u16 = 37;
const RTM_NEWTCLASS: u16 = 40;
const RTM_DELTCLASS: u16 = 41;
const RTM_NEWTFILTER: u16 = 44;
const RTM_DELTFILTER: u16 = 45;
/// The messages about traffic control, including those about chains, which the kernel makes for
/// filters by itself.
const OF_TRAFFIC_CONTROL: [u16; 6] = [
    RTM_NEWQDISC,
    RTM_DELQDISC,
    RTM_NEWTCLASS,
    RTM_DELTCLASS,
    RTM_NEWTFILTER,
    RTM_DELTFILTER,
];

/// A netlink socket for requests and their answers.
pub struct Route {
    socket: Socket,
    port: u32,
    sequence: u32,
    requests: Vec<u8>,
    answers: Vec<u8>,
}

impl Route {
    /// A socket in this thread's network namespace.
    ///
    /// # Errors
    ///
    /// The system's, as for all that follows.
    pub fn open() -> io::Result<Route> {
        let mut socket = Socket::new(NETLINK_ROUTE)?;
        let port = socket.bind_auto()?.port_number();
        socket.connect(&SocketAddr::new(0, 0))?;
        // Acknowledgements leave out the request that they answer.
        socket.set_cap_ack(true)?;
        Ok(Route {
            socket,
            port,
            sequence: 0,
            requests: Vec::new(),
            answers: Vec::with_capacity(BUFFER_BYTES),
        })
    }

    /// The port by which notifications name the requests of this socket.
    pub fn port(&self) -> u32 {
        self.port
    }

    /// Sends one request and waits for its answer.
    pub fn request(&mut self, message: RouteNetlinkMessage, flags: u16) -> io::Result<()> {
        self.requests(std::iter::once((message, flags)))
            .pop()
            .map_or(Ok(()), |(_, error)| Err(error))
    }

    /// Sends many requests in few system calls. Returns the indices of those that failed, with the
    /// errors.
    pub fn requests(
        &mut self,
        messages: impl Iterator<Item = (RouteNetlinkMessage, u16)>,
    ) -> Vec<(usize, io::Error)> {
        let mut failed = Vec::new();
        let mut first = 0;
        let mut messages = messages.peekable();
        while messages.peek().is_some() {
            self.requests.clear();
            let first_sequence = self.sequence.wrapping_add(1);
            let mut count = 0;
            for (message, flags) in messages.by_ref().take(REQUESTS_MAX) {
                self.append(message, flags | NLM_F_ACK);
                count += 1;
            }
            let answered = self.socket.send(&self.requests, 0).and_then(|_| {
                self.collect_answers(first_sequence, count, |at, error| {
                    failed.push((first + at, error));
                })
            });
            if let Err(error) = answered {
                failed.push((first, error));
                return failed;
            }
            first += count;
        }
        failed
    }

    fn append(&mut self, message: RouteNetlinkMessage, flags: u16) {
        self.sequence = self.sequence.wrapping_add(1);
        let mut header = NetlinkHeader::default();
        header.flags = NLM_F_REQUEST | flags;
        header.sequence_number = self.sequence;
        let mut message = NetlinkMessage::new(header, NetlinkPayload::InnerMessage(message));
        message.finalize();
        let begin = self.requests.len();
        self.requests.resize(begin + message.buffer_len(), 0);
        message.serialize(&mut self.requests[begin..]);
    }

    fn collect_answers(
        &mut self,
        first_sequence: u32,
        count: usize,
        mut failed: impl FnMut(usize, io::Error),
    ) -> io::Result<()> {
        let mut awaited = count;
        while awaited > 0 {
            self.answers.clear();
            self.socket.recv(&mut self.answers, 0)?;
            for message in messages(&self.answers) {
                let at = message.sequence_number().wrapping_sub(first_sequence) as usize;
                if message.message_type() != NLMSG_ERROR || at >= count {
                    continue;
                }
                awaited -= 1;
                if let Some(error) = error_of(&message) {
                    failed(at, error);
                }
            }
        }
        Ok(())
    }

    /// Asks for single objects in few system calls, and passes each answer without its header to
    /// `each`. Returns the number of objects that do not exist.
    pub fn ask(
        &mut self,
        questions: impl Iterator<Item = RouteNetlinkMessage>,
        mut each: impl FnMut(&[u8]),
    ) -> io::Result<usize> {
        let mut unanswered = 0;
        let mut questions = questions.peekable();
        while questions.peek().is_some() {
            self.requests.clear();
            let mut count = 0;
            while let Some(question) = questions.next_if(|_| count < QUESTIONS_MAX) {
                count += 1;
                let is_last = count == QUESTIONS_MAX || questions.peek().is_none();
                // Traffic control names the asking socket only with the echo flag; the
                // acknowledgement of the last request marks the end of all answers.
                self.append(question, NLM_F_ECHO | if is_last { NLM_F_ACK } else { 0 });
            }
            self.socket.send(&self.requests, 0)?;
            unanswered += count;
            let mut is_done = false;
            while !is_done {
                self.answers.clear();
                self.socket.recv(&mut self.answers, 0)?;
                for message in messages(&self.answers) {
                    let before_last = self.sequence.wrapping_sub(message.sequence_number());
                    if before_last as usize >= count {
                        continue;
                    }
                    if message.message_type() == NLMSG_ERROR {
                        is_done |= before_last == 0;
                    } else {
                        unanswered = unanswered.saturating_sub(1);
                        each(message.payload());
                    }
                }
            }
        }
        Ok(unanswered)
    }

    /// Asks for a dump, and passes every part of it without its header to `each`.
    pub fn dump(
        &mut self,
        message: RouteNetlinkMessage,
        mut each: impl FnMut(&[u8]),
    ) -> io::Result<()> {
        self.requests.clear();
        self.append(message, NLM_F_DUMP);
        self.socket.send(&self.requests, 0)?;
        loop {
            self.answers.clear();
            self.socket.recv(&mut self.answers, 0)?;
            for message in messages(&self.answers) {
                if message.sequence_number() != self.sequence {
                    continue;
                }
                match message.message_type() {
                    NLMSG_DONE => return Ok(()),
                    NLMSG_ERROR => return error_of(&message).map_or(Ok(()), Err),
                    _ => each(message.payload()),
                }
            }
        }
    }
}

/// The messages of a datagram, up to the first incomplete one.
pub(super) fn messages(datagram: &[u8]) -> impl Iterator<Item = NetlinkBuffer<&[u8]>> {
    const ALIGNMENT: usize = 4;
    let mut rest = datagram;
    std::iter::from_fn(move || {
        let message = NetlinkBuffer::new_checked(rest).ok()?;
        let length = (message.length() as usize).next_multiple_of(ALIGNMENT);
        rest = rest.get(length..).unwrap_or_default();
        Some(message)
    })
}

/// The error in an acknowledgement; `None` means success.
pub(super) fn error_of(message: &NetlinkBuffer<&[u8]>) -> Option<io::Error> {
    let code = message
        .payload()
        .first_chunk()
        .copied()
        .map(i32::from_ne_bytes);
    match code {
        Some(0) => None,
        Some(code) => Some(io::Error::from_raw_os_error(code.wrapping_neg())),
        None => Some(io::ErrorKind::InvalidData.into()),
    }
}

/// An interface of the host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Interface {
    /// Its number.
    pub index: u32,
    /// Its name.
    pub name: String,
    /// What kind of virtual interface it is; `None` for hardware and taps without a description.
    pub kind: Option<InfoKind>,
    /// The number of the interface that it was made upon, or of a cable's other end.
    pub lower: Option<u32>,
    /// The number of the bridge or switch whose port it is.
    pub controller: Option<u32>,
}

impl Interface {
    /// The interface whose packets it takes, as the kernel then says that they came by this one.
    pub fn stacked_on(&self) -> Option<u32> {
        let is_stacked = matches!(
            self.kind,
            Some(InfoKind::Vlan | InfoKind::MacVlan | InfoKind::MacSec | InfoKind::IpVlan)
        );
        self.lower.filter(|_| is_stacked)
    }

    /// What would keep the packets of the virtual machine at this interface from being known at the
    /// link, and what would be right.
    pub fn obstacle(&self, link: &Interface) -> Option<(&'static str, &'static str)> {
        const WIRED: &str = "connect the virtual machine by a tap or a cable (veth), as a port of a bridge or routed";
        if matches!(self.kind, Some(InfoKind::MacVtap | InfoKind::IpVtap)) {
            let what = "is a macvtap, whose packets do not pass through the host, so the link cannot tell their sender";
            return Some((what, WIRED));
        }
        if self.stacked_on() == Some(link.index) {
            return Some((
                "is stacked on the link, and packets that leave by the link do not enter by it",
                WIRED,
            ));
        }
        if self.controller == Some(link.index) {
            let what =
                "is a port of the link, whose ports exchange packets that do not pass its queue";
            return Some((
                what,
                "name the port that leads outside as the interface of [link]",
            ));
        }
        None
    }
}

/// An interface that has come or gone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LinkEvent {
    /// The interface exists, new or as before.
    Is(Interface),
    /// The interface with this number is gone.
    Gone(u32),
}

/// Notifications of traffic control that show changes by other programs.
pub struct Changes {
    news: Socket,
    buffer: Vec<u8>,
}

impl Changes {
    /// Notifications of this thread's network namespace. Changes requested at `ports` are this
    /// process's own and left out.
    ///
    /// # Errors
    ///
    /// The system's, as for all that follows.
    pub fn open(ports: &[u32]) -> io::Result<Changes> {
        const RTMGRP_TC: u32 = 8;
        let mut news = Socket::new(NETLINK_ROUTE)?;
        // One read of the counters may cause more notifications than the socket has room for.
        ignore(&news, ports)?;
        news.bind(&SocketAddr::new(0, RTMGRP_TC))?;
        news.set_non_blocking(true)?;
        Ok(Changes {
            news,
            buffer: Vec::with_capacity(BUFFER_BYTES),
        })
    }

    /// A file descriptor for `poll`, readable when there are notifications.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.news.as_fd()
    }

    /// Passes all changes since the last call to `each`. Returns `false` if notifications were
    /// lost.
    pub fn news(&mut self, mut each: impl FnMut(Change)) -> io::Result<bool> {
        loop {
            self.buffer.clear();
            match self.news.recv(&mut self.buffer, 0) {
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(true),
                Err(error) if error.raw_os_error() == Some(libc::ENOBUFS) => return Ok(false),
                Err(error) => return Err(error),
            }
            for message in messages(&self.buffer) {
                if OF_TRAFFIC_CONTROL.contains(&message.message_type())
                    && let Some(change) = change(message.payload())
                {
                    each(change);
                }
            }
        }
    }
}

/// The change that a notification of traffic control describes (`struct tcmsg`).
pub(super) fn change(payload: &[u8]) -> Option<Change> {
    const INTERFACE: usize = 4;
    const HANDLE: usize = 8;
    const PARENT: usize = 12;
    let word = |at: usize| {
        let bytes = payload.get(at..)?.first_chunk()?;
        Some(u32::from_ne_bytes(*bytes))
    };
    Some(Change {
        interface: word(INTERFACE)?,
        handle: word(HANDLE)?,
        parent: word(PARENT)?,
    })
}

/// Makes a socket ignore notifications about requests from one of these ports.
#[allow(unsafe_code)]
fn ignore(socket: &Socket, ports: &[u32]) -> io::Result<()> {
    /// Offset of the port in a message's header (`struct nlmsghdr`).
    const PORT: u32 = 12;
    const LOAD_WORD: u16 = 0x20;
    const JUMP_IF_EQUAL: u16 = 0x15;
    const RETURN: u16 = 0x06;
    const WHOLE: u32 = u32::MAX;
    const NOTHING: u32 = 0;
    let instruction = |code, if_so, k| libc::sock_filter {
        code,
        jt: if_so,
        jf: 0,
        k,
    };
    // The filter compares words in network byte order.
    let tests = ports.iter().enumerate().map(|(at, port)| {
        let after = (ports.len() - at) as u8;
        instruction(JUMP_IF_EQUAL, after, port.to_be())
    });
    let mut program = vec![instruction(LOAD_WORD, 0, PORT)];
    program.extend(tests);
    program.push(instruction(RETURN, 0, WHOLE));
    program.push(instruction(RETURN, 0, NOTHING));
    let filter = libc::sock_fprog {
        len: program.len() as u16,
        filter: program.as_mut_ptr(),
    };
    // SAFETY: the kernel copies the program, which lives until it returns, and writes nothing.
    let done = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_ATTACH_FILTER,
            std::ptr::from_ref(&filter).cast(),
            size_of::<libc::sock_fprog>() as libc::socklen_t,
        )
    };
    if done < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

/// Counters of an interface. The traffic that a virtual machine sends is received by its interface
/// on the host.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Traffic {
    /// Received, in bytes.
    pub received_bytes: u64,
    /// Received and dropped, in packets.
    pub received_dropped: u64,
}

/// Interfaces by name.
pub type Interfaces = HashMap<String, Interface>;

/// The interfaces of a network namespace, and notifications about them.
pub struct Links {
    news: Socket,
    route: Route,
    buffer: Vec<u8>,
}

impl Links {
    /// The interfaces of this thread's network namespace.
    ///
    /// # Errors
    ///
    /// The system's, as for all that follows.
    pub fn open() -> io::Result<Links> {
        const RTMGRP_LINK: u32 = 1;
        let mut news = Socket::new(NETLINK_ROUTE)?;
        news.bind(&SocketAddr::new(0, RTMGRP_LINK))?;
        news.set_non_blocking(true)?;
        Ok(Links {
            news,
            route: Route::open()?,
            buffer: Vec::with_capacity(BUFFER_BYTES),
        })
    }

    /// A file descriptor for `poll`, readable when there are notifications.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.news.as_fd()
    }

    /// All interfaces, by name.
    pub fn all(&mut self) -> io::Result<Interfaces> {
        let mut all = HashMap::new();
        let request = RouteNetlinkMessage::GetLink(LinkMessage::default());
        self.route.dump(request, |payload| {
            if let Some(interface) = link(payload).and_then(described) {
                all.insert(interface.name.clone(), interface);
            }
        })?;
        Ok(all)
    }

    /// The counters of all interfaces, by number.
    pub fn traffic(&mut self, all: &mut HashMap<u32, Traffic>) -> io::Result<()> {
        all.clear();
        let request = RouteNetlinkMessage::GetLink(LinkMessage::default());
        self.route
            .dump(request, |payload| all.extend(traffic_of(payload)))
    }

    /// All events since the last call; `None` means that notifications were lost and [`Links::all`]
    /// has to be read again.
    pub fn news(&mut self) -> io::Result<Option<Vec<LinkEvent>>> {
        let mut events = Vec::new();
        loop {
            self.buffer.clear();
            match self.news.recv(&mut self.buffer, 0) {
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(Some(events)),
                Err(error) if error.raw_os_error() == Some(libc::ENOBUFS) => return Ok(None),
                Err(error) => return Err(error),
            }
            for message in messages(&self.buffer) {
                events.extend(link_event(&message));
            }
        }
    }
}

fn link(payload: &[u8]) -> Option<LinkMessage> {
    let mut header = NetlinkHeader::default();
    header.message_type = RTM_NEWLINK;
    let message = RouteNetlinkMessage::deserialize(&header, payload).ok()?;
    match message {
        RouteNetlinkMessage::NewLink(link) => Some(link),
        _ => None,
    }
}

/// The interface that a message is about; `None` if it has no name.
fn described(link: LinkMessage) -> Option<Interface> {
    let mut interface = Interface {
        index: link.header.index,
        name: String::new(),
        kind: None,
        lower: None,
        controller: None,
    };
    for attribute in link.attributes {
        match attribute {
            LinkAttribute::IfName(name) => interface.name = name,
            LinkAttribute::Link(lower) => interface.lower = Some(lower),
            LinkAttribute::Controller(controller) => interface.controller = Some(controller),
            LinkAttribute::LinkInfo(infos) => {
                let kind = infos.into_iter().find_map(|info| match info {
                    LinkInfo::Kind(kind) => Some(kind),
                    _ => None,
                });
                interface.kind = kind;
            }
            _ => {}
        }
    }
    (!interface.name.is_empty()).then_some(interface)
}

/// The number of an interface and its counters; `None` if the part of a dump has none.
pub(super) fn traffic_of(payload: &[u8]) -> Option<(u32, Traffic)> {
    let link = link(payload)?;
    let counted = link
        .attributes
        .iter()
        .find_map(|attribute| match attribute {
            LinkAttribute::Stats64(stats) => Some(Traffic {
                received_bytes: stats.rx_bytes,
                received_dropped: stats.rx_dropped,
            }),
            _ => None,
        });
    Some((link.header.index, counted?))
}

/// The event that a notification of interfaces describes.
pub(super) fn link_event(message: &NetlinkBuffer<&[u8]>) -> Option<LinkEvent> {
    let link = link(message.payload())?;
    // A bridge tells in the same messages that it has gained or lost a port, and less of the port.
    if link.header.interface_family == AddressFamily::Bridge {
        return None;
    }
    match message.message_type() {
        RTM_NEWLINK => described(link).map(LinkEvent::Is),
        RTM_DELLINK => Some(LinkEvent::Gone(link.header.index)),
        _ => None,
    }
}
