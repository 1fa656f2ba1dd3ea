"""Hosts with calls whose values are found by simulation, which takes long."""

from __future__ import annotations

import re
from itertools import chain, groupby, product
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from laxity import Host
from laxity.design import changes, halving
from laxity.design.answered import answered
from laxity.design.ladders import ladders
from laxity.errors import InputError
from laxity.resolved import ending
from laxity.telephony.capacity import STREAMS_MAX

pytestmark = pytest.mark.slow

EXAMPLES = Path(__file__).parents[2] / "examples"

STREAMS = halving.Load(
    300,
    STREAMS_MAX,
    overrides=lambda streams: [f"calls.streams={streams}"],
    said=lambda streams: f"{streams} streams",
)

CALLS = """
duration = "1 s"
[host]
cpus = 2
policy = "credit"
costs = "emsoft-2011"
network = "iptcomm-2009"
[[domain]]
name = "dom0"
workload = { kind = "driver" }
[[domain]]
name = "media"
workload = { kind = "media-server" }
[[domain]]
name = "batch"
vcpus = 2
workload = { kind = "cpu-bound" }
[calls]
streams = 300
media-server = "media"
"""


def test_the_best_change_carries_more_and_is_the_same_each_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    short_rounds(monkeypatch)
    found, again = Host.parse(CALLS).design(), Host.parse(CALLS).design()
    assert found == again
    assert found.host is not None
    streams = {remedy.what: remedy.streams for remedy in found.remedies}
    assert found.remedies[0].streams > 1.5 * streams["as it is"]
    assert len(streams) == len(found.remedies)
    # It is a file, and it carries what it says with a seed that nobody has used.
    run = Host.parse(found.host).run(seed=1001, duration="1 s")
    assert run.telephony is not None
    assert run.telephony.voice.loss_ratio < 0.01


def short_rounds(monkeypatch: pytest.MonkeyPatch) -> None:
    """Shorter rounds, where the choice is tested and not how sure it is."""
    monkeypatch.setattr(
        halving, "ROUNDS", ((1, 1, (0.5, 1.0, 2.0, 4.0)), (1, 2, (0.75, 1.0, 1.25)))
    )
    monkeypatch.setattr(halving, "SECONDS", 1)


