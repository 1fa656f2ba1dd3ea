//! Reports as tables.

use crate::{
    calls::CallsReport, distribution::Quantiles, load::LoadReport, machine::Machine,
    relay::RelayReport, session::SessionReport, sink::SinkReport,
};
use schemars::JsonSchema;
use serde::Serialize;
use std::fmt::{self, Display, Formatter};

/// The measurements of one command; parts that did not run are left out.
#[derive(Debug, Clone, Default, PartialEq, Serialize, JsonSchema)]
pub struct Report {
    /// The calls that carried the load.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub calls: Option<CallsReport>,
    /// The load and its own lateness.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub load: Option<LoadReport>,
    /// The media server.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub relay: Option<RelayReport>,
    /// The received streams.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sink: Option<SinkReport>,
    /// The machine's load during the measurement.
    pub machine: Machine,
}

impl Display for Report {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        if let Some(calls) = &self.calls {
            write_calls(f, calls)?;
        }
        if let Some(load) = &self.load {
            write_load(f, load)?;
        }
        if let Some(relay) = &self.relay {
            write_relay(f, relay)?;
        }
        if let Some(sink) = &self.sink {
            write_sink(f, sink)?;
        }
        let Machine {
            cpus,
            cpus_busy,
            cpus_own,
        } = self.machine;
        writeln!(f, "machine")?;
        row(
            f,
            "CPUs busy",
            format_args!("{cpus_busy:.2} of {cpus}; {cpus_own:.2} with this process"),
        )
    }
}

fn write_calls(f: &mut Formatter<'_>, calls: &CallsReport) -> fmt::Result {
    writeln!(f, "calls")?;
    row(f, "calls", calls.calls)?;
    row(f, "streams at once", calls.streams_most)?;
    times(f, "set up within", calls.setup)?;
    if let Some(error) = &calls.error {
        row(
            f,
            "without a port",
            format_args!("{}: {error}", calls.refused),
        )?;
    }
    Ok(())
}

fn write_load(f: &mut Formatter<'_>, load: &LoadReport) -> fmt::Result {
    writeln!(f, "load")?;
    row(f, "streams", load.streams)?;
    row(
        f,
        "packets sent",
        format_args!("{} of {}", load.sent, load.due),
    )?;
    if let Some(error) = &load.error {
        row(f, "not sent", format_args!("{}: {error}", load.failed))?;
    }
    row(f, "lasted", Time(load.measured_duration_ns as f64))?;
    priority(f, load.real_time)?;
    times(f, "wake-ups late by", load.wake_up_late)?;
    times(f, "packets late by", load.packet_late)
}

fn write_relay(f: &mut Formatter<'_>, relay: &RelayReport) -> fmt::Result {
    writeln!(f, "relay")?;
    if relay.calls > 0 {
        row(f, "calls", relay.calls)?;
    }
    if relay.expired + relay.refused > 0 {
        row(f, "calls expired", relay.expired)?;
        row(f, "orders refused", relay.refused)?;
    }
    row(f, "packets received", relay.received)?;
    row(f, "sent on", relay.forwarded)?;
    row(f, "dropped before it", relay.dropped)?;
    row(f, "not sent on", relay.failed)?;
    row(f, "not G.711", relay.invalid.total())?;
    let per_packet_ns = relay.cpu_ns.checked_div(relay.received as i64).unwrap_or(0);
    row(f, "CPU a packet", Time(per_packet_ns as f64))
}

fn write_sink(f: &mut Formatter<'_>, sink: &SinkReport) -> fmt::Result {
    let session: &SessionReport = &sink.session;
    let counts = &session.counts;
    writeln!(f, "sink")?;
    row(f, "streams", session.streams)?;
    if session.dead_streams > 0 {
        row(f, "dead streams", session.dead_streams)?;
    }
    row(
        f,
        "packets received",
        format_args!("{} of {}", counts.received, counts.expected),
    )?;
    row(
        f,
        "lost",
        format_args!("{} ({:.3} %)", counts.lost, session.loss_percent),
    )?;
    if counts.lost > 0 {
        let (bursts, longest) = (counts.loss_bursts, counts.loss_burst_max);
        let mean = session.loss_burst_mean;
        row(
            f,
            "in bursts",
            format_args!("{bursts}, of {mean:.1} packets on average, {longest} at most"),
        )?;
    }
    row(f, "dropped by the sink", sink.dropped)?;
    row(f, "duplicates", counts.duplicates)?;
    row(f, "reordered", counts.reordered)?;
    let late_after = Time(session.playout_ns as f64);
    row(
        f,
        "late",
        format_args!("{} (by more than {late_after})", counts.late),
    )?;
    if session.mistimed > 0 {
        row(f, "mistimed", session.mistimed)?;
    }
    if session.misdirected > 0 {
        row(f, "at another's port", session.misdirected)?;
    }
    let others = session.invalid.total() + session.foreign + counts.stray;
    if others > 0 {
        let (invalid, foreign, stray) = (session.invalid.total(), session.foreign, counts.stray);
        row(
            f,
            "others",
            format_args!("{invalid} not G.711, {foreign} not of the load, {stray} misnumbered"),
        )?;
    }
    times(f, "delay", session.delay)?;
    times(f, "jitter of streams", session.jitter)?;
    if let Some(worst) = &session.worst_stream {
        let (stream, lost) = (worst.stream, worst.counts.lost);
        match worst.delay {
            None => row(f, "worst stream", format_args!("{stream}: dead"))?,
            Some(delay) => {
                let p99 = Time(delay.p99_ns as f64);
                let text = format_args!("{stream}: {lost} lost, delay p99 {p99}");
                row(f, "worst stream", text)?;
            }
        }
    }
    priority(f, sink.real_time)?;
    times(f, "fetched late by", sink.fetched_late)
}

fn priority(f: &mut Formatter<'_>, real_time: bool) -> fmt::Result {
    let priority = if real_time {
        "real-time (SCHED_FIFO)"
    } else {
        "normal: real-time is not allowed"
    };
    row(f, "priority", priority)
}

fn row(f: &mut Formatter<'_>, name: &str, value: impl Display) -> fmt::Result {
    writeln!(f, "  {name:<20}{value}")
}

fn times(f: &mut Formatter<'_>, name: &str, quantiles: Option<Quantiles>) -> fmt::Result {
    let Some(quantiles) = quantiles else {
        return row(f, name, "(nothing)");
    };
    let time = |ns: u64| Time(ns as f64).to_string();
    let (p50, p99) = (time(quantiles.p50_ns), time(quantiles.p99_ns));
    let (p999, max) = (time(quantiles.p999_ns), time(quantiles.max_ns));
    row(
        f,
        name,
        format_args!("p50 {p50:>9}   p99 {p99:>9}   p99.9 {p999:>9}   max {max:>9}"),
    )
}

/// A measured time, printed with a meaningful number of digits.
struct Time(f64);

impl Display for Time {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self.0 {
            ns if ns < 1e6 => write!(f, "{:.1} us", ns / 1e3),
            ns if ns < 1e9 => write!(f, "{:.2} ms", ns / 1e6),
            ns => write!(f, "{:.2} s", ns / 1e9),
        }
    }
}
