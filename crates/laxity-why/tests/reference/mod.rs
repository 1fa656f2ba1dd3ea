//! The parts of a job's response, read off the text of its trace: slow, and without memory from one interval to the
//! next.

use laxity_trace::Metadata;
use laxity_why::{Job, Packet, PacketPart, Part, Rule, Subject, Who};
use std::collections::BTreeMap;

/// A line of the text.
#[derive(Clone)]
struct Line {
    time_ns: i64,
    cpu: Option<usize>,
    /// `domain/vcpu`, or `-`.
    vcpu: String,
    event: String,
    detail: String,
}

/// The text of a trace.
pub struct Lines {
    lines: Vec<Line>,
    policy: String,
    cpus: usize,
}

fn ns(milliseconds: &str) -> i64 {
    let (whole, fraction) = milliseconds.split_once('.').expect("six decimals");
    let parse = |text: &str| text.parse::<i64>().expect("a number");
    parse(whole) * 1_000_000 + parse(fraction)
}

/// What the reference calls a part: the cause, who, the rule.
pub fn name(metadata: &Metadata, part: &Part) -> String {
    let domain = |domain: u16| &metadata.domains[usize::from(domain)];
    let who = match part.who {
        Who::Nobody => String::new(),
        Who::Task(of, task) => {
            let of = domain(of);
            format!(" {}:{}", of.name, of.tasks[task as usize].name)
        }
        Who::Vcpu(of, vcpu) => format!(" {}/{vcpu}", domain(of).name),
    };
    let rule = match part.rule {
        None => String::new(),
        Some(Rule::Exit(exit)) => format!(" {}", exit.name()),
        Some(rule) => format!(" {rule:?}"),
    };
    format!("{:?}{who}{rule}", part.cause)
}

impl Lines {
    pub fn parse(text: &str, metadata: &Metadata) -> Lines {
        let line = |line: &str| {
            let mut words = line.split_whitespace();
            let mut word = || words.next().unwrap_or("").to_owned();
            Line {
                time_ns: ns(&word()),
                cpu: word().parse().ok(),
                vcpu: word(),
                event: word(),
                detail: words.collect::<Vec<_>>().join(" "),
            }
        };
        Lines {
            lines: text
                .lines()
                .filter(|line| !line.starts_with('#'))
                .map(line)
                .collect(),
            policy: metadata.policy.clone(),
            cpus: metadata.cpus as usize,
        }
    }

    /// The parts of the job's response by their names, in the order of names.
    pub fn explain(&self, metadata: &Metadata, job: &Job) -> Vec<(String, i64)> {
        let domain = &metadata.domains[usize::from(job.domain)];
        let task = &domain.tasks[job.task as usize];
        let vcpu = format!("{}/{}", domain.name, task.vcpu);
        let (this, before) = (
            format!("{} #{}", task.name, job.number),
            format!("{} #{}", task.name, job.number.wrapping_sub(1)),
        );
        let at = |event: &str, job: &str| {
            (self.lines.iter())
                .find(|line| line.vcpu == vcpu && line.event == event && is_of(&line.detail, job))
                .map(|line| line.time_ns)
        };
        let release_ns = at("release", &this).expect("it was released");
        let previous_ns = at("complete", &before);
        let mut times: Vec<i64> = self.lines.iter().map(|line| line.time_ns).collect();
        times.extend(self.lines.iter().filter_map(|line| {
            let cost = line.detail.split("cost ").nth(1)?;
            Some(line.time_ns + cost.strip_suffix(" ns")?.parse::<i64>().ok()?)
        }));
        times.extend([job.arrival_ns, job.end_ns]);
        times.retain(|time| (job.arrival_ns..=job.end_ns).contains(time));
        times.sort_unstable();
        times.dedup();

        let mut parts = BTreeMap::<String, i64>::new();
        let mut own_ns = 0;
        for pair in times.windows(2) {
            let (from_ns, to_ns) = (pair[0], pair[1]);
            let what = if from_ns < release_ns {
                "ReleasedLate".to_owned()
            } else {
                self.state(from_ns, &vcpu, domain)
            };
            if what == format!("Task {}:{}", domain.name, task.name) {
                let is_earlier = job.number > 0 && previous_ns.is_none_or(|time| from_ns < time);
                let part = if is_earlier {
                    "EarlierJob"
                } else if own_ns + (to_ns - from_ns) <= task.cost_ns {
                    own_ns += to_ns - from_ns;
                    "OwnWork"
                } else {
                    let own = task.cost_ns - own_ns;
                    own_ns += own;
                    *parts.entry("OwnWork".into()).or_default() += own;
                    *parts.entry("Overhead".into()).or_default() += to_ns - from_ns - own;
                    continue;
                };
                *parts.entry(part.into()).or_default() += to_ns - from_ns;
            } else {
                *parts.entry(what).or_default() += to_ns - from_ns;
            }
        }
        parts.retain(|_, ns| *ns > 0);
        parts.into_iter().collect()
    }

