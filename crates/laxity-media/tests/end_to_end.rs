//! Load, media server and sink over loopback, bounded in packets and in time. What must come out does not depend on how
//! fast the machine is: everything sent is received, or counted where it was dropped.

use serde_json::Value;
use std::process::{Command, Output};

fn laxity_media(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_laxity-media"))
        .args(arguments)
        .output()
        .unwrap()
}

fn json(output: &Output) -> Value {
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

/// Every packet of `report` is somewhere.
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
        let report = json(&laxity_media(&arguments));
        assert_accounted(&report, 30, 20);
    }
}

#[test]
fn what_a_full_receive_buffer_drops_is_counted_as_the_servers() {
    // Room for a packet or two, and a millisecond of work for each: most are dropped.
    let report = json(&laxity_media(&[
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
    let report = json(&laxity_media(&[
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
    // Port 9 of loopback: nothing relays what goes to the address of a server that only the load knows.
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
    told(&["load", "--to", "127.0.0.1:0"], "port 0 is none");
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
