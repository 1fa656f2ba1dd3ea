//! Periods and offsets with which a task could be, as far as wakes tell.

use crate::busy::Busy;
use std::collections::BTreeMap;

/// Wakes from which periods are taken: those after them only confirm.
const WAKES: usize = 512;
/// A wake is compared with so many after it.
const LAG: usize = 48;
/// Wakes that a periodic task causes at least.
const HITS_MIN: usize = 3;
/// Candidates with which a new one is compared: those of nearly its period come right before it.
const RECENT: usize = 64;
/// One arrival in so many may be where the VCPU slept.
const ARRIVALS_PER_MISS: usize = 100;

/// Into so many parts the periods of candidates are divided at most.
const PARTS_MAX: u32 = 16;
/// Periods are more than so many times as long as wakes are inexact.
const LEAST_PERIOD: f64 = 4.0;

/// Arrivals that are evenly spaced and never fall on a time at which the VCPU slept.
#[derive(Debug, Clone)]
pub struct Candidate {
    pub offset_ns: f64,
    pub period_ns: f64,
    /// The busy periods that begin with an arrival.
    pub hits: Vec<u32>,
    pub arrivals: usize,
    /// How far from its arrival a hit wakes at most.
    pub jitter_ns: f64,
    /// How far before its arrival a hit wakes at most.
    pub early_ns: f64,
}

impl Candidate {
    /// Whether it is the one of about this period that has an arrival at the wake of a busy period.
    fn is_of(&self, period_ns: f64, anchor: u32, tolerance_ns: i64) -> bool {
        (self.period_ns - period_ns).abs() * self.arrivals as f64 <= 2.0 * tolerance_ns as f64
            && self.hits.binary_search(&anchor).is_ok()
    }
}

/// All candidates, where wakes come up to `tolerance_ns` from arrivals, and busy periods with no more work than
/// `trifle` ns begin with none. `busy` is in order, up to `end_ns`.
pub fn candidates(busy: &[Busy], end_ns: i64, tolerance_ns: i64, trifle: f64) -> Vec<Candidate> {
    let wakes: Vec<(usize, i64)> = (busy.iter().enumerate())
        .filter(|(_, busy)| busy.start_ns > 0 && busy.work_ns as f64 > trifle)
        .map(|(index, busy)| (index, busy.start_ns))
        .take(WAKES)
        .collect();
    let mut differences: Vec<(i64, usize)> = Vec::new();
    for (place, &(index, from_ns)) in wakes.iter().enumerate() {
        for &(_, to_ns) in wakes[place + 1..].iter().take(LAG) {
            differences.push((to_ns - from_ns, index));
        }
    }
    differences.sort_unstable();
    let mut found: Vec<Candidate> = Vec::new();
    let mut at = 0;
    while at < differences.len() {
        let least_ns = differences[at].0;
        let count = differences[at..].partition_point(|&(ns, _)| ns <= least_ns + 2 * tolerance_ns);
        let group = &differences[at..at + count];
        at += count;
        if count + 1 < HITS_MIN || least_ns as f64 <= LEAST_PERIOD * tolerance_ns as f64 {
            continue;
        }
        let period_ns = group[count / 2].0;
        let mut hit = std::collections::HashSet::new();
        for &(_, anchor) in group {
            if hit.contains(&(anchor as u32)) {
                continue;
            }
            let is_known =
                |known: &Candidate| known.is_of(period_ns as f64, anchor as u32, tolerance_ns);
            if found.iter().rev().take(RECENT).any(is_known) {
                continue;
            }
            if let Some(candidate) = follow(busy, end_ns, anchor, (period_ns, count), tolerance_ns)
            {
                hit.extend(candidate.hits.iter().copied());
                found.push(candidate);
            }
        }
    }
    found
}

