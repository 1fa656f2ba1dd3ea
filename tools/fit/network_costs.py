"""Fits two costs of the profile `iptcomm-2009` to the two losses that its paper states.

    .venv/bin/python tools/fit/network_costs.py [--seeds N]

These are what netback takes for a packet, one way and the other, and what the media server takes
for one. The search begins at the profile's own values. It looks a step to each side of either, goes
where the squared distance from both losses is least, and halves the step where that is where it
stands; the last step is 0.1 us. What it finds is printed, and goes into the profile by hand.
"""

from __future__ import annotations

import argparse

from laxity_reproduce import published
from laxity_reproduce.lab import Lab
from laxity_reproduce.telephony.setup import FACTS, measure, pinned

POINTS = {
    "figure 8, 2.1": ("mixed", pinned(dom0=[0]), FACTS["figure_8"]["one_core"]),
    "figure 12, D": ("turnkey", [], FACTS["figure_12"]["default"]),
}
NETBACK = ("netback_receive", "netback_transmit")
STEP_FIRST_NS, STEP_LAST_NS = 1600, 100


def losses(lab: Lab, costs: dict[str, int]) -> list[float]:
    """Percent lost at each point."""
    entries = ", ".join(f'{key.replace("_", "-")} = "{ns} ns"' for key, ns in costs.items())
    network = f"host.network={{ {entries} }}"
    return [
        measure(lab, host, {name: [network, *overrides]})[name].loss
        for name, (host, overrides, _) in POINTS.items()
    ]


def main() -> None:
    """Searches, and prints every pair that it tries."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--seeds", type=int, default=5)
    lab = Lab("telephony", seeds=parser.parse_args().seeds, quick=False, progress=None)
    stated = [published.percentages(text)[0] for *_, text in POINTS.values()]
    profile = lab.resolved(lab.host("mixed"), [])["network"]["costs"]
    costs = {key: cost["ns"] for key, cost in profile.items()}
    known: dict[tuple[int, int], float] = {}

    def distance(netback_ns: int, relay_ns: int) -> float:
        pair = netback_ns, relay_ns
        if pair not in known:
            tried = costs | dict.fromkeys(NETBACK, netback_ns) | {"relay": relay_ns}
            found = losses(lab, tried)
            known[pair] = sum((a - b) ** 2 for a, b in zip(found, stated, strict=True))
            of = ", ".join(
                f"{name}: {loss:.1f} % ({goal:g})"
                for name, loss, goal in zip(POINTS, found, stated, strict=True)
            )
            print(
                f"netback {netback_ns / 1000:g} us, relay {relay_ns / 1000:g} us: {of}", flush=True
            )
        return known[pair]

    here = costs[NETBACK[0]], costs["relay"]
    step_ns = STEP_FIRST_NS
    while step_ns >= STEP_LAST_NS:
        netback_ns, relay_ns = here
        around = [
            here,
            *((netback_ns + step, relay_ns) for step in (step_ns, -step_ns)),
            *((netback_ns, relay_ns + step) for step in (step_ns, -step_ns)),
        ]
        best = min(around, key=lambda pair: distance(*pair))
        if best == here:
            step_ns //= 2
        here = best
    print(f"fitted: netback {here[0] / 1000:g} us, relay {here[1] / 1000:g} us")


if __name__ == "__main__":
    main()
