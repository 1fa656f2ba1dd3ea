//! The guest's memory: a file that QEMU maps, mapped here too.

use std::fs::{File, OpenOptions};
use std::io;
use std::num::NonZeroUsize;
use std::path::Path;
use std::ptr::NonNull;

use nix::sys::mman::{MapFlags, ProtFlags, mmap, munmap};

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
    start: NonNull<Page>,
    pages: usize,
}

// SAFETY: the mapping belongs to nobody else in this process, and goes with its owner.
unsafe impl Send for Memory {}

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
        file.set_len(bytes)?;
        Memory::map(&file, usize::try_from(bytes).map_err(io::Error::other)?)
    }

    fn map(file: &File, bytes: usize) -> io::Result<Memory> {
        assert!(bytes.is_multiple_of(PAGE_BYTES));
        let length = NonZeroUsize::new(bytes).expect("a guest has memory");
        // SAFETY: a new mapping, where the kernel likes, of a file that only we and QEMU know.
        let start = unsafe {
            let protection = ProtFlags::PROT_READ | ProtFlags::PROT_WRITE;
            mmap(None, length, protection, MapFlags::MAP_SHARED, file, 0)?
        };
        Ok(Memory {
            start: start.cast(),
            pages: bytes / PAGE_BYTES,
        })
    }

    /// How many pages there are.
    pub fn len(&self) -> usize {
        self.pages
    }

    /// Whether there are none, which never is.
    pub fn is_empty(&self) -> bool {
        self.pages == 0
    }

    /// All pages, as they are.
    ///
    /// # Safety
    ///
    /// The guest does not run while the pages are looked at.
    pub unsafe fn pages(&self) -> &[Page] {
        // SAFETY: so many pages are mapped, and nobody writes to them, as the caller says.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.pages) }
    }

    /// All pages, to be written.
    ///
    /// # Safety
    ///
    /// The guest does not run, and does not start to, while the pages are looked at.
    pub unsafe fn pages_mut(&mut self) -> &mut [Page] {
        // SAFETY: so many pages are mapped, and nobody else looks at them, as the caller says.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), self.pages) }
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: this is what was mapped, and no reference to it outlives `self`.
        let _ = unsafe { munmap(self.start.cast(), self.pages * PAGE_BYTES) };
    }
}
