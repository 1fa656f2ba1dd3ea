use std::{io, net::SocketAddr, path::PathBuf};

/// Why media could not be sent, relayed or measured. The text says what would be right.
#[derive(Debug, thiserror::Error)]
pub enum MediaError {
    /// What was asked for makes no sense, or is more than this is made for.
    #[error("{0}")]
    Refused(String),
    /// The address cannot be used.
    #[error("cannot receive on {address}: {source}")]
    Bind {
        /// The address asked for.
        address: SocketAddr,
        /// The system's word.
        source: io::Error,
    },
    /// A system call failed.
    #[error("cannot {what}: {source}")]
    System {
        /// What was tried.
        what: &'static str,
        /// The system's word.
        source: io::Error,
    },
    /// The pcap file cannot be written.
    #[error("cannot write the capture {}: {source}", path.display())]
    Capture {
        /// The file.
        path: PathBuf,
        /// The system's word.
        source: io::Error,
    },
    /// There is nothing to take orders from.
    #[error("cannot read the orders {}: {source}", path.display())]
    Orders {
        /// The file.
        path: PathBuf,
        /// The system's word.
        source: io::Error,
    },
    /// The file of packets cannot be written.
    #[error("cannot write the packets {}: {source}", path.display())]
    Packets {
        /// The file.
        path: PathBuf,
        /// The system's word.
        source: io::Error,
    },
    /// Calls were to begin at an instant by which they were not set up. Later ones may be.
    #[error("the calls were to begin {late_ns} ns before they were set up; give a later --begin")]
    Late {
        /// By how much.
        late_ns: i64,
    },
    /// No packet of a load came.
    #[error(
        "no packet of a load came to {address} within {waited}; is the load running, and does the media server send here?"
    )]
    NothingCame {
        /// Where the sink listened.
        address: SocketAddr,
        /// For how long, as people write it.
        waited: String,
    },
    /// A packet's times cannot be of one clock.
    #[error(
        "a packet arrived at {arrived_ns} ns and says that it was sent at {sent_ns} ns; load and sink must run on one machine, whose clock they share"
    )]
    OtherClock {
        /// When it says that it was sent.
        sent_ns: i64,
        /// When it arrived.
        arrived_ns: i64,
    },
}

impl MediaError {
    /// For `map_err`: `what` failed.
    pub(crate) fn system<E: Into<io::Error>>(what: &'static str) -> impl Fn(E) -> MediaError {
        move |source| MediaError::System {
            what,
            source: source.into(),
        }
    }
}
