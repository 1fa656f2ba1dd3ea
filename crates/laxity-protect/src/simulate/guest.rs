//! The model guest: a few pages, a disk and a device, all changed by every step, and the tree of all
//! states of all its incarnations.

use super::disk::{self, BLOCKS, Disk};

/// Number of pages of a guest.
pub(super) const PAGES: usize = 8;
/// Size of a page's number with its value.
const PAGE_BYTES: usize = 9;
/// Size of the state's number with the checksums of the pages and of the disk.
pub(super) const DEVICE_BYTES: usize = 24;

/// A state of the guest, by its place in [`Lineage`].
pub(super) type StateId = u32;

/// All states so far, each with its predecessor.
#[derive(Debug, Default)]
pub(super) struct Lineage {
    states: Vec<State>,
}

#[derive(Debug)]
struct State {
    parent: StateId,
    depth: u32,
    /// Whether its output has left.
    heard: bool,
}

impl Lineage {
    pub fn root(&mut self) -> StateId {
        let id = self.states.len() as StateId;
        self.states.push(State {
            parent: id,
            depth: 0,
            heard: false,
        });
        id
    }

    fn child(&mut self, parent: StateId) -> StateId {
        let id = self.states.len() as StateId;
        let depth = self.depth(parent) + 1;
        self.states.push(State {
            parent,
            depth,
            heard: false,
        });
        id
    }

    pub fn depth(&self, state: StateId) -> u32 {
        self.states[state as usize].depth
    }

    /// The ancestor of `state` at `depth`; the state itself if it is not that deep.
    pub fn before(&self, mut state: StateId, depth: u32) -> StateId {
        while self.depth(state) > depth {
            state = self.states[state as usize].parent;
        }
        state
    }

    /// Whether `state` is an ancestor of `later`, or the same.
    pub fn leads_to(&self, state: StateId, later: StateId) -> bool {
        self.before(later, self.depth(state)) == state
    }

    /// Notes that a state's output has left. Returns false if it had left before.
    pub fn hear(&mut self, state: StateId) -> bool {
        !std::mem::replace(&mut self.states[state as usize].heard, true)
    }
}

/// Memory, disk and device state, which may or may not belong together.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Image {
    pages: [u64; PAGES],
    pub disk: Disk,
    device: (u64, u64, u64),
}

impl Image {
    /// The state, if memory and devices are of the same one.
    pub fn state(&self) -> Option<StateId> {
        let (number, pages, _) = self.device;
        (pages == sum(&self.pages, number)).then_some(number as StateId)
    }

    /// The state, if the disk is of the same one, too.
    pub fn whole_state(&self) -> Option<StateId> {
        let (number, _, disk) = self.device;
        self.state().filter(|_| disk == sum(&self.disk, number))
    }

    /// Applies the parts of a checkpoint.
    pub fn patch(&mut self, ram: &[u8], device: &[u8], blocks: &[u8]) {
        for page in ram.chunks_exact(PAGE_BYTES) {
            let value = u64::from_le_bytes(page[1..].try_into().expect("eight bytes"));
            self.pages[usize::from(page[0]) % PAGES] = value;
        }
        if let Ok(device) = <[u8; DEVICE_BYTES]>::try_from(device) {
            let number =
                |at: usize| u64::from_le_bytes(device[at..at + 8].try_into().expect("eight"));
            self.device = (number(0), number(8), number(16));
        }
        disk::patch(&mut self.disk, blocks);
    }
}

fn sum(values: &[u64], number: u64) -> u64 {
    values.iter().fold(number, |sum, value| {
        (sum ^ value)
            .wrapping_mul(0x9E37_79B9_7F4A_7C15)
            .rotate_left(29)
    })
}

/// An incarnation of the guest on a host.
#[derive(Debug, Clone)]
pub(super) struct Guest {
    image: Image,
    changed: [bool; PAGES],
    pub state: StateId,
    /// Number of the activation, counted over the history.
    pub holder: usize,
    pub runs: bool,
    pub is_off: bool,
}

impl Guest {
    pub fn new(image: Image, state: StateId, holder: usize) -> Guest {
        Guest {
            image,
            changed: [true; PAGES],
            state,
            holder,
            runs: true,
            is_off: false,
        }
    }

    pub fn boot(lineage: &mut Lineage, holder: usize, disk: Disk) -> Guest {
        let image = Image {
            disk,
            ..Image::default()
        };
        let mut guest = Guest::new(image, lineage.root(), holder);
        guest.settle();
        guest
    }

    /// Moves to a new state, which no other incarnation reaches. Returns the block of the disk that
    /// it has written, with its value.
    pub fn step(&mut self, lineage: &mut Lineage) -> (usize, u64) {
        self.state = lineage.child(self.state);
        let number = u64::from(self.state);
        for page in [number % PAGES as u64, number / 3 % PAGES as u64] {
            self.image.pages[page as usize] = number;
            self.changed[page as usize] = true;
        }
        let block = (number / 2 % BLOCKS as u64) as usize;
        // There are few values, so that a block may get back what it had.
        let value = number.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 62;
        self.image.disk[block] = value;
        self.settle();
        (block, value)
    }

    fn settle(&mut self) {
        let number = u64::from(self.state);
        let Image { pages, disk, .. } = &self.image;
        self.image.device = (number, sum(pages, number), sum(disk, number));
    }

    /// Captures the parts of a checkpoint.
    pub fn capture(&mut self, full: bool) -> (Vec<u8>, Vec<u8>) {
        let mut ram = Vec::with_capacity(PAGES * PAGE_BYTES);
        for (page, value) in self.image.pages.iter().enumerate() {
            if full || self.changed[page] {
                ram.push(page as u8);
                ram.extend_from_slice(&value.to_le_bytes());
            }
        }
        self.changed = [false; PAGES];
        let (number, pages, disk) = self.image.device;
        let numbers = [number, pages, disk].map(u64::to_le_bytes);
        (ram, numbers.concat())
    }
}
