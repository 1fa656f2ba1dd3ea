//! Agreements files and their meaning, and that each case of `refused.md` is refused with exactly
//! the message below it.

use std::path::Path;

use laxity_bandwidth::agreements::{Attachment, Port, load};
use laxity_bandwidth::{Agreement, Agreements, Backend, Holder, Link, Sharing};

const WHOLE: &str = r#"
period = "20 ms"
sharing = "by-class"
overcommit = "warn"
absent = "wait"

[link]
backend = "linux"
interface = "eth0"
rate = "1 Gbit/s"
receive-rate = "500 Mbit/s"
reserve = "10 Mbit/s"

[[agreement]]
name = "media"
interface = "tap0"
class = 1
minimum = "300.5 Mbit/s"
maximum = "600 Mbit/s"
weight = 3
burst = "64 KiB"
receive = { minimum = "1 kbit/s", maximum = "100 Mbit/s", weight = 2 }

[[agreement]]
name = "batch"
interface = "tap1"
class = 2
minimum = "0 bit/s"
maximum = "1 Gbit/s"
"#;

#[test]
fn every_key() {
    let agreement = |class, minimum_bit_s, maximum_bit_s, weight| Agreement {
        class,
        minimum_bit_s,
        maximum_bit_s,
        weight,
    };
    let expected = Agreements {
        period_ns: 20_000_000,
        sharing: Sharing::ByClass,
        link: Link {
            backend: Backend::Linux,
            interface: "eth0".into(),
            rate_bit_s: 1_000_000_000,
            receive_bit_s: Some(500_000_000),
            reserve_bit_s: 10_000_000,
        },
        holders: vec![
            Holder {
                name: "media".into(),
                at: Attachment::Interface("tap0".into()),
                agreement: agreement(1, 300_500_000, 600_000_000, 3),
                receive: agreement(1, 1_000, 100_000_000, 2),
                burst_bytes: Some(65_536),
            },
            Holder {
                name: "batch".into(),
                at: Attachment::Interface("tap1".into()),
                agreement: agreement(2, 0, 1_000_000_000, 1),
                receive: agreement(2, 0, 500_000_000, 1),
                burst_bytes: None,
            },
        ],
        warnings: vec![],
    };
    let only_the_link_is_there = |at: &Attachment, _: &str| match at.interface() {
        Some("eth0") => Port::Usable,
        _ => Port::Absent,
    };
    let loaded = load(WHOLE.as_bytes(), "a.toml", &only_the_link_is_there).unwrap();
    assert_eq!(loaded, expected);
}

#[test]
fn minima_that_do_not_fit_are_admitted_with_a_warning() {
    let text = WHOLE
        .replace("300.5 Mbit/s", "600 Mbit/s")
        .replace("0 bit/s", "400 Mbit/s");
    let loaded = load(text.as_bytes(), "a.toml", &|_, _| Port::Usable).unwrap();
    assert_eq!(
        loaded.warnings,
        [
            "the minima and the reserve add up to 1.01 Gbit/s, more than the link's 1 Gbit/s; if all \
          virtual machines ask at once, 1 of 2 get less than their minimum: `batch` 390 Mbit/s"
        ]
    );
}

#[test]
fn ten_thousand_of_them() {
    let mut text = "[link]\ninterface = \"eth0\"\nrate = \"10 Gbit/s\"\n".to_string();
    for at in 0..10_000 {
        text += &format!(
            "[[agreement]]\nname = \"vm{at}\"\ninterface = \"tap{at}\"\nclass = 1\n\
             minimum = \"1 kbit/s\"\nmaximum = \"1 Gbit/s\"\n"
        );
    }
    let loaded = load(text.as_bytes(), "a.toml", &|_, _| Port::Usable).unwrap();
    assert_eq!(loaded.holders.len(), 10_000);
    let error = load(text.as_bytes(), "a.toml", &|_, _| Port::Absent).unwrap_err();
    assert!(
        error.to_string().ends_with("and 9981 more problems"),
        "{error}"
    );
}

#[test]
fn the_example() {
    let path =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/bandwidth/agreements.toml");
    let text = std::fs::read(path).unwrap();
    let only_the_link_is_there = |at: &Attachment, _: &str| match at.interface() {
        Some("eth0") => Port::Usable,
        _ => Port::Absent,
    };
    let loaded = load(&text, "agreements.toml", &only_the_link_is_there).unwrap();
    assert_eq!((loaded.holders.len(), loaded.warnings.len()), (3, 0));
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
        let look_at = |at: &Attachment, _: &str| match at {
            Attachment::Interface(name) if name == "macvtap0" => {
                Port::Unusable("is a macvtap", "use a tap")
            }
            Attachment::Interface(name) if name.starts_with("absent") => Port::Absent,
            Attachment::Card { domain, .. } if domain == "off" => Port::Absent,
            Attachment::Card { domain, .. } if domain == "unknown" => {
                Port::Unknown("virsh says: failed to get domain 'unknown'".into())
            }
            _ => Port::Usable,
        };
        let said = match load(text.as_bytes(), "agreements.toml", &look_at) {
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