/// Candidates whose periods are whole parts of those of `whole`, which [`candidates`] found with the same tolerance. A
/// task whose jobs mostly find the VCPU awake may have no two wakes with its period between them. It wakes the VCPU
/// whenever all tasks are as they were at another of its wakes: the candidate of these has no other arrivals.
pub fn parts(busy: &[Busy], end_ns: i64, whole: &[Candidate], tolerance_ns: i64) -> Vec<Candidate> {
    let place = |period_ns: f64| period_ns as i64 / tolerance_ns;
    // By their periods, since there may be thousands.
    let mut known: BTreeMap<i64, Vec<Candidate>> = BTreeMap::new();
    for candidate in whole {
        let alike = known.entry(place(candidate.period_ns)).or_default();
        alike.push(candidate.clone());
    }
    let mut found: Vec<Candidate> = Vec::new();
    // What is awake at the start of the trace has no wake there.
    let always_wakes = |candidate: &&Candidate| candidate.hits.len() + 1 >= candidate.arrivals;
    for candidate in whole.iter().filter(always_wakes) {
        let anchor = candidate.hits[0];
        for part in 2..=PARTS_MAX {
            let period_ns = candidate.period_ns / f64::from(part);
            if period_ns <= LEAST_PERIOD * tolerance_ns as f64 {
                break;
            }
            let near = place(period_ns) - 1..=place(period_ns) + 1;
            let is_it = |known: &Candidate| known.is_of(period_ns, anchor, tolerance_ns);
            if known.range(near).any(|(_, alike)| alike.iter().any(is_it)) {
                continue;
            }
            let told = (period_ns.round() as i64, candidate.hits.len());
            if let Some(part) = follow(busy, end_ns, anchor as usize, told, tolerance_ns) {
                let alike = known.entry(place(part.period_ns)).or_default();
                alike.push(part.clone());
                found.push(part);
            }
        }
    }
    found
}

/// A straight line through what wakes tell of a period and a phase, in least squares.
struct Line {
    about_ns: f64,
    /// The number of observations, and the sums of arrival numbers, of their squares, of deviations from `about_ns`,
    /// and of products of both.
    count: f64,
    numbers: f64,
    squares: f64,
    deviations: f64,
    products: f64,
}

impl Line {
    /// A period that so many distances between wakes told, and an arrival at 0.
    fn new(about_ns: f64, told: f64) -> Line {
        Line {
            about_ns,
            count: 1.0,
            numbers: 0.0,
            squares: told,
            deviations: 0.0,
            products: 0.0,
        }
    }

    /// Arrival `number` was at `time_ns`.
    fn learn(&mut self, number: f64, time_ns: f64) {
        let deviation_ns = time_ns - number * self.about_ns;
        self.count += 1.0;
        self.numbers += number;
        self.squares += number * number;
        self.deviations += deviation_ns;
        self.products += number * deviation_ns;
    }

    /// The time of arrival 0, and the period.
    fn told(&self) -> (f64, f64) {
        let determinant = self.count * self.squares - self.numbers * self.numbers;
        let zero_ns = (self.squares * self.deviations - self.numbers * self.products) / determinant;
        let more_ns = (self.count * self.products - self.numbers * self.deviations) / determinant;
        (zero_ns, self.about_ns + more_ns)
    }
}

/// Goes from the wake of a busy period to the arrivals before and after it, as long as none falls on sleep. Each hit
/// makes the period more exact, of which `told` distances near `about_ns` are known.
fn follow(
    busy: &[Busy],
    end_ns: i64,
    anchor: usize,
    (about_ns, told): (i64, usize),
    tolerance_ns: i64,
) -> Option<Candidate> {
    let anchor_ns = busy[anchor].start_ns;
    let near_ns = 2.0 * tolerance_ns as f64;
    let mut line = Line::new(about_ns as f64, told as f64);
    let mut hits = vec![(0_i64, anchor)];
    let (mut arrivals, mut misses) = (1, 0);
    for direction in [1_i64, -1] {
        let mut number = direction;
        loop {
            let (zero_ns, period_ns) = line.told();
            let after_ns = zero_ns + number as f64 * period_ns;
            let arrival_ns = anchor_ns as f64 + after_ns;
            if arrival_ns < 0.0 || arrival_ns >= end_ns as f64 {
                break;
            }
            arrivals += 1;
            // The first busy period that begins after the arrival, or near it.
            let next = busy.partition_point(|busy| (busy.start_ns as f64) < arrival_ns - near_ns);
            let off_ns = |place: usize| {
                (busy.get(place).filter(|busy| busy.start_ns > 0)).map_or(f64::INFINITY, |busy| {
                    (busy.start_ns as f64 - arrival_ns).abs()
                })
            };
            // The nearest, where several are near.
            let mut place = next;
            while off_ns(place + 1) < off_ns(place) {
                place += 1;
            }
            if off_ns(place) <= near_ns {
                hits.push((number, place));
                line.learn(number as f64, (busy[place].start_ns - anchor_ns) as f64);
            } else if is_awake(busy, next, arrival_ns, near_ns) {
                // All arrivals up to the next wake, or to the one before, are alike: a VCPU that is awake for hours
                // has too many to look at each.
                let (from_ns, to_ns) = awake(busy, next, near_ns, end_ns);
                let ahead_ns = match direction {
                    1 => to_ns - arrival_ns,
                    _ => arrival_ns - from_ns,
                };
                // One less than there are, for what rounding does.
                let alike = (ahead_ns / period_ns - 1.0).max(0.0) as i64;
                arrivals += alike as usize;
                number += direction * alike;
            } else {
                misses += 1;
                if misses * ARRIVALS_PER_MISS > arrivals.max(ARRIVALS_PER_MISS / 2) {
                    return None;
                }
            }
            number += direction;
        }
    }
    if misses * ARRIVALS_PER_MISS > arrivals
        || !is_no_accident(busy, end_ns, hits.len(), arrivals, near_ns)
    {
        return None;
    }
    Some(candidate(busy, &hits, arrivals))
}

