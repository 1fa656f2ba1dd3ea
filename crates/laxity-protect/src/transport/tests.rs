//! Links over the loopback interface.

use super::*;
use crate::protocol::message::{self, Message};
use crate::protocol::{CheckpointId, Part};
use rustls::pki_types::UnixTime;
use rustls::pki_types::pem::PemObject as _;
use std::net::TcpListener;
use std::path::PathBuf;
use std::thread;

fn owners(hosts: &[&str]) -> Vec<(String, Vec<String>)> {
    let owner = |host: &&str| (host.to_string(), vec![host.to_string()]);
    hosts.iter().map(owner).collect()
}

/// A directory with the keys of `north` and `south`.
struct Site(PathBuf);

impl Site {
    fn new(name: &str) -> Site {
        let directory =
            std::env::temp_dir().join(format!("laxity-keys-{}-{name}", std::process::id()));
        authority::make(&directory, &owners(&["north", "south"])).unwrap();
        Site(directory)
    }

    fn keys(&self, host: &str) -> Keys {
        Keys::load(&self.0, host, &self.0).unwrap()
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        std::fs::remove_dir_all(&self.0).unwrap();
    }
}

fn preamble(guest: &str) -> Preamble {
    Preamble {
        vm: "signalling".into(),
        guest: guest.into(),
    }
}

/// Whether an error says nothing of the peer: a computer that did not run in the time for a link breaks
/// it, and a process that was stopped is interrupted.
fn is_of_time(error: &io::Error) -> bool {
    use io::ErrorKind::{
        BrokenPipe, ConnectionAborted, ConnectionReset, Interrupted, TimedOut, UnexpectedEof,
        WouldBlock,
    };
    matches!(
        error.kind(),
        BrokenPipe
            | ConnectionAborted
            | ConnectionReset
            | Interrupted
            | TimedOut
            | UnexpectedEof
            | WouldBlock
    )
}

/// How often what may fail for want of time is tried.
const TIMES: usize = 100;

/// Connects `client`, as `north`, to `server`, expected under `name`; again where one side is not
/// connected and neither says why.
fn link(client: Keys, server: Keys, name: &'static str) -> (io::Result<Link>, io::Result<Link>) {
    let mut links = (0..TIMES).map(|_| link_once(client.clone(), server.clone(), name));
    let is_verdict = |(dialled, accepted): &(io::Result<Link>, io::Result<Link>)| {
        let errors = [dialled, accepted].map(|side| side.as_ref().err());
        let mut errors = errors.iter().flatten().peekable();
        errors.peek().is_none() || errors.any(|error| !is_of_time(error))
    };
    links
        .find(is_verdict)
        .expect("one of many links is no accident")
}

fn link_once(
    client: Keys,
    server: Keys,
    name: &'static str,
) -> (io::Result<Link>, io::Result<Link>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let dialled = thread::spawn(move || dial(&client, address, name, &preamble("a")));
    let (stream, _) = listener.accept().unwrap();
    let hosts = ["north".into(), "south".into()];
    let accepted = accept(&server, stream, soon(), &hosts, |_, _| Ok(preamble("b")));
    (dialled.join().unwrap(), accepted)
}

fn soon() -> Instant {
    Instant::now() + TIMEOUT
}

/// A stranger who sends a byte now and then is cut off at the deadline; this test would not end
/// otherwise.
#[test]
fn whoever_dawdles_is_given_up() {
    let site = Site::new("slow");
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut stranger = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (stream, _) = listener.accept().unwrap();
    let keys = site.keys("north");
    let accepted = thread::spawn(move || {
        let deadline = Instant::now() + Duration::from_millis(200);
        accept(&keys, stream, deadline, &[], |_, _| Ok(preamble("b"))).map(drop)
    });
    // The header of a record that announces 16,384 bytes.
    stranger.write_all(&[22, 3, 1, 64, 0]).unwrap();
    while !accepted.is_finished() {
        let _ = stranger.write(&[0]);
        thread::sleep(Duration::from_millis(5));
    }
    assert!(accepted.join().unwrap().is_err());
}

#[test]
fn frames_pass_both_ways_at_once() {
    let site = Site::new("both");
    let mut tries = (0..TIMES).map(|_| pass_frames_both_ways(&site));
    let verdict = tries.find(|done| !done.as_ref().is_err_and(is_of_time));
    verdict.expect("one of many tries is no accident").unwrap();
}

