//! A domain's `workload`: what it does besides its tasks.

use laxity_config::{Field, Flag, Measured, Problems, Quantity, Span, Whole, suggest};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::network::NetworkCosts;
use crate::cost::{Cost, CostChoice, cost};
use crate::quantities::{BitRate, Positive, Size};

const THREADS: i64 = 4;
const FRAME_BYTES: i64 = 1514;
const THREADS_MAX: i64 = 4096;

/// What a domain does besides its tasks and an endless loop. A domain that has one has no tasks.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum Workload {
    /// Computes, with pauses, on every VCPU.
    Bursts {
        /// The CPU time of each computation; at least 1.
        run_ns: i64,
        /// The time from the end of a computation to the start of the next; at least 1.
        idle_ns: i64,
    },
    /// Drives the network cards that no other domain has, and runs netback and the bridge.
    Driver,
    /// Receives voice, works on each packet and sends it on.
    MediaServer(Server),
    /// Sets calls up and tears them down.
    SignallingServer(Server),
    /// Answers the signalling server's question about every call.
    CallControl(Server),
    /// Sends packets that nobody answers.
    Sender {
        /// The rate at which it sends; at least 1000.
        rate_bit_s: i64,
        /// The size of a packet, from its Ethernet header on; 64 to 9014.
        frame_bytes: u32,
    },
}

/// A pool of threads that take packets from their sockets.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct Server {
    /// The number of threads; at least 1. At most as many as VCPUs work at a time.
    pub threads: u32,
    /// The CPU time for each packet, its reception and sending not counted.
    pub work: Cost,
    /// `work`, if the file gives it. Real servers are not told to work where it is missing.
    pub own_work: Option<Cost>,
    /// Whether a media server transcodes voice, which is part of `work`.
    pub transcode: bool,
    /// The CPU time for each packet of every second stream, if it is not `work`: those that come from the other party
    /// of each call.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("type" = "object"))]
    pub work_back: Option<Cost>,
    /// The keys of what a media server does with voice besides, which is part of `work`. Real servers do none of it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub processing: Vec<String>,
}

/// The codec of a call's other party, where the media server transcodes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
pub(crate) enum PartyCodec {
    /// 64 kbit/s, wide-band.
    #[serde(rename = "G.722")]
    G722,
    /// The codec of WebRTC (RFC 6716).
    Opus,
    /// 8 kbit/s.
    #[serde(rename = "G.729")]
    G729,
}

/// What a guest does besides its tasks.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(
    default,
    deny_unknown_fields,
    rename_all = "kebab-case",
    expecting = "a table, such as { kind = \"cpu-bound\" }"
)]
#[schemars(extend("required" = ["kind"]))]
pub(crate) struct WorkloadTable {
    /// The kind of workload.
    pub kind: Field<WorkloadKind>,
    /// Cpu-bound: the domain computes for this long, and then pauses for `idle`. By default it never pauses.
    pub run: Field<Positive>,
    /// Cpu-bound: the pause.
    pub idle: Field<Positive>,
    /// Servers: the number of threads that take packets.
    #[schemars(extend("default" = THREADS))]
    pub threads: Field<Whole<1, THREADS_MAX>>,
    /// Servers: the CPU time for each packet, without reception and sending. By default that of the network's profile.
    pub work: Field<CostChoice>,
    /// Sender: the rate at which it sends.
    pub rate: Field<Measured<BitRate>>,
    /// Sender: the size of its packets, from the Ethernet header on; 64 to 9014 bytes.
    #[schemars(extend("default" = Size::text(FRAME_BYTES)))]
    pub size: Field<Measured<Size>>,
    /// Media server: packets are decoded and encoded again, at the cost in the network's profile.
    #[schemars(extend("default" = false))]
    pub transcode: Field<Flag>,
    /// Media server: the codec of the other party of each call, while the first one has that of `[calls]`. Packets are
    /// decoded and encoded again at the costs in `[host.network]`; every second stream comes from the other party.
    pub transcode_to: Field<PartyCodec>,
    /// Media server: packets come and go as SRTP, at the cost in `[host.network]`.
    #[schemars(extend("default" = false))]
    pub srtp: Field<Flag>,
    /// Media server: packets are decoded, mixed for a conference and encoded, at the costs in `[host.network]`.
    #[schemars(extend("default" = false))]
    pub conference: Field<Flag>,
    /// Media server: packets are recorded, at the cost in `[host.network]`.
    #[schemars(extend("default" = false))]
    pub record: Field<Flag>,
}

/// The kinds of workload.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum WorkloadKind {
    /// A loop on every VCPU, when no task is ready. It never ends, or pauses now and then.
    CpuBound,
    /// The driver domain: it has the network cards, netback and the bridge.
    Driver,
    /// A pool of threads that receive voice, work on each packet and send it on.
    MediaServer,
    /// A pool of threads that set calls up and tear them down.
    SignallingServer,
    /// A pool of threads that the signalling server asks about every call.
    CallControl,
    /// A thread that sends packets which nobody answers.
    Sender,
}

