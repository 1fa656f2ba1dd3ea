//! An observer of two hosts that detects violations without knowing the protocol: it sees the
//! output, each host's memory, and the tree of the guest's states.

use crate::protocol::{CheckpointId, Mode, Output};

use super::guest::{Image, Lineage, StateId};

/// A violated property.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Violation(pub String);

/// A checkpoint at its capture.
#[derive(Debug, Clone, Copy)]
pub(super) struct Taken {
    pub id: CheckpointId,
    pub state: StateId,
    /// Time at which the capture was complete; the guest was paused until then.
    pub settled_ns: i64,
    /// Whether its owner may take over.
    pub armed: bool,
    pub sent: bool,
}

/// An incarnation that runs the guest.
#[derive(Debug, Clone, Copy)]
struct Holder {
    term: u64,
    /// The checkpoint from which it runs, and its capture.
    from: Option<Taken>,
    /// Whether the previous holder handed over from that very checkpoint.
    handed_over: bool,
}

#[derive(Debug)]
pub(super) struct Observer {
    mode: Mode,
    /// Longest real time of a lease after a capture.
    lease_ns: i64,
    pub lineage: Lineage,
    taken: Vec<Taken>,
    holders: Vec<Holder>,
    /// The heard states with those in between, by depth: one line of descent.
    line: Vec<StateId>,
    /// The newest holder that was heard, and the time of its last output.
    heard: Option<(usize, i64)>,
    handed_over: Option<CheckpointId>,
    /// The highest term in which each host has let a guest run.
    activated: [u64; 2],
    /// Whether the settings promise nothing any more.
    pub is_off: bool,
    /// Number of states that were heard and then lost.
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

    /// The capture of the last checkpoint with this identity.
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

    /// A host acknowledges a checkpoint, with this image in its memory after carrying out its
    /// actions.
    pub fn acknowledge(&mut self, side: usize, id: CheckpointId, image: &Image) {
        let taken = self.taken(id);
        // The disk of a standby that may not take over yet is still being copied.
        let is_armed = taken.is_some_and(|taken| taken.armed);
        let state = if is_armed {
            image.whole_state()
        } else {
            image.state()
        };
        let Some(state) = state else {
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

    /// A host lets a guest run. Returns the number of the holder, and the state from which it runs.
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
            let state = image.whole_state();
            if state.is_none() || state != taken.map(|taken| taken.state) {
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

    /// A host goes back, by its operator's order, to a state that may be older than what was heard.
    pub fn go_back_to(&mut self, state: StateId) {
        let on_the_way = |(depth, &known): (usize, &StateId)| {
            depth as u32 <= self.lineage.depth(state)
                && self.lineage.before(state, depth as u32) == known
        };
        let common = self.line.iter().enumerate().rposition(on_the_way);
        self.line.truncate(common.map_or(0, |depth| depth + 1));
    }

    /// A host goes on with its own guest by its operator's order. Returns the number of the holder
    /// from now on.
    pub fn hold_again(&mut self, state: StateId) -> usize {
        self.go_back_to(state);
        self.holders.push(Holder {
            term: 0,
            from: None,
            handed_over: false,
        });
        self.holders.len() - 1
    }

    /// Another host lets a guest run, while this is the gate of the previous one, whose clock shows
    /// this time.
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

    /// The output of a state leaves a host; `other` is the checkpoint with which the other host
    /// could take over, if it could.
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

    /// A new holder is heard: heard states after the one from which it runs are lost, if that is
    /// permitted.
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
