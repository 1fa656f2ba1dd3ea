//! VCPUs whose state is being saved. A descheduled VCPU cannot be picked by another CPU until the cost of the decision
//! that took it off its CPU has passed.

use laxity_policy::Instance;

/// At most one a CPU.
#[derive(Debug, Default)]
pub struct Saving {
    /// When each will be saved, in any order.
    vcpus: Vec<(i64, usize)>,
}

impl Saving {
    /// A decision that costs time has taken the VCPU off its CPU.
    pub fn begin(&mut self, policy: &mut Instance, vcpu: usize, saved_ns: i64) {
        policy.is_being_saved(vcpu);
        self.vcpus.push((saved_ns, vcpu));
    }

    /// A CPU is about to decide: it may take those that are saved by now.
    #[inline]
    pub fn finish(&mut self, policy: &mut Instance, now: i64) {
        let mut place = 0;
        while let Some(&(saved_ns, vcpu)) = self.vcpus.get(place) {
            if saved_ns <= now {
                policy.saved(vcpu);
                self.vcpus.swap_remove(place);
            } else {
                place += 1;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    /// `long` runs on the first CPU, where `first` and `second` wake later; `a` and `b` have the second CPU placed
    /// between them.
    fn response_of_long_ns(costs: &str) -> i64 {
        let task = |name: &str, offset_ms: u32, cost_ms: u32| {
            format!(
                "[[domain]]\nname = \"{name}\"\n\
                 tasks = [{{ name = \"t\", offset = \"{offset_ms} ms\", cost = \"{cost_ms} ms\", period = \"1 s\" }}]\n"
            )
        };
        let text = [
            "duration = \"1900 ms\"\n[host]\ncpus = 2\npolicy = \"credit\"\n".to_string(),
            costs.to_string(),
            task("long", 0, 60),
            task("a", 900, 1),
            task("first", 15, 4),
            task("b", 900, 1),
            task("second", 17, 1),
        ]
        .concat();
        let host = laxity_host::load(&text, "host.toml", &[] as &[&str])
            .unwrap_or_else(|error| panic!("{error}"));
        let (outcome, _) = crate::run(&host, laxity_trace::Off).expect("the policy takes it");
        outcome.responses[0][0]
            .max_ns()
            .expect("its job is complete")
    }

    #[test]
    fn whom_a_cpu_takes_off_waits_until_an_idle_cpu_looks_again() {
        // The idle CPU has it at once if that takes no time …
        assert_eq!(response_of_long_ns(""), 60_000_000);
        // … and else when it looks for the next time: for `second`, 2 ms later, and after its 1 ms.
        let response_ns = response_of_long_ns("costs = { context-switch = \"10 us\" }\n");
        assert!(
            (63_000_000..63_200_000).contains(&response_ns),
            "{response_ns}"
        );
    }

    /// Under rtds `long` is taken off the second CPU at an odd nanosecond, and so before the first one becomes idle at
    /// the same instant and passes it over.
    #[test]
    fn whom_rtds_takes_off_calls_when_its_state_is_saved() {
        let domain = |name: &str, period_ms: u32, task: &str| {
            format!(
                "[[domain]]\nname = \"{name}\"\nbudget = \"9 ms\"\nperiod = \"{period_ms} ms\"\n\
                 tasks = [{{ name = \"t\", period = \"1 s\", {task} }}]\n"
            )
        };
        let text = [
            "duration = \"1100 ms\"\n[host]\ncpus = 2\npolicy = \"rtds\"\n\
             costs = { context-switch = \"10 us\" }\n"
                .to_string(),
            domain("long", 100, "cost = \"8 ms\""),
            domain("ends", 20, "cost = \"2000001 ns\""),
            domain("first", 50, "offset = \"2010001 ns\", cost = \"6 ms\""),
        ]
        .concat();
        let host = laxity_host::load(&text, "host.toml", &[] as &[&str])
            .unwrap_or_else(|error| panic!("{error}"));
        let (outcome, _) = crate::run(&host, laxity_trace::Off).expect("the policy takes it");
        let response_ns = outcome.responses[0][0]
            .max_ns()
            .expect("its job is complete");
        assert!(
            (8_000_000..8_100_000).contains(&response_ns),
            "{response_ns}"
        );
    }
}
