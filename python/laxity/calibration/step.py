"""What one step of a packet takes, by quantiles."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from laxity.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import numpy.typing as npt

    Array = npt.NDArray[Any]

QUANTILES = (0.5, 0.9, 0.99, 0.999, 1)
KERNEL, THREAD, LATENCY = "sent to arrived", "CPU time", "arrived to run"


@dataclass(frozen=True)
class Step:
    """What one step of a packet takes."""

    name: str
    """The step's key in `[host] network`, or what is done to the packet."""
    median_ns: int
    p90_ns: int
    p99_ns: int
    p999_ns: int
    max_ns: int
    packets: int
    """How many were measured."""
    measured_by: str = THREAD
    """How the step is measured."""

    @staticmethod
    def of(name: str, rounds_ns: Sequence[Array], measured_by: str = THREAD) -> Step:
        """The quantiles of times, each the median of those of the rounds.

        Other work that disturbs one round does therefore not count. Raises InputError for a round
        without times.
        """
        if not all(times_ns.size for times_ns in rounds_ns):
            raise InputError(
                f"no packet shows what {name} takes",
                "give a longer --duration, or let less run on this machine",
            )
        quantiles = np.array(
            # Two clocks that are read one after the other may seem to go backwards.
            [np.quantile(np.maximum(times_ns, 0), QUANTILES) for times_ns in rounds_ns]
        )
        packets = sum(times_ns.size for times_ns in rounds_ns)
        median, p90, p99, p999, most = map(int, np.median(quantiles, axis=0))
        return Step(name, median, p90, p99, p999, most, packets, measured_by)

    @property
    def toml(self) -> str:
        """The cost as a host file takes it."""
        named = {"median": self.median_ns, "p90": self.p90_ns, "p99": self.p99_ns}
        return table_toml(named | {"p999": self.p999_ns, "max": self.max_ns})

    def to_json(self) -> dict[str, object]:
        """Returns the object that `laxity calibrate --json` prints of it."""
        return {
            "name": self.name,
            "median_ns": self.median_ns,
            "p90_ns": self.p90_ns,
            "p99_ns": self.p99_ns,
            "p999_ns": self.p999_ns,
            "max_ns": self.max_ns,
            "measured_by": self.measured_by,
            "packets": self.packets,
        }


def table_toml(times: Mapping[str, int]) -> str:
    """Times by name, as an inline table."""
    written = ", ".join(f'{name} = "{ns} ns"' for name, ns in times.items())
    return f"{{ {written} }}"
