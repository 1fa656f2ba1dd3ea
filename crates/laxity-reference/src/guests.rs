//! The guests: which jobs wait, and which of them a VCPU runs.

use crate::outcome::{Job, VcpuTime};
use crate::rules::Told;
use laxity_host::{GuestScheduler, Host};

/// A job that has arrived and is not complete.
struct Waiting {
    domain: usize,
    task: usize,
    number: u64,
    arrival_ns: i64,
    left_ns: i64,
}

/// The software inside all domains. VCPUs are numbered through the host in the order of the file.
pub(crate) struct Guests<'a> {
    host: &'a Host,
    waiting: Vec<Waiting>,
    completed: Vec<Job>,
    /// How many jobs of each task have come, by domain and task.
    come: Vec<Vec<u64>>,
    kernels: Vec<Kernel>,
}

/// The kernel of a guest on one VCPU, if it ticks.
struct Kernel {
    domain: usize,
    vcpu: usize,
    /// What is left to do of a tick, or of an interrupt by which jobs come.
    tick_left_ns: i64,
    /// Whether the last of that was done just now.
    has_served: bool,
    /// Whether a job has arrived since the last tick that found none.
    had_job: bool,
    /// When the kernel set its timer, and for which job: a task of the domain that waited for it, and its number.
    set: Vec<(i64, usize, u64)>,
}

impl Kernel {
    fn is_of(&self, domain: usize, vcpu: usize) -> bool {
        (self.domain, self.vcpu) == (domain, vcpu)
    }
}

impl<'a> Guests<'a> {
    pub(crate) fn new(host: &'a Host) -> Self {
        let kernels = Guests::vcpus(host)
            .into_iter()
            .filter(|vcpu| host.domains[vcpu.domain].tick.is_some())
            .map(|VcpuTime { domain, vcpu, .. }| Kernel {
                domain,
                vcpu,
                tick_left_ns: 0,
                has_served: false,
                had_job: false,
                set: Vec::new(),
            })
            .collect();
        Guests {
            host,
            waiting: Vec::new(),
            completed: Vec::new(),
            come: (host.domains.iter())
                .map(|domain| vec![0; domain.tasks.len()])
                .collect(),
            kernels,
        }
    }

    /// Every VCPU of the host, with nothing used.
    pub(crate) fn vcpus(host: &Host) -> Vec<VcpuTime> {
        let mut vcpus = Vec::new();
        for (domain, description) in host.domains.iter().enumerate() {
            for vcpu in 0..description.vcpus.len() {
                vcpus.push(VcpuTime {
                    domain,
                    vcpu,
                    cpu_ns: 0,
                });
            }
        }
        vcpus
    }

    /// Rule 1, first half: jobs that complete, and interrupts that have been served.
    pub(crate) fn complete(&mut self, now_ns: i64) {
        let mut served = Vec::new();
        for kernel in &mut self.kernels {
            if std::mem::take(&mut kernel.has_served) && has_interrupts(self.host, kernel.domain) {
                served.push((kernel.domain, kernel.vcpu));
            }
        }
        self.set_timers(&served, now_ns);
        let complete: Vec<Waiting> = (self.waiting)
            .extract_if(.., |job| job.left_ns == 0)
            .collect();
        for job in complete {
            self.completed.push(Job {
                domain: job.domain,
                task: job.task,
                number: job.number,
                arrival_ns: job.arrival_ns,
                completion_ns: Some(now_ns),
            });
            self.set_timer(job.domain, job.task, now_ns);
        }
    }

    /// Rule 1, second half: jobs that arrive, in the order of their tasks in the host file. Answers
    /// the (domain, VCPU within it) that get work, in that order. An endless loop is work that
    /// comes at time 0, before any job. Jobs of one task come in their order.
    pub(crate) fn arrive(&mut self, now_ns: i64) -> Vec<(usize, usize)> {
        let mut given = Vec::new();
        for (domain, description) in self.host.domains.iter().enumerate() {
            if description.cpu_bound && now_ns == 0 {
                given.extend((0..description.vcpus.len()).map(|vcpu| (domain, vcpu)));
            }
        }
        let loops = given.len();
        for (domain, description) in self.host.domains.iter().enumerate() {
            for (task, parameters) in description.tasks.iter().enumerate() {
                while self.comes_ns(domain, task) <= now_ns {
                    let is_busy =
                        (self.waiting.iter()).any(|job| (job.domain, job.task) == (domain, task));
                    let vcpu = parameters.vcpu as usize;
                    let kernel = (self.kernels.iter_mut())
                        .find(|kernel| !is_busy && kernel.is_of(domain, vcpu));
                    let wake_ns = match (kernel, description.tick) {
                        (Some(kernel), Some(tick)) if tick.wake_ns > 0 => {
                            // What waits is served by the interrupt that is due.
                            if kernel.tick_left_ns == 0 {
                                kernel.tick_left_ns = tick.cost_ns;
                            }
                            tick.wake_ns
                        }
                        _ => 0,
                    };
                    self.waiting.push(Waiting {
                        domain,
                        task,
                        number: self.come[domain][task],
                        arrival_ns: self.due_ns(domain, task),
                        left_ns: wake_ns + parameters.cost_ns,
                    });
                    self.come[domain][task] += 1;
                    given.push((domain, vcpu));
                }
            }
        }
        for kernel in &mut self.kernels {
            kernel.had_job |= given.contains(&(kernel.domain, kernel.vcpu));
        }
        self.set_timers_at_once(&given[loops..], now_ns);
        given
    }

