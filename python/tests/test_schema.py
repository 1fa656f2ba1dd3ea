"""The schema of host files says of them what the parser says, as far as a schema can."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path

import jsonschema
import laxity
import pytest
from conftest import HOST, HOST_FILES
from laxity import _core

EVERY_KEY = Path(__file__).parents[2] / "crates/laxity-host/tests/every-key.toml"
WRONG = [
    ("cpus = 4", "cpus = 0"),
    ("cpus = 4", 'cpus = "four"'),
    ('policy = "sedf"', 'policy = "lottery"'),
    ('quantum = "1 ms"', 'quantum = "1 fortnight"'),
    ('quantum = "1 ms"', "quantum = 1"),
    ('quantum = "1 ms"', 'quamtum = "1 ms"'),
    ('load = "70 %"', "load = 70"),
    ('name = "control"', 'name = "the control"'),
    ("extratime = true", 'extratime = "yes"'),
    ("weight = 512", "weight = 0"),
    ("affinity = [3, 1]", "affinity = [3, 3]"),
    ('kind = "cpu-bound"', 'kind = "gpu-bound"'),
    ('tasks = "drawn"', 'tasks = "draw"'),
    ('duration = "60 s"', ""),
]


def validator() -> jsonschema.Draft202012Validator:
    schema = json.loads(_core.host_schema())
    jsonschema.Draft202012Validator.check_schema(schema)
    return jsonschema.Draft202012Validator(schema)


def test_what_the_parser_takes_the_schema_takes() -> None:
    for text in [HOST, *(path.read_text() for path in [EVERY_KEY, *HOST_FILES])]:
        laxity.Host.parse(text).resolved()
        validator().validate(tomllib.loads(text))


@pytest.mark.parametrize(("right", "wrong"), WRONG)
def test_what_one_value_alone_makes_wrong_both_refuse(right: str, wrong: str) -> None:
    text = EVERY_KEY.read_text()
    assert right in text
    text = text.replace(right, wrong, 1)
    assert not validator().is_valid(tomllib.loads(text))
    with pytest.raises(laxity.HostError):
        laxity.Host.parse(text).resolved()
