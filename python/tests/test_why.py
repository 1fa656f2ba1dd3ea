"""Why jobs and packets were late: the causes, their sums, and that what is said to help helps."""

from __future__ import annotations

import importlib
import json
import re
import sys
from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING, Any, get_args

import pytest
from conftest import EXAMPLES, HOST
from laxity import Host, tracefile
from laxity.errors import HostError, InputError
from laxity.policies import TABLE
from laxity.results.streams import PACKET_NS
from laxity.tables import why as tables
from laxity.why import Exit, Kind, Late, Place, Rule, why, with_remedies
from trials import cases, seeds

if TYPE_CHECKING:
    from pathlib import Path

    from conftest import Laxity
    from laxity.results.run import Run
    from laxity.results.streams import KeptStream

sys.path.insert(0, str(EXAMPLES.parent / "tools" / "check"))
random_hosts = importlib.import_module("random_hosts")

STARVED = """\
duration = "100 ms"

[host]
cpus = 1
policy = "deferrable"

[[domain]]
name = "first"
budget = "3 ms"
period = "10 ms"
priority = 1
tasks = [{ name = "work", cost = "3 ms", period = "20 ms", offset = "1 ms" }]

[[domain]]
name = "second"
budget = "4 ms"
period = "20 ms"
priority = 2
tasks = [
    { name = "short", cost = "1 ms", period = "20 ms" },
    { name = "long", cost = "5 ms", period = "50 ms", deadline = "20 ms" },
]
"""
"""`long` runs from 4 to 7 ms, waits for budget until 20 ms, for `short` until 21 ms, for `first`
until 24 ms, and is complete at 26 ms."""


@pytest.fixture
def out(laxity: Laxity, tmp_path: Path) -> Path:
    (tmp_path / "host.toml").write_text(HOST)
    laxity("run", tmp_path / "host.toml", "-o", tmp_path / "out")
    return tmp_path / "out"


def answer(laxity: Laxity, *words: object) -> dict[str, Any]:
    content: dict[str, Any] = json.loads(laxity("why", *words, "--json").stdout)
    return content


def test_causes_of_a_host_made_by_hand(tmp_path: Path) -> None:
    trace = tmp_path / "trace.laxtrace"
    Host.parse(STARVED).run(trace=trace)
    found = why(trace, task="second/long")
    first = found.late[0]
    assert (first.what, first.completion_ns, first.late_ns) == (
        "second/long#0",
        26_000_000,
        6_000_000,
    )
    delays = {(cause.cause, cause.who, cause.rule): cause.delay_ns for cause in first.causes}
    assert delays == {
        ("own-work", None, None): 5_000_000,
        ("budget", "second/long", None): 13_000_000,
        ("cpu", "first", "order"): 6_000_000,
        ("task", "second/short", None): 2_000_000,
    }
    # In proportion to the 21 ms of delay, of which 6 ms were too many.
    shares = {cause.cause: cause.ns for cause in first.causes}
    assert shares["budget"] == pytest.approx(6_000_000 * 13 / 21, abs=1)
    assert shares["own-work"] == 0
    said = tables.sentence(first, "deferrable")
    assert said.startswith("second/long#0 was 6 ms late: 3.71 ms because its budget was used up")
    assert "(deferrable: it comes first by priority)" in said


def test_every_late_job_is_explained_and_sums(laxity: Laxity, out: Path) -> None:
    result = json.loads((out / "result.json").read_text())
    missed = sum(domain["missed"] for domain in result["domains"])
    content = answer(laxity, out)
    assert content["late_jobs"] == len(content["late"]) == missed > 0
    for late in content["late"]:
        assert sum(cause["ns"] for cause in late["causes"]) == late["late_ns"]
        assert "remedies" not in late
    assert content["late_sum_ns"] == sum(late["late_ns"] for late in content["late"])
    assert content["late_sum_ns"] == sum(total["ns"] for total in content["totals"])
    # A bare trace and the host file say the same.
    assert answer(laxity, out / "trace.laxtrace") == content
    assert answer(laxity, out.parent / "host.toml") == content


