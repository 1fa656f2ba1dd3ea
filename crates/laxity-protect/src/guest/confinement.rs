//! The confinement of a guest's QEMU: it runs as a user of its own behind QEMU's seccomp filter,
//! and reaches its files through descriptors that the daemon opened.
//!
//! No file of a guest has a name. Its memory and the tracker are anonymous files in memory: nobody can put another in
//! their place, nobody else can open them, and none is left behind when a process is killed.

use std::ffi::OsString;
use std::fs::{File, OpenOptions, Permissions};
use std::io::{self, Read as _, Write as _};
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _, fchown};
use std::path::{Path, PathBuf};

use laxity_config::input;
use nix::fcntl::{FcntlArg, SealFlag, fcntl};
use nix::sys::memfd::{MFdFlags, memfd_create};
use nix::sys::prctl::set_no_new_privs;
use nix::unistd::{Gid, Uid, geteuid, setfsgid, setfsuid, setgroups, setresgid, setresuid};

/// Options for QEMU's seccomp filter: no new processes, no new privileges, no changes of
/// scheduling.
pub(super) const SANDBOX: [&str; 2] = [
    "-sandbox",
    "on,obsolete=deny,elevateprivileges=deny,spawn=deny,resourcecontrol=deny",
];
/// Largest initial root file system that is copied for QEMU.
const BOOTED_BYTES_MAX: u64 = 256 << 20;
/// First user number of the range that systemd's "Users, Groups, UIDs and GIDs" leaves unused,
/// 0x7000_0000 to 0x7fff_ffff.
const USERS_FIRST: u32 = 0x7000_0000;
const USERS: u64 = 0x1000_0000;
const OWNER_ONLY: u32 = 0o600;
const OTHERS_READ: u32 = 0o004;
const GROUP_WRITES: u32 = 0o020;

/// The user that a guest's QEMU runs as.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct User {
    number: u32,
    /// The group with access to KVM, if QEMU uses it.
    kvm: Option<Gid>,
}

impl User {
    /// The user of the guest with this number. `None` where the daemon is not root and cannot
    /// change the user: QEMU then runs as the daemon's user. `may_use_kvm` gives it access to KVM.
    pub fn of(guest: u64, may_use_kvm: bool) -> Option<User> {
        if !geteuid().is_root() {
            return None;
        }
        let kvm = may_use_kvm
            .then(|| std::fs::metadata("/dev/kvm").ok())
            .flatten()
            .filter(|device| device.mode() & GROUP_WRITES != 0 && device.gid() != 0)
            .map(|device| Gid::from_raw(device.gid()));
        Some(User {
            number: USERS_FIRST + (guest % USERS) as u32,
            kvm,
        })
    }

    /// The user's number.
    pub fn number(self) -> u32 {
        self.number
    }

    /// Changes the calling process to this user for good. It makes only system calls, because it
    /// runs between fork and exec.
    pub(super) fn become_it(self) -> io::Result<()> {
        let (user, group) = (Uid::from_raw(self.number), Gid::from_raw(self.number));
        setgroups(self.kvm.as_slice())?;
        setresgid(group, group, group)?;
        setresuid(user, user, user)?;
        Ok(())
    }
}

/// Does something with a user's access to files, in the calling thread alone. A daemon that is root without the
/// capability to read all files may not read what belongs to its guests' users.
pub(super) fn with_access_of<T>(user: Option<User>, act: impl FnOnce() -> T) -> T {
    let Some(user) = user else { return act() };
    let (user, group) = (Uid::from_raw(user.number), Gid::from_raw(user.number));
    let before = (setfsgid(group), setfsuid(user));
    let done = act();
    setfsuid(before.1);
    setfsgid(before.0);
    done
}

/// Makes the process unable to gain privileges, such as by a program with the set-user-ID bit.
pub(super) fn gain_nothing() -> io::Result<()> {
    Ok(set_no_new_privs()?)
}

