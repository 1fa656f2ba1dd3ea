"""How far the simulator is from real Xen, on one host file."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from laxity import _core
from laxity import directory as directories
from laxity.errors import core_errors
from laxity.results.origin import save_origin
from laxity.substrates.xen import boot as xen
from laxity.substrates.xen import collect

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from laxity.host import Host
    from laxity.results.run import Run
    from laxity.substrates.xen.executors import Place, Say

FIDELITY = "fidelity.json"

SIM = "sim"
XEN = "xen"
"""Output directories of the two runs, within the one of the comparison."""


@dataclass(frozen=True)
class Fidelity:
    """One host file, run by the simulator and by Xen."""

    sim: Run
    xen: Run
    agreement: dict[str, Any]
    """Of the two traces, the simulator's first: `Agreement` of crates/laxity-trace, as JSON."""

    def to_json(self) -> dict[str, Any]:
        """Returns the object that `laxity fidelity --json` prints."""
        return {
            "domains": [
                {
                    "name": sim.name,
                    "miss_ratio_sim": sim.miss_ratio,
                    "miss_ratio_xen": real.miss_ratio,
                    "difference": real.miss_ratio - sim.miss_ratio,
                }
                for sim, real in zip(self.sim.domains, self.xen.domains, strict=True)
            ],
            "agreement": self.agreement,
            "sim": self.sim.to_json(),
            "xen": self.xen.to_json(),
        }

    def write(self, directory: Path) -> None:
        """Writes it, and both runs, which `report`, `trace` and `diff` take, into a directory."""
        save_origin(directory, "fidelity", self.xen.origin)
        directories.write_json(directory / FIDELITY, self.to_json())
        self.sim.save(directory / SIM)
        self.xen.save(directory / XEN)


def phases(host: Mapping[str, Any], ticks: Sequence[Mapping[str, int]]) -> list[str]:
    """Overrides of a resolved host: its guests' ticks come when these, reported ones, did."""
    return [
        f"domain.{number}.tick.{key}={tick[f'{key}_ns']} ns"
        for number, (domain, tick) in enumerate(zip(host["domains"], ticks, strict=True))
        if domain["tick"] is not None
        for key in ("period", "offset")
    ]


def measure(
    host: Host,
    overrides: Sequence[str],
    place: Place | None,
    directory: Path,
    say: Say | None,
) -> Fidelity:
    """Runs the host on both; `directory`, a new one, gets what the machine left and the traces.

    Where the host file has the ticks of a guest, the simulator's come when the guest reported that
    its kernel's did.
    """
    real = xen.run(host, overrides, place, keep=directory, say=say)
    assert real.trace is not None  # noqa: S101, for the types: runs on Xen are traced.
    summary = json.loads(real.trace.with_suffix(collect.SUMMARY).read_text("utf-8"))
    in_phase = [*overrides, *phases(host.resolved(overrides), summary["ticks"])]
    sim = host.run(set=in_phase, trace=directory / "sim.laxtrace")
    with core_errors():
        agreement = json.loads(_core.agreement(str(sim.trace), str(real.trace)))
    return Fidelity(sim, real, agreement)
