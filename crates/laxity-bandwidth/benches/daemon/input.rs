//! What several parts give to the daemon, and how they look at what comes of it.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use rand_core::{RngCore, SeedableRng};
use rand_pcg::Pcg64Mcg;

use crate::scene::{FRAME_BYTES, PAYLOAD_BYTES, Pace};

/// The beginning of a file of agreements.
pub fn head(period_ms: u64, rate_mbit_s: u64) -> String {
    format!(
        "period = \"{period_ms} ms\"\n[link]\ninterface = \"up0\"\nrate = \"{rate_mbit_s} Mbit/s\"\n"
    )
}

/// One agreement of a file; rates are in kbit/s.
pub fn agreement(at: usize, class: u64, minimum: u64, maximum: u64, weight: u64) -> String {
    format!(
        "[[agreement]]\nname = \"vm{at}\"\ninterface = \"vif{at}\"\nclass = {class}\nminimum = \"{minimum} kbit/s\"\n\
         maximum = \"{maximum} kbit/s\"\nweight = {weight}\n"
    )
}

/// The value below which this part of sorted values lies.
pub fn percentile(sorted: &[f64], part: f64) -> f64 {
    sorted[((sorted.len() - 1) as f64 * part).round() as usize]
}

/// A machine that sends at random rates for random times, floods now and then, and pauses.
pub fn random_pace(seed: u64, fair_bit_s: u64) -> Pace {
    Box::new(move |socket, running: &AtomicBool| {
        let mut random = Pcg64Mcg::seed_from_u64(seed);
        let packet = [0; PAYLOAD_BYTES];
        while running.load(Ordering::Relaxed) {
            let kind = random.next_u64() % 4;
            let time = Duration::from_millis(random.next_u64() % 1_500);
            let rate = fair_bit_s / 4 + random.next_u64() % (4 * fair_bit_s);
            let started = Instant::now();
            let mut sent: u128 = 0;
            while started.elapsed() < time && running.load(Ordering::Relaxed) {
                let due = match kind {
                    0 => 0,
                    1 => u128::MAX,
                    _ => started.elapsed().as_nanos() * u128::from(rate) / 8_000_000_000,
                };
                // The flood is bounded to limit the load on this machine.
                let mut burst = 0;
                while sent < due && burst < 64 {
                    let _ = socket.send(&packet);
                    sent += u128::from(FRAME_BYTES);
                    burst += 1;
                }
                thread::sleep(Duration::from_millis(5));
            }
        }
    })
}
