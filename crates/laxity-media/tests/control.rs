//! The ng protocol, and session descriptions.

use laxity_media::control::{self, Description, Encoding, Parties, Reply, Request, Text};
use std::net::SocketAddr;

/// An offer as Kamailio writes it: keys in any order, flags in a list, octets that are text.
const OFFER: &[u8] = include_bytes!("../../../fuzz/seeds/control/offer");

#[test]
fn a_proxys_offer_is_understood() {
    let message = control::parse(OFFER).unwrap();
    assert_eq!(
        (message.cookie, message.encoding),
        (&b"12_34"[..], Encoding::Bencode)
    );
    let Ok(Request::Offer {
        call_id,
        from_tag,
        sdp,
        ..
    }) = &message.request
    else {
        panic!("{:?}", message.request);
    };
    assert_eq!((&*call_id.0, &*from_tag.0), ("a@192.0.2.1", "1"));
    let description = Description::parse(&sdp.0).unwrap();
    assert_eq!(description.receives_at, "192.0.2.1:20000".parse().unwrap());

    let reply = control::write(&message, &Reply::ok(Some("v=0".into())));
    assert_eq!(reply, b"12_34 d6:result2:ok3:sdp3:v=0e");
}

#[test]
fn json_is_answered_in_json() {
    let message = control::parse(br#"7 {"command": "delete", "call-id": "a", "from-tag": "b"}"#);
    let message = message.unwrap();
    let [call_id, from_tag] = ["a", "b"].map(|text| Text(text.into()));
    let delete = Request::Delete {
        call_id,
        from_tag,
        to_tag: None,
    };
    assert_eq!(message.request, Ok(delete));
    let reply = control::write(&message, &Reply::error("no".into()));
    assert_eq!(reply, br#"7 {"error-reason":"no","result":"error"}"#);
}

#[test]
fn what_is_no_question_is_answered_with_the_reason() {
    assert!(control::parse(b"without-a-cookie").is_none());
    for (datagram, reason) in [
        (&b"1 d7:command6:listene"[..], "unknown variant `listen`"),
        (b"1 d7:command5:offere", "missing field"),
        (b"1 d7:command4:ping", "eof"),
        (b"1 {}", "command"),
        (b"1 d7:commandi4ee", "i"),
    ] {
        let error = control::parse(datagram).unwrap().request.unwrap_err();
        assert!(error.to_lowercase().contains(reason), "{error}");
    }
}

#[test]
fn a_description_that_is_sent_on_has_the_servers_address_and_one_law() {
    let Ok(Request::Offer { sdp, .. }) = control::parse(OFFER).unwrap().request else {
        panic!("the seed is an offer");
    };
    let description = Description::parse(&sdp.0).unwrap();
    let to: SocketAddr = "192.0.2.2:30000".parse().unwrap();
    let sent_on = description.sent_on(to, false);
    assert!(sent_on.contains("c=IN IP4 192.0.2.2\r\n"), "{sent_on}");
    assert!(sent_on.contains("m=audio 30000 RTP/AVP 8\r\n"), "{sent_on}");
    // The video is refused, and RTCP has the server's port.
    assert!(sent_on.contains("m=video 0 RTP/AVP"), "{sent_on}");
    assert!(
        !sent_on.contains("rtcp") && !sent_on.contains("telephone"),
        "{sent_on}"
    );
    assert!(!sent_on.contains("c=IN IP4 192.0.2.1"), "{sent_on}");
    let transcoded = description.sent_on(to, true);
    assert!(
        transcoded.contains("m=audio 30000 RTP/AVP 0\r\n"),
        "{transcoded}"
    );
}

/// What the parties say of keys is theirs: in the media's attributes, or in the session's.
#[test]
fn keys_are_passed_on_as_they_are() {
    let to: SocketAddr = "192.0.2.2:30000".parse().unwrap();
    let crypto =
        "a=crypto:1 AES_CM_128_HMAC_SHA1_80 inline:WVNfX19zZW1jdGwgKCkgewkyMjA7fQp9CnVubGVz";
    let fingerprint = "a=fingerprint:sha-256 4A:AD:B9:B1:3F:82:18:3B:54:02:12:DF:3E:5D:49:6B";
    for (proto, of_session, of_media) in [
        ("RTP/SAVP", "", crypto),
        ("UDP/TLS/RTP/SAVP", "", fingerprint),
        ("UDP/TLS/RTP/SAVP", fingerprint, "a=setup:actpass"),
        ("RTP/AVP", "", crypto),
    ] {
        let session = of_session.to_owned() + if of_session.is_empty() { "" } else { "\r\n" };
        let text = format!(
            "v=0\r\no=- 1 1 IN IP4 192.0.2.1\r\ns=-\r\nc=IN IP4 192.0.2.1\r\nt=0 0\r\n{session}\
             m=audio 20000 {proto} 0\r\n{of_media}\r\n"
        );
        let description = Description::parse(&text).unwrap();
        assert_eq!(description.is_secured, proto != "RTP/AVP");
        let expected = text
            .replace("c=IN IP4 192.0.2.1", "c=IN IP4 192.0.2.2")
            .replace("audio 20000", "audio 30000");
        assert_eq!(description.sent_on(to, false), expected);
    }
}

#[test]
fn what_is_no_voice_is_refused() {
    let refusal = |text: &str| Description::parse(text).unwrap_err();
    let head = "v=0\r\no=- 1 1 IN IP4 192.0.2.1\r\ns=-\r\n";
    let body = |connection: &str, media: &str| format!("{head}{connection}t=0 0\r\n{media}");
    assert!(refusal("hello").contains("is not valid"));
    let video = body("c=IN IP4 192.0.2.1\r\n", "m=video 20000 RTP/AVP 0\r\n");
    assert!(refusal(&video).contains("no audio"));
    let opus = body("c=IN IP4 192.0.2.1\r\n", "m=audio 20000 RTP/AVP 96\r\n");
    assert!(refusal(&opus).contains("payload type 0 or 8"));
    let nowhere = body("", "m=audio 20000 RTP/AVP 0\r\n");
    assert!(refusal(&nowhere).contains("no address to send to"));
    let name = body("c=IN IP4 phone.example\r\n", "m=audio 20000 RTP/AVP 0\r\n");
    assert!(refusal(&name).contains("not an Internet address"));
}

#[test]
fn ports_are_even_and_go_round() {
    let ports = |range, first| control::even_ports(range, first).collect::<Vec<_>>();
    assert_eq!(ports((30_000, 30_005), 0), [30_000, 30_002, 30_004]);
    assert_eq!(ports((30_001, 30_006), 30_005), [30_006, 30_002, 30_004]);
    assert_eq!(ports((30_000, 30_004), 65_535).len(), 3);
    assert_eq!(ports((65_534, 65_535), 0), [65_534]);
    assert_eq!(ports((2, 1), 0).len(), 0);
    assert_eq!(ports((3, 3), 0).len(), 0);
}

#[test]
fn a_call_is_its_parties_alone() {
    let [caller, callee, fork, stranger] = ["a", "b", "c", "d"].map(|text| Text(text.to_owned()));
    let mut call = Parties::new(&caller, None);
    assert_eq!(call.offer(&caller, None), Ok(0));
    assert_eq!(call.answer(&caller, &callee), Ok(1));
    // Another phone of the callee may answer until the dialog continues.
    assert_eq!(call.answer(&caller, &fork), Ok(1));
    assert!(call.answer(&stranger, &callee).is_err());
    assert!(call.offer(&stranger, None).is_err());
    // The callee offers inside the dialog.
    assert_eq!(call.offer(&fork, Some(&caller)), Ok(1));
    assert_eq!(call.answer(&fork, &caller), Ok(0));
    assert!(call.answer(&caller, &callee).is_err());
    assert!(call.offer(&caller, Some(&callee)).is_err());
    assert_eq!(call.offer(&caller, Some(&fork)), Ok(0));
    for (from, to) in [
        (&stranger, None),
        (&caller, Some(&stranger)),
        (&stranger, Some(&caller)),
    ] {
        assert!(call.end(from, to).is_err());
    }
    assert!(call.end(&caller, None).is_ok() && call.end(&fork, Some(&caller)).is_ok());
    // The first request of this call comes from inside its dialog.
    let mut late = Parties::new(&callee, Some(&caller));
    assert_eq!(late.offer(&callee, Some(&caller)), Ok(0));
    assert_eq!(late.answer(&callee, &caller), Ok(1));
    assert!(late.answer(&callee, &stranger).is_err());
}
