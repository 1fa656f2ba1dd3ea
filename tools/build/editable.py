"""Installs the package as it stands in the checkout, with an extension module that is built.

    tools/build/editable.py LIBRARY EXTRA[,EXTRA...]

`maturin develop` has cargo build the extension for itself, with the features that it alone needs,
and so all crates below it once more. Here LIBRARY, which cargo has built beside everything else,
becomes the extension; the package's metadata are maturin's, and what the package and its extras
need is installed by pip.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
EXTENSION = ROOT / "python/laxity/_core.abi3.so"


def wheel(into: Path) -> Path:
    """A wheel that has the package's metadata, and the path of its sources."""
    files = into / "files"
    files.mkdir()
    maturin = [str(Path(sys.executable).with_name("maturin")), "pep517", "write-dist-info"]
    where = ["--metadata-directory", str(files), "--interpreter", sys.executable]
    subprocess.run([*maturin, *where], cwd=ROOT, check=True, capture_output=True)
    (about,) = files.glob("*.dist-info")
    (files / "laxity.pth").write_text(f"{ROOT / 'python'}\n", "utf-8")
    names = sorted(str(path.relative_to(files)) for path in files.rglob("*") if path.is_file())
    record = f"{about.name}/RECORD"
    # pip needs the list, and not the hashes that it may have.
    (files / record).write_text("".join(f"{name},,\n" for name in [*names, record]), "utf-8")
    (tag,) = (
        line.removeprefix("Tag: ")
        for line in (about / "WHEEL").read_text("utf-8").splitlines()
        if line.startswith("Tag: ")
    )
    made = into / f"{about.name.removesuffix('.dist-info')}-{tag}.whl"
    with zipfile.ZipFile(made, "w") as archive:
        for name in [*names, record]:
            archive.write(files / name, name)
    return made


def main(library: Path, extras: str) -> None:
    """Installs the extension and the package."""
    new = EXTENSION.with_suffix(".new")
    shutil.copy(library, new)
    new.replace(EXTENSION)  # a process that has the old one goes on with it
    pip = [sys.executable, "-m", "pip", "install", "--quiet"]
    with tempfile.TemporaryDirectory(prefix="laxity.") as temporary:
        made = wheel(Path(temporary))
        subprocess.run([*pip, "--force-reinstall", "--no-deps", made], check=True)
        subprocess.run([*pip, f"laxity[{extras}] @ {made.as_uri()}"], check=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
