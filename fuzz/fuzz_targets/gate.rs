//! What comes from a guest and from another host in bytes: frames on a stream, frames themselves, and batches of pages.
//! None is too odd, and what is announced for an address claims that address.
#![no_main]

use laxity_protect::gate::frames::{Deframer, announcement, claimed_address};
use laxity_protect::guest::PAGE_BYTES;
use laxity_protect::guest::patches::Staged;
use libfuzzer_sys::fuzz_target;

const PAGES: usize = 8;

fuzz_target!(|data: &[u8]| {
    let (cut, rest) = data.split_first().unwrap_or((&0, data));
    let (first, second) = rest.split_at(usize::from(*cut).min(rest.len()));
    let (mut deframer, mut whole) = (Deframer::default(), Deframer::default());
    whole.add(rest);
    deframer.add(first);
    let mut frames = Vec::new();
    while let Ok(Some(frame)) = deframer.frame() {
        frames.push(frame.to_vec());
    }
    deframer.add(second);
    while let Ok(Some(frame)) = deframer.frame() {
        frames.push(frame.to_vec());
    }
    // However a stream comes, it is the same frames.
    for frame in &frames {
        assert_eq!(whole.frame(), Ok(Some(&frame[..])));
        if let Some(sender) = frame.get(6..12) {
            let sender = sender.try_into().unwrap();
            if let Some(address) = claimed_address(frame, sender) {
                assert_eq!(
                    claimed_address(&announcement(address, sender), sender),
                    Some(address)
                );
            }
        }
    }
    assert!(!matches!(whole.frame(), Ok(Some(_))));

    let mut staged = Staged::default();
    if staged.add(rest, PAGES).is_ok() {
        let mut memory = vec![[7; PAGE_BYTES]; PAGES];
        staged.apply(&mut memory);
        assert_eq!(staged.bytes(), 0);
    }
});
