//! Laxity's programs refuse what is no file or has no end: every command that takes a file is found in the program's
//! own help, and tried in little memory.

use std::fs::{self, File};
use std::os::unix::fs::symlink;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// What a program may map, in KiB: far more than it needs, and far less than it would read.
const MEMORY_KIB: u64 = 2 << 20;

/// What is to be known of a program that its help does not say.
pub struct Program {
    /// The program's file.
    pub path: &'static str,
    /// Options that name what is written.
    pub written: &'static [&'static str],
    /// What a command must be given besides the file, where "{}" is a directory to write to.
    pub needed: fn(command: &str) -> &'static [&'static str],
}

/// Panics unless each command that takes a file refuses all that is none with exit code 2 and a word on it. Returns how
/// many commands there were.
pub fn are_refused(program: &Program) -> usize {
    let name = Path::new(program.path).file_name().unwrap();
    let directory = std::env::temp_dir().join(format!(
        "{}-files-{}",
        name.to_string_lossy(),
        std::process::id()
    ));
    fs::create_dir(&directory).unwrap();
    let made = |name: &str| directory.join(name);
    File::create(made("sparse"))
        .unwrap()
        .set_len(20 << 30)
        .unwrap();
    symlink("/dev/zero", made("link")).unwrap();
    let _listener = UnixListener::bind(made("socket")).unwrap();
    let status = Command::new("mkfifo").arg(made("fifo")).status().unwrap();
    assert!(status.success());
    let mut paths: Vec<PathBuf> = ["sparse", "link", "socket", "fifo", "nothing"]
        .map(made)
        .to_vec();
    paths.extend([PathBuf::from("/dev/zero"), PathBuf::from("/dev/urandom")]);
    paths.push(directory.clone());

    let mut count = 0;
    for (command, option) in readers(program) {
        count += 1;
        for path in &paths {
            let needed = (program.needed)(&command).iter();
            let needed = needed.map(|word| word.replace("{}", directory.to_str().unwrap()));
            let done = Command::new("sh")
                .arg("-c")
                .arg(format!("ulimit -v {MEMORY_KIB} && exec \"$@\""))
                .args(["sh", program.path])
                .args(command.split_whitespace())
                .args(option.iter())
                .arg(path)
                .args(needed)
                .stdin(Stdio::null())
                .output()
                .unwrap();
            let said = String::from_utf8_lossy(&done.stderr);
            assert_eq!(done.status.code(), Some(2), "{command} {path:?}: {said}");
            assert!(said.contains("cannot read"), "{command} {path:?}: {said}");
        }
    }
    fs::remove_dir_all(directory).unwrap();
    count
}

/// Each command that takes a file, and the option in front of that, if it has one. A command may have commands itself.
fn readers(program: &Program) -> Vec<(String, Option<String>)> {
    let mut found = Vec::new();
    let mut waiting = vec![String::new()];
    while let Some(command) = waiting.pop() {
        let done = Command::new(program.path)
            .args(command.split_whitespace())
            .arg("--help")
            .output()
            .unwrap();
        let help = String::from_utf8(done.stdout).unwrap();
        let listed = help.split("Commands:\n").nth(1).unwrap_or_default();
        for line in listed.lines().take_while(|line| !line.is_empty()) {
            match line.split_whitespace().next() {
                Some("help") | None => {}
                Some(name) => waiting.push(format!("{command} {name}")),
            }
        }
        for line in help.lines() {
            let words: Vec<&str> = line.split_whitespace().collect();
            let is_file = |word: &&str| ["<FILE>", "[FILE]"].contains(word);
            match words.iter().position(is_file) {
                Some(0) => found.push((command.trim().to_owned(), None)),
                Some(place) if words[0].starts_with('-') => {
                    let option = words[place - 1];
                    if !program.written.contains(&option) {
                        found.push((command.trim().to_owned(), Some(option.to_owned())));
                    }
                }
                _ => {}
            }
        }
    }
    found
}
