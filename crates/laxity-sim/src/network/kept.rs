//! The packets of some streams, kept for their voice quality.

use laxity_run::{KeptStream, LOST};

/// A stream is kept in pieces of this many packets at most: 30 s of G.711, as long as the calls of the papers.
pub const PIECE_PACKETS: u32 = 1500;

/// Largest number of pieces that are kept; 12 MB.
const PIECES_MAX: usize = 1000;

/// The streams that are kept. When there are too many, every second one is forgotten, and half as many are kept from
/// then on.
pub struct Keeper {
    /// One piece in this many is kept.
    stride: u64,
    offered: u64,
    /// In the order in which they began. Pieces that have not ended are among them.
    pieces: Vec<(u64, KeptStream)>,
}

impl Keeper {
    /// One of `sample`.
    pub fn new(sample: u32) -> Keeper {
        Keeper {
            stride: u64::from(sample),
            offered: 0,
            pieces: Vec::new(),
        }
    }

    /// A stream, or a further piece of one, begins; answers under what number it is kept, if it is.
    pub fn begin(&mut self, stream: u64, call: Option<u64>, start_ns: i64) -> Option<u64> {
        let number = self.offered;
        self.offered += 1;
        if !number.is_multiple_of(self.stride) {
            return None;
        }
        if self.pieces.len() == PIECES_MAX {
            self.stride *= 2;
            let stride = self.stride;
            self.pieces
                .retain(|(number, _)| number.is_multiple_of(stride));
            if !number.is_multiple_of(stride) {
                return None;
            }
        }
        let piece = KeptStream {
            stream,
            call,
            start_ns,
            arrived_ns: Vec::new(),
        };
        self.pieces.push((number, piece));
        Some(number)
    }

    fn piece(&mut self, number: u64) -> Option<&mut KeptStream> {
        let at = self
            .pieces
            .binary_search_by_key(&number, |(number, _)| *number);
        at.ok().map(|at| &mut self.pieces[at].1)
    }

    /// The next packet of the piece is sent.
    pub fn sent(&mut self, number: u64) {
        if let Some(piece) = self.piece(number) {
            piece.arrived_ns.push(LOST);
        }
    }

    /// The `place`th packet of the piece has arrived.
    pub fn arrived(&mut self, number: u64, place: u32, now: i64) {
        if let Some(piece) = self.piece(number) {
            piece.arrived_ns[place as usize] = now;
        }
    }

    /// What was kept. `cut_ns`: what was sent later may still be on its way, and is left out.
    pub fn finish(self, interval_ns: i64, cut_ns: i64) -> Vec<KeptStream> {
        let pieces = self.pieces.into_iter().map(|(_, mut piece)| {
            let whole = (cut_ns - piece.start_ns).max(-1) / interval_ns + 1;
            piece.arrived_ns.truncate(whole.max(0) as usize);
            piece
        });
        pieces
            .filter(|piece| !piece.arrived_ns.is_empty())
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_of_four_is_kept_and_memory_is_bounded() {
        let mut keeper = Keeper::new(4);
        let kept: Vec<bool> = (0..8)
            .map(|call| keeper.begin(call, None, 0).is_some())
            .collect();
        assert_eq!(kept, [true, false, false, false, true, false, false, false]);
        for call in 8..100_000 {
            keeper.begin(call, None, 0);
            assert!(keeper.pieces.len() <= PIECES_MAX);
        }
        let calls: Vec<u64> = keeper
            .pieces
            .iter()
            .map(|(_, piece)| piece.stream)
            .collect();
        let stride = keeper.stride;
        assert!(calls.len() > PIECES_MAX / 2 - 1);
        assert!(
            calls
                .iter()
                .enumerate()
                .all(|(place, call)| *call == place as u64 * stride)
        );
    }

    #[test]
    fn what_arrived_and_what_is_still_on_its_way() {
        let mut keeper = Keeper::new(1);
        let number = keeper.begin(7, Some(3), 1000).expect("all are kept");
        for _ in 0..PIECE_PACKETS {
            keeper.sent(number);
        }
        keeper.arrived(number, 1, 1030);
        let kept = keeper.finish(20, 1045);
        assert_eq!(kept.len(), 1);
        assert_eq!((kept[0].stream, kept[0].start_ns), (7, 1000));
        assert_eq!(kept[0].arrived_ns, [LOST, 1030, LOST]);
    }
}
