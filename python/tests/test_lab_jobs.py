from __future__ import annotations

import random
import secrets
import zlib

import pytest
from laxity.lab import jobs
from laxity.lab.errors import LabError

BODY = """\
laxity-report r1 1000000000 3 2
laxity-speed 7812 1500
laxity-tick 4000000 1500000
laxity-note SCHED_FIFO was refused: the tasks had no priorities
laxity-task 0 5 4
5000000 20000000
20000100 19999900
laxity-task 1 7 0
laxity-task 2 1 1
1000000000
laxity-vcpu 0 20000000 0
laxity-vcpu 1 5 999000000
"""


def report(body: str = BODY, end: str = "laxity-report-end r1") -> str:
    return f"{body}laxity-crc {zlib.crc32(body.encode()):08x}\n{end}\n"


def test_a_report_is_found_among_other_lines() -> None:
    console = f"[    0.0] Linux\r\nlaxity-report r0 1\r\n{report()}laxity-report-end r0\nbye"
    parsed = jobs.parse(console.replace("\n", "\r\n"), "r1")
    assert parsed.run == "r1"
    assert (parsed.duration_ns, parsed.iterations_per_ms, parsed.job_ns) == (10**9, 7812, 1500)
    assert parsed.tick == jobs.TickReport(period_ns=4_000_000, offset_ns=1_500_000)
    assert parsed.notes == ("SCHED_FIFO was refused: the tasks had no priorities",)
    assert [task.jobs for task in parsed.tasks] == [5, 7, 1]
    assert [task.completions_ns.tolist() for task in parsed.tasks] == [
        [5_000_000, 25_000_000, 45_000_100, 65_000_000],
        [],
        [10**9],
    ]
    assert parsed.vcpus == (
        jobs.VcpuReport(20_000_000, 0),
        jobs.VcpuReport(tasks_ns=5, cpu_bound_ns=999_000_000),
    )


def test_no_tasks_are_a_report_too() -> None:
    body = (
        "laxity-report r1 5 0 1\nlaxity-speed 7812 1500\nlaxity-tick 4000000 0\nlaxity-vcpu 0 0 4\n"
    )
    assert jobs.parse(report(body), "r1").tasks == ()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "no report of run 'r1'"),
        (report(BODY.replace("r1", "r11"), "laxity-report-end r11"), "no report of run 'r1'"),
        (report() + report(), "2 reports of run 'r1'"),
        (report(end=""), "cut off"),
        (report()[:-4], "cut off"),
        (BODY + "laxity-report-end r1\n", "changed on its way"),
        (report().replace("5000000 2", "5000001 2"), "changed on its way"),
        (report().replace("laxity-task 2", "[  9.1] oops\nlaxity-task 2"), "changed on its way"),
        (report().replace("20000100 19999900\n", ""), "changed on its way"),
        (report(BODY.replace("20000100 ", "x ")), "times of task 0"),
        (report(BODY.replace("20000100 ", "-1 ")), "contradicts itself in task 0"),
        (report(BODY.replace("20000100 ", "20000100 1 ")), "contradicts itself in task 0"),
        (report(BODY.replace("task 0 5 4", "task 0 3 4")), "contradicts itself in task 0"),
        (report(BODY.replace("\n1000000000\n", "\n1000000001\n")), "contradicts itself in task 2"),
        (report(BODY.replace("laxity-task 1 7 0\n", "")), "contradicts itself in task 1"),
        (report(BODY.replace("20000100 19999900\n", "")), "times of task 0"),
        (report(BODY.replace("0 3 2", "0 3 3")), "laxity-vcpu is expected"),
        (report(BODY.replace("0 3 2", "0 3 1")), "the CRC is expected"),
        (report(BODY.replace("vcpu 1", "vcpu 0")), "VCPU 1"),
        (report(BODY.replace("7812 1500", "7812")), "laxity-speed is expected"),
        (report(BODY.replace("laxity-speed", "laxity-spede")), "laxity-speed is expected"),
        (report(BODY.replace("laxity-tick", "laxity-tock")), "laxity-task is expected"),
        (report(BODY.replace("4000000 1500000", "4000000 4000000")), "contradicts itself"),
        (report(BODY.replace(" 3 2", " 3 2 1")), "laxity-report r1 is expected"),
    ],
)
def test_what_is_not_a_whole_report_is_refused(text: str, message: str) -> None:
    with pytest.raises(LabError, match=message):
        jobs.parse(text, "r1")


def test_no_changed_byte_goes_unnoticed() -> None:
    seed = secrets.randbits(32)
    print(f"seed {seed}")
    draw, whole = random.Random(seed), report()  # noqa: S311
    for _ in range(300):
        place = draw.randrange(len(whole))
        byte = draw.choice("0123456789 \nax-")
        changed = whole[:place] + byte + whole[place + 1 :]
        if changed != whole and place != len(whole) - 1:
            with pytest.raises(LabError):
                jobs.parse(changed, "r1")
