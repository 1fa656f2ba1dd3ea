//! Builds the library that is preloaded into QEMU (`src/guest/tracker.c`); the daemon brings it along.

use std::path::PathBuf;
use std::process::Command;

fn main() {
    const SOURCE: &str = "src/guest/tracker.c";
    println!("cargo::rerun-if-changed={SOURCE}");
    let out: PathBuf = std::env::var_os("OUT_DIR")
        .expect("cargo says where")
        .into();
    // Not with the words that `cc` has for it: where the program itself is static, as in the lab's dom0, `-static` is one.
    let mut command = Command::new(cc::Build::new().get_compiler().path());
    command.args(["-O2", "-fPIC", "-shared", "-Wall", "-Wextra", "-Werror"]);
    let done = command
        .args([SOURCE, "-o"])
        .arg(out.join("tracker.so"))
        .status();
    assert!(
        done.expect("there is a C compiler").success(),
        "{SOURCE} does not compile"
    );
}