fn pass_frames_both_ways(site: &Site) -> io::Result<()> {
    const FRAMES: u64 = 200;
    let (dialled, accepted) = link(site.keys("north"), site.keys("south"), "south");
    let (dialled, accepted) = (dialled?, accepted?);
    assert_eq!((&*dialled.peer, &*accepted.peer), ("south", "north"));
    assert_eq!(
        (dialled.preamble.guest, accepted.preamble.guest),
        ("b".into(), "a".into())
    );
    let data: Vec<u8> = (0..300_000_u32)
        .map(|at| (at.wrapping_mul(2_654_435_761) >> 24) as u8)
        .collect();
    let data = &data[..];
    // Whoever fails ends the link for all four, none of whom would be heard any more.
    let closers = [dialled.closer, accepted.closer];
    let ends_all =
        &|done: io::Result<()>| done.inspect_err(|_| closers.iter().for_each(Closer::close));
    thread::scope(|scope| {
        let mut passing = Vec::new();
        for (mut reader, mut writer) in [
            (dialled.reader, accepted.writer),
            (accepted.reader, dialled.writer),
        ] {
            let mut send = move || {
                for sequence in 0..FRAMES {
                    let mut frame = Vec::new();
                    let length = (sequence * 7919) as usize % data.len();
                    let part = Message::Chunk(Part::Ram, &data[..length]);
                    message::encode(&part, sequence, &mut frame);
                    writer.send(&frame)?;
                }
                Ok(())
            };
            let mut receive = move || {
                for sequence in 0..FRAMES {
                    let frame = reader.frame()?;
                    let length = (sequence * 7919) as usize % data.len();
                    let expected = Message::Chunk(Part::Ram, &data[..length]);
                    assert!(message::decode(&frame, sequence).unwrap() == expected);
                }
                Ok(())
            };
            passing.push(scope.spawn(move || ends_all(send())));
            passing.push(scope.spawn(move || ends_all(receive())));
        }
        let passed: Vec<io::Result<()>> = (passing.into_iter())
            .map(|each| each.join().unwrap())
            .collect();
        passed.into_iter().collect()
    })
}

#[test]
fn a_closed_link_ends_for_both() {
    let site = Site::new("closed");
    let (dialled, accepted) = link(site.keys("north"), site.keys("south"), "south");
    let (dialled, mut accepted) = (dialled.unwrap(), accepted.unwrap());
    let mut reader = dialled.reader;
    let waiting = thread::spawn(move || reader.frame());
    dialled.closer.close();
    assert!(waiting.join().unwrap().is_err());
    assert!(accepted.reader.frame().is_err());
    let mut frame = Vec::new();
    let id = CheckpointId { term: 1, number: 1 };
    message::encode(&Message::Acknowledge(id), 0, &mut frame);
    // The system's buffer may still have room for frames until the other side refuses the first.
    const TEN_MINUTES_MS: usize = 600_000;
    let is_refused = |_| {
        thread::sleep(Duration::from_millis(1));
        accepted.writer.send(&frame).is_err()
    };
    assert!((0..TEN_MINUTES_MS).any(is_refused));
}

#[test]
fn strangers_are_refused() {
    let (ours, theirs) = (Site::new("ours"), Site::new("theirs"));
    let (_, accepted) = link(theirs.keys("north"), ours.keys("south"), "south");
    assert!(accepted.is_err(), "its certificate is of another site");
    let (dialled, _) = link(ours.keys("north"), theirs.keys("south"), "south");
    assert!(
        dialled.is_err(),
        "the server's certificate is of another site"
    );
    let (dialled, _) = link(ours.keys("north"), ours.keys("north"), "south");
    assert!(dialled.is_err(), "it is not who was asked for");
}

#[test]
fn a_certificate_that_was_taken_back_is_refused_and_a_new_one_is_not() {
    let site = Site::new("revoked");
    let old = site.keys("north");
    authority::revoke(&site.0, &["north".into()]).unwrap();
    assert!(
        Keys::load(&site.0, "north", &site.0).is_err(),
        "its files are gone"
    );
    let (_, accepted) = link(old.clone(), site.keys("south"), "south");
    assert!(accepted.is_err(), "the client's certificate was taken back");
    let (dialled, _) = link(site.keys("south"), old.clone(), "north");
    assert!(dialled.is_err(), "the server's certificate was taken back");
    authority::renew(&site.0, &owners(&["north"])).unwrap();
    let (dialled, accepted) = link(site.keys("north"), site.keys("south"), "south");
    assert!(dialled.is_ok() && accepted.is_ok());
    authority::revoke(&site.0, &["north".into()]).unwrap();
    let (_, accepted) = link(old, site.keys("south"), "south");
    assert!(accepted.is_err(), "the first one is still on the list");
}

