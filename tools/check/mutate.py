"""Breaks the policies, and what drives them, in many ways, one at a time; tests must notice each.

    tools/check/mutate.py            every mutation
    tools/check/mutate.py --quick    the most telling ones
    tools/check/mutate.py NAME ...   these

The tests are the comparison with the reference and the storms, on fewer hosts and storms than
usual, and the storms in C with their look at the queues; of packets and caches the simulator's own,
of bandwidth the allocator's, of causes of lateness those that sum them, of `laxity apply` its own,
of the bounds for VCPUs that share CPUs the runs that search for a later job, and of protection its
own and a real guest with PostgreSQL.
Mutated policies are a shared object, which tests that are built once use in place of the policies
that are built in; mutated Rust is built in a copy of the sources.
A mutation that tests let pass is reported as SURVIVED, and the exit code is 1. It is 2 when a
mutation does not fit the sources any more: then it is to be written anew.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shlex
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
ENVIRONMENT = {
    "LAXITY_CASES": "40%",
    "LAXITY_FAILOVERS": "12",
    "RUST_BACKTRACE": "0",
}
STORMS_IN_C = "4000"
# The tests of policies that are written in Rust, each with its package; those first that take the
# least time.
POLICY_TESTS = {
    "late": "laxity-policy",
    "stolen": "laxity-policy",
    "storm": "laxity-policy",
    "one_order": "laxity-policy",
    "windows": "laxity-policy",
    "reference": "laxity-sim",
}
SHARED = "policy/build/policies.so"
ENGINE = "crates/laxity-sim/src/engine"
POLICIES = {"policy/src", "policy/models"}
CARGO = ("cargo", "test", "--quiet", "--locked", "--profile", "checked")
DAEMONS = ("bandwidth", "daemon", "manual", "protect")
"""Crates that would have others built with the daemons in them."""
# Some mutations make a loop endless. What a test takes of the CPU says so, however busy the machine
# is and however long the build took. A test that waits for ever takes none.
CPU_S = 90
HANGS_S = 1200
NOT_COMPILED = "error: could not compile"
"""What cargo says."""


@dataclass(frozen=True)
class Mutation:
    """A change of one place, and the property that it breaks."""

    name: str
    file: str
    old: str
    new: str
    breaks: str
    quick: bool = False
    directory: str = "policy/src"
    by: str = ""
    """The name of the test that is known to notice it, which is tried first: see `tests_of`."""

    @property
    def path(self) -> Path:
        """The file's path, from the root on."""
        return Path(self.directory) / self.file


