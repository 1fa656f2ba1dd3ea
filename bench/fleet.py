"""How long `laxity design` takes for a random fleet, and how good its answer is.

python -m bench.fleet [--hosts 500] [--guests 3000] [--seed 1] [--today]

Every third guest is protected, every fifth has an agreement, and some pairs are apart. With
`--today` the guests are where a first answer has put them, and then a tenth of them moves at
random: what is asked is the way back.
"""

from __future__ import annotations

import argparse
import random
import time

from laxity.fleet.fleet import Fleet

PERIODS_MS = (4, 5, 8, 10, 20, 40)

CPUS = 4

LOADS = 0.1, 0.7
"""The least and the greatest part of a CPU that a guest's tasks need."""


def text_of(hosts: int, guests: int, seed: int, today: dict[str, tuple[str, str | None]]) -> str:
    """A fleet file; `today` has the host of guests and of their standbys."""
    draw = random.Random(seed)  # noqa: S311 - no secret
    lines = ['duration = "1 s"', "[every-host]", f'cpus = {CPUS}\npolicy = "deferrable"']
    lines.append('costs = { schedule = "200 ns", context-switch = "2 us" }')
    lines += [f'[[host]]\nname = "h{host}"\nlink = "1 Gbit/s"' for host in range(hosts)]
    for number in range(guests):
        name = f"g{number}"
        lines.append(f'[[guest]]\nname = "{name}"')
        where = today.get(name)
        if where is not None:
            lines.append(f'host = "{where[0]}"')
        if where is not None and where[1] is not None:
            lines.append(f'standby = "{where[1]}"')
        elif number % 3 == 0:
            lines.append("protected = true")
        if number % 5 == 0:
            lines.append(f'minimum = "{draw.randrange(50, 250)} Mbit/s"')
        tasks = []
        count, load = draw.randint(1, 3), draw.uniform(*LOADS)
        for task in range(count):
            period_ms = draw.choice(PERIODS_MS)
            cost_us = round(load / count * 1000 * period_ms)
            tasks.append(
                f'{{ name = "t{task}", cost = "{cost_us} us", period = "{period_ms} ms" }}'
            )
        lines.append(f"tasks = [{', '.join(tasks)}]")
    for number in range(0, guests - 1, 10):
        lines.append(f'[[apart]]\nguests = ["g{number}", "g{number + 1}"]')
    return "\n".join(lines) + "\n"


def main() -> None:
    """Prints a line for each answer."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--hosts", type=int, default=500)
    parser.add_argument("--guests", type=int, default=3000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--today", action="store_true")
    asked = parser.parse_args()
    today: dict[str, tuple[str, str | None]] = {}
    for turn in range(2 if asked.today else 1):
        text = text_of(asked.hosts, asked.guests, asked.seed, today)
        begin_s = time.perf_counter()
        cpu_begin_s = time.process_time()
        found = Fleet.parse(text).design()
        took_s = time.perf_counter() - begin_s
        print(
            f"{asked.hosts} hosts, {asked.guests} guests, seed {asked.seed}"
            f"{', a tenth moved away' if turn else ''}: {found.verdict}, {found.moved} moves "
            f"(at least {found.moves_least}), {took_s:.1f} s, "
            f"{time.process_time() - cpu_begin_s:.1f} CPU s"
        )
        standbys = {guest: host.name for host in found.hosts for guest in host.standbys}
        today = {
            guest: (host.name, standbys.get(guest)) for host in found.hosts for guest in host.guests
        }
        draw = random.Random(asked.seed)  # noqa: S311 - no secret
        for guest in draw.sample(sorted(today), len(today) // 10):
            others = [f"h{host}" for host in range(asked.hosts)]
            away = draw.choice([host for host in others if host not in today[guest]])
            today[guest] = (away, today[guest][1])


if __name__ == "__main__":
    main()
