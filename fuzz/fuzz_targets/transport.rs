//! The port of a host that protects virtual machines, and what hosts say there first: a stranger's octets never pass
//! the handshake, and another host's frames and preamble are taken or refused whatever they are.
//!
//! The first octet chooses: a stranger, another host with frames, or a preamble.
#![no_main]

use std::io::Write as _;
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::LazyLock;
use std::time::{Duration, Instant};

use laxity_protect::protocol::message;
use laxity_protect::transport::{Keys, Preamble, accept, authority, dial};
use libfuzzer_sys::fuzz_target;

const HOSTS: [&str; 2] = ["north", "south"];

static KEYS: LazyLock<[Keys; 2]> = LazyLock::new(|| {
    let directory =
        std::env::temp_dir().join(format!("laxity-fuzz-transport-{}", std::process::id()));
    let owners = HOSTS.map(|host| (host.to_string(), vec![host.to_string()]));
    std::fs::create_dir(&directory).expect("it is new");
    authority::make(&directory, &owners).expect("keys can be made");
    let keys =
        HOSTS.map(|host| Keys::load(&directory, host, &directory).expect("they were just made"));
    let _ = std::fs::remove_dir_all(&directory);
    keys
});

fuzz_target!(|data: &[u8]| {
    let (first, rest) = data.split_first().unwrap_or((&0, data));
    match first % 3 {
        0 => stranger(rest),
        1 => host(rest),
        _ => preamble(rest),
    }
});

fn listener() -> TcpListener {
    TcpListener::bind("127.0.0.1:0").expect("loopback has ports")
}

fn soon() -> Instant {
    Instant::now() + Duration::from_secs(60)
}

fn stranger(octets: &[u8]) {
    let listener = listener();
    let mut client =
        TcpStream::connect(listener.local_addr().expect("it listens")).expect("it listens");
    let (server, _) = listener.accept().expect("a client has come");
    client.write_all(octets).expect("it fits");
    client.shutdown(Shutdown::Write).expect("it is open");
    let hosts = HOSTS.map(String::from);
    let link = accept(&KEYS[0], server, soon(), &hosts, |_, _| {
        Ok(Preamble::default())
    });
    assert!(link.is_err(), "a stranger has passed the handshake");
}

fn host(frames: &[u8]) {
    let listener = listener();
    let address = listener.local_addr().expect("it listens");
    let preamble = Preamble {
        vm: "web".into(),
        guest: "a guest".into(),
    };
    std::thread::scope(|scope| {
        let dialled = scope.spawn(|| dial(&KEYS[1], address, HOSTS[0], &preamble));
        let (server, _) = listener.accept().expect("a client has come");
        let hosts = HOSTS.map(String::from);
        let taken = accept(&KEYS[0], server, soon(), &hosts, |peer, said| {
            assert_eq!((peer, said), (HOSTS[1], &preamble));
            Ok(said.clone())
        });
        let dialled = dialled.join().expect("it does not panic");
        let (Ok(mut link), Ok(mut other)) = (taken, dialled) else {
            return;
        };
        let _ = other.writer.send(frames);
        other.closer.close();
        let mut bytes = 0;
        for sequence in 0.. {
            let Ok(frame) = link.reader.frame() else {
                break;
            };
            bytes += frame.len();
            let _ = message::decode(&frame, sequence);
        }
        assert!(bytes <= frames.len());
    });
}

fn preamble(text: &[u8]) {
    if let Ok(preamble) = serde_json::from_slice::<Preamble>(text) {
        let again = serde_json::to_vec(&preamble).expect("it is text");
        assert_eq!(
            serde_json::from_slice::<Preamble>(&again).expect("it was written here"),
            preamble
        );
    }
}
