//! Builds the policies as they are built everywhere: freestanding, without any library's headers.

use std::ffi::OsStr;
use std::path::Path;
use std::{fs, io};

fn main() -> io::Result<()> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../policy");
    let mut sources = Vec::new();
    for directory in ["src", "models"] {
        for entry in fs::read_dir(root.join(directory))? {
            sources.push(entry?.path());
        }
    }
    sources.retain(|path| path.extension() == Some(OsStr::new("c")));
    sources.sort();
    cc::Build::new()
        .std("c11")
        .include(&root)
        .include(root.join("include"))
        .opt_level(3)
        .force_frame_pointer(false)
        .warnings_into_errors(true)
        .extra_warnings(true)
        .flag("-ffreestanding")
        .flag("-nostdinc")
        .flag("-fno-plt")
        // To pair neighbouring fields in a vector takes longer than to store each by itself.
        .flag("-fno-tree-slp-vectorize")
        .files(sources)
        .file("src/tables.c")
        .compile("laxity_policy");
    // Not the whole directory: its tests build there, and all that depends on this would be built again.
    for part in ["src", "models", "include", "policies.def", "parameters.def"] {
        println!("cargo::rerun-if-changed={}", root.join(part).display());
    }
    println!("cargo::rerun-if-changed=src/tables.c");
    Ok(())
}
