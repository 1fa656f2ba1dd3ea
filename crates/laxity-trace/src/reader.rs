//! Reading a trace file, a piece at a time.

use crate::writer::{MAGIC, METADATA_BYTES_MAX, VERSION};
use crate::{Exit, Kind, Metadata, NONE, Record, TraceError, hop_of, spent_of, task_of};
use std::io::{self, Read};

/// Bytes that are read at once; whole records.
const CHUNK_BYTES: usize = 16_384 * Record::BYTES;

/// The records of a trace, in order, after its metadata. Everything that a record names is in the
/// metadata, or an error comes in its place. After an error nothing comes.
#[derive(Debug)]
pub struct Reader<R> {
    input: R,
    metadata: Metadata,
    /// Number of VCPUs and of tasks, by domain: `metadata` in the form in which each record asks.
    sizes: Vec<(u16, u32)>,
    /// The number of CPUs that records may name.
    lanes: u32,
    chunk: Vec<u8>,
    /// Place of the next record in `chunk`.
    position: usize,
    /// Number of the next record in the trace.
    index: u64,
    /// Time of the last record.
    time_ns: i64,
    ended: bool,
}

impl<R: Read> Reader<R> {
    /// Reads the header and the metadata. `input` need not be buffered; a `&[u8]` will do.
    ///
    /// # Errors
    ///
    /// The input cannot be read, is not a trace, or its header is damaged.
    pub fn new(mut input: R) -> Result<Self, TraceError> {
        let mut header = Vec::with_capacity(16);
        input.by_ref().take(16).read_to_end(&mut header)?;
        if header.len() < MAGIC.len() && MAGIC.starts_with(&header) && !header.is_empty() {
            return Err(TraceError::HeaderTruncated);
        }
        if !header.starts_with(&MAGIC) {
            return Err(TraceError::Magic);
        }
        let Some([_, _, version, metadata_bytes]) = header.as_chunks::<4>().0.first_chunk() else {
            return Err(TraceError::HeaderTruncated);
        };
        let version = u32::from_le_bytes(*version);
        if version != VERSION {
            return Err(TraceError::Version { version });
        }
        let metadata_bytes = u32::from_le_bytes(*metadata_bytes);
        if metadata_bytes as usize >= METADATA_BYTES_MAX {
            let reason = format!("it has {metadata_bytes} bytes, and less than 256 MiB are read");
            return Err(TraceError::Metadata { reason });
        }
        let mut metadata = Vec::new();
        input
            .by_ref()
            .take(metadata_bytes.into())
            .read_to_end(&mut metadata)?;
        if metadata.len() < metadata_bytes as usize {
            return Err(TraceError::HeaderTruncated);
        }
        let metadata: Metadata = serde_json::from_slice(&metadata)?;
        let sizes = metadata
            .sizes()
            .map_err(|reason| TraceError::Metadata { reason })?;
        Ok(Reader {
            input,
            lanes: metadata.lanes(),
            metadata,
            sizes,
            chunk: Vec::with_capacity(CHUNK_BYTES),
            position: 0,
            index: 0,
            time_ns: 0,
            ended: false,
        })
    }

    /// The run that the trace is of.
    pub fn metadata(&self) -> &Metadata {
        &self.metadata
    }

    /// The next record, `None` at the end.
    fn read(&mut self) -> Result<Option<Record>, TraceError> {
        if self.position == self.chunk.len() {
            self.fill()?;
        }
        let rest = &self.chunk[self.position..];
        let Some(bytes) = rest.first_chunk::<{ Record::BYTES }>() else {
            return match rest.len() {
                0 => Ok(None),
                bytes => Err(TraceError::Truncated {
                    index: self.index,
                    bytes,
                }),
            };
        };
        let record = Record::from_bytes(bytes).ok_or(TraceError::Kind {
            index: self.index,
            kind: bytes[22],
            reserved: bytes[23],
        })?;
        if record.time_ns < self.time_ns {
            return Err(TraceError::Time {
                index: self.index,
                before_ns: self.time_ns,
                time_ns: record.time_ns,
            });
        }
        self.check_names(&record)?;
        self.time_ns = record.time_ns;
        self.position += Record::BYTES;
        self.index += 1;
        Ok(Some(record))
    }

    fn fill(&mut self) -> io::Result<()> {
        self.chunk.clear();
        self.position = 0;
        self.input
            .by_ref()
            .take(CHUNK_BYTES as u64)
            .read_to_end(&mut self.chunk)?;
        Ok(())
    }

