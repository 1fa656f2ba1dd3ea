//! Budgets, periods and priorities of domains that share CPUs, with which the budgets together are least.
//!
//! Under fixed priorities a domain is affected only by those of higher priority, so priorities are given out from the
//! highest down, and each domain gets the least budget that is enough below those that have theirs. Branch and bound
//! goes through the orders and periods: what a domain needs alone is a lower bound of what it needs below others, and
//! a domain that fails below some others fails below more. Under SEDF all affect one another: what is found in
//! this way is raised until all are guaranteed together.
//!
//! Beyond [`FEW`] domains one order is followed: the most urgent first, and a domain that fails goes before all
//! others.
//!
//! Effort is counted in analyses, never in time, so that the same host gives the same answer on every machine.

use laxity_analysis::is_guaranteed;
use laxity_host::{Domain, Host, OpenDomain};

use crate::audsley;
use crate::group::{Group, fits, share};
use crate::periods::{candidates, least_budget, least_budget_of, rounded};

/// The largest number of domains for which the search tries all orders.
const FEW: usize = 5;

/// The search ends at a design whose cost is this close to the lower bound, relative to it.
pub(crate) const TOLERANCE: f64 = 2e-4;

/// Periods of each of many domains, where it is asked only whether they hold.
const PERIODS_OF_MANY: usize = 4;

/// Rounds in which budgets under SEDF, or of equal priorities, are raised.
const ROUNDS_MAX: usize = 16;

/// Factors by which each period is changed in the end.
const REFINEMENTS: [f64; 8] = [0.8, 0.9, 0.95, 0.98, 1.02, 1.05, 1.1, 1.25];

/// Limits of the search.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Effort {
    /// Analyses of one domain, each times the number of domains on its CPU.
    analyses: u64,
    /// Periods of each domain.
    periods: usize,
}

impl Effort {
    pub const FULL: Effort = Effort {
        analyses: 300_000,
        periods: 64,
    };

    /// For searches that are repeated many times.
    pub fn less(self) -> Effort {
        Effort {
            analyses: self.analyses / 12,
            periods: self.periods.min(24),
        }
    }

    /// For repeated checks whether `domains` domains hold: beyond a few domains, only the cheapest periods are tried.
    pub fn least(self, domains: usize) -> Effort {
        let less = self.less();
        match domains {
            0..=FEW => less,
            _ => Effort {
                periods: less.periods.min(PERIODS_OF_MANY),
                ..less
            },
        }
    }

    /// The limits for each of `groups` groups.
    pub fn among(self, groups: usize) -> Effort {
        match groups {
            0 | 1 => self,
            2..8 => Effort {
                analyses: self.analyses / groups as u64,
                ..self
            },
            _ => Effort {
                analyses: 4 * self.analyses / groups as u64,
                periods: 8,
            },
        }
    }
}

/// A period, and what the domain needs with it.
#[derive(Debug, Clone, Copy)]
struct Choice {
    period_ns: i64,
    /// The least budget if the domain has its CPUs for itself.
    alone_ns: i64,
    /// The part of a CPU that this is.
    alone_share: f64,
}

/// A domain to be designed.
struct Item<'g> {
    domain: &'g Domain,
    open: &'g OpenDomain,
    /// By share, the least first.
    choices: Vec<Choice>,
    /// The shortest deadline.
    urgency_ns: i64,
}

impl Item<'_> {
    fn least_share(&self) -> Option<f64> {
        self.choices.first().map(|choice| choice.alone_share)
    }
}

/// A search for the values of a group.
pub(crate) struct Search<'g> {
    group: &'g Group,
    items: Vec<Item<'g>>,
    effort: Effort,
    spent: u64,
    /// Whether the first values that are found end the search.
    any_is_enough: bool,
    /// The best so far: its CPU time in CPUs, and the domains from the highest priority to the lowest, by number.
    best: Option<(f64, Vec<(usize, Domain)>)>,
}

