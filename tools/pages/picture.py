"""Writes the picture of a report that README and the site show, for light and for dark readers.

    python tools/pages/picture.py

Chromium draws the report of `examples/overload.toml`, as it is, without a window.
"""

from __future__ import annotations

import io
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from PIL import Image

ROOT = Path(__file__).parents[2]
PICTURES = ROOT / "docs" / "images"
HOST = ROOT / "examples" / "overload.toml"

WIDTH, HEIGHT = 1100, 1140
"""Size of the part of the page that is shown, in pixels: the verdict, the domains, the timeline."""

SCHEMES = {"dark": 0, "light": 1}
"""Chromium's numbers of the colour schemes that a reader prefers."""


def main() -> int:
    """Writes both pictures."""
    chromium = shutil.which("chromium")
    if chromium is None:
        print("there is no Chromium (Debian package chromium)", file=sys.stderr)
        return 2
    with tempfile.TemporaryDirectory() as temporary:
        directory = Path(temporary)
        laxity = [Path(sys.executable).with_name("laxity")]
        subprocess.run([*laxity, "run", HOST, "--duration", "5 s", "-o", directory], check=True)
        subprocess.run([*laxity, "report", directory], check=True)
        for scheme, number in SCHEMES.items():
            shot = directory / "shot.png"
            subprocess.run(
                [
                    *(chromium, "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars"),
                    f"--blink-settings=preferredColorScheme={number}",
                    f"--window-size={WIDTH},{HEIGHT}",
                    # The timeline is decoded before it is drawn.
                    "--virtual-time-budget=5000",
                    f"--screenshot={shot}",
                    (directory / "report.html").as_uri(),
                ],
                check=True,
            )
            written = io.BytesIO()
            Image.open(shot).convert("RGB").save(written, "WEBP", quality=80, method=6)
            (PICTURES / f"report-{scheme}.webp").write_bytes(written.getvalue())
    return 0


if __name__ == "__main__":
    sys.exit(main())
