//! A trace for Perfetto (<https://ui.perfetto.dev>): TrackEvent protobuf.
//!
//! A group of tracks for the CPUs: who runs. A group for each domain: for each VCPU a track with
//! *running* and *runnable* (nothing while it is blocked), in *running* the times that the host had
//! after exits of the guest, with the reason, and a counter of its budget; for each task
//! a track with its jobs as they execute, and a mark at each missed deadline. A flow leads from the
//! wake of a VCPU to its next run.

use crate::deadlines::{Deadlines, Job};
use crate::{Exit, Kind, Metadata, Reader, Record, TraceError, task_of};
use prost::Message;
use std::io::{BufWriter, Read, Write};

/// The few of Perfetto's messages that are needed, with the field numbers of `protos/perfetto/trace`
/// (`trace_packet.proto`, `track_event/*.proto`).
mod proto {
    /// `perfetto.protos.TracePacket`.
    #[derive(Clone, PartialEq, prost::Message)]
    pub struct TracePacket {
        #[prost(uint64, optional, tag = "8")]
        pub timestamp: Option<u64>,
        #[prost(uint32, optional, tag = "10")]
        pub trusted_packet_sequence_id: Option<u32>,
        #[prost(message, optional, tag = "11")]
        pub track_event: Option<TrackEvent>,
        #[prost(uint32, optional, tag = "13")]
        pub sequence_flags: Option<u32>,
        #[prost(message, optional, tag = "60")]
        pub track_descriptor: Option<TrackDescriptor>,
    }

    /// `perfetto.protos.TrackEvent`.
    #[derive(Clone, PartialEq, prost::Message)]
    pub struct TrackEvent {
        #[prost(enumeration = "Type", optional, tag = "9")]
        pub r#type: Option<i32>,
        #[prost(uint64, optional, tag = "11")]
        pub track_uuid: Option<u64>,
        #[prost(string, optional, tag = "23")]
        pub name: Option<String>,
        #[prost(int64, optional, tag = "30")]
        pub counter_value: Option<i64>,
        #[prost(fixed64, repeated, packed = "false", tag = "47")]
        pub flow_ids: Vec<u64>,
        #[prost(fixed64, repeated, packed = "false", tag = "48")]
        pub terminating_flow_ids: Vec<u64>,
    }

    /// `perfetto.protos.TrackEvent.Type`.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, prost::Enumeration)]
    #[repr(i32)]
    pub enum Type {
        Unspecified = 0,
        SliceBegin = 1,
        SliceEnd = 2,
        Instant = 3,
        Counter = 4,
    }

    /// `perfetto.protos.TrackDescriptor`.
    #[derive(Clone, PartialEq, prost::Message)]
    pub struct TrackDescriptor {
        #[prost(uint64, optional, tag = "1")]
        pub uuid: Option<u64>,
        #[prost(string, optional, tag = "2")]
        pub name: Option<String>,
        #[prost(uint64, optional, tag = "5")]
        pub parent_uuid: Option<u64>,
        #[prost(message, optional, tag = "8")]
        pub counter: Option<CounterDescriptor>,
        #[prost(int32, optional, tag = "11")]
        pub child_ordering: Option<i32>,
        #[prost(int32, optional, tag = "12")]
        pub sibling_order_rank: Option<i32>,
    }

    /// `perfetto.protos.CounterDescriptor`.
    #[derive(Clone, PartialEq, prost::Message)]
    pub struct CounterDescriptor {
        #[prost(int32, optional, tag = "3")]
        pub unit: Option<i32>,
    }

    /// `TracePacket.SequenceFlags.SEQ_INCREMENTAL_STATE_CLEARED`.
    pub const SEQUENCE_INCREMENTAL_STATE_CLEARED: u32 = 1;
    /// `TrackDescriptor.ChildTracksOrdering.EXPLICIT`: by `sibling_order_rank`.
    pub const ORDERING_EXPLICIT: i32 = 3;
    /// `CounterDescriptor.Unit.UNIT_TIME_NS`.
    pub const UNIT_TIME_NS: i32 = 1;
}

use proto::{TracePacket, TrackDescriptor, TrackEvent, Type};

/// The key of `Trace.packet` (field 1, length-delimited), which is before every packet.
const PACKET_KEY: u8 = 1 << 3 | 2;

/// All packets are of one sequence; its id only must not be 0.
const SEQUENCE: u32 = 1;

