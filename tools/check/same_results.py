#!/usr/bin/env python3
"""Compares what two checkouts find on one list of hosts, byte for byte.

    tools/check/same_results.py BASE              two minutes: all policies, workloads and papers
    tools/check/same_results.py BASE --full       an hour: more hosts, the papers in full, pages
    tools/check/same_results.py BASE PATTERN ...  the cases with such names, such as '*sedf*'
    tools/check/same_results.py BASE --list       the cases, and what each runs

BASE is a built checkout of the commit to compare with; nothing is written into it. Both checkouts
are used by their command line alone (`.venv/bin/laxity`, and the programs in `target/`), with the
same host files: those of BASE (`examples/`, and every directory `hosts`) and generated ones. What
BASE gives is kept in the output directory and used again until BASE changes.

Traces, their exports and Parquet files are compared as bytes. JSON is compared value by value, the
time on the wall left out; text may differ in the fields that hold sentences (`WORDING`), with the
same numbers in it, and is then listed as wording. Pages are treated alike: their tables cell by
cell. The exit code is 0 if nothing but wording differs, 1 if results do, 2 if BASE cannot be used.

Runs on Xen and on Linux are not compared: those on Linux do not repeat, and those on Xen count the
instructions of programs that may change.
"""

from __future__ import annotations

import argparse
import fnmatch
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypedDict
from xml.etree import ElementTree as ET

sys.path.insert(0, str(Path(__file__).parent))
import random_hosts  # a module beside this one

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

ROOT = Path(__file__).resolve().parents[2]
HOSTS = Path(__file__).parent / "hosts"
RANDOM_QUICK, RANDOM_FULL = 26, 600
"""Generated hosts."""
PAPERS = ("rt-xen", "telephony", "soft-real-time", "bandwidth", "availability")
QUICK_EXPERIMENTS = (
    ("rt-xen", "table-1"),
    ("rt-xen", "table-4"),
    ("telephony", "figure-10"),
    ("soft-real-time", "figure-3"),
    ("soft-real-time", "figure-17"),
    ("bandwidth", "figure-3"),
    ("bandwidth", "figure-7"),
    ("bandwidth", "liar"),
    ("availability", "figure-5"),
)
"""Experiments that take a few seconds each, at least one of every paper."""
HANGS_S = 7200

WALL = frozenset({"wall_ns"})
"""Fields that no two runs share."""
WORDING = frozenset(
    {
        *("title", "method", "what", "why", "spread", "published", "ours"),
        *("run_instead", "notes", "note", "help"),
    }
)
"""Fields that hold sentences. The verdict beside `published` and `ours` is compared exactly."""
DOCUMENTATION = frozenset({"description"})
"""Fields of a schema, whose sentences may name other numbers, too."""


@dataclass(frozen=True)
class Case:
    """Commands that are run one after the other in an empty directory with some files in it."""

    name: str
    steps: tuple[tuple[str, ...], ...]
    """The words of each command. The first is `laxity`'s own, or the name of a program of ours."""
    files: dict[str, bytes] = field(default_factory=dict)
    """Contents by name."""
    is_full: bool = False
    """Whether only the full form runs it."""


@dataclass(frozen=True)
class Difference:
    """A place in a file where the two checkouts differ."""

    file: str
    where: str
    before: str
    after: str
    is_wording: bool = False

    def __str__(self) -> str:
        """Two or three lines."""
        return f"{self.file} {self.where}\n    before: {self.before}\n    after:  {self.after}"


# The cases