impl WorkloadKind {
    pub fn name(self) -> &'static str {
        match self {
            WorkloadKind::CpuBound => "cpu-bound",
            WorkloadKind::Driver => "driver",
            WorkloadKind::MediaServer => "media-server",
            WorkloadKind::SignallingServer => "signalling-server",
            WorkloadKind::CallControl => "call-control",
            WorkloadKind::Sender => "sender",
        }
    }
}

impl WorkloadTable {
    /// Whether it is a loop that never pauses.
    pub fn is_endless(&self) -> bool {
        self.kind.value == Some(WorkloadKind::CpuBound) && self.run.is_absent()
    }

    fn transcodes(&self) -> bool {
        self.transcode.value.is_some_and(|flag| flag.0)
    }
}

/// What the domain does besides its tasks and an endless loop. `costs` are those of the host's network. `None` if it
/// does nothing else, or something is wrong.
pub(crate) fn resolve(
    workload: &WorkloadTable,
    span: Span,
    costs: &NetworkCosts,
    problems: &Problems,
) -> Option<Workload> {
    if workload.kind.is_missing("kind", span, problems) {
        problems.report(
            span,
            "`workload` has no `kind`",
            "write workload = { kind = \"cpu-bound\" }",
        );
    }
    let kind = workload.kind.value?;
    keys_fit(workload, kind, problems);
    match kind {
        WorkloadKind::CpuBound => bursts(workload, span, problems),
        WorkloadKind::Driver => Some(Workload::Driver),
        WorkloadKind::MediaServer => Some(Workload::MediaServer(media_server(
            workload, costs, problems,
        ))),
        WorkloadKind::SignallingServer => {
            let server = server(workload, costs.signalling, problems);
            Some(Workload::SignallingServer(server))
        }
        WorkloadKind::CallControl => {
            let server = server(workload, costs.signalling, problems);
            Some(Workload::CallControl(server))
        }
        WorkloadKind::Sender => sender(workload, span, problems),
    }
}

/// A media server, whose work on a packet is the sum of all that it does.
fn media_server(workload: &WorkloadTable, costs: &NetworkCosts, problems: &Problems) -> Server {
    let flag = |field: &Field<Flag>| {
        field
            .given()
            .filter(|(flag, _)| flag.0)
            .map(|(_, span)| span)
    };
    let mut works = [costs.relay, costs.relay];
    let mut processing = Vec::new();
    let mut does = |key: &str, span: Span, steps: [&[(&str, Cost)]; 2]| {
        processing.push(key.to_owned());
        let mut free = Vec::new();
        for (work, steps) in works.iter_mut().zip(steps) {
            *work = steps.iter().fold(*work, |work, (_, cost)| work.plus(*cost));
            free.extend(
                steps
                    .iter()
                    .filter(|(_, cost)| cost.is_free())
                    .map(|(step, _)| *step),
            );
        }
        free.sort_unstable();
        free.dedup();
        if let Some(first) = free.first() {
            let steps = suggest::list(free.iter().map(|step| format!("`{step}`")), "and");
            let message = format!("`{key}` takes CPU time, and `[host.network]` lacks {steps}");
            let help =
                format!("write {first} = \"3 us\" there, say; `laxity calibrate` measures it");
            problems.report(span, message, help);
        }
    };
    let (decode, encode) = (
        ("decode-g711", costs.decode_g711),
        ("encode-g711", costs.encode_g711),
    );
    if let Some((codec, span)) = workload.transcode_to.given() {
        let (decode_other, encode_other) = match codec {
            PartyCodec::G722 => (
                ("decode-g722", costs.decode_g722),
                ("encode-g722", costs.encode_g722),
            ),
            PartyCodec::Opus => (
                ("decode-opus", costs.decode_opus),
                ("encode-opus", costs.encode_opus),
            ),
            PartyCodec::G729 => (
                ("decode-g729", costs.decode_g729),
                ("encode-g729", costs.encode_g729),
            ),
        };
        does(
            "transcode-to",
            span,
            [&[decode, encode_other], &[decode_other, encode]],
        );
    }
    if let Some(span) = flag(&workload.conference) {
        let steps = [decode, ("mix", costs.mix), encode];
        does("conference", span, [&steps, &steps]);
    }
    if let Some(span) = flag(&workload.srtp) {
        let steps = [("srtp", costs.srtp)];
        does("srtp", span, [&steps, &steps]);
    }
    if let Some(span) = flag(&workload.record) {
        let steps = [("record", costs.record)];
        does("record", span, [&steps, &steps]);
    }
    if workload.transcodes() {
        works = works.map(|work| work.plus(costs.transcode));
    }
    let [work, work_back] = works;
    let server = server(workload, work, problems);
    Server {
        work_back: (server.own_work.is_none() && work_back != work).then_some(work_back),
        processing,
        ..server
    }
}

