"""The real hypervisor in the emulated machine, as people call it. Minutes, not seconds."""

from __future__ import annotations

import json
import shutil
import tempfile
from typing import TYPE_CHECKING, Any

import pytest
from conftest import EXAMPLES, Laxity
from laxity.lab import image, machine, xen_machine

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [
    pytest.mark.xen,
    pytest.mark.skipif(shutil.which(machine.QEMU) is None, reason=f"there is no {machine.QEMU}"),
    pytest.mark.skipif(
        not (image.CACHE / "hypervisor/release/xen").is_file(),
        reason="the hypervisor has not been built: xen/build.sh release",
    ),
]


def test_a_run_repeats_to_the_byte(laxity: Laxity, tmp_path: Path) -> None:
    """And is what the simulator says it is: control and logging keep what they own. It lasts longer
    than an idle kernel sleeps, so that dom0 would be seen if it were not kept still.
    """
    out, seconds = tmp_path / "out", 5
    words = ("run", EXAMPLES / "overload.toml", "--on", "xen", "--duration", f"{seconds} s")
    done = laxity(*words, "--check-determinism", "-o", out, "--json")
    assert "Deterministic: two runs, the same result" in done.stderr
    assert "laxity-control is ready" in done.stderr
    result: dict[str, Any] = json.loads(done.stdout)
    assert (result["substrate"], result["policy"]) == ("xen", "deferrable")
    assert result["machine"] == json.loads((out / "xen/machine.json").read_text())
    domains = {domain["name"]: domain for domain in result["domains"]}
    assert domains["control"]["missed"] == 0
    assert domains["control"]["jobs"] == 250 * seconds
    # A job of 0.5 ms, alone on the CPU, takes that long: guests work as long as they are told to.
    assert 500_000 <= domains["control"]["tasks"][0]["response_ns"]["p50"] < 560_000
    assert domains["vision"]["missed"] > 0
    assert 0.095 < domains["logging"]["cpu_ns"] / 1e9 / seconds < 0.105
    assert 0.39 < domains["vision"]["cpu_ns"] / 1e9 / seconds < 0.41
    (summary,) = (out / "xen").glob("*.summary.json")
    assert json.loads(summary.read_text())["foreign_ns"] == 0
    assert (out / "xen/console.log").stat().st_size > 0
    laxity("report", out)
    laxity("trace", out, "--perfetto")


def test_guests_that_tell_their_deadlines_are_lent_to(laxity: Laxity) -> None:
    """vision needs more than its budget; logging, which comes before it here, has no deadline."""
    order = ("--set", "domain.logging.priority=2", "--set", "domain.vision.priority=3")
    words = ("run", EXAMPLES / "overload.toml", "--on", "xen", "--duration", "1 s", *order)
    result: dict[str, Any] = json.loads(laxity(*words, "--policy", "lending", "--json").stdout)
    control, vision, logging = result["domains"]
    assert (control["jobs"], control["missed"]) == (250, 0)
    assert (vision["jobs"], vision["missed"]) == (50, 0)
    # More than its budget of 40 %, and logging no less than its own.
    assert vision["cpu_ns"] > 450_000_000
    assert logging["cpu_ns"] > 99_900_000


def test_calls_go_through_netback_to_a_guest_and_back(laxity: Laxity, tmp_path: Path) -> None:
    """All packets are somewhere, and with laxity the neighbour's turns are not heard."""
    words = ("run", EXAMPLES / "telephony-xen.toml", "--on", "xen", "--duration", "4 s", "--json")
    done = laxity(*words, "--policy", "s-all", "-o", tmp_path / "out")
    result: dict[str, Any] = json.loads(done.stdout)
    voice, drops = result["telephony"]["voice"], result["telephony"]["drops"]
    assert voice["streams_most"] == 20
    # Streams begin one after the other within a period, once the load is ready: with other bytes of
    # the lab's programs that is some periods of 20 ms earlier or later.
    assert 20 * 195 <= voice["sent"] <= 20 * 201
    assert voice["received"] + voice["lost"] == voice["sent"]
    assert voice["lost"] == sum(drops.values()) == 0
    assert 0 < voice["delay_ns"]["p50"] < voice["delay_ns"]["p99"] < 2_000_000
    assert result["telephony"]["quality"]["toll_quality"] == 20
    dom0, media, batch = result["domains"]
    assert media["cpu_ns"] < dom0["cpu_ns"] < batch["cpu_ns"]
    assert dom0["cpu_ns"] + media["cpu_ns"] + batch["cpu_ns"] > 3_900_000_000
    laxity("report", tmp_path / "out")


def test_a_hypervisor_that_does_not_boot_is_told(
    laxity: Laxity, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The console is kept for whoever reads the message.
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    # At once: the emulated machine cannot run dom0 in that mode.
    arguments = xen_machine.XEN_ARGUMENTS.replace("dom0=pv", "dom0=pvh")
    monkeypatch.setattr(xen_machine, "XEN_ARGUMENTS", arguments)
    done = laxity(*("run", EXAMPLES / "overload.toml", "--on", "xen", "--duration", "1 s"), code=3)
    assert "crashed" in done.stderr
    (console,) = tmp_path.glob("*/console.log")
    assert str(console) in done.stderr
