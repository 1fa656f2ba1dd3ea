"""What the kernel tells of calls of its functions."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from laxity.lab.errors import LabError
from laxity.substrates.kvm import profile

if TYPE_CHECKING:
    from pathlib import Path

TOLD = """\
# tracer: function_graph
#
# CPU  DURATION                  FUNCTION CALLS
# |     |   |                     |   |   |   |
 0)   1.514 us    |  pick_task_idle();
 0)               |  pick_task_scx() {
 0) ==========>   |
 0)   3.000 us    |    enqueue_task_scx();
 0) <==========   |
 0) + 12.250 us   |  } /* pick_task_scx */
 ------------------------------------------
 0)    <idle>-0    =>   laxity-116
 ------------------------------------------

 0)   2.002 us    |  } /* pick_task_scx ret=0xffff8880 */
 0) ! 101.500 us  |  pick_task_scx();
"""


def test_calls_are_read_with_others_in_them_and_without(tmp_path: Path) -> None:
    file = tmp_path / "profile"
    file.write_text(TOLD)
    assert profile.read(file) == {
        "pick_task_idle": [1514],
        "enqueue_task_scx": [3000],
        "pick_task_scx": [12250, 2002, 101500],
    }


def test_a_profile_of_nothing_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "profile"
    with pytest.raises(LabError, match="the host left no profile"):
        profile.read(file)
    file.write_text("# tracer: nop\n")
    with pytest.raises(LabError, match="no call of a profiled function"):
        profile.read(file)
