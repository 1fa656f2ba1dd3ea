"""Measures the timeline of a report of ten million trace records, in Chromium without a window.

    python -m bench.timeline [RECORDS]

It prints how large the page is, when the timeline has been drawn, counted from the beginning of the
navigation, and how many frames a second it draws while it is scrolled through, at four widths of
its window. It needs the Debian packages chromium and chromium-driver.
"""

from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path

import laxity
from laxity import report, tracefile

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "python" / "tests"))

from browser import Browser, browser, is_there  # noqa: E402 - it stands with the tests

RECORDS = 10_000_000
OPEN_S_MAX, FRAMES_MIN, PAGE_BYTES_MAX = 2, 30, 15_000_000
"""What is asked of ten million records."""

SAMPLE_S = 20
"""Simulated time that shows how many records a second of the host has."""

FRAMES = 150
"""Frames of one measurement."""

OPENS = 5
"""The page is opened so often; the slowest time counts."""

WIDTH, HEIGHT = 1100, 900
"""The window, in pixels."""

HOST = """\
seed = 1
[host]
cpus = 4
policy = "deferrable"
costs = "emsoft-2011"
[draw]
load = 0.8
"""
DOMAIN = """\
[[domain]]
name = "domain-{}"
budget = "{} ms"
period = "10 ms"
tasks = "drawn"
"""
BUDGETS_MS = (2, 3, 4, 5, 6, 3, 4, 5)


def run_of(directory: Path, records: int) -> int:
    """Runs the host for as long as gives that many records; returns how many there are."""
    text = HOST + "".join(DOMAIN.format(at, ms) for at, ms in enumerate(BUDGETS_MS))
    host = laxity.Host.parse(text)
    sample = directory.parent / "sample"
    host.run(duration=f"{SAMPLE_S} s", trace=sample)
    duration_s = SAMPLE_S * records / len(tracefile.records(sample))
    host.run(duration=f"{duration_s * 1.01:.0f} s", trace=directory.parent / "trace").save(
        directory
    )
    return len(tracefile.records(directory / "trace.laxtrace"))


def opened_s(window: Browser, page: Path) -> float:
    """Opens the page; seconds until its timeline has been drawn exactly, in steps of 20 ms."""
    window.open(page)
    window.wait("document.querySelector('.timeline').dataset.level === 'exact'")
    drawn_ms: float = window.run("return document.querySelector('.timeline').drawnMs")
    return drawn_ms / 1e3


def frames_s(window: Browser, part: float) -> float:
    """Frames a second, while a window of a part of the run moves by 1 % of itself in each."""
    script = """new Promise((done) => {
        const root = document.querySelector('.timeline');
        const width = {duration} * {part};
        let at = ({duration} - width) / 3;
        let left = {frames};
        let first = 0;
        const step = (now) => {
            first ||= now;
            if (!left--) return done(({frames}) / ((now - first) / 1e3));
            at = (at + width / 100) % Math.max(1, {duration} - width);
            root.show(at, at + width);
            requestAnimationFrame(step);
        };
        requestAnimationFrame(step);
    })"""
    duration = (
        "Number(JSON.parse(document.querySelector('#timeline-data').textContent).duration_ns)"
    )
    script = script.replace("{frames}", str(FRAMES)).replace("{part}", str(part))
    window.run(f"window.durationNs = {duration}")
    answer: float = window.run_async(script.replace("{duration}", "window.durationNs"))
    return answer


def main() -> int:
    """Prints the figures."""
    if not is_there():
        print("there is no Chromium (Debian packages chromium, chromium-driver)", file=sys.stderr)
        return 2
    wanted = int(sys.argv[1]) if len(sys.argv) > 1 else RECORDS
    with tempfile.TemporaryDirectory(prefix="timeline.") as temporary:
        directory = Path(temporary) / "run"
        records = run_of(directory, wanted)
        begin = time.monotonic()
        page = report.write(directory)
        report_s = time.monotonic() - begin
        with browser() as window:
            window.size(WIDTH, HEIGHT)
            opened = [opened_s(window, page) for _ in range(OPENS)]
            frames = {part: frames_s(window, part) for part in (1, 0.1, 0.01, 1e-6)}
            size = page.stat().st_size
    print(f"{records:,} records; the report took {report_s:.1f} s")
    print(f"page            {size / 1e6:6.1f} MB   below {PAGE_BYTES_MAX / 1e6:.0f} is asked")
    print(
        f"drawn after     {max(opened):6.2f} s    below {OPEN_S_MAX} is asked, slowest of {OPENS}"
    )
    for part, rate in frames.items():
        print(f"scrolled, 1/{1 / part:<9,.0f}{rate:4.0f} frames a second, {FRAMES_MIN} is asked")
    return 0


if __name__ == "__main__":
    sys.exit(main())
