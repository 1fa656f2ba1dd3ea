//! Answers of a witness that is not etcd, or not itself: each is a verdict within the range of terms, or an error.
#![no_main]

use laxity_protect::protocol::Verdict;
use laxity_protect::protocol::message::COUNTED_MAX;
use laxity_protect::witness::verdict_from;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| match verdict_from(data) {
    Some(Verdict::Granted { term }) => assert_eq!(term, 1),
    Some(Verdict::Refused { current }) => assert!(current <= COUNTED_MAX),
    Some(Verdict::Unknown) | None => {}
});
