//! An image of the format qcow2, open in a QEMU of its own that runs no guest: what the image has
//! inside is read and written through that QEMU as a disk of fixed size.
//!
//! The guest's writes pass the daemon above the format, so that its tables concern this host alone:
//! the other host's image may have the same blocks elsewhere in its file.

use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::os::fd::AsFd as _;
use std::os::unix::fs::{FileExt as _, MetadataExt as _};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::process::Child;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use nix::fcntl::Flock;
use nix::sys::statvfs::fstatvfs;
use nix::unistd::mkdtemp;
use serde_json::json;

use super::confinement::User;
use super::nbd::client::Client;
use super::process::{GuestError, NO_MACHINE, forward_what_it_says, spawn, system};
use super::qmp::{Qmp, QmpError};

/// What an image begins with.
pub const MAGIC: &[u8] = b"QFI\xfb";
/// Length of the header as far as it is looked at here.
const HEADER_BYTES: usize = 80;
/// Second version of the format, whose header ends before the features.
const VERSION_2: u32 = 2;
const VERSION_3: u32 = 3;
/// Features of the third version that an image must not have: that its tables are known to be
/// broken, and that its data is in another file.
const IS_CORRUPT: u64 = 1 << 1;
const HAS_DATA_FILE: u64 = 1 << 2;
/// Connections, so that nobody waits for another thread: one serves the guest, and others take and
/// write checkpoints, flush, and compare.
const CONNECTIONS: usize = 4;
/// Names within QEMU.
const NAME: &str = "image";
const LISTENER: &str = "listener";
/// Bytes of a unit of a file's size on its disk.
const SECTOR_BYTES: u64 = 512;
/// Longest wait for QEMU to open the image, or to close it.
const TIMEOUT: Duration = Duration::from_secs(60);

/// An image in the QEMU that has it open.
#[derive(Debug)]
pub struct Qcow2 {
    /// Keeps other processes away.
    _image: Flock<File>,
    bytes: u64,
    qemu: Child,
    qmp: Qmp,
    /// Connections that nobody uses at this moment.
    idle: Mutex<Vec<Client>>,
    is_back: Condvar,
}

impl Qcow2 {
    /// Opens an image in a QEMU, `program`, that runs as `user` and ends with the calling thread.
    ///
    /// # Errors
    ///
    /// If it is no such image, has its data elsewhere, too, or QEMU cannot open it. The text is for
    /// the operator.
    pub fn open(
        image: Flock<File>,
        path: &Path,
        program: &Path,
        user: Option<User>,
    ) -> io::Result<Qcow2> {
        let bytes = inside_bytes(&image, path).map_err(io::Error::other)?;
        warn_of_no_room(&image, path, bytes)?;
        let words = NO_MACHINE.map(OsString::from);
        let told = |error: GuestError| io::Error::other(format!("{}: {error}", path.display()));
        let (mut qemu, mut qmp) = spawn(program, &words, &[], Vec::new(), user).map_err(told)?;
        forward_what_it_says(&mut qemu, &path.to_string_lossy());
        match connect(&mut qmp, &image, bytes) {
            Ok(idle) => Ok(Qcow2 {
                _image: image,
                bytes,
                qemu,
                qmp,
                idle: Mutex::new(idle),
                is_back: Condvar::new(),
            }),
            Err(error) => {
                let _ = qemu.kill();
                let _ = qemu.wait();
                Err(told(error))
            }
        }
    }

    /// Size of the disk inside.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Reads from an offset on.
    ///
    /// # Errors
    ///
    /// Those of the image, or that QEMU has gone.
    pub fn read(&self, offset: u64, into: &mut [u8]) -> io::Result<()> {
        self.with_client(|client| client.read(offset, into))
    }

