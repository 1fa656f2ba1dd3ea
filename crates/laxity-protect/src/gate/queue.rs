//! Output that waits for its checkpoint.

use std::collections::VecDeque;
use std::time::Instant;

/// A held frame.
#[derive(Debug)]
pub struct Held {
    /// The frame.
    pub frame: Vec<u8>,
    /// Time at which the guest sent it.
    pub since: Instant,
    /// The checkpoint that it waits for; `None` stands for that of the current epoch.
    checkpoint: Option<u64>,
}

/// Bytes of memory that a held frame takes: more than its own, of which a guest may send none.
fn bytes_of(frame: &[u8]) -> usize {
    size_of::<Held>() + frame.len()
}

/// Frames in the order in which the guest sent them, each with the checkpoint that must be safe
/// before it may leave.
#[derive(Debug)]
pub struct Queue {
    held: VecDeque<Held>,
    bytes: usize,
    bytes_max: usize,
    dropped: u64,
}

impl Queue {
    /// A queue that takes at most `bytes_max` bytes of memory.
    pub fn new(bytes_max: usize) -> Queue {
        Queue {
            held: VecDeque::new(),
            bytes: 0,
            bytes_max,
            dropped: 0,
        }
    }

    /// Holds a frame. A frame without room is dropped and counted: the guest and its clients see a
    /// frame that the network lost.
    pub fn push(&mut self, frame: Vec<u8>) {
        if self.bytes + bytes_of(&frame) > self.bytes_max {
            self.dropped += 1;
            return;
        }
        self.bytes += bytes_of(&frame);
        self.held.push_back(Held {
            frame,
            since: Instant::now(),
            checkpoint: None,
        });
    }

    /// Ends an epoch: frames that came since the end of the last one wait for this checkpoint.
    pub fn cut(&mut self, checkpoint: u64) {
        let open = self
            .held
            .iter_mut()
            .rev()
            .take_while(|held| held.checkpoint.is_none());
        for held in open {
            held.checkpoint = Some(checkpoint);
        }
    }

    /// The next frame that may leave when this checkpoint and all before it are safe.
    pub fn pop(&mut self, checkpoint: u64) -> Option<Held> {
        let waits_for = self.held.front()?.checkpoint?;
        if waits_for > checkpoint {
            return None;
        }
        self.pop_any()
    }

    /// The next frame, whatever it waits for.
    pub fn pop_any(&mut self) -> Option<Held> {
        let held = self.held.pop_front()?;
        self.bytes -= bytes_of(&held.frame);
        Some(held)
    }

    /// Drops all held frames.
    pub fn clear(&mut self) {
        self.held.clear();
        self.bytes = 0;
    }

    /// Number of waiting frames.
    pub fn len(&self) -> usize {
        self.held.len()
    }

    /// Whether no frame waits.
    pub fn is_empty(&self) -> bool {
        self.held.is_empty()
    }

    /// Number of frames that were dropped for lack of room.
    pub fn dropped(&self) -> u64 {
        self.dropped
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn leaves(queue: &mut Queue, checkpoint: u64) -> Vec<u8> {
        std::iter::from_fn(|| queue.pop(checkpoint))
            .map(|held| held.frame[0])
            .collect()
    }

    #[test]
    fn nothing_leaves_before_its_checkpoint() {
        let mut queue = Queue::new(1_000);
        queue.push(vec![1]);
        queue.push(vec![2]);
        assert_eq!(
            leaves(&mut queue, u64::MAX),
            [0; 0],
            "the epoch has not ended"
        );
        queue.cut(7);
        queue.push(vec![3]);
        assert_eq!(leaves(&mut queue, 6), [0; 0]);
        assert_eq!(leaves(&mut queue, 7), [1, 2]);
        queue.cut(8);
        queue.cut(9);
        queue.push(vec![4]);
        queue.cut(10);
        assert_eq!(leaves(&mut queue, 10), [3, 4]);
        assert!(queue.is_empty());
    }

    #[test]
    fn it_is_bounded() {
        let mut queue = Queue::new(10 + 2 * size_of::<Held>());
        queue.push(vec![0; 6]);
        queue.push(vec![0; 5]);
        queue.push(vec![0; 4]);
        assert_eq!((queue.len(), queue.dropped()), (2, 1));
        queue.cut(1);
        assert!(queue.pop(1).is_some());
        queue.push(vec![0; 6]);
        assert_eq!((queue.len(), queue.dropped()), (2, 1));
        queue.clear();
        queue.push(vec![0; 10]);
        assert_eq!((queue.len(), queue.dropped()), (1, 1));
    }

    /// Frames without a byte take memory, too.
    #[test]
    fn empty_frames_are_bounded() {
        let mut queue = Queue::new(1_000);
        for _ in 0..1_000 {
            queue.push(Vec::new());
        }
        assert!(queue.len() <= 1_000 / size_of::<Held>(), "{}", queue.len());
    }
}
