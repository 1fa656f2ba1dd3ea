"""Every rule, by its name."""

from __future__ import annotations

from typing import TYPE_CHECKING

from laxity.doctor import budgets, calls, linux, order, placement, shares

if TYPE_CHECKING:
    from laxity.doctor.suspicion import Rule

RULES: dict[str, Rule] = {
    rule.__name__.replace("_", "-"): rule
    for rule in (
        budgets.budget_below_load,
        budgets.budget_just_enough,
        budgets.period_above_deadline,
        budgets.period_out_of_step,
        budgets.budget_in_quanta,
        budgets.cpu_oversold,
        order.priority_against_period,
        order.budget_burnt_idle,
        order.budget_dropped,
        order.budgets_back_to_back,
        order.guest_by_rate,
        shares.slice_above_deadline,
        shares.cap_below_load,
        shares.cap_in_bursts,
        shares.cap_on_driver,
        shares.weight_below_load,
        shares.no_laxity,
        linux.quota_below_load,
        linux.quota_in_bursts,
        linux.quota_under_fifo,
        linux.budget_in_jiffies,
        placement.vcpus_above_cpus,
        placement.tasks_on_one_vcpu,
        placement.pinned_together,
        placement.driver_beside_busy,
        calls.voice_held_by_checkpoints,
        calls.checkpoints_below_pause,
        calls.small_ring,
        calls.coalescing_against_delay,
    )
}
"""In the order in which findings are told. Each rule's first line of text says what it finds."""
