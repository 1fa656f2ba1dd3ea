"""What is known of a host's configuration, value by value, and where each value comes from."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from laxity.policies import PARAMETERS, TABLE
from laxity.substrates.kernel import Kernel

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from laxity.resolved_schema import Costs, ResolvedHost
    from laxity.trace_schema import Metadata

FROM_TRACE = "the trace"


@dataclass(frozen=True)
class Known:
    """A value of the configuration."""

    value: int | bool
    """In the unit of its field in a resolved host."""
    source: str
    """Where it comes from, for people."""


@dataclass(frozen=True)
class Configuration:
    """What is known beside what VCPUs did."""

    policy: Mapping[str, str]
    """One entry: the policy, and where it comes from."""
    settings: Mapping[str, Known] = field(default_factory=dict)
    """The host's, by the names of policy/parameters.def."""
    domains: Mapping[str, Mapping[str, Known]] = field(default_factory=dict)
    """Parameters of domains, by domain and by the names of policy/parameters.def."""
    affinity: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    """The CPUs on which a domain may run, where somebody restricted them."""
    costs: Costs | None = None
    """What scheduling costs, by the values of a resolved host, where nothing measured it."""
    timer_latency_ns: int = 0
    """How late timers of the policy are served, where it is known."""
    kernel: Kernel = field(default_factory=Kernel)
    """What kernels take. Where nothing is known of it, it is part of what jobs cost."""

    @property
    def policy_name(self) -> str:
        """The policy's name."""
        return next(iter(self.policy))


def of_host(host: ResolvedHost, source: str) -> Configuration:
    """The configuration of a host that was written down: all but what its domains do."""
    every_cpu = tuple(range(host["cpus"]))
    affinity = {
        domain["name"]: tuple(sorted({cpu for vcpu in domain["vcpus"] for cpu in vcpu["affinity"]}))
        for domain in host["domains"]
    }
    return Configuration(
        policy={host["policy"]: source},
        settings=parameters(host["policy"], host["settings"], source, settings=True),
        domains={
            domain["name"]: parameters(host["policy"], domain["parameters"], source, settings=False)
            for domain in host["domains"]
        },
        affinity={name: cpus for name, cpus in affinity.items() if cpus not in ((), every_cpu)},
        costs=host["costs"],
        timer_latency_ns=host["timer_latency_ns"],
    )


def parameters(
    policy: str, values: Mapping[str, object], source: str, *, settings: bool
) -> dict[str, Known]:
    """Takes from values by field those that the policy uses and that are not its defaults."""
    return {
        name: Known(parameter.of(values), source)
        for name, parameter in PARAMETERS.items()
        if TABLE[policy].uses(name)
        and parameter.is_setting == settings
        and values.get(parameter.field) not in (None, parameter.default)
    }


def with_phases(
    known: Configuration, names: Iterable[str], ends_ns: Sequence[Sequence[int | None]]
) -> Configuration:
    """Adds when periods of the domains of these names begin, which nobody configures.

    `ends_ns` has for each domain, by VCPU, the end of a period; None where Xen's buffers told of
    none. Those of the first VCPU count. It is empty where nothing was told.
    """
    if not TABLE[known.policy_name].uses("phase") or not ends_ns:
        return known
    domains = dict(known.domains)
    for name, (end_ns, *_) in zip(names, ends_ns, strict=True):
        own = domains.get(name, {})
        if end_ns is not None and "period" in own:
            phase_ns = end_ns % own["period"].value
            domains[name] = {**own, "phase": Known(phase_ns, f"{FROM_TRACE}: a period ended then")}
    return replace(known, domains=domains)


def of_trace(metadata: Metadata) -> Configuration:
    """The configuration that a trace tells by itself: its policy, budgets and their periods."""
    domains = {}
    for domain in metadata["domains"]:
        given = {"budget": domain["budget_ns"], "period": domain["period_ns"]}
        domains[domain["name"]] = {name: Known(ns, FROM_TRACE) for name, ns in given.items() if ns}
    return Configuration(policy={metadata["policy"]: FROM_TRACE}, domains=domains)
