"""How long the page of `laxity serve` takes from the last key to its answer, in a browser.

python -m bench.serve [--keys 20] [--question check]

For each shipped example and each question that is answered while one types, a key is pressed in the
editor, time and again: its time begins with the key's event, and ends when the page shows the
answer: what is wrong, where the example is a fleet or a site. All of it is by the clock: the
machine should have nothing else to do.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from threading import Thread

from laxity.serve.server import Server

from bench.measure import ROOT

sys.path.insert(0, str(ROOT / "python" / "tests"))

import browser

ASKED_MS = 200

QUESTIONS = ("check", "run", "why")

SPACE, BACKSPACE = " ", "\ue003"

PREPARED = """
    const now = document.querySelector("#now");
    const text = document.querySelector("#text");
    window.tookMs = [];
    let begin = 0;
    text.addEventListener("keydown", () => { begin = performance.now(); });
    new MutationObserver(() => {
      if (begin && !now.classList.contains("asking")) {
        requestAnimationFrame(() => { window.tookMs.push(performance.now() - begin); begin = 0; });
      }
    }).observe(now, { attributes: true, attributeFilter: ["class"] });
    text.focus();
    text.setSelectionRange(text.value.length, text.value.length);
"""
"""Watches the page. An answer is there when the next frame is drawn."""


def took_ms(
    window: browser.Browser, server: Server, text: str, question: str, keys: int
) -> list[float]:
    """The time of each key but the first two, which load what later ones find."""
    server.text = text
    window.go(server.address)
    window.click(f"[data-question={question}]")
    window.wait(f"document.querySelector('#now h2').textContent === '{question}'")
    window.wait("!document.querySelector('#now').classList.contains('asking')")
    window.run(PREPARED)
    for number in range(keys + 2):
        window.press(BACKSPACE if number % 2 else SPACE)
        window.wait(f"window.tookMs.length === {number + 1}")
    found = window.run("return window.tookMs")
    return [float(ms) for ms in found[2:]]


def main() -> None:
    """Prints a line for each example and question, and the longest of all."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--keys", type=int, default=20)
    parser.add_argument("--question", choices=QUESTIONS)
    asked = parser.parse_args()
    longest_ms = 0.0
    examples = sorted((ROOT / "examples").glob("*.toml"))
    with Server("") as server, browser.browser() as window:
        Thread(target=server.serve_forever, daemon=True).start()
        for example in examples:
            text = example.read_text()
            for question in (asked.question,) if asked.question else QUESTIONS:
                ms = took_ms(window, server, text, question, asked.keys)
                longest_ms = max(longest_ms, *ms)
                print(
                    f"{example.name:24} {question:6} median {statistics.median(ms):5.0f} ms, "
                    f"longest {max(ms):5.0f} ms",
                    flush=True,
                )
        server.shutdown()
    met = "met" if longest_ms < ASKED_MS else "not met"
    print(f"the longest of all: {longest_ms:.0f} ms; asked for: below {ASKED_MS} ms: {met}")


if __name__ == "__main__":
    main()
