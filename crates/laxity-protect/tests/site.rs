//! Site files and their meaning, and that each case of `refused.md` is refused with exactly the
//! message below it.

use std::net::IpAddr;
use std::path::Path;

use laxity_protect::gate::Outside;
use laxity_protect::guest::disk::STAGED_BYTES_MAX;
use laxity_protect::guest::patches::batch_bytes_max;
use laxity_protect::guest::{
    Accelerator, Bus, Changes, DEVICE_STATE_BYTES_MAX, Format, Kind, Specification,
};
use laxity_protect::protocol::interval::Bounds;
use laxity_protect::protocol::{Mode, Settings, StandbyLost};
use laxity_protect::site::{Appliance, Host, Site, Vm, load, number_of};
use laxity_protect::witness::Place;

const WHOLE: &str = r#"
directory = "state"
keys = "keys"
witness = { endpoints = ["https://192.0.2.9:2379", "http://127.0.0.1:2379"], prefix = "voice/" }

[[host]]
name = "north"
address = "192.0.2.1:7421"

[[host]]
name = "south"
address = "[2001:db8::2]:7421"

[[vm]]
name = "media"
hosts = ["south", "north"]
mode = "no-net"
standby-lost = "continue"
interval = { minimum = "30 ms", maximum = "100 ms", pauses = 5 }
heartbeat = "20 ms"
detection = "90 ms"
lease = "250 ms"
memory = "1 GiB"
vcpus = 2
machine = "microvm"
accelerator = "tcg"
cpu = "max"
qemu = "/opt/qemu"
kernel = "kernel"
initrd = "/boot/initrd"
append = "quiet"
disks = ["image"]
volumes = ["disk"]
volume-bus = "virtio-scsi"
volume-format = "qcow2"
arguments = ["-device", "virtio-balloon-device"]
console = "console.log"
mac = "52:54:00:00:00:01"
socket = "switch.sock"
addresses = ["192.0.2.11", "2001:db8::11"]
changes = "comparison"
"#;

#[test]
fn every_key() {
    let host = |name: &str, address: &str| Host {
        name: name.into(),
        address: address.parse().unwrap(),
    };
    const MS: i64 = 1_000_000;
    let vm = Vm {
        name: "media".into(),
        appliance: None,
        hosts: ["south".into(), "north".into()],
        settings: Settings {
            vm: number_of("media"),
            mode: Mode::NoNet,
            standby_lost: StandbyLost::Continue,
            witness: true,
            heartbeat_ns: 20 * MS,
            detection_ns: 90 * MS,
            detection_min_ns: 90 * MS,
            lease_ns: 250 * MS,
            settling_ns: 1000 * MS,
            stall_ns: 900 * MS,
            checkpoint_bytes_max: batch_bytes_max(1 << 30)
                + (DEVICE_STATE_BYTES_MAX + STAGED_BYTES_MAX) as u64,
            drift_ppm: 200,
            interval: Bounds {
                minimum_ns: 30 * MS,
                maximum_ns: 100 * MS,
                pause_share_percent: 5,
            },
        },
        guest: Specification {
            name: "media".into(),
            number: number_of("media"),
            program: "/opt/qemu".into(),
            kind: Kind::Microvm,
            accelerator: Accelerator::Tcg,
            cpu: Some("max".into()),
            vcpus: 2,
            memory_bytes: 1 << 30,
            kernel: Some("/etc/laxity/kernel".into()),
            initrd: Some("/boot/initrd".into()),
            append: "quiet".into(),
            disks: vec!["/etc/laxity/image".into()],
            volumes: vec!["/etc/laxity/disk".into()],
            bus: Bus::VirtioScsi,
            format: Format::Qcow2,
            mac: [0x52, 0x54, 0, 0, 0, 1],
            console: Some("/etc/laxity/console.log".into()),
            arguments: vec!["-device".into(), "virtio-balloon-device".into()],
            changes: Changes::Comparison,
        },
        outside: Outside::Socket("/etc/laxity/switch.sock".into()),
        addresses: vec![
            "192.0.2.11".parse().unwrap(),
            "2001:db8::11".parse().unwrap(),
        ],
    };
    let expected = Site {
        directory: "/etc/laxity/state".into(),
        keys: "/etc/laxity/keys".into(),
        appliances: "/var/lib/laxity-protect/appliances".into(),
        domain: None,
        tls: None,
        balancers: vec![],
        witness: Some(Place {
            endpoints: ["https://192.0.2.9:2379", "http://127.0.0.1:2379"]
                .map(String::from)
                .into(),
            prefix: "voice/".into(),
        }),
        hosts: vec![
            host("north", "192.0.2.1:7421"),
            host("south", "[2001:db8::2]:7421"),
        ],
        vms: vec![vm],
        xen_domains: vec![],
    };
    assert_eq!(
        load(
            WHOLE.as_bytes(),
            "site.toml",
            Path::new("/etc/laxity"),
            Path::new("/"),
            &|_| true
        )
        .unwrap(),
        expected
    );
    assert_eq!(expected.vms[0].other("north"), Some("south"));
    assert_eq!(expected.vms[0].other("west"), None);
}

