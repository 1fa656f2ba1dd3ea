//! Traces: whatever is in the file, every reader of it ends with an error or without, and the
//! readers agree on which.
#![no_main]

use laxity_trace::{Reader, TraceError, diff, needs, perfetto, text, timeline};
use libfuzzer_sys::fuzz_target;
use std::io;

fuzz_target!(|data: &[u8]| {
    let Ok(reader) = Reader::new(data) else {
        return;
    };
    let metadata = reader.metadata().clone();
    let whole = reader.collect::<Result<Vec<_>, TraceError>>();
    let again = || Reader::new(data).expect("it was read before");

    assert_eq!(text::write(again(), io::sink()).is_ok(), whole.is_ok());
    assert_eq!(perfetto::write(again(), io::sink()).is_ok(), whole.is_ok());
    assert_eq!(needs(again()).is_ok(), whole.is_ok());
    match diff(again(), again()) {
        Ok(difference) => assert!(whole.is_ok() && difference.is_empty()),
        Err(_) => assert!(whole.is_err()),
    }
    if metadata.duration_ns > 0 {
        let seen = timeline(again(), 0, metadata.duration_ns);
        assert!(seen.is_ok() || whole.is_err(), "{seen:?}");
        let middle_ns = metadata.duration_ns / 2;
        let seen = timeline(again(), middle_ns, metadata.duration_ns);
        assert!(
            seen.is_ok() || whole.is_err() || middle_ns == metadata.duration_ns,
            "{seen:?}"
        );
    }
});