/// `work` is the cost of a packet's work unless the domain says otherwise.
fn server(workload: &WorkloadTable, work: Cost, problems: &Problems) -> Server {
    let own_work = (!workload.work.is_absent()).then(|| cost(&workload.work, problems));
    Server {
        threads: workload.threads.or(THREADS) as u32,
        work: own_work.unwrap_or(work),
        own_work,
        transcode: workload.transcodes(),
        work_back: None,
        processing: Vec::new(),
    }
}

/// Reports keys that have no effect on the kind of workload.
fn keys_fit(workload: &WorkloadTable, kind: WorkloadKind, problems: &Problems) {
    use WorkloadKind::{CallControl, CpuBound, MediaServer, Sender, SignallingServer};
    let servers = &[MediaServer, SignallingServer, CallControl][..];
    let keys = [
        ("run", workload.run.span, &[CpuBound][..]),
        ("idle", workload.idle.span, &[CpuBound]),
        ("threads", workload.threads.span, servers),
        ("work", workload.work.span, servers),
        ("transcode", workload.transcode.span, &[MediaServer]),
        ("transcode-to", workload.transcode_to.span, &[MediaServer]),
        ("srtp", workload.srtp.span, &[MediaServer]),
        ("conference", workload.conference.span, &[MediaServer]),
        ("record", workload.record.span, &[MediaServer]),
        ("rate", workload.rate.span, &[Sender]),
        ("size", workload.size.span, &[Sender]),
    ];
    for (key, span, kinds) in keys {
        if let Some(span) = span
            && !kinds.contains(&kind)
        {
            let kinds = suggest::list(kinds.iter().map(|kind| format!("`{}`", kind.name())), "and");
            problems.report(
                span,
                format!("`{key}` has no effect on the workload `{}`", kind.name()),
                format!("leave it out; it belongs to {kinds}"),
            );
        }
    }
    let flag = |field: &Field<Flag>| field.value.is_some_and(|flag| flag.0);
    let does = [
        ("transcode", flag(&workload.transcode)),
        ("transcode-to", workload.transcode_to.value.is_some()),
        ("conference", flag(&workload.conference)),
        ("srtp", flag(&workload.srtp)),
        ("record", flag(&workload.record)),
    ];
    let done = |among: usize| does[..among].iter().filter(|(_, is_done)| *is_done);
    if let (Some((key, _)), Some(span)) = (done(does.len()).next(), workload.work.span) {
        let message = format!("`work` and `{key}` both set the CPU time for a packet");
        problems.report(span, message, "keep one of them");
    }
    // The first three each say what becomes of the voice in a packet.
    let mut codings = done(3);
    if let (Some((one, _)), Some((other, _))) = (codings.next(), codings.next()) {
        let spans = [workload.conference.span, workload.transcode_to.span];
        if let Some(span) = spans.into_iter().flatten().next() {
            let message = format!("`{one}` and `{other}` both decode and encode a packet");
            problems.report(span, message, "keep one of them");
        }
    }
}

fn sender(workload: &WorkloadTable, span: Span, problems: &Problems) -> Option<Workload> {
    const FRAME_BYTES_MAX: i64 = 9014;
    if workload.rate.is_missing("rate", span, problems) {
        let help = "write rate = \"800 Mbit/s\", say";
        problems.report(span, "a sender has no `rate`", help);
    }
    let bytes = workload.size.value.map_or(FRAME_BYTES, |size| size.0.bytes);
    if let (true, Some(span)) = (bytes > FRAME_BYTES_MAX, workload.size.span) {
        let message = format!("packets of {bytes} bytes are larger than any frame");
        problems.report(
            span,
            message,
            "write size = \"1514 B\", say; at most 9014 B",
        );
    }
    Some(Workload::Sender {
        rate_bit_s: workload.rate.value?.0.bit_s,
        frame_bytes: bytes as u32,
    })
}

fn bursts(workload: &WorkloadTable, span: Span, problems: &Problems) -> Option<Workload> {
    let keys = [("run", &workload.run), ("idle", &workload.idle)];
    for [(there, given), (missing, other)] in [keys, [keys[1], keys[0]]] {
        if !given.is_absent() && other.is_missing(missing, span, problems) {
            problems.report(
                span,
                format!("`workload` has `{there}` but no `{missing}`"),
                "write both, such as run = \"50 ms\" and idle = \"1 ms\", or neither",
            );
        }
    }
    Some(Workload::Bursts {
        run_ns: workload.run.value?.ns,
        idle_ns: workload.idle.value?.ns,
    })
}