/// systemd hands a host's keys over in a directory of their own; the list stays where it is.
#[test]
fn a_host_whose_keys_are_elsewhere_has_the_list_too() {
    let (site, credentials) = (Site::new("listed"), Site::new("credentials"));
    for name in ["site.crt", "south.crt", "south.key"] {
        std::fs::copy(site.0.join(name), credentials.0.join(name)).unwrap();
    }
    let old = site.keys("north");
    authority::revoke(&site.0, &["north".into()]).unwrap();
    let south = Keys::load(&credentials.0, "south", &site.0).unwrap();
    let (_, accepted) = link(old, south, "south");
    assert!(accepted.is_err(), "the client's certificate was taken back");
}

/// A list that was cut off, or written in another form, is not taken for one with nothing in it.
#[test]
fn a_file_without_a_list_is_refused() {
    let site = Site::new("no-list");
    for content in ["", "-----BEGIN X509 CRL-----\n", "other"] {
        std::fs::write(site.0.join("site.crl"), content).unwrap();
        let refused = Keys::load(&site.0, "north", &site.0).unwrap_err();
        assert!(refused.to_string().contains("site.crl"), "{refused}");
    }
}

#[test]
fn a_key_that_others_may_read_is_refused() {
    use std::fs::Permissions;
    use std::os::unix::fs::PermissionsExt as _;
    let site = Site::new("open");
    let key = site.0.join("north.key");
    assert_eq!(
        std::fs::metadata(&key).unwrap().permissions().mode() & 0o777,
        0o600
    );
    for mode in [0o640, 0o604] {
        std::fs::set_permissions(&key, Permissions::from_mode(mode)).unwrap();
        let error = Keys::load(&site.0, "north", &site.0)
            .unwrap_err()
            .to_string();
        assert!(error.contains("other users may read it"), "{error}");
    }
    // A renewed file has a mode of its own, and a link in its place is not followed.
    authority::renew(&site.0, &owners(&["north"])).unwrap();
    site.keys("north");
    let victim = site.0.join("victim");
    std::fs::write(&victim, "untouched").unwrap();
    for name in ["north.key", "north.key.new"] {
        let _ = std::fs::remove_file(site.0.join(name));
        std::os::unix::fs::symlink(&victim, site.0.join(name)).unwrap();
    }
    authority::renew(&site.0, &owners(&["north"])).unwrap();
    assert_eq!(std::fs::read(&victim).unwrap(), b"untouched");
    site.keys("north");
}

/// Certificates end, and the authority's name differs from a host's: OpenSSL takes a certificate
/// with its issuer's name for self-signed.
#[test]
fn certificates_end_and_name_their_owner() {
    let site = Site::new("names");
    let read = |name: &str| CertificateDer::from_pem_file(site.0.join(name)).unwrap();
    let (leaf, root) = (read("north.crt"), read("site.crt"));
    let leaf = EndEntityCert::try_from(&leaf).unwrap();
    let root = webpki::anchor_from_trusted_cert(&root).unwrap();
    assert_eq!(leaf.issuer(), &*root.subject);
    assert_ne!(leaf.subject(), &*root.subject);
    let holds_in_days = |days: u64| {
        let now = std::time::SystemTime::now()
            .duration_since(std::time::UNIX_EPOCH)
            .unwrap();
        let at = UnixTime::since_unix_epoch(now + Duration::from_secs(days * 24 * 3600));
        let algorithms = rustls::crypto::ring::default_provider()
            .signature_verification_algorithms
            .all;
        let usage = webpki::KeyUsage::client_auth();
        let roots = std::slice::from_ref(&root);
        leaf.verify_for_usage(algorithms, roots, &[], at, usage, None, None)
            .is_ok()
    };
    assert!(holds_in_days(0) && holds_in_days(365) && !holds_in_days(3 * 365));
    assert!(!site.keys("north").expires_soon());
}

#[test]
fn keys_are_not_overwritten_and_missing_ones_are_named() {
    let site = Site::new("once");
    let again = authority::make(&site.0, &owners(&["north"])).unwrap_err();
    assert!(again.to_string().contains("exists already"), "{again}");
    let missing = Keys::load(&site.0, "west", &site.0).unwrap_err();
    assert!(missing.to_string().contains("west.crt"), "{missing}");
    std::fs::write(site.0.join("north.key"), "nothing").unwrap(); // The mode stays.
    let wrong = Keys::load(&site.0, "north", &site.0).unwrap_err();
    assert!(wrong.to_string().contains("north.key"), "{wrong}");
}