MUTATIONS = [
    Mutation(
        "replenish-skipped",
        "fixed_period.c",
        "    vcpu->left_ns = parameters->budget_ns + (vcpu->left_ns < 0 ? vcpu->left_ns : 0);\n",
        "    if (vcpu->left_ns > 0 || now % 3)\n        vcpu->left_ns = parameters->budget_ns;\n",
        "every period brings a budget",
    ),
    Mutation(
        "replenish-early",
        "fixed_period.c",
        "    int64_t due_ns = vcpu->due.at_ns + parameters->period_ns;\n\n    if (due_ns <= now)",
        "    int64_t due_ns = vcpu->due.at_ns + parameters->period_ns - 1;\n\n"
        "    if (due_ns <= now)",
        "a budget comes once a period, not sooner",
        quick=True,
        by="storm",
    ),
    Mutation(
        "budget-doubled",
        "fixed_period.c",
        "vcpu->left_ns = parameters->budget_ns + (vcpu->left_ns < 0 ? vcpu->left_ns : 0);",
        "vcpu->left_ns += parameters->budget_ns;",
        "at most one budget is used in a period",
    ),
    Mutation(
        "overrun-forgiven",
        "fixed_period.c",
        "vcpu->left_ns = parameters->budget_ns + (vcpu->left_ns < 0 ? vcpu->left_ns : 0);",
        "vcpu->left_ns = parameters->budget_ns;",
        "what a late embedder let a VCPU use is owed",
    ),
    Mutation(
        "polling-keeps",
        "fixed_period.c",
        "    server_dequeue(cpu, vcpu);\n"
        "    if (laxity_policy_of(instance) == &laxity_polling)\n"
        "        fixed_period_drop(instance, vcpu);\n",
        "    server_dequeue(cpu, vcpu);\n",
        "a polling server drops its budget when it blocks",
        quick=True,
        by="C",
    ),
    Mutation(
        "polling-replenished-blocked",
        "fixed_period.c",
        "if (laxity_policy_of(instance) == &laxity_polling && vcpu->left_ns > 0)\n"
        "            vcpu->left_ns = 0;\n        else if",
        "if",
        "a polling server that is blocked gets no budget",
    ),
    Mutation(
        "periodic-keeps",
        "server.h",
        "return (struct server_choice){runnable ? NULL : server_first_extra(cpu), blocked};",
        "return (struct server_choice){runnable ? NULL : server_first_extra(cpu), NULL};",
        "a periodic server's budget runs down while it is blocked",
        by="storm",
    ),
    Mutation(
        "repeats-before-equals",
        "server.h",
        "if (heap_has_equals(&cpu->run_queue) ||",
        "if (",
        "a tick puts the running VCPU behind its equals",
        by="storm",
    ),
    Mutation(
        "repeated-stays-before-equals",
        "server.h",
        "        server_running(cpu)->place.order = cpu->next_order++;\n",
        "        (void)vcpu;\n",
        "a tick that the embedder left out puts the running VCPU behind its equals, too",
        by="reference",
    ),
    Mutation(
        "stolen-time-used",
        "server.h",
        "        from_ns += cpu->cpu.stolen_ns - cpu->stolen_ns;\n",
        "        from_ns += 0;\n",
        "no budget pays for time that was stolen from its VCPU",
        by="stolen",
    ),
    Mutation(
        "stolen-time-blocks",
        "server.h",
        "if (SERVER_LENDS(instance) || vcpu == server_running(cpu))\n        from_ns",
        "if (true)\n        from_ns",
        "a blocked periodic server's budget runs down whoever has the CPU",
        by="stolen",
    ),
    Mutation(
        "stolen-credits-paid",
        "scheduler_s.c",
        "now - cpu->charged_ns - (cpu->cpu.stolen_ns - cpu->stolen_ns);",
        "now - cpu->charged_ns;",
        "no credits of scheduler S pay for time that was stolen from their VCPU",
        by="stolen",
    ),
    Mutation(
        "periodic-yields-idle",
        "server.h",
        "if (blocked && (!runnable || heap_before(&blocked->place, &runnable->place)))",
        "if (blocked && !runnable)",
        "a blocked periodic server keeps lower ones waiting",
    ),
    Mutation(
        "periodic-loses-place",
        "server.h",
        "    server_enqueue_in_place(&cpu->ready_queue, vcpu);\n}",
        "    server_enqueue(cpu, &cpu->ready_queue, vcpu);\n}",
        "a blocked periodic server keeps its place among equals",
    ),
    Mutation(
        "lead-forgotten",
        "server.h",
        "    vcpu->lead[place].ns += ns;",
        "    vcpu->lead[place].ns += (ns + 1) / 2;",
        "what a VCPU did in advance is served to nobody twice",
    ),
    Mutation(
        "lead-kept",
        "server.h",
        "        lead->ns -= ns;",
        "        lead->ns -= ns - ns / 4;",
        "a server that serves what was done in advance pays for it, and soon its VCPU runs",
        quick=True,
        by="storm",
    ),
    Mutation(
        "lends-what-is-owed",
        "server.h",
        "bool lends = !runnable || server_serves_lead(runnable);",
        "bool lends = true;",
        "a VCPU that has no lead runs when its server comes first",
        quick=True,
        by="storm",
    ),
    Mutation(
        "lends-out-of-order",
        "server.h",
        "(!vcpu->is_urgent || vcpu->lead[0].order <= vcpu->order);",
        "true;",
        "a server serves no lead before work of its VCPU that is more urgent",
        quick=True,
        by="storm",
    ),
    Mutation(
        "lends-free",
        "sporadic.c",
        "    if (!server_has_lead(vcpu))\n        server_dequeue",
        "    server_dequeue",
        "a server goes on to serve the lead of a VCPU that blocked",
    ),
    Mutation(
        "late-is-urgent",
        "server.h",
        "vcpu->deadline_ns = deadline_ns > now ? deadline_ns : LAXITY_NEVER;",
        "vcpu->deadline_ns = deadline_ns;",
        "a deadline that has passed makes nobody late",
    ),
    Mutation(
        "lead-without-end",
        "server.h",
        "    return rest_ns > 0 ? now + rest_ns : LAXITY_NEVER;",
        "    return LAXITY_NEVER;",
        "a VCPU runs as soon as its server has served its lead",
    ),
    Mutation(
        "lead-of-switches",
        "server.h",
        "        server_gain_lead(running, done_ns);",
        "        server_gain_lead(running, used_ns);",
        "a CPU that switches does nothing of a VCPU's work",
    ),
    Mutation(
        "fifo-broken",
        "heap.h",
        "(a->key == b->key && a->order < b->order)",
        "(a->key == b->key && a->order > b->order)",
        "equals run first come, first served",
        quick=True,
        by="storm",
    ),
    Mutation(
        "credit2-weight-ignored",
        "credit2.c",
        "    burnt = used_ns * credit2_greatest_weight(instance, vcpu->vcpu.cpu) + vcpu->residual;",
        "    burnt = used_ns * credit2_weight(vcpu) + vcpu->residual;",
        "under credit2 credits burn by weight",
        directory="policy/models",
        by="reference",
    ),
    Mutation(
        "credit2-cap-forgiven",
        "credit2.c",
        "    domain->pool_ns += vcpu->budget_ns;\n    vcpu->budget_ns = 0;\n    if (domain",
        "    vcpu->budget_ns = 0;\n    if (domain",
        "under credit2 what was overdrawn of a cap is paid from the pool",
        directory="policy/models",
    ),
    Mutation(
        "credit2-cap-saved",
        "credit2.c",
        "    if (domain->pool_ns > filled_ns)\n        domain->pool_ns = filled_ns;\n",
        "",
        "under credit2 nobody saves what a cap allows",
        directory="policy/models",
    ),
    Mutation(
        "credit2-parked-for-good",
        "credit2.c",
        "        domain->pool_ns = filled_ns;\n    credit2_unpark(instance, domain, now);",
        "        domain->pool_ns = filled_ns;\n    (void)instance;",
        "under credit2 parked VCPUs run again when the pool is filled",
        directory="policy/models",
    ),
    Mutation(
        "credit2-no-ratelimit",
        "credit2.c",
        "if (stays && !yields && now - stays->chosen_ns < CREDIT2_RATELIMIT_NS)",
        "if (stays && !yields && now < stays->chosen_ns)",
        "under credit2 a VCPU runs for the ratelimit",
        directory="policy/models",
    ),
    Mutation(
        "credit2-no-reset-of-others",
        "credit2.c",
        "        vcpu->credit_ns += given_ns;",
        "        if (vcpu->vcpu.runnable)\n            vcpu->credit_ns += given_ns;",
        "under credit2 blocked VCPUs get credits, too",
        directory="policy/models",
    ),
    Mutation(
        "credit2-unlimited-carry",
        "credit2.c",
        "        if (vcpu->credit_ns > most_ns)\n            vcpu->credit_ns = most_ns;\n",
        "        (void)most_ns;\n",
        "under credit2 nobody saves more than 0.5 ms of credits",
        directory="policy/models",
    ),
    Mutation(
        "rtds-fixed-priority",
        "rtds.c",
        "a->level == b->level && a->deadline_ns < b->deadline_ns",
        "a->level == b->level && a->vcpu.parameters.period_ns < b->vcpu.parameters.period_ns",
        "under rtds the earlier deadline comes first",
        quick=True,
        directory="policy/models",
        by="reference",
    ),
    Mutation(
        "rtds-level-kept",
        "rtds.c",
        "    vcpu->level = 0;\n",
        "",
        "under rtds a new period begins at level 0",
        directory="policy/models",
    ),
    Mutation(
        "rtds-extratime-first",
        "rtds.c",
        "        vcpu->level++;\n        vcpu->left_ns = vcpu->vcpu.parameters.budget_ns;\n"
        "        model_trace",
        "        vcpu->left_ns = vcpu->vcpu.parameters.budget_ns;\n        model_trace",
        "under rtds extra time comes after everybody's budget",
        directory="policy/models",
    ),
    Mutation(
        "rtds-no-new-period-at-wake",
        "rtds.c",
        "    if (now >= vcpu->deadline_ns)\n        rtds_begin_period(instance, vcpu, now);\n"
        "    rtds_expect",
        "    rtds_expect",
        "under rtds a VCPU that wakes after its deadline begins a new period",
        directory="policy/models",
    ),
    Mutation(
        "rtds-lost-call",
        "rtds.c",
        "            rtds_enqueue(instance, before);\n            rtds_call(instance, before);",
        "            rtds_enqueue(instance, before);",
        "under rtds a VCPU that is taken off a CPU goes to another one",
        directory="policy/models",
    ),
    Mutation(
        "null-shares",
        "null.c",
        "return cpu && !null_cpu_of(cpu)->owner && model_may_run_on",
        "return cpu && model_may_run_on",
        "under null a CPU belongs to one VCPU",
        quick=True,
        directory="policy/models",
        by="C",
    ),
    Mutation(
        "null-elsewhere",
        "null.c",
        "    if (null_is_free(instance, vcpu, vcpu->vcpu.cpu)) {\n"
        "        null_assign(instance, vcpu, vcpu->vcpu.cpu);\n"
        "        return;\n    }\n",
        "",
        "under null a VCPU gets the CPU where it is, if that is free",
        directory="policy/models",
    ),
    Mutation(
        "null-late",
        "null.c",
        "    if (vcpu->vcpu.runnable)\n        model_kick(instance, cpu);",
        "    (void)vcpu;",
        "under null a VCPU that gets a CPU at last runs there at once",
        directory="policy/models",
    ),
    Mutation(
        "arinc653-window-lent",
        "arinc653.c",
        "        if (is_open)\n            return vcpu;",
        "        if (is_open && vcpu->vcpu.runnable)\n            return vcpu;",
        "under arinc653 nobody else runs in a window",
        quick=True,
        directory="policy/models",
        by="windows",
    ),
    Mutation(
        "arinc653-offset-ignored",
        "arinc653.c",
        "(now - parameters->phase_ns) % parameters->period_ns",
        "now % parameters->period_ns",
        "under arinc653 a window opens at its offset",
        directory="policy/models",
    ),
    Mutation(
        "arinc653-end-late",
        "arinc653.c",
        "        if (change_ns < *until_ns)\n            *until_ns = change_ns;",
        "        *until_ns = change_ns;",
        "under arinc653 a decision ends when the next window opens",
        directory="policy/models",
    ),
    Mutation(
        "fifo-lowest-kept",
        "global.h",
        "        vcpu = global_occupy(instance, cpu, vcpu);\n        cpu = NULL;",
        "        global_occupy(instance, cpu, vcpu);\n        return;",
        "a VCPU that loses its CPU looks for another",
        quick=True,
        by="C",
    ),
    Mutation(
        "fifo-pull-skipped",
        "global.h",
        "    if (!next)\n        return;\n    heap_remove",
        "    if (!next || next->place.key % 2)\n        return;\n    heap_remove",
        "a CPU that is free takes who waits",
    ),
    Mutation(
        "fifo-first-of-heap",
        "global.h",
        "        if (!is_behind && !is_found && node->child[0]) {",
        "        if (!is_behind && !is_found && !first && node->child[0]) {",
        "of those who wait, the first that may run on a CPU gets it",
    ),
    Mutation(
        "fifo-pinned-pushed",
        "linux.h",
        " && !global_is_pinned(instance, own->assigned)",
        "",
        "who can go nowhere else is pushed away last",
        directory="policy/models",
    ),
    Mutation(
        "global-equals-pushed",
        "global_server.h",
        "    return heap_before(one, other);",
        "    return one->key <= other->key;",
        "an equal that came later takes no CPU of a server of all CPUs",
        by="reference",
    ),
    Mutation(
        "global-first-kept",
        "global_server.h",
        "    if (!first || !heap_before(&first->place, &global->place))\n        return;",
        "    if (!first || heap_before(&global->place, &first->place) || key)\n        return;",
        "under global-sedf a VCPU whose period ends later gives its CPU up",
        quick=True,
        by="one_order",
    ),
    Mutation(
        "global-never-begins",
        "global_server.h",
        "    if (to)\n        global_migrate(instance, &vcpu->vcpu, to->cpu.number);",
        "    (void)to, (void)instance;",
        "a VCPU that leaves a CPU for another one belongs there",
        by="one_order",
    ),
    Mutation(
        "global-idle-for-free",
        "global_server.h",
        "{server_extra_for(instance, core, goes_on), vcpu}",
        "{server_extra_for(instance, core, goes_on), NULL}",
        "the budget of a blocked global periodic server runs down on its CPU",
        by="reference",
    ),
    Mutation(
        "global-extra-before-budgets",
        "global_server.h",
        "    if (core->global.assigned && server_is_wanted(instance, core))\n",
        "    if (core->global.assigned && !core->all)\n",
        "a global server with budget never waits for extra time",
        by="one_order",
    ),
    Mutation(
        "global-extra-twice",
        "global_server.h",
        " ||\n        server_is_elsewhere(instance, core, vcpu))",
        ")",
        "a VCPU that runs on extra time runs on one CPU",
        by="one_order",
    ),
    Mutation(
        "global-extra-without-turns",
        "global_server.h",
        "until_ns = core->global.cpu.decided_ns + SERVER_EXTRA_TURN;",
        "until_ns = LAXITY_NEVER;",
        "VCPUs of all CPUs take turns on extra time",
        by="reference",
    ),
    Mutation(
        "global-quantum-keeps-place",
        "global_server.h",
        "(!current->global.cpu || current->global.cpu == &core->global)",
        "current->global.cpu",
        "a quantum rotates equals of all CPUs",
        by="reference",
    ),
    Mutation(
        "quantum-on-time",
        "due.h",
        "cpu->rounded_ns = server_on_quantum(instance, due->key);",
        "cpu->rounded_ns = due->key;",
        "servers are replenished at multiples of the quantum",
        by="reference",
    ),
    Mutation(
        "global-repeats-before-equals",
        "global_server.h",
        "    if (waiting && waiting->key == run->global.place.key)\n        return 0;\n",
        "    (void)waiting;\n",
        "a tick puts the running VCPU of a global server behind its equals",
        by="one_order",
    ),
    Mutation(
        "global-repeated-stays-before-equals",
        "global_server.h",
        "        server_running(core)->global.place.order = core->all->global.next_order++;\n",
        "        (void)vcpu;\n",
        "a tick that the embedder left out puts a global server's VCPU behind its equals, too",
        by="reference",
    ),
    Mutation(
        "deadline-kept",
        "deadline.c",
        "    if (rest_ns < 0 || (deadline_product)vcpu->left_ns",
        "    if (rest_ns < 0 && (deadline_product)vcpu->left_ns",
        "a wake does not use up what is left faster than its share",
        directory="policy/models",
        by="reference",
    ),
    Mutation(
        "deadline-forgiven",
        "deadline.c",
        "    vcpu->left_ns -= used_ns;",
        "    vcpu->left_ns -= used_ns < vcpu->left_ns ? used_ns : vcpu->left_ns;",
        "an overrun of the runtime is owed",
        directory="policy/models",
    ),
    Mutation(
        "deadline-not-postponed",
        "deadline.c",
        "        vcpu->deadline_ns += periods * parameters->period_ns;\n",
        "        vcpu->deadline_ns += parameters->period_ns;\n",
        "a replenishment postpones the deadline",
        directory="policy/models",
    ),
    Mutation(
        "deadline-reclaims-all",
        "deadline.c",
        "    if (inactive + extra <= DEADLINE_BANDWIDTH_MAX - own)\n"
        "        active = DEADLINE_BANDWIDTH_MAX - inactive - extra;\n",
        "    (void)inactive;\n",
        "who reclaims pays for what others have in use",
        directory="policy/models",
        by="reference",
    ),
    Mutation(
        "deadline-inactive-at-once",
        "deadline.c",
        "    vcpu->inactive_ns = vcpu->deadline_ns - (int64_t)worth_ns;",
        "    vcpu->inactive_ns = 0;\n    (void)worth_ns;",
        "the bandwidth of a VCPU that blocks is in use until its 0-lag time",
        directory="policy/models",
        by="reference",
    ),
    Mutation(
        "deadline-reclaims-elsewhere",
        "deadline.c",
        "global->vcpu.cpu == number && other->inactive_ns <= now",
        "other->inactive_ns <= now",
        "who reclaims gets what is left on its CPU",
        directory="policy/models",
        by="reference",
    ),
    Mutation(
        "deadline-pays-late",
        "deadline.c",
        "    deadline_charge(instance, cpu, now);\n    deadline_arm_tick(instance, cpu, now);\n",
        "    deadline_arm_tick(instance, cpu, now);\n",
        "who reclaims pays at each tick",
        directory="policy/models",
        by="one_order",
    ),
    Mutation(
        "helper-on-its-own",
        "mod.rs",
        "            Some(owner) => owner as usize,\n",
        "            Some(_) => self.policy.add_domain(&domain.parameters)?,\n",
        "a helper has part of its domain's weight and quota",
        directory=ENGINE,
    ),
    Mutation(
        "credit2-calls-everywhere",
        "credit2.c",
        "    return cpu && credit2_shares_queue(instance, number, vcpu->vcpu.cpu) &&\n"
        "           !credit2_cpu_of(cpu)->is_called &&",
        "    return cpu && !credit2_cpu_of(cpu)->is_called &&",
        "a VCPU calls CPUs of its run queue",
        directory="policy/models",
        by="reference",
    ),
    Mutation(
        "credit2-never-balances",
        "credit2.c",
        "    credit2_balance(instance, cpu->number, now);\n",
        "",
        "run queues with different loads are balanced",
        directory="policy/models",
        by="reference",
    ),
    Mutation(
        "credit2-balances-trifles",
        "credit2.c",
        "#define CREDIT2_DIFFERENCE_FULL (CREDIT2_LOAD_ONE / 8)",
        "#define CREDIT2_DIFFERENCE_FULL LAXITY_NS(1)",
        "small differences of loads are let be",
        directory="policy/models",
        by="reference",
    ),
    Mutation(
        "credit2-forgets-load",
        "credit2.c",
        "    after->load.average += vcpu->load.average;\n",
        "",
        "the load of a VCPU goes with it",
        directory="policy/models",
        by="reference",
    ),
    Mutation(
        "credit2-ignores-preference",
        "credit2.c",
        "    if (credit2_has_preference(instance, vcpu))\n"
        "        best = credit2_idle(instance, vcpu, true);\n",
        "",
        "a VCPU calls idle CPUs that it prefers first",
        directory="policy/models",
        by="reference",
    ),
    Mutation(
        "credit2-stays-anywhere",
        "credit2.c",
        "    if (stays && credit2_is_better_elsewhere(instance, stays)) {",
        "    if (stays && now < 0) {",
        "a VCPU leaves a CPU that it does not prefer for one that idles",
        directory="policy/models",
        by="reference",
    ),
    Mutation(
        "credit2-goes-unpaused",
        "credit2.c",
        "    if (vcpu->is_chosen) {\n        vcpu->leaves_queue = true;",
        "    if (vcpu->is_chosen && vcpu->vcpu.cpu % 2) {\n        vcpu->leaves_queue = true;",
        "a VCPU that runs leaves its CPU before it goes over",
        directory="policy/models",
    ),
    Mutation(
        "eevdf-ineligible",
        "eevdf.c",
        "    return vcpu->virtual <= mean;",
        "    return vcpu->virtual <= mean + 1000000;",
        "only who is owed time is picked",
        quick=True,
        directory="policy/models",
        by="reference",
    ),
    Mutation(
        "eevdf-lag-dropped",
        "eevdf.c",
        "    if (weight)\n        vcpu->virtual -=",
        "    if (weight % 2)\n        vcpu->virtual -=",
        "a VCPU that comes back has its lag",
        directory="policy/models",
    ),
    Mutation(
        "eevdf-unprotected",
        "eevdf.c",
        "    if (next != before)\n        cpu->is_protected = true;",
        "    if (next != before)\n        cpu->is_protected = false;",
        "who runs has its slice while it is eligible",
        directory="policy/models",
    ),
    Mutation(
        "eevdf-burst",
        "eevdf.c",
        "domain->pool_ns = pool_ns > most_ns ? most_ns : (int64_t)pool_ns;",
        "domain->pool_ns = (int64_t)pool_ns;",
        "no more of a quota is kept than the burst",
        directory="policy/models",
    ),
    Mutation(
        "eevdf-debt-forgotten",
        "eevdf.c",
        "        vcpu->is_delayed = true;",
        "        eevdf_dequeue(instance, vcpu);",
        "who blocks with a debt takes part until it is paid",
        directory="policy/models",
    ),
    Mutation(
        "priority-ignored",
        "sporadic.c",
        "    return vcpu->vcpu.parameters.priority;",
        "    return vcpu->vcpu.parameters.priority / 2;",
        "no lower priority runs before a higher one",
    ),
    Mutation(
        "extratime-first",
        "server.h",
        "    if (runnable)\n        return (struct server_choice){runnable, runnable};\n"
        "    return (struct server_choice){server_first_extra(cpu), NULL};",
        "    if (server_first_extra(cpu))\n"
        "        return (struct server_choice){server_first_extra(cpu), NULL};\n"
        "    return (struct server_choice){runnable, runnable};",
        "extra time is never ahead of budget",
        by="storm",
    ),
    Mutation(
        "extratime-endless",
        "server.h",
        "} else if (choice.run && list_holds(&choice.run->extra) &&\n"
        "               choice.run->extra.next != &cpu->extra_queue) {",
        "} else if (false) {",
        "those who wait for extra time take turns",
    ),
    Mutation(
        "extratime-kept",
        "server.h",
        "    else if (!vcpu->vcpu.parameters.extratime)\n        server_leave_extra(vcpu);\n",
        "",
        "extra time can be taken away live",
    ),
    Mutation(
        "wake-before-what-is-due",
        "server.h",
        "    if (is_late)\n        server_replenish_due(instance, cpu, now);\n",
        "    (void)is_late;\n",
        "a wake does not overtake a replenishment whose timer is late",
    ),
    Mutation(
        "sporadic-split-lost",
        "sporadic.c",
        "    else if (vcpu->pending_count < SERVER",
        "    else if (used.amount_ns <= vcpu->vcpu.parameters.budget_ns / 4)\n"
        "        used.amount_ns = 0;\n"
        "    else if (vcpu->pending_count < SERVER",
        "all that is used comes back",
    ),
    Mutation(
        "sporadic-overflow",
        "sporadic.c",
        "        .amount_ns = first.amount_ns + next.amount_ns,",
        "        .amount_ns = next.amount_ns,",
        "replenishments beyond the bound are merged, not lost",
    ),
    Mutation(
        "sporadic-merge-early",
        "sporadic.c",
        "        .at_ns = at_ns > first.at_ns ? at_ns : first.at_ns,",
        "        .at_ns = at_ns < first.at_ns ? at_ns : first.at_ns,",
        "a merged replenishment does not come back early",
    ),
    Mutation(
        "sporadic-merge-late",
        "sporadic.c",
        "    int64_t at_ns = next.at_ns - first.amount_ns;",
        "    int64_t at_ns = next.at_ns;",
        "a merged replenishment is late only by the time between the runs",
    ),
    Mutation(
        "sporadic-merge-forgets",
        "sporadic.c",
        "next_at_ns - first->amount_ns - first->first_ns;",
        "next_at_ns - first->amount_ns - first->at_ns;",
        "what is late already counts when two are chosen to be merged",
    ),
    Mutation(
        "sporadic-merge-latest",
        "sporadic.c",
        "        bool is_less = late_ns < best_ns;",
        "        bool is_less = late_ns < best_ns || place == last;",
        "those are merged that are late the least",
    ),
    Mutation(
        "sporadic-trifles",
        "sporadic.c",
        "latest->amount_ns < sporadic_worth_ns(vcpu))",
        "latest->amount_ns < sporadic_worth_ns(vcpu) / 2)",
        "a trifle is merged with the next replenishment",
    ),
    Mutation(
        "sporadic-trifle-of-small-budget",
        "sporadic.c",
        "sporadic_least(SPORADIC_WORTH_NS, parameters->budget_ns / SPORADIC_WORTH_PARTS)",
        "SPORADIC_WORTH_NS",
        "a trifle of a small budget is smaller",
    ),
    Mutation(
        "sporadic-trifle-of-whole-period",
        "sporadic.c",
        "sporadic_least(part_ns, parameters->period_ns - parameters->budget_ns)",
        "part_ns",
        "where the budget is the whole period nothing is late",
    ),
    Mutation(
        "sporadic-early",
        "sporadic.c",
        ".at_ns = vcpu->run_start_ns + vcpu->vcpu.parameters.period_ns,",
        ".at_ns = vcpu->run_start_ns - vcpu->run_used_ns + vcpu->vcpu.parameters.period_ns,",
        "nothing comes back before a period has passed since its use began",
        quick=True,
        by="storm",
    ),
    Mutation(
        "sporadic-cut-too-little",
        "sporadic.c",
        "    while (cut_ns && vcpu->pending_count) {",
        "    while (false) {",
        "a smaller budget also cuts what is to come back",
    ),
    Mutation(
        "sporadic-overtakes",
        "sporadic.c",
        "        used.at_ns = latest->at_ns;\n    used.first_ns",
        "        (void)latest;\n    used.first_ns",
        "replenishments stay in order when the period is shortened",
    ),
    Mutation(
        "use-not-accounted",
        "sedf.c",
        "    server_use(instance, cpu, now);\n    server_join(",
        "    server_join(",
        "a VCPU that is added does not let the running one overrun",
    ),
    Mutation(
        "sedf-late-deadline",
        "sedf.c",
        "    server_move(cpu, vcpu, deadline_ns);\n",
        "",
        "a new period is a new deadline",
    ),
    Mutation(
        "sedf-kept-slice",
        "sedf.c",
        "    if (rest_ns > 0 &&\n",
        "    if (rest_ns > 0 ||\n",
        "a slice that was kept over a block is not used beside the next",
        quick=True,
        by="storm",
    ),
    Mutation(
        "rest-forgotten",
        "sporadic.c",
        "    server_catch_up(instance, cpu, vcpu, now);\n",
        "    (void)instance, (void)cpu, (void)vcpu, (void)now;\n",
        "a VCPU that wakes has what came due while it rested",
        by="storm",
    ),
    Mutation(
        "rest-forgotten-globally",
        "global_server.h",
        "        server_unblocked(instance, all, vcpu, now);\n"
        "        server_set_rest(all, vcpu, false);\n",
        "        server_unblocked(instance, all, vcpu, now);\n",
        "a VCPU that works has a timer for what it will get",
    ),
    Mutation(
        "rest-served-at-once",
        "due.h",
        "server_on_quantum(instance, now) - quantum_ns : now - 1;",
        "server_on_quantum(instance, now) - quantum_ns : now;",
        "what is due at the instant of a wake comes after it",
    ),
    Mutation(
        "rest-outruns-the-quantum",
        "due.h",
        "quantum_ns ? server_on_quantum(instance, now) - quantum_ns : now - 1;",
        "now - 1;",
        "what comes due within a quantum comes at its end, rest or not",
    ),
    Mutation(
        "rest-while-polling",
        "fixed_period.c",
        "    return laxity_policy_of(instance) == &laxity_deferrable;\n",
        "    return laxity_policy_of(instance) != &laxity_periodic;\n",
        "a blocked polling server has no budget, whatever came due",
        by="storm",
    ),
    Mutation(
        "rest-of-a-server-with-a-lead",
        "sporadic.c",
        "    return !server_has_lead(vcpu);\n",
        "    (void)vcpu;\n    return true;\n",
        "a server that has a lead to serve gets its budget in time",
        by="storm",
    ),
    Mutation(
        "rest-in-the-queue",
        "due.h",
        "    if (server_rests(instance, vcpu))\n        server_set_rest(cpu, vcpu, true);\n",
        "    (void)server_rests;\n",
        "no timer fires for a VCPU that rests",
        by="storm",
    ),
    Mutation(
        "rest-forgotten-by-a-change",
        "fixed_period.c",
        "    server_catch_up(instance, cpu, vcpu, now);\n    base->parameters = *parameters;\n",
        "    base->parameters = *parameters;\n",
        "a change of a VCPU that rests leaves its periods where they are",
        by="storm",
    ),
    Mutation(
        "sedf-wake-is-free",
        "sedf.c",
        "    if (rest_ns > 0 &&\n",
        "    if (false &&\n",
        "a wake does not fill up a slice that was used",
    ),
    Mutation(
        "sedf-late-wake",
        "sedf.c",
        "    sedf_begin_period(instance, cpu, vcpu, now + parameters->period_ns);\n",
        "    sedf_begin_period(instance, cpu, vcpu, vcpu->due.at_ns + parameters->period_ns);\n",
        "the period that a wake begins is counted from the wake",
    ),
    Mutation(
        "sedf-pause-is-no-block",
        "server.h",
        "    if (base != cpu->cpu.current)\n        server_unblocked(",
        "        server_unblocked(",
        "one that was paused, and that no decision took off, goes on with its slice",
    ),
    Mutation(
        "refused-applied",
        "fixed_period.c",
        "    int64_t due_ns;\n\n    if (error)\n        return error;\n"
        "    server_use(instance, cpu, now);\n",
        "    int64_t due_ns;\n\n    base->parameters = *parameters;\n    if (error)\n"
        "        return error;\n    server_use(instance, cpu, now);\n",
        "refused parameters change nothing",
    ),
    Mutation(
        "refused-settings-applied",
        "credit.c",
        "    enum laxity_error error = share_check_settings(settings);\n    if (error)\n"
        "        return error;\n    instance->settings = *settings;\n    for",
        "    enum laxity_error error = share_check_settings(settings);\n"
        "    instance->settings = *settings;\n    if (error)\n        return error;\n    for",
        "refused settings change nothing",
    ),
    Mutation(
        "check-missing",
        "budget.h",
        "    if (parameters->budget_ns < 1 || parameters->budget_ns > parameters->period_ns)",
        "    if (parameters->budget_ns < 1)",
        "a budget above the period is refused",
    ),
    Mutation(
        "cut-not-applied",
        "fixed_period.c",
        "    if (vcpu->left_ns > parameters->budget_ns) {",
        "    if (false) {",
        "a smaller budget cuts what is left",
    ),
    Mutation(
        "timer-not-armed",
        "server.h",
        "            laxity_extend(instance, cpu->cpu.number, until_ns);\n"
        "        }\n    }\n    server_arm(instance, cpu, now);",
        "            laxity_extend(instance, cpu->cpu.number, until_ns);\n        }\n    }",
        "the timer follows every change",
    ),
    Mutation(
        "removed-still-due",
        "server.h",
        "    server_leave_urgent(cpu, vcpu);\n    server_set_due(cpu, vcpu, LAXITY_NEVER);\n",
        "    server_leave_urgent(cpu, vcpu);\n",
        "nothing is left of a VCPU that is removed",
    ),
    Mutation(
        "paused-uncharged",
        "server.h",
        "    return vcpu->vcpu.runnable || &vcpu->vcpu == cpu->cpu.current"
        " || vcpu->lead_count > 0;",
        "    (void)cpu;\n    return vcpu->vcpu.runnable || vcpu->lead_count > 0;",
        "a VCPU that is paused blocks at the decision that takes it off, not before",
    ),
    Mutation(
        "paused-unseen",
        "server.h",
        "        server_block(instance, cpu, vcpu);\n    server_review(instance, cpu, now);",
        "        server_block(instance, cpu, vcpu);\n"
        "    if (base != cpu->cpu.current)\n        server_review(instance, cpu, now);",
        "a VCPU that is paused is charged until it is taken off",
    ),
    Mutation(
        "paused-not-given",
        "sporadic.c",
        "} else if (!server_is_queued(vcpu) && vcpu->left_ns > 0 && server_is_active(cpu, vcpu)) {",
        "} else if (!server_is_queued(vcpu) && vcpu->left_ns > 0 && base->runnable) {",
        "a VCPU that is paused uses a larger budget until it is taken off",
    ),
    Mutation(
        "move-forgets-due",
        "server.h",
        "    server_set_due(to, vcpu, due_ns);\n    if (runs_down)",
        "    if (runs_down)",
        "a VCPU that is moved gets its next budget when it was due",
        quick=True,
        by="C",
    ),
    Mutation(
        "move-due-anew",
        "server.h",
        "    server_set_due(to, vcpu, due_ns);\n    if (runs_down)",
        "    server_set_due(to, vcpu, due_ns == LAXITY_NEVER ? due_ns : now);\n    if (runs_down)",
        "a move gives no budget",
    ),
    Mutation(
        "move-still-burns",
        "server.h",
        "    if (from->burning == vcpu)\n        server_burn(instance, from, NULL, now);\n",
        "",
        "a VCPU that was moved uses no budget on the CPU that it left",
    ),
    Mutation(
        "move-use-forgiven",
        "server.h",
        "    server_use(instance, from, now);\n    server_use(instance, to, now);\n",
        "    server_use(instance, to, now);\n",
        "what was used before a move is paid",
    ),
    Mutation(
        "move-unaccounted",
        "server.h",
        "    server_use(instance, from, now);\n    server_use(instance, to, now);\n",
        "    server_use(instance, from, now);\n",
        "a VCPU that comes does not let the running one overrun",
    ),
    Mutation(
        "move-keeps",
        "server.h",
        "    if (runs_down)\n        server_enqueue(to, runs_down, vcpu);\n",
        "    (void)runs_down;\n",
        "a blocked periodic server's budget runs down wherever it is moved",
    ),
    Mutation(
        "move-keeps-order",
        "server.h",
        "    vcpu->due.node.order = to->next_order++; /* places are counted on each CPU */\n",
        "",
        "what is due at one instant is served in the order in which the VCPUs came",
    ),
    Mutation(
        "move-unseen",
        "server.h",
        "    server_review(instance, from, now);\n    server_review(instance, to, now);\n",
        "    server_review(instance, from, now);\n",
        "the CPU that a VCPU comes to arms its timer for it",
    ),
    Mutation(
        "move-still-armed",
        "server.h",
        "    server_review(instance, from, now);\n    server_review(instance, to, now);\n",
        "    server_review(instance, to, now);\n",
        "the CPU that a VCPU left decides and arms its timer without it",
    ),
    Mutation(
        "move-member-left-behind",
        "server.h",
        "    list_remove(&vcpu->member);\n\n    base->cpu = number;\n"
        "    list_append(&to->members, &vcpu->member);\n",
        "    base->cpu = number;\n",
        "nothing is left of a VCPU on the CPU that it left",
    ),
    Mutation(
        "quantum-remembered",
        "server.h",
        "        cpu->rounded_ns = 0;\n",
        "",
        "a new quantum counts from now on",
    ),
    Mutation(
        "own-replenishment-late",
        "server.h",
        "        server_replenish_first(instance, cpu, now);\n    choice =",
        "        ;\n    choice =",
        "a budget that comes back when it is used up is there at once",
    ),
    Mutation(
        "become-forgets",
        "fixed_period.c",
        "        server_dequeue(cpu, vcpu);\n"
        "        if (laxity_policy_of(instance) == &laxity_polling)",
        "        if (laxity_policy_of(instance) == &laxity_polling)",
        "nobody stays in the RdyQ of a policy that has none",
    ),
    Mutation(
        "become-keeps",
        "fixed_period.c",
        "            fixed_period_drop(instance, vcpu);\n        else if",
        "            ;\n        else if",
        "blocked VCPUs drop their budget when the host becomes polling",
    ),
    Mutation(
        "heap-sink",
        "heap.h",
        "int side = right && heap_before(right, left);",
        "int side = 0;",
        "the heap's first is the first",
        quick=True,
        by="C",
    ),
    Mutation(
        "heap-rise",
        "heap.h",
        "    heap_substitute(heap, node, last);\n    heap_rise(heap, last);\n",
        "    heap_substitute(heap, node, last);\n",
        "a node that takes another's place may have to rise",
    ),
    Mutation(
        "wake-lost",
        "server.h",
        "    server_set_urgent(instance, cpu, vcpu);\n    server_review(instance, cpu, now);\n}\n\n"
        "/* The guest works",
        "    server_set_urgent(instance, cpu, vcpu);\n}\n\n/* The guest works",
        "no wake-up is lost",
    ),
    Mutation(
        "quantum-late",
        "budget.h",
        "    return (time_ns + quantum_ns - 1) / quantum_ns * quantum_ns;",
        "    return (time_ns + quantum_ns) / quantum_ns * quantum_ns;",
        "a budget comes at the first multiple of the quantum that is not before it is due",
    ),
    Mutation(
        "credit-phase-ignored",
        "share.h",
        "settings->accounting_phase_ns - settings->accounting_ns;",
        "-settings->accounting_ns;",
        "credits are distributed at their phase",
        quick=True,
        by="late",
    ),
    Mutation(
        "credit-accounting-before-tick",
        "credit.c",
        "if (cpu->ticking && cpu->tick_ns <= now)",
        "if (0)",
        "a tick comes before the accounting of its time",
        by="late",
    ),
    Mutation(
        "credit-ticks-twice",
        "credit.c",
        "if (now < cpu->tick_ns)",
        "if (0)",
        "a tick that came with an accounting comes once",
        by="late",
    ),
    Mutation(
        "credit-late-tick-skips-accounting",
        "credit.c",
        "share_accounting_after_tick(instance, now)",
        "share_next_step(instance, instance->settings.accounting_ns, now)",
        "a tick that is handled late is followed by the accounting of its time",
        by="late",
    ),
    Mutation(
        "credit-late-tick-extends-turn",
        "credit.c",
        " || cpu->until_ns < now)",
        ")",
        "a tick behind the end of a turn gives no other one",
        by="late",
    ),
    Mutation(
        "s-late-tick-extends-turn",
        "scheduler_s.c",
        " || cpu->until_ns < now)",
        ")",
        "a tick behind the end of a turn gives no other one",
        by="late",
    ),
    Mutation(
        "s-late-tick-skips-accounting",
        "scheduler_s.c",
        "    if (!was_armed && s_instance_of(instance)->account_armed)",
        "    if (!was_armed && now < 0)",
        "a tick that is handled late is followed by the accounting of its time",
        by="late",
    ),
    Mutation(
        "credit-cap-ignored",
        "share.h",
        "    return cap_percent && cap_ns < most_ns ? cap_ns : most_ns;",
        "    (void)cap_percent;\n    (void)cap_ns;\n    return most_ns;",
        "no domain gets more than its cap",
        quick=True,
        by="storm",
    ),
    Mutation(
        "credit-not-parked",
        "credit.c",
        "        vcpu->parked = true;\n",
        "",
        "a domain that used up its cap waits",
    ),
    Mutation(
        "credit-boost-endless",
        "credit.c",
        "        vcpu->class = CREDIT_UNDER;\n"
        "        credit_trace(instance, vcpu, LAXITY_EVENT_CLASS, CREDIT_UNDER);\n",
        "",
        "a boost ends at the tick",
    ),
    Mutation(
        "credit-weight-ignored",
        "share.h",
        "rest->share_ns = rest->credits_ns * weight / rest->weight;",
        "rest->share_ns = rest->credits_ns / rest->weight;",
        "domains share by weight",
    ),
    Mutation(
        "credit-steals-anything",
        "credit.c",
        " && laxity_may_run_on(instance, &vcpu->vcpu, cpu->cpu.number))\n            return vcpu;",
        " && cpu != NULL)\n            return vcpu;",
        "a VCPU runs only where it may",
    ),
    Mutation(
        "credit-steals-unsaved",
        "credit.c",
        "        if (!vcpu->vcpu.on_cpu && laxity_may_run_on",
        "        if (laxity_may_run_on",
        "no VCPU is stolen before its state is saved",
    ),
    Mutation(
        "credit-lock-kept",
        "credit.c",
        "        laxity_unlock(instance, number);\n",
        "        if (!vcpu)\n            laxity_unlock(instance, number);\n",
        "a lock that was taken is given back",
    ),
    Mutation(
        "credit-turn-endless",
        "credit.c",
        "    if (credit_best_waiting(cpu) > class && !could_steal)",
        "    if (credit_best_waiting(cpu) >= class && !could_steal)",
        "those of one class take turns",
    ),
    Mutation(
        "credit-member-left-behind",
        "credit.c",
        "    credit_set_active(instance, vcpu, false);\n    credit_change(",
        "    credit_change(",
        "a VCPU that is removed takes no share",
    ),
    Mutation(
        "credit-boost-unseen",
        "credit.c",
        "        credit_touch(instance, vcpu);\n    }\n    credit_ready(",
        "    }\n    credit_ready(",
        "a boost ends at the accounting",
        by="storm",
    ),
    Mutation(
        "credit-cap-unseen",
        "credit.c",
        "    credit_change(instance, credit_domain_of(domain));\n    return LAXITY_OK;",
        "    return LAXITY_OK;",
        "a VCPU is parked or not by the cap that its domain has now",
        by="storm",
    ),
    Mutation(
        "credit-due-late",
        "credit.c",
        "claim->due.first->key <= claim->paid_ns",
        "claim->due.first->key < claim->paid_ns",
        "a VCPU changes its class when its credits are just enough",
        by="storm",
    ),
    Mutation(
        "credit-claim-lost",
        "credit.c",
        "        vcpu->credits_ns -= difference_ns;\n",
        "",
        "VCPUs keep their credits when their domain claims something else",
        by="storm",
    ),
    Mutation(
        "credit-claim-kept",
        "credit.c",
        "        if (domain->active_count != domain->claim->share.active_count)\n"
        "            credit_change(instance, domain);\n",
        "",
        "a domain's share is divided by as many VCPUs as are active",
        by="storm",
    ),
    Mutation(
        "credit-out-of-turn",
        "credit.c",
        "    return of_a < of_b || (of_a == of_b && a->number < b->number);",
        "    return of_a > of_b || (of_a == of_b && a->number < b->number);",
        "VCPUs change their classes in the order of the file",
        by="reference",
    ),
    Mutation(
        "s-use-forgiven",
        "scheduler_s.c",
        "    s_charge(instance, cpu, now);\n    if (before && now",
        "    cpu->charged_ns = now;\n    if (before && now",
        "what was used is paid, however short it was",
        by="storm",
    ),
    Mutation(
        "s-not-spread",
        "scheduler_s.c",
        "        vcpu->credits_ns = each_ns;\n",
        "        vcpu->credits_ns += share_ns / count;\n",
        "the VCPUs of a domain have the same credits",
    ),
    Mutation(
        "s-debt-endless",
        "scheduler_s.c",
        "    if (each_ns < -accounting_ns)\n        each_ns = -accounting_ns;\n",
        "",
        "a debt is at most one accounting time",
    ),
    Mutation(
        "s-inactive-shares",
        "scheduler_s.c",
        "        if (full)\n            s_set_active(instance, vcpu, false);\n",
        "",
        "who has more than one accounting time shares no more",
    ),
    Mutation(
        "s-laxity-ignored",
        "scheduler_s.c",
        "            if (wait_ns > laxity_ns || seen++ == S_SCAN) {",
        "            if ((wait_ns > laxity_ns && wait_ns < 0) || seen++ == S_SCAN) {",
        "a real-time VCPU is put where its wait is within its laxity",
        by="storm",
    ),
    Mutation(
        "s-laxity-too-early",
        "scheduler_s.c",
        "            if (wait_ns > laxity_ns || seen++ == S_SCAN) {",
        "            if (wait_ns >= laxity_ns || seen++ == S_SCAN) {",
        "a wait that is just the laxity is within it",
    ),
    Mutation(
        "s-laxity-behind-class",
        "scheduler_s.c",
        "    for (int part = S_BOOST; part <= (int)vcpu->class; part++)\n"
        "        for (struct list *node = cpu->queue[part].next;",
        "    for (int part = S_BOOST; part <= S_OVER; part++)\n"
        "        for (struct list *node = cpu->queue[part].next;",
        "laxity makes nobody wait behind where its class puts it",
    ),
    Mutation(
        "s-over-claims",
        "scheduler_s.c",
        "    return s_has(instance, S_LAXITY) && s_is_real_time(vcpu) && vcpu->class != S_OVER;",
        "    return s_has(instance, S_LAXITY) && s_is_real_time(vcpu);",
        "who has no credits has no claim to a place",
    ),
    Mutation(
        "s-run-unmeasured",
        "scheduler_s.c",
        "        before->expected_ns = now - cpu->chosen_ns;",
        "        before->expected_ns += now - cpu->chosen_ns;",
        "a VCPU is expected to run as long as the last time",
    ),
    Mutation(
        "s-event-for-all",
        "scheduler_s.c",
        "    if (!s_has(instance, S_EVENT) || !s_is_real_time(vcpu) || vcpu->class != S_UNDER ||",
        "    if (!s_has(instance, S_EVENT) || vcpu->class != S_UNDER ||",
        "an event boosts real-time VCPUs only",
    ),
    Mutation(
        "s-event-unheard",
        "scheduler_s.c",
        "    s_dequeue(vcpu);\n    s_boost(instance, vcpu);\n    s_ready(instance, vcpu, now);",
        "    s_dequeue(vcpu);\n    s_boost(instance, vcpu);\n    s_enqueue(instance, "
        "s_cpu_of(instance->cpu[base->cpu]), vcpu);\n    (void)now;",
        "who is boosted comes first at once",
    ),
    Mutation(
        "s-threshold",
        "scheduler_s.c",
        "vcpu->queued_ns + S_THRESHOLD_NS <= own->queued_ns",
        "vcpu->queued_ns + S_THRESHOLD_NS < own->queued_ns",
        "who has waited 2 ms longer is stolen",
    ),
    Mutation(
        "s-steals-for-real-time",
        "scheduler_s.c",
        "    if (!own || !s_has(instance, S_BALANCE) || s_is_real_time(own))",
        "    if (!own || !s_has(instance, S_BALANCE))",
        "a real-time VCPU runs before an equal of another CPU",
    ),
    Mutation(
        "s-bound-stolen",
        "scheduler_s.c",
        "        if (!vcpu->vcpu.on_cpu && !s_is_bound(instance, vcpu) &&",
        "        if (!vcpu->vcpu.on_cpu &&",
        "with LL nobody steals a real-time VCPU",
        quick=True,
        by="storm",
    ),
    Mutation(
        "s-steals-unsaved",
        "scheduler_s.c",
        "        if (!vcpu->vcpu.on_cpu && !s_is_bound(instance, vcpu) &&",
        "        if (!s_is_bound(instance, vcpu) &&",
        "no VCPU is stolen before its state is saved",
    ),
    Mutation(
        "s-fetches-unsaved",
        "scheduler_s.c",
        "list_holds(&vcpu->queue) && !vcpu->vcpu.on_cpu &&",
        "list_holds(&vcpu->queue) &&",
        "no VCPU moves before its state is saved",
    ),
    Mutation(
        "s-fetches-anywhere",
        "scheduler_s.c",
        "                laxity_may_run_on(instance, &vcpu->vcpu, self) &&\n",
        "",
        "a VCPU moves only to where it may run",
    ),
    Mutation(
        "s-never-balances",
        "scheduler_s.c",
        "            best = vcpu;\n",
        "",
        "real-time VCPUs are balanced",
    ),
    Mutation(
        "s-balances-worse",
        "scheduler_s.c",
        "            if (rest_ns >= difference_ns || ",
        "            if (rest_ns > difference_ns || ",
        "a move makes the CPUs more alike, and the first of equals moves",
    ),
    Mutation(
        "s-left-to-nobody",
        "scheduler_s.c",
        "    if (!comes) {\n        s_call(instance, vcpu, number);\n        return NULL;",
        "    if (!comes) {\n        return NULL;",
        "who cannot move is its own CPU's again",
    ),
    Mutation(
        "s-forgotten",
        "scheduler_s.c",
        "    if (before && before != vcpu && list_holds(&before->queue))\n"
        "        s_call(instance, before, before->vcpu.cpu);\n",
        "    (void)before;\n",
        "who is to move no more is its own CPU's again",
    ),
    Mutation(
        "s-removed-moves",
        "scheduler_s.c",
        "    if (s->moving == vcpu)\n        s->moving = NULL;\n    s_set_active",
        "    s_set_active",
        "nothing is left of a VCPU that is removed",
    ),
    Mutation(
        "s-credit-finite",
        "scheduler_s.c",
        "(parked || !s_has(instance, S_INFINITE) || !s_is_real_time(vcpu));",
        "(parked || !s_is_real_time(vcpu) || s_has(instance, S_BIND));",
        "with I a real-time VCPU is never over",
    ),
    Mutation(
        "s-cap-ignored",
        "scheduler_s.c",
        "    bool parked = negative && vcpu->vcpu.domain->parameters.cap_percent;",
        "    bool parked = negative && vcpu->vcpu.domain->parameters.cap_percent > 1000;",
        "a domain that used up its cap waits, infinite credit or not",
    ),
    Mutation(
        "s-cut-by-all",
        "scheduler_s.c",
        "           s_is_real_time(vcpu) && !s_is_real_time(running);",
        "           !s_is_real_time(running);",
        "with C only real-time VCPUs cut turns short",
    ),
    Mutation(
        "s-idle-not-called",
        "scheduler_s.c",
        "            s_call_idle(instance, vcpu);\n    }\n    s_review",
        "            s_is_bound(instance, vcpu);\n    }\n    s_review",
        "a VCPU that becomes ready calls an idle CPU",
    ),
    Mutation(
        "ticks-never-stop",
        "ticks.rs",
        "vcpu.tick.had_job = has_work;",
        "vcpu.tick.had_job |= has_work;",
        "an idle guest ticks once",
        quick=True,
        directory=ENGINE,
        by="reference",
    ),
    Mutation(
        "ticks-never-idle",
        "ticks.rs",
        "let is_needed = has_work || vcpu.tick.had_job;",
        "let is_needed = has_work;",
        "a guest that falls idle ticks once more",
        directory=ENGINE,
    ),
    Mutation(
        "ticks-missed",
        "ticks.rs",
        "if vcpu.tick.left_ns > 0 ||",
        "if vcpu.tick.left_ns > 0 || !vcpu.blocked && vcpu.cpu == NOBODY ||",
        "a VCPU that waits serves its tick when it runs next",
        directory=ENGINE,
    ),
    Mutation(
        "ticks-begin-again",
        "ticks.rs",
        "vcpu.tick.left_ns > 0 || !is_needed",
        "!is_needed",
        "while a tick is due or being served none is added",
        directory=ENGINE,
    ),
    Mutation(
        "timers-put-off-twice",
        "ticks.rs",
        "task.waits() && !task.is_put_off && now",
        "task.waits() && now",
        "a job is put off once at most",
        directory=ENGINE,
        by="reference",
    ),
    Mutation(
        "timers-not-set-at-a-completion",
        "mod.rs",
        "tick.min_delta_ns > 0 {\n            self.put_off(task",
        "tick.min_delta_ns < 0 {\n            self.put_off(task",
        "a kernel sets its timer for a task whose job completes",
        directory=ENGINE,
        by="reference",
    ),
    Mutation(
        "engine-no-task-is-woken",
        "mod.rs",
        "task.remaining_ns = task.wake_ns + task.cost_ns;",
        "task.remaining_ns = task.cost_ns;",
        "a task is woken for a job that it waits for",
        directory=ENGINE,
        by="reference",
    ),
    Mutation(
        "engine-jobs-interrupt-nobody",
        "mod.rs",
        "if interrupts || first != Some(vcpu.task) {",
        "if first != Some(vcpu.task) {",
        "a job that comes interrupts the one that runs",
        directory=ENGINE,
        by="reference",
    ),
    Mutation(
        "engine-interrupts-add-up",
        "mod.rs",
        "vcpu.tick.interrupt_ns > 0 && vcpu.tick.left_ns == 0;",
        "vcpu.tick.interrupt_ns > 0;",
        "one interrupt serves all that wait",
        directory=ENGINE,
        by="reference",
    ),
    Mutation(
        "engine-sets-timers-before-interrupts",
        "mod.rs",
        "if self.vcpus[vcpu_index].tick.interrupt_ns == 0 {",
        "if true {",
        "a kernel that serves an interrupt sets its timer then",
        directory=ENGINE,
        by="reference",
    ),
    Mutation(
        "engine-tells-before-interrupts",
        "mod.rs",
        "if ticks && by_interrupts {",
        "if false {",
        "a guest whose jobs come by interrupts tells when it has served one",
        directory=ENGINE,
        by="reference",
    ),
    Mutation(
        "engine-tells-nothing-of-the-next-job",
        "mod.rs",
        "None if by_interrupts && !vcpu.cpu_bound => next(),",
        "None if by_interrupts && vcpu.cpu_bound => next(),",
        "a guest whose jobs come by interrupts tells for what it will wake",
        directory=ENGINE,
        by="reference",
    ),
    Mutation(
        "engine-late-tasks-are-interrupted",
        "mod.rs",
        "let interrupts = first_of_task && vcpu",
        "let interrupts = vcpu",
        "a job whose task is late comes by no interrupt",
        directory=ENGINE,
        by="reference",
    ),
    Mutation(
        "engine-tie-of-no-order",
        "mod.rs",
        "            .min_by_key(place)\n",
        "            .max_by_key(place)\n",
        "jobs of one instant are released in the order of the tie",
        directory=ENGINE,
        by="seen",
    ),
    Mutation(
        "engine-tie-passed-too-soon",
        "mod.rs",
        "take_while(|tie| tie.time_ns < now)",
        "take_while(|tie| tie.time_ns <= now)",
        "a tie holds for its instant",
        directory=ENGINE,
        by="seen",
    ),
    Mutation(
        "engine-own-wake-of-any-vcpu",
        "ticks.rs",
        ".any(|wake| wake.vcpu == vcpu)",
        ".any(|wake| wake.vcpu.1 == vcpu.1)",
        "a guest takes the ticks for which it wakes itself",
        directory=ENGINE,
        by="seen",
    ),
    Mutation(
        "engine-own-wake-before-the-tick",
        "ticks.rs",
        "partition_point(|wake| wake.time_ns < now)",
        "partition_point(|wake| wake.time_ns < now - LATE_NS_MAX)",
        "a wake for a tick comes after it",
        directory=ENGINE,
        by="seen",
    ),
]