    /// Writes from an offset on.
    ///
    /// # Errors
    ///
    /// Those of the image, such as that its file cannot grow, or that QEMU has gone.
    pub fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.with_client(|client| client.write(offset, data))
    }

    /// Makes all that was written survive a failure of this host, with the tables that say where it
    /// is.
    ///
    /// # Errors
    ///
    /// Those of the image, or that QEMU has gone.
    pub fn flush(&self) -> io::Result<()> {
        self.with_client(Client::flush)
    }

    fn idle(&self) -> MutexGuard<'_, Vec<Client>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn with_client<T>(&self, act: impl FnOnce(&mut Client) -> io::Result<T>) -> io::Result<T> {
        let mut idle = self.idle();
        let mut client = loop {
            if let Some(client) = idle.pop() {
                break client;
            }
            let woken = self.is_back.wait(idle);
            idle = woken.unwrap_or_else(PoisonError::into_inner);
        };
        drop(idle);
        let done = act(&mut client);
        self.idle().push(client);
        self.is_back.notify_one();
        done
    }
}

impl Drop for Qcow2 {
    fn drop(&mut self) {
        self.idle().clear();
        // QEMU writes what it has of the tables, and closes the image.
        let _ = self.qmp.execute_within(TIMEOUT, "quit", json!({}));
        while let Ok(Some(_)) = self.qmp.event(TIMEOUT) {}
        let _ = self.qemu.kill();
        let _ = self.qemu.wait();
    }
}

/// Has QEMU open the image and serve what is inside. Returns connections to it.
fn connect(qmp: &mut Qmp, image: &File, bytes: u64) -> Result<Vec<Client>, GuestError> {
    qmp.add_to_set(1, image.as_fd())?;
    let opened = json!({
        "driver": "qcow2", "node-name": NAME, "backing": null,
        "file": { "driver": "file", "filename": "/dev/fdset/1" },
    });
    qmp.execute_within(TIMEOUT, "blockdev-add", opened)?;
    let (listener, streams) = listen().map_err(system("make a socket"))?;
    qmp.pass(LISTENER, listener.as_fd())?;
    let at = json!({ "type": "fd", "data": { "str": LISTENER } });
    qmp.execute("nbd-server-start", json!({ "addr": at }))?;
    let export = json!({
        "type": "nbd", "id": NAME, "name": NAME, "node-name": NAME, "writable": true,
    });
    qmp.execute("block-export-add", export)?;
    let mut clients = Vec::new();
    for stream in streams {
        let (client, found) = Client::open(stream, NAME).map_err(system("reach an image"))?;
        if found != bytes {
            let said = format!("an image that has {found} bytes inside, and said {bytes}");
            return Err(QmpError::Garbled(said).into());
        }
        clients.push(client);
    }
    Ok(clients)
}

/// A socket, and connections that wait in its queue. Nobody else can connect: it is in a directory
/// of this user's alone, and has no name any more.
fn listen() -> io::Result<(UnixListener, Vec<UnixStream>)> {
    let directory = mkdtemp(&std::env::temp_dir().join("laxity-protect-XXXXXX"))?;
    let path = directory.join("disk");
    let made = UnixListener::bind(&path).and_then(|listener| {
        let streams = (0..CONNECTIONS).map(|_| UnixStream::connect(&path));
        Ok((listener, streams.collect::<io::Result<_>>()?))
    });
    let _ = std::fs::remove_file(&path);
    std::fs::remove_dir(&directory)?;
    made
}

