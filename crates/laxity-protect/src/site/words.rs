//! Values of a site file that are written as strings.

use std::fmt;
use std::marker::PhantomData;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;

use laxity_config::{Field, written};
use serde::de::{Error, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use ureq::http::Uri;

use crate::gate::frames::Mac;

/// A parsed string.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Written<T>(pub T);

/// A parsed string, or a list of several.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Several<T>(pub Vec<T>);

impl<'de, T: Word> Deserialize<'de> for Several<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct SeveralVisitor<T>(PhantomData<T>);

        impl<'de, T: Word> Visitor<'de> for SeveralVisitor<T> {
            type Value = Several<T>;

            fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(formatter, "{}, or a list of such", T::EXPECTED)
            }

            fn visit_str<E: Error>(self, text: &str) -> Result<Several<T>, E> {
                T::parse(text)
                    .map(|one| Several(vec![one]))
                    .map_err(E::custom)
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Several<T>, A::Error> {
                let (mut all, mut is_empty) = (Vec::new(), true);
                while let Some(element) = list.next_element::<Field<Written<T>>>()? {
                    is_empty = false;
                    // A wrong element was reported where it is.
                    all.extend(element.value.map(|Written(value)| value));
                }
                if is_empty {
                    return Err(A::Error::custom(format!("is empty\nwrite {}", T::EXPECTED)));
                }
                Ok(Several(all))
            }
        }

        deserializer.deserialize_any(SeveralVisitor(PhantomData))
    }
}

/// The syntax of a string.
pub trait Word: Sized {
    /// The expected syntax in messages.
    const EXPECTED: &'static str;
    /// Parses a string. An error has what is wrong, and in a second line what would be right.
    fn parse(text: &str) -> Result<Self, String>;
}

impl<'de, T: Word> Deserialize<'de> for Written<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        written(deserializer, T::EXPECTED, T::parse).map(Written)
    }
}

impl Word for SocketAddr {
    const EXPECTED: &'static str = "an address and a port in quotes, such as \"192.0.2.1:7421\"";

    fn parse(text: &str) -> Result<SocketAddr, String> {
        let help = "write \"192.0.2.1:7421\" or \"[2001:db8::1]:7421\": names are not looked up";
        text.parse()
            .map_err(|_| format!("is not an address with a port: {text:?}\n{help}"))
    }
}

impl Word for IpAddr {
    const EXPECTED: &'static str = "an address in quotes, such as \"192.0.2.1\"";

    fn parse(text: &str) -> Result<IpAddr, String> {
        text.parse().map_err(|_| {
            format!("is not an address: {text:?}\nwrite \"192.0.2.1\" or \"2001:db8::1\"")
        })
    }
}

/// An address of a network interface, with the prefix length of its network.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Interface {
    /// Address of the interface.
    pub address: IpAddr,
    /// Prefix length in bits.
    pub prefix: u8,
}

impl fmt::Display for Interface {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}/{}", self.address, self.prefix)
    }
}

impl Serialize for Interface {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl Word for Interface {
    const EXPECTED: &'static str =
        "an address and the length of its prefix in quotes, such as \"192.0.2.10/24\"";

    fn parse(text: &str) -> Result<Interface, String> {
        let parsed = text.split_once('/').and_then(|(address, prefix)| {
            let (address, prefix): (IpAddr, u8) = (address.parse().ok()?, prefix.parse().ok()?);
            let bits = if address.is_ipv4() { 32 } else { 128 };
            (1..bits)
                .contains(&prefix)
                .then_some(Interface { address, prefix })
        });
        parsed.ok_or_else(|| {
            format!(
                "is not an address with a prefix: {text:?}\nwrite \"192.0.2.10/24\" or \"2001:db8::10/64\""
            )
        })
    }
}

/// A DNS name without a final dot (RFC 1123, section 2.1).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DomainName(pub String);

impl Word for DomainName {
    const EXPECTED: &'static str = "a domain in quotes, such as \"voice.example\"";

    fn parse(text: &str) -> Result<DomainName, String> {
        // Length limit that leaves room for `_sip._udp.` and a balancer's name in the 253
        // characters of DNS.
        const LENGTH_MAX: usize = 180;
        if text.len() <= LENGTH_MAX && text.split('.').all(is_label) {
            Ok(DomainName(text.to_ascii_lowercase()))
        } else {
            Err(format!(
                "is not a domain: {text:?}\nwrite letters, digits and `-` between dots, such as \"voice.example\""
            ))
        }
    }
}

/// One label of a DNS name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Label(pub String);

impl Word for Label {
    const EXPECTED: &'static str = "a name in quotes, such as \"edge1\"";

