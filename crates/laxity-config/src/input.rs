//! Reads the files that a user names: up to a limit, and only regular files, since a device or a FIFO may give nothing,
//! or never end.

use std::fs::{self, File, FileType, OpenOptions};
use std::io::{self, IsTerminal as _, Read};
use std::os::unix::fs::{FileTypeExt as _, OpenOptionsExt as _};
use std::path::Path;

/// What names the standard input in place of a file.
pub const STANDARD_INPUT: &str = "-";

/// Opens a regular file for reading.
///
/// # Errors
///
/// If it cannot be opened, or is something else, which the error names.
pub fn open(path: &Path) -> io::Result<File> {
    // Opening a device may already do something; what takes the file's place meanwhile is refused all the same, and
    // with these flags can neither block nor become the terminal of this process.
    refuse_unless_regular(fs::metadata(path)?.file_type())?;
    let file = OpenOptions::new()
        .read(true)
        .custom_flags(libc::O_NONBLOCK | libc::O_NOCTTY)
        .open(path)?;
    refuse_unless_regular(file.metadata()?.file_type())?;
    Ok(file)
}

/// All of a regular file.
///
/// # Errors
///
/// If it cannot be read, is no regular file, or has more than `bytes_max` bytes.
pub fn read(path: &Path, bytes_max: usize) -> io::Result<Vec<u8>> {
    let file = open(path)?;
    let bytes = file.metadata()?.len();
    if bytes > bytes_max as u64 {
        return Err(too_large(&bytes.to_string(), bytes_max));
    }
    within(file, bytes_max)
}

/// All of a regular file, or of the standard input where `path` is [`STANDARD_INPUT`].
///
/// # Errors
///
/// Those of [`read`], and if the standard input is a terminal.
pub fn read_argument(path: &Path, bytes_max: usize) -> io::Result<Vec<u8>> {
    if path != Path::new(STANDARD_INPUT) {
        return read(path, bytes_max);
    }
    let input = io::stdin();
    if input.is_terminal() {
        return Err(refusal(
            "the standard input is a terminal; send a file through a pipe",
        ));
    }
    within(input.lock(), bytes_max)
}

/// All of a regular file, as text.
///
/// # Errors
///
/// Those of [`read`], and if it is not UTF-8.
pub fn read_to_string(path: &Path, bytes_max: usize) -> io::Result<String> {
    String::from_utf8(read(path, bytes_max)?).map_err(|_| refusal("it is not UTF-8"))
}

fn within(input: impl Read, bytes_max: usize) -> io::Result<Vec<u8>> {
    let mut content = Vec::new();
    input.take(bytes_max as u64 + 1).read_to_end(&mut content)?;
    if content.len() > bytes_max {
        return Err(too_large(&format!("more than {bytes_max}"), bytes_max));
    }
    Ok(content)
}

fn refuse_unless_regular(kind: FileType) -> io::Result<()> {
    if kind.is_file() {
        return Ok(());
    }
    let what = if kind.is_dir() {
        "a directory"
    } else if kind.is_fifo() {
        "a FIFO"
    } else if kind.is_socket() {
        "a socket"
    } else {
        "a device"
    };
    Err(refusal(&format!(
        "it is {what}, and only regular files are read"
    )))
}

fn too_large(bytes: &str, bytes_max: usize) -> io::Error {
    refusal(&format!(
        "it has {bytes} bytes, and at most {bytes_max} are read"
    ))
}

fn refusal(why: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, why)
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMIT: usize = 64;

    fn refused(path: &Path) -> String {
        read(path, LIMIT).unwrap_err().to_string()
    }

    #[test]
    fn what_never_ends_and_what_never_comes_is_refused() {
        let directory = std::env::temp_dir().join(format!("laxity-input-{}", std::process::id()));
        fs::create_dir(&directory).unwrap();
        let sparse = directory.join("sparse");
        File::create(&sparse).unwrap().set_len(20 << 30).unwrap();
        let link = directory.join("link");
        std::os::unix::fs::symlink("/dev/zero", &link).unwrap();
        let socket = directory.join("socket");
        let _listener = std::os::unix::net::UnixListener::bind(&socket).unwrap();
        let fits = directory.join("fits");
        fs::write(&fits, [b'x'; LIMIT]).unwrap();
        let one_more = directory.join("one more");
        fs::write(&one_more, [b'x'; LIMIT + 1]).unwrap();

        assert_eq!(read(&fits, LIMIT).unwrap(), [b'x'; LIMIT]);
        assert!(refused(&one_more).contains("it has 65 bytes, and at most 64 are read"));
        assert!(refused(&sparse).contains("it has 21474836480 bytes"));
        for device in [Path::new("/dev/zero"), Path::new("/dev/urandom"), &link] {
            assert!(refused(device).contains("it is a device"), "{device:?}");
        }
        assert!(refused(&socket).contains("it is a socket"));
        assert!(refused(&directory).contains("it is a directory"));
        // A file of the kernel says that it has no bytes, and has some.
        assert!(refused(Path::new("/proc/self/maps")).contains("more than 64 bytes"));
        fs::remove_dir_all(directory).unwrap();
    }
}