/// The size of the disk in an image.
///
/// # Errors
///
/// If it is no image that can be protected: what is wrong, and what to do about it.
fn inside_bytes(image: &File, path: &Path) -> Result<u64, String> {
    let mut header = [0; HEADER_BYTES];
    let (read, path) = (image.read_exact_at(&mut header, 0), path.display());
    if read.is_err() || !header.starts_with(MAGIC) {
        return Err(format!(
            "{path}: it is no image of the format qcow2: make one with (umask 077; qemu-img create \
             -f qcow2 {path} 8G), or write volume-format = \"raw\""
        ));
    }
    let word = |at: usize| u32::from_be_bytes(header[at..at + 4].try_into().expect("4 bytes"));
    let long = |at: usize| u64::from_be_bytes(header[at..at + 8].try_into().expect("8 bytes"));
    let (version, backing, bytes, encryption) = (word(4), long(8), long(24), word(32));
    let features = if version == VERSION_2 { 0 } else { long(72) };
    let whole = format!("make one file of it with `qemu-img convert -O qcow2 {path} WHOLE`");
    Err(match () {
        () if ![VERSION_2, VERSION_3].contains(&version) => format!(
            "{path}: it is of version {version} of the format: `qemu-img convert -O qcow2 {path} NEW` \
             makes one of version 3"
        ),
        () if backing != 0 => format!(
            "{path}: a part of it is in another file, its backing file, and protection has one file \
             on each host: {whole}"
        ),
        () if features & HAS_DATA_FILE != 0 => {
            format!("{path}: its data is in another file: {whole}")
        }
        () if encryption != 0 => format!(
            "{path}: it is encrypted, and the daemon has no key: encrypt the host's disk below it, \
             and {whole}"
        ),
        () if features & IS_CORRUPT != 0 => {
            format!("{path}: its tables are broken: look at `qemu-img check -r all {path}`")
        }
        () => return Ok(bytes),
    })
}

/// Says if the file system has less room than the guest may write. An image grows with what is
/// written to it, and a host where it cannot grow any more has failed.
fn warn_of_no_room(image: &File, path: &Path, bytes: u64) -> io::Result<()> {
    let there = fstatvfs(image)?;
    let free_bytes = there.blocks_available() * there.fragment_size();
    let has_bytes = image.metadata()?.blocks() * SECTOR_BYTES;
    let grows_bytes = bytes.saturating_sub(has_bytes);
    if free_bytes < grows_bytes {
        tracing::warn!(
            "{}: it may grow by {} MiB, and its file system has {} MiB free",
            path.display(),
            grows_bytes >> 20,
            free_bytes >> 20
        );
    }
    Ok(())
}

#[cfg(test)]
pub(crate) mod tests {
    use std::fs::{self, OpenOptions, Permissions};
    use std::os::unix::fs::PermissionsExt as _;
    use std::path::PathBuf;
    use std::process::{Command, Stdio};

    use super::super::disk::Disk;
    use super::*;

    const BYTES: u64 = 1 << 20;
    const QEMU: &str = "qemu-system-x86_64";

    /// Whether there are the programs that make images and open them.
    pub fn has_programs() -> bool {
        let is_there = |program: &&str| {
            let mut command = Command::new(program);
            let command = command.arg("--version").stdout(Stdio::null());
            command.status().is_ok()
        };
        let lacks = ["qemu-img", QEMU].into_iter().find(|each| !is_there(each));
        if let Some(program) = lacks {
            eprintln!("SKIPPED: there is no {program}");
        }
        lacks.is_none()
    }

    impl Qcow2 {
        /// Ends QEMU as a failure of the host does.
        pub fn kill(&mut self) {
            self.qemu.kill().unwrap();
            self.qemu.wait().unwrap();
        }
    }

    /// An image that is removed with this.
    pub struct Made(pub PathBuf);

    impl Made {
        /// A new image of some size, whose other options are `words`.
        pub fn new(name: &str, words: &[&str], bytes: u64) -> Made {
            let name = format!("laxity-qcow2-{}-{name}", std::process::id());
            let path = std::env::temp_dir().join(name);
            let _ = fs::remove_file(&path);
            image(
                &[&["create", "-f", "qcow2"], words].concat(),
                &path,
                &[&bytes.to_string()],
            );
            fs::set_permissions(&path, Permissions::from_mode(0o600)).unwrap();
            Made(path)
        }

        pub fn open(&self) -> io::Result<Disk> {
            Disk::open_qcow2(&self.0, Path::new(QEMU), User::of(1, false))
        }