    /// Whether the metadata has all that `record` names, and `record` names all that its kind needs.
    fn check_names(&self, record: &Record) -> Result<(), TraceError> {
        let unknown = |what, number: i64| {
            Err(TraceError::Unknown {
                index: self.index,
                kind: record.kind.name(),
                what,
                number,
            })
        };
        let needs_cpu = matches!(record.kind, Kind::Run | Kind::Stop | Kind::Schedule);
        if u32::from(record.cpu) >= self.lanes && (needs_cpu || record.cpu != NONE) {
            return unknown("CPU", record.cpu.into());
        }
        if record.kind == Kind::Schedule && record.domain == NONE && record.vcpu == NONE {
            return Ok(());
        }
        let Some(&(vcpus, tasks)) = self.sizes.get(usize::from(record.domain)) else {
            return unknown("domain", record.domain.into());
        };
        if record.vcpu >= vcpus {
            return unknown("VCPU", record.vcpu.into());
        }
        match record.kind {
            kind if kind.is_of_job() && task_of(record.argument).0 >= tasks => {
                unknown("task", task_of(record.argument).0.into())
            }
            Kind::Migrate if !(0..i64::from(self.metadata.cpus)).contains(&record.argument) => {
                unknown("CPU", record.argument)
            }
            Kind::Class if record.class_name().is_none() => unknown("class", record.argument),
            Kind::Hop if hop_of(record.argument).is_none() => unknown("place", record.argument),
            Kind::Spent if spent_of(record.argument).is_none() => {
                unknown("expense", record.argument)
            }
            Kind::Exit if Exit::of(record.argument).is_none() => unknown("reason", record.argument),
            _ => Ok(()),
        }
    }
}

impl<R: Read> Iterator for Reader<R> {
    type Item = Result<Record, TraceError>;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        if self.ended {
            return None;
        }
        let next = self.read();
        self.ended = !matches!(next, Ok(Some(_)));
        next.transpose()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{DomainMetadata, TaskMetadata, job, sample};
    use proptest::prelude::*;

    /// What reading the file to its end says.
    fn read_all(file: &[u8]) -> Result<Vec<Record>, TraceError> {
        Reader::new(file)?.collect()
    }

    fn error_of(file: &[u8]) -> String {
        read_all(file).expect_err("the file is damaged").to_string()
    }

    #[test]
    fn the_sample_comes_back() {
        let file = sample::file(&sample::metadata(), &sample::records());
        assert_eq!(sample::reader(&file).metadata(), &sample::metadata());
        assert_eq!(
            read_all(&file).expect("the file is whole"),
            sample::records()
        );
    }

    #[test]
    fn a_trace_of_several_chunks_comes_back() {
        let records = vec![sample::records()[0]; 2 * CHUNK_BYTES / Record::BYTES + 1];
        let file = sample::file(&sample::metadata(), &records);
        assert!(read_all(&file).expect("the file is whole") == records);
    }

    #[test]
    fn a_cut_file_is_told_from_a_whole_one() {
        let metadata = sample::metadata();
        let records = sample::records();
        let file = sample::file(&metadata, &records);
        let header = sample::file(&metadata, &[]).len();
        for length in 0..file.len() {
            let result = read_all(&file[..length]);
            if length == 0 {
                assert!(matches!(result, Err(TraceError::Magic)));
            } else if length < header {
                assert!(
                    matches!(result, Err(TraceError::HeaderTruncated)),
                    "{length}: {result:?}"
                );
            } else if (length - header).is_multiple_of(Record::BYTES) {
                assert_eq!(
                    result.expect("whole records").len(),
                    (length - header) / Record::BYTES
                );
            } else {
                let cut = (length - header) / Record::BYTES;
                let TraceError::Truncated { index, bytes } = result.expect_err("cut") else {
                    panic!("{length}");
                };
                assert_eq!(
                    (index as usize, bytes),
                    (cut, (length - header) % Record::BYTES)
                );
            }
        }
    }

    #[test]
    fn another_file_is_refused() {
        let mut file = sample::file(&sample::metadata(), &[]);
        assert_eq!(
            error_of(b"# a text file of some length"),
            "not a Laxity trace: the file does not begin with LAXTRACE"
        );
        file[8] = 2;
        assert_eq!(
            error_of(&file),
            "the trace's layout has version 2; this program reads version 1"
        );
        file[8] = 1;
        file[16] = b'!';
        assert!(error_of(&file).starts_with("the trace's metadata is not valid: expected"));
    }

