"""What a failure of a Xen host is said to have done, from what was seen; and the lab's part."""

from __future__ import annotations

import json
import subprocess
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from laxity import programs
from laxity.lab import failover, image, remus
from laxity.lab.errors import LabError
from laxity.lab.failover import Frame, Progress, Story, measure

if TYPE_CHECKING:
    from pathlib import Path

CUT_S = 140.0
EPOCH = 10
"""Numbers in an epoch, of a second."""


def story(held: bool = True, checkpoint: int = 30) -> Story:
    """A guest that says a number each 0.1 s and is protected from 100 s on, a checkpoint a second.

    Each takes 0.2 s. Its clock began 50 s before. The host fails half an epoch behind checkpoint
    139; the other one has `checkpoint` less or more than that many seconds' worth of numbers.
    """
    before = []
    for number in range(1, 1396):
        said_s = number / EPOCH
        is_first = number % EPOCH == 0
        waits_s = (1.0 - said_s % 1.0) if held and said_s >= 100 else 0.0
        if said_s + waits_s < CUT_S:
            stood_still_s = 0.2 if said_s >= 100 and is_first else 0.01
            before.append(Frame(said_s + waits_s, number, said_s + 50, stood_still_s))
    first = checkpoint * EPOCH + 1
    after = [Frame(160 + k / EPOCH, first + k, 7.0 + k / EPOCH, 0.01) for k in range(50)]
    return Story(
        before,
        after,
        copying_s=90.0,
        armed=[Progress(100.0 + k, 2 + k, 1_000_000 + 2048 * k) for k in range(40)],
        cut_s=CUT_S,
        detected_s=155.0,
        running_s=158.0,
    )


def test_what_was_held_is_not_undone() -> None:
    done = measure(story(held=True, checkpoint=140))
    assert (done.last, done.first) == (1389, 1401)
    assert (done.undone, done.unheard) == (0, 11)
    assert (done.copy_s, done.epoch_s, done.checkpoint, done.checkpoint_bytes) == (10, 1, 41, 2048)
    assert (done.detection_s, done.running_s, done.silence_s) == (15, 18, 20)
    assert (done.pause_p50_s, done.pause_max_s) == (0.2, 0.2)
    assert done.delay_max_s == pytest.approx(1.0, abs=1e-6)
    assert 0.4 < done.delay_p50_s < 0.7


def test_what_left_at_once_is_undone() -> None:
    done = measure(story(held=False, checkpoint=139))
    assert (done.last, done.first, done.undone, done.unheard) == (1395, 1391, 5, 0)
    assert done.delay_max_s == pytest.approx(0, abs=1e-6)


def test_one_number_said_again_is_told() -> None:
    seen = story(held=True, checkpoint=140)
    last = max(frame.number for frame in seen.before)
    seen.after = [replace(frame, number=frame.number - 1401 + last) for frame in seen.after]
    assert measure(seen).undone == 1


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"before": []}, "0 numbers were heard from the first host"),
        ({"after": []}, "and 0 from the second"),
        ({"after": story().after[:5]}, "only 5 numbers"),
        ({"after": [*story().after, story().after[3]]}, "does not count as it should"),
        ({"cut_s": 157.0}, "took over while the first one was there"),
        ({"cut_s": 165.0, "detected_s": 166.0}, "took over while the first one was there"),
        ({"running_s": None}, "have not said"),
        ({"armed": story().armed[:1]}, "too few checkpoints"),
    ],
)
def test_a_story_that_shows_nothing_is_refused(change: dict[str, object], complaint: str) -> None:
    with pytest.raises(LabError, match=complaint):
        measure(replace(story(), **change))  # type: ignore[arg-type]


def test_a_frame_of_the_guest_is_found_in_whatever_is_heard() -> None:
    said = failover.SAID.pack(failover.MAGIC, 7, 1_500_000_000, 20_000_000)
    assert failover.parse(3.0, b"\xff" * 42 + said) == Frame(3.0, 7, 1.5, 0.02)
    assert failover.parse(3.0, b"\xff" * 60) is None
    assert failover.parse(3.0, (b"\xff" * 42 + said)[:-1]) is None


def test_what_the_daemon_tells_is_what_is_read_of_it() -> None:
    vm = {"name": "counter", "state": "armed", "notice": "x", "term": 1, "checkpoint": 12}
    vm |= {"connected": True, "checkpoints": 9, "bytes": 123, "pages": 0, "last_bytes": 5}
    line = json.dumps({"host": "south", "vms": [vm]}, separators=(",", ":"))
    done = subprocess.run(
        ["sed", remus.SHORTEN],  # noqa: S607
        input=line,
        capture_output=True,
        text=True,
        check=True,
    )
    assert remus.STATUS.match(done.stdout)
    assert done.stdout == "status armed 12 123"


def test_the_sites_of_both_modes_are_accepted(tmp_path: Path) -> None:
    protect = programs.built("laxity-protect")
    if protect is None:
        pytest.skip("laxity-protect is not built")
    for mode, settings in remus.OF_MODE.items():
        site = tmp_path / f"{mode}.toml"
        site.write_text(remus.SITE + settings)
        done = subprocess.run([protect, "check", site], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        assert f"{mode}: output " in done.stdout


@pytest.mark.xen
def test_the_patches_of_libxl_fit_what_debian_has() -> None:
    """`make remus`, which builds it, takes too long for every run of the tests."""
    tree = image.CACHE / "source/tree"
    if not tree.is_dir():
        pytest.skip("the source of Xen is not there: xen/build.sh fetches it")
    for patch in sorted((image.XEN / "libxl").glob("*.patch")):
        done = subprocess.run(
            ["patch", "--dry-run", "--directory", tree, "-p1", "--input", patch],  # noqa: S607
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stdout
        assert "offset" not in done.stdout, "it is of another version"
