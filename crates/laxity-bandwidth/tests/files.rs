//! Every command that takes a file refuses a path that is no regular file or has no end.

#[path = "../../laxity-config/tests/no_files/mod.rs"]
mod no_files;

use no_files::{Program, are_refused};

#[test]
fn what_is_no_file_is_refused() {
    let commands = are_refused(&Program {
        path: env!("CARGO_BIN_EXE_laxity-bandwidth"),
        written: &[],
        needed: |command| match command {
            "run" => &["--socket", "{}/status"],
            _ => &[],
        },
    });
    assert_eq!(commands, 2);
}
