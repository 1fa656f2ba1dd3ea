//! The busy periods and the runs of each VCPU of a trace.

use laxity_trace::{Kind, Metadata, NONE, Record};

/// The time of a VCPU from a wake to the block after it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Busy {
    /// The wake, ns from the start of the trace.
    pub start_ns: i64,
    /// The block, or the end of the trace.
    pub end_ns: i64,
    /// The time that the VCPU ran between them, decisions and context switches not counted.
    pub work_ns: i64,
    /// How often the VCPU got a CPU between them.
    pub runs: u32,
    /// The trace has both the wake and the block.
    pub is_whole: bool,
}

/// The usual work of a busy period, ns: that of the busy period in which a usual nanosecond of work is done.
pub fn usual_ns(busy: &[Busy]) -> f64 {
    let whole = || {
        busy.iter()
            .filter(|busy| busy.is_whole)
            .map(|busy| busy.work_ns as f64)
    };
    let squares: f64 = whole().map(|work| work * work).sum();
    squares / whole().sum::<f64>().max(1.0)
}

/// What a trace tells of a VCPU.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Seen {
    /// In order.
    pub busy: Vec<Busy>,
    /// When it ran, from and to, in order; decisions and context switches not counted.
    pub ran_ns: Vec<(i64, i64)>,
    /// The CPUs on which it ran, in order.
    pub cpus: Vec<u16>,
}

impl Seen {
    /// How long it ran.
    pub fn work_ns(&self) -> i64 {
        self.ran_ns
            .iter()
            .map(|(from_ns, to_ns)| to_ns - from_ns)
            .sum()
    }

    fn ran(&mut self, from_ns: i64, to_ns: i64) {
        if from_ns < to_ns {
            self.ran_ns.push((from_ns, to_ns));
            if let Some(busy) = self.busy.last_mut() {
                busy.work_ns += to_ns - from_ns;
            }
        }
    }
}

#[derive(Clone, Copy)]
struct State {
    is_awake: bool,
    /// The CPU, or [`NONE`].
    cpu: u16,
    /// It works from then on.
    since_ns: i64,
}

/// Collects what a trace tells of each VCPU, by domain and number.
pub fn seen(metadata: &Metadata, records: &[Record]) -> Vec<Vec<Seen>> {
    let sizes = || metadata.domains.iter().map(|domain| domain.vcpus as usize);
    let mut seen: Vec<Vec<Seen>> = sizes().map(|vcpus| vec![Seen::default(); vcpus]).collect();
    let asleep = State {
        is_awake: false,
        cpu: NONE,
        since_ns: 0,
    };
    let mut states: Vec<Vec<State>> = sizes().map(|vcpus| vec![asleep; vcpus]).collect();
    // For each CPU, who runs, and until when its last decision takes.
    let mut cpus: Vec<(Option<(usize, usize)>, i64)> = vec![(None, 0); metadata.lanes() as usize];
    for record in records {
        let now_ns = record.time_ns;
        if record.kind == Kind::Schedule {
            let (running, decided_ns) = &mut cpus[usize::from(record.cpu)];
            *decided_ns = now_ns.saturating_add(record.argument.max(0));
            if let Some((domain, vcpu)) = *running {
                let state = &mut states[domain][vcpu];
                seen[domain][vcpu].ran(state.since_ns, now_ns);
                state.since_ns = state.since_ns.max(*decided_ns);
            }
            continue;
        }
        let place = (usize::from(record.domain), usize::from(record.vcpu));
        let Some(state) = states.get_mut(place.0).and_then(|of| of.get_mut(place.1)) else {
            continue;
        };
        let of_vcpu = &mut seen[place.0][place.1];
        let is_sign_of_life = matches!(record.kind, Kind::Wake | Kind::Run | Kind::Block);
        if is_sign_of_life && !std::mem::replace(&mut state.is_awake, true) {
            of_vcpu.busy.push(Busy {
                start_ns: if record.kind == Kind::Block {
                    0
                } else {
                    now_ns
                },
                end_ns: metadata.duration_ns.max(now_ns),
                work_ns: 0,
                runs: 0,
                // What is runnable at the start woke at an unknown time before.
                is_whole: record.kind == Kind::Wake && now_ns > 0,
            });
        }
        match record.kind {
            Kind::Run => {
                if let Some(busy) = of_vcpu.busy.last_mut() {
                    busy.runs += 1;
                }
                state.cpu = record.cpu;
                let (running, decided_ns) = &mut cpus[usize::from(record.cpu)];
                *running = Some(place);
                state.since_ns = now_ns.max(*decided_ns);
                if let Err(at) = of_vcpu.cpus.binary_search(&record.cpu) {
                    of_vcpu.cpus.insert(at, record.cpu);
                }
            }
            Kind::Stop | Kind::Block => {
                if state.cpu != NONE {
                    of_vcpu.ran(state.since_ns, now_ns);
                    state.since_ns = state.since_ns.max(now_ns);
                }
                if record.kind == Kind::Stop && state.cpu != NONE {
                    cpus[usize::from(state.cpu)].0 = None;
                    state.cpu = NONE;
                }
                if record.kind == Kind::Block
                    && std::mem::take(&mut state.is_awake)
                    && let Some(busy) = of_vcpu.busy.last_mut()
                {
                    busy.end_ns = now_ns;
                }
            }
            _ => {}
        }
    }
    for (states, of_domain) in states.iter().zip(&mut seen) {
        for (state, of_vcpu) in states.iter().zip(of_domain) {
            if state.cpu != NONE {
                of_vcpu.ran(state.since_ns, metadata.duration_ns);
            }
            if state.is_awake
                && let Some(busy) = of_vcpu.busy.last_mut()
            {
                busy.is_whole = false;
            }
        }
    }
    seen
}