/// Writes the whole trace. Slices that are open at its end are closed there.
///
/// # Errors
///
/// The trace is damaged, or `out` fails.
pub fn write<R: Read>(mut reader: Reader<R>, out: impl Write) -> Result<(), TraceError> {
    let metadata = reader.metadata().clone();
    let mut packets = Packets {
        out: BufWriter::new(out),
        buffer: Vec::new(),
        any: false,
    };
    let mut exporter = Exporter::new(&metadata, &mut packets)?;
    for record in reader.by_ref() {
        exporter.record(&record?)?;
    }
    exporter.finish()?;
    packets.out.flush().map_err(TraceError::Write)
}

/// The stream of packets.
struct Packets<W: Write> {
    out: BufWriter<W>,
    buffer: Vec<u8>,
    /// Whether there was any before.
    any: bool,
}

impl<W: Write> Packets<W> {
    fn write(&mut self, mut packet: TracePacket) -> Result<(), TraceError> {
        packet.trusted_packet_sequence_id = Some(SEQUENCE);
        if !self.any {
            // Nothing later refers back to earlier packets, so it is enough to say this once.
            packet.sequence_flags = Some(proto::SEQUENCE_INCREMENTAL_STATE_CLEARED);
            self.any = true;
        }
        self.buffer.clear();
        self.buffer.push(PACKET_KEY);
        let Ok(()) = packet.encode_length_delimited(&mut self.buffer) else {
            unreachable!("a Vec grows to what is encoded");
        };
        self.out.write_all(&self.buffer).map_err(TraceError::Write)
    }

    fn describe(&mut self, track: TrackDescriptor) -> Result<(), TraceError> {
        self.write(TracePacket {
            track_descriptor: Some(track),
            ..Default::default()
        })
    }

    fn event(&mut self, time_ns: i64, event: TrackEvent) -> Result<(), TraceError> {
        self.write(TracePacket {
            // A reader's times are not negative.
            timestamp: Some(time_ns as u64),
            track_event: Some(event),
            ..Default::default()
        })
    }

    fn end(&mut self, time_ns: i64, track: u64) -> Result<(), TraceError> {
        self.event(time_ns, event(Type::SliceEnd, track))
    }

    fn counter(&mut self, time_ns: i64, track: u64, value: i64) -> Result<(), TraceError> {
        self.event(
            time_ns,
            TrackEvent {
                counter_value: Some(value),
                ..event(Type::Counter, track)
            },
        )
    }
}

fn event(r#type: Type, track: u64) -> TrackEvent {
    TrackEvent {
        r#type: Some(r#type.into()),
        track_uuid: Some(track),
        ..Default::default()
    }
}

fn named(r#type: Type, track: u64, name: impl Into<String>) -> TrackEvent {
    TrackEvent {
        name: Some(name.into()),
        ..event(r#type, track)
    }
}

/// A physical CPU's track.
struct CpuTrack {
    uuid: u64,
    /// Whether a slice is open.
    open: bool,
}

/// A VCPU's tracks.
struct VcpuTrack {
    uuid: u64,
    budget_uuid: u64,
    name: String,
    /// Whether a slice is open, *running* or *runnable*.
    open: Option<VcpuState>,
    /// Why its guest was left; a slice is open within *running*.
    exit: Option<Exit>,
    /// From its wake, until it runs.
    flow: Option<u64>,
    /// The track of the task whose job executes.
    executing_uuid: Option<u64>,
}

#[derive(Clone, Copy, PartialEq)]
enum VcpuState {
    Runnable,
    Running,
}

struct DomainTracks {
    vcpus: Vec<VcpuTrack>,
    /// By task.
    tasks: Vec<u64>,
}

struct Exporter<'a, W: Write> {
    packets: &'a mut Packets<W>,
    metadata: &'a Metadata,
    cpus: Vec<CpuTrack>,
    domains: Vec<DomainTracks>,
    deadlines: Deadlines,
    flows: u64,
    time_ns: i64,
}