BANDWIDTH = "crates/laxity-bandwidth/src"
SENDERS = f"{BANDWIDTH}/simulate"
SIMULATOR = "crates/laxity-sim/src"
NETWORK = f"{SIMULATOR}/network"

MUTATIONS += [
    Mutation(
        "allocate-classes-reversed",
        "allocate.rs",
        "order.sort_by_key(|&index| claims[index].agreement.class);",
        "order.sort_by_key(|&index| std::cmp::Reverse(claims[index].agreement.class));",
        "minima are served from the highest class",
        directory=BANDWIDTH,
    ),
    Mutation(
        "allocate-beyond-maximum",
        "allocate.rs",
        "self.agreement.maximum_bit_s.min(self.demand_bit_s)",
        "self.demand_bit_s",
        "nobody gets more than the maximum",
        directory=BANDWIDTH,
    ),
    Mutation(
        "allocate-weights-ignored",
        "allocate.rs",
        "            weights += member.weight;\n",
        "            weights += weight / self.members.len() as u64;\n",
        "what is left is shared by weight",
        directory=BANDWIDTH,
    ),
    Mutation(
        "allocate-rounded-away",
        "allocate.rs",
        "self.rates[member.index] += end_of(weights) - begin;",
        "self.rates[member.index] += (end_of(weights) - begin) / 8 * 8;",
        "nothing is left while someone wants it, to the bit",
        directory=BANDWIDTH,
    ),
    Mutation(
        "allocate-sorted-wrongly",
        "allocate.rs",
        "a_level.cmp(&b_level).then(a.index.cmp(&b.index))",
        "b_level.cmp(&a_level).then(a.index.cmp(&b.index))",
        "who is full leaves the rest to the others",
        directory=BANDWIDTH,
    ),
    Mutation(
        "demand-is-what-was-delivered",
        "demand.rs",
        "self.demand_bit_s = doubled_bit_s.max(wanted_bit_s).max(FIRST_BIT_S);",
        "self.demand_bit_s = delivered_bit_s.min(doubled_bit_s).max(FIRST_BIT_S);",
        "a throttled sender's demand is not its rate",
        directory=BANDWIDTH,
    ),
    Mutation(
        "demand-never-falls",
        "demand.rs",
        "self.demand_bit_s -= (self.demand_bit_s - wanted_bit_s).div_ceil(2);",
        "self.calm_periods = HOLD_PERIODS;",
        "an idle sender gives its share away",
        directory=BANDWIDTH,
    ),
    Mutation(
        "control-minimum-not-kept",
        "control.rs",
        "allocated_bit_s.max(known.assured_bit_s).max(floor_bit_s)",
        "allocated_bit_s.max(floor_bit_s)",
        "an idle sender's limit is not below its minimum",
        directory=BANDWIDTH,
    ),
    Mutation(
        "control-share-forgotten",
        "control.rs",
        "            known.limits.ceiling_bit_s = if is_free {",
        "            known.limits.ceiling_bit_s = if is_free || known.demand_bit_s > 0 {",
        "who is held back is held to its share",
        directory=BANDWIDTH,
    ),
    Mutation(
        "control-rests-too-soon",
        "control.rs",
        "            if !(sample.is_quiet() && known.estimator.is_at_rest()) {",
        "            if !sample.is_quiet() {",
        "a quiet sender's estimate comes down while it is not told of",
        directory=BANDWIDTH,
    ),
    Mutation(
        "control-quiet-are-forgotten",
        "control.rs",
        "        stepped.extend(self.awake.iter().map(|&at| (at, quiet)));\n",
        "        let _ = quiet;\n",
        "a sender that falls quiet gives its share away",
        directory=BANDWIDTH,
    ),
    Mutation(
        "thread-stays",
        "threads.rs",
        ".find(|&vcpu| !has_threads(vcpu))",
        ".find(|&vcpu| vcpu == last || !has_threads(vcpu))",
        "a woken thread goes where its domain has a VCPU without one",
        directory=NETWORK,
    ),
    Mutation(
        "threads-not-pulled",
        "threads.rs",
        "            self.pull_thread(vcpu, vcpus);\n",
        "            let _ = vcpus;\n",
        "threads do not wait for a VCPU while another of their domain has none",
        directory=NETWORK,
    ),
    Mutation(
        "taken-while-saved",
        "engine/saving.rs",
        "        policy.is_being_saved(vcpu);\n",
        "",
        "nobody takes a VCPU whose state is being saved",
        directory=SIMULATOR,
    ),
    Mutation(
        "kernel-keeps-vcpu",
        "line.rs",
        "self.active != 0 && !(self.has_own_threads() && self.in_a_row >= PACKETS_IN_A_ROW)",
        "self.active != 0",
        "packets without end leave threads a part of the VCPU",
        directory=NETWORK,
    ),
    Mutation(
        "loss-uncounted",
        "phones.rs",
        "            self.tally.lost += 1;\n",
        "",
        "a packet is received, lost or on its way",
        directory=NETWORK,
    ),
    Mutation(
        "coalesce-ignored",
        "card.rs",
        "} else if self.received.len() >= self.coalesce_packets || self.coalesce_ns == 0 {",
        "} else if !self.received.is_empty() {",
        "a card that coalesces interrupts after the time or the packets",
        directory=NETWORK,
    ),
    Mutation(
        "wire-in-the-past",
        "card.rs",
        "self.inward_until_ns = self.inward_until_ns.max(now) + self.wire_ns(bytes);",
        "self.inward_until_ns += self.wire_ns(bytes);",
        "a packet takes its time on the wire from when it is sent",
        directory=NETWORK,
    ),
    Mutation(
        "link-window-early",
        "link.rs",
        "if self.left_bytes < bytes && now >= self.since_ns + WINDOW_NS {",
        "if self.left_bytes < bytes && now >= self.since_ns + WINDOW_NS / 2 {",
        "a backend takes no more in a window than its rate gives",
        directory=NETWORK,
    ),
    Mutation(
        "link-credit-free",
        "link.rs",
        "        self.left_bytes -= bytes;\n",
        "        self.left_bytes -= bytes / 2;\n",
        "every frame takes its credit",
        directory=NETWORK,
    ),
    Mutation(
        "link-never-set",
        "link.rs",
        "credit.window_bytes = window_bytes(self.controller.limits(at).ceiling_bit_s);",
        "let _ = (at, credit);",
        "the allocator sets rates",
        directory=NETWORK,
    ),
    Mutation(
        "link-queue-unseen",
        "link.rs",
        "backlog_bytes: now.waiting_bytes,",
        "backlog_bytes: now.waiting_bytes & 0,",
        "a domain that is held back wants more than it sends",
        directory=NETWORK,
    ),
    Mutation(
        "link-stops-for-good",
        "mod.rs",
        "                        self.notify(self.interfaces[interface].from_source);\n",
        "",
        "with new credit netback goes on",
        directory=NETWORK,
    ),
    Mutation(
        "link-dropped-unseen",
        "threads.rs",
        "                    interface.counted.dropped_in_guest += 1;\n",
        "",
        "what a guest drops is counted",
        directory=NETWORK,
    ),
    Mutation(
        "link-dropped-is-sent",
        "path.rs",
        "                    counted.sent -= 1;\n",
        "",
        "what a card drops was not sent",
        directory=NETWORK,
    ),
    Mutation(
        "link-drop-dear",
        "threads.rs",
        "        let send = if is_dropped {",
        "        let send = if is_dropped && pool.cards.len() > 99 {",
        "what is dropped in the guest costs it a system call alone",
        directory=NETWORK,
    ),
    Mutation(
        "link-look-free",
        "path.rs",
        "let cost_ns = (0..looked_at).map(",
        "let cost_ns = (0..looked_at.min(1)).map(",
        "a look costs its time for each domain",
        directory=NETWORK,
    ),
    Mutation(
        "link-looks-once",
        "agreements.rs",
        "        self.at(now + period_ns, Outside::Look);\n        self.notify(source);",
        "        let _ = period_ns;\n        self.notify(source);",
        "the allocator looks every period",
        directory=NETWORK,
    ),
    Mutation(
        "sender-slow",
        "threads.rs",
        "        self.at(now + sender.interval_ns, Outside::Send { pool });",
        "        self.at(now + sender.interval_ns + 1_000, Outside::Send { pool });",
        "a sender sends at its rate",
        directory=NETWORK,
    ),
    Mutation(
        "shared-queue-turned-round",
        "guest.rs",
        "        self.steps.push_back(taken.clone());",
        "        self.steps.push_front(taken.clone());",
        "first come, first served",
        directory=SENDERS,
    ),
    Mutation(
        "shared-queue-short",
        "guest.rs",
        "parts(offered, QUEUE_BYTES + link_bytes - self.bytes);",
        "parts(offered, QUEUE_BYTES - self.bytes);",
        "what the link takes meanwhile finds room",
        directory=SENDERS,
    ),
    Mutation(
        "shared-queue-forgets",
        "guest.rs",
        "        self.bytes -= sent.iter().sum::<u64>();",
        "        self.bytes = 0;",
        "a shared queue has an end",
        directory=SENDERS,
    ),
    Mutation(
        "shared-queue-unfair",
        "guest.rs",
        "let end_of = |upto: u64| (u128::from(upto) * u128::from(room) / u128::from(sum)) as u64;",
        "let end_of = |upto: u64| upto.min(room);",
        "a full queue drops of everybody as much as of what came",
        directory=SENDERS,
    ),
    Mutation(
        "checkpoint-releases-all",
        "protect.rs",
        "let safe = self.held.partition_point(|(number, _)| *number <= put);",
        "let safe = self.held.len() + (put & 0) as usize;",
        "what was put out after a checkpoint began waits for the next one",
        directory=NETWORK,
    ),
    Mutation(
        "standby-has-nothing-new",
        "protect.rs",
        "            .is_some_and(|id| id.number == self.checkpoint.number);",
        "            .is_some_and(|id| id.number > self.checkpoint.number);",
        "a domain goes on from what the standby has, acknowledged or not",
        directory=NETWORK,
    ),
    Mutation(
        "lease-unheeded",
        "protect.rs",
        "Output::Until { deadline_ns } if now < deadline_ns => Gate::Passes,",
        "Output::Until { deadline_ns } if now < deadline_ns + i64::MAX / 2 => Gate::Passes,",
        "output ends with the lease",
        directory=NETWORK,
    ),
    Mutation(
        "line-of-two-caches",
        "caches.rs",
        "            self.take_from_others(vcpu, cache);\n",
        "",
        "what a VCPU fetches is in no other cache any longer",
        directory=SIMULATOR,
    ),
]

