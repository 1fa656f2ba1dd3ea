//! Builds the library that is preloaded into QEMU (`src/guest/tracker.c`); the daemon brings it along.

fn main() {
    #[cfg(feature = "daemon")]
    tracker();
}

#[cfg(feature = "daemon")]
fn tracker() {
    const SOURCE: &str = "src/guest/tracker.c";
    println!("cargo::rerun-if-changed={SOURCE}");
    let out: std::path::PathBuf = std::env::var_os("OUT_DIR")
        .expect("cargo says where")
        .into();
    // The flags of `cc` itself are left out: where the program is static, as in the lab's dom0,
    // `-static` is one of them.
    let mut command = std::process::Command::new(cc::Build::new().get_compiler().path());
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
