//! The model network between two hosts: connections that keep the order of frames, unless a fault
//! prevents it.

use super::draw::Draw;

/// One of the two hosts.
pub(super) type Side = usize;

/// A connection of the transport.
#[derive(Debug, Clone)]
pub(super) struct Connection {
    /// Whether each side still uses the connection.
    pub open: [bool; 2],
    /// The process on each side.
    pub incarnations: [u64; 2],
    /// Number of the next frame from each side.
    pub sent: [u64; 2],
    /// Number of the next frame that each side takes.
    pub taken: [u64; 2],
    /// Arrival time of the last frame from each side.
    arrives_ns: [i64; 2],
    /// Time from which arriving frames of each side are lost.
    pub lost_from_ns: [i64; 2],
}

/// Damage to the next frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Damage {
    /// One bit is flipped.
    Flip,
    /// The frame ends early.
    Truncate,
    /// The frame arrives twice.
    Repeat,
}

#[derive(Debug, Default)]
pub(super) struct Network {
    pub connections: Vec<Connection>,
    /// Time until which no frame from each side gets through.
    pub cut_until_ns: [i64; 2],
    /// Time until which all frames are slow, and their additional delay.
    pub slow: (i64, i64),
    /// Time until which frames are lost, one of how many, and the time until one is sent again.
    pub lossy: (i64, usize, i64),
    /// Damage to the next frame from each side.
    pub damage: [Option<Damage>; 2],
}

/// Delays without faults, from and to.
const DELAY_NS: (i64, i64) = (50_000, 800_000);

impl Network {
    /// Makes a connection between two processes. Returns its number, and the time at which each
    /// side has it.
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

    /// Arrival time at the other side of what is sent now, after everything sent before; `None` if
    /// it never arrives.
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
        let mut delay_ns =
            draw.between(DELAY_NS.0, DELAY_NS.1) + if now_ns < until_ns { more_ns } else { 0 };
        let (until_ns, one_in, mut again_ns) = self.lossy;
        while now_ns + delay_ns < until_ns && draw.chance(one_in) {
            delay_ns += again_ns;
            again_ns *= 2;
        }
        delay_ns
    }
}
