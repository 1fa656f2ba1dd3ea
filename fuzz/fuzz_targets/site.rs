//! Site files: whatever is written in one is either refused with places and help, or makes a site whose settings work.
#![no_main]

use std::path::Path;

use laxity_protect::site;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let is_there = |path: &Path| !path.to_string_lossy().contains('x');
    match site::load(
        data,
        "site.toml",
        Path::new("/etc"),
        Path::new("/"),
        &is_there,
    ) {
        Ok(site) => {
            for vm in &site.vms {
                assert!(vm.settings.check().is_ok());
                let [begins, standby] = &vm.hosts;
                assert!(begins != standby);
                assert!(site.host(begins).is_some() && site.host(standby).is_some());
                assert_eq!(vm.guest.memory_bytes % 4096, 0);
            }
        }
        Err(error) => {
            assert!(!error.problems().is_empty());
            for (colour, width) in [(false, 100), (true, 20)] {
                assert!(!error.render(colour, width).is_empty());
            }
        }
    }
});