def cases(base: Path) -> list[Case]:
    """All of them, made of BASE's own files and schema."""
    schema = json.loads(_said(base, "schema", "host"))
    policies = _constants(schema["$defs"]["Policy"])
    workloads = _constants(schema["$defs"]["WorkloadKind"])
    found = [Case("schema", (("schema", "host"), ("schema", "result")))]
    found += _examples(base)
    found += _of_papers(base)
    found += _features(policies)
    found += [
        Case(
            f"random/{number:03}-{policy}",
            (("check", "host.toml", "--json"), _run()) if number % 3 == 0 else (_run(),),
            {"host.toml": random_hosts.host(number, policy).encode()},
            number >= RANDOM_QUICK,
        )
        for number in range(RANDOM_FULL)
        for policy in (policies[number % len(policies)],)
    ]
    found += _other_programs(base)
    _refuse_unless_covered(found, policies, workloads)
    return found


def _run(*words: str) -> tuple[str, ...]:
    return ("run", "host.toml", "--json", "-o", "run", *words)


EXPORTS = (
    ("trace", "run", "run.txt", "--text"),
    ("trace", "run", "run.pftrace", "--perfetto"),
    ("trace", "run", "run.parquet", "--parquet"),
)


def _examples(base: Path) -> Iterator[Case]:
    durations = {"flat": "60 s", "integrator": "10 s", "overload": "10 s", "rt-xen": "10 s"}
    for path in sorted((base / "examples").glob("*.toml")):
        if path.stem in {"fleet", "site"}:  # these are no hosts
            continue
        if path.stem == "three-loops":  # some of its values are open
            design = ("design", "host.toml", "--json", "--write", "designed.toml")
            yield Case(f"examples/{path.stem}", (design,), {"host.toml": path.read_bytes()})
            continue
        lasts: tuple[str, ...] = ("--duration", durations.get(path.stem, "2 s"))
        if path.stem == "protect":
            lasts = (*lasts, "--set", "protect.failure.at=1 s")
        files = {"host.toml": path.read_bytes()}
        steps = (
            ("check", "host.toml", "--budgets", "--json"),
            _run(*lasts),
            *(EXPORTS if path.stem in {"overload", "telephony-xen"} else ()),
            ("compare", "host.toml", "--json", "-o", "compare", *lasts),
        )
        yield Case(f"examples/{path.stem}", steps, files)
        # The full form keeps the file's duration, and compares with several seeds.
        steps = (
            ("run", "host.toml", "--json", "-o", "run", "--no-trace"),
            ("compare", "host.toml", "--seeds", "3", "--json", "-o", "compare", *lasts),
        )
        yield Case(f"examples/{path.stem}-long", steps, files, is_full=True)
    rt_xen = {"host.toml": (base / "examples" / "rt-xen.toml").read_bytes()}
    sweep = ("sweep", "host.toml", "--json", "-o", "sweep", "--duration")
    ranges = ("--set", "draw.load=0.3..1.2:0.3", "--set", "host.quantum=0 ms|1 ms")
    policies = ("--policy", "deferrable,sporadic,sedf,credit", "--seeds", "2")
    yield Case("sweep/loads", ((*sweep, "3 s", *ranges, *policies),), rt_xen)
    telephony = {"host.toml": (base / "examples" / "telephony.toml").read_bytes()}
    streams = ("--set", "calls.streams=100..300:100", "--set", "calls.sample=20")
    yield Case("sweep/calls", ((*sweep, "1 s", *streams),), telephony)
    small = {"host.toml": (base / "examples" / "telephony-xen.toml").read_bytes()}
    capacity = ("capacity", "host.toml", "--json", "-o", "capacity", "--duration")
    yield Case("capacity/small", ((*capacity, "1 s", "--seeds", "2"),), small)
    yield Case("capacity/telephony", ((*capacity, "5 s"),), telephony, is_full=True)
    two = (
        ("run", "host.toml", "--json", "-o", "a", "--duration", "1 s"),
        ("run", "host.toml", "--json", "-o", "b", "--duration", "1 s", "--policy", "periodic"),
        ("diff", "a", "b", "--json"),
    )
    yield Case("diff/policies", two, rt_xen)


