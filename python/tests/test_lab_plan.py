"""Plans for Xen: what dom0 is told to do, and what is refused before anything boots."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest
from conftest import EXAMPLES, HOST, HOST_FILES
from laxity import Host, InputError
from laxity.substrates.xen.plan import EVENTS, RECORDS, Plan, Window

GOLDEN = Path(__file__).parent / "golden"

TWO_VCPUS = """\
duration = "2 s"
seed = 3

[host]
cpus = 2
policy = "credit"
time-slice = "5 ms"

[[domain]]
name = "wide"
vcpus = 2
weight = 512
cap = 150
tasks = [
    { name = "first", cost = "4 ms", period = "40 ms", deadline = "30 ms", offset = "1 ms" },
    { name = "second", cost = "1 ms", period = "10 ms", vcpu = 1 },
]

[[domain]]
name = "bound"
affinity = [1]
workload = { kind = "cpu-bound" }
"""


def resolved(text: str, *overrides: str) -> dict[str, Any]:
    return Host.parse(text).resolved(overrides)


def plan(text: str, *overrides: str, **options: Any) -> Plan:
    return Plan.of([Window("run", resolved(text, *overrides))], **options)


def test_a_plan_is_these_files() -> None:
    """If this is what you meant to change, write the files anew."""
    assert_golden("deferrable", plan(HOST))


def test_a_plan_for_several_cpus_and_stock_credit_is_these_files() -> None:
    assert_golden("credit", plan(TWO_VCPUS, mode="live", scheduler="credit"))


def assert_golden(name: str, made: Plan) -> None:
    files = made.files("/laxity")
    text = "".join(f"==> {file}\n{content}" for file, content in files.items())
    assert text == (GOLDEN / f"plan-{name}.txt").read_text(), text


def test_written_files_are_those(tmp_path: Path) -> None:
    made = plan(HOST)
    made.write(tmp_path / "plan", "/laxity")
    written = {path.name: path.read_text() for path in (tmp_path / "plan").iterdir()}
    assert written == made.files("/laxity")


def test_the_script_is_shell_that_says_what_the_host_file_says(tmp_path: Path) -> None:
    """Runs it, with functions that only tell how they were called."""
    host = resolved(HOST)
    plan(HOST).write(tmp_path, "/laxity")
    functions = ("policy", "settings", "parameters", "create", "start_all", "tasks", "window")
    tell = "".join(f'{name}() {{ printf "%s|" {name} "$@"; echo; }}\n' for name in functions)
    done = subprocess.run(
        ["sh"],  # noqa: S607
        input=tell + (tmp_path / "plan.sh").read_text(),
        capture_output=True,
        text=True,
        check=True,
    )
    calls = [line.split("|")[:-1] for line in done.stdout.splitlines()]
    by_name: dict[str, list[list[str]]] = {}
    for call in calls:
        by_name.setdefault(call[0], []).append(call[1:])
    assert by_name["policy"] == [["deferrable"]]
    assert [words[0] for words in by_name["create"]] == [
        f"laxity-{domain['name']}" for domain in host["domains"]
    ]
    told = {words[0]: words[1:] for words in by_name["tasks"]}
    for domain in host["domains"]:
        run, tasks, cpu_bound, tells = told[f"laxity-{domain['name']}"]
        rows = [tuple(map(int, row.split(","))) for row in tasks.split(";") if row]
        assert run == "run"
        assert cpu_bound == str(int(domain["cpu_bound"]))
        assert tells == "0", "what guests tell makes no difference to a deferrable server"
        assert rows == [
            (
                task["cost_ns"],
                task["period_ns"],
                task["deadline_ns"],
                task["offset_ns"],
                task["vcpu"],
            )
            for task in domain["tasks"]
        ]
    assert by_name["window"] == [["run", str(host["duration_ns"]), "0x2f000", "5", "still"]]


def test_the_lead_follows_from_what_guests_are_given() -> None:
    """A guest that is left 3.5 ms in 98.8 ms waits for a period whenever it waits for anything."""
    quick = ("domain.random.period=12 ms", "domain.batch.period=5 ms")
    small = (*quick, "domain.control.budget=3.5 ms", "domain.control.period=98.8 ms")
    leads_s = []
    for overrides in (quick, small, (*small, "domain.control.budget=1 ms")):
        script = plan(HOST, *overrides).files("/laxity")["plan.sh"]
        *_, lead_s, still = script.split()
        assert still == "still"
        leads_s.append(int(lead_s))
    assert leads_s == [4, 5, 6]


def test_a_boot_has_several_windows() -> None:
    hosts = [resolved(HOST, f"host.policy={policy}") for policy in ("periodic", "polling")]
    made = Plan.of([Window(f"w{number}", host) for number, host in enumerate(hosts)])
    script = made.files("/laxity")["plan.sh"]
    assert made.hypervisor_arguments == ("sched=laxity", "laxity=periodic")
    assert script.count("start_all\n") == 1
    assert (
        script.index("\nwindow w0 ")
        < script.index("\npolicy polling")
        < script.index("\nwindow w1 ")
    )


def test_buffers_have_room_for_what_a_policy_does() -> None:
    """In a run dom0 takes nothing out of them. They stay as large as the first window has them."""
    host = resolved(HOST, "duration=100 s")
    told = Window("told", host, EVENTS | 1)
    assert "\npages " not in Plan.of([Window("w", host)]).files("/laxity")["plan.sh"]
    script = Plan.of([Window("w", host), told]).files("/laxity")["plan.sh"]
    # 500,000 records of 40 bytes.
    assert script.index("\npages 4883\n") < script.index("\nwindow w ")
    program = (EXAMPLES.parent / "xen/programs/laxity-trace.c").read_text("utf-8")
    assert f"#define RECORDS_DEFAULT {RECORDS}\n" in program


def test_guests_tell_a_policy_that_listens() -> None:
    script = plan(HOST, "host.policy=lending").files("/laxity")["plan.sh"]
    tasks = [line for line in script.splitlines() if line.startswith("tasks ")]
    assert len(tasks) == 4
    assert all(line.endswith((" 0 1", " 1 1")) for line in tasks)


def test_a_model_of_a_scheduler_of_xens_own_is_run_by_that_scheduler() -> None:
    made = plan(HOST, "host.policy=rtds")
    assert made.scheduler == "rtds"
    assert made.hypervisor_arguments[0] == "sched=rtds"
    script = made.files("/laxity")["plan.sh"]
    assert "policy " not in script
    assert "parameters laxity-control budget=2000000 period=10000000" in script
    # While guests boot, they have no more than their shares for sure.
    boot, run = script.split("start_all\n")
    assert "parameters laxity-control budget=2000000 period=10000000 extratime=1\n" in boot
    assert "parameters laxity-control budget=2000000 period=10000000 extratime=0\n" in run
    assert "parameters laxity" not in plan(HOST).files("/laxity")["plan.sh"].split("start_all")[0]
    own, other = resolved(HOST, "host.policy=rtds"), resolved(HOST)
    with pytest.raises(ValueError, match="cannot change policies"):
        Plan.of([Window("a", own), Window("b", other)])


def test_windows_that_one_boot_cannot_have_are_our_mistake() -> None:
    first, other = resolved(HOST), resolved(HOST, "host.policy=sedf")
    with pytest.raises(ValueError, match="cannot change policies"):
        Plan.of([Window("a", first), Window("b", other)])
    with pytest.raises(ValueError, match="other domains"):
        Plan.of([Window("a", first), Window("b", resolved(HOST, "domain.late.name=other"))])
    with pytest.raises(ValueError, match="one name"):
        Plan.of([Window("a", first), Window("a", first)])


TOO_MUCH = ("telephony", "link", "protect")
"""For Xen: several CPUs, signalling, calls that come and go."""
PLANNED = [path for path in HOST_FILES if path.stem not in TOO_MUCH]


@pytest.mark.parametrize("example", PLANNED, ids=lambda path: path.stem)
def test_examples_can_be_planned(example: Path) -> None:
    text = example.read_text()
    overrides = ["domain.logging.tasks.flush.jitter=0 ns"] if example.stem == "integrator" else []
    assert plan(text, *overrides).files("/laxity")


REFUSED = [
    (["host.cpus=2"], {}, "`host.cpus` is 2", "--mode live"),
    (["duration=2 h"], {}, "`duration` is longer", "--duration"),
    (["domain.late.scheduler=edf"], {}, "`domain.late.scheduler` is 'edf'", "rate-monotonic"),
    (
        ["domain.late.tasks.hungry.jitter=1 ms"],
        {},
        "`domain.late.tasks.hungry.jitter` is not 0",
        "--set 'domain.late.tasks.hungry.jitter=0 ns'",
    ),
    (["draw.tasks=98", "draw.load=1.5"], {}, "`domain.random.tasks` are 98", "another domain"),
    (
        ["duration=1 h", "domain.control.tasks.loop.period=4.1 ms"],
        {},
        "`domain.control` has 878,049 jobs",
        "`duration` shorter",
    ),
    ([f"domain.0.name={'x' * 58}"], {}, "too long for Xen", "at most 57"),
    (["domain.late.vcpus=400"], {}, "MiB of memory", "fewer domains"),
    (["host.policy=null"], {}, "needs a CPU for every VCPU", "--mode live"),
    (["host.policy=credit2", "domain.late.credit=1 ms"], {}, "late.credit`", "=10000000 ns"),
    (["host.policy=rtds", "domain.late.phase=1 ms"], {}, "`domain.late.phase`", "=0 ns"),
    (["host.policy=rtds", "domain.late.budget=9999 ns"], {}, "`domain.late.budget`", "10 ms"),
    ([], {"scheduler": "arinc653"}, "no scheduler 'arinc653'", "credit, credit2, rtds, null"),
    (["host.time-slice=1500 us"], {"scheduler": "credit"}, "whole milliseconds", "30 ms"),
    (["domain.late.budget=9999 ns"], {"scheduler": "rtds"}, "`domain.late.budget`", "10 ms"),
    ([], {"scheduler": "null", "mode": "live"}, "a CPU for every VCPU: 5", "host.cpus=5"),
]


@pytest.mark.parametrize(("overrides", "options", "message", "help"), REFUSED)
def test_what_xen_cannot_do_is_refused(
    overrides: list[str], options: dict[str, Any], message: str, help: str
) -> None:
    with pytest.raises(InputError) as refused:
        plan(HOST, *overrides, **options)
    assert message in refused.value.message
    assert refused.value.help is not None
    assert help in refused.value.help


def test_a_live_run_has_several_cpus() -> None:
    assert plan(TWO_VCPUS, mode="live").cpus == 2


def test_a_longer_run_takes_longer() -> None:
    short, long = plan(HOST), plan(HOST, "duration=20 s")
    assert long.estimate_s > short.estimate_s + 10


CALLS = (EXAMPLES / "telephony-xen.toml").read_text()


def test_a_plan_with_calls_is_these_files() -> None:
    made = plan(CALLS)
    assert_golden("calls", made)
    assert made.domains == ["laxity-media", "laxity-batch"], "the driver domain is dom0 itself"
    assert made.hypervisor_arguments[-1] == "dom0_max_vcpus=1"
    assert made.traced_mib > plan(CALLS, "calls.streams=2").traced_mib


def test_a_media_server_that_transcodes_or_works() -> None:
    server = 'kind = "media-server", threads = 2'
    transcoding = plan(CALLS.replace(server, f"{server}, transcode = true"))
    assert "--transcode" in transcoding.files("/laxity")["plan.sh"]
    working = plan(CALLS.replace(server, f'{server}, work = "7 us"'))
    assert "--work '7000 ns'" in working.files("/laxity")["plan.sh"]


WORK = '{ median = "1 us", p99 = "2 us", max = "3 us" }'


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("streams = 20", 'rate = "1 /s"\nhold = "2 s"\nstreams = 2', "come and go"),
        ("streams = 20", "streams = 20000", "Xen can trace 1537 for one second"),
        ("threads = 2", f"threads = 2, work = {WORK}", "is a distribution"),
        ("[calls]", '[[nic]]\nname = "own"\nrate = "1 Gbit/s"\ndomain = "media"\n[calls]', "VMM"),
    ],
)
def test_calls_that_xen_cannot_have_are_refused(old: str, new: str, message: str) -> None:
    with pytest.raises(InputError, match=message) as refused:
        plan(CALLS.replace(old, new))
    assert refused.value.help


def test_what_media_servers_on_xen_do_not_do_is_refused() -> None:
    text = CALLS.replace("threads = 2", "threads = 2, record = true")
    with pytest.raises(
        InputError, match=r"workload\.record. is given, and on Xen the media server"
    ):
        plan(text, 'host.network={ relay = "1 us", record = "2 us" }')


def test_who_is_neither_server_nor_guest_is_refused() -> None:
    text = (EXAMPLES / "telephony.toml").read_text()
    with pytest.raises(InputError, match="come and go, or have a signalling server"):
        plan(text, "host.cpus=1")


def test_pauses_are_refused() -> None:
    text = TWO_VCPUS.replace(
        '{ kind = "cpu-bound" }', '{ kind = "cpu-bound", run = "5 ms", idle = "1 ms" }'
    )
    with pytest.raises(InputError, match="is 'bursts', and guests on Xen"):
        plan(text, mode="live")