def test_one_task_the_worst_and_every_job(laxity: Laxity, out: Path) -> None:
    content = answer(laxity, out, "--task", "late/hungry")
    assert {late["what"].split("#")[0] for late in content["late"]} == {"late/hungry"}
    every = answer(laxity, out, "--every-job")
    assert len(every["late"]) == every["jobs"] > every["late_jobs"]
    worst = answer(laxity, out, "--worst", 2)["late"]
    assert len(worst) == 2
    assert worst[0]["late_ns"] == max(late["late_ns"] for late in answer(laxity, out)["late"])


@pytest.mark.parametrize("policy", ["deferrable", "polling", "credit"])
def test_what_is_said_to_help_helps(tmp_path: Path, policy: str) -> None:
    host = Host((EXAMPLES / "overload.toml").read_bytes(), "overload.toml")
    settings = [f"host.policy={policy}", "duration=2 s"]
    trace = tmp_path / "trace.laxtrace"
    host.run(set=settings, trace=trace)
    found = with_remedies(why(trace, worst=3), host, settings)
    remedies = [(late, remedy) for late in found.late for remedy in late.remedies or ()]
    assert remedies
    for late, remedy in remedies:
        run = host.run(set=[*settings, remedy.set], trace=trace)
        still_late = {each.what for each in why(trace).late}
        assert late.what not in still_late, remedy
        assert run.missed == remedy.missed


HOSTS = 40
"""Random hosts on which all that is said to help is run again. Among so many some have late jobs,
and changes that help, for sure."""


def test_what_is_said_to_help_helps_on_random_hosts(tmp_path: Path) -> None:
    trace = tmp_path / "trace.laxtrace"
    late_of, tried = Counter[str](), Counter[str]()
    policies = [name for name, policy in TABLE.items() if "sim" in policy.substrates]
    for seed in seeds(HOSTS):
        policy = policies[seed % len(policies)]
        host = Host.parse(random_hosts.host(seed, policy))
        try:
            host.run(trace=trace)
        except HostError:
            continue  # not every policy takes every host
        found = with_remedies(why(trace, worst=1), host, [])
        for late in found.late:
            late_of[policy] += 1
            for remedy in late.remedies or ():
                tried[policy] += 1
                run = host.run(set=[remedy.set], trace=trace)
                said = f"seed {seed}, {policy}: {late.what} with {remedy.set}"
                assert late.what not in {each.what for each in why(trace).late}, said
                assert run.missed == remedy.missed, said
    print(f"late: {dict(late_of)}; changes that helped: {dict(tried)}")
    if cases(HOSTS) >= HOSTS:
        assert tried.total() > cases(HOSTS) / 4


def test_a_budget_for_which_other_tasks_are_drawn_is_no_remedy(tmp_path: Path) -> None:
    """With a budget of 1.49 ms the late job's task would have a deadline of 72 ms, not 159 ms."""
    host, trace = Host.parse(random_hosts.host(528, "sporadic")), tmp_path / "trace.laxtrace"
    host.run(trace=trace)
    (late,) = with_remedies(why(trace, worst=1), host, []).late
    assert late.deadline_ns - late.arrival_ns == 159_000_000
    assert late.remedies
    assert not [remedy for remedy in late.remedies if "budget" in remedy.set]


BESIDE = """\
duration = "200 ms"

[host]
cpus = 2
policy = "POLICY"

[[domain]]
name = "first"
affinity = [0]
rt-priority = 7
budget = "9 ms"
period = "10 ms"
priority = 3
workload = { kind = "cpu-bound" }

[[domain]]
name = "second"
affinity = [0]
rt-priority = 2
budget = "5 ms"
period = "20 ms"
priority = 4
tasks = [{ name = "work", cost = "4 ms", period = "20 ms", deadline = "8 ms" }]
"""


@pytest.mark.parametrize(
    ("policy", "priority"), [("deferrable", "priority=2"), ("fifo", "rt-priority=8")]
)
def test_a_higher_priority_or_another_cpu_helps(tmp_path: Path, policy: str, priority: str) -> None:
    host, trace = Host.parse(BESIDE.replace("POLICY", policy)), tmp_path / "trace.laxtrace"
    host.run(trace=trace)
    found = with_remedies(why(trace, worst=1), host, [])
    changes = {remedy.set: remedy for remedy in found.late[0].remedies or ()}
    for change in (f"domain.second.{priority}", "domain.second.affinity=[1]"):
        assert host.run(set=change).missed == changes[change].missed == 0


