//! Builds the policies as they are built everywhere: freestanding, without any library's headers.

const SOURCES: [&str; 5] = ["credit", "fixed_period", "scheduler_s", "sedf", "sporadic"];

fn main() {
    let root = concat!(env!("CARGO_MANIFEST_DIR"), "/../../policy");
    let mut build = cc::Build::new();
    build
        .std("c11")
        .include(format!("{root}/include"))
        .opt_level(2)
        .warnings_into_errors(true)
        .extra_warnings(true)
        .flag("-ffreestanding")
        .flag("-nostdinc")
        .flag("-fno-plt");
    for source in SOURCES {
        build.file(format!("{root}/src/{source}.c"));
    }
    build.file("src/abi.c");
    build.compile("laxity_policy");
    println!("cargo::rerun-if-changed={root}");
    println!("cargo::rerun-if-changed=src/abi.c");
}
