"""What a substrate is: something that runs a host and gives back the same result as all others."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

from laxity.errors import InputError
from laxity.substrates.kernel import Kernel

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from laxity.progress import Progress, Say
    from laxity.resolved import Resolved
    from laxity.results.run import Run
    from laxity.sweep import Rows
    from laxity.workers.workers import Workers


REAL_TIME = (
    "real time does not repeat: the results are near these ones on the same machine, and others on "
    "another one"
)
"""How far a run on real time gives the same results again."""


@dataclass(frozen=True)
class Substrate(Protocol):
    """Something that can run a host.

    A substrate is a frozen dataclass whose fields are its options, made with `option`: the command
    line is made from them, and `xen.Xen(mode="live")` is the same in Python.
    """

    name: ClassVar[str]
    """The name in `--on` and in results."""
    label: ClassVar[str]
    """The name in sentences and titles."""
    summary: ClassVar[str]
    """What it is, for the help of `--on`."""
    setting: ClassVar[str]
    """What it is, for pages of results; empty for a model, whose setting is its seeds."""
    is_model: ClassVar[bool]
    """Whether it predicts what others measure."""
    traces: ClassVar[bool]
    """Whether a run always leaves a trace, which can be held against another substrate's."""

    @property
    def repeatable(self) -> bool:
        """Whether two runs give the same bytes."""
        ...

    @property
    def repeats(self) -> str:
        """How far a run gives the same results again, as a sentence without its full stop."""
        ...

    @classmethod
    def suffix(cls) -> str:
        """Returns what titles of its results add: nothing for a model."""
        return "" if cls.is_model else f", on {cls.label}"

    def refusals(self, host: Resolved) -> list[InputError]:
        """Returns why this host cannot run here; none if it can. Nothing is run to find out."""
        ...

    def run(
        self,
        host: Resolved,
        *,
        trace: Path | None = None,
        keep: Path | None = None,
        seen: Path | None = None,
        say: Say,
        progress: Progress | None = None,
    ) -> Run:
        """Runs a host that is not refused.

        The trace goes to the file `trace`, where one is wanted; all else that the substrate leaves,
        such as the log of a machine, goes to `keep`, a directory that is not there yet. A model
        releases jobs of one instant in the order of the host file, or that in which VCPUs wake for
        them in the trace `seen`, and lets idle guests take the ticks for which they wake there;
        what is no model has its own. Raises InputError if this machine lacks something, LabError
        if the machine fails that runs it.
        """
        ...

    def refuse_together(self, hosts: Sequence[Resolved]) -> None:
        """Raises InputError if the hosts, each of which may run, cannot run after each other."""
        del hosts

    def excess(self, hosts: Sequence[Resolved]) -> InputError | None:
        """Returns why running the hosts takes more than there is; None if it does not.

        They may run, and nothing is run to find out.
        """
        del hosts
        return None

    def settled(self, keep: Path, host: Resolved) -> list[str]:
        """Returns overrides that make a model do what a run has found out by itself.

        `keep` is the directory of that run of `host`.
        """
        del keep, host
        return []

    def machine(self, host: Resolved) -> list[str]:
        """Returns overrides of a host: what is known of the machine, where the host leaves it out.

        That is what scheduling costs, and how late timers are served.
        """
        del host
        return []

    def kernel(self, host: Resolved) -> Kernel:
        """Returns what VCPUs of a host are known to take there beside their jobs."""
        del host
        return Kernel()

    def period_ends_ns(self, keep: Path) -> Sequence[Sequence[int | None]]:
        """Returns by domain and VCPU when a period of its budget ended, as far as a run told.

        `keep` is the directory of that run. What told nothing has none.
        """
        del keep
        return ()

    def run_many(
        self,
        hosts: Sequence[Resolved],
        *,
        keep: Callable[[Resolved], Path | None] = lambda _: None,
        say: Say,
        progress: Progress | None = None,
        streams: bool = False,
        workers: Workers | None = None,
    ) -> list[Run]:
        """Runs several hosts, by default one after the other; `keep` tells the directory of each.

        Without `streams` the runs have no packets of voice, which are large. Only a model can be
        run by `workers`.
        """
        del streams, workers
        runs = []
        for host in hosts:
            runs.append(self.run(host, keep=keep(host), say=say))
            if progress is not None:
                progress(len(runs), len(hosts))
        return runs

    def rows(
        self,
        hosts: Sequence[Resolved],
        *,
        say: Say,
        progress: Progress | None = None,
        workers: Workers | None = None,
    ) -> Iterator[Rows]:
        """Runs the hosts of a sweep, which may be many, and yields the rows of its table."""
        from laxity.sweep import Rows  # noqa: PLC0415 - a command that sweeps nothing needs none

        del workers
        yield Rows.of_runs(self.run_many(hosts, say=say, progress=progress))

    @classmethod
    def options_of(cls, words: Sequence[str]) -> dict[str, str | bool]:
        """Returns the fields that options on the command line give, as `words` has them."""
        rest = iter(words)
        found: dict[str, str | bool] = {}
        by_flag = {each.metadata["flag"]: each for each in fields(cls)}
        for flag in rest:
            each = by_flag[flag]
            found[each.name] = True if isinstance(each.default, bool) else next(rest)
        return found

    @property
    def words(self) -> tuple[str, ...]:
        """What names it on the command line: `--on` and the options that are not the default."""
        return ("--on", self.name, *self._words())

    def _words(self) -> Iterator[str]:
        for each in fields(self):
            if (value := getattr(self, each.name)) != each.default:
                yield each.metadata["flag"]
                if value is not True:
                    yield str(value)


def option(
    default: Any,  # noqa: ANN401 - of the field's type
    flag: str,
    help: str,
    *,
    metavar: str | None = None,
    command_line: Any = None,  # noqa: ANN401 - as above
) -> Any:  # noqa: ANN401 - as above
    """Makes the field of a substrate that is an option of the command line.

    What it may be is its type: `str`, `bool` for a flag, or a `Literal` of words. `command_line` is
    the default there, if it is not that of the field.
    """
    metadata = {
        "flag": flag,
        "help": help,
        "metavar": metavar,
        "command_line": default if command_line is None else command_line,
    }
    return field(default=default, metadata=metadata)


def refuse(on: Substrate, hosts: Sequence[Resolved], workers: Workers | None = None) -> None:
    """Raises the first InputError of what a substrate refuses of these hosts."""
    if workers is not None and not on.is_model:
        raise InputError(
            f"{on.label} is one machine, and no workers run hosts on it",
            "leave --workers and --cluster out",
        )
    for host in hosts:
        for refusal in on.refusals(host):
            raise refusal
    on.refuse_together(hosts)
