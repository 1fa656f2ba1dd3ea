"""Holds the packages that the product uses to the licences and sources of `deny.toml`, offline.

    tools/check/dependencies.py [--directory DIRECTORY]

Rust packages are those of the lock file; Python packages are those that `laxity` and its extras
need, as installed in this environment. One line for each package that breaks a rule; the exit code
is 1 if there are any, else 0.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import tomllib
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING

from license_expression import LicenseSymbol, LicenseWithExceptionSymbol, get_spdx_licensing

if TYPE_CHECKING:
    from collections.abc import Iterator

# Names in the classifiers, or in the texts, of packages that state no SPDX expression.
CLASSIFIERS = {
    "3-Clause BSD License": "BSD-3-Clause",
    "Apache Software License": "Apache-2.0",
    "BSD": "BSD-3-Clause",
    "BSD License": "BSD-3-Clause",
    "ISC License (ISCL)": "ISC",
    "MIT License": "MIT",
    "Python Software Foundation License": "PSF-2.0",
}
LICENSING = get_spdx_licensing()


OURS = ("laxity", "laxity-reproduce")
"""The project's own packages. The wheel contains Xen's schedulers, under Xen's licence."""


def is_allowed(expression: str, allowed: set[str]) -> bool:
    """Whether a use of a package under an SPDX expression needs none but the allowed licences."""
    # crates.io's older form of OR.
    parsed = LICENSING.parse(expression.replace("/", " OR "))
    verdicts = {
        symbol: LICENSING.TRUE if str(symbol) in allowed else LICENSING.FALSE
        for symbol in parsed.symbols
        if isinstance(symbol, LicenseSymbol | LicenseWithExceptionSymbol)
    }
    return bool(parsed.subs(verdicts, simplify=True) == LICENSING.TRUE)


def rust_violations(directory: Path, rules: dict[str, dict[str, list[str]]]) -> Iterator[str]:
    """One line for each Rust package that breaks a rule."""
    words = ["cargo", "metadata", "--format-version", "1", "--locked", "--quiet"]
    text = subprocess.run(words, check=True, capture_output=True, cwd=directory).stdout
    allowed = set(rules["licenses"]["allow"])
    registries = {f"registry+{url}" for url in rules["sources"]["allow-registry"]}
    for package in json.loads(text)["packages"]:
        name = f"{package['name']} {package['version']}"
        if package["source"] is None:
            continue
        if package["source"] not in registries:
            yield f"{name} comes from {package['source']}"
        if not is_allowed(package["license"] or "NONE", allowed):
            yield f"{name} is under {package['license']}"


def python_packages(name: str, extras: set[str], seen: dict[str, str]) -> None:
    """Adds the packages that `name` with these extras needs to `seen`, with their licences."""
    for requirement in metadata.requires(name) or []:
        needed, _, marker = requirement.partition(";")
        extra = re.search(r"extra == ['\"]([^'\"]+)['\"]", marker)
        if extra and extra[1] not in extras:
            continue
        package = re.split(r"[^A-Za-z0-9._-]", needed.strip(), maxsplit=1)[0].lower()
        try:
            about = metadata.metadata(package)
        except metadata.PackageNotFoundError:
            continue  # for another platform
        if package in seen:
            continue
        stated = next(iter(about.get_all("License-Expression") or []), "")
        names = [each.rpartition(" :: ")[2] for each in about.get_all("Classifier") or []]
        by_name = [CLASSIFIERS[each] for each in names if each in CLASSIFIERS]
        text = next(iter(about.get_all("License") or []), "NONE")
        seen[package] = stated or " AND ".join(by_name) or CLASSIFIERS.get(text, text)
        python_packages(package, set(), seen)


def python_violations(rules: dict[str, dict[str, list[str]]]) -> Iterator[str]:
    """One line for each Python package that breaks a rule."""
    seen: dict[str, str] = {}
    extras = set(metadata.metadata("laxity").get_all("Provides-Extra") or [])
    python_packages("laxity", extras, seen)
    allowed = set(rules["licenses"]["allow"])
    for package, licence in sorted(seen.items()):
        if package in OURS:
            continue
        try:
            fits = is_allowed(licence, allowed)
        except Exception:  # noqa: BLE001 - a text that is no SPDX expression
            fits = False
        if not fits:
            yield f"{package} is under {licence.splitlines()[0]}"


def main(words: list[str]) -> int:
    """0 if every package keeps the rules."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--directory", type=Path, default=Path())
    directory = parser.parse_args(words).directory
    rules = tomllib.loads((directory / "deny.toml").read_text())
    found = [*rust_violations(directory, rules), *python_violations(rules)]
    for line in found:
        print(f"error: {line}, which deny.toml does not allow", file=sys.stderr)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