    /// Rule 1, the end: ticks that fall due, in the order of the VCPUs in the host file. Answers the
    /// (domain, VCPU within it) that have one to do now.
    pub(crate) fn tick(&mut self, now_ns: i64) -> Vec<(usize, usize)> {
        let mut given = Vec::new();
        for number in 0..self.kernels.len() {
            let Kernel { domain, vcpu, .. } = self.kernels[number];
            let tick = self.host.domains[domain].tick.expect("it ticks");
            let since_first_ns = now_ns - tick.offset_ns;
            if since_first_ns < 0 || since_first_ns % tick.period_ns != 0 {
                continue;
            }
            let has_job = self.host.domains[domain].cpu_bound
                || self.waiting.iter().any(|job| self.is_on(job, domain, vcpu));
            let kernel = &mut self.kernels[number];
            // One at a time: another one on top of it would find nothing new.
            if kernel.tick_left_ns > 0 {
                continue;
            }
            if has_job || kernel.had_job {
                kernel.tick_left_ns = tick.cost_ns;
                given.push((domain, vcpu));
            }
            if !has_job {
                kernel.had_job = false;
            }
        }
        self.set_timers_at_once(&given, now_ns);
        given
    }

    /// When the next job of a task is due.
    fn due_ns(&self, domain: usize, task: usize) -> i64 {
        let parameters = &self.host.domains[domain].tasks[task];
        parameters.offset_ns + self.come[domain][task] as i64 * parameters.period_ns
    }

    /// When the next job of a task comes, as far as is known: when it is due, or the least time ahead after the first
    /// of the instants shortly before at which the kernel set its timer for it.
    fn comes_ns(&self, domain: usize, task: usize) -> i64 {
        let due_ns = self.due_ns(domain, task);
        let Some(tick) = self.host.domains[domain].tick else {
            return due_ns;
        };
        let job = (task, self.come[domain][task]);
        let sets = (self.kernels.iter())
            .filter(|kernel| kernel.domain == domain)
            .flat_map(|kernel| &kernel.set);
        let shortly_before = sets
            .filter(|&&(_, task, number)| (task, number) == job)
            .map(|&(at_ns, ..)| at_ns)
            .filter(|&at_ns| due_ns - tick.min_delta_ns < at_ns && at_ns < due_ns);
        match shortly_before.min() {
            Some(at_ns) => at_ns + tick.min_delta_ns,
            None => due_ns,
        }
    }

    /// When the next job of all comes, as far as is known.
    pub(crate) fn next_ns(&self) -> i64 {
        (self.come.iter().enumerate())
            .flat_map(|(domain, tasks)| (0..tasks.len()).map(move |task| (domain, task)))
            .map(|(domain, task)| self.comes_ns(domain, task))
            .min()
            .unwrap_or(i64::MAX)
    }

    /// Those of these VCPUs' kernels set their timers that serve no interrupt before.
    fn set_timers_at_once(&mut self, vcpus: &[(usize, usize)], now_ns: i64) {
        let mut at_once = vcpus.to_vec();
        at_once.retain(|&(domain, _)| !has_interrupts(self.host, domain));
        self.set_timers(&at_once, now_ns);
    }

    /// The kernels of these VCPUs set their timers for all tasks.
    fn set_timers(&mut self, vcpus: &[(usize, usize)], now_ns: i64) {
        for (domain, description) in self.host.domains.iter().enumerate() {
            for (task, parameters) in description.tasks.iter().enumerate() {
                if vcpus.contains(&(domain, parameters.vcpu as usize)) {
                    self.set_timer(domain, task, now_ns);
                }
            }
        }
    }

    /// The kernel of a task's VCPU sets its timer for the task's next job, if the task waits for it.
    fn set_timer(&mut self, domain: usize, task: usize, now_ns: i64) {
        let is_busy = (self.waiting.iter()).any(|job| (job.domain, job.task) == (domain, task));
        let (vcpu, number) = (
            self.host.domains[domain].tasks[task].vcpu as usize,
            self.come[domain][task],
        );
        let kernel = (self.kernels.iter_mut()).find(|kernel| kernel.is_of(domain, vcpu));
        if let Some(kernel) = kernel
            && !is_busy
        {
            // What was for earlier jobs is of no use.
            kernel
                .set
                .retain(|&(_, of, job)| of != task || job == number);
            kernel.set.push((now_ns, task, number));
        }
    }

    /// Whether a VCPU has anything to do.
    pub(crate) fn has_work(&self, domain: usize, vcpu: usize) -> bool {
        self.host.domains[domain].cpu_bound
            || self.waiting.iter().any(|job| self.is_on(job, domain, vcpu))
            || self
                .kernels
                .iter()
                .any(|kernel| kernel.is_of(domain, vcpu) && kernel.tick_left_ns > 0)
    }