    fn parse(text: &str) -> Result<Label, String> {
        if is_label(text) {
            Ok(Label(text.to_ascii_lowercase()))
        } else {
            Err(format!(
                "is not a name in DNS: {text:?}\nwrite letters, digits and `-`, such as \"edge1\""
            ))
        }
    }
}

fn is_label(text: &str) -> bool {
    (1..=63).contains(&text.len())
        && text.chars().all(|c| c.is_ascii_alphanumeric() || c == '-')
        && !text.starts_with('-')
        && !text.ends_with('-')
}

impl Word for Mac {
    const EXPECTED: &'static str = "an Ethernet address in quotes, such as \"52:54:00:12:34:56\"";

    fn parse(text: &str) -> Result<Mac, String> {
        let refused =
            || format!("is not an Ethernet address: {text:?}\nwrite \"52:54:00:12:34:56\", say");
        let mut mac = Mac::default();
        let mut parts = text.split(':');
        for byte in &mut mac {
            let part = parts
                .next()
                .filter(|part| part.len() == 2)
                .ok_or_else(refused)?;
            *byte = u8::from_str_radix(part, 16).map_err(|_| refused())?;
        }
        if parts.next().is_some() {
            return Err(refused());
        }
        if mac[0] & 1 != 0 {
            return Err(format!(
                "is a multicast address: {text:?}\nthe first byte of a host's address is even"
            ));
        }
        Ok(mac)
    }
}

/// Address of a member of etcd.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Endpoint(pub String);

impl Word for Endpoint {
    const EXPECTED: &'static str = "a member of etcd in quotes, such as \"https://192.0.2.9:2379\"";

    fn parse(text: &str) -> Result<Endpoint, String> {
        let uri: Option<Uri> = text.parse().ok();
        let is_one = |uri: &Uri| {
            matches!(uri.scheme_str(), Some("http" | "https"))
                && uri.host().is_some_and(|host| !host.is_empty())
                && uri.port_u16().is_some()
                && uri.path() == "/"
                && uri.query().is_none()
                && !text.ends_with('/')
                && !text.contains('@')
        };
        match uri.filter(is_one) {
            Some(_) => Ok(Endpoint(text.into())),
            None => Err(format!(
                "is not a member of etcd: {text:?}\nwrite \"https://192.0.2.9:2379\", or http in a network that no one else can use"
            )),
        }
    }
}

impl Word for PathBuf {
    const EXPECTED: &'static str = "a path in quotes";

    fn parse(text: &str) -> Result<PathBuf, String> {
        String::parse(text).map(PathBuf::from)
    }
}

impl Word for String {
    const EXPECTED: &'static str = "text in quotes";

    fn parse(text: &str) -> Result<String, String> {
        if text.is_empty() {
            Err("is empty\nwrite a value, or leave it out".into())
        } else if text.contains('\0') {
            Err("contains a zero byte\nno program accepts one".into())
        } else {
            Ok(text.into())
        }
    }
}

/// The problem of an argument for QEMU and its remedy, if there is one: the daemon sets some
/// arguments itself, and cannot protect guests with others.
pub fn unprotectable(argument: &str) -> Option<(String, &'static str)> {
    let option = argument
        .strip_prefix("--")
        .or_else(|| argument.strip_prefix('-'))?;
    let said = |help| Some((format!("QEMU's `-{option}` cannot be given here"), help));
    match option {
        "m" => said("write memory = \"256 MiB\""),
        "smp" => said("write vcpus = 2"),
        "machine" | "M" => said("write machine = \"pc\" or \"microvm\""),
        "accel" | "enable-kvm" => said("write accelerator = \"kvm\", \"tcg\" or \"auto\""),
        "cpu" => said("write cpu = \"qemu64\", say"),
        "kernel" | "initrd" | "append" => said("write it as a key of its own, without the dash"),
        "netdev" | "nic" | "net" => {
            said("the guest's network goes through the daemon: write tap = \"tap0\"")
        }
        "drive" | "blockdev" | "hda" | "hdb" | "hdc" | "hdd" | "cdrom" | "sd" | "mtdblock"
        | "pflash" | "fda" | "fdb" => said(
            "write volumes = [\"image\"], whose writes are protected, or disks = [\"image\"], which it can only read",
        ),
        "incoming" | "S" | "qmp" | "mon" | "daemonize" | "loadvm" | "snapshot" | "no-shutdown"
        | "runas" | "sandbox" | "mem-path" => said("the daemon sets it"),
        _ => None,
    }
}
