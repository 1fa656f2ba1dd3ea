"""A browser without a window, for tests of pages: Chromium, driven as WebDriver (W3C) says."""

from __future__ import annotations

import base64
import json
import re
import shutil
import subprocess
import tempfile
import urllib.error
import urllib.request
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

WAIT_S = 600
"""Only a page that hangs takes so long."""

_SWITCHES = (
    "headless=new",
    "no-sandbox",
    "disable-gpu",
    "disable-dev-shm-usage",
    "hide-scrollbars",
)


def is_there() -> bool:
    """Whether the Debian packages chromium and chromium-driver are installed."""
    return bool(shutil.which("chromium") and shutil.which("chromedriver"))


class Browser:
    """One window."""

    def __init__(self, address: str) -> None:
        self.address = address

    def call(self, method: str, path: str, **body: Any) -> Any:
        """Sends a command; its answer. The driver says what went wrong."""
        content = json.dumps(body).encode() if method == "POST" else None
        request = urllib.request.Request(self.address + path, content, method=method)  # noqa: S310
        request.add_header("Content-Type", "application/json")
        try:
            with urllib.request.urlopen(request, timeout=WAIT_S + 60) as answer:  # noqa: S310
                return json.load(answer)["value"]
        except urllib.error.HTTPError as error:
            message = json.load(error)["value"]["message"]
            raise AssertionError(message) from None

    def open(self, page: Path) -> None:
        """Goes to a file."""
        self.go(page.resolve().as_uri())

    def go(self, address: str) -> None:
        """Goes to an address."""
        self.call("POST", "/url", url=address)

    def run(self, script: str, *arguments: Any) -> Any:
        """The value of a JavaScript function's body."""
        return self.call("POST", "/execute/sync", script=script, args=list(arguments))

    def run_async(self, promise: str) -> Any:
        """What a promise, of an expression, comes to."""
        script = "const done = arguments[arguments.length - 1]; {promise}.then(done)"
        script = script.replace("{promise}", promise)
        return self.call("POST", "/execute/async", script=script, args=[])

    def wait(self, condition: str) -> None:
        """Waits until an expression is true."""
        script = """
            const done = arguments[arguments.length - 1];
            const look = () => (({condition}) ? done(true) : setTimeout(look, 20));
            look();
        """.replace("{condition}", condition)
        self.call("POST", "/execute/async", script=script, args=[])

    def press(self, keys: str) -> None:
        """Presses keys, one after the other."""
        pressed = [{"type": kind, "value": key} for key in keys for kind in ("keyDown", "keyUp")]
        actions = [{"type": "key", "id": "keys", "actions": pressed}]
        self.call("POST", "/actions", actions=actions)

    def click(self, selector: str) -> None:
        """Clicks on what a CSS selector finds first, wherever it stands on the page."""
        self.run("document.querySelector(arguments[0]).click()", selector)

    def size(self, width: int, height: int) -> None:
        """Makes the page as large as that, in pixels."""
        metrics = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
        self.devtools("Emulation.setDeviceMetricsOverride", metrics)

    def scheme(self, scheme: str) -> None:
        """Makes the reader prefer light or dark."""
        features = [{"name": "prefers-color-scheme", "value": scheme}]
        self.devtools("Emulation.setEmulatedMedia", {"features": features})

    def devtools(self, command: str, parameters: dict[str, Any]) -> Any:
        """Sends a command of Chromium's own."""
        return self.call("POST", "/goog/cdp/execute", cmd=command, params=parameters)

    def picture(self, path: Path) -> None:
        """Writes what is seen."""
        path.write_bytes(base64.b64decode(self.call("GET", "/screenshot")))


@contextmanager
def browser() -> Iterator[Browser]:
    """A browser that ends with the context."""
    with tempfile.TemporaryDirectory(prefix="browser.", ignore_cleanup_errors=True) as home:
        driver = subprocess.Popen(
            ["chromedriver", "--port=0"],  # noqa: S607
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        try:
            assert driver.stdout
            said = (re.search(r"successfully on port (\d+)", line) for line in driver.stdout)
            port = next(match[1] for match in said if match)
            base = Browser(f"http://127.0.0.1:{port}/session")
            switches = [f"--{each}" for each in _SWITCHES] + [f"--user-data-dir={home}"]
            options = {
                "binary": shutil.which("chromium"),
                "args": switches,
                "browserStartupTimeout": WAIT_S * 1000,
            }
            timeouts = {"script": WAIT_S * 1000, "pageLoad": WAIT_S * 1000}
            always = {"goog:chromeOptions": options, "timeouts": timeouts}
            session = base.call("POST", "", capabilities={"alwaysMatch": always})
            window = Browser(f"{base.address}/{session['sessionId']}")
            try:
                yield window
            finally:
                window.call("DELETE", "")
        finally:
            driver.terminate()
            driver.wait()
