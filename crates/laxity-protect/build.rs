//! Builds what the daemon brings along: the library that is preloaded into QEMU
//! (`src/guest/tracker.c`), and the program that tries an accelerator (`src/guest/trial.S`).

fn main() {
    #[cfg(feature = "daemon")]
    {
        compile(
            "src/guest/tracker.c",
            "tracker.so",
            &["-O2", "-fPIC", "-shared", "-Wall", "-Wextra", "-Werror"],
        );
        compile(
            "src/guest/trial.S",
            "trial.bin",
            &[
                "-nostdlib",
                "-static",
                "-no-pie",
                "-Wl,--oformat=binary,-Ttext=0x20000,--build-id=none",
            ],
        );
    }
}

#[cfg(feature = "daemon")]
fn compile(source: &str, made: &str, flags: &[&str]) {
    println!("cargo::rerun-if-changed={source}");
    let out: std::path::PathBuf = std::env::var_os("OUT_DIR")
        .expect("cargo says where")
        .into();
    // The flags of `cc` itself are left out: where the program is static, as in the lab's dom0,
    // `-static` is one of them.
    let mut command = std::process::Command::new(cc::Build::new().get_compiler().path());
    let done = command
        .args(flags)
        .args([source, "-o"])
        .arg(out.join(made))
        .status();
    assert!(
        done.expect("there is a C compiler").success(),
        "{source} does not compile"
    );
}
