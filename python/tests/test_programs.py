"""The programs that are not Python: found, or built once, and given paths that hold everywhere."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest
from laxity import places, programs
from laxity.errors import InputError
from laxity.site import site as sites

CARGO = """\
#!/bin/sh
# Builds a program that says with what words and where it is called.
pwd >>"$CARGO_TARGET_DIR/built"
echo "   Compiling all of it" >&2
while [ "$1" != --target-dir ]; do shift; done
mkdir -p "$2/release"
printf '#!/bin/sh\\npwd; echo "$@"\\n' >"$2/release/laxity-bandwidth"
chmod +x "$2/release/laxity-bandwidth"
"""


@pytest.fixture
def no_programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A target directory in which nothing is built, and a cargo that is quick; gives its log."""
    tools, target = tmp_path / "tools", tmp_path / "target"
    tools.mkdir()
    target.mkdir()
    cargo = tools / "cargo"
    cargo.write_text(CARGO)
    cargo.chmod(cargo.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("PATH", f"{tools}{os.pathsep}/usr/bin{os.pathsep}/bin")
    monkeypatch.setenv("CARGO_TARGET_DIR", str(target))
    return target / "built"


def called(directory: Path, *words: str) -> subprocess.CompletedProcess[str]:
    main = [sys.executable, "-c", "from laxity.cli import main; main()", "bandwidth", *words]
    return subprocess.run(main, capture_output=True, text=True, check=False, cwd=directory)


def test_a_program_is_built_when_it_is_first_called(no_programs: Path, tmp_path: Path) -> None:
    first = called(tmp_path, "check", "--some", "words")
    assert first.returncode == 0, first.stderr
    assert first.stderr.splitlines() == [
        "building laxity-bandwidth, which happens once and takes some minutes",
        "   Compiling all of it",
    ]
    second = called(tmp_path, "check", "--some", "words")
    assert (second.returncode, second.stderr) == (0, "")
    # Cargo runs in the checkout; the program itself where the user is.
    assert no_programs.read_text().split() == [str(places.CHECKOUT)]
    assert first.stdout == second.stdout == f"{tmp_path}\ncheck --some words\n"


@pytest.mark.parametrize(
    ("text", "said"),
    [(None, "there is no file"), ("[link\n", "no TOML file"), ("\0", "no TOML file")],
)
def test_nothing_is_built_for_a_file_that_is_wrong(
    text: str | None, said: str, no_programs: Path, tmp_path: Path
) -> None:
    if text is not None:
        (tmp_path / "agreements.toml").write_text(text)
    done = called(tmp_path, "run", "agreements.toml")
    assert done.returncode == 2
    assert said in done.stderr
    assert not no_programs.exists()
    with pytest.raises(InputError, match=said):
        sites.read(tmp_path / "agreements.toml")
    assert not no_programs.exists()


def test_outside_of_a_checkout_nothing_is_built(
    no_programs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(places, "CHECKOUT", None)
    with pytest.raises(InputError, match="Debian package laxity-bandwidth"):
        programs.find("laxity-bandwidth")
    assert not no_programs.exists()


DESCRIPTION = """\
#!/bin/sh
echo '{"xen_domains": [], "domain": null, "tls": null, "hosts": [], "balancers": [], "vms": [],
"keys": "/k", "appliances": "/a"}'
"""


def test_a_site_file_is_found_from_everywhere(
    no_programs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A site's daemons run in directories of their own, and so do programs of a relative PATH."""
    protect = no_programs.parents[1] / "tools" / "laxity-protect"
    protect.write_text(DESCRIPTION)
    protect.chmod(protect.stat().st_mode | stat.S_IXUSR)
    (tmp_path / "site.toml").touch()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", f"tools{os.pathsep}/usr/bin{os.pathsep}/bin")
    assert programs.built("laxity-protect") == protect
    assert sites.read(Path("site.toml")).path == tmp_path / "site.toml"
