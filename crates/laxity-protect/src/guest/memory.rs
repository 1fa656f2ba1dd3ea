//! The guest's memory: a file that QEMU maps, mapped here too.

use std::fs::OpenOptions;
use std::io;
use std::path::Path;

use memmap2::MmapRaw;

/// The bytes of a page, on the machines that QEMU's PC is emulated on.
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
}

impl Memory {
    /// Makes a new file of so many bytes, all zero, and maps it.
    ///
    /// # Errors
    ///
    /// If there is such a file already, or the system refuses.
    ///
    /// # Panics
    ///
    /// If `bytes` is no positive multiple of a page: a site file with such a size is refused.
    pub fn create(path: &Path, bytes: u64) -> io::Result<Memory> {
        let mut options = OpenOptions::new();
        let file = options.read(true).write(true).create_new(true).open(path)?;
        assert!(bytes > 0 && bytes.is_multiple_of(PAGE_BYTES as u64));
        file.set_len(bytes)?;
        let mapping = MmapRaw::map_raw(&file)?;
        Ok(Memory { mapping })
    }

    /// How many pages there are.
    pub fn len(&self) -> usize {
        self.mapping.len() / PAGE_BYTES
    }

    /// Whether there are none, which never is.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// All pages, as they are.
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
