//! Every command that takes a file refuses a path that is no regular file or has no end; and what it prints may have
//! no reader.

#[path = "../../laxity-config/tests/no_files/mod.rs"]
mod no_files;

use no_files::{Program, are_refused};
use std::process::Command;

#[test]
fn what_is_no_file_is_refused() {
    let commands = are_refused(&Program {
        path: env!("CARGO_BIN_EXE_laxity-protect"),
        written: &[],
        needed: |command| match command {
            "run" => &["--as", "north", "--socket", "{}/control"],
            "keys" | "keys renew" => &["{}"],
            "keys revoke" => &["{}", "north"],
            _ => &[],
        },
    });
    assert_eq!(commands, 5);
}

#[test]
fn output_without_a_reader_is_no_mistake() {
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let done = Command::new(env!("CARGO_BIN_EXE_laxity-protect"))
        .arg("check")
        .arg(concat!(
            env!("CARGO_MANIFEST_DIR"),
            "/../../examples/protect/site.toml"
        ))
        .stdout(writer)
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&done.stderr);
    assert_eq!((done.status.code(), &*said), (Some(141), ""));
}
