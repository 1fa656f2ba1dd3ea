//! Who looks at two hosts from outside, and says what must never be seen. It knows nothing of the protocol:
//! it sees what leaves, what is in each host's memory, and the tree of the guest's states.

use crate::protocol::{CheckpointId, Mode, Output};

use super::guest::{Image, Lineage, StateId};

/// What must never be, and was.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Violation(pub String);

/// A checkpoint, as it was taken.
#[derive(Debug, Clone, Copy)]
pub(super) struct Taken {
    pub id: CheckpointId,
    pub state: StateId,
    /// When it was there; the guest stood still until then.
    pub settled_ns: i64,
    /// Whoever has it may take over.
    pub armed: bool,
    pub sent: bool,
}

/// One that runs a guest, after another.
#[derive(Debug, Clone, Copy)]
struct Holder {
    term: u64,
    /// From which it runs, and when that was taken.
    from: Option<Taken>,
    /// The one before handed over from that very checkpoint.
    handed_over: bool,
}

#[derive(Debug)]
pub(super) struct Observer {
    mode: Mode,
    /// Of real time, at most, after a checkpoint was taken.
    lease_ns: i64,
    pub lineage: Lineage,
    taken: Vec<Taken>,
    holders: Vec<Holder>,
    /// What was heard, with the states between: one line of states, by their depths.
    line: Vec<StateId>,
    /// The newest holder that was heard, and when last.
    heard: Option<(usize, i64)>,
    handed_over: Option<CheckpointId>,
    /// The highest term in which each host has let a guest run.
    activated: [u64; 2],
    /// The settings promise nothing any more.
    pub is_off: bool,
    /// States that were heard, and then were none.
    pub lost_states: u64,
    pub violation: Option<Violation>,
}

impl Observer {
    pub fn new(mode: Mode, lease_ns: i64) -> Observer {
        Observer {
            mode,
            lease_ns,
            lineage: Lineage::default(),
            taken: Vec::new(),
            holders: Vec::new(),
            line: Vec::new(),
            heard: None,
            handed_over: None,
            activated: [0; 2],
            is_off: false,
            lost_states: 0,
            violation: None,
        }
    }

    pub fn complain(&mut self, what: impl FnOnce() -> String) {
        if self.violation.is_none() {
            self.violation = Some(Violation(what()));
        }
    }

    pub fn take(&mut self, taken: Taken) {
        if let Some(before) = self.taken.last().copied()
            && before.id.term == taken.id.term
            && before.id.number + 1 != taken.id.number
        {
            self.complain(|| format!("{} was taken after {}", taken.id, before.id));
        }
        self.taken.push(taken);
    }

    /// Of the last checkpoint of this name.
    pub fn taken(&self, id: CheckpointId) -> Option<Taken> {
        self.taken
            .iter()
            .rev()
            .copied()
            .find(|taken| taken.id == id)
    }

    pub fn send(&mut self, id: CheckpointId, arms: bool) {
        if let Some(taken) = self.taken.iter_mut().rev().find(|taken| taken.id == id) {
            taken.sent = true;
            taken.armed = arms;
        }
    }

    pub fn is_sent(&self, id: CheckpointId) -> bool {
        self.taken(id).is_some_and(|taken| taken.sent)
    }

    pub fn is_handed_over(&self, id: CheckpointId) -> bool {
        self.handed_over == Some(id)
    }

    pub fn hand_over(&mut self, id: CheckpointId) {
        self.handed_over = Some(id);
    }

    /// A host acknowledges, with this in its memory when it does as it says.
    pub fn acknowledge(&mut self, side: usize, id: CheckpointId, image: &Image) {
        let taken = self.taken(id);
        let Some(state) = image.state() else {
            return self.complain(|| format!("{id} was acknowledged by halves"));
        };
        if taken.is_none_or(|taken| taken.state != state) {
            self.complain(|| format!("{id} was acknowledged, and it is not that"));
        }
        if id.term < self.activated[side] {
            let activated = self.activated[side];
            self.complain(|| format!("{id} was acknowledged after activation in term {activated}"));
        }
    }