/// Both hosts derive the same values without communicating.
#[test]
fn what_is_not_said_is_the_same_everywhere() {
    assert_eq!(number_of(""), 0xcbf2_9ce4_8422_2325);
    assert_eq!(number_of("a"), 0xaf63_dc4c_8601_ec8c);
    let text = WHOLE.replace("mac = \"52:54:00:00:00:01\"\n", "");
    let load = |text: &str| {
        load(
            text.as_bytes(),
            "a.toml",
            Path::new("/"),
            Path::new("/"),
            &|_| true,
        )
        .unwrap()
        .vms[0]
            .guest
            .mac
    };
    assert_eq!(load(&text), load(&text));
    assert_ne!(load(&text), load(&text.replace("\"media\"", "\"other\"")));
}

#[test]
fn the_example() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/protect/site.toml");
    let site = load(
        &std::fs::read(path).unwrap(),
        "site.toml",
        Path::new("/"),
        Path::new("/"),
        &|_| true,
    )
    .unwrap();
    assert_eq!((site.hosts.len(), site.vms.len()), (2, 2));
}

/// An appliance's image and arguments, and the records for DNS.
#[test]
fn a_site_of_two_stages() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/site.toml");
    let text = std::fs::read(path).unwrap();
    let site = load(
        &text,
        "site.toml",
        Path::new("/etc"),
        Path::new("/hosts/north"),
        &|path| path.starts_with("/hosts/north/var/lib/laxity-protect/appliances"),
    )
    .unwrap();
    assert_eq!(
        site.directory,
        Path::new("/hosts/north/var/lib/laxity-protect")
    );
    assert_eq!(site.keys, Path::new("/hosts/north/etc/laxity-protect"));
    let vm = &site.vms[0];
    let files = Path::new("/hosts/north/var/lib/laxity-protect/appliances");
    assert_eq!(vm.guest.kernel, Some(files.join("kernel")));
    assert_eq!(vm.guest.initrd, Some(files.join("signalling.cpio")));
    assert_eq!(
        vm.guest.append,
        "console=ttyS0 quiet loglevel=1 cryptomgr.notests no_timer_check panic=1 rootfstype=ramfs address=192.0.2.31/24 media_control=192.0.2.41:2223"
    );
    // The media server accepts requests from the signalling servers only.
    let media = &site.vms[2].guest.append;
    assert!(
        media.ends_with("address=192.0.2.41/24 control_from=192.0.2.31,192.0.2.32"),
        "{media}"
    );
    assert_eq!(vm.addresses, ["192.0.2.31".parse::<IpAddr>().unwrap()]);
    let served = vm.appliance.as_ref().unwrap();
    assert_eq!(served.kind, Appliance::Signalling);
    assert_eq!(served.addresses[0].to_string(), "192.0.2.31/24");
    // Two primaries share one standby.
    let hosts: Vec<_> = site.vms.iter().map(|vm| vm.hosts.clone()).collect();
    assert_eq!(
        hosts,
        [
            ["north", "reserve"],
            ["south", "reserve"],
            ["south", "reserve"]
        ]
    );
    assert_eq!(
        site.records(),
        [
            "_sip._udp.voice.example. SRV 10 50 5060 edge1.voice.example.",
            "_sip._udp.voice.example. SRV 10 50 5060 edge2.voice.example.",
            "_sip._tcp.voice.example. SRV 10 50 5060 edge1.voice.example.",
            "_sip._tcp.voice.example. SRV 10 50 5060 edge2.voice.example.",
            "edge1.voice.example. A 192.0.2.21",
            "edge2.voice.example. A 192.0.2.22",
        ]
    );
}