    /// The VCPU does its guest's most urgent work for `unit_ns`: a tick, else the job that ranks
    /// first by the guest's scheduler, else the endless loop, which leaves no mark.
    pub(crate) fn work(&mut self, domain: usize, vcpu: usize, unit_ns: i64) {
        let ticking = self
            .kernels
            .iter_mut()
            .find(|kernel| kernel.is_of(domain, vcpu) && kernel.tick_left_ns > 0);
        if let Some(kernel) = ticking {
            kernel.tick_left_ns -= unit_ns;
            kernel.has_served = kernel.tick_left_ns == 0;
            return;
        }
        if let Some(index) = self.first(domain, vcpu) {
            self.waiting[index].left_ns -= unit_ns;
        }
    }

    /// How long that work takes yet; an endless loop never ends.
    pub(crate) fn left_ns(&self, domain: usize, vcpu: usize) -> i64 {
        let ticking = (self.kernels.iter())
            .find(|kernel| kernel.is_of(domain, vcpu) && kernel.tick_left_ns > 0);
        match (ticking, self.first(domain, vcpu)) {
            (Some(kernel), _) => kernel.tick_left_ns,
            (None, Some(index)) => self.waiting[index].left_ns,
            (None, None) => i64::MAX,
        }
    }

    /// The place of the job that ranks first on a VCPU.
    fn first(&self, domain: usize, vcpu: usize) -> Option<usize> {
        (0..self.waiting.len())
            .filter(|&index| self.is_on(&self.waiting[index], domain, vcpu))
            .min_by_key(|&index| self.rank(&self.waiting[index]))
    }

    /// What the guest tells of a VCPU, or has told if it can tell nothing now. A tick comes before all jobs, and makes
    /// none less urgent. A guest whose jobs come by interrupts tells nothing of ticks, and nothing before it has served
    /// an interrupt; and it tells for which job it will wake.
    pub(crate) fn tell(&self, domain: usize, vcpu: usize) -> Option<Told> {
        let description = &self.host.domains[domain];
        let tasks = &description.tasks;
        let by_interrupts = has_interrupts(self.host, domain);
        let does_tick = (self.kernels.iter())
            .any(|kernel| kernel.is_of(domain, vcpu) && kernel.tick_left_ns > 0);
        if by_interrupts && does_tick {
            return None;
        }
        let rank = |task: usize| (tasks[task].period_ns, task);
        let waiting = (self.first(domain, vcpu)).map(|place| &self.waiting[place]);
        let tells_next = by_interrupts && !description.cpu_bound;
        let next = (0..tasks.len())
            .filter(|&task| tells_next && tasks[task].vcpu as usize == vcpu)
            .min_by_key(|&task| (self.due_ns(domain, task), rank(task)));
        let job = match waiting {
            Some(job) => Some((job.task, job.number, job.arrival_ns)),
            None => next.map(|task| (task, self.come[domain][task], self.due_ns(domain, task))),
        };
        let deadline_ns = job.map(|(task, _, arrival_ns)| arrival_ns + tasks[task].deadline_ns);
        let order = match (job, description.guest) {
            _ if does_tick => i64::MIN,
            (None, _) => i64::MAX,
            (Some(_), GuestScheduler::Edf) => deadline_ns.expect("a job has one"),
            (Some((first, ..)), GuestScheduler::RateMonotonic) => {
                let before = (0..tasks.len()).filter(|&task| rank(task) < rank(first));
                before.count() as i64
            }
        };
        Some(Told {
            job: job.map(|(task, number, _)| (task, number)),
            deadline_ns,
            order,
        })
    }

    /// Every job so far, by domain, task and number.
    pub(crate) fn into_jobs(self) -> Vec<Job> {
        let mut jobs = self.completed;
        for job in self.waiting {
            jobs.push(Job {
                domain: job.domain,
                task: job.task,
                number: job.number,
                arrival_ns: job.arrival_ns,
                completion_ns: None,
            });
        }
        jobs.sort();
        jobs
    }

    fn is_on(&self, job: &Waiting, domain: usize, vcpu: usize) -> bool {
        job.domain == domain && self.host.domains[domain].tasks[job.task].vcpu as usize == vcpu
    }

    /// Smaller is first: shorter period or earlier absolute deadline, then the order of the file,
    /// then the order of arrival.
    fn rank(&self, job: &Waiting) -> (i64, usize, u64) {
        let domain = &self.host.domains[job.domain];
        let task = &domain.tasks[job.task];
        let urgency_ns = match domain.guest {
            GuestScheduler::RateMonotonic => task.period_ns,
            GuestScheduler::Edf => job.arrival_ns + task.deadline_ns,
        };
        (urgency_ns, job.task, job.number)
    }
}

/// Whether jobs of a domain come by interrupts, at whose end its kernel sets its timer.
fn has_interrupts(host: &Host, domain: usize) -> bool {
    (host.domains[domain].tick).is_some_and(|tick| tick.interrupt_ns() > 0)
}
