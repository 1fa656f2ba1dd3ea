//! The instance-wide settings of the policies, which are keys of `[host]`.

use laxity_config::{Duration, Field, Problem, Problems, Whole, format_duration};
use laxity_policies::{
    ACCOUNTING, ACCOUNTING_PHASE, BASE_SLICE, JIFFY, Policy, QUANTUM, RUN_QUEUE_CPUS, Settings,
    TICK, TIME_SLICE,
};
use schemars::JsonSchema;
use serde::Deserialize;

use crate::facts::{default, described};

/// The settings as they are written.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, rename_all = "kebab-case", expecting = "a table")]
pub(crate) struct SettingsTable {
    #[schemars(description = described(QUANTUM), extend("default" = default(QUANTUM)))]
    pub quantum: Field<Duration<{ QUANTUM.least }, { QUANTUM.most }>>,
    #[schemars(description = described(TIME_SLICE), extend("default" = default(TIME_SLICE)))]
    pub time_slice: Field<Duration<{ TIME_SLICE.least }, { TIME_SLICE.most }>>,
    #[schemars(description = described(TICK), extend("default" = default(TICK)))]
    pub tick: Field<Duration<{ TICK.least }, { TICK.most }>>,
    #[schemars(description = described(ACCOUNTING), extend("default" = default(ACCOUNTING)))]
    pub accounting: Field<Duration<{ ACCOUNTING.least }, { ACCOUNTING.most }>>,
    #[schemars(description = described(ACCOUNTING_PHASE), extend("default" = default(ACCOUNTING_PHASE)))]
    pub accounting_phase: Field<Duration<{ ACCOUNTING_PHASE.least }, { ACCOUNTING_PHASE.most }>>,
    #[schemars(description = described(JIFFY), extend("default" = default(JIFFY)))]
    pub jiffy: Field<Duration<{ JIFFY.least }, { JIFFY.most }>>,
    #[schemars(description = described(BASE_SLICE), extend("default" = default(BASE_SLICE)))]
    pub base_slice: Field<Duration<{ BASE_SLICE.least }, { BASE_SLICE.most }>>,
    #[schemars(description = described(RUN_QUEUE_CPUS), extend("default" = default(RUN_QUEUE_CPUS)))]
    pub run_queue_cpus: Field<Whole<{ RUN_QUEUE_CPUS.least }, { RUN_QUEUE_CPUS.most }>>,
}

pub(crate) fn resolve(table: &SettingsTable, policy: Policy, problems: &Problems) -> Settings {
    let default = Settings::default();
    let settings = Settings {
        quantum_ns: table.quantum.ns_or(default.quantum_ns),
        time_slice_ns: table.time_slice.ns_or(default.time_slice_ns),
        tick_ns: table.tick.ns_or(default.tick_ns),
        accounting_ns: table.accounting.ns_or(default.accounting_ns),
        accounting_phase_ns: table.accounting_phase.ns_or(default.accounting_phase_ns),
        jiffy_ns: table.jiffy.ns_or(default.jiffy_ns),
        base_slice_ns: table.base_slice.ns_or(default.base_slice_ns),
        run_queue_cpus: table.run_queue_cpus.or(default.run_queue_cpus.into()) as u32,
    };
    accounting_fits_tick(table, &settings, problems);
    if settings.accounting_phase_ns >= settings.accounting_ns
        && let Some(span) = table.accounting_phase.span.or(table.accounting.span)
    {
        let message = format!(
            "`accounting-phase` ({}) must be below `accounting` ({})",
            format_duration(settings.accounting_phase_ns),
            format_duration(settings.accounting_ns)
        );
        let below_ns = settings.accounting_phase_ns % settings.accounting_ns;
        let help = format!(
            "write accounting-phase = \"{}\": distributions come at the same times",
            format_duration(below_ns)
        );
        problems.report(span, message, help);
    }
    if let Some((jiffy, span)) = table.jiffy.given()
        && jiffy.ns == 0
        && policy == Policy::Eevdf
    {
        let message = "`jiffy` is 0, but eevdf accounts and preempts at timer interrupts";
        problems.report(span, message, "write jiffy = \"4 ms\" (HZ = 250), say");
    }
    settings
}

fn accounting_fits_tick(table: &SettingsTable, settings: &Settings, problems: &Problems) {
    let (tick_ns, accounting_ns) = (settings.tick_ns, settings.accounting_ns);
    // Where neither is given, the defaults fit.
    let Some(span) = table.accounting.span.or(table.tick.span) else {
        return;
    };
    if accounting_ns % tick_ns == 0 {
        return;
    }
    let nearest_ns = ((accounting_ns + tick_ns / 2) / tick_ns).max(1) * tick_ns;
    let default = if table.accounting.is_absent() {
        ", by default"
    } else {
        ""
    };
    problems.push(Problem {
        help: Some(format!(
            "write accounting = \"{}\", say",
            format_duration(nearest_ns)
        )),
        related: table
            .tick
            .span
            .filter(|tick| *tick != span)
            .map(|tick| (tick, "the tick")),
        ..Problem::new(
            span,
            format!(
                "`accounting` ({}{default}) is not a multiple of `tick` ({})",
                format_duration(accounting_ns),
                format_duration(tick_ns)
            ),
        )
    });
}
