//! The model of the network between two hosts: connections that keep their order, until they do not.

use super::Draw;

/// One of the two hosts.
pub(super) type Side = usize;

/// A connection, as the transport has it.
#[derive(Debug, Clone)]
pub(super) struct Connection {
    /// Whether a side still uses it.
    pub open: [bool; 2],
    /// The process on each side.
    pub incarnations: [u64; 2],
    /// The number of the next frame from each side.
    pub sent: [u64; 2],
    /// The number of the next frame that a side takes.
    pub taken: [u64; 2],
    /// When the last thing from each side arrives.
    arrives_ns: [i64; 2],
    /// What arrives later from that side is lost.
    pub lost_from_ns: [i64; 2],
}

/// What becomes of the next frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Damage {
    /// One of its bits is another.
    Flip,
    /// It ends early.
    Truncate,
    /// It comes twice.
    Repeat,
}

#[derive(Debug, Default)]
pub(super) struct Network {
    pub connections: Vec<Connection>,
    /// Until when nothing gets through from each side.
    pub cut_until_ns: [i64; 2],
    /// Until when everything takes longer, and by how much.
    pub slow: (i64, i64),
    /// What becomes of the next frame from each side.
    pub damage: [Option<Damage>; 2],
}

/// Of a way without delays.
const DELAY_NS: (i64, i64) = (50_000, 800_000);

impl Network {
    /// A new connection between two processes; its number, and when each side has it.
    pub fn connect(
        &mut self,
        now_ns: i64,
        incarnations: [u64; 2],
        draw: &mut Draw,
    ) -> Option<(usize, [i64; 2])> {
        if self.cut_until_ns.iter().any(|&until_ns| until_ns > now_ns) {
            return None;
        }
        let there_ns = now_ns + self.delay_ns(now_ns, draw);
        let back_ns = there_ns + self.delay_ns(now_ns, draw);
        self.connections.push(Connection {
            open: [false; 2],
            incarnations,
            sent: [0; 2],
            taken: [0; 2],
            arrives_ns: [there_ns, back_ns],
            lost_from_ns: [i64::MAX; 2],
        });
        Some((self.connections.len() - 1, [back_ns, there_ns]))
    }

    /// When what is sent now arrives at the other side, behind what was sent before; nothing, if it never
    /// does.
    pub fn arrival_ns(
        &mut self,
        now_ns: i64,
        connection: usize,
        from: Side,
        draw: &mut Draw,
    ) -> Option<i64> {
        let delay_ns = self.delay_ns(now_ns, draw);
        let connection = &mut self.connections[connection];
        let arrives_ns =
            (now_ns.max(self.cut_until_ns[from]) + delay_ns).max(connection.arrives_ns[from] + 1);
        connection.arrives_ns[from] = arrives_ns;
        (arrives_ns <= connection.lost_from_ns[from]).then_some(arrives_ns)
    }

    fn delay_ns(&self, now_ns: i64, draw: &mut Draw) -> i64 {
        let (until_ns, more_ns) = self.slow;
        draw.between(DELAY_NS.0, DELAY_NS.1) + if now_ns < until_ns { more_ns } else { 0 }
    }
}