def test_the_answer_does_not_depend_on_how_many_streams_the_file_has(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    short_rounds(monkeypatch)
    monkeypatch.setattr(halving, "can_be_heard", lambda: False)
    carried = {
        streams: Host.parse(CALLS).design(set=[f"calls.streams={streams}"])
        for streams in (5, 300, 5_000)
    }
    most = carried[300].remedies[0].streams
    for streams, found in carried.items():
        assert 0.6 * most < found.remedies[0].streams < most / 0.6, (streams, found.remedies[0])
    assert "has 5,000 streams, and no change" in carried[5_000].reasons[1]
    assert "no change" not in carried[300].reasons[1]


def test_what_carries_most_in_longer_runs_is_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first of the short runs is not, where it carries less when it is tried for longer."""
    longer = {"first": 90, "second": 95, "third": 80}
    asked: list[dict[str, Any]] = []

    def held(hosts: list[dict[str, Any]]) -> list[bool]:
        asked.extend(hosts)
        return [host["streams"] <= longer[host["what"]] for host in hosts]

    def changed(_: halving.Trials, change: halving.Change, streams: int, __: int, seed: int) -> Any:
        return {"what": change.what, "streams": streams, "seed": seed}

    monkeypatch.setattr(halving, "LOWER", 0.9)
    monkeypatch.setattr(halving.Trials, "held", lambda _, hosts, **__: held(hosts))
    monkeypatch.setattr(halving.Trials, "changed", changed)
    of_host = {"seed": 5, "network": None, "duration_ns": 10**9}
    host: Any = SimpleNamespace(host=of_host, has_streams=True)
    carried = [
        (halving.Change(what, ()), streams)
        for what, streams in (("first", 100), ("second", 95), ("third", 95))
    ]
    best, streams = halving.best(halving.Trials(host, STREAMS, 0.0), carried)
    assert (best.what, streams) == ("second", 95)
    assert [what for what, _ in groupby(host["what"] for host in asked)] == ["first", "second"]
    # Those that confirm it have chosen nothing.
    seeds = [host["seed"] for host in asked]
    assert not {*seeds[-halving.SEEDS :]} & {*seeds[: -halving.SEEDS]}


def test_only_what_a_host_with_calls_leaves_open_is_changed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    short_rounds(monkeypatch)
    text = CALLS.replace('"credit"', '"?" # to be found')
    text = text.replace('name = "media"', 'name = "media"\nweight = "?"\naffinity = "?"', 1)
    found = Host.parse(text).design(set=["domain.batch.cap=?"])
    assert found.host is not None
    assert "?" not in found.host
    assert "# to be found" in found.host
    host = Host.parse(found.host).resolved()
    assert host["policy"] == found.policy
    paths = ("host.policy", "domain.media.weight", "domain.media.affinity", "domain.batch.cap")
    for remedy in found.remedies:
        values = re.split(r"(?:, |; )(?=[a-z])", remedy.what)
        assert all(value.startswith(paths) for value in values), remedy.what
    rungs = "domain.media.affinity = [0, 1], domain.media.weight = 256, domain.batch.cap = 0"
    streams = {remedy.what: remedy.streams for remedy in found.remedies}
    assert found.remedies[0].streams > streams[f"host.policy = credit, {rungs}"]
    run = Host.parse(found.host).run(seed=1001, duration="1 s")
    assert run.telephony is not None
    assert run.telephony.voice.loss_ratio < 0.01


def test_a_failure_after_short_runs_is_in_those_that_confirm(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    short_rounds(monkeypatch)
    monkeypatch.setattr(halving, "SEEDS", 1)
    monkeypatch.setattr(halving, "can_be_heard", lambda: False)
    host = Host.load(EXAMPLES / "protect.toml")
    settings = ["protect.domains.1.interval=?", "calls.streams=10", "calls.registrations=10 /s"]
    found = host.design(set=settings)
    assert found.verdict == "holds"
    run = Host.parse(found.host or "").run()
    assert run.telephony is not None
    assert run.telephony.drops.failure > 0
    # The failure alone loses more than that.
    assert host.design(set=[*settings, "calls.acceptance.loss=2 %"]).verdict == "unknown"


def test_a_failure_after_the_end_of_a_short_run_takes_nothing_with_it() -> None:
    """All that media sends in this second is held for one checkpoint, which it does not have."""
    host = Host.load(EXAMPLES / "protect.toml")
    settings = ["protect.domains.1.mode=net", "protect.domains.1.interval=2 s"]
    run = host.run(set=[*settings, *ending(host.resolved(settings), 10**9)])
    assert run.telephony is not None
    assert max(each.waiting for each in run.telephony.protection) > 1000
    assert run.telephony.drops.failure == run.telephony.voice.lost == 0
    assert [each.outage_ns for each in run.telephony.protection] == [None, None]


@pytest.mark.parametrize("seed", [3, 4])
def test_no_combination_carries_much_more_than_the_one_that_is_found(
    monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    """Brute force tries them all, with the packets and loads of the last round."""
    short_rounds(monkeypatch)
    text = CALLS.replace('"credit"', '"?"').replace(
        'name = "media"', 'name = "media"\nweight = "?"', 1
    )
    file = Host.parse(text)
    settings = [f"seed={seed}", "domain.dom0.affinity=?"]
    host = file.resolve(settings)
    of_open = ladders(host.file.open_paths(host.overrides), host)
    host = host.changed(override for ladder in of_open for override in ladder.rungs[0])
    every = [
        halving.Change(str(number), tuple(chain.from_iterable(rungs)))
        for number, rungs in enumerate(product(*(ladder.rungs for ladder in of_open)))
    ]
    assert len(every) == 5 * 4 * 3
    loads = list(range(150, 1051, 150))
    trials = halving.Trials(host, STREAMS, 0.0)
    carried = halving.carried_by(trials, dict.fromkeys(every, loads), 1, 1)
    found = file.design(set=settings)
    assert found.host is not None
    answered = halving.Change("found", ())
    of_answer = halving.Trials(Host.parse(found.host).resolve([]), STREAMS, 0.0)
    assert (
        halving.carried_by(of_answer, {answered: loads}, 1, 1)[answered]
        >= max(carried.values()) - 150
    )
    assert max(carried.values()) > 1.5 * min(carried.values())


OPEN = f"""{CALLS.replace('"credit"', '"deferrable"')}
[[nic]]
name = "card"
[link]
rate = "100 Mbit/s"
agreements = [
    {{ domain = "media", class = 1, minimum = "?", maximum = "?" }},
]
[protect]
pause = "1 ms"
domains = [{{ domain = "media", interval = "?" }}]
"""


@pytest.mark.parametrize(
    ("path", "count"),
    [
        ("host.policy", 5),
        ("domain.dom0.weight", 4),
        ("domain.batch.cap", 5),
        ("domain.media.laxity", 5),
        ("domain.0.affinity", 3),
        ("nic.card.ring", 4),
    ],
)
def test_all_rungs_of_a_ladder_are_values_of_the_file(path: str, count: int) -> None:
    text = CALLS.replace("[calls]", '[[nic]]\nname = "card"\n[calls]')
    host = Host.parse(text).resolve([f"{path}=?"])
    (ladder,) = ladders(host.file.open_paths(host.overrides), host)
    assert len(ladder.rungs) == len(set(ladder.rungs)) == count
    for rung in ladder.rungs:
        assert host.changed(rung).host["domains"]


def test_budgets_and_periods_that_are_open_together_are_one_ladder() -> None:
    text = OPEN
    for kind, values in (
        ("driver", 'budget = "?"\nperiod = "10 ms"'),
        ("media-server", 'budget = "?"\nperiod = "?"'),
        ("cpu-bound", 'budget = "2 ms"\nperiod = "?"'),
    ):
        workload = f'workload = {{ kind = "{kind}"'
        text = text.replace(workload, f'{values}\npriority = "?"\n{workload}')
    host = Host.parse(text).resolve([])
    found = ladders(host.file.open_paths(host.overrides), host)
    assert [ladder.paths for ladder in found] == [
        ("domain.dom0.budget",),
        ("domain.dom0.priority",),
        ("domain.media.budget", "domain.media.period"),
        ("domain.media.priority",),
        ("domain.batch.period",),
        ("domain.batch.priority",),
        ("link.agreements.0.minimum", "link.agreements.0.maximum"),
        ("protect.domains.0.interval",),
    ]
    first = [override for ladder in found for override in ladder.rungs[0]]
    for ladder in found:
        for rung in ladder.rungs:
            domains = host.changed([*first, *rung]).host["domains"]
            assert all(domain["parameters"]["budget_ns"] for domain in domains)


def test_an_open_value_of_which_nothing_is_known_is_named() -> None:
    text = CALLS.replace("streams = 300", 'streams = 300\nsample = "?"')
    with pytest.raises(InputError, match=r"cannot find a value for `calls\.sample`"):
        Host.parse(text).design()


@pytest.mark.parametrize(
    ("cards", "settings"),
    [
        ('[[nic]]\nname = "outer" # to the carrier\nrate = "100 Mbit/s"\nring = 512\n', ()),
        ('[[nic]]\nname = "outer"\ncoalesce = { time = "1 us", packets = 2 }\n', ()),
        ("", ('nic=[{ name = "outer", rate = "100 Mbit/s", ring = 512 }]',)),
        ("", ()),
    ],
)
def test_changes_of_cards_keep_their_other_settings(cards: str, settings: tuple[str, ...]) -> None:
    host = Host.parse(CALLS.replace("[calls]", f"{cards}[calls]")).resolve(settings)
    network = host.host["network"]
    assert network is not None
    before = network["nics"]
    of_cards = [
        change
        for change in changes.changes_of(host.host, has_cards=bool(cards))
        if "cards" in change.kinds
    ]
    assert len(of_cards) == 3
    for change in of_cards:
        written = answered(host, change.overrides)
        assert written.host["network"] == host.changed(change.overrides).host["network"]
        network = written.host["network"]
        assert network is not None
        coalesced = [
            {"coalesce_ns": 1_000_000, "coalesce_packets": 32} if "coalesced" in change.what else {}
        ] * len(before)
        after = network["nics"][: len(before)]
        assert after == [{**card, **new} for card, new in zip(before, coalesced, strict=True)]
        own = network["nics"][len(before) :]
        assert bool(own) == ("itself" in change.what)
        assert all(
            {**card, "name": before[0]["name"], "domain": before[0]["domain"]} == after[0]
            for card in own
        )
        if "#" in cards:
            assert "# to the carrier" in written.text.decode()


def test_changes_of_one_kind_are_not_joined() -> None:
    host = Host.parse(CALLS).resolved()
    every = list(changes.changes_of(host))
    kinds = {kind for change in every for kind in change.kinds}
    assert kinds == {"weight", "cap", "policy", "cards", "CPUs"}
    for joint in halving.joined(every):
        assert len(joint.kinds) == 2
        keys = [override.partition("=")[0] for override in joint.overrides]
        assert len(keys) == len(set(keys))