PROTECT = "crates/laxity-protect/src/protocol"

MUTATIONS += [
    Mutation(
        "protect-released-early",
        "primary.rs",
        "            actions.push(Action::SendCheckpoint(header));\n"
        "            return;\n        }\n",
        "            actions.push(Action::SendCheckpoint(header));\n"
        "            let through = header.id.number;\n"
        "            actions.push(Action::Release { through });\n"
        "            return;\n        }\n",
        "output waits for the acknowledgement of its checkpoint",
        directory=PROTECT,
    ),
    Mutation(
        "protect-not-held",
        "primary.rs",
        "                Mode::Net => Output::Hold,\n                // The standby cannot",
        "                Mode::Net => Output::Open,\n                // The standby cannot",
        "output is held from the checkpoint on that arms the standby",
        directory=PROTECT,
    ),
    Mutation(
        "protect-exposed-late",
        "primary.rs",
        "            self.expose(common, &flight, actions);\n            if flight.last {",
        "            if flight.last {",
        "a standby that was sent what arms it might take over",
        directory=PROTECT,
    ),
    Mutation(
        "protect-alone-unasked",
        "primary.rs",
        "            if !held.is_some_and(|held| held.armed) {",
        "            if !held.is_some_and(|held| held.armed) || self.guest == Guest::Halted {",
        "only the standby itself gives back the freedom of output",
        directory=PROTECT,
    ),
    Mutation(
        "protect-stall-opens",
        "primary.rs",
        "            self.stalled = true;\n            self.switching = false;\n",
        "            self.stalled = true;\n            self.set_output(Output::Open, actions);\n"
        "            self.switching = false;\n",
        "a standby that acknowledges nothing may take over until it says that it will not",
        directory=PROTECT,
    ),
    Mutation(
        "protect-stall-armed-again",
        "primary.rs",
        "self.rounds >= ROUNDS_MAX && !self.stalled",
        "self.rounds >= ROUNDS_MAX",
        "a standby that stalled is armed again only when it keeps up",
        directory=PROTECT,
    ),
    Mutation(
        "protect-stall-never",
        "primary.rs",
        "            (Some(flight), _) => (flight.sent_ns, flight.stalled),",
        "            (Some(flight), _) => (flight.sent_ns, true),",
        "a standby that lives and acknowledges nothing is given up",
        directory=PROTECT,
    ),
    Mutation(
        "protect-failing-never-ends",
        "primary.rs",
        "            (None, Some(failing)) => (failing.since_ns, failing.is_late),",
        "            (None, Some(failing)) => (failing.since_ns, true),",
        "a standby for which no checkpoint can be taken is given up",
        directory=PROTECT,
    ),
    Mutation(
        "protect-failing-since-ever",
        "primary.rs",
        "            failing.since_ns = now_ns;\n",
        "",
        "the wait of an earlier standby for a checkpoint is not that of the next one",
        directory=PROTECT,
    ),
    Mutation(
        "protect-heir-of-nothing",
        "primary.rs",
        "        could && self.session.is_some()\n",
        "        could\n",
        "a guest is not ended for a standby that was told to forget it",
        directory=PROTECT,
    ),
    Mutation(
        "protect-copies-at-once",
        "primary.rs",
        "            self.due_ns = self.copy_at_ns;\n",
        "",
        "copies that fail begin less and less often",
        directory=PROTECT,
    ),
    Mutation(
        "protect-late-unsaid",
        "standby.rs",
        "                actions.push(Action::Say(Notice::ActivationLate));\n"
        "                self.give_back(common, actions);\n",
        "",
        "a guest that does not run in time is given back to the host that still has it",
        directory=PROTECT,
    ),
    Mutation(
        "protect-late-dropped",
        "standby.rs",
        "        if peer.standing == Standing::Primary && is_due {",
        "        if is_due {",
        "a guest that nobody else has is waited for, however late it is",
        directory=PROTECT,
    ),
    Mutation(
        "protect-late-to-silence",
        "standby.rs",
        "                heard: true,\n",
        "",
        "a guest is not given up for a host that is silent, which may have lost it",
        directory=PROTECT,
    ),
    Mutation(
        "protect-late-runs-twice",
        "standby.rs",
        "            self.give_back(common, actions);\n            return Next::Stay;\n",
        "            self.doing = Doing::Idle;\n            self.unheard = true;\n"
        "            self.tell(common, actions);\n            return Next::Stay;\n",
        "a guest is given back only when it surely never runs here",
        directory=PROTECT,
    ),
    Mutation(
        "protect-outrun-runs",
        "standby.rs",
        "let is_due = is_late || peer.term > common.term;",
        "let is_due = is_late;",
        "a guest that runs elsewhere in a later term does not begin to run here",
        directory=PROTECT,
    ),
    Mutation(
        "protect-hanging-keeps",
        "standby.rs",
        "staged.or(held).or(begins).filter(|_| self.hangs)",
        "begins.filter(|_| self.hangs)",
        "a standby that cannot put a checkpoint by lets its primary go on without it",
        directory=PROTECT,
    ),
    Mutation(
        "protect-hanging-takes",
        "standby.rs",
        "staged.or(held).or(begins).filter(|_| self.hangs)",
        "staged.or(held).filter(|_| self.hangs)",
        "nothing is copied to a standby that cannot put it by",
        directory=PROTECT,
    ),
    Mutation(
        "protect-greeting-of-old",
        "message.rs",
        "        (is_new, hello.answers == Some(self.connection))\n",
        "        (is_new, true)\n",
        "a greeting counts only if it answers ours",
        directory=PROTECT,
    ),
    Mutation(
        "protect-witness-unasked",
        "primary.rs",
        "                    self.ask(common.term, actions);\n                }\n            }",
        "                    self.be_alone(actions);\n                }\n            }",
        "whoever goes on alone has been given the term",
        directory=PROTECT,
    ),
    Mutation(
        "protect-fence-ignored",
        "primary.rs",
        "                Ordering::Greater => Next::Standby(hello.term),",
        "                Ordering::Greater => Next::Stay,",
        "a primary that sees a higher term stops for good",
        directory=PROTECT,
    ),
    Mutation(
        "protect-lease-too-long",
        "primary.rs",
        "                    let deadline_ns = flight.lease_ends_ns();",
        "                    let deadline_ns = now_ns + flight.header.lease_ns;",
        "a lease counts from the checkpoint, not from its acknowledgement",
        directory=PROTECT,
    ),
    Mutation(
        "protect-handover-heard",
        "primary.rs",
        "            self.set_output(Output::Closed, actions);\n"
        "            actions.push(Action::Send(Message::Handover(id)));",
        "            actions.push(Action::Send(Message::Handover(id)));",
        "who hands over is silent before",
        directory=PROTECT,
    ),
    Mutation(
        "protect-acknowledged-early",
        "standby.rs",
        "                self.staging = Some(Staging::new(header));",
        "                self.staging = Some(Staging::new(header));\n"
        "                actions.push(Action::Send(Message::Acknowledge(header.id)));",
        "a checkpoint is acknowledged when all of it is there",
        directory=PROTECT,
    ),
    Mutation(
        "protect-uncommitted",
        "standby.rs",
        "                self.staging = Some(Staging::new(header));",
        "                self.staging = Some(Staging::new(header));\n"
        "                let armed = header.arms;\n"
        "                self.held = Some(Held { id: header.id, armed });",
        "activation is from a committed checkpoint",
        directory=PROTECT,
    ),
    Mutation(
        "protect-unarmed",
        "standby.rs",
        "self.held.filter(|held| held.armed).map(|held| held.id)",
        "self.held.map(|held| held.id)",
        "nobody takes over from a checkpoint beside which output left freely",
        directory=PROTECT,
    ),
    Mutation(
        "protect-refused-boots",
        "standby.rs",
        "                    self.doing = Doing::Idle;\n                }\n                if let",
        "                }\n                if let",
        "a host that lost its checkpoint boots no guest by itself",
        directory=PROTECT,
    ),
    Mutation(
        "protect-lease-not-waited",
        "standby.rs",
        "        silence_ns.max(self.promised_ns + self.lease_wait_ns)",
        "        silence_ns",
        "a standby waits the lease out",
        directory=PROTECT,
    ),
    Mutation(
        "protect-lease-shortened",
        "standby.rs",
        "        self.lease_wait_ns = settings.lease_wait_ns(header.lease_ns).max(earlier_ns);",
        "        let _ = earlier_ns;\n"
        "        self.lease_wait_ns = settings.lease_wait_ns(header.lease_ns);",
        "a standby waits for an earlier lease that ends later",
        directory=PROTECT,
    ),
    Mutation(
        "protect-lease-unagreed",
        "standby.rs",
        "        } else if !(0..=common.settings.lease_ns).contains(&header.lease_ns) {",
        "        } else if header.lease_ns == i64::MIN {",
        "a primary gives itself no longer lease than was agreed",
        directory=PROTECT,
    ),
    Mutation(
        "protect-lease-late",
        "primary.rs",
        "                        self.lateness.note(now_ns - flight.due_ns, passed_ns);",
        "                        self.lateness.note(now_ns - flight.sent_ns, passed_ns);",
        "an acknowledgement is as late as its checkpoint and the way there",
        directory=PROTECT,
    ),
    Mutation(
        "protect-lease-outgrown",
        "primary.rs",
        "            self.due_ns = self.due_ns.min(flight.captured_ns + allowed_ns);",
        "            let _ = allowed_ns;",
        "an interval that has grown begins with a lease that allows for it",
        directory=PROTECT,
    ),
    Mutation(
        "protect-interval-outlier",
        "primary.rs",
        "            let lasting = measured.lesser(before);",
        "            let (lasting, _) = (measured, before);",
        "a single long pause makes no epoch longer",
        directory=PROTECT,
    ),
    Mutation(
        "protect-lease-settling",
        "primary.rs",
        "                    if flight.due_ns >= self.lateness_known_ns {",
        "                    if flight.due_ns >= 0 {",
        "what a copy delays says nothing of leases",
        directory=PROTECT,
    ),
    Mutation(
        "protect-missed-soon",
        "primary.rs",
        "        if excludes && self.exposed.is_some() {",
        "        if self.exposed.is_some() {",
        "a standby that nobody excludes is waited for",
        directory=PROTECT,
    ),
    Mutation(
        "protect-missed-again",
        "mod.rs",
        "                self.common.patience.note(silent_ns, silent_ns);",
        "                let _ = silent_ns;",
        "a primary that closes a connection too soon is more patient then",
        directory=PROTECT,
    ),
    Mutation(
        "protect-drift-ignored",
        "settings.rs",
        "                lease_ns + drift_ns as i64 + 1",
        "                lease_ns + (drift_ns as i64).min(1)",
        "a lease is waited out by the slower clock",
        directory=PROTECT,
    ),
    Mutation(
        "protect-term-kept",
        "standby.rs",
        "            self.activate(common, expected + 1, actions);",
        "            self.activate(common, expected, actions);",
        "whoever takes over bumps the term",
        directory=PROTECT,
    ),
    Mutation(
        "protect-term-forgotten",
        "common.rs",
        "        self.term = term;\n        actions.push(Action::Persist(Record { term }));",
        "        self.term = term;\n        if term == 1 {\n"
        "            actions.push(Action::Persist(Record { term }));\n        }",
        "a host that took over never acknowledges the old term again, not even as another process",
        directory=PROTECT,
    ),
    Mutation(
        "protect-halves",
        "checkpoint.rs",
        "            && bytes == (ram_bytes, device_bytes, disk_bytes)\n"
        "            && checksum == self.digest.finish()",
        "            && bytes.0 == ram_bytes\n"
        "            && (checksum, device_bytes, disk_bytes) != (0, 0, 0)",
        "memory, devices and disks are of one epoch",
        directory=PROTECT,
    ),
    Mutation(
        "protect-gap",
        "standby.rs",
        "        } else if !header.full && !follows {",
        "        } else if !header.full && self.held.is_none() {",
        "checkpoints are numbered without gaps",
        directory=PROTECT,
    ),
    Mutation(
        "protect-silence-slept",
        "mod.rs",
        "                standby.wait_anew(now_ns);",
        "                let _ = standby;",
        "who was asleep does not take silence for a failure",
        directory=PROTECT,
    ),
    Mutation(
        "protect-gives-up-for-old-news",
        "mod.rs",
        "            standby.catch_up(now_ns.saturating_add(heartbeat_ns));",
        "            let _ = standby;",
        "a host that was asleep hears what has happened before it gives a guest up",
        directory=PROTECT,
    ),
    Mutation(
        "protect-silence-napped",
        "mod.rs",
        "        if asleep_ns > common.patience.limit_ns() / 2 {",
        "        if asleep_ns > common.settings.detection_ns / 2 {",
        "a standby that takes short silences for failures excuses its own short pauses",
        directory=PROTECT,
    ),
    Mutation(
        "protect-silence-unheard",
        "patience.rs",
        "        if self.known_for_ns < self.most_ns {",
        "        if self.known_for_ns < 0 {",
        "a primary is given all of the detection until it is known",
        directory=PROTECT,
    ),
    Mutation(
        "protect-silence-even",
        "patience.rs",
        "        let wanted_ns = self.longest_ns.saturating_mul(self.multiple);",
        "        let wanted_ns = self.longest_ns;",
        "a primary that is heard unevenly is waited for",
        directory=PROTECT,
    ),
    Mutation(
        "protect-silence-forgotten",
        "patience.rs",
        "        self.longest_ns = if wait_ns >= self.longest_ns {",
        "        self.longest_ns = if wait_ns >= 0 {",
        "a long silence is remembered",
        directory=PROTECT,
    ),
    Mutation(
        "protect-lease-jumped",
        "standby.rs",
        "        self.hear_primary(now_ns);\n        self.promised_ns = now_ns;\n",
        "        self.hear_primary(now_ns);\n",
        "a clock that jumps does not shorten the wait for a lease",
        directory=PROTECT,
    ),
    Mutation(
        "protect-frame-again",
        "message.rs",
        "    if got != sequence {",
        "    if got > sequence {",
        "a frame that comes again is refused",
        directory=PROTECT,
    ),
]


