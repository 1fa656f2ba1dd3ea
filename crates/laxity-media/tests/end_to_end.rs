//! Load, media server and sink over loopback, bounded in packets and in time. The expected results
//! do not depend on the machine's speed: every sent packet is received, or counted where it was
//! dropped.

use laxity_media::control::{self, Description};
use laxity_media::g711::Law;
use serde_json::{Value, json};
use std::{
    cell::Cell,
    collections::BTreeSet,
    io::{ErrorKind, Read, Write},
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket},
    process::{Child, ChildStdin, Command, Output, Stdio},
    sync::atomic::{AtomicU16, Ordering},
    time::Duration,
};

fn laxity_media(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_laxity-media"))
        .args(arguments)
        .output()
        .unwrap()
}

fn report_of(output: &Output) -> Value {
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{stderr}");
    serde_json::from_slice(&output.stdout).unwrap()
}

fn refusal(arguments: &[&str]) -> String {
    let output = laxity_media(arguments);
    assert_eq!(output.status.code(), Some(2));
    assert!(output.stdout.is_empty());
    String::from_utf8(output.stderr).unwrap()
}

/// Checks that every packet of `report` is accounted for.
fn assert_accounted(report: &Value, streams: u64, packets: u64) {
    let count = |part: &str, name: &str| report[part][name].as_u64().unwrap();
    assert_eq!(count("load", "sent"), streams * packets);
    assert_eq!(count("load", "failed"), 0);
    let sent = count("load", "sent");
    assert_eq!(count("relay", "received") + count("relay", "dropped"), sent);
    assert_eq!(count("relay", "forwarded"), count("relay", "received"));
    assert_eq!(count("sink", "expected"), sent);
    let (received, lost) = (count("sink", "received"), count("sink", "lost"));
    assert_eq!(received + lost, sent);
    assert_eq!(lost, count("relay", "dropped") + count("sink", "dropped"));
    assert_eq!(count("sink", "duplicates"), 0);
    assert_eq!(count("sink", "stray") + count("sink", "foreign"), 0);
    let per_stream = report["sink"]["per_stream"].as_array().unwrap();
    assert_eq!(per_stream.len() as u64, streams);
    let of_streams = |name: &str| {
        per_stream
            .iter()
            .map(|stream| stream[name].as_u64().unwrap())
            .sum::<u64>()
    };
    assert_eq!(of_streams("received"), received);
    assert_eq!(of_streams("lost"), lost);
    assert_eq!(report["sink"]["delay"]["count"].as_u64(), Some(received));
}

#[test]
fn every_packet_is_accounted_for() {
    for options in [
        &["--threads", "1"][..],
        &["--transcode", "--senders", "2", "--tick", "1 ms"],
        &[
            "--transcode",
            "--law",
            "a",
            "--batch",
            "16",
            "--work",
            "5 us",
        ],
    ] {
        let mut arguments = vec!["loop", "--json", "--streams", "30", "--duration", "400 ms"];
        arguments.extend(options);
        let report = report_of(&laxity_media(&arguments));
        assert_accounted(&report, 30, 20);
    }
}

#[test]
fn what_a_full_receive_buffer_drops_is_counted_as_the_servers() {
    // The receive buffer holds one or two packets, each of which takes a millisecond of work: most
    // are dropped.
    let report = report_of(&laxity_media(&[
        "loop",
        "--json",
        "--streams",
        "100",
        "--duration",
        "200 ms",
        "--tick",
        "20 ms",
        "--threads",
        "1",
        "--work",
        "1 ms",
        "--receive-buffer",
        "1",
    ]));
    assert_accounted(&report, 100, 10);
    assert!(report["relay"]["dropped"].as_u64().unwrap() > 0);
    assert!(report["sink"]["loss_percent"].as_f64().unwrap() > 0.0);
}

#[test]
fn a_capture_holds_what_came() {
    let path = std::env::temp_dir().join(format!("laxity-media-loop-{}.pcap", std::process::id()));
    let report = report_of(&laxity_media(&[
        "loop",
        "--json",
        "--streams",
        "5",
        "--duration",
        "100 ms",
        "--capture",
        path.to_str().unwrap(),
    ]));
    let file = std::fs::read(&path).unwrap();
    std::fs::remove_file(&path).unwrap();
    let mut reader = pcap_file::pcap::PcapReader::new(&file[..]).unwrap();
    let packets = std::iter::from_fn(|| reader.next_packet().map(|packet| packet.is_ok()))
        .take_while(|&read| read)
        .count() as u64;
    assert_eq!(Some(packets), report["sink"]["received"].as_u64());
}

