"""Voice quality: from the packets of a call to what is heard of it, and to a score.

`score` takes a `Call` (which packets were sent, and when each arrived), plays the reference speech
through it (G.711, G.722 or Opus, a playout buffer, concealment of what is missing) and compares
what comes out with what went in: PESQ. Beside it stands the E-model's rating from delay and loss.
"""

from laxity.voice.call import LOST, Call, Opus
from laxity.voice.playout import BUFFER_NS
from laxity.voice.quality import (
    SHORTEST_S,
    TOLL_QUALITY,
    CallQuality,
    Summary,
    score,
    score_calls,
    summary,
)

__all__ = [
    "BUFFER_NS",
    "LOST",
    "SHORTEST_S",
    "TOLL_QUALITY",
    "Call",
    "CallQuality",
    "Opus",
    "Summary",
    "score",
    "score_calls",
    "summary",
]
