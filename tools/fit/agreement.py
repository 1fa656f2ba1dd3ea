"""How well the simulator agrees with runs of the same hosts elsewhere, for several values.

What is fitted is the value with which the CPU runs the same VCPU for most of the time.
"""

from __future__ import annotations

import json
import statistics
from typing import TYPE_CHECKING

from laxity import _core
from laxity.substrates import of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from pathlib import Path

    from laxity.resolved import Resolved
    from laxity.results.run import Run


def print_best(
    hosts: Mapping[str, Resolved],
    runs: Mapping[str, Run],
    values_ns: Iterable[int],
    overrides: Callable[[str, Resolved, int], list[str]],
    trace: Path,
) -> None:
    """Prints the agreement of all hosts at each value, and the best value.

    `overrides` says what the simulator gets of a host, by its name, for a value. `trace` is a file
    that is written anew each time.
    """
    found: dict[int, float] = {}
    for value_ns in values_ns:
        same = []
        for name, host in hosts.items():
            trace.unlink(missing_ok=True)
            changed = host.changed(overrides(name, host, value_ns))
            real = runs[name].trace
            model = of("sim").run(changed, trace=trace, seen=real, say=lambda _: None)
            agreement = json.loads(_core.agreement(str(model.trace), str(real)))
            same.append(100 * agreement["same_ratio"])
        found[value_ns] = statistics.mean(same)
        each = ", ".join(f"{percent:.1f}" for percent in same)
        print(f"{value_ns:6} ns {found[value_ns]:7.2f} % ({each})")
    print(f"best {max(found, key=lambda value_ns: found[value_ns])} ns")
