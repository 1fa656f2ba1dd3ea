use std::{io, net::SocketAddr, path::PathBuf};

/// Reasons why media cannot be sent, relayed or measured. The messages say what would be right.
#[derive(Debug, thiserror::Error)]
pub enum MediaError {
    /// An option is invalid or beyond a limit.
    #[error("{0}")]
    Refused(String),
    /// The address cannot be used.
    #[error("cannot receive on {address}: {source}")]
    Bind {
        /// Address to receive on.
        address: SocketAddr,
        /// Error of the system.
        source: io::Error,
    },
    /// A system call failed.
    #[error("cannot {what}: {source}")]
    System {
        /// The operation that failed.
        what: &'static str,
        /// Error of the system.
        source: io::Error,
    },
    /// The pcap file cannot be written.
    #[error("cannot write the capture {}: {source}", path.display())]
    Capture {
        /// Path of the capture.
        path: PathBuf,
        /// Error of the system.
        source: io::Error,
    },
    /// The orders cannot be read.
    #[error("cannot read the orders {}: {source}", path.display())]
    Orders {
        /// Path of the orders.
        path: PathBuf,
        /// Error of the system.
        source: io::Error,
    },
    /// The file of packets cannot be written.
    #[error("cannot write the packets {}: {source}", path.display())]
    Packets {
        /// Path of the file of packets.
        path: PathBuf,
        /// Error of the system.
        source: io::Error,
    },
    /// The calls were not set up by the instant at which they were to begin; a later instant may
    /// succeed.
    #[error("the calls were set up {late_ns} ns after the time of --begin; give a later --begin")]
    Late {
        /// Time by which the setup was late.
        late_ns: i64,
    },
    /// No packet of a load came.
    #[error(
        "no packet of a load came to {address} within {waited}; is the load running, and does the media server send here?"
    )]
    NothingCame {
        /// Address at which the sink listened.
        address: SocketAddr,
        /// Time that the sink waited, as text.
        waited: String,
    },
    /// A packet's times cannot be of one clock.
    #[error(
        "a packet arrived at {arrived_ns} ns, before its stamped time of sending, {sent_ns} ns; load and sink must run on one machine, whose clock they share"
    )]
    OtherClock {
        /// Time of sending in the packet.
        sent_ns: i64,
        /// Time of arrival.
        arrived_ns: i64,
    },
}

impl MediaError {
    /// A closure for `map_err` that names the failed operation `what`.
    pub(crate) fn system<E: Into<io::Error>>(what: &'static str) -> impl Fn(E) -> MediaError {
        move |source| MediaError::System {
            what,
            source: source.into(),
        }
    }
}
