//! The daemon's metrics in Prometheus's text format, over HTTP.

use std::fmt;
use std::io::{self, BufRead as _, BufReader, Read, Write};
use std::net::TcpListener;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeLabelSet, EncodeMetric, text::encode};
use prometheus_client::registry::Registry;

use crate::requests::serve_tcp;

/// Answers `GET /metrics` with the values of `collector`, each name behind `prefix`.
///
/// # Errors
///
/// If the thread cannot be started.
pub fn serve(
    listener: TcpListener,
    prefix: &str,
    collector: impl Collector + 'static,
) -> io::Result<()> {
    let mut registry = Registry::with_prefix(prefix);
    registry.register_collector(Box::new(collector));
    serve_tcp("metrics", listener, move |connection| {
        answer(connection, &registry)
    })
}

/// Answers one HTTP request, with the part of HTTP that a scrape needs.
///
/// # Errors
///
/// Those of the stream, and if the request is no text.
pub fn answer(mut stream: impl Read + Write, registry: &Registry) -> io::Result<()> {
    const REQUEST_BYTES_MAX: u64 = 16 << 10;
    let mut lines = BufReader::new((&mut stream).take(REQUEST_BYTES_MAX)).lines();
    let request = lines.next().transpose()?.unwrap_or_default();
    while lines
        .next()
        .transpose()?
        .is_some_and(|line| !line.is_empty())
    {}
    let mut words = request.split_whitespace();
    let (status, body) = match (words.next(), words.next()) {
        (Some("GET"), Some("/metrics")) => {
            let mut text = String::new();
            encode(&mut text, registry).map_err(io::Error::other)?;
            ("200 OK", text)
        }
        (Some("GET"), _) => ("404 Not Found", "only /metrics is here\n".into()),
        _ => ("405 Method Not Allowed", "only GET is answered\n".into()),
    };
    write!(
        stream,
        "HTTP/1.1 {status}\r\nContent-Type: application/openmetrics-text; version=1.0.0; charset=utf-8\r\n\
         Content-Length: {}\r\nConnection: close\r\n\r\n{body}",
        body.len()
    )
}

/// One value under a name.
///
/// # Errors
///
/// Those of the encoder.
pub fn metric(
    encoder: &mut DescriptorEncoder<'_>,
    name: &str,
    help: &str,
    metric: &impl EncodeMetric,
) -> fmt::Result {
    let encoder = encoder.encode_descriptor(name, help, None, metric.metric_type())?;
    metric.encode(encoder)
}

/// Several values under one name, told apart by their labels. A family without values is left out.
///
/// # Errors
///
/// Those of the encoder.
pub fn family<L: EncodeLabelSet, M: EncodeMetric>(
    encoder: &mut DescriptorEncoder<'_>,
    name: &str,
    help: &str,
    metrics: impl Iterator<Item = (L, M)>,
) -> fmt::Result {
    let mut metrics = metrics.peekable();
    let Some((_, first)) = metrics.peek() else {
        return Ok(());
    };
    let mut family = encoder.encode_descriptor(name, help, None, first.metric_type())?;
    for (labels, metric) in metrics {
        metric.encode(family.encode_family(&labels)?)?;
    }
    Ok(())
}

/// The text that a scrape would receive, for tests.
///
/// # Panics
///
/// If it cannot be written down.
pub fn text(prefix: &str, collector: impl Collector + 'static) -> String {
    let mut registry = Registry::with_prefix(prefix);
    registry.register_collector(Box::new(collector));
    let mut text = String::new();
    encode(&mut text, &registry).expect("what is collected can be written down");
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use prometheus_client::metrics::gauge::ConstGauge;

    /// A request to read, and the answer as it is written.
    struct Pipe<'q> {
        question: &'q [u8],
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

    #[derive(Debug)]
    struct Two;

    impl Collector for Two {
        fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
            metric(&mut encoder, "loop", "A look", &ConstGauge::new(0.5))?;
            let each = [("a", 1), ("b", 2)];
            let each = each.map(|(name, value)| ([("vm", name)], ConstGauge::new(value)));
            family(&mut encoder, "class", "Agreed", each.into_iter())?;
            let none = std::iter::empty::<([(&str, &str); 1], ConstGauge<i64>)>();
            family(&mut encoder, "absent", "Nobody", none)
        }
    }

    fn asked(question: &str) -> String {
        let mut registry = Registry::with_prefix("laxity");
        registry.register_collector(Box::new(Two));
        let mut pipe = Pipe {
            question: question.as_bytes(),
            answer: Vec::new(),
        };
        answer(&mut pipe, &registry).unwrap();
        String::from_utf8(pipe.answer).unwrap()
    }

    #[test]
    fn a_scrape_is_answered_and_nothing_else() {
        let said = asked("GET /metrics HTTP/1.1\r\nHost: a\r\n\r\n");
        let (head, body) = said.split_once("\r\n\r\n").unwrap();
        assert!(head.starts_with("HTTP/1.1 200 OK\r\n"));
        assert!(head.contains(&format!("Content-Length: {}\r\n", body.len())));
        assert_eq!(body, text("laxity", Two));
        assert!(body.contains("laxity_loop 0.5\n"), "{body}");
        assert!(body.contains("laxity_class{vm=\"b\"} 2\n"), "{body}");
        assert!(!body.contains("absent"), "{body}");
        assert!(body.ends_with("# EOF\n"));
        assert!(asked("GET / HTTP/1.1\r\n\r\n").starts_with("HTTP/1.1 404 "));
        assert!(asked("POST /metrics HTTP/1.1\r\n\r\n").starts_with("HTTP/1.1 405 "));
        assert!(asked("").starts_with("HTTP/1.1 405 "));
    }
}
