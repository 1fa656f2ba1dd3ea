"""How far two substrates are apart on one host, such as the simulator from real Xen."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING

from laxity import _core
from laxity import directory as directories
from laxity.errors import InputError, core_errors
from laxity.results.origin import save_origin
from laxity.substrates.substrate import refuse

if TYPE_CHECKING:
    from pathlib import Path

    from laxity.progress import Progress, Say
    from laxity.resolved import Resolved
    from laxity.results.run import Run
    from laxity.substrates.substrate import Substrate
    from laxity.trace_schema import Agreement

FIDELITY = "fidelity.json"


def _added(settled: list[str]) -> str:
    """What overrides add that a host file left out, in words."""
    costs = [setting for setting in settled if setting.startswith("host.costs=")]
    late = ("host.timer-latency=", "host.time-slice=")
    late_timers = [each for each in settled if each.startswith(late)]
    accounting = [each for each in settled if each.startswith("host.accounting-phase=")]
    ticks = [setting for setting in settled if ".tick.cost=" in setting]
    jobs = [setting for setting in settled if ".tasks." in setting]
    phases = [setting for setting in settled if ".phase=" in setting]
    credits = [setting for setting in settled if ".credit=" in setting]
    of_guests = [(ticks, "ticks"), (phases, "phases of the periods"), (credits, "credits")]
    of_all = [
        (costs, "what decisions and switches cost"),
        (jobs, "what kernels take for jobs"),
        (late_timers, "how late timers are served"),
        (accounting, "the phase of accounting"),
    ]
    found = [what for of, what in of_all if of]
    return ", ".join([*found, *(f"{what} of {len(of)} guests" for of, what in of_guests if of)])


@dataclass(frozen=True)
class Fidelity:
    """One host, run on two substrates."""

    runs: tuple[Run, Run]
    """The first, which is compared, and the second, which it is held against."""
    agreement: Agreement
    """How far the two traces agree."""

    def to_json(self) -> dict[str, object]:
        """Returns the object that `laxity fidelity --json` prints."""
        first, second = self.runs
        a, b = first.substrate, second.substrate
        return {
            "domains": [
                {
                    "name": ours.name,
                    f"miss_ratio_{a}": ours.miss_ratio,
                    f"miss_ratio_{b}": theirs.miss_ratio,
                    "difference": theirs.miss_ratio - ours.miss_ratio,
                }
                for ours, theirs in zip(first.domains, second.domains, strict=True)
            ],
            "agreement": self.agreement,
            a: first.to_json(),
            b: second.to_json(),
        }

    def write(self, directory: Path) -> None:
        """Writes it, and both runs, which `report`, `trace` and `diff` take, into a directory."""
        save_origin(directory, "fidelity", self.runs[1].origin)
        directories.write_json(directory / FIDELITY, self.to_json())
        for run in self.runs:
            run.save(directory / run.substrate)


def measure(
    host: Resolved,
    a: Substrate,
    b: Substrate,
    directory: Path,
    say: Say,
    progress: Progress | None = None,
) -> Fidelity:
    """Runs a host on both; `directory`, a new one, gets what they leave, and the traces.

    A model runs after what it is compared with, and takes over what that has settled by itself,
    such as when the ticks of guests' kernels come, and which guest wakes first at one instant.
    Raises InputError if either refuses the host, or leaves no trace.
    """
    if a.name == b.name:
        raise InputError(
            f"{a.name} is given twice", "two different substrates are compared with each other"
        )
    for on in (a, b):
        if not on.traces:
            raise InputError(
                f"a run on {on.label} leaves no trace to compare", "choose another substrate"
            )
        refuse(on, [host])
    directory.mkdir(parents=True)
    settled: list[str] = []
    seen: Path | None = None
    runs = {}
    for on in sorted((a, b), key=lambda each: each.is_model):
        keep = directory / on.name
        if on.is_model and (added := _added(settled)):
            say(f"{on.label} is given what is known of the other side: {added}")
        run = on.run(
            host.changed(settled) if on.is_model else host,
            trace=directory / f"{on.name}.laxtrace",
            keep=keep,
            seen=seen,
            say=say,
            progress=progress,
        )
        settled += on.settled(keep, host)
        seen = run.trace
        runs[on.name] = run
    first, second = runs[a.name], runs[b.name]
    with core_errors():
        agreement: Agreement = json.loads(_core.agreement(str(first.trace), str(second.trace)))
    return Fidelity((first, second), agreement)
