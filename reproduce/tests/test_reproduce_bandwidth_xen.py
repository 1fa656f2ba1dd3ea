"""The paper's bandwidths on real Xen: what dom0 is told, and what is made of what it leaves."""

from __future__ import annotations

import json
import subprocess
from typing import TYPE_CHECKING

import pytest
from laxity import programs
from laxity_reproduce.bandwidth import on_xen

if TYPE_CHECKING:
    from pathlib import Path

FRAME_BITS = (on_xen.PAYLOAD_BYTES + 42) * 8


def test_the_plan_is_shell_and_its_agreements_are_good(tmp_path: Path) -> None:
    files = on_xen._plan()
    assert sorted(files) == [
        "agreements.toml",
        *(f"laxity-vm{n}.cfg" for n in (1, 2, 3)),
        "plan.sh",
    ]
    subprocess.run(["/bin/sh", "-n"], input=files["plan.sh"], text=True, check=True)
    # 300 s and 800 Mbit/s of the paper.
    assert "3.000000:0 6.666667:16000000 2.666667:4000000" in files["plan.sh"]
    assert f"window held 20000000000 0x{on_xen.EVENTS:x} 3\n" in files["plan.sh"]
    path = tmp_path / "agreements.toml"
    path.write_text(files["agreements.toml"])
    program = programs.built("laxity-bandwidth")
    if program is None:
        pytest.skip("laxity-bandwidth is not built")
    done = subprocess.run([program, "check", path], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "6 Mbit/s" in done.stdout


@pytest.fixture
def results(tmp_path: Path) -> Path:
    """VM 1 is held to three quarters of what it offers, the others to half."""
    for run, parts in (("native", (1, 1, 1)), ("held", (0.75, 0.5, 0.5))):
        directory = tmp_path / run
        directory.mkdir()
        (directory / "dom0").write_text("3.0\n" + ("9.0\n" if run == "native" else "6.0\n"))
        lines = []
        for tick in range(231):
            packets = [round(max(0, tick - 30) * 100 * part) for part in parts]
            octets = [count * FRAME_BITS // 8 for count in packets]
            lines.append(" ".join(map(str, [tick / 10, *octets, *packets])))
        (directory / "received").write_text("\n".join(lines) + "\n99.0 1")
        for number, part in enumerate(parts, start=1):
            refused = round(20_000 * (1 - part))
            said = {"sent": 20_000 - refused, "refused": refused}
            said |= {"sent_ns": 1, "refused_ns": 5000 * refused}
            text = f"laxity-output {run}\n{json.dumps(said)}\nlaxity-output-end {run}\n"
            (directory / f"laxity-vm{number}.output").write_text(text)
    return tmp_path


def test_what_dom0_leaves_becomes_a_figure(results: Path) -> None:
    outcomes = {run: on_xen._outcome(results, run) for run in on_xen.RUNS}
    held = outcomes["held"]
    assert held.class_1_loss_percent == pytest.approx(25)
    assert (held.offered, held.refused) == ([20_000] * 3, [5_000, 10_000, 10_000])
    assert held.refused_us == pytest.approx(5)
    rate = held.mbit_s[(held.mbit_s.line == "VM 1") & (held.mbit_s.at_s > 10)].delivered_mbit_s
    # 1,000 packets a second, of which three quarters pass, fifty times.
    assert rate.mean() == pytest.approx(0.75 * 1000 * FRAME_BITS * 50 / 1e6, rel=0.01)
    assert held.mbit_s.at_s.between(0, 300).all()
    experiment = on_xen.throughput(outcomes)
    loss, cheaper = experiment.rows
    assert (loss.ours, loss.verdict) == (25.0, "differs")
    assert "128 KiB" in loss.why
    assert (cheaper.ours, cheaper.verdict) == ([5.0, 100.0], "reproduced")
    assert experiment.draw is not None
    assert len(experiment.draw(experiment.data).axes) == 2
