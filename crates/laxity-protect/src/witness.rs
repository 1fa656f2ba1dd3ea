//! The witness: a key in etcd (v3.4 or newer) with the last term given out for a virtual machine,
//! and its owner.
//!
//! A claim is one compare-and-swap, and may be repeated: whoever was given a term and did not hear of it is told so the
//! next time. It goes through etcd's JSON gateway, so that there is nothing between the two but HTTP.

use std::fmt::Write as _;
use std::time::Duration;

use base64::prelude::{BASE64_STANDARD, Engine as _};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use ureq::Agent;
use ureq::unversioned::resolver::DefaultResolver;
use ureq::unversioned::transport::{Connector as _, TcpConnector};

use crate::protocol::Verdict;
use crate::protocol::message::COUNTED_MAX;
use crate::transport::Keys;

/// Longest wait for one member before the next one is asked.
const MEMBER_TIMEOUT: Duration = Duration::from_secs(1);
/// Size limit of an answer, which normally has a few hundred bytes.
const ANSWER_BYTES_MAX: u64 = 64 << 10;

/// The witness in the site file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Place {
    /// Members of etcd in the order in which they are asked: `http://ADDRESS:PORT`, or `https` with
    /// the site's keys.
    pub endpoints: Vec<String>,
    /// Prefix of all keys.
    pub prefix: String,
}

/// A client for the terms of one virtual machine.
#[derive(Debug, Clone)]
pub struct Witness {
    agent: Agent,
    endpoints: Vec<String>,
    key: String,
}

/// The last term that was given out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct Given {
    term: u64,
    incarnation: u64,
}

impl Witness {
    /// A client, not connected yet. With `https` both sides authenticate by certificates of the
    /// site.
    pub fn new(place: &Place, keys: &Keys, vm: &str) -> Witness {
        // The site file says who is asked: neither an answer nor the environment names another.
        let config = Agent::config_builder()
            .timeout_global(Some(MEMBER_TIMEOUT))
            .max_redirects(0)
            .proxy(None)
            .build();
        let connector = ().chain(TcpConnector::default()).chain(keys.for_web());
        Witness {
            agent: Agent::with_parts(config, connector, DefaultResolver::default()),
            endpoints: place.endpoints.clone(),
            key: format!("{}{vm}", place.prefix),
        }
    }

    /// Asks for the term after `expected`; see [`Action::Claim`](crate::protocol::Action::Claim).
    /// Blocks while members do not answer, for one second each.
    ///
    /// # Errors
    ///
    /// Why no member has given a verdict. One may have done as it was asked, nevertheless.
    pub fn claim(&self, expected: u64, incarnation: u64) -> Result<Verdict, String> {
        let mut said = String::new();
        for endpoint in &self.endpoints {
            match self.claim_at(endpoint, expected, incarnation) {
                Ok(verdict) => return Ok(verdict),
                Err(reason) => {
                    let separator = if said.is_empty() { "" } else { "; " };
                    let _ = write!(said, "{separator}{endpoint}: {reason}");
                }
            }
        }
        Err(said)
    }

    fn claim_at(&self, endpoint: &str, expected: u64, incarnation: u64) -> Result<Verdict, String> {
        let wanted = Given {
            term: expected + 1,
            incarnation,
        };
        let (revision, given) = found(&self.ask(endpoint, "range", &range(&self.key))?)?;
        if given.term != expected {
            return Ok(judge(given, wanted));
        }
        let answer = self.ask(endpoint, "txn", &swap(&self.key, revision, wanted))?;
        if answer["succeeded"] == true {
            return Ok(Verdict::Granted { term: wanted.term });
        }
        // Another claim was faster; the answer has the current value.
        let (_, given) = found(&answer["responses"][0]["response_range"])?;
        Ok(judge(given, wanted))
    }

    fn ask(&self, endpoint: &str, what: &str, body: &Value) -> Result<Value, String> {
        let url = format!("{endpoint}/v3/kv/{what}");
        let mut response = self
            .agent
            .post(&url)
            .send_json(body)
            .map_err(|error| error.to_string())?;
        response
            .body_mut()
            .with_config()
            .limit(ANSWER_BYTES_MAX)
            .read_json()
            .map_err(|error| error.to_string())
    }
}

