"""The tables of policies and parameters, and the command that lists them."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from laxity import POLICIES, Host, _core
from laxity.errors import HostError
from laxity.policies import PARAMETERS, TABLE, can_switch, default_of

if TYPE_CHECKING:
    from conftest import Laxity

POLICY = Path(__file__).parents[2] / "policy"

HOST = 'duration = "1 s"\nhost = {{ cpus = 1, policy = "credit"{} }}\n[[domain]]\nname = "a"\n{}\n'


def host(parameter: str, value: str) -> Host:
    is_setting = PARAMETERS[parameter].is_setting
    line = f"{parameter} = {value}"
    settings, domain = (f", {line}", "") if is_setting else ("", line)
    return Host(HOST.format(settings, domain).encode(), "host.toml")


def test_every_row_of_the_tables_is_known() -> None:
    rows = re.findall(
        r'^LAXITY_(?:POLICY|MODEL)\(\w+, "([^"]+)"',
        (POLICY / "policies.def").read_text(),
        re.MULTILINE,
    )
    assert rows == list(POLICIES) == list(TABLE)
    text = (POLICY / "parameters.def").read_text()
    row = re.compile(r'^LAXITY_(?:MODEL_)?(?:PARAMETER|SETTING)\(\w+, \w+, "([^"]+)"', re.MULTILINE)
    assert row.findall(text) == list(PARAMETERS)
    for policy in TABLE.values():
        assert set(policy.parameters) <= set(PARAMETERS)
        assert "sim" in policy.substrates


def test_the_command_lists_them(laxity: Laxity) -> None:
    listed = json.loads(laxity("policies", "--json").stdout)["policies"]
    assert [policy["name"] for policy in listed] == list(POLICIES)
    for policy in listed:
        assert list(policy) == ["name", "family", "substrates", "parameters", "about"]
        assert policy["about"].endswith(".")
    (allc,) = (policy for policy in listed if policy["name"] == "s-allc")
    assert allc["family"] == "scheduler-s"
    assert "laxity" in allc["parameters"]
    shown = laxity("policies").stdout
    assert all(name in shown for name in POLICIES)


def test_groups_switch() -> None:
    assert can_switch(["deferrable", "periodic", "polling"])
    assert can_switch(["sporadic"])
    assert not can_switch(["deferrable", "sporadic"])


def test_defaults_are_those_of_resolved_hosts() -> None:
    resolved = Host(HOST.format("", "").encode(), "host.toml").resolved()
    given = resolved["domains"][0]["parameters"] | resolved["settings"]
    for parameter in PARAMETERS.values():
        if parameter.default is not None:
            assert given[parameter.field] == default_of(parameter.name)
    with pytest.raises(ValueError, match="period has no default"):
        default_of("period")


@pytest.mark.parametrize(
    "name", [name for name, each in PARAMETERS.items() if each.kind == "number" and name != "cap"]
)
def test_host_files_have_the_same_bounds(name: str) -> None:
    parameter = PARAMETERS[name]
    for value in (parameter.least, parameter.most):
        host(name, str(value)).resolved()
    for value in (parameter.least - 1, parameter.most + 1):
        with pytest.raises(HostError, match=str(parameter.most if value > 0 else parameter.least)):
            host(name, str(value)).resolved()


@pytest.mark.parametrize(
    "name", [name for name, each in PARAMETERS.items() if each.kind == "duration"]
)
def test_host_files_have_the_same_longest_times(name: str) -> None:
    with pytest.raises(HostError, match="too long"):
        host(name, f'"{PARAMETERS[name].most + 1} ns"').resolved()


def test_the_schema_has_their_meanings() -> None:
    schema = json.loads(_core.host_schema())["$defs"]
    keys = schema["HostTable"]["properties"] | schema["DomainTable"]["properties"]
    for name, parameter in PARAMETERS.items():
        if name != "tick":  # A domain has another key of this name.
            assert keys[name]["description"].startswith(parameter.meaning)
    tick = schema["HostTable"]["properties"]["tick"]
    assert tick["description"].startswith(PARAMETERS["tick"].meaning)