def _of_papers(base: Path) -> Iterator[Case]:
    tops = (base / "python", base / "reproduce")
    for path in sorted(path for top in tops for path in top.rglob("hosts/*.toml")):
        name = f"{path.parent.parent.name}-{path.stem}".replace("_", "-")
        files = {"host.toml": path.read_bytes()}
        yield Case(f"hosts/{name}", (_run("--duration", "1 s"),), files)
    for paper, experiment in QUICK_EXPERIMENTS:
        words = ["reproduce", paper, experiment, "--quick", "--json", "-o", "found"]
        yield Case(f"reproduce/{paper}-{experiment}", (tuple(words),))
    for paper in PAPERS:
        words = ["reproduce", paper, "--json", "-o", "found", "--docs", "page.md"]
        yield Case(f"reproduce/{paper}-quick", ((*words, "--quick"),), is_full=True)
        yield Case(f"reproduce/{paper}-full", (tuple(words),), is_full=True)


def _features(policies: list[str]) -> Iterator[Case]:
    for path in sorted(HOSTS.glob("*.toml")):
        files = {"host.toml": path.read_bytes()}
        if path.stem == "everything":
            for policy in policies:
                yield Case(f"everything/{policy}", (_run("--policy", policy),), files)
            yield Case(
                "everything/all",
                (("check", "host.toml", "--json"), ("compare", "host.toml", "--json")),
                files,
                is_full=True,
            )
        else:
            steps = (("check", "host.toml", "--json"), _run())
            yield Case(f"features/{path.stem}", steps, files)


def _other_programs(base: Path) -> Iterator[Case]:
    for path in sorted((base / "fuzz" / "seeds" / "capture").glob("*.pcap*")):
        files = {path.name: path.read_bytes()}
        yield Case(f"voice/{path.suffix[1:]}", (("voice", path.name, "--json"),), files)
    agreements = {"file.toml": (base / "examples/bandwidth/agreements.toml").read_bytes()}
    words = (("laxity-bandwidth", "check", "file.toml", "--json"),)
    yield Case("bandwidth/check", words, agreements, is_full=True)
    for path in (base / "examples/site.toml", base / "examples/protect/site.toml"):
        name = path.relative_to(base / "examples").with_suffix("").as_posix().replace("/", "-")
        words = (("laxity-protect", "check", "file.toml", "--json"),)
        yield Case(f"protect/{name}", words, {"file.toml": path.read_bytes()}, is_full=True)


class Constant(TypedDict):
    """A value of an enumeration in a schema."""

    const: str


class Enumeration(TypedDict, total=False):
    """An enumeration in a schema."""

    enum: list[str]
    oneOf: list[Constant]


def _constants(schema: Enumeration) -> list[str]:
    """The values of an enumeration."""
    return list(schema.get("enum") or (one["const"] for one in schema["oneOf"]))


def _refuse_unless_covered(found: list[Case], policies: list[str], workloads: list[str]) -> None:
    quick = [case for case in found if not case.is_full]
    words = {word for case in quick for step in case.steps for word in step}
    texts = b"".join(content for case in quick for content in case.files.values()).decode(
        errors="replace"
    )
    missing = [policy for policy in policies if policy not in words]
    missing += [kind for kind in workloads if f'kind = "{kind}"' not in texts]
    missing += [paper for paper in PAPERS if paper not in words]
    if missing:
        sys.exit(f"error: no quick case has {', '.join(missing)}")


# Running them


def _said(checkout: Path, *words: str) -> str:
    command = [str(checkout / ".venv" / "bin" / "laxity"), *words]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return done.stdout