PROTECT_PAGES = "crates/laxity-protect/src/guest"
PROTECT_GATE = "crates/laxity-protect/src/gate"
PROTECT_XEN = "crates/laxity-protect/src/daemon"
PROTECT_DATABASE = "crates/laxity-protect/src"
"""What a guest with a database notices, whose hosts are killed."""
GUESTS = "target/protect"
TESTS_OF_PROTECTION = {
    PROTECT: "--lib --test message --test node --test histories",
    PROTECT_PAGES: "--lib -- guest gate",
    PROTECT_GATE: "--lib -- guest gate",
    PROTECT_XEN: "--test xen",
    PROTECT_DATABASE: "--test disks -- --exact nothing_committed_is_missing_from_postgresql",
}

MUTATIONS += [
    Mutation(
        "protect-armed-without-disk",
        "primary.rs",
        "                    && self.disk_left_bytes == 0\n",
        "",
        "a standby takes over only with the whole disk",
        directory=PROTECT,
    ),
    Mutation(
        "protect-armed-with-blocks-left",
        "primary.rs",
        "let arms = capture.arms && (self.exposed.is_some() || disk_left_bytes == 0);",
        "let arms = capture.arms;",
        "a standby takes over only with all blocks that were written",
        directory=PROTECT,
    ),
    Mutation(
        "protect-sums-of-before",
        "primary.rs",
        "                if self.whole == Some(id) {",
        "                if self.whole.is_some() {",
        "sums count only for the copy that they were asked for",
        directory=PROTECT,
    ),
    Mutation(
        "protect-sums-lost",
        "primary.rs",
        "let knows_disks = self.disk_left_bytes == 0;",
        "let knows_disks = true;",
        "copying disks begins anew after a lost connection",
        directory=PROTECT,
    ),
    Mutation(
        "protect-sums-unasked",
        "standby.rs",
        "                    actions.push(Action::Sum(header.id));\n",
        "",
        "a standby says what its disk has",
        directory=PROTECT,
    ),
    Mutation(
        "protect-disk-oversized",
        "standby.rs",
        "[header.device_bytes, header.disk_bytes]",
        "[header.device_bytes]",
        "a checkpoint is bounded with its blocks of disks",
        directory=PROTECT,
    ),
    Mutation(
        "protect-patrol-stands",
        "changes.rs",
        "        self.next = pages.min(first + due);",
        "        self.next = pages.min(due);",
        "each page is compared once a minute",
        directory=PROTECT_PAGES,
    ),
    Mutation(
        "protect-block-unnoted",
        "disk.rs",
        "for block in offset / BLOCK_BYTES as u64..end.div_ceil(BLOCK_BYTES as u64) {",
        "for block in offset / BLOCK_BYTES as u64..end / BLOCK_BYTES as u64 {",
        "each block that a write touches belongs to the next checkpoint",
        directory=PROTECT_PAGES,
    ),
    Mutation(
        "protect-blocks-dropped",
        "disk.rs",
        "            disks[number].differ(std::iter::once(block));\n",
        "            let _ = (&disks[number], block);\n",
        "blocks of a checkpoint that is not sent belong to the next one",
        directory=PROTECT_PAGES,
    ),
    Mutation(
        "protect-block-written-early",
        "disk.rs",
        "        self.batches.push(batch.to_vec());\n        Ok(())",
        "        self.batches.push(batch.to_vec());\n"
        "        Staged { batches: vec![batch.to_vec()], bytes: 0 }.apply(disks).unwrap();\n"
        "        Ok(())",
        "an image has no write that no committed checkpoint has",
        directory=PROTECT_PAGES,
    ),
    Mutation(
        "protect-piece-in-part",
        "disk.rs",
        "disk.differ(begin..end);",
        "disk.differ(begin..end - 1);",
        "all of a piece that differs is copied",
        directory=PROTECT_PAGES,
    ),
    Mutation(
        "protect-waiting-guest-writes",
        "disk.rs",
        "        if !state.may_write {",
        "        if false {",
        "a guest that waits on the standby writes nothing",
        directory=PROTECT_PAGES,
    ),
    Mutation(
        "protect-given-up-and-runs",
        "qemu.rs",
        "        if !permit.take() {\n            return Err(GuestError::GivenUp);\n        }\n",
        "        let _ = permit.take();\n",
        "a guest that was given up while its disk was flushed never runs",
        directory=PROTECT_PAGES,
    ),
    Mutation(
        "protect-disk-cached",
        "disk.rs",
        "0, 0, PosixFadviseAdvice::POSIX_FADV_DONTNEED)",
        "0, 0, PosixFadviseAdvice::POSIX_FADV_NORMAL)",
        "what is read of an image comes from the disk",
        directory=PROTECT_PAGES,
    ),
    Mutation(
        "protect-disks-unbounded",
        "disk.rs",
        "        if self.bytes > STAGED_BYTES_MAX {\n",
        "        if self.bytes > 2 * STAGED_BYTES_MAX {\n",
        "what a checkpoint has of disks is bounded",
        directory=PROTECT_PAGES,
    ),
    Mutation(
        "protect-format-unflushed",
        "disk.rs",
        "            Image::Qcow2(image) => image.flush(),",
        "            Image::Qcow2(_) => Ok(()),",
        "a flush reaches an image of another format",
        directory=PROTECT_PAGES,
    ),
    Mutation(
        "protect-format-broken-reused",
        "nbd/client.rs",
        "                let _ = self.0.shutdown(Shutdown::Both);\n",
        "                let _ = Shutdown::Both;\n",
        "nothing is read of a connection whose answers are none",
        directory=PROTECT_PAGES,
    ),
    Mutation(
        "protect-format-error-hidden",
        "nbd/client.rs",
        "            Ok(number) => Err(io::Error::from_raw_os_error(number as i32)),",
        "            Ok(_) => Ok(()),",
        "an error of an image is told",
        directory=PROTECT_PAGES,
    ),
    Mutation(
        "protect-format-two-files",
        "qcow2.rs",
        "        () if backing != 0 => format!(",
        "        () if backing == 1 => format!(",
        "an image is one file",
        directory=PROTECT_PAGES,
    ),
    Mutation(
        "protect-read-beyond-the-disk",
        "nbd/server.rs",
        "let fits = end.is_some_and(|end| end <= disk.bytes());",
        "let fits = end.is_some();",
        "a guest writes nothing beyond the end of its disk",
        directory=PROTECT_PAGES,
    ),
]

