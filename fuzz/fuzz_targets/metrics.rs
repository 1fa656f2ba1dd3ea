//! The daemons' HTTP for Prometheus: whatever is asked, there is no answer or one with a status, and metrics are given
//! only to `GET /metrics`.
#![no_main]

use std::io::{self, Read, Write};

use laxity_daemon::metrics::answer;
use libfuzzer_sys::fuzz_target;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::registry::Registry;

struct Pipe<'d> {
    question: &'d [u8],
    answer: Vec<u8>,
}

impl Read for Pipe<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.question.read(buffer)
    }
}

impl Write for Pipe<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.answer.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fuzz_target!(|data: &[u8]| {
    let mut registry = Registry::with_prefix("laxity");
    registry.register("fuzzed", "Counts nothing", Counter::<u64>::default());
    let mut pipe = Pipe {
        question: data,
        answer: Vec::new(),
    };
    if answer(&mut pipe, &registry).is_err() {
        assert!(pipe.answer.is_empty());
        return;
    }
    let text = String::from_utf8(pipe.answer).expect("answers are text");
    assert!(text.starts_with("HTTP/1.1 "), "{text}");
    let is_given = text.contains("laxity_fuzzed");
    assert_eq!(is_given, text.starts_with("HTTP/1.1 200 "), "{text}");
    if is_given {
        let line = data
            .split(|&octet| octet == b'\n')
            .next()
            .unwrap_or_default();
        let question = String::from_utf8_lossy(line);
        let words: Vec<_> = question.split_whitespace().take(2).collect();
        assert_eq!(words, ["GET", "/metrics"]);
    }
});
