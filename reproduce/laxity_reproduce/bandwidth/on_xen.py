"""The paper's scenario on real Xen: real netfronts and netbacks, and the daemon in dom0.

A fiftieth of the paper's Mbit/s and a fifteenth of its seconds, in one boot of the emulated
machine, first without the daemon and then with it. A backend out of credit leaves packets in the
guest's ring: the guest's own queue fills, and what does not fit is refused to the sender.
"""

from __future__ import annotations

import json
import tempfile
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, TypedDict

import pandas as pd
from laxity.lab import image, pv_guest
from laxity.lab.files import HOME, NETWORK_ROOT
from laxity.lab.xen_machine import XenMachine
from laxity.substrates.xen import packets
from laxity.substrates.xen.plan import EVENTS

from laxity_reproduce.bandwidth import plots
from laxity_reproduce.bandwidth.setup import FACTS, LINK_MBIT_S, MBIT, phases
from laxity_reproduce.bandwidth.throughput import LOSS_TOLERANCE, least_loss_percent
from laxity_reproduce.reproduction import Experiment, Measurement, Row, verdict

if TYPE_CHECKING:
    from collections.abc import Mapping

    from laxity.progress import Say

RATE_SCALE = 50
TIME_SCALE = 15
"""The paper's Mbit/s and seconds are divided by these."""
PAYLOAD_BYTES = 1400
SILENT_S = 3
"""Before the first packet: a run is ordered so long before it begins."""
EVERY_S = 0.1
"""Between two looks at what backends have received."""
RUNS = ("native", "held")
VMS = 3
RESERVE_MBIT_S = 0.1
PAGES = 16_000
"""The pages of Xen's trace buffer."""
DOM0_MIB = 768
LIMIT_S = 7200.0


@dataclass(frozen=True)
class Outcome:
    """One run."""

    mbit_s: pd.DataFrame
    """Columns at_s, line, delivered_mbit_s: what each backend received, at the paper's scale."""
    offered: list[int]
    """Packets, by virtual machine."""
    refused: list[int]
    """Packets that a guest's own queue had no room for."""
    delivered: list[int]
    refused_us: float
    """CPU time of a packet that was refused, in the guest, mean."""
    dom0_s: float
    """CPU time of dom0."""

    @property
    def class_1_loss_percent(self) -> float:
        """The lost part of what VM 1 offered."""
        return 100 * (1 - self.delivered[0] / self.offered[0])


def measure(directory: Path, say: Say) -> dict[str, Outcome]:
    """Boots, runs the scenario twice, and returns both outcomes by `RUNS`.

    Raises LabError if the machine fails.
    """
    daemon = image.static("laxity-bandwidth", say)
    sender = image.programs(say) / "laxity-sender"
    with tempfile.TemporaryDirectory(prefix="laxity.") as temporary:
        plan = Path(temporary)
        for name, text in _plan().items():
            (plan / name).write_text(text, "utf-8")
        machine = XenMachine(
            image.hypervisor("release", say),
            image.build(say=say),
            plan,
            dom0_memory_mib=DOM0_MIB,
            xen_arguments="sched=laxity laxity=credit dom0_max_vcpus=1",
            beside=image.network([sender], [daemon]),
            limit_s=LIMIT_S,
        )
        results = machine.run(directory, say)
    return {run: _outcome(results, run) for run in RUNS}


def _steps() -> list[list[tuple[float, float]]]:
    """What each machine offers: seconds and bit/s."""
    first = [(s / TIME_SCALE, mbit_s * MBIT / RATE_SCALE) for s, mbit_s in phases()]
    others = [FACTS["vm2_offered_mbit_s"], FACTS["vm3_offered_mbit_s"]]
    whole_s = FACTS["run_s"] / TIME_SCALE
    return [first, *([(whole_s, mbit_s * MBIT / RATE_SCALE)] for mbit_s in others)]