MUTATIONS += [
    Mutation(
        "protect-page-skipped",
        "changes.rs",
        "let pages = (0..share.0.len()).filter(|&at| differ(&mut share, at));",
        "let pages = (1..share.0.len()).filter(|&at| differ(&mut share, at));",
        "no changed page is missed",
        directory=PROTECT_PAGES,
    ),
    Mutation(
        "protect-share-elsewhere",
        "changes.rs",
        "let pages = pages.map(|at| (number * share_pages + at) as u32);",
        "let pages = pages.map(|at| (number.min(1) * share_pages + at) as u32);",
        "no changed page is missed, whoever looks for it",
        directory=PROTECT_PAGES,
    ),
    Mutation(
        "protect-fingerprint-of-half",
        "changes.rs",
        "let fingerprint = XxHash3_128::oneshot_with_seed(seed, &now[at]);",
        "let fingerprint = XxHash3_128::oneshot_with_seed(seed, &now[at][..PAGE_BYTES / 2]);",
        "a fingerprint is that of all bytes of a page",
        directory=PROTECT_PAGES,
    ),
    Mutation(
        "protect-page-not-kept",
        "patches.rs",
        "        *copy = *page;\n",
        "        if *page != ZERO_PAGE {\n            *copy = *page;\n        }\n",
        "what the standby has is known",
        directory=PROTECT_PAGES,
    ),
    Mutation(
        "protect-zeros-not-sent",
        "patches.rs",
        "        zero(batch, pages.end - zeros, zeros);\n",
        "",
        "a full checkpoint leaves nothing of what was there",
        directory=PROTECT_PAGES,
    ),
    Mutation(
        "protect-output-of-the-next-epoch",
        "mod.rs",
        "            if self.is_frozen || self.output == Output::Hold {",
        "            if self.output == Output::Hold {",
        "what a guest sends after its capture is not seen before it counts as running",
        directory=PROTECT_GATE,
    ),
    Mutation(
        "protect-output-before-its-checkpoint",
        "queue.rs",
        "        if waits_for > checkpoint {",
        "        if waits_for > checkpoint + 1 {",
        "no output leaves before its checkpoint is safe",
        directory=PROTECT_GATE,
    ),
    Mutation(
        "protect-lease-not-looked-at",
        "mod.rs",
        "Output::Until { deadline_ns } => now_ns() < deadline_ns,",
        "Output::Until { .. } => true,",
        "without a lease nothing is heard",
        directory=PROTECT_GATE,
    ),
    Mutation(
        "protect-cut-too-early",
        "mod.rs",
        "        self.take_from_guest(AT_ONCE_PAUSED);\n        self.queue.cut(checkpoint);\n",
        "        self.queue.cut(checkpoint);\n        self.take_from_guest(AT_ONCE_PAUSED);\n",
        "all that was sent in an epoch leaves with its checkpoint, and not with the next",
        directory=PROTECT_GATE,
    ),
]

