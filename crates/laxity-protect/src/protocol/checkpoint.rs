//! Checkpoints: what names one, what tells a whole one from a part, and the staging of one that arrives.

use std::fmt;

/// A term and a number in it. The numbers of a guest's life go up by one; a term belongs to one holder.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CheckpointId {
    /// The holder's, who took it.
    pub term: u64,
    /// One more than that of the checkpoint before.
    pub number: u64,
}

impl fmt::Display for CheckpointId {
    fn fmt(&self, formatter: &mut fmt::Formatter) -> fmt::Result {
        write!(formatter, "{}/{}", self.term, self.number)
    }
}

/// What goes before a checkpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header {
    /// Which one.
    pub id: CheckpointId,
    /// All of the memory; otherwise what has changed since the checkpoint before.
    pub full: bool,
    /// Who has it may take over. Not so the first ones, while the primary's output still leaves freely.
    pub arms: bool,
    /// Of memory that follow, as the sender wrote them down.
    pub ram_bytes: u64,
    /// Of the devices' state that follow.
    pub device_bytes: u64,
}

/// The two parts of a checkpoint. One without the other is nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Part {
    /// Pages of memory.
    Ram,
    /// The state of the devices and CPUs.
    Device,
}

/// The checksum of a checkpoint: of its header and of both its parts. CRC-32C, in hardware on both of
/// today's architectures: it is there for mistakes of ours and of memory; against people there is the
/// encryption of the transport.
#[derive(Debug, Clone, Copy)]
pub struct Digest {
    ram: u32,
    device: u32,
    header: u32,
}

impl Digest {
    /// Of a checkpoint of which nothing has come yet.
    pub fn new(header: &Header) -> Digest {
        let numbers = [
            header.id.term,
            header.id.number,
            u64::from(header.full) | u64::from(header.arms) << 1,
            header.ram_bytes,
            header.device_bytes,
        ];
        let header = numbers.iter().fold(0, |sum, number| {
            crc32c::crc32c_append(sum, &number.to_le_bytes())
        });
        Digest {
            ram: 0,
            device: 0,
            header,
        }
    }

    /// Takes in what comes next of a part.
    pub fn add(&mut self, part: Part, data: &[u8]) {
        let sum = match part {
            Part::Ram => &mut self.ram,
            Part::Device => &mut self.device,
        };
        *sum = crc32c::crc32c_append(*sum, data);
    }

    /// Of all that was added.
    pub fn finish(&self) -> u32 {
        let sum = crc32c::crc32c_append(self.header, &self.ram.to_le_bytes());
        crc32c::crc32c_append(sum, &self.device.to_le_bytes())
    }
}

/// A checkpoint of which a part has come.
#[derive(Debug, Clone, Copy)]
pub(super) struct Staging {
    pub header: Header,
    digest: Digest,
    ram_bytes: u64,
    device_bytes: u64,
}

impl Staging {
    pub fn new(header: Header) -> Staging {
        Staging {
            header,
            digest: Digest::new(&header),
            ram_bytes: 0,
            device_bytes: 0,
        }
    }

    /// Takes in what comes next of a part; false if it is more than was announced.
    pub fn add(&mut self, part: Part, data: &[u8]) -> bool {
        self.digest.add(part, data);
        let (bytes, announced) = match part {
            Part::Ram => (&mut self.ram_bytes, self.header.ram_bytes),
            Part::Device => (&mut self.device_bytes, self.header.device_bytes),
        };
        *bytes += data.len() as u64;
        *bytes <= announced
    }

    /// Whether all of it has come as it was sent.
    pub fn is_complete(&self, id: CheckpointId, checksum: u32) -> bool {
        let bytes = (self.ram_bytes, self.device_bytes);
        id == self.header.id
            && bytes == (self.header.ram_bytes, self.header.device_bytes)
            && checksum == self.digest.finish()
    }
}