    /// What a VCPU with a job does from that time on, until something happens.
    fn state(&self, at_ns: i64, vcpu: &str, domain: &laxity_trace::DomainMetadata) -> String {
        // The lines up to then, from the last back.
        let past = || {
            self.lines
                .iter()
                .rev()
                .skip_while(move |line| line.time_ns > at_ns)
        };
        let of = |events: &'static [&'static str]| {
            past().find(move |line| line.vcpu == vcpu && events.contains(&&*line.event))
        };
        let switches = |cpu: usize| {
            let last = past().find(|line| line.event == "schedule" && line.cpu == Some(cpu));
            last.is_some_and(|line| {
                let cost = line
                    .detail
                    .split("cost ")
                    .nth(1)
                    .expect("a decision's cost");
                let cost_ns: i64 = cost.trim_end_matches(" ns").parse().expect("a number");
                line.time_ns + cost_ns > at_ns
            })
        };
        let running = of(&["run", "stop"]).filter(|line| line.event == "run");
        if let Some(run) = running {
            if switches(run.cpu.expect("a VCPU runs on a CPU")) {
                return "Switch".into();
            }
            if let Some(exit) = of(&["exit", "enter"]).filter(|line| line.event == "exit") {
                return format!("Exit {}", exit.detail);
            }
            let task = match of(&["run", "execute", "complete"]) {
                Some(line) if line.event == "execute" => line.detail.split(' ').next(),
                last => {
                    let executed = (past()
                        .take_while(|line| !(line.event == "run" && line.vcpu == vcpu)))
                    .any(|line| line.vcpu == vcpu && line.event == "execute");
                    assert!(last.is_some());
                    if executed {
                        None
                    } else {
                        self.first_ready(at_ns, vcpu, domain)
                    }
                }
            };
            return match task {
                Some(task) => format!("Task {}:{task}", domain.name),
                None => "Overhead".into(),
            };
        }
        if of(&["wake", "block", "run"]).is_none_or(|line| line.event == "block") {
            return "Blocked".into();
        }
        if self.class(at_ns, vcpu) == 3 {
            return format!("Cap {vcpu}");
        }
        if self.has_budgets() && self.lacks_budget(at_ns, vcpu) {
            return format!("Budget {}", self.user(at_ns, vcpu, domain));
        }
        let home = past().find_map(|line| match (&*line.event, line.vcpu == vcpu) {
            ("wake" | "run", true) => line.cpu,
            ("migrate", true) => line.detail.trim_start_matches("to CPU ").parse().ok(),
            _ => None,
        });
        let Some(home) = home.or((self.cpus == 1).then_some(0)) else {
            return "Idle".into();
        };
        if switches(home) {
            return "Switch".into();
        }
        let on_home =
            past().find(|line| matches!(&*line.event, "run" | "stop") && line.cpu == Some(home));
        match on_home {
            Some(line) if line.event == "run" => {
                let rule = self.rule(at_ns, vcpu, &line.vcpu);
                format!("Cpu {} {rule}", line.vcpu)
            }
            _ => "Idle".into(),
        }
    }

    fn has_budgets(&self) -> bool {
        [
            "deferrable",
            "periodic",
            "polling",
            "sporadic",
            "sedf",
            "rtds",
            "deadline",
            "arinc653",
            "lending",
            "global-deferrable",
            "global-periodic",
            "global-polling",
            "global-sporadic",
            "global-sedf",
        ]
        .contains(&&*self.policy)
    }

    fn class(&self, at_ns: i64, vcpu: &str) -> u8 {
        let past = self
            .lines
            .iter()
            .rev()
            .skip_while(move |line| line.time_ns > at_ns);
        let last = past
            .into_iter()
            .find(|line| line.vcpu == vcpu && line.event == "class");
        match last.map(|line| &*line.detail) {
            Some("boost") => 0,
            Some("over") => 2,
            Some("parked") => 3,
            _ => 1,
        }
    }

    fn lacks_budget(&self, at_ns: i64, vcpu: &str) -> bool {
        let past = self
            .lines
            .iter()
            .rev()
            .skip_while(move |line| line.time_ns > at_ns);
        let mut of = past.into_iter().filter(|line| line.vcpu == vcpu);
        of.find(|line| matches!(&*line.event, "exhaust" | "replenish" | "budget"))
            .is_some_and(|line| {
                line.event == "exhaust"
                    || line.detail.starts_with("0.000000 ")
                    || line.detail.starts_with('-')
            })
    }

    /// The task that used most of the budget that the VCPU got last.
    fn user(&self, at_ns: i64, vcpu: &str, domain: &laxity_trace::DomainMetadata) -> String {
        let lines: Vec<&Line> = (self.lines.iter())
            .filter(|line| line.time_ns <= at_ns)
            .collect();
        let gives =
            |line: &&Line| !line.detail.starts_with('-') && !line.detail.starts_with("0.000000 ");
        let start = (lines.iter())
            .rposition(|line| line.vcpu == vcpu && line.event == "replenish" && gives(line));
        let start = start.map_or(0, |start| start + 1);
        let mut used: Vec<(String, i64)> = Vec::new();
        let (mut time_ns, mut blocked) = (0, true);
        let (mut on_cpu, mut executing, mut told) = (false, None, false);
        let mut leader: (String, i64) = (vcpu.to_owned(), 0);
        for (index, line) in lines.iter().enumerate() {
            let spent_ns = line.time_ns - time_ns;
            time_ns = line.time_ns;
            if index == start {
                // What was used before does not count; nor does what was used up to this very time, if the budget
                // came at this time.
                used.clear();
                leader = (vcpu.to_owned(), 0);
                let since_ns = start.checked_sub(1).map_or(0, |last| lines[last].time_ns);
                time_ns = time_ns.max(since_ns);
            }
            if on_cpu && spent_ns > 0 {
                let who: String = match &executing {
                    Some(task) => format!("{}:{task}", domain.name),
                    None => vcpu.to_owned(),
                };
                let at = used
                    .iter()
                    .position(|(name, _)| *name == who)
                    .unwrap_or_else(|| {
                        used.push((who.clone(), 0));
                        used.len() - 1
                    });
                used[at].1 += spent_ns;
                if used[at].1 > leader.1 {
                    leader = used[at].clone();
                }
            }
            if line.vcpu != vcpu {
                continue;
            }
            match &*line.event {
                "run" => (on_cpu, blocked, told) = (true, false, false),
                "stop" => (on_cpu, executing, told) = (false, None, false),
                "wake" => blocked = false,
                "block" => blocked = true,
                "execute" => {
                    executing = line.detail.split(' ').next().map(str::to_owned);
                    told = true;
                }
                "complete" if told => executing = None,
                "exhaust" if blocked && index >= start => leader = (vcpu.to_owned(), i64::MAX),
                "budget" if blocked && index >= start && line.detail.starts_with("0.000000 ") => {
                    leader = (vcpu.to_owned(), i64::MAX);
                }
                _ => {}
            }
            if on_cpu && !told {
                executing = self.first_ready_before(index, &lines, vcpu, domain);
            }
        }
        leader.0
    }

    fn first_ready(
        &self,
        at_ns: i64,
        vcpu: &str,
        domain: &laxity_trace::DomainMetadata,
    ) -> Option<&str> {
        let past: Vec<&Line> = (self.lines.iter())
            .filter(|line| line.time_ns <= at_ns)
            .collect();
        let name = self.first_ready_before(past.len().checked_sub(1)?, &past, vcpu, domain)?;
        (self.lines.iter())
            .filter_map(|line| line.detail.split(' ').next())
            .find(|word| *word == name)
    }

    /// The task with the shortest period that has a job after the line of that index.
    fn first_ready_before(
        &self,
        index: usize,
        lines: &[&Line],
        vcpu: &str,
        domain: &laxity_trace::DomainMetadata,
    ) -> Option<String> {
        let count = |event: &str, task: &str| {
            (lines[..=index].iter())
                .filter(|line| line.vcpu == vcpu && line.event == event)
                .filter(|line| line.detail.split(' ').next() == Some(task))
                .count()
        };
        (domain.tasks.iter())
            .filter(|task| format!("{}/{}", domain.name, task.vcpu) == vcpu)
            .filter(|task| count("release", &task.name) > count("complete", &task.name))
            .min_by_key(|task| task.period_ns)
            .map(|task| task.name.clone())
    }

    fn rule(&self, at_ns: i64, waiting: &str, running: &str) -> &'static str {
        if self.has_budgets() {
            let past = || {
                self.lines
                    .iter()
                    .rev()
                    .skip_while(move |line| line.time_ns > at_ns)
            };
            let since_run = past()
                .filter(|line| line.vcpu == running)
                .take_while(|line| line.event != "run");
            let repeated = !["sporadic", "lending", "global-sporadic"].contains(&&*self.policy)
                && since_run.into_iter().any(|line| line.event == "replenish");
            return if repeated { "BackToBack" } else { "Order" };
        }
        if !["credit", "s-", "eevdf"]
            .iter()
            .any(|name| self.policy.starts_with(name))
        {
            return "Order";
        }
        let (running, waiting) = (self.class(at_ns, running), self.class(at_ns, waiting));
        if running == 0 {
            "Boost"
        } else if running < waiting {
            "Credits"
        } else {
            "Turn"
        }
    }
}