def carry_out(case: Case, checkout: Path, place: Path) -> None:
    """Runs a case's commands in `place`, which is made anew.

    Beside what they write stands a file a step with what it printed and its exit code.
    """
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir(parents=True)
    for name, content in case.files.items():
        (place / name).write_bytes(content)
    target = checkout / "target"
    paths = [checkout / ".venv" / "bin", target / "checked", target / "release"]
    environment = {
        **{name: value for name, value in os.environ.items() if name != "CARGO_TARGET_DIR"},
        "PATH": os.pathsep.join([*map(str, paths), os.environ["PATH"]]),
        "PYTHONDONTWRITEBYTECODE": "1",
        "COLUMNS": "100",
    }
    for number, words in enumerate(case.steps):
        is_ours = words[0].startswith("laxity-")
        command = words if is_ours else (str(checkout / ".venv" / "bin" / "laxity"), *words)
        done = subprocess.run(
            command, cwd=place, env=environment, capture_output=True, check=False, timeout=HANGS_S
        )
        said = place / f"step-{number}"
        said.with_suffix(".json").write_bytes(done.stdout)
        said.with_suffix(".code").write_text(f"{done.returncode}\n")
        said.with_suffix(".stderr").write_bytes(done.stderr)


def refusal(place: Path) -> str | None:
    """Why the results of a case show nothing; None if they do."""
    for code in sorted(place.glob("step-*.code")):
        if code.read_text().strip() not in {"0", "1"}:
            said = code.with_suffix(".stderr").read_text(errors="replace").strip()
            return f"{code.stem} ended with {code.read_text().strip()}: {said}"
    return None


def identity(checkout: Path) -> str:
    """A fingerprint of what a checkout's command line is made of."""
    digest = hashlib.sha256()
    files = [*checkout.glob(".venv/lib/python3*/site-packages/laxity*.dist-info/RECORD")]
    for directory in ("python", "reproduce", "target/checked", "target/release"):
        pattern = "laxity-*" if directory.startswith("target") else "**/*"
        files += [path for path in (checkout / directory).glob(pattern) if path.is_file()]
    for path in sorted(files):
        if "__pycache__" in path.parts:
            continue
        digest.update(f"{path.relative_to(checkout)}\n".encode())
        digest.update(path.read_bytes())
    return digest.hexdigest()[:16]


# Comparing


def differences(before: Path, after: Path) -> list[Difference]:
    """All between two directories."""
    names = [
        {path.relative_to(top).as_posix() for path in top.rglob("*") if path.is_file()}
        for top in (before, after)
    ]
    found = []
    for name in sorted(names[0] | names[1]):
        if name.endswith(".stderr"):
            continue
        if name not in names[0] or name not in names[1]:
            there = ("there", "missing")
            found.append(Difference(name, "", *(there if name in names[0] else there[::-1])))
        else:
            found += of_file(name, (before / name).read_bytes(), (after / name).read_bytes())
    return found


def of_file(name: str, before: bytes, after: bytes) -> list[Difference]:
    """All between two versions of a file."""
    if before == after:
        return []
    suffix = Path(name).suffix
    if suffix == ".json":
        return list(of_json(name, before, after))
    if suffix == ".md":
        return list(of_pages(name, before.decode(), after.decode()))
    if suffix == ".svg" and _without_text(before) == _without_text(after):
        return [Difference(name, "text in the figure", "", "", is_wording=True)]
    if suffix == ".code":
        return [Difference(name, "", before.decode().strip(), after.decode().strip())]
    return [
        Difference(
            name,
            f"from byte {_first_difference(before, after):,} on",
            f"{len(before):,} bytes",
            f"{len(after):,} bytes",
        )
    ]


def _first_difference(before: bytes, after: bytes) -> int:
    pairs = enumerate(zip(before, after, strict=False))
    return next((at for at, (a, b) in pairs if a != b), min(len(before), len(after)))


def of_json(name: str, before: bytes, after: bytes) -> Iterator[Difference]:
    """Value by value, the order of keys included."""
    try:
        values = json.loads(before), json.loads(after)
    except ValueError:
        if not (before and after):
            yield Difference(name, "", f"{len(before)} bytes", f"{len(after)} bytes")
        else:
            yield Difference(name, "is no JSON", _short(before.decode()), _short(after.decode()))
        return
    yield from _of_values(name, "", "", *values)