impl<'a, W: Write> Exporter<'a, W> {
    /// Describes all tracks.
    fn new(metadata: &'a Metadata, packets: &'a mut Packets<W>) -> Result<Self, TraceError> {
        let mut uuids = 0;
        let mut group = |packets: &mut Packets<W>, name: &str| {
            uuids += 1 << 32;
            packets.describe(TrackDescriptor {
                uuid: Some(uuids),
                name: Some(name.to_owned()),
                child_ordering: Some(proto::ORDERING_EXPLICIT),
                ..Default::default()
            })?;
            Ok::<u64, TraceError>(uuids)
        };
        let child =
            |packets: &mut Packets<W>, parent: u64, rank: &mut i32, name: String, counter| {
                *rank += 1;
                let uuid = parent + *rank as u64;
                packets.describe(TrackDescriptor {
                    uuid: Some(uuid),
                    name: Some(name),
                    parent_uuid: Some(parent),
                    sibling_order_rank: Some(*rank),
                    counter,
                    ..Default::default()
                })?;
                Ok::<u64, TraceError>(uuid)
            };

        let parent = group(packets, "CPUs")?;
        let mut rank = 0;
        let mut cpus = Vec::new();
        for cpu in 0..metadata.cpus {
            let uuid = child(packets, parent, &mut rank, format!("CPU {cpu}"), None)?;
            cpus.push(CpuTrack { uuid, open: false });
        }
        if let Some(domain) = metadata.programs_in {
            for vcpu in 0..metadata.lanes() - metadata.cpus {
                let name = format!("in {}", metadata.vcpu_name(domain, vcpu as u16));
                let uuid = child(packets, parent, &mut rank, name, None)?;
                cpus.push(CpuTrack { uuid, open: false });
            }
        }
        let mut domains = Vec::new();
        for (index, domain) in metadata.domains.iter().enumerate() {
            let parent = group(packets, &domain.name)?;
            let mut rank = 0;
            let mut vcpus = Vec::new();
            for vcpu in 0..domain.vcpus {
                let uuid = child(packets, parent, &mut rank, format!("VCPU {vcpu}"), None)?;
                let counter = proto::CounterDescriptor {
                    unit: Some(proto::UNIT_TIME_NS),
                };
                let what = if metadata.has_credits() {
                    "credits"
                } else {
                    "budget"
                };
                let name = format!("VCPU {vcpu} {what}");
                let budget_uuid = child(packets, parent, &mut rank, name, Some(counter))?;
                packets.counter(0, budget_uuid, metadata.initial_budget_ns(domain))?;
                vcpus.push(VcpuTrack {
                    uuid,
                    budget_uuid,
                    name: metadata.vcpu_name(index as u16, vcpu as u16),
                    open: None,
                    exit: None,
                    flow: None,
                    executing_uuid: None,
                });
            }
            let mut tasks = Vec::new();
            for task in &domain.tasks {
                tasks.push(child(packets, parent, &mut rank, task.name.clone(), None)?);
            }
            domains.push(DomainTracks { vcpus, tasks });
        }
        Ok(Exporter {
            packets,
            metadata,
            cpus,
            domains,
            deadlines: Deadlines::default(),
            flows: 0,
            time_ns: 0,
        })
    }

