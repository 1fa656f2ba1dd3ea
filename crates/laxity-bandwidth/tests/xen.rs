//! The backend for Xen against a model xenstore that speaks the protocol on a socket.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::thread;

use laxity_bandwidth::agreements::{Port, load};
use laxity_bandwidth::control::Limits;
use laxity_bandwidth::shaper::Shaper;
use laxity_bandwidth::xen::{Store, Xen};

type Keys = Arc<Mutex<BTreeMap<String, String>>>;

/// Serves one connection until it ends. A watch event that concerns another client comes before
/// every answer.
fn serve(mut stream: UnixStream, keys: &Keys) {
    let mut header = [0; 16];
    while stream.read_exact(&mut header).is_ok() {
        let word = |at: usize| u32::from_ne_bytes(header[at..at + 4].try_into().unwrap());
        let mut payload = vec![0; word(12) as usize];
        stream.read_exact(&mut payload).unwrap();
        let text = String::from_utf8(payload).unwrap();
        let (path, value) = text.split_once('\0').unwrap();
        let mut keys = keys.lock().unwrap();
        let answer = match word(0) {
            2 => keys.get(path).cloned(),
            11 => {
                keys.insert(path.into(), value.into());
                Some("OK\0".into())
            }
            13 => keys.remove(path).map(|_| "OK\0".into()),
            other => panic!("operation {other}"),
        };
        let (kind, answer) =
            answer.map_or((16, "ENOENT\0".to_string()), |answer| (word(0), answer));
        let mut reply = |kind: u32, request: u32, text: &str| {
            for word in [kind, request, 0, text.len() as u32] {
                stream.write_all(&word.to_ne_bytes()).unwrap();
            }
            stream.write_all(text.as_bytes()).unwrap();
        };
        reply(15, 0, "path\0token\0");
        reply(kind, word(4), &answer);
    }
}

/// A directory as the kernel's of interfaces, with so many queues of each.
fn interfaces(name: &str, all: &[(&str, usize)]) -> PathBuf {
    let directory = std::env::temp_dir().join(format!("laxity-xq-{}-{name}", std::process::id()));
    let _ = std::fs::remove_dir_all(&directory);
    for (interface, queues) in all {
        for queue in 0..*queues {
            for kind in ["rx", "tx"] {
                let queue = format!("{interface}/queues/{kind}-{queue}");
                std::fs::create_dir_all(directory.join(queue)).unwrap();
            }
        }
    }
    directory
}

fn store(name: &str, keys: &[(&str, &str)]) -> (Store, Keys, PathBuf) {
    let keys = keys
        .iter()
        .map(|(key, value)| (key.to_string(), value.to_string()));
    let keys: Keys = Arc::new(Mutex::new(keys.collect()));
    let socket = std::env::temp_dir().join(format!("laxity-xs-{}-{name}", std::process::id()));
    let _ = std::fs::remove_file(&socket);
    let listener = UnixListener::bind(&socket).unwrap();
    let served = keys.clone();
    thread::spawn(move || serve(listener.accept().unwrap().0, &served));
    (Store::connect(&socket).unwrap(), keys, socket)
}

const AGREEMENTS: &str = r#"
[link]
backend = "xen"
interface = "eth0"
rate = "1 Gbit/s"

[[agreement]]
name = "plain"
interface = "vif3.0"
class = 1
minimum = "300 Mbit/s"
maximum = "600 Mbit/s"

[[agreement]]
name = "queues"
interface = "vif12.1"
class = 2
minimum = "0 bit/s"
maximum = "1 Gbit/s"
"#;

fn limits(mbit_s: [u64; 2]) -> [(usize, Limits); 2] {
    std::array::from_fn(|holder| {
        let limits = Limits {
            rate_bit_s: 0,
            ceiling_bit_s: mbit_s[holder] * 1_000_000,
        };
        (holder, limits)
    })
}

