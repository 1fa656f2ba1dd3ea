//! Builds the library that is preloaded into QEMU (`src/guest/tracker.c`); the daemon brings it along.

use std::path::PathBuf;

fn main() {
    const SOURCE: &str = "src/guest/tracker.c";
    println!("cargo::rerun-if-changed={SOURCE}");
    let out: PathBuf = std::env::var_os("OUT_DIR")
        .expect("cargo says where")
        .into();
    let compiler = cc::Build::new().opt_level(2).pic(true).get_compiler();
    let mut command = compiler.to_command();
    command.args(["-shared", "-Wall", "-Wextra", "-Werror", SOURCE, "-o"]);
    let done = command.arg(out.join("tracker.so")).status();
    assert!(
        done.expect("there is a C compiler").success(),
        "{SOURCE} does not compile"
    );
}
