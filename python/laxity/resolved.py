"""A host file with overrides: the complete host that results, and results of its runs."""

from __future__ import annotations

import json
from functools import cached_property
from typing import TYPE_CHECKING, cast

from laxity.errors import InputError, core_errors
from laxity.results.origin import Origin

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from laxity import _core
    from laxity.resolved_schema import Calls, Domain, Network, ResolvedHost, Server, Task
    from laxity.results.run import Run
    from laxity.results.streams import KeptStream
    from laxity.trace_schema import Measured, Metadata


def task_paths(host: ResolvedHost) -> Iterator[tuple[str, Domain, Task]]:
    """Each task's path in the host file, its domain and itself. A helper is its own only task."""
    for domain in host["domains"]:
        for task in domain["tasks"]:
            if domain["helper_of"] is None:
                yield f"domain.{domain['name']}.tasks.{task['name']}", domain, task
            else:
                owner = host["domains"][domain["helper_of"]]["name"]
                yield f"domain.{owner}.helpers.{task['name']}", domain, task


def ending(host: ResolvedHost, end_ns: int) -> list[str]:
    """Overrides with which a run ends at that time, and does the same until then.

    A host file has no task whose first job comes after the end, and no failure of the host. Such a
    task gets one in the last nanosecond. Such a failure comes with the end: until then the host is
    prepared for it and lives.
    """
    protect = host["network"] and host["network"].get("protect")
    failure = protect and protect["failure"]
    return [
        f"duration={end_ns} ns",
        *(
            f"{path}.offset={end_ns - 1} ns"
            for path, _, task in task_paths(host)
            if task["offset_ns"] >= end_ns
        ),
        *([f"protect.failure.at={end_ns} ns"] if failure and failure["at_ns"] > end_ns else []),
    ]


class Resolved:
    """A host file with overrides, which `host` has in full.

    It is checked when `host` is first used; HostError then says what is wrong with the file or an
    override.
    """

    def __init__(
        self, file: _core.HostFile, text: bytes, name: str, overrides: Iterable[str]
    ) -> None:
        """Takes a parsed host file, its text and name, and overrides as `--set` takes them."""
        self.file = file
        self.text = text
        self.name = name
        self.overrides = list(overrides)

    @cached_property
    def complete(self) -> _core.CompleteHost:
        """The complete host, of which the extension module is asked."""
        with core_errors():
            return self.file.complete(self.overrides)

    @cached_property
    def host(self) -> ResolvedHost:
        """The complete host: drawn tasks included, all times in ns."""
        import msgspec

        host: ResolvedHost = msgspec.json.decode(self.complete.json())
        return host

    def gives(self, key: str) -> bool:
        """Returns whether the file or an override gives a key of a table, such as `host.costs`."""
        if any(override.startswith((f"{key}=", f"{key}.")) for override in self.overrides):
            return True
        return self.file.gives(key)

    @property
    def has_streams(self) -> bool:
        """Whether calls send voice, which is scored."""
        calls = self.host["calls"]
        return calls is not None and bool(calls["streams"] or calls["rate"])

    def require_scorer(self) -> None:
        """Raises InputError if calls send voice, and the extra that scores it is not installed."""
        from laxity import extras

        if self.has_streams:
            extras.require("pesq")

    def changed(self, overrides: Iterable[str]) -> Resolved:
        """Returns the same with more overrides behind those that are there."""
        return Resolved(self.file, self.text, self.name, [*self.overrides, *overrides])

    def origin(self, options: Sequence[str] = ()) -> Origin:
        """Returns what a result was made from; `options` name the substrate that gave it."""
        return Origin(self.text, self.name, tuple(self.overrides), tuple(options))

    def trace_metadata(self, substrate: str) -> Metadata:
        """Returns what a trace says of its run before its first record."""
        metadata: Metadata = json.loads(self.complete.trace_metadata(substrate))
        return metadata

    def measured(
        self,
        substrate: str,
        completions: list[list[bytes]],
        measured: Measured,
        *,
        trace: Path | None = None,
        beside: Mapping[str, object] | None = None,
        streams: tuple[KeptStream, ...] = (),
        options: Sequence[str] = (),
    ) -> Run:
        """Makes the result of a run that was not simulated, by the rules of those that are.

        `completions` has for each domain and task when its jobs completed, ns from the start as
        int64 bytes. `beside` is the part of the result that does not follow from jobs, and
        `streams` are packets of voice. `options` name the substrate on the command line.
        """
        from laxity.results.jobs import responses_of_core
        from laxity.results.run import Run, result_of

        with core_errors():
            result, times, _ = self.complete.result_of_jobs(
                substrate, completions, json.dumps(measured)
            )
        content = json.loads(result) | (beside or {})
        if content["telephony"] is not None:
            calls = calls_of(self.host)
            content["telephony"] |= {"limits": calls["acceptance"], "playout": calls["playout"]}
        found = result_of(content)
        responses, counted = responses_of_core(found, times)
        return Run.of(found, self.origin(options), responses, trace, streams, counted)


def refuse_helpers(host: ResolvedHost, why: str, instead: str) -> None:
    """Raises InputError for a host whose domains have helpers, with why and what is right."""
    for domain in host["domains"]:
        if domain["helper_of"] is not None:
            owner = host["domains"][domain["helper_of"]]["name"]
            raise InputError(
                f"`domain.{owner}.helpers` is given, and {why}",
                f"add --set 'domain.{owner}.helpers=[]'{instead}",
            )


def calls_of(host: ResolvedHost) -> Calls:
    """Returns the calls of a host that has some."""
    calls = host["calls"]
    assert calls is not None  # noqa: S101, for the types: hosts without calls are refused before.
    return calls


def network_of(host: ResolvedHost) -> Network:
    """Returns the network of a host that has one, as all with calls have."""
    network = host["network"]
    assert network is not None  # noqa: S101, as above.
    return network


def server_of(domain: Domain) -> Server:
    """Returns what is the same of all servers, of a domain that is one."""
    return cast("Server", domain["workload"])


def refuse_processing(host: ResolvedHost, where: str) -> None:
    """Raises InputError for a media server that does with voice what no real one does there."""
    media = host["domains"][calls_of(host)["media_server"]]
    for key in server_of(media).get("processing", ()):
        raise InputError(
            f"`domain.{media['name']}.workload.{key}` is given, and on {where} the media server "
            "does not do it",
            "leave it out, or run it in the simulator",
        )


def overrides_of(
    set: str | Iterable[str],
    *,
    policy: str | None = None,
    seed: int | None = None,
    duration: str | None = None,
) -> list[str]:
    """Returns all as `--set` takes them; what has an option of its own comes last and so counts."""
    settings = [set] if isinstance(set, str) else list(set)
    named = {"host.policy": policy, "seed": seed, "duration": duration}
    return [*settings, *(f"{key}={value}" for key, value in named.items() if value is not None)]
