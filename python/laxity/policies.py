"""The scheduling policies and their parameters, from policy/policies.def and parameters.def."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import msgspec

from laxity import _core

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping


@dataclass(frozen=True)
class Policy:
    """A scheduling policy."""

    name: str
    """In host files and on the command line."""
    family: str
    """What it has in common with others: servers, credit's shares, deadlines, scheduler S."""
    switch_group: str
    """A hypervisor that runs can change to the other policies of the same group."""
    substrates: tuple[str, ...]
    """Where it runs."""
    own_of: str | None
    """The substrate whose own scheduler it is a model of; None for Laxity's policies."""
    listens: bool
    """Whether it makes something of the deadlines that guests tell."""
    parameters: tuple[str, ...]
    """The names of the parameters that it uses."""
    about: str
    """One sentence, in Markdown."""

    def uses(self, parameter: str) -> bool:
        """Returns whether the policy goes by that parameter."""
        return parameter in self.parameters

    def to_json(self) -> dict[str, object]:
        """Returns the object that `laxity policies --json` prints."""
        return {
            "name": self.name,
            "family": self.family,
            "substrates": list(self.substrates),
            "parameters": list(self.parameters),
            "about": self.about,
        }


@dataclass(frozen=True)
class Parameter:
    """A parameter of a domain and its VCPUs, or a setting of the whole host."""

    name: str
    """The key in host files and of laxity-sched."""
    field: str
    """The key in a resolved host, with its unit."""
    is_setting: bool
    """Whether it is the host's, and not a domain's."""
    kind: str
    """`duration`, `number` or `flag`."""
    unit: str | None
    least: int
    most: int
    default: int | None
    """None: it must be given, or follows from others."""
    meaning: str
    """Whole sentences, in Markdown."""

    def of(self, given: Mapping[str, object]) -> int:
        """Returns its value among the parameters of a domain, or the settings of a host."""
        value = given[self.field]
        assert isinstance(value, int)  # noqa: S101 - for the types
        return value


TABLE = {
    policy.name: policy for policy in msgspec.json.decode(_core.policies(), type=tuple[Policy, ...])
}
"""Every policy by its name, in the order of tables and plots."""

PARAMETERS = {
    parameter.name: parameter
    for parameter in msgspec.json.decode(_core.parameters(), type=tuple[Parameter, ...])
}
"""Every parameter by its name: those of domains, then the settings of the host."""

OWN_PARAMETERS = {
    name: parameter
    for name, parameter in PARAMETERS.items()
    if any(policy.uses(name) for policy in TABLE.values() if policy.own_of is None)
}
"""Those that Laxity's own policies go by, and laxity-sched sets; the others are of models."""

POLICIES = tuple(TABLE)
"""The names of all policies."""

MODELS = tuple(name for name, policy in TABLE.items() if policy.own_of is not None)
"""Models of schedulers that are a substrate's own."""

SCHEDULER_S = tuple(name for name, policy in TABLE.items() if policy.family == "scheduler-s")
"""Scheduler S, with more and more of its parts."""

GLOBAL = tuple(name for name, policy in TABLE.items() if policy.family == "global")
"""Servers and SEDF with one order for all CPUs."""

BY_WEIGHT = tuple(name for name, policy in TABLE.items() if policy.uses("weight"))
"""Policies whose domains have weights and caps, and whose VCPUs go to other CPUs."""


def can_switch(policies: Iterable[str]) -> bool:
    """Returns whether a running hypervisor can change each of these policies into the others."""
    return len({TABLE[name].switch_group for name in policies}) <= 1


def default_of(parameter: str) -> int:
    """Returns the default of a parameter that has one."""
    default = PARAMETERS[parameter].default
    if default is None:
        raise ValueError(f"{parameter} has no default")
    return default
