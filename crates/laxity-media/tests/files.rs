//! Every command that takes a file refuses a path that is no regular file or has no end.

#[path = "../../laxity-config/tests/no_files/mod.rs"]
mod no_files;

use no_files::{Program, are_refused};

#[test]
fn what_is_no_file_is_refused() {
    let commands = are_refused(&Program {
        path: env!("CARGO_BIN_EXE_laxity-media"),
        written: &["--capture", "--packets", "--passages"],
        needed: |_| &[],
    });
    assert_eq!(commands, 1);
}

#[test]
fn orders_without_end_are_refused() {
    use std::process::{Command, Stdio};
    let zeros = std::fs::File::open("/dev/zero").unwrap();
    let done = Command::new("sh")
        .arg("-c")
        .arg("ulimit -v 2000000 && exec \"$0\" calls")
        .arg(env!("CARGO_BIN_EXE_laxity-media"))
        .stdin(Stdio::from(zeros))
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&done.stderr);
    assert_eq!(done.status.code(), Some(2), "{said}");
    assert!(said.contains("a line has 1000 bytes or more"), "{said}");
}