/// A media server is another one by its name, and gets the same.
#[test]
fn a_site_with_rtpengine() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/site.toml");
    let text = std::fs::read_to_string(path).unwrap();
    let (before, media) = text.split_once("appliance = \"media\"").unwrap();
    let media = media.replace("128 MiB", "512 MiB");
    let text = format!("{before}appliance = \"rtpengine\"{media}");
    let none = Path::new("/");
    let site = load(text.as_bytes(), "site.toml", none, none, &|_| true).unwrap();
    let vm = &site.vms[2];
    let files = Path::new("/var/lib/laxity-protect/appliances");
    assert_eq!(vm.guest.initrd, Some(files.join("rtpengine.cpio")));
    assert!(
        vm.guest
            .append
            .ends_with("address=192.0.2.41/24 control_from=192.0.2.31,192.0.2.32")
    );
    let signalling = &site.vms[0].guest.append;
    assert!(signalling.ends_with("media_control=192.0.2.41:2223"));
}

/// TLS is for clients of balancers, and from there on; hosts need no file for it.
#[test]
fn a_site_with_tls() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/site.toml");
    let text = std::fs::read_to_string(path).unwrap();
    let tls = "tls = { certificate = \"voice.crt\", key = \"keys/voice.key\" }\n";
    let load = |text: &str| {
        load(
            text.as_bytes(),
            "site.toml",
            Path::new("/etc"),
            Path::new("/"),
            &|path| path.starts_with("/var/lib/laxity-protect/appliances"),
        )
        .unwrap()
    };
    let (plain, site) = (load(&text), load(&format!("{tls}{text}")));
    let tls = site.tls.as_ref().unwrap();
    assert_eq!(tls.certificate, Path::new("/etc/voice.crt"));
    assert_eq!(tls.key, Path::new("/etc/keys/voice.key"));
    let differ = plain.vms.iter().zip(&site.vms).map(|(plain, vm)| {
        let more = vm.guest.append.strip_prefix(&plain.guest.append);
        more.expect("nothing else changes")
    });
    assert_eq!(differ.collect::<Vec<_>>(), [" tls=1", " tls=1", ""]);
    let records = site.records();
    assert_eq!(
        records[4..6],
        [
            "_sips._tcp.voice.example. SRV 10 50 5061 edge1.voice.example.",
            "_sips._tcp.voice.example. SRV 10 50 5061 edge2.voice.example.",
        ]
    );
    let others = [&records[..4], &records[6..]].concat();
    assert_eq!(others, plain.records());
}