def _plan() -> dict[str, str]:
    """The plan's files by name; xen/lab/lib.sh has the functions."""
    lines = [*packets.before_boot()]
    files = {}
    for number, steps in enumerate(_steps(), start=1):
        name = f"laxity-vm{number}"
        address = packets.GUEST_ADDRESS.format(packets.GUEST_FIRST + number)
        words = " ".join(f"{s:.6f}:{bit_s:.0f}" for s, bit_s in [(SILENT_S, 0), *steps])
        lines += [
            f"create {name}",
            f"connect {name} {address}/{packets.PREFIX_BITS}",
            f"program {name} /laxity-sender {packets.DOM0_ADDRESS}:9 {PAYLOAD_BYTES} {words}",
        ]
        files[f"{name}.cfg"] = pv_guest.configuration(
            name, NETWORK_ROOT, more=[packets.interface(HOME)]
        )
    duration_ns = round(FACTS["run_s"] / TIME_SCALE * 1e9)
    # The samples are of one try: senders and sampler begin when the run is ordered.
    lines += ["start_all", "laxity-sched set Domain-0 weight=1024", f"pages={PAGES}", "TRIES=1"]
    lines.append(SAMPLE)
    for run in RUNS:
        lines += [f"tasks laxity-vm{number} {run} '' 0" for number in range(1, VMS + 1)]
        if run == "held":
            lines += ['laxity-bandwidth run "$PLAN/agreements.toml" >"$RESULTS/daemon" 2>&1 &']
            lines += ["daemon=$!"]
        window = f"window {run} {duration_ns} {EVENTS:#x} {SILENT_S}"
        lines += [f"sample {run}", window, f"end_sample {run}"]
    lines += ['kill $daemon && wait $daemon || fail "laxity-bandwidth: $(cat "$RESULTS/daemon")"']
    return {**files, "plan.sh": "\n".join(lines) + "\n", "agreements.toml": _agreements()}


SAMPLE = f"""
cpu_of_dom0() {{ xl list Domain-0 | awk 'NR == 2 {{ print $6 }}'; }}
sample() {{
    cpu_of_dom0 >"$RESULTS/$1/dom0"
    while :; do
        read -r up _ </proc/uptime
        cd /sys/class/net
        echo "$up" $(cat vif*/statistics/rx_bytes vif*/statistics/rx_packets)
        sleep {EVERY_S}
    done >"$RESULTS/$1/received" &
    sampler=$!
}}
end_sample() {{
    kill $sampler
    cpu_of_dom0 >>"$RESULTS/$1/dom0"
}}"""


def _agreements() -> str:
    lines = ['period = "10 ms"', 'sharing = "by-class"', "", "[link]", 'backend = "xen"']
    lines += [f'interface = "{packets.BRIDGE}"', f'rate = "{LINK_MBIT_S / RATE_SCALE:g} Mbit/s"']
    lines += [f'reserve = "{RESERVE_MBIT_S:g} Mbit/s"']
    both = zip(FACTS["min_mbit_s"], FACTS["max_mbit_s"], strict=True)
    for number, (minimum, maximum) in enumerate(both, start=1):
        lines += ["", "[[agreement]]", f'name = "vm{number}"', f'interface = "vif{number}.0"']
        lines += [f"class = {number}", f'minimum = "{minimum / RATE_SCALE:g} Mbit/s"']
        lines += [f'maximum = "{maximum / RATE_SCALE:g} Mbit/s"']
    return "\n".join(lines) + "\n"


def _outcome(results: Path, run: str) -> Outcome:
    rows = [
        [float(word) for word in line.split()]
        for line in (results / run / "received").read_text("utf-8").splitlines()
    ]
    # The last line may be half a line.
    received = pd.DataFrame([row for row in rows if len(row) == 1 + 2 * VMS]).diff().dropna()
    sent = [_said(results / run / f"laxity-vm{number}.output") for number in range(1, VMS + 1)]
    dom0 = [float(line) for line in (results / run / "dom0").read_text("utf-8").split()]
    at_s = (received[0].cumsum() - SILENT_S) * TIME_SCALE
    frames = [
        pd.DataFrame(
            {
                "at_s": at_s,
                "line": f"VM {vm}",
                "delivered_mbit_s": received[vm] * 8 / received[0] / MBIT * RATE_SCALE,
            }
        )
        for vm in range(1, VMS + 1)
    ]
    refused = sum(said["refused"] for said in sent)
    series = pd.concat(frames)
    return Outcome(
        series[(series.at_s >= 0) & (series.at_s <= FACTS["run_s"])],
        [said["sent"] + said["refused"] for said in sent],
        [said["refused"] for said in sent],
        [int(received[VMS + vm].sum()) for vm in range(1, VMS + 1)],
        sum(said["refused_ns"] for said in sent) / 1000 / refused if refused else 0.0,
        dom0[1] - dom0[0],
    )


