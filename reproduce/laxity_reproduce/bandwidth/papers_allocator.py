"""The paper's allocator, for comparison: CCNC 2012, section V-A.

Amamou, Bourguiba, Haddadou and Pujolle, "A Dynamic Bandwidth Allocator for Virtual Machines in a
Cloud Environment". It adjusts the rates at which the interfaces transmit, and knows nothing of
demand. Only what cannot run, or cannot be meant, as it is printed is changed:

1. "between B max and B min (B max < B < B min)" is empty; the bounds are the other way round.
2. "whether (B - B min) < B ex" always holds, since B is below B min; what is missing is B min - B.
   It may be all of B ex, or figure 4's classes 2 and 3 would be cut down in every other period.
3. "B <- B min; B ex <- B ex + (B - B min)" adds nothing, since B is B min by then; the difference
   is taken first.
4. The same step on an interface below its minimum would raise it and make B ex negative; only those
   above their minimum are brought down to it.
5. The paper says to whom B ex goes at the end only as "based on their priorities". Figure 4 shows
   200 and 100 Mbit/s of 300 going to classes 2 and 3, beyond their maxima. B ex is therefore
   divided among those who reach their maximum, in proportion to their rank counted from the lowest
   class (3, 2 and 1 for three classes).

One oddity is kept as printed: an interface that is helped needs B ex above its whole minimum, not
above what is missing; where that fails it is set to B ex alone, whatever it had.
"""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence


class Interface(NamedTuple):
    """An interface as the paper's daemon sees it; rates in bit/s."""

    number: int
    """Class, from 1, the most important."""
    minimum_bit_s: int
    maximum_bit_s: int
    measured_bit_s: int
    """The rate at which it transmits."""


def adjust(link_bit_s: int, seen: Sequence[tuple[int, int, int, int]]) -> list[int]:
    """The rates after one pass, in bit/s, in the order of `seen`, each as an `Interface`."""
    interfaces = [Interface(*each) for each in seen]
    order = sorted(range(len(interfaces)), key=lambda at: interfaces[at].number)
    rates = [each.measured_bit_s for each in interfaces]
    # Negative where the interfaces transmit more than the link carries, before anyone is cut.
    spare = link_bit_s - sum(rates)
    held: set[int] = set()
    for at in order:
        minimum, maximum = interfaces[at].minimum_bit_s, interfaces[at].maximum_bit_s
        if rates[at] >= maximum:
            spare += rates[at] - maximum
            rates[at] = maximum
            held.add(at)
        elif rates[at] < minimum:
            missing = minimum - rates[at]
            if missing <= spare:
                spare -= missing
                rates[at] = minimum
                continue
            for group in _others_to_cut(interfaces, order, at):
                for other in group:
                    floor = interfaces[other].minimum_bit_s
                    spare += max(0, rates[other] - floor)
                    rates[other] = min(rates[other], floor)
                held.difference_update(group)
                if spare > minimum:
                    spare -= minimum - rates[at]
                    rates[at] = minimum
                else:
                    rates[at] = max(0, spare)
                    spare = 0
    for at, share_bit_s in _shares(spare, interfaces, held).items():
        rates[at] += share_bit_s
    return rates


def _others_to_cut(
    interfaces: Sequence[Interface], order: Sequence[int], at: int
) -> list[list[int]]:
    """The interfaces that the interface `at` may bring down to their minima, in groups.

    These are the classes below its own, from the lowest, or the others of its own class if there is
    none below.
    """
    own = interfaces[at].number
    classes = {
        number: list(group)
        for number, group in groupby(order, key=lambda each: interfaces[each].number)
    }
    below = [group for number, group in classes.items() if number > own]
    return below[::-1] or [[other for other in classes[own] if other != at]]


def _shares(spare: int, interfaces: Sequence[Interface], held: set[int]) -> dict[int, int]:
    """What each interface at its maximum gets of what is left, in bit/s."""
    classes = {each.number for each in interfaces}
    ranks = {at: sum(each >= interfaces[at].number for each in classes) for at in held}
    whole = sum(ranks.values())
    return {at: spare * rank // whole for at, rank in ranks.items()} if spare > 0 else {}
