//! The guest's memory: an anonymous file that QEMU and the daemon map.

use std::fs::File;
use std::io;
use std::os::unix::fs::MetadataExt as _;

use memmap2::MmapRaw;

use super::confinement::{User, anonymous};

/// Bytes of a page of the emulated PC.
pub const PAGE_BYTES: usize = 4096;

/// A page.
pub type Page = [u8; PAGE_BYTES];

/// A mapping of the file that is a guest's memory.
///
/// QEMU writes to the file whenever its guest runs. What reads or writes it here is unsafe for that reason alone:
/// whoever calls it says that the guest does not run.
#[derive(Debug)]
pub struct Memory {
    mapping: MmapRaw,
    inode: u64,
}

impl Memory {
    /// Makes and maps a file of `bytes` zeros that only `user` may open. The file disappears with
    /// the last process that has it open or mapped.
    ///
    /// # Errors
    ///
    /// If the system refuses.
    ///
    /// # Panics
    ///
    /// If `bytes` is no positive multiple of a page: a site file with such a size is refused.
    pub fn create(bytes: u64, user: Option<User>) -> io::Result<(Memory, File)> {
        assert!(bytes > 0 && bytes.is_multiple_of(PAGE_BYTES as u64));
        let file = anonymous(c"laxity-guest-memory", bytes, user)?;
        let memory = Memory {
            mapping: MmapRaw::map_raw(&file)?,
            inode: file.metadata()?.ino(),
        };
        Ok((memory, file))
    }

    /// Inode number of the file, by which a process's mapping of it is found.
    pub fn inode(&self) -> u64 {
        self.inode
    }

    /// Number of pages.
    pub fn len(&self) -> usize {
        self.mapping.len() / PAGE_BYTES
    }

    /// Whether there are no pages, which is never true.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// All pages, to be read.
    ///
    /// # Safety
    ///
    /// The guest does not run while the pages are looked at.
    pub unsafe fn pages(&self) -> &[Page] {
        // SAFETY: so many pages are mapped, and nobody writes to them, as the caller says.
        unsafe { std::slice::from_raw_parts(self.mapping.as_ptr().cast(), self.len()) }
    }

    /// All pages, to be written.
    ///
    /// # Safety
    ///
    /// The guest does not run, and does not start to, while the pages are looked at.
    pub unsafe fn pages_mut(&mut self) -> &mut [Page] {
        // SAFETY: so many pages are mapped, and nobody else looks at them, as the caller says.
        unsafe { std::slice::from_raw_parts_mut(self.mapping.as_mut_ptr().cast(), self.len()) }
    }
}