def test_tasks_that_begin_after_the_deadline_hide_nothing_that_helps(tmp_path: Path) -> None:
    afterwards = '{ name = "afterwards", cost = "1 ms", period = "100 ms", offset = "90 ms" }'
    changes = []
    for text in (STARVED, STARVED.replace("tasks = [{", f"tasks = [{afterwards}, {{", 1)):
        host, trace = Host.parse(text), tmp_path / "trace.laxtrace"
        host.run(trace=trace)
        found = with_remedies(why(trace, task="second/long", worst=1), host, [])
        assert found.late[0].what == "second/long#0"
        changes.append([remedy.set for remedy in found.late[0].remedies or ()])
    assert changes[0] == changes[1] != []


def test_nothing_is_claimed_where_the_simulator_has_the_job_in_time(tmp_path: Path) -> None:
    trace = tmp_path / "trace.laxtrace"
    host = Host.parse(STARVED)
    host.run(trace=trace)
    found = with_remedies(why(trace, worst=1), host, ["domain.second.budget=20 ms"])
    assert found.late[0].remedies is None


def test_people_get_sentences_and_a_table(laxity: Laxity, out: Path) -> None:
    said = laxity("why", out).stdout
    assert "late under deferrable" in said
    assert "Simulated, it is in time with" in said or "has it in time" in said
    assert "budget used up" in said
    assert max(map(len, said.splitlines())) <= 80
    none = laxity("why", EXAMPLES / "flat.toml", "--duration", "1 s").stdout
    assert "was late" in none


def test_every_cause_has_words() -> None:
    assert set(tables.PHRASES) == set(tables.NAMES) == set(get_args(Kind))
    assert set(tables.PLACES) == set(get_args(Place))
    of_policies, exits = map(get_args, get_args(Rule))
    assert tuple(tables.RULES) == (*of_policies, *exits)
    assert exits == get_args(Exit) == tracefile.EXITS


CALLS = """\
duration = "200 ms"

[host]
cpus = 1
policy = "credit"

[[domain]]
name = "dom0"
workload = { kind = "driver" }

[[domain]]
name = "media"
workload = { kind = "media-server" }

[[domain]]
name = "busy"
workload = { kind = "cpu-bound" }

[[nic]]
name = "eth0"
ring = 16

[calls]
streams = 400
media-server = "media"
acceptance = { delay = "10 ms" }
"""
"""More packets than the CPU can relay: they are lost in every ring, and late."""


def test_late_and_lost_packets_are_explained_and_sum(laxity: Laxity, tmp_path: Path) -> None:
    (tmp_path / "host.toml").write_text(CALLS)
    laxity("run", tmp_path / "host.toml", "-o", tmp_path / "out")
    voice = json.loads((tmp_path / "out" / "result.json").read_text())["telephony"]["voice"]
    content = answer(laxity, tmp_path / "out")
    assert content["lost_packets"] == voice["lost"] > 0
    assert content["late_packets"] > 0
    assert content["lost_packets"] + content["late_packets"] == len(content["late"])
    for late in content["late"]:
        assert late["what"].startswith("media/stream-")
        assert sum(cause["ns"] for cause in late["causes"]) == late["late_ns"]
        if late["packet"] == "late":
            assert late["completion_ns"] == late["deadline_ns"] + late["late_ns"]
            delays_ns = sum(cause["delay_ns"] for cause in late["causes"])
            assert delays_ns == late["completion_ns"] - late["arrival_ns"]
    assert content["late_sum_ns"] == sum(total["ns"] for total in content["totals"])
    assert {total["task"] for total in content["totals"]} == {"media/packets"}
    lost_at = {late["lost_at"] for late in content["late"] if late["packet"] == "lost"}
    assert "card" in lost_at


def test_packets_hide_no_jobs_and_jobs_no_packets(laxity: Laxity, tmp_path: Path) -> None:
    tasks = '{ name = "loop", cost = "19 ms", period = "20 ms" }'
    host = CALLS.replace('workload = { kind = "cpu-bound" }', f"tasks = [{tasks}]")
    (tmp_path / "host.toml").write_text(host)
    laxity("run", tmp_path / "host.toml", "-o", tmp_path / "out")
    every = answer(laxity, tmp_path / "out")
    latest = sorted(every["late"], key=lambda late: -late["late_ns"])
    kinds = {kind: [late for late in latest if (late["packet"] is None) == kind] for kind in (0, 1)}
    assert min(map(len, kinds.values())) > 2
    assert len({late["packet"] is None for late in latest[:4]}) == 1, "one kind is latest"
    worst = answer(laxity, tmp_path / "out", "--worst", 4)["late"]
    late_ns = [late["late_ns"] for late in worst]
    assert late_ns == sorted(late_ns, reverse=True)
    for kind, of_kind in kinds.items():
        found = [late["late_ns"] for late in worst if (late["packet"] is None) == kind]
        assert found == [late["late_ns"] for late in of_kind[:2]]
    (only,) = answer(laxity, tmp_path / "out", "--worst", 1)["late"]
    assert only["late_ns"] == latest[0]["late_ns"]


