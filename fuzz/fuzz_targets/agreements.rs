//! Agreements files: whatever is written in one is either refused with places and help, or makes
//! agreements that can be allocated by.
#![no_main]

use laxity_bandwidth::agreements::{Attachment, Port};
use laxity_bandwidth::{Claim, agreements, allocate};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let look_at = |at: &Attachment, _: &str| {
        let (Attachment::Interface(name) | Attachment::Card { domain: name, .. }) = at;
        match name.chars().next() {
            Some('x') => Port::Absent,
            Some('m') => Port::Unusable("is a macvtap", "use a tap"),
            Some('u') => Port::Unknown("libvirt is away".into()),
            _ => Port::Usable,
        }
    };
    match agreements::load(data, "agreements.toml", &look_at) {
        Ok(agreements) => {
            let claims: Vec<Claim> = agreements
                .holders
                .iter()
                .map(|holder| Claim {
                    agreement: holder.agreement,
                    demand_bit_s: u64::MAX,
                })
                .collect();
            let rates = allocate(agreements.link.rate_bit_s, agreements.sharing, &claims);
            let sum: u64 = rates.iter().sum();
            assert!(sum <= agreements.link.rate_bit_s);
            for (rate, claim) in rates.iter().zip(&claims) {
                assert!(claim.agreement.minimum_bit_s <= claim.agreement.maximum_bit_s);
                assert!(*rate <= claim.agreement.maximum_bit_s);
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
