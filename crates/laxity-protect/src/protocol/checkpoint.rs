//! Checkpoints: their identity, their checksum, and the staging of one that arrives.

use std::fmt;

/// The identity of a checkpoint: a term and a number. Numbers increase by one over the guest's
/// life; a term belongs to one holder.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CheckpointId {
    /// Term of the holder that took the checkpoint.
    pub term: u64,
    /// Number of the checkpoint, one more than that of the previous one.
    pub number: u64,
}

impl fmt::Display for CheckpointId {
    fn fmt(&self, formatter: &mut fmt::Formatter) -> fmt::Result {
        write!(formatter, "{}/{}", self.term, self.number)
    }
}

/// The header of a checkpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header {
    /// Identity of the checkpoint.
    pub id: CheckpointId,
    /// Whether it has all of the memory, or only the changes since the previous checkpoint.
    pub full: bool,
    /// Whether its owner may take over. The first checkpoints do not permit that, while the
    /// primary's output still leaves freely.
    pub arms: bool,
    /// Time for which output may leave after the capture, once this checkpoint is acknowledged; zero in Net
    /// mode.
    pub lease_ns: i64,
    /// Encoded bytes of the memory part that follows.
    pub ram_bytes: u64,
    /// Bytes of the device part that follows.
    pub device_bytes: u64,
    /// Encoded bytes of the disks' part that follows.
    pub disk_bytes: u64,
}

/// The parts of a checkpoint, which are useless without each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Part {
    /// Pages of memory.
    Ram,
    /// The state of the devices and CPUs.
    Device,
    /// Blocks of the disks.
    Disk,
}

/// The checksum over a checkpoint's header and all its parts: CRC-32C, which both common
/// architectures have in hardware. It detects errors of software and memory; the transport's
/// encryption protects against attackers.
#[derive(Debug, Clone, Copy)]
pub struct Digest {
    ram: u32,
    device: u32,
    disk: u32,
    header: u32,
}

impl Digest {
    /// The digest of a checkpoint whose parts have not arrived yet.
    pub fn new(header: &Header) -> Digest {
        let numbers = [
            header.id.term,
            header.id.number,
            u64::from(header.full) | u64::from(header.arms) << 1,
            header.lease_ns as u64,
            header.ram_bytes,
            header.device_bytes,
            header.disk_bytes,
        ];
        let header = numbers.iter().fold(0, |sum, number| {
            crc32c::crc32c_append(sum, &number.to_le_bytes())
        });
        Digest {
            ram: 0,
            device: 0,
            disk: 0,
            header,
        }
    }

    /// Adds the next bytes of a part.
    pub fn add(&mut self, part: Part, data: &[u8]) {
        let sum = match part {
            Part::Ram => &mut self.ram,
            Part::Device => &mut self.device,
            Part::Disk => &mut self.disk,
        };
        *sum = crc32c::crc32c_append(*sum, data);
    }

    /// The checksum of everything that was added.
    pub fn finish(&self) -> u32 {
        [self.ram, self.device, self.disk]
            .iter()
            .fold(self.header, |sum, part| {
                crc32c::crc32c_append(sum, &part.to_le_bytes())
            })
    }
}

/// A checkpoint that is arriving.
#[derive(Debug, Clone, Copy)]
pub(super) struct Staging {
    pub header: Header,
    digest: Digest,
    ram_bytes: u64,
    device_bytes: u64,
    disk_bytes: u64,
}

impl Staging {
    pub fn new(header: Header) -> Staging {
        Staging {
            header,
            digest: Digest::new(&header),
            ram_bytes: 0,
            device_bytes: 0,
            disk_bytes: 0,
        }
    }

    /// Adds the next bytes of a part. Returns false if they exceed the announced size.
    pub fn add(&mut self, part: Part, data: &[u8]) -> bool {
        self.digest.add(part, data);
        let (bytes, announced) = match part {
            Part::Ram => (&mut self.ram_bytes, self.header.ram_bytes),
            Part::Device => (&mut self.device_bytes, self.header.device_bytes),
            Part::Disk => (&mut self.disk_bytes, self.header.disk_bytes),
        };
        *bytes += data.len() as u64;
        *bytes <= announced
    }

    /// Whether everything has arrived unchanged.
    pub fn is_complete(&self, id: CheckpointId, checksum: u32) -> bool {
        let Header {
            ram_bytes,
            device_bytes,
            disk_bytes,
            ..
        } = self.header;
        let bytes = (self.ram_bytes, self.device_bytes, self.disk_bytes);
        id == self.header.id
            && bytes == (ram_bytes, device_bytes, disk_bytes)
            && checksum == self.digest.finish()
    }
}