def test_what_is_said_to_help_a_packet_helps(tmp_path: Path) -> None:
    host = Host.parse(CALLS)
    trace = tmp_path / "trace.laxtrace"
    host.run(trace=trace)
    found = with_remedies(why(trace, worst=1), host, [])
    (late,) = found.late
    assert late.packet is not None
    assert late.remedies
    for remedy in late.remedies:
        host.run(set=[remedy.set], trace=trace)
        after = why(trace)
        assert late.what not in {each.what for each in after.late}
        assert after.late_packets + after.lost_packets == remedy.missed
    assert "late or lost)" in tables.remedy_sentence(late.remedies, is_packet=True)


CALLED = (
    CALLS.replace("200 ms", "600 ms")
    .replace("ring = 16", "ring = 256")
    .replace("streams = 400", 'streams = 60\nrate = "150 /s"\nhold = "200 ms"')
    .replace('media-server = "media"', 'media-server = "media"\nsignalling-server = "sip"')
    + """
[[domain]]
name = "batch"
workload = { kind = "cpu-bound" }

[[domain]]
name = "sip"
workload = { kind = "signalling-server", threads = 3 }
"""
)
"""Calls that are set up in another order with other changes."""


def streams_of_calls(run: Run) -> dict[tuple[int, int], KeptStream]:
    """Each call's first and second stream, of calls that are shorter than a piece."""
    of_calls = [stream for stream in run.streams if stream.call is not None]
    seen = Counter[int]()
    found = {}
    for stream in sorted(of_calls, key=lambda stream: stream.start_ns):
        assert stream.call is not None
        found[stream.call, seen[stream.call]] = stream
        seen[stream.call] += 1
    return found


def test_what_is_said_to_help_a_packet_of_a_call_helps_that_packet(tmp_path: Path) -> None:
    host = Host.parse(CALLED)
    trace = tmp_path / "trace.laxtrace"
    host.run(trace=trace)
    found = why(trace)
    every = ["calls.sample=1", "duration=2400 ms"]
    before = streams_of_calls(host.run(set=every))
    place_of = {stream.stream: place for place, stream in before.items()}
    numbers_of = {each: tuple(map(int, each.what.split("-")[1].split("#"))) for each in found.late}
    late = [each for each, (stream, _) in numbers_of.items() if stream in place_of]
    reordered = 0
    for each in with_remedies(replace(found, late=tuple(late[::100])), host, []).late:
        stream, number = numbers_of[replace(each, remedies=None)]
        for remedy in each.remedies or ():
            after = streams_of_calls(host.run(set=[*every, remedy.set]))
            same = after[place_of[stream]]
            took_ns = same.arrived_ns[number] - same.start_ns - number * PACKET_NS
            assert 0 <= took_ns <= 10_000_000, f"{each.what} with {remedy.set}"
            reordered += same.stream != stream
    assert reordered > 1


def test_what_there_is_none_of_is_not_counted(laxity: Laxity) -> None:
    said = laxity("why", EXAMPLES / "protect.toml", "--duration", "6 s").stdout
    heading = " ".join(said.partition("\n\n")[0].split())
    assert re.match(r"2 outages, [\d,]+ packets lost, \d+ messages of registrations lost", heading)


def test_people_get_sentences_about_packets(laxity: Laxity, tmp_path: Path) -> None:
    (tmp_path / "host.toml").write_text(CALLS)
    said = laxity("why", tmp_path / "host.toml", "--duration", "100 ms").stdout
    assert "media/stream-" in said
    assert "packets late, " in said
    assert max(map(len, said.splitlines())) <= 80
    good = laxity(
        "why",
        tmp_path / "host.toml",
        "--set",
        "calls.acceptance.delay=1 s",
        "--set",
        "calls.streams=20",
        "--set",
        "nic.eth0.ring=1024",
    ).stdout
    assert "Nothing was late or lost" in good