fn judge(given: Given, wanted: Given) -> Verdict {
    if given == wanted {
        Verdict::Granted { term: given.term }
    } else {
        Verdict::Refused {
            current: given.term,
        }
    }
}

fn encoded(text: &str) -> String {
    BASE64_STANDARD.encode(text)
}

/// A linearizable read, etcd's default: a majority of the members confirms the answer.
fn range(key: &str) -> Value {
    json!({ "key": encoded(key) })
}

/// A transaction that sets the key to `wanted` if its revision is still this one (0: it does not
/// exist), and otherwise reads it.
fn swap(key: &str, revision: i64, wanted: Given) -> Value {
    let Given { term, incarnation } = wanted;
    let value = encoded(&format!("{term} {incarnation:016x}"));
    let key = encoded(key);
    json!({
        "compare": [{ "key": key, "target": "MOD", "result": "EQUAL", "mod_revision": revision.to_string() }],
        "success": [{ "request_put": { "key": key, "value": value } }],
        "failure": [{ "request_range": { "key": key } }],
    })
}

/// The 64-bit numbers are strings in etcd's JSON.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Entry {
    value: String,
    mod_revision: String,
}

/// The verdict on a claim of incarnation 1 for term 1, if a member answers these bytes.
#[cfg(fuzzing)]
pub fn verdict_from(answer: &[u8]) -> Option<Verdict> {
    let answer = serde_json::from_slice(answer).ok()?;
    let (_, given) = found(&answer).ok()?;
    let wanted = Given {
        term: 1,
        incarnation: 1,
    };
    Some(judge(given, wanted))
}

/// The current value and its revision; an absent key means that no term has been given out.
fn found(answer: &Value) -> Result<(i64, Given), String> {
    let strange = |what: &str| format!("its value is not of this protocol: {what}");
    let Some(entry) = answer["kvs"].get(0) else {
        return match answer {
            Value::Object(_) => Ok((0, Given::default())),
            _ => Err(format!("it answers {answer}")),
        };
    };
    let entry: Entry = serde_json::from_value(entry.clone()).map_err(|error| error.to_string())?;
    let value = BASE64_STANDARD
        .decode(&entry.value)
        .ok()
        .and_then(|bytes| String::from_utf8(bytes).ok())
        .ok_or_else(|| strange("not text"))?;
    let given = value.split_once(' ').and_then(|(term, incarnation)| {
        Some(Given {
            term: term.parse().ok().filter(|&term| term <= COUNTED_MAX)?,
            incarnation: u64::from_str_radix(incarnation, 16).ok()?,
        })
    });
    let revision = entry
        .mod_revision
        .parse()
        .map_err(|_| format!("it answers revision {:?}", entry.mod_revision))?;
    Ok((
        revision,
        given.ok_or_else(|| strange(&format!("{value:?}")))?,
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_it_has_is_read() {
        let answer = |value: &str| json!({ "header": {}, "kvs": [{ "value": encoded(value), "mod_revision": "41" }] });
        let given = |term, incarnation| Given { term, incarnation };
        assert_eq!(
            found(&answer("7 00000000000000ff")),
            Ok((41, given(7, 255)))
        );
        assert_eq!(found(&json!({ "header": {} })), Ok((0, given(0, 0))));
        // Nobody counts so far, and one more than that would not be a number.
        assert!(found(&answer("18446744073709551615 00000000000000ff")).is_err());
        for strange in [
            "",
            "7",
            "7 ",
            "x 00ff",
            "7 00fg",
            "-1 0",
            "18446744073709551616 0",
        ] {
            assert!(found(&answer(strange)).is_err(), "{strange:?}");
        }
        assert!(found(&json!("nothing")).is_err());
        let no_revision = json!({ "kvs": [{ "value": encoded("7 ff") }] });
        assert!(found(&no_revision).is_err());
    }
}