    #[test]
    fn a_damaged_record_is_named() {
        let records = sample::records();
        let of = |change: fn(&mut Record)| {
            let mut records = records.clone();
            change(&mut records[4]);
            error_of(&sample::file(&sample::metadata(), &records))
        };
        let unknown = |what| {
            format!("record 4 of the trace (run) names {what}, which the metadata does not have")
        };
        assert_eq!(of(|record| record.cpu = 1), unknown("CPU 1"));
        assert_eq!(of(|record| record.cpu = NONE), unknown("CPU 65535"));
        assert_eq!(of(|record| record.domain = 2), unknown("domain 2"));
        assert_eq!(of(|record| record.domain = NONE), unknown("domain 65535"));
        assert_eq!(of(|record| record.vcpu = 1), unknown("VCPU 1"));
        assert_eq!(
            of(|record| (record.kind, record.argument) = (Kind::Execute, job(1, 0))),
            "record 4 of the trace (execute) names task 1, which the metadata does not have"
        );
        assert!(of(|record| (record.kind, record.argument) = (Kind::Class, 4)).contains("class 4"));
        let hop = of(|record| (record.kind, record.argument) = (Kind::Hop, 15 << 56));
        assert!(hop.contains("place"));
        let spent = of(|record| (record.kind, record.argument) = (Kind::Spent, 2 << 56));
        assert!(spent.contains("expense"));
        let exit = of(|record| (record.kind, record.argument) = (Kind::Exit, 11));
        assert!(exit.contains("names reason 11"), "{exit}");
        assert!(
            of(|record| (record.kind, record.argument) = (Kind::Migrate, -1)).contains("CPU -1")
        );
        assert_eq!(
            of(|record| record.time_ns = -1),
            "record 4 of the trace goes back in time, from 0 ns to -1 ns"
        );
        assert_eq!(
            of(|record| record.time_ns = 3),
            "record 5 of the trace goes back in time, from 3 ns to 0 ns"
        );
        let mut file = sample::file(&sample::metadata(), &records);
        let last = file.len() - 2;
        file[last] = 21;
        assert!(error_of(&file).starts_with("record 33 of the trace is damaged: kind 21"));
        assert!(
            Reader::new(&file[..])
                .expect("the header is right")
                .nth(34)
                .is_none(),
            "it ends"
        );
    }

    /// Where programs run in a domain, its VCPUs are CPUs behind the physical ones; nobody else has further ones.
    #[test]
    fn the_cpus_of_programs_are_vcpus() {
        let inside = Metadata {
            programs_in: Some(1),
            ..sample::metadata()
        };
        let cpus = |metadata: &Metadata| {
            let runs_on = |cpu: &u16| {
                let run = Record {
                    time_ns: 0,
                    argument: 0,
                    cpu: *cpu,
                    domain: 0,
                    vcpu: 0,
                    kind: Kind::Run,
                };
                let file = sample::file(metadata, &[run]);
                let reader = || Reader::new(&file[..]).expect("the header is right");
                let is_read = reader().all(|record| record.is_ok());
                if is_read {
                    let name = format!("in {}", metadata.vcpu_name(1, 0));
                    let mut shown = Vec::new();
                    crate::perfetto::write(reader(), &mut shown).expect("a Vec takes everything");
                    let is_named = shown
                        .windows(name.len())
                        .any(|part| part == name.as_bytes());
                    assert_eq!(is_named, metadata.programs_in.is_some());
                    crate::timeline(reader(), 0, 1).expect("the trace is right");
                    crate::needs(reader()).expect("the trace is right");
                    crate::levels(reader(), 10).expect("the trace is right");
                }
                is_read
            };
            (0..8).take_while(runs_on).count() as u32
        };
        let bare = sample::metadata();
        assert_eq!(cpus(&bare), bare.cpus);
        assert_eq!(cpus(&inside), bare.cpus + bare.domains[1].vcpus);
    }

    #[test]
    fn metadata_that_records_cannot_speak_of_is_refused() {
        let of = |change: fn(&mut Metadata)| {
            let mut metadata = sample::metadata();
            change(&mut metadata);
            error_of(&sample::file(&metadata, &[]))
        };
        assert!(of(|metadata| metadata.cpus = 0).ends_with("0 CPUs; a trace has 1 to 65535"));
        assert!(of(|metadata| metadata.domains[0].vcpus = 65_536).contains("65536 VCPUs"));
        assert!(
            of(|metadata| metadata.domains[0].tasks[0].vcpu = 1).contains("is on VCPU 1, of 1")
        );
        assert!(of(|metadata| metadata.duration_ns = -1).contains("-1 ns"));
        assert!(of(|metadata| metadata.programs_in = Some(2)).contains("domain 2, which is none"));
        let in_itself = |metadata: &mut Metadata| {
            metadata.domains[1].name = "(sshd)".into();
            metadata.programs_in = Some(1);
        };
        assert!(of(in_itself).contains("domain 1, which is none"));
        let crowded = |metadata: &mut Metadata| {
            metadata.cpus = 65_535;
            metadata.programs_in = Some(1);
        };
        assert!(of(crowded).contains("with those of programs; a trace has at most 65535"));
        for refusal in [
            of(|metadata| metadata.substrate = "a\u{1b}]0;title\u{7}".into()),
            of(|metadata| metadata.policy = "a\nb".into()),
            of(|metadata| metadata.domains[1].name = "\u{9b}2J".into()),
            of(|metadata| metadata.domains[0].tasks[0].name = "a\rb".into()),
        ] {
            assert!(refusal.contains("which a terminal would obey"), "{refusal}");
            assert!(!refusal.contains(char::is_control), "{refusal:?}");
        }
        let crowd = |metadata: &mut Metadata| {
            metadata.domains[1].vcpus = 60_000;
            metadata.domains = vec![metadata.domains[1].clone(); 20];
        };
        assert!(of(crowd).contains("1200000 VCPUs; a trace has at most 1048576"));
    }