#[test]
fn rates_are_written_and_what_was_there_is_put_back() {
    let before = [("backend/vif/12/1/rate", "1000,50000")];
    let (store, keys, socket) = store("rates", &before);
    let interfaces = interfaces("rates", &[("vif3.0", 1), ("vif12.1", 4)]);
    let agreements = load(AGREEMENTS.as_bytes(), "a.toml", &|_, _| Port::Usable).unwrap();
    let mut xen = Xen::new(store, &interfaces).unwrap();
    xen.configure(&agreements).unwrap();
    // The loopback interface stands for both backends, since it always exists.
    xen.bind(0, Some(1)).unwrap();
    xen.bind(1, Some(1)).unwrap();
    assert!(xen.apply(&limits([600, 400])).is_empty());
    let value = |key: &str| keys.lock().unwrap().get(key).cloned();
    // 600 Mbit/s are 1.5 MB in 20 ms; 400 are 1 MB, a quarter for each queue.
    assert_eq!(value("backend/vif/3/0/rate").unwrap(), "1500000,20000");
    assert_eq!(value("backend/vif/12/1/rate").unwrap(), "250000,20000");
    // A trivial change is not written; a limit of zero is raised to the least credit that lets a
    // packet pass.
    assert!(xen.apply(&limits([601, 0])).is_empty());
    assert_eq!(value("backend/vif/3/0/rate").unwrap(), "1500000,20000");
    assert_eq!(value("backend/vif/12/1/rate").unwrap(), "1518,20000");
    // A backend does not tell when it has sent, so that every read is one of all.
    let mut read = Vec::new();
    xen.read(&mut read).unwrap();
    assert_eq!(read, [0, 1]);

    xen.close().unwrap();
    let expected = before.map(|(key, value)| (key.to_string(), value.to_string()));
    assert_eq!(*keys.lock().unwrap(), BTreeMap::from(expected));
    std::fs::remove_file(socket).unwrap();
    std::fs::remove_dir_all(interfaces).unwrap();
}

#[test]
fn a_killed_daemons_rate_is_not_taken_for_the_operators() {
    let left = [
        ("backend/vif/3/0/rate", "1500000,20000"),
        ("backend/vif/3/0/laxity-rate-before", ""),
    ];
    let (store, keys, socket) = store("killed", &left);
    let interfaces = interfaces("killed", &[("vif3.0", 1)]);
    let agreements = load(AGREEMENTS.as_bytes(), "a.toml", &|_, _| Port::Usable).unwrap();
    let mut xen = Xen::new(store, &interfaces).unwrap();
    xen.configure(&agreements).unwrap();
    xen.bind(0, Some(1)).unwrap();
    assert!(xen.apply(&limits([100, 0])).is_empty());
    xen.close().unwrap();
    assert!(keys.lock().unwrap().is_empty());
    std::fs::remove_file(socket).unwrap();
    std::fs::remove_dir_all(interfaces).unwrap();
}

#[test]
fn other_interfaces_are_refused() {
    let (store, _, socket) = store("other", &[]);
    let interfaces = interfaces("other", &[("tap0", 1)]);
    let text = AGREEMENTS.replace("vif3.0", "tap0");
    let agreements = load(text.as_bytes(), "a.toml", &|_, _| Port::Usable).unwrap();
    let mut xen = Xen::new(store, &interfaces).unwrap();
    xen.configure(&agreements).unwrap();
    let error = xen.bind(0, Some(1)).unwrap_err();
    assert_eq!(
        error.to_string(),
        "`tap0` is not the interface of a Xen backend, such as vif3.0"
    );
    std::fs::remove_file(socket).unwrap();
    std::fs::remove_dir_all(interfaces).unwrap();
}

/// A guest connects after its interface has come, and may state another number of queues than it uses.
#[test]
fn a_guest_gets_its_rate_once_however_many_queues_it_uses() {
    let said = [
        ("backend/vif/3/0/frontend", "/local/domain/3/device/vif/0"),
        ("/local/domain/3/device/vif/0/multi-queue-num-queues", "1"),
    ];
    let (store, keys, socket) = store("queues", &said);
    let agreements = load(AGREEMENTS.as_bytes(), "a.toml", &|_, _| Port::Usable).unwrap();
    let before = interfaces("queues", &[("vif3.0", 1)]);
    let mut xen = Xen::new(store, &before).unwrap();
    xen.configure(&agreements).unwrap();
    xen.bind(0, Some(1)).unwrap();
    assert!(xen.apply(&limits([600, 0])).is_empty());
    let rate = || keys.lock().unwrap()["backend/vif/3/0/rate"].clone();
    assert_eq!(rate(), "1500000,20000");
    let interfaces = interfaces("queues", &[("vif3.0", 4)]);
    xen.look(0).unwrap();
    assert!(xen.apply(&limits([600, 0])).is_empty());
    assert_eq!(rate(), "375000,20000");
    xen.close().unwrap();
    assert!(!keys.lock().unwrap().contains_key("backend/vif/3/0/rate"));
    std::fs::remove_file(socket).unwrap();
    std::fs::remove_dir_all(interfaces).unwrap();
}