def _of_values(
    name: str,
    where: str,
    key: str,
    before: Any,  # noqa: ANN401 - JSON is anything
    after: Any,  # noqa: ANN401
) -> Iterator[Difference]:
    if isinstance(before, dict) and isinstance(after, dict):
        if list(before) != list(after):
            yield Difference(name, f"{where} keys", _short(list(before)), _short(list(after)))
        for inner in before.keys() & after.keys() - WALL:
            yield from _of_values(name, f"{where}.{inner}", inner, before[inner], after[inner])
    elif isinstance(before, list) and isinstance(after, list) and len(before) == len(after):
        for number, pair in enumerate(zip(before, after, strict=True)):
            yield from _of_values(name, f"{where}[{number}]", key, *pair)
    elif type(before) is not type(after) or before != after:
        is_wording = (
            isinstance(before, str)
            and isinstance(after, str)
            and (key in DOCUMENTATION or (key in WORDING and numbers(before) == numbers(after)))
        )
        yield Difference(name, where, _short(before), _short(after), is_wording)


_NUMBER = re.compile(r"\d[\d,]*(?:\.\d+)?")


def numbers(text: str) -> Counter[str]:
    """How often each number is in a text."""
    return Counter(_NUMBER.findall(text))


def of_pages(name: str, before: str, after: str) -> Iterator[Difference]:
    """Tables cell by cell, the rest as wording if it holds the same numbers."""
    tables = [
        [line for line in text.splitlines() if line.startswith("|")] for text in (before, after)
    ]
    if len(tables[0]) != len(tables[1]):
        old, new = (f"{len(table)} lines of tables" for table in tables)
        yield Difference(name, "", old, new)
        return
    for number, (old, new) in enumerate(zip(*tables, strict=True)):
        cells = [old.split("|"), new.split("|")]
        if len(cells[0]) != len(cells[1]):
            yield Difference(name, f"table line {number + 1}", old, new)
            continue
        for a, b in zip(*cells, strict=True):
            if a.strip() != b.strip():
                is_wording = numbers(a) == numbers(b)
                yield Difference(name, f"table line {number + 1}", a, b, is_wording)
    prose = [
        " ".join(
            word for line in text.splitlines() if not line.startswith("|") for word in line.split()
        )
        for text in (before, after)
    ]
    if prose[0] != prose[1]:
        counts = [numbers(text) for text in prose]
        if counts[0] == counts[1]:
            yield Difference(name, "prose", "", "", is_wording=True)
        else:
            gone, come = counts[0] - counts[1], counts[1] - counts[0]
            yield Difference(name, "numbers in prose", _short(list(gone)), _short(list(come)))


def _without_text(figure: bytes) -> bytes:
    """An SVG of Matplotlib's without its words, which are outlines of letters."""
    root = ET.fromstring(figure)  # noqa: S314 - our own figure
    for parent in list(root.iter()):
        for child in list(parent):
            if child.get("id", "").startswith("text_"):
                parent.remove(child)
    return ET.tostring(root)


SHOWN = 160


def _short(value: object) -> str:
    text = value if isinstance(value, str) else json.dumps(value)
    return text if len(text) <= SHOWN else text[: SHOWN - 1] + "…"


# The command


@dataclass(frozen=True)
class Verdict:
    """What came of a case."""

    case: Case
    differences: list[Difference]
    refusal: str | None
    """Why BASE shows nothing with it."""


def compare(case: Case, base: Path, here: Path, output: Path, known: Path | None = None) -> Verdict:
    """Runs a case in both checkouts, in BASE only if that was not done before.

    What BASE gives is kept in `known`, by default in the output.
    """
    kept = (known or output / "base") / identity_of(base) / case.name
    done = kept / "done"
    asked = repr((case.steps, sorted(case.files.items())))
    if not done.exists() or done.read_text() != asked:
        carry_out(case, base, kept)
        done.write_text(asked)
    why = refusal(kept)
    if why is not None:
        return Verdict(case, [], why)
    place = output / "here" / case.name
    carry_out(case, here, place)
    (place / "done").write_text(asked)
    found = differences(kept, place)
    if not found:
        shutil.rmtree(place)
    return Verdict(case, found, None)