/// A nameless file in memory with unchangeable contents. Whoever inherits its descriptor reads it.
pub(super) fn sealed(name: &'static std::ffi::CStr, contents: &[u8]) -> io::Result<File> {
    let mut file: File =
        memfd_create(name, MFdFlags::MFD_CLOEXEC | MFdFlags::MFD_ALLOW_SEALING)?.into();
    file.write_all(contents)?;
    let seals = SealFlag::F_SEAL_SHRINK
        | SealFlag::F_SEAL_GROW
        | SealFlag::F_SEAL_WRITE
        | SealFlag::F_SEAL_SEAL;
    fcntl(&file, FcntlArg::F_ADD_SEALS(seals))?;
    Ok(file)
}

/// A nameless file in memory of zeros that only `user` may open; only the daemon's user if `user`
/// is `None`. Its size cannot change: the daemon maps it, and would be killed, with all of its
/// guests, by reading what a QEMU that was taken over had cut off.
pub(super) fn anonymous(
    name: &'static std::ffi::CStr,
    bytes: u64,
    user: Option<User>,
) -> io::Result<File> {
    let flags = MFdFlags::MFD_CLOEXEC | MFdFlags::MFD_ALLOW_SEALING;
    let file: File = memfd_create(name, flags)?.into();
    file.set_permissions(Permissions::from_mode(OWNER_ONLY))?;
    if let Some(user) = user {
        fchown(&file, Some(user.number), Some(user.number))?;
    }
    file.set_len(bytes)?;
    let seals = SealFlag::F_SEAL_SHRINK | SealFlag::F_SEAL_GROW | SealFlag::F_SEAL_SEAL;
    fcntl(&file, FcntlArg::F_ADD_SEALS(seals))?;
    Ok(file)
}

/// The path at which QEMU finds an inherited descriptor.
pub(super) fn path_of(file: RawFd) -> PathBuf {
    PathBuf::from(format!("/proc/self/fd/{file}"))
}

/// The error for a file that cannot be handed to QEMU.
#[derive(Debug, thiserror::Error)]
#[error("cannot hand {} to QEMU: {source}", path.display())]
pub struct NotHanded {
    path: PathBuf,
    source: io::Error,
}

/// Files opened here for QEMU. They stay open until QEMU has been started.
#[derive(Debug, Default)]
pub(super) struct Handed(Vec<File>);

impl Handed {
    /// Opens a file for QEMU to read. Returns the path that QEMU uses.
    ///
    /// # Errors
    ///
    /// If it cannot be opened, or not all may read it: QEMU opens it once more, as a user of its own.
    pub(super) fn for_reading(&mut self, path: &Path) -> Result<PathBuf, NotHanded> {
        let opened = input::open(path).and_then(|file| {
            if geteuid().is_root() && file.metadata()?.mode() & OTHERS_READ == 0 {
                let why = "QEMU runs as a user of its own, which may not read it: chmod o+r";
                return Err(io::Error::new(io::ErrorKind::PermissionDenied, why));
            }
            Ok(file)
        });
        let file = opened.map_err(not_handed(path))?;
        Ok(self.open(file))
    }

    /// Opens an initial root file system for QEMU like [`Handed::for_reading`]. A file that others
    /// may not read, because it contains secrets, is copied into memory for QEMU.
    ///
    /// # Errors
    ///
    /// If it cannot be opened, or is to be copied and has more than 256 MiB.
    pub(super) fn for_booting(&mut self, path: &Path) -> Result<PathBuf, NotHanded> {
        let copied = File::open(path).and_then(|file| {
            if !geteuid().is_root() || file.metadata()?.mode() & OTHERS_READ != 0 {
                return Ok(None);
            }
            let mut contents = Vec::new();
            file.take(BOOTED_BYTES_MAX + 1).read_to_end(&mut contents)?;
            if contents.len() as u64 > BOOTED_BYTES_MAX {
                return Err(io::Error::other("it has more than 256 MiB"));
            }
            sealed(c"laxity-first-root", &contents).map(Some)
        });
        match copied.map_err(not_handed(path))? {
            Some(copy) => Ok(self.open(copy)),
            None => self.for_reading(path),
        }
    }