impl<'g> Search<'g> {
    pub fn new(group: &'g Group, effort: Effort) -> Search<'g> {
        let items = group.host.domains.iter().zip(&group.open);
        let items = items
            .map(|(domain, open)| item(&group.host, domain, open, effort))
            .collect();
        Search {
            group,
            items,
            effort,
            spent: 0,
            any_is_enough: false,
            best: None,
        }
    }

    /// The least part of a CPU that a domain needs if it has its CPUs for itself.
    pub fn least_share(&self, number: usize) -> Option<f64> {
        self.items[number].least_share()
    }

    /// The domains with their values, in the order of the group; `None` if none were found.
    pub fn run(mut self) -> Option<Vec<Domain>> {
        if !self.finds_any() {
            return None;
        }
        self.refine();
        let (_, found) = self.best?;
        let mut domains: Vec<Option<Domain>> = vec![None; self.items.len()];
        for (number, domain) in found {
            domains[number] = Some(domain);
        }
        domains.into_iter().collect()
    }

    /// Whether [`Search::run`] would find values.
    pub fn is_possible(&mut self) -> bool {
        self.any_is_enough = true;
        self.finds_any()
    }

    /// Looks for values, which are `best` then. Returns whether any were found.
    fn finds_any(&mut self) -> bool {
        let open = &self.group.open;
        if !open.iter().any(|open| open.budget || open.period) {
            let total = self.group.host.domains.iter().map(share).sum();
            self.best = audsley::prioritized(&self.group.host, open)
                .map(|domains| (total, domains.into_iter().enumerate().collect()));
            return self.best.is_some();
        }
        let capacity = f64::from(self.group.host.cpus);
        let least: Option<f64> = self.items.iter().map(Item::least_share).sum();
        let Some(least) = least.filter(|&least| least <= capacity + 1e-9) else {
            return false;
        };
        if self.items.len() > FEW {
            self.one_order();
        }
        if self.best.is_none() || self.items.len() <= FEW {
            let remaining: Vec<usize> = (0..self.items.len()).collect();
            let remaining = self.by_urgency(remaining);
            let mut prefix = self.empty_host();
            self.branch(&mut prefix, &mut Vec::new(), &remaining, 0.0, least);
        }
        self.best.is_some()
    }

    fn empty_host(&self) -> Host {
        Host {
            domains: Vec::new(),
            ..self.group.host.clone()
        }
    }

    fn by_urgency(&self, mut numbers: Vec<usize>) -> Vec<usize> {
        numbers.sort_by_key(|&number| self.items[number].urgency_ns);
        self.given_in_time(numbers)
    }

    fn is_spent(&self) -> bool {
        self.spent > self.effort.analyses || self.any_is_enough && self.best.is_some()
    }

    /// Puts a domain below those that are there, with the least budget that is enough; its share, or `None` if nothing
    /// is enough, and then the host is as it was.
    fn put_below(&mut self, host: &mut Host, number: usize, choice: Choice) -> Option<f64> {
        let item = &self.items[number];
        let above = host
            .domains
            .last()
            .map_or(0, |domain| domain.parameters.priority);
        let mut domain = item.domain.clone();
        let parameters = &mut domain.parameters;
        if item.open.priority {
            parameters.priority = above + 1;
        } else if parameters.priority < above {
            return None;
        }
        parameters.period_ns = choice.period_ns;
        let is_budget_open = item.open.budget && !domain.tasks.is_empty();
        host.domains.push(domain);
        let mut tried = 0;
        let found = match is_budget_open {
            true => least_budget(host, choice.alone_ns, &mut tried).is_some(),
            false => {
                tried += 1;
                is_guaranteed(host, host.domains.len() - 1)
            }
        };
        self.spent += tried * host.domains.len() as u64;
        if !found {
            host.domains.pop();
            return None;
        }
        host.domains.last().map(share)
    }

    /// Goes on from `prefix`, the domains `order` from the highest priority down, whose share is `used`. `least` is
    /// what those that remain need at least.
    fn branch(
        &mut self,
        prefix: &mut Host,
        order: &mut Vec<usize>,
        remaining: &[usize],
        used: f64,
        least: f64,
    ) {
        if remaining.is_empty() {
            self.take(prefix, order);
            return;
        }
        for (place, &number) in remaining.iter().enumerate() {
            let rest: Vec<usize> = (remaining[..place].iter())
                .chain(&remaining[place + 1..])
                .copied()
                .collect();
            let rest_least = least - self.items[number].least_share().unwrap_or(0.0);
            let mut any = false;
            let mut cut = false;
            for index in 0..self.items[number].choices.len() {
                let choice = self.items[number].choices[index];
                if self.is_spent() {
                    return;
                }
                if !self.is_worth(used + choice.alone_share + rest_least) {
                    cut = true;
                    break;
                }
                let Some(share) = self.put_below(prefix, number, choice) else {
                    continue;
                };
                any = true;
                if self.is_worth(used + share + rest_least) {
                    order.push(number);
                    self.branch(prefix, order, &rest, used + share, rest_least);
                    order.pop();
                }
                prefix.domains.pop();
            }
            if !any && !cut {
                return; // It fails here, and so it does further down.
            }
        }
    }

    /// Whether a total is better than the best so far, and fits.
    fn is_worth(&self, total: f64) -> bool {
        match &self.best {
            Some((best, _)) => total < best - TOLERANCE,
            None => total <= f64::from(self.group.host.cpus) + 1e-9,
        }
    }

    /// Takes a complete host if all of it is guaranteed together and better than the best so far.
    fn take(&mut self, host: &Host, order: &[usize]) {
        let mut host = host.clone();
        if !self.settle(&mut host, order) {
            return;
        }
        let total: f64 = host.domains.iter().map(share).sum();
        if self.is_worth(total) && fits(&host) {
            let found = order.iter().copied().zip(host.domains).collect();
            self.best = Some((total, found));
        }
    }

    /// Raises open budgets until all domains are guaranteed together. Where priorities differ and no domain shares its
    /// CPUs with itself, they are so already.
    fn settle(&mut self, host: &mut Host, order: &[usize]) -> bool {
        for _ in 0..ROUNDS_MAX {
            let mut settled = true;
            for (place, &number) in order.iter().enumerate() {
                let item = &self.items[number];
                self.spent += host.domains.len() as u64;
                if is_guaranteed(host, place) {
                    continue;
                }
                settled = false;
                let now_ns = host.domains[place].parameters.budget_ns;
                let mut tried = 0;
                let raised =
                    item.open.budget && least_budget_of(host, place, now_ns, &mut tried).is_some();
                self.spent += tried * host.domains.len() as u64;
                if !raised {
                    return false;
                }
            }
            if settled {
                return true;
            }
        }
        false
    }

    /// Many domains: from the highest priority down in one order, each with the period that costs it and those below
    /// least. One that fails goes first, and all begins anew.
    fn one_order(&mut self) {
        let mut order = self.by_urgency((0..self.items.len()).collect());
        let mut moved = 0;
        while moved <= self.items.len() && !self.is_spent() {
            let mut prefix = self.empty_host();
            let failed = (0..order.len()).find(|&place| {
                let below = order.len() - 1 - place;
                !self.put_best_below(&mut prefix, order[place], below)
            });
            let Some(failed) = failed else {
                self.take(&prefix, &order);
                return;
            };
            let number = order.remove(failed);
            order.insert(0, number);
            order = self.given_in_time(order);
            moved += 1;
        }
    }

    /// An order as near to this one as given priorities allow: each of these in its place among the others given, and
    /// before so many domains are above it that one of them would have its priority.
    fn given_in_time(&self, order: Vec<usize>) -> Vec<usize> {
        let given_of = |number: usize| self.items[number].domain.parameters.priority;
        let wanted = |number: usize| order.iter().position(|&other| other == number);
        let (open, mut given): (Vec<usize>, Vec<usize>) =
            (order.iter()).partition(|&&number| self.items[number].open.priority);
        given.sort_by_key(|&number| given_of(number));
        let (mut open, mut given) = (open.into_iter().peekable(), given.into_iter().peekable());
        let mut arranged = Vec::with_capacity(order.len());
        let mut above = 0;
        loop {
            let first = match (open.peek(), given.peek()) {
                (None, None) => return arranged,
                (Some(_), None) => false,
                (None, Some(_)) => true,
                (Some(&one), Some(&other)) => {
                    given_of(other) <= above + 1 || wanted(other) < wanted(one)
                }
            };
            let next = if first { given.next() } else { open.next() };
            if let Some(number) = next {
                above = if first { given_of(number) } else { above + 1 };
                arranged.push(number);
            }
        }
    }

    /// Puts a domain with the best of its periods below those that are there, and above `below` others, each of which
    /// pays a decision for every replenishment.
    fn put_best_below(&mut self, host: &mut Host, number: usize, below: usize) -> bool {
        let costs = &host.costs;
        let decision_ns = (costs.schedule.max_ns() + costs.context_switch.max_ns()) as f64;
        let paid = |choice: &Choice| below as f64 * decision_ns / choice.period_ns as f64;
        let mut choices = self.items[number].choices.clone();
        choices.sort_by(|one, other| {
            (one.alone_share + paid(one)).total_cmp(&(other.alone_share + paid(other)))
        });
        let mut best: Option<(f64, Domain)> = None;
        for choice in choices {
            let at_least = choice.alone_share + paid(&choice);
            if best
                .as_ref()
                .is_some_and(|(best, _)| at_least >= *best - TOLERANCE)
            {
                break;
            }
            let Some(share) = self.put_below(host, number, choice) else {
                continue;
            };
            let total = share + paid(&choice);
            let domain = host.domains.pop();
            if best.as_ref().is_none_or(|(best, _)| total < *best) {
                best = domain.map(|domain| (total, domain));
            }
        }
        match best {
            Some((_, domain)) => {
                host.domains.push(domain);
                true
            }
            None => false,
        }
    }

    /// Changes one period at a time, in the order that was found, as long as it is of use.
    fn refine(&mut self) {
        let mut improved = true;
        while improved && !self.is_spent() {
            improved = false;
            let Some((before, found)) = self.best.clone() else {
                return;
            };
            for place in 0..found.len() {
                if !self.items[found[place].0].open.period {
                    continue;
                }
                for factor in REFINEMENTS {
                    if self.is_spent() {
                        return;
                    }
                    let mut periods: Vec<(usize, i64)> = (found.iter())
                        .map(|(number, domain)| (*number, domain.parameters.period_ns))
                        .collect();
                    periods[place].1 = rounded((periods[place].1 as f64 * factor) as i64);
                    self.try_periods(&periods);
                }
            }
            if let Some((after, _)) = &self.best {
                improved = *after < before;
            }
        }
    }

    /// Tries these periods, in order of priority.
    fn try_periods(&mut self, periods: &[(usize, i64)]) {
        let mut host = self.empty_host();
        let mut used = 0.0;
        for &(number, period_ns) in periods {
            let item = &self.items[number];
            let needed: f64 = (item.domain.tasks.iter())
                .map(|task| task.cost_ns as f64 / task.period_ns as f64)
                .sum();
            let alone = needed / item.domain.vcpus.len() as f64 * period_ns as f64;
            let choice = Choice {
                period_ns,
                alone_ns: (alone as i64).max(1),
                alone_share: needed,
            };
            if !item.open.budget && item.domain.parameters.budget_ns > period_ns {
                return;
            }
            match self.put_below(&mut host, number, choice) {
                Some(share) => used += share,
                None => return,
            }
            if !self.is_worth(used) {
                return;
            }
        }
        let order: Vec<usize> = periods.iter().map(|&(number, _)| number).collect();
        self.take(&host, &order);
    }
}

fn item<'g>(host: &Host, domain: &'g Domain, open: &'g OpenDomain, effort: Effort) -> Item<'g> {
    let own = &domain.parameters;
    let mut alone = Host {
        domains: vec![domain.clone()],
        ..host.clone()
    };
    alone.domains[0].parameters.priority = 1;
    let periods = match open.period {
        true if domain.tasks.is_empty() => vec![rounded(own.budget_ns.max(1))],
        true => candidates(domain),
        false => vec![own.period_ns],
    };
    let mut choices: Vec<Choice> = (periods.into_iter())
        .filter_map(|period_ns| choice(&mut alone, open, period_ns))
        .collect();
    choices.sort_by(|one, other| {
        let period = other.period_ns.cmp(&one.period_ns);
        one.alone_share.total_cmp(&other.alone_share).then(period)
    });
    choices.truncate(effort.periods);
    let deadlines = domain.tasks.iter().map(|task| task.deadline_ns);
    Item {
        domain,
        open,
        choices,
        urgency_ns: deadlines.min().unwrap_or(i64::MAX),
    }
}

fn choice(alone: &mut Host, open: &OpenDomain, period_ns: i64) -> Option<Choice> {
    let domain = &mut alone.domains[0];
    domain.parameters.period_ns = period_ns;
    let load: f64 = (domain.tasks.iter())
        .map(|task| task.cost_ns as f64 / task.period_ns as f64)
        .sum();
    let alone_ns = if open.budget && !domain.tasks.is_empty() {
        let at_least = load / domain.vcpus.len() as f64 * period_ns as f64;
        least_budget(alone, (at_least as i64).max(1), &mut 0)?
    } else {
        let budget_ns = domain.parameters.budget_ns;
        if budget_ns > period_ns || !is_guaranteed(alone, 0) {
            return None;
        }
        budget_ns
    };
    Some(Choice {
        period_ns,
        alone_ns,
        alone_share: share(&alone.domains[0]),
    })
}