_IDENTITIES: dict[Path, str] = {}


def identity_of(checkout: Path) -> str:
    """`identity`, looked at once."""
    if checkout not in _IDENTITIES:
        _IDENTITIES[checkout] = identity(checkout)
    return _IDENTITIES[checkout]


def main() -> int:
    """0 if nothing but wording differs."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("base", metavar="BASE", type=Path, help="a built checkout")
    parser.add_argument("names", metavar="PATTERN", nargs="*", help="only cases with such names")
    parser.add_argument("--full", action="store_true", help="the full form")
    parser.add_argument("--list", action="store_true", help="only list the cases")
    parser.add_argument("--here", type=Path, default=ROOT, help="the checkout to compare; this one")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="cases at a time")
    parser.add_argument("-o", "--output", type=Path, help="where both results go; out/same")
    parser.add_argument("--known", type=Path, help="where BASE's results are kept; in the output")
    arguments = parser.parse_intermixed_args()
    base, here = arguments.base.resolve(), arguments.here.resolve()
    for checkout in (base, here):
        if not (checkout / ".venv" / "bin" / "laxity").exists():
            parser.error(f"{checkout} has no .venv/bin/laxity; `make setup` there makes it")
    output: Path = (arguments.output or here / "out" / "same").resolve()
    chosen = [
        case
        for case in cases(base)
        if any(fnmatch.fnmatch(case.name, pattern) for pattern in arguments.names)
        or (not arguments.names and (arguments.full or not case.is_full))
    ]
    if not chosen:
        parser.error(f"no case has a name like {' or '.join(arguments.names)}")
    if arguments.list:
        for case in chosen:
            print(case.name)
            for words in case.steps:
                print("    " + " ".join(words))
        return 0
    identity_of(base)
    began_s = time.monotonic()
    known = arguments.known and arguments.known.resolve()
    with ThreadPoolExecutor(arguments.jobs) as pool:
        told = _told(pool.map(lambda case: compare(case, base, here, output, known), chosen))
        verdicts = list(told)
    return _conclude(verdicts, output, time.monotonic() - began_s)


def _told(verdicts: Iterable[Verdict]) -> Iterator[Verdict]:
    """Each as soon as it is known, if there is something to say."""
    for verdict in verdicts:
        results = [one for one in verdict.differences if not one.is_wording]
        if verdict.refusal is not None:
            print(f"BASE FAILS {verdict.case.name}: {verdict.refusal}", flush=True)
        elif results:
            print(f"DIFFERENT {verdict.case.name}: {len(results)} places, such as", flush=True)
            for one in results[:3]:
                print(f"  {one}", flush=True)
        yield verdict


def _conclude(verdicts: list[Verdict], output: Path, took_s: float) -> int:
    worded = [
        f"{verdict.case.name}: {one}"
        for verdict in verdicts
        for one in verdict.differences
        if one.is_wording
    ]
    output.mkdir(parents=True, exist_ok=True)
    (output / "wording.txt").write_text("".join(f"{line}\n" for line in dict.fromkeys(worded)))
    different = [
        verdict for verdict in verdicts if any(not one.is_wording for one in verdict.differences)
    ]
    refused = [verdict for verdict in verdicts if verdict.refusal is not None]
    same = len(verdicts) - len(different) - len(refused)
    print(
        f"{same} of {len(verdicts)} cases have the same results, in {took_s:.0f} s; "
        f"wording differs in {len(worded)} places ({output / 'wording.txt'})"
    )
    if different:
        print(f"{len(different)} cases differ; what this checkout gave is in {output / 'here'}")
    if refused:
        return 2
    return 1 if different else 0


if __name__ == "__main__":
    sys.exit(main())