    fn record(&mut self, record: &Record) -> Result<(), TraceError> {
        self.mark_misses(record.time_ns)?;
        self.deadlines.record(self.metadata, record);
        self.time_ns = record.time_ns;
        let time_ns = record.time_ns;
        if record.kind == Kind::Schedule {
            return Ok(());
        }
        let Exporter {
            packets,
            cpus,
            domains,
            ..
        } = self;
        let DomainTracks { vcpus, tasks } = &mut domains[usize::from(record.domain)];
        let vcpu = &mut vcpus[usize::from(record.vcpu)];
        match record.kind {
            Kind::Wake => {
                // A flow begins at the slice that it leads away from.
                self.flows += 1;
                vcpu.flow = Some(self.flows);
                vcpu.enter(packets, time_ns, Some(VcpuState::Runnable))
            }
            Kind::Block => {
                // One that runs goes on to its Stop.
                match vcpu.open {
                    Some(VcpuState::Runnable) => vcpu.enter(packets, time_ns, None),
                    _ => Ok(()),
                }
            }
            Kind::Run => {
                let cpu = &mut cpus[usize::from(record.cpu)];
                cpu.leave(packets, time_ns)?;
                let mut run = named(Type::SliceBegin, cpu.uuid, vcpu.name.as_str());
                run.terminating_flow_ids.extend(vcpu.flow.take());
                packets.event(time_ns, run)?;
                cpu.open = true;
                vcpu.enter(packets, time_ns, Some(VcpuState::Running))
            }
            Kind::Stop => {
                cpus[usize::from(record.cpu)].leave(packets, time_ns)?;
                vcpu.execute(packets, time_ns, None)?;
                let preempted = record.argument != 0;
                vcpu.enter(packets, time_ns, preempted.then_some(VcpuState::Runnable))
            }
            Kind::Execute => {
                let job = Job::of(record);
                let task = &self.metadata.task(job.domain, job.task).name;
                let name = format!("{task} #{}", job.number);
                vcpu.execute(packets, time_ns, Some((tasks[job.task as usize], name)))
            }
            Kind::Complete => vcpu.execute(packets, time_ns, None),
            Kind::Replenish | Kind::Budget => {
                packets.counter(time_ns, vcpu.budget_uuid, record.argument)
            }
            Kind::Exhaust => packets.counter(time_ns, vcpu.budget_uuid, 0),
            Kind::Migrate => {
                let name = format!("to CPU {}", record.argument);
                packets.event(time_ns, named(Type::Instant, vcpu.uuid, name))
            }
            Kind::Class => {
                let name = record.class_name().unwrap_or_default();
                packets.event(time_ns, named(Type::Instant, vcpu.uuid, name))
            }
            Kind::Packet => {
                let (stream, number) = task_of(record.argument);
                let name = format!("late or lost: packet {number} of stream {stream}");
                packets.event(time_ns, named(Type::Instant, vcpu.uuid, name))
            }
            Kind::Message => {
                let (registration, number) = task_of(record.argument);
                let name = format!("late or lost: message {number} of registration {registration}");
                packets.event(time_ns, named(Type::Instant, vcpu.uuid, name))
            }
            Kind::Outage => {
                let name = "its outage ends".to_owned();
                packets.event(time_ns, named(Type::Instant, vcpu.uuid, name))
            }
            Kind::Exit => vcpu.leave_guest(packets, time_ns, Exit::of(record.argument)),
            Kind::Enter => vcpu.leave_guest(packets, time_ns, None),
            Kind::Release | Kind::Schedule | Kind::Hop | Kind::Spent => Ok(()),
        }
    }

    /// Marks the deadlines before `time_ns` that were missed.
    fn mark_misses(&mut self, time_ns: i64) -> Result<(), TraceError> {
        while let Some((deadline_ns, job)) = self.deadlines.missed_before(time_ns) {
            let track = self.domains[usize::from(job.domain)].tasks[job.task as usize];
            let name = format!("missed deadline of #{}", job.number);
            self.packets
                .event(deadline_ns, named(Type::Instant, track, name))?;
        }
        Ok(())
    }

    fn finish(mut self) -> Result<(), TraceError> {
        self.mark_misses(self.metadata.duration_ns.saturating_add(1))?;
        let end_ns = self.time_ns.max(self.metadata.duration_ns);
        for cpu in &mut self.cpus {
            cpu.leave(self.packets, end_ns)?;
        }
        for vcpu in self.domains.iter_mut().flat_map(|domain| &mut domain.vcpus) {
            vcpu.execute(self.packets, end_ns, None)?;
            vcpu.enter(self.packets, end_ns, None)?;
        }
        Ok(())
    }
}

impl CpuTrack {
    /// Nobody runs any more. Nobody may have run: a trace of a live host begins in the middle.
    fn leave(&mut self, packets: &mut Packets<impl Write>, time_ns: i64) -> Result<(), TraceError> {
        if std::mem::take(&mut self.open) {
            packets.end(time_ns, self.uuid)?;
        }
        Ok(())
    }
}

impl VcpuTrack {
    /// Goes over to a state; `None` is blocked. Only *runnable* is where a new flow begins.
    fn enter(
        &mut self,
        packets: &mut Packets<impl Write>,
        time_ns: i64,
        state: Option<VcpuState>,
    ) -> Result<(), TraceError> {
        let exit = self.exit;
        self.leave_guest(packets, time_ns, None)?;
        if self.open.is_some() {
            packets.end(time_ns, self.uuid)?;
        }
        self.open = state;
        match state {
            None => {}
            Some(VcpuState::Running) => {
                packets.event(time_ns, named(Type::SliceBegin, self.uuid, "running"))?;
            }
            Some(VcpuState::Runnable) => {
                let mut begin = named(Type::SliceBegin, self.uuid, "runnable");
                begin.flow_ids.extend(self.flow);
                packets.event(time_ns, begin)?;
            }
        }
        self.leave_guest(packets, time_ns, exit)
    }