def test_a_packet_that_died_with_its_host_has_words() -> None:
    lost = Late("media/stream-0#50", "packet", 0, 150, None, 0, (), packet="lost")
    said = "media/stream-0#50 was lost with the host that died."
    assert tables.sentence(lost, "credit") == said


PROTECTED = EXAMPLES / "protect.toml"


def test_outages_have_causes_and_are_not_hidden_by_packets(laxity: Laxity, tmp_path: Path) -> None:
    laxity("run", PROTECTED, "-o", tmp_path / "out")
    telephony = json.loads((tmp_path / "out" / "result.json").read_text())["telephony"]
    content = answer(laxity, tmp_path / "out", "--worst", 3)
    outages = {late["what"]: late for late in content["late"] if late["kind"] == "outage"}
    assert content["outages"] == len(telephony["protection"]) == 2
    assert {late["kind"] for late in content["late"]} == {"packet", "message", "outage"}
    every = answer(laxity, tmp_path / "out")
    assert [late["what"] for late in every["late"] if late["kind"] == "outage"] == [
        f"{each['domain']}/outage" for each in telephony["protection"]
    ]
    for outage in outages.values():
        (domain,) = (
            each for each in telephony["protection"] if outage["what"] == f"{each['domain']}/outage"
        )
        assert outage["late_ns"] == domain["outage_ns"]
        causes = {cause["cause"]: cause["ns"] for cause in outage["causes"]}
        assert causes.keys() == {"silence", "activation"}
        assert sum(causes.values()) == outage["late_ns"]
    assert content["lost_messages"] == telephony["registrations"]["retransmissions"] > 0
    assert content["lost_packets"] == telephony["voice"]["lost"] > 0
    said = laxity("why", tmp_path / "out").stdout
    assert "was out for 304 ms, since its host died: " in said
    assert "2 outages" in said.splitlines()[0] + said.splitlines()[1]


def test_an_outage_that_the_end_of_the_run_ends(tmp_path: Path) -> None:
    trace = tmp_path / "trace.laxtrace"
    Host.load(PROTECTED).run(set=["protect.failure.activation=6 s"], trace=trace)
    outages = [late for late in why(trace).late if late.kind == "outage"]
    assert [outage.completion_ns for outage in outages] == [None, None]
    assert {outage.late_ns for outage in outages} == {5_000_000_000}
    assert "out for 5 s and still at the end of the run" in tables.sentence(outages[0], "credit")


def test_what_is_said_to_help_a_message_helps(tmp_path: Path) -> None:
    """More registrations than their server can answer: phones send them again and again."""
    host = Host.load(PROTECTED)
    overrides = [
        "duration=4 s",
        "protect.failure.at=3900 ms",
        "calls.registrations=120 /s",
        "domain.signalling.workload.work=10 ms",
        "domain.signalling.workload.threads=4",
    ]
    trace = tmp_path / "trace.laxtrace"
    host.run(set=overrides, trace=trace)
    found = why(trace)
    assert found.late_messages > 0
    messages = [late for late in found.late if late.kind == "message" and late.packet == "late"]
    latest = max(messages, key=lambda late: late.late_ns)
    (late,) = with_remedies(replace(found, late=(latest,)), host, overrides).late
    assert late.remedies
    for remedy in late.remedies:
        host.run(set=[*overrides, remedy.set], trace=trace)
        after = why(trace)
        assert late.what not in {each.what for each in after.late}
        assert after.late_messages + after.lost_messages == remedy.missed


def test_wrong_input_is_refused(laxity: Laxity, out: Path, tmp_path: Path) -> None:
    laxity("why", out, "--worst", 10**20, code=2)
    assert "late/hungry" in laxity("why", out, "--task", "late/other", code=2).stderr
    assert "has already run" in laxity("why", out, "--seed", 2, code=2).stderr
    laxity("why", tmp_path / "nothing", code=2)
    damaged = tmp_path / "damaged.laxtrace"
    damaged.write_bytes(tracefile.find(out).read_bytes()[:-5])
    assert "cut short" in laxity("why", damaged, code=2).stderr
    with pytest.raises(InputError, match="cut short"):
        why(damaged)
