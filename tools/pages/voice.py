"""Writes docs/results/voice.md: what loss, codec and transcoding cost the reference speech.

.venv/bin/python tools/pages/voice.py
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from laxity import voice
from laxity.voice import LOST, Call, Opus, playout, quality

if TYPE_CHECKING:
    from laxity.voice.call import Coding

PAGE = Path(__file__).parents[2] / "docs" / "results" / "voice.md"
PACKETS = 1500
PACKET_NS = 20_000_000
DELAY_NS = 5_000_000
LOSSES = (0.0, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2)
CALLS = 20
"""At each loss, seeds from 0 on."""

HEAD = """\
# Voice quality: what loss costs

Written by `make results-voice`. Calls last 30 s, with {delay:g} ms of delay, the default playout
buffer and G.711 mu-law in packets of 20 ms. Each loss has {calls} calls, with packets lost at
random (seeds from 0 on). Each value is the mean, with the worst and the best call.

| lost % | PESQ (P.862) | MOS-LQO (P.862.1) | that without concealment | R | E-model's MOS |
|---|---|---|---|---|---|
"""

TAIL = """
The same for other codecs: the mean PESQ, and MOS-LQO without loss. All are compared as narrow-band
speech, so that nothing tells of the bandwidth beyond. Where Opus has error correction, each packet
has a copy of the one before.

| coded in | MOS-LQO at 0 % | {losses} |
|---|---|{rules}
"""
CODED: tuple[tuple[str, tuple[Coding, ...]], ...] = (
    ("G.711, mu-law", ("mu",)),
    ("G.711, A-law", ("a",)),
    ("G.711, mu-law, then A-law", ("mu", "a")),
    ("G.722", ("g722",)),
    ("Opus, wide-band, 24 kbit/s", (Opus(24_000),)),
    ("Opus, full-band, 32 kbit/s", (Opus(32_000, "full"),)),
    (
        "Opus, full-band, 32 kbit/s, with error correction",
        (Opus(32_000, "full", error_correction=True),),
    ),
)
CODED_LOSSES = (0.0, 0.01, 0.05, 0.1)


def call(loss: float, seed: int, laws: tuple[Coding, ...] = ("mu",)) -> Call:
    """One whose packets are lost at random."""
    sent_ns = np.arange(PACKETS) * PACKET_NS
    lost = np.random.default_rng(seed).random(PACKETS) < loss
    arrived_ns = np.where(lost, LOST, sent_ns + DELAY_NS)
    return Call("call", np.arange(PACKETS), sent_ns, arrived_ns, laws=laws)


def main() -> None:
    """Writes the page."""
    lines = [HEAD.format(delay=DELAY_NS / 1e6, calls=CALLS)]
    for loss in LOSSES:
        calls = [call(loss, seed) for seed in range(CALLS if loss else 1)]
        found = voice.score_calls(calls)
        bare = [_without_concealment(one) for one in calls]
        rows = ([one.pesq for one in found], [one.mos_lqo for one in found], bare)
        cells = [f"{np.mean(row):.2f} ({min(row):.2f} to {max(row):.2f})" for row in rows]
        r, mos = (np.mean([getattr(one, key) for one in found]) for key in ("r", "e_model_mos"))
        lines.append(f"| {100 * loss:g} | {' | '.join(cells)} | {r:.1f} | {mos:.2f} |\n")
    losses = " | ".join(f"PESQ at {100 * loss:g} %" for loss in CODED_LOSSES)
    lines.append(TAIL.format(losses=losses, rules="---|" * len(CODED_LOSSES)))
    for name, laws in CODED:
        of_losses = [
            voice.score_calls([call(loss, seed, laws) for seed in range(CALLS if loss else 1)])
            for loss in CODED_LOSSES
        ]
        pesq = " | ".join(f"{np.mean([one.pesq for one in of_loss]):.2f}" for of_loss in of_losses)
        lines.append(f"| {name} | {of_losses[0][0].mos_lqo:.2f} | {pesq} |\n")
    PAGE.write_text("".join(lines))
    print(f"wrote {PAGE}")


def _without_concealment(one: Call) -> float:
    """MOS-LQO if there is silence where packets are missing."""
    heard = playout.fixed(one).heard
    samples = quality.audio(one, playout.Playout(np.ones_like(heard), heard, heard, 0))
    silenced = np.where(np.repeat(heard, samples.size // heard.size), samples, 0)
    judged = quality.judge([silenced.astype(np.int16)], silenced.size)
    return np.nan if judged is None else judged[1]


if __name__ == "__main__":
    main()