    /// The guest was left for that reason, or was entered.
    fn leave_guest(
        &mut self,
        packets: &mut Packets<impl Write>,
        time_ns: i64,
        exit: Option<Exit>,
    ) -> Result<(), TraceError> {
        let before = std::mem::replace(&mut self.exit, exit);
        if self.open != Some(VcpuState::Running) {
            return Ok(());
        }
        if before.is_some() {
            packets.end(time_ns, self.uuid)?;
        }
        match exit {
            Some(exit) => {
                let name = format!("exit: {}", exit.name());
                packets.event(time_ns, named(Type::SliceBegin, self.uuid, name))
            }
            None => Ok(()),
        }
    }

    /// Executes a job, of the task with that track, under that name; or none.
    fn execute(
        &mut self,
        packets: &mut Packets<impl Write>,
        time_ns: i64,
        job: Option<(u64, String)>,
    ) -> Result<(), TraceError> {
        if let Some(track) = self.executing_uuid.take() {
            packets.end(time_ns, track)?;
        }
        if let Some((track, name)) = job {
            self.executing_uuid = Some(track);
            packets.event(time_ns, named(Type::SliceBegin, track, name))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample;
    use std::collections::{BTreeMap, HashSet};

    const MS: u64 = 1_000_000;

    /// `perfetto.protos.Trace`.
    #[derive(Clone, PartialEq, prost::Message)]
    struct Trace {
        #[prost(message, repeated, tag = "1")]
        packet: Vec<TracePacket>,
    }

    /// What was written of the sample: the tracks by id, and the events.
    struct Written {
        tracks: BTreeMap<u64, TrackDescriptor>,
        events: Vec<(u64, TrackEvent)>,
    }

    fn written() -> Written {
        written_of(&sample::records())
    }

    fn written_of(records: &[Record]) -> Written {
        let file = sample::file(&sample::metadata(), records);
        let mut bytes = Vec::new();
        write(sample::reader(&file), &mut bytes).expect("the trace is whole");
        let packets = Trace::decode(&bytes[..]).expect("it is protobuf").packet;
        let mut written = Written {
            tracks: BTreeMap::new(),
            events: Vec::new(),
        };
        for (index, packet) in packets.into_iter().enumerate() {
            assert_eq!(packet.trusted_packet_sequence_id, Some(SEQUENCE));
            assert_eq!(packet.sequence_flags, (index == 0).then_some(1));
            if let Some(track) = packet.track_descriptor {
                assert!(
                    written
                        .tracks
                        .insert(track.uuid.expect("an id"), track)
                        .is_none()
                );
            } else {
                let event = packet.track_event.expect("a track or an event");
                written
                    .events
                    .push((packet.timestamp.expect("a time"), event));
            }
        }
        written
    }

    impl Written {
        /// The events of the track at that path: in ms, what, and the name or value.
        fn on(&self, group: &str, name: &str) -> Vec<(u64, Type, String)> {
            let is = |track: &TrackDescriptor, name: &str| track.name.as_deref() == Some(name);
            let track = self.tracks.values().find(|track| {
                let parent = track
                    .parent_uuid
                    .and_then(|parent| self.tracks.get(&parent));
                is(track, name) && parent.is_some_and(|parent| is(parent, group))
            });
            let track = track.expect("there is such a track").uuid;
            let events = self
                .events
                .iter()
                .filter(|(_, event)| event.track_uuid == track);
            let value =
                |event: &TrackEvent| event.counter_value.map(|ns| (ns / MS as i64).to_string());
            events
                .map(|(time, event)| {
                    (
                        time / MS,
                        event.r#type(),
                        event.name.clone().or(value(event)).unwrap_or_default(),
                    )
                })
                .collect()
        }
    }

    fn slices(slices: &[(u64, u64, &str)]) -> Vec<(u64, Type, String)> {
        let both = |&(start, end, name): &(u64, u64, &str)| {
            [
                (start, Type::SliceBegin, name.to_owned()),
                (end, Type::SliceEnd, String::new()),
            ]
        };
        slices.iter().flat_map(both).collect()
    }

    #[test]
    fn each_track_has_its_slices() {
        let written = written();
        let cpu = [
            (0, 2, "control/0"),
            (2, 7, "batch/0"),
            (10, 11, "control/0"),
            (11, 16, "batch/0"),
            (20, 21, "control/0"),
        ];
        assert_eq!(written.on("CPUs", "CPU 0"), slices(&cpu));
        let control = [
            (0, 0, "runnable"),
            (0, 2, "running"),
            (2, 10, "runnable"),
            (10, 11, "running"),
            (20, 20, "runnable"),
            (20, 21, "running"),
        ];
        assert_eq!(written.on("control", "VCPU 0"), slices(&control));
        let mut task = slices(&[(0, 2, "loop #0"), (10, 11, "loop #0"), (20, 21, "loop #1")]);
        task.insert(2, (5, Type::Instant, "missed deadline of #0".into()));
        assert_eq!(written.on("control", "loop"), task);
        let budget = written.on("control", "VCPU 0 budget");
        let budget: Vec<_> = budget
            .iter()
            .map(|(time, _, value)| (*time, value.as_str()))
            .collect();
        assert_eq!(
            budget,
            [(0, "2"), (2, "0"), (10, "2"), (11, "1"), (20, "2")]
        );
    }

    #[test]
    fn exits_are_within_what_runs() {
        let written = written_of(&sample::with_exits());
        let control: Vec<_> = written.on("control", "VCPU 0");
        let begin = |time, name: &str| (time, Type::SliceBegin, name.to_owned());
        let end = |time| (time, Type::SliceEnd, String::new());
        assert_eq!(
            control[2..10],
            [
                begin(0, "running"),
                begin(1, "exit: interrupt"),
                end(2),
                end(2),
                begin(2, "runnable"),
                end(10),
                begin(10, "running"),
                begin(10, "exit: interrupt"),
            ]
        );
        let slices = control.iter().filter(|(_, what, _)| *what != Type::Instant);
        let mut depth = 0;
        for (_, what, _) in slices {
            depth += if *what == Type::SliceBegin { 1 } else { -1 };
            assert!((0..=2).contains(&depth));
        }
        assert_eq!(depth, 0);
    }

    #[test]
    fn slices_balance_and_times_do_not_go_back() {
        let Written { tracks, events } = written();
        let mut depths = BTreeMap::new();
        let mut times = BTreeMap::new();
        for (time, event) in &events {
            let track = event.track_uuid.expect("a track");
            assert!(tracks.contains_key(&track), "the track is described first");
            assert!(
                times
                    .insert(track, time)
                    .is_none_or(|before| before <= time)
            );
            let depth = depths.entry(track).or_insert(0);
            *depth += match event.r#type() {
                Type::SliceBegin => 1,
                Type::SliceEnd => -1,
                _ => 0,
            };
            assert!((0..=1).contains(depth), "track {track} at {time}");
            assert_eq!(
                event.r#type() == Type::Counter,
                tracks[&track].counter.is_some()
            );
        }
        assert!(depths.values().all(|depth| *depth == 0));
    }

    #[test]
    fn a_flow_leads_from_each_wake_to_the_next_run() {
        let Written { tracks, events } = written();
        let mut begun = HashSet::new();
        let mut flows = Vec::new();
        for (time, event) in &events {
            for flow in &event.flow_ids {
                assert_eq!(event.name.as_deref(), Some("runnable"));
                assert!(begun.insert(*flow), "flow {flow} begins once");
            }
            for flow in &event.terminating_flow_ids {
                assert!(begun.remove(flow), "flow {flow} has begun");
                let track = &tracks[&event.track_uuid.expect("a track")];
                assert_eq!(track.name.as_deref(), Some("CPU 0"));
                flows.push((time / MS, event.name.as_deref().expect("a name")));
            }
        }
        assert_eq!(flows, [(0, "control/0"), (2, "batch/0"), (20, "control/0")]);
        assert!(begun.is_empty());
    }

    #[test]
    fn a_trace_that_begins_in_the_middle_is_balanced_too() {
        let records = sample::records();
        for from in 0..records.len() {
            let file = sample::file(&sample::metadata(), &records[from..]);
            let mut bytes = Vec::new();
            write(sample::reader(&file), &mut bytes).expect("the trace is whole");
            let packets = Trace::decode(&bytes[..]).expect("it is protobuf").packet;
            let of = |r#type: Type| {
                let events = packets
                    .iter()
                    .filter_map(|packet| packet.track_event.as_ref());
                events.filter(|event| event.r#type() == r#type).count()
            };
            assert_eq!(
                of(Type::SliceBegin),
                of(Type::SliceEnd),
                "from record {from}"
            );
        }
    }
}
