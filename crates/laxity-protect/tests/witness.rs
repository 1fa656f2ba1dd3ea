//! The witness with a real etcd: a term is given out once, whoever asks, however often, whatever
//! fails.

mod etcd;

use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::{Duration, Instant};
use std::{iter, process, thread};

use laxity_protect::protocol::Verdict;
use laxity_protect::transport::{Keys, authority};
use laxity_protect::witness::{Place, Witness};

/// Keys of `north`, and of a witness on the loopback interface.
struct Site(PathBuf);

impl Site {
    fn new(name: &str) -> Site {
        let name = format!("laxity-witness-{}-{name}", std::process::id());
        let directory = std::env::temp_dir().join(name);
        let _ = std::fs::remove_dir_all(&directory);
        let owner = |name: &str, known_as: &str| (name.to_string(), vec![known_as.to_string()]);
        let owners = [owner("north", "north"), owner("witness", "127.0.0.1")];
        authority::make(&directory, &owners).unwrap();
        Site(directory)
    }

    fn witness(&self, endpoints: &[&str], vm: &str) -> Witness {
        let place = Place {
            endpoints: endpoints.iter().map(|each| each.to_string()).collect(),
            prefix: "laxity-protect/".into(),
        };
        Witness::new(&place, &Keys::load(&self.0, "north", &self.0).unwrap(), vm)
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// A port that is free, below those that the kernel gives by itself; each is given once.
fn port() -> u16 {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    let first = 20_000 + (process::id() % 1_000 * 10) as u16;
    let ports = iter::repeat_with(|| first + NEXT.fetch_add(1, Ordering::Relaxed));
    let is_free = |port: &u16| TcpListener::bind(("127.0.0.1", *port)).is_ok();
    ports.take(1_000).find(is_free).expect("a port is free")
}

/// The verdict on a claim, which may be repeated: a member of a busy computer may not answer in time.
fn told(witness: &Witness, expected: u64, incarnation: u64) -> Verdict {
    let deadline = Instant::now() + Duration::from_secs(600);
    loop {
        match witness.claim(expected, incarnation) {
            Ok(verdict) => return verdict,
            Err(reason) => assert!(Instant::now() < deadline, "{reason}"),
        }
        thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn a_term_is_given_out_once() {
    if !etcd::is_there() {
        eprintln!("SKIPPED: there is no etcd (Debian's etcd-server)");
        return;
    }
    let site = Site::new("once");
    let endpoint = format!("http://127.0.0.1:{}", port());
    let member = etcd::Member::start(&endpoint, None);
    let silent = format!("http://127.0.0.1:{}", port());
    let witness = site.witness(&[&silent, &endpoint], "counter");
    let granted = |term| Verdict::Granted { term };
    let refused = |current| Verdict::Refused { current };
    assert_eq!(told(&witness, 0, 1), granted(1));
    assert_eq!(told(&witness, 0, 1), granted(1), "it is told again");
    assert_eq!(told(&witness, 0, 2), refused(1));
    assert_eq!(told(&witness, 7, 2), refused(1));
    assert_eq!(told(&witness, 1, 2), granted(2));
    assert_eq!(told(&witness, 0, 1), refused(2), "that was before");
    let another = site.witness(&[&endpoint], "media");
    assert_eq!(
        told(&another, 0, 1),
        granted(1),
        "of another virtual machine"
    );

    // Exactly one of many simultaneous claims gets the term, and the others learn that.
    for expected in 2..12 {
        let claims: Vec<_> = (0..8)
            .map(|incarnation| {
                let witness = witness.clone();
                thread::spawn(move || told(&witness, expected, 100 + incarnation))
            })
            .collect();
        let verdicts: Vec<_> = claims
            .into_iter()
            .map(|claim| claim.join().unwrap())
            .collect();
        let is_granted = |verdict: &&Verdict| matches!(verdict, Verdict::Granted { .. });
        assert_eq!(
            verdicts.iter().filter(is_granted).count(),
            1,
            "{verdicts:?}"
        );
    }

    let stopped = member.stop();
    assert!(witness.claim(12, 3).is_err(), "nobody answers");
    let _member = stopped.start();
    assert_eq!(told(&witness, 12, 3), granted(13), "it remembers");
}

#[test]
fn both_sides_prove_who_they_are() {
    if !etcd::is_there() {
        eprintln!("SKIPPED: there is no etcd (Debian's etcd-server)");
        return;
    }
    let (site, stranger) = (Site::new("ours"), Site::new("strange"));
    let endpoint = format!("https://127.0.0.1:{}", port());
    let _member = etcd::Member::start(&endpoint, Some(&site.0));
    let verdict = told(&site.witness(&[&endpoint], "counter"), 0, 1);
    assert_eq!(verdict, Verdict::Granted { term: 1 });
    // A member of a busy computer may not answer in time.
    let stranger = stranger.witness(&[&endpoint], "counter");
    let mut refusals = (0..600).map(|_| stranger.claim(1, 2).unwrap_err());
    assert!(refusals.any(|refusal| refusal.contains("certificate")));
    let plain = endpoint.replace("https", "http");
    assert!(site.witness(&[&plain], "counter").claim(1, 2).is_err());
}

/// A witness whose key was stolen and revoked is believed by nobody who has the list.
#[test]
fn a_witness_that_was_revoked_is_refused() {
    if !etcd::is_there() {
        eprintln!("SKIPPED: there is no etcd (Debian's etcd-server)");
        return;
    }
    let site = Site::new("revoked");
    let stolen = Site(site.0.with_extension("stolen"));
    std::fs::create_dir_all(&stolen.0).unwrap();
    for name in ["site.crt", "witness.crt", "witness.key"] {
        std::fs::copy(site.0.join(name), stolen.0.join(name)).unwrap();
    }
    let endpoint = format!("https://127.0.0.1:{}", port());
    let _member = etcd::Member::start(&endpoint, Some(&stolen.0));
    let verdict = told(&site.witness(&[&endpoint], "counter"), 0, 1);
    assert_eq!(verdict, Verdict::Granted { term: 1 });
    authority::revoke(&site.0, &["witness".into()]).unwrap();
    let knowing = site.witness(&[&endpoint], "counter");
    // A member of a busy computer may not answer in time.
    let mut refusals = (0..600).map(|_| knowing.claim(1, 2).unwrap_err());
    assert!(refusals.any(|refusal| refusal.to_lowercase().contains("revoked")));
}

/// A false member cannot make the daemon ask somebody else.
#[test]
fn an_answer_names_nobody_else_to_ask() {
    let site = Site::new("elsewhere");
    let [member, victim] = [(); 2].map(|()| TcpListener::bind("127.0.0.1:0").unwrap());
    let address = |listener: &TcpListener| format!("http://{}", listener.local_addr().unwrap());
    let (endpoint, elsewhere) = (address(&member), address(&victim));
    let answering = thread::spawn(move || {
        let (mut client, _) = member.accept().unwrap();
        let head =
            format!("HTTP/1.1 302 Found\r\nLocation: {elsewhere}/\r\nContent-Length: 0\r\n\r\n");
        client.write_all(head.as_bytes()).unwrap();
        // The client ends the connection when it has heard enough.
        let _ = client.read_to_end(&mut Vec::new());
    });
    assert!(site.witness(&[&endpoint], "counter").claim(0, 1).is_err());
    victim.set_nonblocking(true).unwrap();
    assert!(victim.accept().is_err(), "somebody else was asked");
    answering.join().unwrap();
}