    /// A host lets a guest run; its number as a holder, and the state that it runs from.
    pub fn activate(
        &mut self,
        side: usize,
        term: u64,
        from: Option<(CheckpointId, Image)>,
        promised: Option<CheckpointId>,
    ) -> (usize, Option<StateId>) {
        if let Some(before) = self.holders.iter().find(|holder| holder.term >= term) {
            let before = before.term;
            self.complain(|| format!("activated in term {term} after term {before}"));
        }
        let mut taken = None;
        if let Some((id, image)) = from {
            taken = self.taken(id);
            if image.state().is_none() || image.state() != taken.map(|taken| taken.state) {
                self.complain(|| format!("half a checkpoint runs, for {id}"));
            }
            if !taken.is_some_and(|taken| taken.armed) {
                self.complain(|| format!("{id} runs, which arms nobody"));
            }
            if promised.is_some_and(|promised| promised > id) {
                self.complain(|| format!("{id} runs, and a later one was acknowledged"));
            }
        }
        self.activated[side] = term;
        self.holders.push(Holder {
            term,
            from: taken,
            handed_over: taken.is_some() && taken.map(|taken| taken.id) == self.handed_over,
        });
        (self.holders.len() - 1, taken.map(|taken| taken.state))
    }

    /// By its operator's word a host goes on from a state that may be older than what was heard.
    pub fn go_back_to(&mut self, state: StateId) {
        let on_the_way = |(depth, &known): (usize, &StateId)| {
            depth as u32 <= self.lineage.depth(state)
                && self.lineage.before(state, depth as u32) == known
        };
        let common = self.line.iter().enumerate().rposition(on_the_way);
        self.line.truncate(common.map_or(0, |depth| depth + 1));
    }

    /// A host goes on with a guest that it had, by its operator's word; its number as a holder from now on.
    pub fn hold_again(&mut self, state: StateId) -> usize {
        self.go_back_to(state);
        self.holders.push(Holder {
            term: 0,
            from: None,
            handed_over: false,
        });
        self.holders.len() - 1
    }

    /// Another host lets a guest run, while this is the gate of the one before, whose clock shows this.
    pub fn watch_gate(&mut self, output: Output, clock_ns: i64) {
        let can_be_heard = match output {
            Output::Open => true,
            Output::Until { deadline_ns } => clock_ns < deadline_ns,
            Output::Hold | Output::Closed => false,
        };
        if can_be_heard && !self.is_off {
            self.complain(|| {
                format!("activated while the other could still be heard ({output:?})")
            });
        }
    }

    /// The output of a state leaves, from a host beside which another could take over with a checkpoint, or
    /// none could.
    pub fn hear(&mut self, now_ns: i64, holder: usize, state: StateId, other: Option<StateId>) {
        if self.is_off {
            return;
        }
        if !self.lineage.hear(state) {
            self.complain(|| format!("state {state} was heard twice"));
        }
        if self.mode == Mode::Net && other.is_some_and(|other| !self.lineage.leads_to(state, other))
        {
            self.complain(|| format!("state {state} was heard without its checkpoint"));
        }
        match self.heard {
            Some((newest, _)) if holder < newest => {
                if self.mode == Mode::NoNet {
                    self.complain(|| format!("holder {holder} was heard after {newest}"));
                }
            }
            Some((newest, last_ns)) if holder > newest => {
                for next in newest + 1..=holder {
                    self.go_on(self.holders[next], last_ns);
                }
                self.heard = Some((holder, now_ns));
            }
            _ => self.heard = Some((holder, now_ns)),
        }
        let depth = self.lineage.depth(state);
        if let Some(&tip) = self.line.last() {
            let (early, late) = if depth < self.line.len() as u32 {
                (state, tip)
            } else {
                (tip, state)
            };
            if !self.lineage.leads_to(early, late) {
                self.complain(|| {
                    format!("two are heard: states {early} and {late} are not of one line")
                });
            }
        }
        let known = self.line.len();
        let mut at = state;
        for depth in (known as u32..=depth).rev() {
            at = self.lineage.before(at, depth);
            self.line.push(at);
        }
        self.line[known..].reverse();
    }

    /// A new holder is heard: what was heard of states after that from which it runs is lost, if it may be.
    fn go_on(&mut self, holder: Holder, last_ns: i64) {
        let Some(from) = holder.from else { return };
        let kept = self.lineage.depth(from.state) as usize + 1;
        let lost = self.line.len().saturating_sub(kept);
        if lost == 0 || self.mode == Mode::Net {
            return;
        }
        if holder.handed_over {
            self.complain(|| format!("a switchover lost {lost} states"));
        }
        let span_ns = last_ns - from.settled_ns;
        if span_ns > self.lease_ns {
            let lease_ns = self.lease_ns;
            self.complain(|| format!("{span_ns} ns were lost, where a lease is {lease_ns} ns"));
        }
        self.lost_states += lost as u64;
        self.line.truncate(kept);
    }
}