/// Whether the VCPU is busy at an arrival, or nearly so. `next` is the first busy period that does not begin well
/// before it.
fn is_awake(busy: &[Busy], next: usize, arrival_ns: f64, near_ns: f64) -> bool {
    let before = next
        .checked_sub(1)
        .is_some_and(|before| arrival_ns < busy[before].end_ns as f64 + near_ns);
    // What begins at 0 began before.
    before
        || (busy.get(next))
            .is_some_and(|busy| busy.start_ns == 0 && arrival_ns < busy.end_ns as f64)
}

/// The time from the wake before `next`, the first busy period that does not begin well before an arrival, to the block
/// or to that of `next`, without what is near to a wake.
fn awake(busy: &[Busy], next: usize, near_ns: f64, end_ns: i64) -> (f64, f64) {
    let wake_ns = busy.get(next).map_or(end_ns, |busy| busy.start_ns) as f64;
    let Some(before) = next.checked_sub(1).map(|before| busy[before]) else {
        return (0.0, 0.0);
    };
    let asleep_ns = before.end_ns.min(end_ns) as f64;
    (
        before.start_ns as f64 + near_ns,
        asleep_ns.min(wake_ns - near_ns),
    )
}

/// Whether so many arrivals are unlikely to be near wakes that have nothing to do with them.
fn is_no_accident(busy: &[Busy], end_ns: i64, hits: usize, arrivals: usize, near_ns: f64) -> bool {
    let chance = (busy.len() as f64 * 2.0 * near_ns / end_ns as f64).min(1.0);
    let expected = chance * arrivals as f64;
    // Two hits are what made the candidate.
    hits >= HITS_MIN && hits as f64 - 2.0 > expected + 4.0 * (expected * (1.0 - chance)).sqrt()
}

/// What all hits together tell.
fn candidate(busy: &[Busy], hits: &[(i64, usize)], arrivals: usize) -> Candidate {
    let first_ns = busy[hits[0].1].start_ns;
    let (last, last_ns) = (hits.iter())
        .map(|&(number, place)| (number as f64, (busy[place].start_ns - first_ns) as f64))
        .max_by(|a, b| a.0.abs().total_cmp(&b.0.abs()))
        .unwrap_or((1.0, 1.0));
    let mut line = Line::new(last_ns / last, 0.0);
    for &(number, place) in &hits[1..] {
        line.learn(number as f64, (busy[place].start_ns - first_ns) as f64);
    }
    let (zero_ns, period_ns) = line.told();
    let zero_ns = zero_ns + first_ns as f64;
    let late_ns = |&(number, place): &(i64, usize)| {
        busy[place].start_ns as f64 - zero_ns - number as f64 * period_ns
    };
    let early_ns = hits.iter().map(|hit| -late_ns(hit)).fold(0.0, f64::max);
    let jitter_ns = hits.iter().map(late_ns).fold(early_ns, f64::max);
    // An arrival that is nearly at 0 is at 0.
    let before = (zero_ns / period_ns + (jitter_ns + 1.0) / period_ns).floor();
    let mut hits: Vec<u32> = hits.iter().map(|&(_, place)| place as u32).collect();
    hits.sort_unstable();
    Candidate {
        offset_ns: (zero_ns - before * period_ns).max(0.0),
        period_ns,
        hits,
        arrivals,
        jitter_ns,
        early_ns,
    }
}