/// Whether the detail of a job's line is of that job: `task-1 #3` or `task-1 #3, …`.
fn is_of(detail: &str, job: &str) -> bool {
    detail
        .strip_prefix(job)
        .is_some_and(|rest| rest.is_empty() || rest.starts_with(','))
}

/// What the reference calls a part of a packet's way.
pub fn packet_part(metadata: &Metadata, part: &PacketPart) -> String {
    let at = part.at.map_or(String::new(), |(domain, vcpu)| {
        format!("{}: ", metadata.vcpu_name(domain, vcpu))
    });
    format!("{at}{}", name(metadata, &part.part))
}

/// A place of a packet's way, as the lines tell it.
struct Hop {
    place: String,
    vcpu: String,
    since_ns: i64,
    work_ns: i64,
    pause_ns: i64,
}

impl Lines {
    /// The parts of the packet's way by their names, in the order of names.
    pub fn explain_packet(&self, metadata: &Metadata, packet: &Packet) -> Vec<(String, i64)> {
        let (event, detail) = match packet.subject {
            Subject::Voice => (
                "packet",
                format!("stream {} #{}", packet.stream, packet.number),
            ),
            Subject::Registration => (
                "message",
                format!("registration {} #{}", packet.stream, packet.number),
            ),
            Subject::Outage => ("outage", String::new()),
        };
        let domain = &metadata.domains[usize::from(packet.domain)].name;
        let end = (self.lines.iter())
            .position(|line| {
                let is_domains = line.vcpu.split('/').next() == Some(domain);
                line.event == event && line.detail == detail && is_domains
            })
            .expect("it is told");
        // Nothing later matters.
        let before = Lines {
            lines: self.lines[..end].to_vec(),
            policy: self.policy.clone(),
            cpus: self.cpus,
        };
        let now_ns = self.lines[end].time_ns;
        let first = (before.lines.iter())
            .rposition(|line| !matches!(&*line.event, "hop" | "spent"))
            .map_or(0, |last| last + 1);
        let mut hops: Vec<Hop> = Vec::new();
        for line in &before.lines[first..] {
            let words: Vec<&str> = line.detail.split(' ').collect();
            match (&*line.event, words[0]) {
                ("hop", place) => hops.push(Hop {
                    place: place.to_owned(),
                    vcpu: line.vcpu.clone(),
                    since_ns: ns(words[1]),
                    work_ns: 0,
                    pause_ns: 0,
                }),
                (_, what) => {
                    let last = hops.last_mut().expect("a hop comes first");
                    let spent_ns = words[1].parse().expect("a number");
                    match what {
                        "work" => last.work_ns = spent_ns,
                        _ => last.pause_ns = spent_ns,
                    }
                }
            }
        }
        let mut parts = BTreeMap::new();
        let last = hops.pop().expect("a way has an end");
        match &*last.place {
            "full" => {
                let full = hops.pop().expect("a place is full");
                let waited = Hop {
                    since_ns: last.since_ns,
                    work_ns: 0,
                    pause_ns: last.pause_ns,
                    ..full
                };
                before.walk(metadata, &waited, now_ns, &mut parts);
            }
            "failure" => {
                parts.insert("Failure".to_owned(), now_ns - hops[0].since_ns);
            }
            _ => {
                let ends: Vec<i64> = (hops.iter().skip(1).chain([&last]))
                    .map(|hop| hop.since_ns)
                    .collect();
                for (hop, end_ns) in hops.iter().zip(ends) {
                    before.walk(metadata, hop, end_ns, &mut parts);
                }
            }
        }
        parts.retain(|_, ns| *ns > 0);
        parts.into_iter().collect()
    }

