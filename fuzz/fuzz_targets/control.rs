//! What tells of calls: whatever datagram or line comes is refused or understood, and what is sent on of a session
//! description is one again, with the server's address and one law of G.711.
#![no_main]

use laxity_media::{
    control::{self, Description, Reply, Request},
    orders::{Calls, Order},
};
use libfuzzer_sys::fuzz_target;
use std::net::SocketAddr;

fuzz_target!(|data: &[u8]| {
    let server = SocketAddr::from(([192, 0, 2, 2], 30_000));
    if let Some(message) = control::parse(data) {
        let reply = match &message.request {
            Ok(Request::Offer { sdp, .. } | Request::Answer { sdp, .. }) => {
                describe(&sdp.0, server);
                Reply::ok(Some(sdp.0.clone()))
            }
            Ok(_) => Reply::pong(),
            Err(reason) => Reply::error(reason.clone()),
        };
        let written = control::write(&message, &reply);
        assert!(written.starts_with(message.cookie));
    }
    let Ok(text) = std::str::from_utf8(data) else {
        return;
    };
    describe(text, server);
    let mut calls = Calls::default();
    for line in text.lines() {
        if let Ok(Order::Open { call, local }) = Order::parse(line)
            && let Ok((stream, _)) = calls.stream(call, local)
        {
            assert!(calls.streams(call).any(|each| each == stream));
        }
    }
});

fn describe(text: &str, server: SocketAddr) {
    let Ok(description) = Description::parse(text) else {
        return;
    };
    for transcode in [false, true] {
        let sent_on = description.sent_on(server, transcode);
        let again = Description::parse(&sent_on).expect("what is sent on is a description");
        assert_eq!(again.receives_at, server);
    }
}
