"""What `make dist` has made works in a bare Debian 12: no checkout, no compiler, nothing else."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

pytestmark = pytest.mark.dist

CHECKOUT = Path(__file__).parents[2]
DIST = CHECKOUT / "out" / "dist"
ROOT = CHECKOUT / "out" / "debian-12.tar"
"""The bare system, made once: the smallest of Debian, and what a virtual environment needs."""

UNITS = {
    "laxity-bandwidth": ["laxity-bandwidth.service"],
    "laxity-media": [],
    "laxity-protect": ["laxity-protect.service", "laxity-protect-xen.service"],
}
"""The Debian packages, and the units of each."""


@dataclass(frozen=True)
class Debian:
    """A system of its own below a directory."""

    root: Path

    def run(self, *words: str, code: int = 0) -> subprocess.CompletedProcess[str]:
        """Runs a program there, with processes of its own."""
        inside = ["unshare", "--mount", "--pid", "--fork", f"--root={self.root}", "--mount-proc"]
        path = "PATH=/usr/sbin:/usr/bin:/sbin:/bin"
        done = subprocess.run(
            [*inside, "env", "-i", path, "HOME=/root", "LC_ALL=C.UTF-8", *words],
            capture_output=True,
            text=True,
            check=False,
            cwd="/",
        )
        assert done.returncode == code, f"{words}: {done.stdout}{done.stderr}"
        return done

    def lint_pages(self, directory: str, *, at_least: int) -> None:
        """Sees to it that mandoc has nothing to say against any page of the manual."""
        lint = program("mandoc")
        pages = sorted((self.root / directory).glob("laxity*.1*"))
        assert len(pages) >= at_least
        for page in pages:
            done = subprocess.run(
                [lint, "-T", "lint", "-W", "error", page], capture_output=True, check=False
            )
            assert done.returncode == 0, done.stdout


def program(name: str) -> str:
    found = shutil.which(name)
    if found is None:
        pytest.skip(f"there is no {name}")
    return found


def unpack(archive: Path, packages: str, root: Path) -> Debian:
    """Makes the system below `root`, of an archive that is made once."""
    if os.geteuid() != 0:
        pytest.skip("a system of its own needs root")
    if not archive.exists():
        new = archive.with_suffix(".new.tar")
        archive.parent.mkdir(parents=True, exist_ok=True)
        words = ["--quiet", "--variant=minbase", f"--include={packages}"]
        subprocess.run([program("mmdebstrap"), *words, "bookworm", new], check=True)
        new.rename(archive)
    root.mkdir()
    subprocess.run([program("tar"), "-xf", archive, "-C", root], check=True)
    return Debian(root)


@pytest.fixture
def debian(tmp_path: Path) -> Debian:
    return unpack(ROOT, "python3-venv", tmp_path / "root")


def sources(name: str) -> set[str]:
    """The files of a directory of the checkout, but for those that a wheel has no use for.

    These are tests, and the models of schedulers, which only the simulator has.
    """
    words = [program("git"), "-C", CHECKOUT / name, "ls-files"]
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    useless = ("test/", "models/", "Makefile")
    return {each for each in done.stdout.split() if not each.startswith(useless)}


def test_the_wheel(debian: Debian) -> None:
    (wheel,) = DIST.glob("laxity-*.whl")
    (papers,) = DIST.glob("laxity_reproduce-*.whl")
    wheels = debian.root / "wheels"
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--only-binary=:all:"]
    subprocess.run([*command, f"--dest={wheels}", wheel], check=True)
    shutil.copy(papers, wheels)
    shutil.copy(CHECKOUT / "examples/integrator.toml", debian.root)
    debian.run("python3", "-m", "venv", "/opt/laxity")
    pip = ("/opt/laxity/bin/pip", "install", "--quiet", "--no-index", "--find-links=/wheels")
    debian.run(*pip, "laxity")
    laxity = "/opt/laxity/bin/laxity"

    assert "guaranteed" in debian.run(laxity, "check", "/integrator.toml").stdout
    debian.run(laxity, "run", "/integrator.toml", "-o", "/out")
    assert (debian.root / "out/trace.laxtrace").stat().st_size > 0
    for words, help in (
        (("report", "/out"), "pip install 'laxity[plots]'"),
        (("reproduce", "rt-xen"), "pip install 'laxity[reproduce]'"),
        (("bandwidth", "--help"), "install Laxity's Debian package laxity-bandwidth"),
    ):
        assert help in debian.run(laxity, *words, code=2).stderr
    # The lab says what it lacks: nothing is there that could build a hypervisor.
    said = debian.run(laxity, "lab", "build", code=3).stderr
    assert "apt-get install gcc make flex" in said

    (package,) = (debian.root / "opt/laxity/lib").glob("python3*/site-packages/laxity")
    for name in ("policy", "xen", "kvm", "guest"):
        there = package / "sources" / name
        # pip compiles what is Python, too.
        files = (path for path in there.rglob("*") if path.is_file() and path.suffix != ".pyc")
        found = {str(path.relative_to(there)) for path in files}
        assert found == sources(name)
    debian.lint_pages("opt/laxity/share/man/man1", at_least=20)
    debian.run("bash", "-n", "/opt/laxity/share/bash-completion/completions/laxity")

    debian.run(*pip, "--no-deps", "laxity-reproduce")
    assert "PAPER" in debian.run(laxity, "reproduce", "--help").stdout


@pytest.mark.parametrize("name", UNITS)
def test_a_debian_package(name: str, debian: Debian) -> None:
    (package,) = DIST.glob(f"{name}_*.deb")
    shutil.copy(package, debian.root / "package.deb")
    debian.run("dpkg", "--install", "/package.deb")
    assert debian.run(name, "--version").stdout.startswith(f"{name} ")
    _one_job(name, debian)

    debian.lint_pages("usr/share/man/man1", at_least=4)
    debian.run("bash", "-n", f"/usr/share/bash-completion/completions/{name}")
    for shell, script in {
        "zsh": f"zsh/vendor-completions/_{name}",
        "fish": f"fish/vendor_completions.d/{name}.fish",
    }.items():
        path = debian.root / "usr/share" / script
        assert path.is_file()
        if found := shutil.which(shell):
            subprocess.run([found, "-n", path], check=True)

    for unit in UNITS[name]:
        assert (debian.root / "usr/lib/systemd/system" / unit).is_file()
        # Installed, and not begun: what it reads is to be written first.
        assert not list((debian.root / "etc/systemd/system").rglob(unit))
        words = ["verify", "--man=no", "--recursive-errors=no", f"--root={debian.root}", unit]
        verified = subprocess.run(
            [program("systemd-analyze"), *words], capture_output=True, text=True, check=False
        )
        assert verified.returncode == 0, verified.stderr
        assert unit not in verified.stderr
    debian.run("dpkg", "--remove", name)
    assert not (debian.root / "usr/bin" / name).exists()


def _one_job(name: str, debian: Debian) -> None:
    examples = f"/usr/share/doc/{name}/examples"
    if name == "laxity-bandwidth":
        shown = debian.run(name, "check", f"{examples}/agreements.toml").stdout
        assert "eth0 carries 1 Gbit/s" in shown
    elif name == "laxity-protect":
        shown = debian.run(name, "check", f"{examples}/site.toml").stdout
        assert "signalling: starts on north" in shown
    else:
        words = ("loop", "--streams", "10", "--duration", "1 s", "--json")
        report = json.loads(debian.run(name, *words).stdout)
        assert report["load"]["sent"] == report["load"]["due"]
        assert report["sink"]["received"] > 0