/// Servers with addresses of both families, which announce both when they are taken over.
#[test]
fn a_site_with_ipv6() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/site.toml");
    let mut text = std::fs::read_to_string(path).unwrap();
    for (number, prefix) in [(21, ""), (31, "/"), (32, "/"), (41, "/")] {
        let [v4, v6] = if prefix.is_empty() {
            ["", ""]
        } else {
            ["/24", "/64"]
        };
        let one = format!("\"192.0.2.{number}{v4}\"");
        let both = format!("[{one}, \"2001:db8::{number}{v6}\"]");
        assert!(text.contains(&one));
        text = text.replace(&one, &both);
    }
    let everywhere = Path::new("/");
    let site = load(
        text.as_bytes(),
        "site.toml",
        everywhere,
        everywhere,
        &|_| true,
    )
    .unwrap();
    let addresses = |number| {
        [format!("192.0.2.{number}"), format!("2001:db8::{number}")]
            .map(|address| address.parse::<IpAddr>().unwrap())
    };
    let vm = &site.vms[0];
    assert_eq!(vm.addresses, addresses(31));
    let arguments = "address=192.0.2.31/24,2001:db8::31/64 media_control=192.0.2.41:2223";
    assert!(vm.guest.append.ends_with(arguments), "{}", vm.guest.append);
    let control = "control_from=192.0.2.31,2001:db8::31,192.0.2.32,2001:db8::32";
    assert!(site.vms[2].guest.append.ends_with(control));
    assert_eq!(site.balancers[0].addresses, addresses(21));
    assert_eq!(
        site.records()[4..],
        [
            "edge1.voice.example. A 192.0.2.21",
            "edge1.voice.example. AAAA 2001:db8::21",
            "edge2.voice.example. A 192.0.2.22",
        ]
    );
}

#[test]
fn a_domain_of_xen() {
    const MS: i64 = 1_000_000;
    let text = WHOLE
        .split_once("[[vm]]")
        .unwrap()
        .0
        .replace("witness", "#")
        + r#"
[[vm]]
engine = "xen"
name = "signalling"
hosts = ["north", "south"]
configuration = "signalling.cfg"
hold-script = "/laxity/netbuf"
interval = { minimum = "500 ms" }
"#;
    let site = load(
        text.as_bytes(),
        "site.toml",
        Path::new("/etc"),
        Path::new("/"),
        &|_| true,
    )
    .unwrap();
    let [domain] = &site.xen_domains[..] else {
        panic!("{site:?}")
    };
    assert!(site.vms.is_empty());
    assert_eq!(domain.configuration, Path::new("/etc/signalling.cfg"));
    assert_eq!(domain.hold_script, Path::new("/laxity/netbuf"));
    assert_eq!(domain.other("south"), Some("north"));
    let interval = domain.settings.interval;
    assert_eq!(
        (interval.minimum_ns, interval.maximum_ns),
        (500 * MS, 500 * MS)
    );
}

/// The cases of `refused.md`: blocks of TOML, each followed by a block with its message.
#[test]
fn refused() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/refused.md");
    let document = std::fs::read_to_string(&path).unwrap();
    let mut written = String::new();
    let mut blocks = document.split("```toml\n");
    written += blocks.next().unwrap();
    let mut cases = 0;
    for block in blocks {
        let (text, rest) = block.split_once("```\n").unwrap();
        let (_, after) = rest.split_once("```text\n").unwrap();
        let (_, after) = after.split_once("```\n").unwrap();
        let is_there = |path: &Path| !path.to_string_lossy().contains("absent");
        let said = match load(
            text.as_bytes(),
            "site.toml",
            Path::new("/etc"),
            Path::new("/"),
            &is_there,
        ) {
            Ok(loaded) => panic!("not refused: {text}\n{loaded:?}"),
            Err(error) => error.to_string(),
        };
        written += &format!("```toml\n{text}```\n\n```text\n{said}\n```\n{after}");
        cases += 1;
    }
    assert!(cases > 10);
    if std::env::var_os("LAXITY_BLESS").is_some() {
        std::fs::write(&path, &written).unwrap();
    }
    assert!(written == document, "the messages are now:\n{written}");
}
