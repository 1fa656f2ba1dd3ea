//! The model disks: one for each host, which outlives its processes, and what the host with the
//! guest knows of the other host's.

/// Number of blocks of a disk.
pub(super) const BLOCKS: usize = 6;
/// Size of a block's number with its value.
const BLOCK_BYTES: usize = 9;
/// Most blocks that a checkpoint has of its own accord, before all of them are copied.
const PIECE: usize = 3;

/// The contents of a disk.
pub(super) type Disk = [u64; BLOCKS];

/// Writes the blocks of a checkpoint.
pub(super) fn patch(disk: &mut Disk, blocks: &[u8]) {
    for (block, value) in decode(blocks) {
        disk[block] = value;
    }
}

/// The sum of a block, as a message has it.
pub(super) fn sum(disk: &Disk, block: usize) -> Vec<u8> {
    encode(block, disk[block])
}

fn encode(block: usize, value: u64) -> Vec<u8> {
    let mut bytes = vec![block as u8];
    bytes.extend_from_slice(&value.to_le_bytes());
    bytes
}

fn decode(bytes: &[u8]) -> impl Iterator<Item = (usize, u64)> {
    bytes.chunks_exact(BLOCK_BYTES).map(|bytes| {
        let value = u64::from_le_bytes(bytes[1..].try_into().expect("eight bytes"));
        (usize::from(bytes[0]) % BLOCKS, value)
    })
}

/// The blocks that the other host's disk may have otherwise.
#[derive(Debug, Clone, Default)]
pub(super) struct Differences {
    /// Blocks of which nothing is known.
    unknown: [bool; BLOCKS],
    /// Blocks that belong to a coming checkpoint.
    differs: [bool; BLOCKS],
}

impl Differences {
    /// Nothing is known of the other host's disk.
    pub fn forget(&mut self) {
        self.unknown = [true; BLOCKS];
        self.differs = [false; BLOCKS];
    }

    /// A block is written here.
    pub fn note(&mut self, block: usize) {
        self.differs[block] = true;
    }

    /// Compares the sums of the other host's disk with the disk here.
    pub fn compare(&mut self, disk: &Disk, sums: &[u8]) {
        for (block, value) in decode(sums) {
            if std::mem::take(&mut self.unknown[block]) {
                self.differs[block] |= disk[block] != value;
            }
        }
    }

    /// The blocks for a checkpoint: all that differ, or the next few. Returns them with the number
    /// of those that are left.
    pub fn take(&mut self, disk: &Disk, all: bool) -> (Vec<u8>, usize) {
        let mut taken = Vec::new();
        let most = if all { BLOCKS } else { PIECE };
        let differing = (0..BLOCKS).filter(|&block| self.differs[block]);
        for block in differing.take(most).collect::<Vec<_>>() {
            self.differs[block] = false;
            taken.extend(encode(block, disk[block]));
        }
        let left = (0..BLOCKS).filter(|&block| self.unknown[block] || self.differs[block]);
        (taken, left.count())
    }
}