#[test]
fn a_dead_server_is_reported_dead() {
    // Port 9 of loopback has no server, so nothing relays the load's packets.
    let output = laxity_media(&[
        "load",
        "--to",
        "127.0.0.1:9",
        "--streams",
        "2",
        "--duration",
        "40 ms",
    ]);
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success() && text.contains("4 of 4"), "{text}");
    let nothing = refusal(&["sink", "--listen", "127.0.0.1:0", "--wait", "10 ms"]);
    assert!(
        nothing.contains("no packet of a load came to 127.0.0.1:"),
        "{nothing}"
    );
    assert!(
        nothing.contains("does the media server send here?"),
        "{nothing}"
    );
}

#[test]
fn nonsense_is_refused() {
    let told = |arguments: &[&str], text: &str| {
        let error = refusal(arguments);
        assert!(error.contains(text), "{error}");
    };
    told(&["loop", "--streams", "0"], "at least 1");
    told(&["loop", "--streams", "70000"], "at most 65535");
    told(&["loop", "--duration", "10"], "has no unit");
    told(&["loop", "--duration", "30 ms"], "multiple of 20 ms");
    told(&["loop", "--tick", "7 ms"], "does not divide 20 ms");
    told(&["loop", "--threads", "0"], "give 1 to 1024");
    told(&["loop", "--batch", "65"], "give 1 to 64");
    told(&["loop", "--law", "opus"], "possible values: mu, a");
    told(
        &["loop", "--capture", "/nowhere/at/all.pcap"],
        "cannot write the capture /nowhere/at/all.pcap",
    );
    told(
        &["loop", "--relay-address", "192.0.2.1:5004"],
        "cannot receive on 192.0.2.1:5004",
    );
    told(&["load", "--to", "here"], "invalid socket address");
    told(&["load", "--to", "127.0.0.1:0"], "port 0 is not a port");
    told(
        &["load", "--to", "[::1]:9", "--from", "127.0.0.1:0"],
        "two addresses of IPv4, or two of IPv6",
    );
    told(
        &["loop", "--sink-address", "[::1]:0"],
        "two addresses of IPv4, or two of IPv6",
    );
    told(&["load"], "--to <ADDRESS:PORT>");
}

/// The model media server with ports for each call, on loopback; killed at the end of the test.
struct Server {
    process: Child,
    control: UdpSocket,
    /// How many questions it was asked.
    asked: Cell<u32>,
}

impl Server {
    fn start(options: &[&str]) -> Server {
        Server::start_at("127.0.0.1", options)
    }

