"""How well the model predicts what a host did of which there is a trace."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING

from laxity import _core, tracefile
from laxity.errors import core_errors
from laxity.fidelity import Fidelity
from laxity.observe.observed import run_of

if TYPE_CHECKING:
    from pathlib import Path

    from laxity.progress import Progress, Say
    from laxity.resolved import Resolved
    from laxity.substrates.substrate import Substrate
    from laxity.trace_schema import Agreement

TRACE = "trace"
"""The name of what the model is held against."""


def measure_against(
    host: Resolved,
    model: Substrate,
    source: Path,
    directory: Path,
    say: Say,
    progress: Progress | None = None,
) -> Fidelity:
    """Runs a host on a model, and holds it against a trace, or the trace of a run's directory.

    When jobs were complete is taken from the trace if it has the jobs of the host's tasks, and else
    found from when their VCPUs ran. `directory`, a new one, gets both traces. Raises InputError if
    the trace is of another host.
    """
    directory.mkdir(parents=True)
    raw = tracefile.find(source)
    told = run_of(host, raw, directory / "told.laxtrace")
    run = model.run(
        host,
        trace=directory / f"{model.name}.laxtrace",
        seen=told.trace,
        say=say,
        progress=progress,
    )
    with core_errors():
        agreement: Agreement = json.loads(_core.agreement(str(run.trace), str(told.trace)))
    return Fidelity((run, replace(told, substrate=TRACE)), agreement)