    /// Adds what happens at a place up to a time, interval by interval.
    fn walk(&self, metadata: &Metadata, hop: &Hop, end_ns: i64, parts: &mut BTreeMap<String, i64>) {
        let mut add = |part: String, ns: i64| *parts.entry(part).or_default() += ns;
        let alone = match &*hop.place {
            "wire-in" | "wire-out" => Some("Link"),
            "rate" => Some("Rate"),
            "held" => Some("Held"),
            "silence" => Some("Silence"),
            "activation" => Some("Activation"),
            _ => None,
        };
        if let Some(part) = alone {
            return add(part.to_owned(), end_ns - hop.since_ns);
        }
        let name = hop.vcpu.split('/').next().expect("a VCPU has a domain");
        let domain = (metadata.domains.iter())
            .find(|domain| domain.name == name)
            .expect("it is known");
        let mut times: Vec<i64> = self.lines.iter().map(|line| line.time_ns).collect();
        times.extend(self.lines.iter().filter_map(|line| {
            let cost = line.detail.split("cost ").nth(1)?;
            Some(line.time_ns + cost.strip_suffix(" ns")?.parse::<i64>().ok()?)
        }));
        times.extend([hop.since_ns, end_ns]);
        times.retain(|time| (hop.since_ns..=end_ns).contains(time));
        times.sort_unstable();
        times.dedup();
        let (mut own_ns, mut pause_ns) = (hop.work_ns, hop.pause_ns);
        for pair in times.windows(2) {
            let spent_ns = pair[1] - pair[0];
            let state = self.state(pair[0], &hop.vcpu, domain);
            match &*state {
                "Overhead" => {
                    let of_packet_ns = spent_ns.min(own_ns);
                    own_ns -= of_packet_ns;
                    add("OwnWork".to_owned(), of_packet_ns);
                    add(
                        format!("{}: Queue {}", hop.vcpu, hop.vcpu),
                        spent_ns - of_packet_ns,
                    );
                }
                "Blocked" => {
                    let of_pause_ns = spent_ns.min(pause_ns);
                    pause_ns -= of_pause_ns;
                    add(format!("{}: Pause", hop.vcpu), of_pause_ns);
                    let slept = if hop.place == "card" {
                        "Coalesced"
                    } else {
                        "Blocked"
                    };
                    add(format!("{}: {slept}", hop.vcpu), spent_ns - of_pause_ns);
                }
                other => add(format!("{}: {other}", hop.vcpu), spent_ns),
            }
        }
    }
}