    /// A server whose ports for media are of this address of loopback.
    fn start_at(address: &str, options: &[&str]) -> Server {
        // The server is asked until it answers.
        let port = free_ports(1)[0];
        let process = Command::new(env!("CARGO_BIN_EXE_laxity-media"))
            .args(["relay", "--json", "--address", address, "--control"])
            .args([&port.to_string(), "--control-from=127.0.0.1"])
            .args(options)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let control = UdpSocket::bind("127.0.0.1:0").unwrap();
        control.connect(port).unwrap();
        let server = Server {
            process,
            control,
            asked: Cell::new(0),
        };
        server.wait_at_most(Duration::from_millis(200));
        let asked = (0..3000).find_map(|_| server.try_ask(r#"{"command":"ping"}"#));
        assert_eq!(asked.unwrap()["result"], "pong");
        server
    }

    /// Asks once. Answers to earlier questions, which came too late for these, are passed over.
    fn try_ask(&self, question: &str) -> Option<Value> {
        self.asked.set(self.asked.get() + 1);
        let cookie = format!("{} ", self.asked.get());
        let mut answer = [0; 4096];
        let mut received = self.control.send(format!("{cookie}{question}").as_bytes());
        while received.is_ok() {
            received = self.control.recv(&mut answer);
            let bytes = *received.as_ref().unwrap_or(&0);
            if let Some(own) = answer[..bytes].strip_prefix(cookie.as_bytes()) {
                return Some(serde_json::from_slice(own).unwrap());
            }
        }
        std::thread::sleep(Duration::from_millis(20));
        None
    }

    fn ask(&self, question: &Value) -> Value {
        self.wait_at_most(Duration::from_secs(600));
        let answer = self.try_ask(&question.to_string());
        answer.expect("the server answers")
    }

    fn wait_at_most(&self, time: Duration) {
        self.control.set_read_timeout(Some(time)).unwrap();
    }

    /// Sends an offer or an answer. Returns the address to send to and the payload type.
    fn describe(&self, command: &str, call: &str, local: SocketAddr) -> (SocketAddr, String) {
        let (address, port) = (local.ip(), local.port());
        let sdp = format!(
            "v=0\r\no=- 1 1 IN IP4 127.0.0.1\r\ns=-\r\nc=IN IP4 {address}\r\nt=0 0\r\nm=audio {port} RTP/AVP 0\r\n"
        );
        let reply = self.ask(&json!({
            "command": command, "call-id": call, "from-tag": "a", "to-tag": "b", "sdp": sdp
        }));
        let described = reply["sdp"].as_str().unwrap();
        let media = described
            .lines()
            .find(|line| line.starts_with("m="))
            .unwrap();
        let words: Vec<_> = media.split_whitespace().collect();
        let to = SocketAddr::from(([127, 0, 0, 1], words[1].parse().unwrap()));
        (to, words[3].to_owned())
    }

    fn end(mut self) -> Value {
        let id = nix::unistd::Pid::from_raw(self.process.id() as i32);
        nix::sys::signal::kill(id, nix::sys::signal::Signal::SIGINT).unwrap();
        let mut text = String::new();
        let output = self.process.stdout.as_mut().unwrap();
        output.read_to_string(&mut text).unwrap();
        serde_json::from_str(&text).unwrap()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// An address of loopback that is this process's own: other processes have ports of others.
fn own_address() -> Ipv4Addr {
    let [.., high, middle, low] = std::process::id().to_be_bytes();
    Ipv4Addr::new(127, 1 + high % 254, middle, low)
}

/// Ports that are free, and that nothing else of these tests takes: each is given once only.
fn free_ports(count: usize) -> Vec<SocketAddr> {
    /// Below the ports that the kernel gives by itself.
    static NEXT: AtomicU16 = AtomicU16::new(20_000);
    let mut addresses = Vec::new();
    while addresses.len() < count {
        let address = SocketAddr::from((own_address(), NEXT.fetch_add(1, Ordering::Relaxed)));
        match UdpSocket::bind(address) {
            Ok(_) => addresses.push(address),
            Err(error) => assert_eq!(error.kind(), ErrorKind::AddrInUse, "{address}: {error}"),
        }
    }
    addresses
}

/// Carries out the orders that `tell` writes. Returns the program's output.
fn calls(tell: impl FnOnce(&mut ChildStdin)) -> Output {
    let mut process = Command::new(env!("CARGO_BIN_EXE_laxity-media"))
        .args(["calls", "--json"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut orders = process.stdin.take().unwrap();
    tell(&mut orders);
    drop(orders);
    process.wait_with_output().unwrap()
}

/// Tries something with more and more time, until it was not too late on a busy computer.
fn until_in_time(mut is_in_time: impl FnMut(Duration) -> bool) {
    let mut times = (0..6).map(|try_| Duration::from_millis(400 << (2 * try_)));
    assert!(times.any(&mut is_in_time), "it never was");
}

#[test]
fn calls_have_ports_of_their_own() {
    for transcode in [false, true] {
        until_in_time(|time| have_ports_of_their_own(transcode, time));
    }
}

/// Whether all streams of calls that last for `time` were sent, and heard by who waits two seconds.
fn have_ports_of_their_own(transcode: bool, time: Duration) -> bool {
    let name = format!("laxity-media-passages-{}", std::process::id());
    let passages = std::env::temp_dir().join(name);
    let written = format!("--passages={}", passages.display());
    let options = [&*written, "--transcode"];
    let server = Server::start(&options[..if transcode { 2 } else { 1 }]);
    let parties = free_ports(8);
    let report = report_of(&calls(|orders| {
        for (number, pair) in parties.chunks(2).enumerate() {
            let (_, offered) = server.describe("offer", &number.to_string(), pair[0]);
            let (first_to, first_type) = server.describe("answer", &number.to_string(), pair[1]);
            let (second_to, second_type) = server.describe("offer", &number.to_string(), pair[0]);
            // The same offer again, as after a lost answer, gets the same port.
            assert_eq!(second_type, offered);
            assert_eq!(first_type, if transcode { "8" } else { "0" });
            for (local, to, payload_type) in [
                (pair[0], first_to, "0"),
                (pair[1], second_to, &*second_type),
            ] {
                writeln!(orders, "open {number} {local}").unwrap();
                writeln!(orders, "send {number} {local} {to} {payload_type}").unwrap();
            }
        }
        orders.flush().unwrap();
        std::thread::sleep(time);
        (0..4).for_each(|number| writeln!(orders, "end {number}").unwrap());
    }));
    let deleted = server.ask(&json!({"command": "delete", "call-id": "0", "from-tag": "a"}));
    assert_eq!(deleted["result"], "ok");
    let again = server.ask(&json!({"command": "delete", "call-id": "0", "from-tag": "a"}));
    assert_eq!(again["error-reason"], "there is no call 0");
    let relayed = server.end();
    let count = |part: &Value, name: &str| part[name].as_u64().unwrap();
    let (load, relay, sink) = (&report["load"], &relayed["relay"], &report["sink"]);
    assert_eq!(
        (count(&report["calls"], "calls"), count(relay, "calls")),
        (4, 4)
    );
    let sent = count(load, "sent");
    assert_eq!((count(load, "streams"), count(load, "due")), (8, sent));
    if sent < 8 {
        return false;
    }
    assert_eq!(count(sink, "streams"), 8);
    assert_eq!(count(sink, "expected"), sent);
    assert_eq!(count(sink, "received") + count(sink, "lost"), sent);
    assert_eq!(count(relay, "forwarded"), count(relay, "received"));
    let relayed = count(relay, "received") + count(relay, "dropped");
    let dropped = count(relay, "dropped") + count(sink, "dropped");
    assert!(relayed <= sent && dropped <= count(sink, "lost"));
    assert_eq!(count(sink, "misdirected") + count(sink, "foreign"), 0);
    assert_passages(&std::fs::read(&passages).unwrap(), relay);
    std::fs::remove_file(&passages).unwrap();
    relayed == sent && dropped == count(sink, "lost")
}

/// Each packet that was relayed is written down, once, by a thread of the pool, with no more CPU time than it had.
fn assert_passages(octets: &[u8], relay: &Value) {
    let (rows, rest) = octets.as_chunks::<104>();
    let number = |row: &[u8; 104], at: usize| {
        i64::from_le_bytes(row[8 * at..8 * (at + 1)].try_into().unwrap())
    };
    assert!(rest.is_empty());
    assert_eq!(relay["received"].as_u64(), Some(rows.len() as u64));
    assert_eq!(relay["unwritten"], 0);
    let packets: BTreeSet<_> = rows
        .iter()
        .map(|row| (number(row, 0), number(row, 1)))
        .collect();
    assert_eq!(packets.len(), rows.len());
    let threads: BTreeSet<_> = rows.iter().map(|row| number(row, 2)).collect();
    assert!(threads.len() <= 2, "{threads:?}");
    let used_ns: i64 = rows.iter().map(|row| number(row, 5)).sum();
    assert!(used_ns <= relay["cpu_ns"].as_i64().unwrap());
    assert!(rows.iter().all(|row| number(row, 5) > 0));
    // A thread waits, is told of a packet, begins to send it on, and has sent it.
    for row in rows {
        let times_ns = [6, 7, 11, 4].map(|at| number(row, at));
        assert!(times_ns.is_sorted(), "{times_ns:?}");
        let steps_ns: i64 = [8, 9, 10, 12].map(|at| number(row, at)).iter().sum();
        assert!((1..=number(row, 5)).contains(&steps_ns), "{steps_ns}");
    }
    // Each thread sends on one packet after the other.
    for thread in threads {
        let own = rows.iter().filter(|row| number(row, 2) == thread);
        assert!(own.map(|row| number(row, 4)).is_sorted());
    }
}

/// What comes while the program does not run is received, however long that is: here, longer than it
/// waits for a packet.
#[test]
fn packets_that_came_while_nothing_ran_are_received() {
    use nix::sys::signal::{Signal, kill};
    const SENT: usize = 20;
    const STOPPED: Duration = Duration::from_secs(3);
    let received = || {
        let ports = free_ports(2);
        let between = UdpSocket::bind("127.0.0.1:0").unwrap();
        let patience = Some(Duration::from_secs(600));
        between.set_read_timeout(patience).unwrap();
        let mut process = Command::new(env!("CARGO_BIN_EXE_laxity-media"))
            .args(["calls", "--json", "--duration=400 ms"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut orders = process.stdin.take().unwrap();
        let [one, other] = ports[..] else {
            panic!("there are two")
        };
        let to = between.local_addr().unwrap();
        writeln!(
            orders,
            "open a {one}\nopen a {other}\nsend a {one} {to} 0\nbegin"
        )
        .unwrap();
        orders.flush().unwrap();
        let packets = std::iter::repeat_with(|| {
            let mut packet = [0; 2000];
            let bytes = between.recv(&mut packet).unwrap();
            packet[..bytes].to_vec()
        });
        let packets: Vec<Vec<u8>> = packets.take(SENT).collect();
        // The program's time to send ends 20 ms later.
        std::thread::sleep(Duration::from_millis(200));
        let id = nix::unistd::Pid::from_raw(process.id() as i32);
        kill(id, Signal::SIGSTOP).unwrap();
        for packet in &packets {
            between.send_to(packet, other).unwrap();
        }
        std::thread::sleep(STOPPED);
        kill(id, Signal::SIGCONT).unwrap();
        let report = report_of(&process.wait_with_output().unwrap());
        report["sink"]["received"].as_u64().unwrap()
    };
    // A test that does not run itself may stop the program when it has ended.
    assert!((0..8).any(|_| received() == SENT as u64));
}

#[test]
fn another_calls_packets_are_not_counted_as_ones_own() {
    // Without a server, the first call's caller sends to the second call's caller, whose own stream
    // stays silent.
    let ports = free_ports(3);
    let [one, other, third] = ports[..] else {
        panic!("there are three")
    };
    let report_after = |time: Duration| {
        report_of(&calls(|orders| {
            writeln!(orders, "open a {one}\nopen a {third}\nopen b {other}").unwrap();
            writeln!(orders, "send a {one} {other} 0").unwrap();
            orders.flush().unwrap();
            std::thread::sleep(time);
            writeln!(orders, "end a").unwrap();
        }))
    };
    // On a busy computer the call may end before anything was sent.
    let mut reports = (0..5).map(|try_| report_after(Duration::from_millis(200 << (2 * try_))));
    let report = reports.find(|report| report["load"]["sent"] != 0).unwrap();
    let sink = &report["sink"];
    assert_eq!(sink["received"], 0);
    assert_eq!(sink["dead_streams"], 1);
    assert_eq!(
        sink["misdirected"].as_u64().unwrap() + sink["dropped"].as_u64().unwrap(),
        report["load"]["sent"].as_u64().unwrap()
    );
}

#[test]
fn calls_are_set_up_at_a_media_server_and_forgotten_there() {
    until_in_time(are_set_up_and_forgotten);
}

/// Whether all streams of calls that last for `time` were sent, and heard by who waits two seconds.
fn are_set_up_and_forgotten(time: Duration) -> bool {
    let server = Server::start(&["--transcode"]);
    let calls = laxity_media(&[
        "calls",
        "--media-server",
        &server.control.peer_addr().unwrap().to_string(),
        "--streams=5",
        &format!("--duration={} ms", time.as_millis()),
        "--json",
    ]);
    let report = report_of(&calls);
    let relay = server.end();
    assert_eq!(report["calls"]["calls"], 3);
    assert_eq!(report["calls"]["streams_most"], 5);
    let sent = report["load"]["sent"].as_u64().unwrap();
    assert_eq!(relay["relay"]["calls"], 3);
    let counted = |part: &str, name: &str| {
        let of = if part == "relay" { &relay } else { &report };
        of[part][name].as_u64().unwrap()
    };
    let dropped = counted("relay", "dropped") + counted("sink", "dropped");
    let accounted = counted("sink", "received") + dropped;
    assert!(accounted <= sent, "{report} {relay}");
    assert_eq!(counted("sink", "stray"), 0);
    sent >= 5 && accounted == sent
}

#[test]
fn calls_that_are_set_up_too_late_do_not_begin_and_are_forgotten() {
    let server = Server::start(&["--transcode"]);
    let calls = laxity_media(&[
        "calls",
        "--media-server",
        &server.control.peer_addr().unwrap().to_string(),
        "--streams=4",
        "--begin=1000",
    ]);
    let said = String::from_utf8_lossy(&calls.stderr).into_owned();
    assert_eq!(calls.status.code(), Some(1), "{said}");
    assert!(said.contains("ns after the time of --begin"), "{said}");
    let relay = server.end();
    assert_eq!(relay["relay"]["calls"], 2);
    assert_eq!(relay["relay"]["received"], 0);
}

#[test]
fn calls_are_not_begun_without_their_media_server() {
    let server = UdpSocket::bind("127.0.0.1:0").unwrap();
    let address = server.local_addr().unwrap().to_string();
    let answering = std::thread::spawn(move || {
        let mut question = [0; 2000];
        let (bytes, from) = server.recv_from(&mut question).unwrap();
        let cookie = question[..bytes]
            .split(|octet| *octet == b' ')
            .next()
            .unwrap();
        let late = b"0-0 {\"result\":\"ok\",\"sdp\":\"\"}";
        server.send_to(late, from).unwrap();
        let answer = [cookie, b" {\"result\":\"error\",\"error-reason\":\"full\"}"].concat();
        server.send_to(&answer, from).unwrap();
    });
    let refused = refusal(&["calls", "--media-server", &address]);
    answering.join().unwrap();
    assert!(
        refused.contains(&format!("{address} refuses `offer`: full")),
        "{refused}"
    );
    let none = refusal(&["calls", "--media-server", "127.0.0.1:9", "--streams=0"]);
    assert!(
        none.contains("0 streams are not possible; give 1 to 27768"),
        "{none}"
    );
    let neither = refusal(&["calls", "--streams=2"]);
    assert!(neither.contains("--media-server"), "{neither}");
}

#[test]
fn senseless_orders_end_calls() {
    let refused = |lines: &str| {
        let output = calls(|orders| writeln!(orders, "{lines}").unwrap());
        assert_eq!(output.status.code(), Some(2));
        String::from_utf8(output.stderr).unwrap()
    };
    let error = refused("open a 127.0.0.1:0\nbegin a");
    assert!(error.contains("the order `begin a` is unknown"), "{error}");
    let error = refused("open a 127.0.0.1:1\nopen a 127.0.0.1:2\nopen a 127.0.0.1:3");
    assert!(error.contains("127.0.0.1:3 would be a third"), "{error}");
    // An unusable port is an error of the system that is counted and does not end the program.
    let report = report_of(&calls(|orders| {
        writeln!(orders, "open a 192.0.2.1:9").unwrap()
    }));
    assert_eq!(report["calls"]["refused"], 1);
    assert!(refusal(&["calls", "--sample", "0"]).contains("--sample must be at least 1"));
    assert!(
        refusal(&["calls", "--orders", "/nowhere"]).contains("cannot read the orders /nowhere")
    );
    let bare = refusal(&["relay", "--control", "127.0.0.1:9"]);
    assert!(
        bare.contains("--address") && bare.contains("--control-from"),
        "{bare}"
    );
    let ports = ["--address", "127.0.0.1", "--ports", "9-8"];
    let from = "--control-from=127.0.0.1";
    let relay = [&["relay", "--control", "127.0.0.1:0", from][..], &ports].concat();
    assert!(refusal(&relay).contains("the ports 9 to 8 are enough for 0 calls"));
}

/// A request that redirects or ends a call of others, or takes its ports.
fn question(command: &str, call: &str, from_tag: &str, to_tag: &str) -> Value {
    let sdp = "v=0\r\no=- 1 1 IN IP4 127.0.0.1\r\ns=-\r\nc=IN IP4 127.0.0.1\r\nt=0 0\r\nm=audio 9 RTP/AVP 0\r\n";
    json!({"command": command, "call-id": call, "from-tag": from_tag, "to-tag": to_tag, "sdp": sdp})
}

#[test]
fn a_call_is_changed_and_ended_by_its_parties_alone() {
    let server = Server::start(&[]);
    let parties = free_ports(2);
    let (to_callee, _) = server.describe("offer", "1", parties[0]);
    let (to_caller, _) = server.describe("answer", "1", parties[1]);
    server.ask(&question("offer", "1", "a", "b"));
    for (command, from_tag, to_tag) in [
        ("answer", "a", "x"),
        ("answer", "x", "y"),
        ("offer", "x", "a"),
        ("delete", "x", "a"),
        ("delete", "a", "x"),
    ] {
        let said = server.ask(&question(command, "1", from_tag, to_tag));
        assert_eq!(
            said["error-reason"], "the tags belong to another dialog",
            "{command}"
        );
    }
    // The callee offers inside the dialog: the ports stay, and both directions are still relayed.
    let [caller, callee] = parties[..] else {
        panic!("there are two")
    };
    let hold = server.ask(&question("offer", "1", "b", "a"));
    assert!(
        hold["sdp"]
            .as_str()
            .unwrap()
            .contains(&to_caller.port().to_string())
    );
    let ended = server.ask(&question("delete", "1", "b", "a"));
    assert_eq!(ended["result"], "ok");
    assert_ne!((to_callee, caller), (to_caller, callee));
    assert_eq!(server.end()["relay"]["calls"], 1);
}

/// A party that has its packets sent to the port at which they arrive.
#[test]
fn no_packet_goes_around_in_the_server() {
    let address = own_address();
    let server = Server::start_at(&address.to_string(), &["--ports=39000-39063"]);
    let (arrives, _) = server.describe("offer", "1", free_ports(1)[0]);
    let place = format!("c=IN IP4 {address}");
    for port in [arrives.port(), 39_000, 39_063] {
        let mut around = question("offer", "1", "a", "b");
        let sdp = around["sdp"].as_str().unwrap();
        let sdp = sdp.replace("c=IN IP4 127.0.0.1", &place);
        around["sdp"] = json!(sdp.replace("audio 9", &format!("audio {port}")));
        let refused = server.ask(&around);
        assert_eq!(
            refused["error-reason"],
            format!("{address}:{port} is a port of this media server")
        );
    }
}

#[test]
fn parties_of_both_families_hear_each_other() {
    let address = own_address();
    let server = Server::start_at(&format!("{address},::1"), &["--ports=39000-39063"]);
    let bind = |address: IpAddr| UdpSocket::bind((address, 0)).unwrap();
    let parties = [bind(address.into()), bind(Ipv6Addr::LOCALHOST.into())];
    let [one, other] = parties.each_ref().map(|party| party.local_addr().unwrap());
    let ask = |command, at, family: Option<&str>| {
        let mut asked = question(command, "1", "a", "b");
        asked["sdp"] = json!(control::describe(at, Law::Mu));
        if let Some(family) = family {
            asked["address family"] = json!(family);
        }
        server.ask(&asked)
    };
    let described = |reply: Value| {
        let sdp = reply["sdp"].as_str().unwrap().to_owned();
        Description::parse(&sdp).unwrap().receives_at
    };
    let refused = ask("offer", one, Some("IP5"));
    assert_eq!(refused["error-reason"], "\"IP5\" is neither IP4 nor IP6");
    let other_sends_to = described(ask("offer", one, Some("IP6")));
    let one_sends_to = described(ask("answer", other, None));
    assert_eq!(one_sends_to.ip(), address);
    assert_eq!(other_sends_to.ip(), Ipv6Addr::LOCALHOST);
    for (from, to, hears) in [(0, one_sends_to, 1), (1, other_sends_to, 0)] {
        let voice: Vec<u8> = [0x80, 0].into_iter().chain([from as u8; 170]).collect();
        let mut heard = [0; 256];
        let party = &parties[hears];
        party
            .set_read_timeout(Some(Duration::from_secs(600)))
            .unwrap();
        parties[from].send_to(&voice, to).unwrap();
        let (bytes, source) = party.recv_from(&mut heard).unwrap();
        assert_eq!(heard[..bytes], voice);
        // A party hears from where it sends to (RFC 4961).
        assert_eq!(source, [other_sends_to, one_sends_to][from]);
    }
    // A party that moves to the other family would have to be sent to from elsewhere.
    let refused = ask("offer", other, None);
    let why = format!("the call sends to this party from {one_sends_to}, not to {other}");
    assert_eq!(refused["error-reason"], why);
    let report = server.end();
    assert_eq!(report["relay"]["calls"], 1);
    assert_eq!(report["relay"]["forwarded"], 2);
}

/// Encrypted voice, DTLS, and whatever else parties with keys of their own send.
#[test]
fn what_is_secured_is_passed_on_unread() {
    let ask = |server: &Server, call, command, at, proto| {
        let mut asked = question(command, call, "a", "b");
        let sdp = control::describe(at, Law::Mu).replace("RTP/AVP", proto);
        asked["sdp"] = json!(sdp);
        server.ask(&asked)
    };
    let transcoding = Server::start(&["--ports=39000-39063", "--transcode"]);
    let at = free_ports(1)[0];
    let refused = ask(&transcoding, "1", "offer", at, "RTP/SAVP");
    let why = "encrypted voice cannot be transcoded";
    assert_eq!(refused["error-reason"], why);
    drop(transcoding);

    let server = Server::start(&["--ports=39000-39063"]);
    // A handshake of DTLS, and a packet of RTP whose padding is encrypted.
    let packets = [[22; 64], [0xa0; 64]];
    for (call, proto, pass) in [
        ("1", "RTP/SAVP", true),
        ("2", "UDP/TLS/RTP/SAVP", true),
        ("3", "RTP/AVP", false),
    ] {
        let parties = [(); 2].map(|()| UdpSocket::bind((own_address(), 0)).unwrap());
        let [one, other] = parties.each_ref().map(|party| party.local_addr().unwrap());
        ask(&server, call, "offer", one, proto);
        let answered = ask(&server, call, "answer", other, proto);
        let sdp = answered["sdp"].as_str().unwrap();
        let one_sends_to = Description::parse(sdp).unwrap().receives_at;
        let last: Vec<u8> = [0x80, 0].into_iter().chain([1; 170]).collect();
        for packet in packets.iter().map(|it| &it[..]).chain([&last[..]]) {
            parties[0].send_to(packet, one_sends_to).unwrap();
        }
        parties[1]
            .set_read_timeout(Some(Duration::from_secs(600)))
            .unwrap();
        let mut heard = Vec::new();
        while heard.last() != Some(&last) {
            let mut packet = [0; 256];
            let bytes = parties[1].recv(&mut packet).unwrap();
            heard.push(packet[..bytes].to_vec());
        }
        assert_eq!(heard.len(), if pass { 3 } else { 1 }, "{proto}");
        if pass {
            assert_eq!(heard[..2], packets.map(|packet| packet.to_vec()));
        }
    }
}

#[test]
fn strangers_are_not_answered_and_no_source_takes_all_ports() {
    let address = own_address().to_string();
    let options = [
        "--ports=39000-39063",
        "--control-from=127.0.0.2",
        "--expire=1 h",
    ];
    let server = Server::start_at(&address, &options);
    // Ports for 16 calls exist, half of them for each of the two addresses.
    let taken = (0..20)
        .map(|call| server.ask(&question("offer", &call.to_string(), "a", "")))
        .filter(|said| said["result"] == "ok")
        .count();
    assert!((1..=8).contains(&taken), "{taken}");
    let refused = server.ask(&question("offer", "more", "a", ""));
    assert_eq!(
        refused["error-reason"],
        "127.0.0.1 has 8 calls, which is the most that it may have"
    );
    let stranger = UdpSocket::bind("127.0.0.3:0").unwrap();
    stranger
        .connect(server.control.peer_addr().unwrap())
        .unwrap();
    stranger.send(br#"1 {"command":"ping"}"#).unwrap();
    stranger
        .send(br#"2 {"command":"delete","call-id":"0","from-tag":"a"}"#)
        .unwrap();
    // Both calls existed before this request.
    let there = server.ask(&question("delete", "0", "a", ""));
    assert_eq!(there["result"], "ok");
    assert_eq!(server.end()["relay"]["refused"], 2);
    stranger.set_nonblocking(true).unwrap();
    assert!(stranger.recv(&mut [0; 10]).is_err());
}

#[test]
fn a_call_of_which_nothing_comes_expires() {
    let server = Server::start(&["--expire=300 ms"]);
    server.ask(&question("offer", "1", "a", ""));
    let until = std::time::Instant::now() + Duration::from_secs(600);
    loop {
        // A request with a wrong tag does not extend the call.
        let said = server.ask(&question("delete", "1", "x", "a"));
        if said["error-reason"] == "there is no call 1" {
            break;
        }
        assert!(std::time::Instant::now() < until, "{said}");
        std::thread::sleep(Duration::from_millis(20));
    }
    assert_eq!(server.end()["relay"]["expired"], 1);
}

#[test]
fn calls_last_as_long_as_their_own_clock_says() {
    let ports = free_ports(2);
    let mut process = Command::new(env!("CARGO_BIN_EXE_laxity-media"))
        .args(["calls", "--json", "--duration=400 ms"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut orders = process.stdin.take().unwrap();
    for (local, remote) in [(ports[0], ports[1]), (ports[1], ports[0])] {
        writeln!(orders, "open a {local}\nsend a {local} {remote} 0").unwrap();
    }
    writeln!(orders, "begin").unwrap();
    orders.flush().unwrap();
    // The orders stay open, as if their writer did not get to run.
    let mut text = String::new();
    let output = process.stdout.as_mut().unwrap();
    output.read_to_string(&mut text).unwrap();
    process.wait().unwrap();
    drop(orders);
    let report: Value = serde_json::from_str(&text).unwrap();
    let load = &report["load"];
    // Every packet due within the time was sent, and no other, however late the threads were.
    assert_eq!(
        (load["streams"].as_u64(), load["due"].as_u64()),
        (Some(2), Some(40))
    );
    assert!(load["measured_duration_ns"].as_i64().unwrap() >= 400_000_000);
    let error = String::from_utf8(calls(|orders| writeln!(orders, "begin").unwrap()).stderr);
    assert!(error.unwrap().contains("give --duration"));
}