MUTATIONS += [
    Mutation(
        "protect-database-heard-early",
        "gate/mod.rs",
        "            if self.is_frozen || self.output == Output::Hold {\n"
        "                self.queue.push(frame);\n"
        "            } else if self.may_leave_now() {",
        "            if self.is_frozen {\n"
        "                self.queue.push(frame);\n"
        "            } else if self.output == Output::Hold || self.may_leave_now() {",
        "a client knows of no transaction that a failure loses",
        directory=PROTECT_DATABASE,
    ),
    Mutation(
        "protect-database-block-lost",
        "guest/disk.rs",
        "for block in offset / BLOCK_BYTES as u64..end.div_ceil(BLOCK_BYTES as u64) {",
        "for block in 1 + offset / BLOCK_BYTES as u64..end.div_ceil(BLOCK_BYTES as u64) {",
        "a database recovers from the survivor's disk",
        directory=PROTECT_DATABASE,
    ),
]

MUTATIONS += [
    Mutation(
        "protect-xen-lease-not-waited",
        "xen.rs",
        "Mode::NoNet => settings.detection_ns.max(settings.lease_ns),",
        "Mode::NoNet => settings.detection_ns,",
        "a standby of Xen waits until the other host's domain is surely paused",
        directory=PROTECT_XEN,
    ),
    Mutation(
        "protect-xen-not-paused",
        "xen.rs",
        '                *waiting = true;\n                self.xl_or_note(&["pause", &name]);\n',
        "                *waiting = true;\n",
        "a domain whose standby may have taken over is not heard",
        directory=PROTECT_XEN,
    ),
    Mutation(
        "protect-xen-crash-not-noticed",
        "stream.rs",
        "            let paused = pause(domain);\n",
        "            let paused: Result<(), String> = Ok(());\n",
        "a domain whose daemon has crashed is not heard",
        directory=PROTECT_XEN,
    ),
]


APPLY = "python/laxity/apply/agent"
WHY = "crates/laxity-why/src"
OBSERVE = "crates/laxity-observe/src"
ANALYSIS = "crates/laxity-analysis/src"

MUTATIONS += [
    Mutation(
        "why-switches-lost",
        "account.rs",
        "            vcpu.sums[SWITCH] += switch_ns;\n"
        "            vcpu.sums[vcpu.key] += spent_ns - switch_ns;\n",
        "            vcpu.sums[vcpu.key] += spent_ns;\n",
        "the time of decisions and context switches is nobody's",
        directory=WHY,
    ),
    Mutation(
        "why-earlier-jobs-own",
        "account.rs",
        "sum_ns - before_ns.max(of_task.complete_ns)",
        "sum_ns - before_ns",
        "what earlier jobs of the task ran for is not the job's own work",
        directory=WHY,
    ),
    Mutation(
        "why-budget-ignored",
        "account.rs",
        "        } else if !vcpu.has_budget {\n",
        "        } else if false {\n",
        "a VCPU without budget waits for budget",
        quick=True,
        directory=WHY,
        by="causes",
    ),
    Mutation(
        "why-culprit-stale",
        "account.rs",
        "0..self.cpus[number].residents.len()",
        "0..self.cpus[number].residents.len().min(1)",
        "every VCPU that waits learns who runs now",
        directory=WHY,
    ),
    Mutation(
        "why-shares-short",
        "share.rs",
        "in_proportion(rest_ns, before_ns, delays_ns)",
        "in_proportion(rest_ns, before_ns, delays_ns + 1)",
        "the causes of a job sum to its lateness",
        directory=WHY,
    ),
    Mutation(
        "why-silence-lost",
        "packet.rs",
        "            Place::Silence => Some(Cause::Silence),\n",
        "",
        "the time until a standby takes over is a part of the outage",
        directory=WHY,
    ),
    Mutation(
        "why-kind-hidden",
        "answer.rs",
        "(most / late_kinds.max(1)).max(1)",
        "most / late_kinds.max(1)",
        "each kind of which any was late is explained",
        directory=WHY,
    ),
    Mutation(
        "why-copies-alike",
        "account.rs",
        "answer_waits_ns.get(number as usize)",
        "answer_waits_ns.get(0)",
        "a phone waits longer for the answer to a later copy",
        directory=WHY,
    ),
    Mutation(
        "why-exit-lasts",
        "account.rs",
        "            Kind::Enter => self.vcpus[index].exit = None,\n",
        "            Kind::Enter => {}\n",
        "the host has a VCPU's time until its guest is entered again, and no longer",
        directory=WHY,
    ),
    Mutation(
        "observe-ticks-are-tasks",
        "recognize.rs",
        "[0.001, 0.01, 0.03, 0.1, 0.2]",
        "[0.001, 0.01, 0.01, 0.01, 0.01]",
        "a kernel's ticks are told from tasks that take little more",
        directory=OBSERVE,
    ),
    Mutation(
        "observe-small-tasks-are-a-kernels",
        "recognize.rs",
        "[0.001, 0.01, 0.03, 0.1, 0.2]",
        "[0.01, 0.01, 0.03, 0.1, 0.2]",
        "small tasks beside large ones are told from a kernel's own work",
        directory=OBSERVE,
    ),
    Mutation(
        "observe-inexact",
        "recognize.rs",
        "let is_exact = part == TRIFLES[0] && place == 0;",
        "let is_exact = false;",
        "in an exact trace a single busy period tells two tasks apart",
        directory=OBSERVE,
    ),
    Mutation(
        "observe-parts-untried",
        "candidates.rs",
        "for part in 2..=PARTS_MAX {",
        "for part in PARTS_MAX..PARTS_MAX {",
        "a task may wake its VCPU at multiples of its period only",
        directory=OBSERVE,
    ),
    Mutation(
        "observe-parts-of-enough",
        "recognize.rs",
        "best.or(cheapest)",
        "best",
        "where candidates explain too little, parts of their periods may explain enough",
        directory=OBSERVE,
    ),
    Mutation(
        "observe-late-ticks-add-up",
        "kernel.rs",
        "i64::from(is_due) + ticks(",
        "off_ns.map_or(1, |off_ns| ticks(off_ns, from_ns)) + ticks(",
        "ticks for which a VCPU waits come by one interrupt",
        directory=OBSERVE,
    ),
    Mutation(
        "analysis-interrupts-forgotten",
        "check.rs",
        "        .chain(interrupts)\n",
        "",
        "jobs of a kernel that wakes tasks come by interrupts",
        directory=ANALYSIS,
    ),
    Mutation(
        "analysis-no-carry-in",
        "supply.rs",
        "whole * budget_ns + begun_ns.clamp(0, budget_ns)",
        "whole * budget_ns + 0 * begun_ns",
        "a budget that is kept until its period ends counts in the next VCPU's period",
        directory=ANALYSIS,
    ),
    Mutation(
        "analysis-timers-on-time",
        "guest.rs",
        "Ns::from(task.jitter_ns) + Ns::from(put_off_ns)",
        "Ns::from(task.jitter_ns) + 0 * Ns::from(put_off_ns)",
        "a job for which a timer could not be set comes late",
        directory=ANALYSIS,
    ),
    Mutation(
        "analysis-back-to-back",
        "cluster.rs",
        "let jitter_ns = server.period_ns - server.budget_ns;",
        "let jitter_ns = 0 * server.budget_ns;",
        "two budgets of a server can come back to back",
        directory=ANALYSIS,
    ),
    Mutation(
        "analysis-density-of-all",
        "servers.rs",
        "sum <= self.cpus * ONE - (self.cpus - 1) * most;",
        "sum <= self.cpus * ONE - 0 * most;",
        "slices of all CPUs need not be in time although they are all CPUs together",
        directory=ANALYSIS,
    ),
    Mutation(
        "analysis-slack-of-all",
        "cluster.rs",
        "if !server.cpu_bound || ",
        "if ",
        "only a VCPU that always has work has used its budget some time before its period ends",
        directory=ANALYSIS,
    ),
    Mutation(
        "analysis-one-cpu-more",
        "supply.rs",
        "let free = cpus - (rivals - shorter as Ns);",
        "let free = cpus + 1 - (rivals - shorter as Ns);",
        "a VCPU waits when all CPUs of its cluster are busy",
        directory=ANALYSIS,
    ),
    Mutation(
        "analysis-gap-of-polling",
        "servers.rs",
        "            Policy::Polling => server.period_ns,\n"
        "            _ => server.period_ns - budget_ns,",
        "            _ => server.period_ns - budget_ns,",
        "a polling server has no budget from a wake to the next period",
        directory=ANALYSIS,
        by="bounds",
    ),
    Mutation(
        "analysis-decisions-free",
        "servers.rs",
        "            - self.charged_ns(number, server.period_ns + server.late_ns)\n",
        "",
        "decisions that choose a VCPU use its budget",
        directory=ANALYSIS,
        by="bounds",
    ),
    Mutation(
        "analysis-decisions-of-none",
        "servers.rs",
        "        if self.decision_ns == 0 {\n            return Overheads {",
        "        if self.decision_ns >= 0 {\n            return Overheads {",
        "decisions for others take the CPU",
        directory=ANALYSIS,
        by="bounds",
    ),
    Mutation(
        "analysis-handover-free",
        "servers.rs",
        "        2 * self.decision_ns + self.schedule_ns\n",
        "        0 * self.decision_ns + self.schedule_ns\n",
        "a CPU is used by nobody until the VCPU that it goes to runs there",
        directory=ANALYSIS,
    ),
    Mutation(
        "analysis-density-with-costs",
        "servers.rs",
        "return self.decision_ns == 0 && sum <= ",
        "return sum <= ",
        "slices that fit by their densities leave no time for decisions",
        directory=ANALYSIS,
        by="clusters",
    ),
    Mutation(
        "analysis-quantum-on-time",
        "check.rs",
        "let late_ns = by_quantum_ns + host.timer_latency_ns;",
        "let late_ns = 0 * by_quantum_ns + host.timer_latency_ns;",
        "a quantum that does not divide the period delays replenishments",
        directory=ANALYSIS,
        by="bounds",
    ),
    Mutation(
        "analysis-sporadic-never-late",
        "runs.rs",
        "    period_ns + (period_ns + late_ns) / (REPLENISHMENTS_MAX / 2)",
        "    period_ns + 0 * late_ns",
        "replenishments that are merged come later than a period",
        directory=ANALYSIS,
        by="bounds",
    ),
    Mutation(
        "analysis-trifles-on-time",
        "runs.rs",
        "    budget_ns - worth_ns(budget_ns, period_ns)",
        "    budget_ns - 0 * worth_ns(budget_ns, period_ns)",
        "small replenishments wait for the next one",
        directory=ANALYSIS,
        by="bounds",
    ),
    Mutation(
        "analysis-equals-behind",
        "servers.rs",
        "self.servers[other].priority <= own)",
        "self.servers[other].priority < own)",
        "VCPUs of one priority wait for one another",
        directory=ANALYSIS,
        by="bounds",
    ),
    Mutation(
        "analysis-jitter-lost",
        "guest.rs",
        "ceiling_divide(window_ns + self.jitter_ns + earlier_ns, self.period_ns) * self.cost_ns",
        "ceiling_divide(window_ns + earlier_ns, self.period_ns) * self.cost_ns",
        "jobs that arrive late come closer to the next ones",
        directory=ANALYSIS,
        by="bounds",
    ),
    Mutation(
        "analysis-one-job",
        "guest.rs",
        "        if end_ns <= arrival_ns + task.period_ns {",
        "        if end_ns <= arrival_ns + 2 * task.period_ns {",
        "a job can wait for the one before it",
        directory=ANALYSIS,
        by="bounds",
    ),
    Mutation(
        "analysis-edf-due-later",
        "guest.rs",
        "(after_ns.div_euclid(other.period_ns) + 1).max(0)",
        "after_ns.div_euclid(other.period_ns).max(0)",
        "under EDF jobs with earlier deadlines come first",
        directory=ANALYSIS,
        by="bounds",
    ),
    Mutation(
        "analysis-edf-ends-early",
        "guest.rs",
        "served_ns.filter(|&served_ns| served_ns <= window_ns)",
        "served_ns.filter(|&served_ns| served_ns <= window_ns + window_ns / 4)",
        "under EDF what is due within a window must be served within it",
        directory=ANALYSIS,
        by="bounds",
    ),
    Mutation(
        "analysis-exhausted-is-not",
        "servers.rs",
        "        (used_ns <= spare_ns).then(||",
        "        (used_ns <= 2 * spare_ns).then(||",
        "a budget that can run out makes its guest wait",
        directory=ANALYSIS,
        by="bounds",
    ),
    Mutation(
        "analysis-packets-unheeded",
        "check.rs",
        "    if let Some(domain) = wakes {",
        "    if let Some(domain) = wakes.filter(|_| host.cpus > 64) {",
        "there is no bound on how often packets wake a guest",
        directory=ANALYSIS,
        by="bounds",
    ),
    Mutation(
        "analysis-late-timers-unheeded",
        "check.rs",
        "let late_ns = by_quantum_ns + host.timer_latency_ns;",
        "let late_ns = by_quantum_ns + 0 * host.timer_latency_ns;",
        "replenishments are late where timers are served late",
        directory=ANALYSIS,
        by="clusters",
    ),
    Mutation(
        "analysis-late-leads-unheeded",
        "check.rs",
        "    if host.timer_latency_ns > 0 {",
        "    if host.timer_latency_ns > 1_000_000_000 {",
        "there is no bound under lending where timers are served late",
        directory=ANALYSIS,
        by="bounds",
    ),
    Mutation(
        "analysis-late-telling-unheeded",
        "check.rs",
        "by_interrupts && tasks.windows(2)",
        "by_interrupts && tasks.windows(99)",
        "there is no bound under lending where guests tell late",
        directory=ANALYSIS,
        by="bounds",
    ),
    Mutation(
        "analysis-late-slices-end",
        "supply.rs",
        "let after_ns = (window_ns + late_ns - 2 * budget_ns).max(0);",
        "let after_ns = (window_ns + 0 * late_ns - 2 * budget_ns).max(0);",
        "a slice that is replaced late is used for as long",
        directory=ANALYSIS,
    ),
    Mutation(
        "analysis-idle-overrun-free",
        "servers.rs",
        "            Policy::Periodic => self.timer_latency_ns,\n",
        "            Policy::Periodic => 0 * self.timer_latency_ns,\n",
        "the budget of a blocked VCPU runs down until a late timer",
        directory=ANALYSIS,
        by="clusters",
    ),
    Mutation(
        "changed-before-journal",
        "keeping.py",
        "journal.append(change)\n            try:\n                self._make(change)\n",
        "try:\n                self._make(change)\n                journal.append(change)\n",
        "a setting's old value is on the disk before it changes",
        directory=APPLY,
    ),
    Mutation(
        "another-thread",
        "linux.py",
        'elif self._start(of["tid"]) != of["start"]:\n',
        'elif self._start(of["tid"]) < of["start"]:\n',
        "nothing is set of a later thread of the same number",
        directory=APPLY,
    ),
    Mutation(
        "last-value-put-back",
        "keeping.py",
        "            first.setdefault(key(change), change)\n",
        "            first[key(change)] = change\n",
        "what is put back is what was there before the first apply",
        directory=APPLY,
    ),
    Mutation(
        "journal-forgotten",
        "keeping.py",
        "            if not failed:\n                self._forget(journal)\n",
        "            self._forget(journal)\n",
        "the journal stays while something could not be put back",
        directory=APPLY,
    ),
    Mutation(
        "line-joined",
        "journal.py",
        "        if end or is_of_another_boot:\n",
        "        if is_of_another_boot:\n",
        "a line that was cut off spoils no later one",
        directory=APPLY,
    ),
    Mutation(
        "taken-before-moved",
        "settings.py",
        "LOADS, FREES, MOVES, TAKES, DIVIDES, UNLOADS = range(6)\n",
        "LOADS, FREES, TAKES, MOVES, DIVIDES, UNLOADS = range(6)\n",
        "a thread may run on all CPUs before it becomes a SCHED_DEADLINE one",
        directory=APPLY,
    ),
    Mutation(
        "left-half-applied",
        "keeping.py",
        "if self._put_back(self._restorations(journal.changes[len(before or []) :])):\n",
        "if False:\n",
        "an apply that the kernel refuses leaves nothing changed",
        directory=APPLY,
    ),
]