        /// The disk inside, by another program.
        pub fn inside(&self) -> Vec<u8> {
            let raw = self.0.with_extension("raw");
            image(
                &["convert", "-O", "raw"],
                &self.0,
                &[&raw.to_string_lossy()],
            );
            let inside = fs::read(&raw).unwrap();
            fs::remove_file(raw).unwrap();
            inside
        }

        fn refused(&self) -> String {
            self.open().unwrap_err().to_string()
        }
    }

    impl Drop for Made {
        fn drop(&mut self) {
            let _ = fs::remove_file(&self.0);
        }
    }

    fn image(words: &[&str], path: &Path, more: &[&str]) {
        let mut command = Command::new("qemu-img");
        let done = command.args(words).arg(path).args(more).output().unwrap();
        assert!(done.status.success(), "{words:?}: {done:?}");
    }

    #[test]
    fn what_is_written_is_inside() {
        if !has_programs() {
            return;
        }
        let made = Made::new("written", &[], BYTES);
        let disk = made.open().unwrap();
        assert_eq!(disk.bytes(), BYTES);
        disk.may_write(true);
        disk.write(70_000, b"abc").unwrap();
        let mut read = [1; 5];
        disk.read(69_999, &mut read).unwrap();
        assert_eq!(&read, b"\0abc\0");
        // The next one waits for the end of the QEMU that has the image, and that writes everything.
        std::thread::scope(|scope| {
            let next = scope.spawn(|| made.open().map(drop));
            std::thread::sleep(Duration::from_millis(50));
            assert!(!next.is_finished(), "two have the image");
            drop(disk);
            next.join().unwrap().unwrap();
        });
        assert_eq!(&made.inside()[69_999..70_004], b"\0abc\0");
    }

    #[test]
    fn the_end_of_its_qemu_is_an_error_of_the_image() {
        if !has_programs() {
            return;
        }
        let made = Made::new("ends", &[], BYTES);
        let image = OpenOptions::new().read(true).write(true).open(&made.0);
        let image = Flock::lock(image.unwrap(), nix::fcntl::FlockArg::LockExclusive).unwrap();
        let mut image = Qcow2::open(image, &made.0, Path::new(QEMU), User::of(1, false)).unwrap();
        image.write(0, b"abc").unwrap();
        image.kill();
        for _ in 0..=CONNECTIONS {
            let gone = image.flush().unwrap_err().to_string();
            assert!(gone.contains("is gone"), "{gone}");
        }
    }

    #[test]
    fn images_that_cannot_be_protected_are_refused() {
        if !has_programs() {
            return;
        }
        let base = Made::new("base", &[], BYTES);
        let backed = ["-b", &*base.0.to_string_lossy(), "-F", "qcow2"];
        let data = base.0.with_extension("data");
        let data_file = format!("data_file={}", data.display());
        let cases = [
            (Made::new("backed", &backed, BYTES), "its backing file"),
            (
                Made::new("data", &["-o", &data_file], BYTES),
                "its data is in another file",
            ),
            (
                Made::new("parts", &[], BYTES + 512),
                "not a multiple of 4096",
            ),
        ];
        for (made, words) in &cases {
            let refused = made.refused();
            assert!(refused.contains(words), "{refused}");
        }
        fs::remove_file(data).unwrap();
        let broken = |at: u64, byte: u8| {
            let made = Made::new("broken", &[], BYTES);
            let file = OpenOptions::new().write(true).open(&made.0).unwrap();
            file.write_all_at(&[byte], at).unwrap();
            made.refused()
        };
        for (at, byte, words) in [
            (0, 0, "no image of the format qcow2"),
            (7, 4, "version 4"),
            (35, 2, "encrypted"),
            (79, 2, "qemu-img check"),
            // The number of bits of a cluster.
            (23, 63, "cluster size"),
        ] {
            let refused = broken(at, byte);
            assert!(refused.contains(words), "{refused}");
        }
        let short = Made::new("short", &[], BYTES);
        fs::write(&short.0, MAGIC).unwrap();
        assert!(short.refused().contains("no image of the format qcow2"));
    }
}