    /// Opens a file for QEMU to append to, and creates it if necessary. Returns QEMU's options that
    /// make it `/dev/fdset/1`.
    ///
    /// # Errors
    ///
    /// If it cannot be opened, or is a symbolic link.
    pub(super) fn for_appending(&mut self, path: &Path) -> Result<[OsString; 2], NotHanded> {
        let file = OpenOptions::new()
            .append(true)
            .create(true)
            .mode(OWNER_ONLY)
            .custom_flags(libc::O_NOFOLLOW | libc::O_NOCTTY)
            .open(path)
            .map_err(not_handed(path))?;
        let words = [
            "-add-fd".into(),
            format!("fd={},set=1", file.as_raw_fd()).into(),
        ];
        self.0.push(file);
        Ok(words)
    }

    /// Hands over an open file.
    pub(super) fn open(&mut self, file: File) -> PathBuf {
        let path = path_of(file.as_raw_fd());
        self.0.push(file);
        path
    }

    /// All descriptors.
    pub(super) fn descriptors(&self) -> impl Iterator<Item = RawFd> {
        self.0.iter().map(AsRawFd::as_raw_fd)
    }
}

fn not_handed(path: &Path) -> impl Fn(io::Error) -> NotHanded {
    move |source| NotHanded {
        path: path.into(),
        source,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A root file system with users' digests is readable by its owner only, and QEMU, which runs
    /// as another user, boots it all the same.
    #[test]
    fn a_first_root_with_secrets_is_handed_over_as_a_copy() {
        if !geteuid().is_root() {
            return;
        }
        let name = format!("laxity-first-root-{}", std::process::id());
        let path = std::env::temp_dir().join(name);
        std::fs::write(&path, "users").unwrap();
        std::fs::set_permissions(&path, Permissions::from_mode(OWNER_ONLY)).unwrap();
        let mut handed = Handed::default();
        assert!(handed.for_reading(&path).is_err());
        let copy = handed.for_booting(&path).unwrap();
        std::fs::write(&path, "others").unwrap();
        assert_eq!(std::fs::read(&copy).unwrap(), b"users");
        let mode = std::fs::metadata(&copy).unwrap().mode();
        assert_ne!(mode & OTHERS_READ, 0, "{mode:o}");
        std::fs::remove_file(&path).unwrap();
    }

    /// `laxity apply` tells guests apart by their users: `test_the_users_of_protected_guests` has the
    /// same numbers.
    #[test]
    fn a_users_number_follows_from_the_guests_name() {
        for (name, number) in [("media", 0x7846_af83), ("signalling-1", 0x7df0_6a17)] {
            let user = User::of(crate::site::number_of(name), false);
            assert!(user.is_none_or(|user| user.number() == number), "{user:x?}");
        }
    }

    #[test]
    fn what_is_sealed_cannot_be_changed() {
        let file = sealed(c"laxity-test", b"as it is").unwrap();
        assert!((&file).write_all(b"other").is_err());
        assert!(file.set_len(0).is_err());
        assert_eq!(
            std::fs::read(path_of(file.as_raw_fd())).unwrap(),
            b"as it is"
        );
    }

    #[test]
    fn memory_is_its_owners_alone() {
        let user = User::of(7, false);
        let file = anonymous(c"laxity-test", 4096, user).unwrap();
        let found = file.metadata().unwrap();
        assert_eq!(found.mode() & 0o777, 0o600);
        assert_eq!(found.uid(), user.map_or(geteuid().as_raw(), User::number));
    }

    /// QEMU inherits the file, and the daemon reads its mapping of it.
    #[test]
    fn memory_cannot_be_cut_off_or_grow() {
        let file = anonymous(c"laxity-test", 4096, None).unwrap();
        for bytes in [0, 8192] {
            let error = file.set_len(bytes).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::PermissionDenied);
        }
        (&file).write_all(b"the guest's").unwrap();
    }

    #[test]
    fn a_console_that_is_a_link_is_refused() {
        let directory = std::env::temp_dir().join(format!("laxity-console-{}", std::process::id()));
        std::fs::create_dir(&directory).unwrap();
        let (victim, link) = (directory.join("victim"), directory.join("console"));
        std::fs::write(&victim, "untouched").unwrap();
        std::os::unix::fs::symlink(&victim, &link).unwrap();
        assert!(Handed::default().for_appending(&link).is_err());
        std::fs::remove_dir_all(&directory).unwrap();
    }
}
