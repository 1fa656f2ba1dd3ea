"""`laxity voice`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from laxity.cli.command import examples, typer_app
from laxity.cli.console import print_json, print_rich, progress_bar
from laxity.cli.options import JsonOption, time_ns

app = typer_app()


@app.command(
    epilog=examples(
        "voice calls.pcap",
        "voice calls.pcapng --playout '40 ms' --one-in 4 --json",
        "voice calls.pcap --adaptive",
        "voice calls.pcap --opus 111",
        "voice calls.pcap --wav heard",
    )
)
def voice(
    capture: Annotated[
        Path, typer.Argument(metavar="CAPTURE", help="pcap or pcapng, taken near the receiver.")
    ],
    playout: Annotated[
        str, typer.Option(metavar="TIME", help="How long the playout buffer holds a packet.")
    ] = "60 ms",
    adaptive: Annotated[
        bool,
        typer.Option("--adaptive", help="Let the buffer follow the delay from that depth on."),
    ] = False,
    opus: Annotated[
        list[int] | None,
        typer.Option(
            metavar="TYPE",
            min=96,
            max=127,
            help="A payload type that is Opus, if no SIP in the capture says what it is.",
        ),
    ] = None,
    one_in: Annotated[
        int, typer.Option(metavar="N", min=1, help="Score every Nth call; 4 as in the papers.")
    ] = 1,
    wav: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Write the heard speech of each call to a new directory."),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """What did the calls in a capture sound like?

    Plays reference speech through the arrival times of each stream of G.711, G.722 or Opus, and
    scores the result with PESQ and with the E-model.
    """
    from laxity.voice.scored_capture import refuse_unless_new, score_capture

    playout_ns = time_ns(playout, "--playout", "60 ms")
    if wav is not None:
        refuse_unless_new(wav)
    with progress_bar("scoring") as progress:
        result = score_capture(
            capture, playout_ns, one_in, progress, adaptive=adaptive, opus=opus or ()
        )
    if wav is not None:
        result.write_wav(wav)
    if as_json:
        print_json(result.to_json())
    else:
        from laxity.tables.voice import voice_table

        print_rich(voice_table(result))
        if wav is not None:
            print(f"Written to {wav}")