    /// Any text without control characters.
    const NAME: &str = "\\PC*";

    prop_compose! {
        fn any_metadata()(
            substrate in NAME, policy in NAME, seed: u64, duration_ns in 0i64.., cpus in 1u32..65_536,
            domains in prop::collection::vec(any_domain(), 1..4),
        ) -> Metadata {
            Metadata { substrate, policy, seed, duration_ns, cpus, domains, calls: None, programs_in: None }
        }
    }

    prop_compose! {
        fn any_domain()(
            name in NAME, vcpus in 1u32..65_536, budget_ns: i64, period_ns: i64,
            tasks in prop::collection::vec((NAME, any::<(i64, i64, i64, i64)>()), 1..4),
        ) -> DomainMetadata {
            let tasks = tasks.into_iter().map(|(name, (cost_ns, period_ns, deadline_ns, offset_ns))| {
                TaskMetadata { name, vcpu: vcpus - 1, cost_ns, period_ns, deadline_ns, offset_ns }
            });
            DomainMetadata { name, vcpus, budget_ns, period_ns, real_time: false, tasks: tasks.collect() }
        }
    }

    prop_compose! {
        /// Records that have a place in every such metadata.
        fn any_records()(records in prop::collection::vec(
            (any::<u32>(), any::<i64>(), any::<bool>(), 0..Kind::ALL.len()), 0..50,
        )) -> Vec<Record> {
            let mut time_ns = 0;
            records.into_iter().map(|(step_ns, argument, whole, kind)| {
                time_ns += i64::from(step_ns);
                let kind = Kind::ALL[kind];
                let argument = match kind {
                    _ if kind.is_of_job() => job(0, argument.unsigned_abs() >> 24),
                    Kind::Migrate => 0,
                    Kind::Class => argument & 3,
                    Kind::Hop | Kind::Spent => argument & (i64::MAX >> 7),
                    Kind::Exit => argument & 7,
                    _ => argument,
                };
                let needs_cpu = matches!(kind, Kind::Run | Kind::Stop | Kind::Schedule);
                let cpu = if whole || needs_cpu { 0 } else { NONE };
                let place = if whole || kind != Kind::Schedule { 0 } else { NONE };
                Record { time_ns, argument, cpu, domain: place, vcpu: place, kind }
            }).collect()
        }
    }

    /// Reads a file in every way there is; none may panic.
    fn read_in_every_way(file: &[u8]) {
        let Ok(reader) = Reader::new(file) else {
            return;
        };
        let end_ns = reader.metadata().duration_ns;
        let middle_ns = end_ns / 2;
        let _ = crate::text::write(reader, std::io::sink());
        let _ = crate::perfetto::write(sample::reader(file), std::io::sink());
        let _ = crate::levels(sample::reader(file), 1 + file.len() % 7);
        let _ = crate::timeline(sample::reader(file), middle_ns, end_ns);
        let _ = crate::needs(sample::reader(file));
        let _ = crate::agreement(sample::reader(file), sample::reader(file));
        let _ =
            crate::diff(sample::reader(file), sample::reader(file)).map(|equal| equal.to_string());
    }

    proptest! {
        #[test]
        fn every_trace_comes_back(metadata in any_metadata(), records in any_records()) {
            let file = sample::file(&metadata, &records);
            let reader = sample::reader(&file);
            prop_assert_eq!(reader.metadata(), &metadata);
            prop_assert_eq!(read_all(&file).expect("the file is whole"), records);
        }

        #[test]
        fn no_bytes_make_it_panic(bytes: Vec<u8>) {
            read_in_every_way(&bytes);
            let mut file = sample::file(&sample::metadata(), &[]);
            file.extend(bytes);
            read_in_every_way(&file);
        }

        #[test]
        fn no_strange_order_makes_it_panic(records in any_records()) {
            read_in_every_way(&sample::file(&sample::metadata(), &records));
        }

        #[test]
        fn no_damage_makes_it_panic(damage in prop::collection::vec(any::<(usize, u8)>(), 1..8)) {
            let mut file = sample::file(&sample::metadata(), &sample::records());
            for (at, byte) in damage {
                let at = at % file.len();
                file[at] = byte;
            }
            read_in_every_way(&file);
        }
    }
}
