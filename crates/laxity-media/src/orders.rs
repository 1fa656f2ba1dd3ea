//! The orders by which a signalling program tells the media program what to send and measure, one a
//! line. This module has no I/O.
//!
//! ```text
//! open CALL LOCAL                party of a call: has a port, and listens there
//! send CALL LOCAL REMOTE TYPE    it sends to the media server, in payload type 0 or 8
//! end CALL                       nobody sends any more
//! begin                          the time begins for which all is to last, if one was given: nobody sends before
//! ```
//!
//! A call has two parties. Its streams are two successive numbers: first what the party sends that was named first.

use crate::{MediaError, g711::Law, stamp::STREAMS_MAX};
use std::{
    collections::{HashMap, hash_map::Entry},
    net::SocketAddr,
};

/// An order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Order<'l> {
    /// A party starts to listen.
    Open {
        /// The call.
        call: &'l str,
        /// Address at which the party listens.
        local: SocketAddr,
    },
    /// A party starts to send.
    Send {
        /// The call.
        call: &'l str,
        /// Address from which the party sends.
        local: SocketAddr,
        /// Address to which the party sends.
        remote: SocketAddr,
        /// Law of the stream.
        law: Law,
    },
    /// A call ends.
    End {
        /// The call.
        call: &'l str,
    },
    /// The time limit starts.
    Begin,
}

impl<'l> Order<'l> {
    /// Parses a line.
    ///
    /// # Errors
    ///
    /// What is wrong, and what would be right.
    pub fn parse(line: &'l str) -> Result<Order<'l>, MediaError> {
        let refused = |what: &str| MediaError::Refused(format!("the order `{line}` {what}"));
        let address = |text: &str| {
            text.parse()
                .map_err(|_| refused(&format!("has `{text}` where ADDRESS:PORT belongs")))
        };
        let words: Vec<_> = line.split_whitespace().collect();
        match words[..] {
            ["open", call, local] => Ok(Order::Open {
                call,
                local: address(local)?,
            }),
            ["send", call, local, remote, payload_type] => Ok(Order::Send {
                call,
                local: address(local)?,
                remote: address(remote)?,
                law: payload_type
                    .parse()
                    .ok()
                    .and_then(Law::of_payload_type)
                    .ok_or_else(|| refused("has a payload type other than 0 and 8"))?,
            }),
            ["end", call] => Ok(Order::End { call }),
            ["begin"] => Ok(Order::Begin),
            _ => Err(refused(
                "is unknown; the orders are `open CALL LOCAL`, `send CALL LOCAL REMOTE TYPE`, `end CALL` and `begin`",
            )),
        }
    }
}

/// The calls, and the numbers of their streams.
#[derive(Debug, Clone, Default)]
pub struct Calls {
    by_name: HashMap<String, u32>,
    parties: Vec<Vec<SocketAddr>>,
}

impl Calls {
    /// The number of the stream that a party of a call sends, and whether the party is new.
    ///
    /// # Errors
    ///
    /// If the call has two others, or there are too many calls.
    pub fn stream(&mut self, call: &str, local: SocketAddr) -> Result<(u16, bool), MediaError> {
        let place = match self.by_name.entry(call.to_owned()) {
            Entry::Occupied(entry) => *entry.get(),
            Entry::Vacant(entry) => {
                let place = self.parties.len() as u32;
                if 2 * place + 1 >= STREAMS_MAX {
                    return Err(MediaError::Refused(format!(
                        "there are too many calls; a load has at most {}",
                        STREAMS_MAX / 2
                    )));
                }
                self.parties.push(Vec::new());
                *entry.insert(place)
            }
        };
        let parties = &mut self.parties[place as usize];
        let known = parties.iter().position(|party| *party == local);
        if known.is_none() {
            if parties.len() == 2 {
                return Err(MediaError::Refused(format!(
                    "the call {call} already has two parties; {local} would be a third"
                )));
            }
            parties.push(local);
        }
        let party = known.unwrap_or(parties.len() - 1);
        Ok((2 * place as u16 + party as u16, known.is_none()))
    }

    /// The streams of a call's known parties.
    pub fn streams(&self, call: &str) -> impl Iterator<Item = u16> {
        let place = self.by_name.get(call).copied();
        let parties = place.map_or(0, |place| self.parties[place as usize].len() as u16);
        let first = 2 * place.unwrap_or(0) as u16;
        first..first + parties
    }

    /// Number of calls so far.
    pub fn count(&self) -> u32 {
        self.parties.len() as u32
    }
}

/// The stream of the other party of the call that has `stream`.
pub fn other_stream(stream: u16) -> u16 {
    stream ^ 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parties_of_calls_have_successive_numbers() {
        let mut calls = Calls::default();
        let party = |port| SocketAddr::from(([192, 0, 2, 1], port));
        assert_eq!(calls.stream("a", party(1)).unwrap(), (0, true));
        assert_eq!(calls.stream("b", party(3)).unwrap(), (2, true));
        assert_eq!(calls.stream("a", party(2)).unwrap(), (1, true));
        assert_eq!(calls.stream("a", party(1)).unwrap(), (0, false));
        assert_eq!(calls.streams("a").collect::<Vec<_>>(), [0, 1]);
        assert_eq!(calls.streams("b").collect::<Vec<_>>(), [2]);
        assert_eq!(calls.streams("c").count(), 0);
        assert_eq!([other_stream(0), other_stream(1)], [1, 0]);
        let third = calls.stream("a", party(3)).unwrap_err().to_string();
        assert!(third.contains("would be a third"), "{third}");
    }

    #[test]
    fn more_calls_than_a_stamp_can_name_are_refused() {
        let mut calls = Calls::default();
        let local = "192.0.2.1:2".parse().unwrap();
        for call in 0..STREAMS_MAX / 2 {
            calls.stream(&call.to_string(), local).unwrap();
        }
        let error = calls.stream("more", local).unwrap_err().to_string();
        assert!(error.contains("at most 32767"), "{error}");
    }

    #[test]
    fn what_is_no_order_is_refused() {
        let refusal = |line| Order::parse(line).unwrap_err().to_string();
        assert!(refusal("").contains("is unknown; the orders are `open CALL LOCAL`"));
        assert!(refusal("open a").contains("is unknown"));
        assert!(refusal("open a 192.0.2.1").contains("has `192.0.2.1` where ADDRESS:PORT"));
        assert!(refusal("send a 192.0.2.1:2 192.0.2.2:2 9").contains("than 0 and 8"));
        assert_eq!(
            Order::parse(" end a ").unwrap(),
            Order::End { call: "a" },
            "what is around does not matter"
        );
    }
}