class Said(TypedDict):
    """What laxity-sender (xen/programs) tells of its packets, as far as it is read."""

    sent: int
    refused: int
    refused_ns: int
    """The CPU time of the calls that were refused."""


def _said(path: Path) -> Said:
    said: Said = json.loads("".join(path.read_text("utf-8").splitlines()[1:-1]))
    return said


METHOD = (
    "The emulated machine has three PV guests that send UDP packets of 1,400 bytes through real"
    ' netfronts and netbacks to a bridge in dom0. The daemon runs with `backend = "xen"` and a'
    f" period of 10 ms. Rates are 1/{RATE_SCALE} and times 1/{TIME_SCALE} of the paper's; rates"
    " are shown at the paper's scale. No link follows the bridge, so all packets arrive without"
    " the daemon."
)
CREDIT_BYTES = 128 * 1024
"""A backend lets so much pass at once when it has had nothing to do."""


def throughput(outcomes: Mapping[str, Outcome]) -> Experiment:
    """Figure 4, and what a packet costs that is dropped in the guest."""
    native, held = (outcomes[run] for run in RUNS)
    frame_bits = (PAYLOAD_BYTES + 42) * 8
    least = least_loss_percent()
    loss = held.class_1_loss_percent
    credit_packets = CREDIT_BYTES * 8 / frame_bits
    rises = sum(a[1] < b[1] for a, b in pairwise([(0, 0), *phases()]))
    credit_percent = 100 * rises * credit_packets / held.offered[0]
    at_most, at_scale = credit_percent, credit_percent / RATE_SCALE / TIME_SCALE
    why = (
        f"a backend lets 128 KiB pass at once after a pause, {rises} times: at most"
        f" {at_most:.1f} % of what VM 1 offers here, and {at_scale:.3f} % at the paper's rates"
        " and seconds"
    )
    passed_us = 1e6 * native.dom0_s / sum(native.delivered)
    loss_row = Row(
        "class 1: loss with Laxity, %",
        f"{least:.2f} within {LOSS_TOLERANCE}",
        round(loss, 2),
        verdict(holds=abs(loss - least) <= LOSS_TOLERANCE),
        "" if abs(loss - least) <= LOSS_TOLERANCE else why,
    )
    cheaper = Row(
        "CPU time of a packet that is dropped in the guest, and of one that goes through dom0, us",
        "less",
        [round(held.refused_us, 1), round(passed_us, 1)],
        verdict(holds=held.refused_us < passed_us),
    )
    measurements = [
        Measurement(f"{what}: packets of VM 1 to 3", [float(count) for count in values], note)
        for what, values, note in (
            ("offered", held.offered, "with the daemon"),
            ("refused in the guest", held.refused, "with the daemon"),
            ("arrived in dom0", held.delivered, "with the daemon"),
            ("offered", native.offered, "without"),
            ("arrived in dom0", native.delivered, "without"),
        )
    ]
    measurements.append(
        Measurement(
            "CPU time of dom0, s",
            [round(native.dom0_s, 1), round(held.dom0_s, 1)],
            "without the daemon, and with it and its own time; 500 million instructions a second",
        )
    )
    data = pd.concat(
        outcome.mbit_s.assign(panel=name)
        for name, outcome in (("without an allocator", native), ("Laxity", held))
    )
    title = "throughput without and with the daemon"
    return Experiment(
        "figure-4", title, METHOD, [loss_row, cheaper], measurements, data, plots.throughput
    )