def shown(path: Path) -> str:
    """The path as one would write it at the root."""
    return str(path.relative_to(ROOT))


def check_fit(mutations: list[Mutation]) -> None:
    """Every mutation's place is there, once, and the test that notices it."""
    wrong = []
    for mutation in mutations:
        path = ROOT / mutation.path
        found = path.read_text().count(mutation.old)
        if found != 1:
            wrong.append(f"{mutation.name}: its text is {found} times in {shown(path)}, not once")
        tests = tests_of(ROOT, mutation.directory, {name: [] for name in POLICY_TESTS})
        if mutation.by and mutation.by not in tests:
            wrong.append(f"{mutation.name}: {shown(path)} has no test {mutation.by}")
    if wrong:
        print("\n".join(wrong), file=sys.stderr)
        sys.exit(2)


def sources(root: Path) -> set[Path]:
    """The files that the tests are built of, relative to the root."""
    found = {Path("Cargo.toml"), Path("Cargo.lock"), Path("pyproject.toml")}
    for top in ("crates", "policy", "python"):
        found |= {path.relative_to(root) for path in (root / top).rglob("*") if path.is_file()}
    build = Path("policy/build")
    return {
        path
        for path in found
        if build not in path.parents and "__pycache__" not in path.parts and (root / path).is_file()
    }


def update_copy(tree: Path) -> None:
    """Makes the tree a copy of the sources. What is the same already keeps its time, or cargo and
    make would build everything anew.
    """
    here = sources(ROOT)
    for path in sources(tree) - here:
        (tree / path).unlink()
    for path in here:
        copy, content = tree / path, (ROOT / path).read_bytes()
        if path.name in {"Cargo.toml", "Cargo.lock"}:
            content = soon_built(with_own_version(content))
        if not copy.exists() or copy.read_bytes() != content:
            copy.parent.mkdir(parents=True, exist_ok=True)
            copy.write_bytes(content)
            copy.chmod((ROOT / path).stat().st_mode)
    # Tests look for guests in the tree that they are built of.
    guests = tree / GUESTS
    guests.parent.mkdir(exist_ok=True)
    guests.unlink(missing_ok=True)
    guests.symlink_to(ROOT / GUESTS)


def with_own_version(content: bytes) -> bytes:
    """Gives Laxity's crates another version. What cargo builds of the copy then has names of its
    own, and takes the place of nothing that is built of the sources.
    """
    own = rb'((?:^\[workspace\.package\]|^name = "laxity-[a-z]+")\nversion = "[^"+]*)'
    return re.sub(own, rb"\1+mutated", content, flags=re.MULTILINE)


def soon_built(content: bytes) -> bytes:
    """Leaves out which of Laxity's crates are optimized in full: so few tests run of the copy that
    this takes longer than they do.
    """
    return re.sub(rb"^laxity-[a-z]+ = \{ opt-level = 3\b.*\n", b"", content, flags=re.MULTILINE)


Tests = dict[str, list[str]]
"""Commands, to be run in the root of the copy, by the names of the tests that they run."""


def built_policy_tests() -> Tests:
    """The tests of policies that are written in Rust. They are built of the sources, once, and run
    with the policies of the copy.
    """
    named = [word for name in POLICY_TESTS for word in ("--test", name)]
    build = [*CARGO, "--workspace", "--no-run", "--message-format", "json", *named]
    done = subprocess.run(build, check=True, stdout=subprocess.PIPE, cwd=ROOT, text=True)
    found = {}
    for line in done.stdout.splitlines():
        made = json.loads(line)
        name = made.get("target", {}).get("name")
        package = Path(made.get("manifest_path", "")).parent
        if made.get("executable") and POLICY_TESTS.get(name) == package.name:
            run = f"{shlex.quote(made['executable'])} --quiet"
            words = f"LAXITY_POLICIES=$PWD/{SHARED}\ncd {shlex.quote(str(package))}\n{run}"
            found[name] = ["sh", "-ec", f"{built('shared')}\nexport {words}"]
    return {name: found[name] for name in POLICY_TESTS}


def tests_of(target: Path, directory: str, policy_tests: Tests) -> Tests:  # noqa: PLR0911
    """The tests of what is in a directory; those first that take the least time."""
    cargo = [*CARGO, "--target-dir", str(target)]
    if directory in {BANDWIDTH, SENDERS}:
        which = ["simulate"] if directory == SENDERS else ["allocate", "control"]
        tests = [word for name in which for word in ("--test", name)]
        return {"bandwidth": [*cargo, "--package", "laxity-bandwidth", "--lib", *tests]}
    if directory in TESTS_OF_PROTECTION:
        words = TESTS_OF_PROTECTION[directory].split()
        return {"protect": [*cargo, "--package", "laxity-protect", *words]}
    if directory == APPLY:
        # The extension module is that of the sources; only Python is mutated.
        pytest = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider"]
        words = ["env", "PYTHONPATH=python", "PYTHONDONTWRITEBYTECODE=1", "LAXITY_KILLS=50"]
        return {"apply": [*words, *pytest, "python/tests/test_apply.py", "-k", "not command_line"]}
    # Tests whose names no other package has. The whole workspace has its dependencies as they are
    # built for all other tests; a package alone would have others, and build them once more. What
    # these tests need of the daemons' crates is built without the daemons.
    of_all = [*cargo, "--workspace", *(f"--exclude=laxity-{name}" for name in DAEMONS)]
    if directory == ANALYSIS:
        bounds = ("check", "against_simulator", "against_reference")
        return {
            "bounds": [*of_all, *(word for name in bounds for word in ("--test", name))],
            "clusters": [*of_all, "--test", "clusters"],
        }
    if directory in {WHY, OBSERVE}:
        package = Path(directory).parent.name
        own = [*cargo, "--package", package]
        if directory == OBSERVE:
            return {"observe": own}
        return {"causes": [*of_all, "--test", "causes"], "why": [*own, "--lib"]}
    simulator = [*cargo, "--package", "laxity-sim"]
    if directory in {SIMULATOR, NETWORK}:
        return {
            "packets": [*simulator, "--lib", "--test", "telephony", "--test", "link"],
            "protect": [*simulator, "--test", "protect"],
        }
    if directory == ENGINE:
        return {
            "reference": [*of_all, "--test", "reference"],
            "seen": [*simulator, "--test", "seen"],
        }
    make = "make -C policy --silent"
    heap = f"{built('build/heap')}\n{make} heap"
    storm = f"{built('build/storm')}\n{make} storm STORMS={STORMS_IN_C}"
    return {"C": ["sh", "-ec", f"{heap}\n{storm}"], **policy_tests}


def built(target: str) -> str:
    """The shell's command that builds a target of policy/Makefile.

    What is broken may compile with warnings, such as of a variable that nobody reads any more.
    """
    make = f"make -C policy --silent WARNINGS= {target}"
    return f"{make} || {{ echo '{NOT_COMPILED}'; exit 1; }}"


def rewrite(path: Path, content: str) -> None:
    """Writes a file of the copy. Sources in C that include it are built again, too: the rules of
    policy/Makefile know of headers alone.
    """
    path.write_text(content)
    for source in path.parent.glob("*.c"):
        if f'#include "{path.name}"' in source.read_text():
            source.touch()


def first_failure(
    tree: Path, tests: Tests, timeout_s: int | None, *, shows: bool = False
) -> str | None:
    """The name of the test that fails, or None if none does. `shows` prints what it said."""
    for name, command in tests.items():
        with subprocess.Popen(
            ["prlimit", f"--cpu={CPU_S}", "--", *command],  # noqa: S607
            cwd=tree,
            env=os.environ | ENVIRONMENT,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        ) as run:
            try:
                output, _ = run.communicate(timeout=timeout_s)
            except subprocess.TimeoutExpired:
                os.killpg(run.pid, signal.SIGKILL)  # the test that make or cargo started, too
                return f"{name} (it does not end)"
        if NOT_COMPILED in output or "failed to run custom build" in output:
            print(output, file=sys.stderr)
            sys.exit(f"the mutation does not compile: {name}")
        if run.returncode:
            if shows:
                print(output, file=sys.stderr)
            return name
    return None


def refuse_failure(tree: Path, tests: Tests) -> None:
    """Ends everything if one of the tests fails, with sources that nobody has broken."""
    if failed := first_failure(tree, tests, None, shows=True):
        sys.exit(f"without any mutation this fails: {failed}")


def can_be_tried(mutation: Mutation) -> bool:
    """Whether the tests of a mutation can run here; says so otherwise."""
    missing = {
        APPLY: os.geteuid() != 0 and "its tests set real-time threads, which needs root",
        PROTECT_DATABASE: (os.geteuid() != 0 or not (ROOT / GUESTS / "postgresql.disk").exists())
        and "its guest needs root, and `make protect-guest`",
    }.get(mutation.directory)
    if missing:
        print(f"SKIPPED: {mutation.name}: {missing}")
    return not missing


def main() -> int:
    """0 if every mutation is caught, 1 if one survives."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--quick", action="store_true", help="only the most telling mutations")
    parser.add_argument("names", nargs="*", metavar="NAME", help="only these mutations")
    arguments = parser.parse_args()

    unknown = set(arguments.names) - {mutation.name for mutation in MUTATIONS}
    if unknown:
        parser.error(f"there is no mutation {', '.join(sorted(unknown))}")
    check_fit(MUTATIONS)
    chosen = [
        mutation
        for mutation in MUTATIONS
        if (mutation.name in arguments.names if arguments.names else True)
        and (mutation.quick or not arguments.quick)
    ]
    chosen = [mutation for mutation in chosen if can_be_tried(mutation)]
    # The same as everybody's, so that dependencies are built once.
    target = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
    # What WHY's tests are built with is broken after them, and need not be built for them anew.
    # What the same test notices in the same file stands together, so that less is built again.
    chosen.sort(
        key=lambda mutation: (
            mutation.directory not in {WHY, OBSERVE},
            mutation.directory not in POLICIES,
            mutation.by,
            mutation.path,
        )
    )
    survived = []
    tree = target / "mutations"
    update_copy(tree)
    policy_tests: Tests = {}
    if any(mutation.directory in POLICIES for mutation in chosen):
        policy_tests = built_policy_tests()
    tests_by_place = {
        mutation.directory: tests_of(target, mutation.directory, policy_tests)
        for mutation in chosen
    }
    # A test that is known to notice a mutation is enough; what others say is not asked for then.
    unbroken = {
        " ".join(command): command
        for mutation in chosen
        for name, command in tests_by_place[mutation.directory].items()
        if name == (mutation.by or name)
    }
    refuse_failure(tree, unbroken)  # builds what is needed, too
    for mutation in chosen:
        started = time.monotonic()
        path = tree / mutation.path
        original = path.read_text()
        rewrite(path, original.replace(mutation.old, mutation.new))
        tests = tests_by_place[mutation.directory]
        likely_first = dict(sorted(tests.items(), key=lambda test: test[0] != mutation.by))
        failed = first_failure(tree, likely_first, HANGS_S)
        rewrite(path, original)
        if failed and (command := tests[failed.split()[0]]) not in unbroken.values():
            # It was another test than the one that is known to notice it.
            refuse_failure(tree, {" ".join(command): command})
            unbroken[" ".join(command)] = command
        seconds = time.monotonic() - started
        verdict = f"caught by {failed}" if failed else "SURVIVED"
        print(f"{mutation.name:28} {verdict:24} {seconds:5.1f} s   {mutation.breaks}", flush=True)
        if not failed:
            survived.append(mutation.name)
    print(f"{len(chosen) - len(survived)} of {len(chosen)} mutations caught")
    return 1 if survived else 0


if __name__ == "__main__":
    sys.exit(main())
