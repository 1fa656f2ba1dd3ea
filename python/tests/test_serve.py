"""The page of `laxity serve`: what it answers, and whom and what it refuses."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from contextlib import ExitStack, contextmanager
from http.client import HTTPConnection
from threading import Thread
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import browser
import pytest
from conftest import EXAMPLES, HOST, HOST_FILES
from laxity import Host
from laxity.serve import questions
from laxity.serve import server as serving
from laxity.serve.questions import QUESTIONS, answered
from laxity.serve.server import Server
from laxity.substrates.sim import Sim

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from conftest import Laxity

LOOPS = (EXAMPLES / "three-loops.toml").read_text()


@contextmanager
def served(text: str = HOST, **options: Any) -> Iterator[Server]:
    """A server on loopback, on any port that is free. A busy computer answers late."""
    with Server(text, **{"answer_s": 600, **options}) as server:
        thread = Thread(target=server.serve_forever)
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with served() as server:
        yield server


def asked(
    server: Server,
    path: str,
    body: bytes | str | None = None,
    *,
    token: str | None = "",
    **headers: str,
) -> tuple[int, dict[str, str], bytes]:
    """Returns status, headers and content; the token is the right one unless another is given."""
    connection = HTTPConnection("127.0.0.1", server.server_port, timeout=600)
    method = "GET" if body is None else "POST"
    if token is not None:
        headers[serving.TOKEN] = token or server.token
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    connection.request(method, path, body, named)
    answer = connection.getresponse()
    content = answer.read()
    connection.close()
    return answer.status, dict(answer.headers), content


def answer_to(server: Server, question: str, text: str) -> dict[str, Any]:
    status, _, content = asked(server, f"/ask/{question}", text)
    assert status == 200, content
    found: dict[str, Any] = json.loads(content)
    return found


# What is refused


def test_the_page_is_for_those_who_have_its_address(server: Server) -> None:
    path = server.address.partition(str(server.server_port))[2]
    status, headers, content = asked(server, path, token=None)
    assert status == 200
    assert content.startswith(b"<!DOCTYPE html>")
    assert "default-src 'none'" in headers["Content-Security-Policy"]
    assert headers["Referrer-Policy"] == "no-referrer"
    for wrong in ("/", "/?token=", "/?token=x", path[:-1], "/?token=%ff%00"):
        status, _, content = asked(server, wrong, token=None)
        assert status == 403, wrong
        assert server.token.encode() not in content
    begin = json.loads(asked(server, "/begin")[2])
    assert begin["text"] == HOST
    assert "properties" in begin["schema"]


@pytest.mark.parametrize("path", ["/begin", *(f"/ask/{question}" for question in QUESTIONS)])
def test_no_answer_without_the_token_or_from_elsewhere(server: Server, path: str) -> None:
    body = None if path == "/begin" else HOST
    here = f"http://127.0.0.1:{server.server_port}"
    for status, options in (
        (403, {"token": None}),
        (403, {"token": "x"}),
        (403, {"token": server.token + "x"}),
        (403, {"Origin": "http://example.org"}),
        (403, {"Origin": "null"}),
        (403, {"Origin": f"http://127.0.0.1:{server.server_port + 1}"}),
        (403, {"Sec_Fetch_Site": "cross-site"}),
        (403, {"Sec_Fetch_Site": "same-site"}),
        (421, {"Host": "example.org"}),
        (421, {"Host": f"example.org:{server.server_port}"}),
        (421, {"Host": "127.0.0.1"}),
        (200, {"Origin": here, "Sec_Fetch_Site": "same-origin"}),
        (200, {"Host": f"localhost:{server.server_port}"}),
    ):
        found, _, content = asked(server, path, body, **options)  # type: ignore[arg-type]
        assert found == status, (options, content)


def test_it_listens_on_loopback_only(server: Server) -> None:
    assert server.server_address[0] == "127.0.0.1"


# Limits


def test_requests_beyond_the_limits_are_refused(server: Server) -> None:
    too_long = str(serving.BODY_BYTES_MAX + 1)
    for status, path, body, headers in (
        (413, "/ask/check", "x", {"Content_Length": too_long}),
        (413, "/ask/check", "x", {"Content_Length": "9" * 5000}),
        (411, "/ask/check", "x", {"Content_Length": "-1"}),
        (411, "/ask/check", "x", {"Content_Length": "1_0"}),
        (400, "/ask/check", b"\xff", {}),
        (404, "/ask/other", "x", {}),
        (404, "/ask/", "x", {}),
        (404, "/../pyproject.toml", None, {}),
        (404, "/page.py", None, {}),
    ):
        found, _, content = asked(server, path, body, **headers)  # type: ignore[arg-type]
        assert found == status, (path, headers, content)
        assert json.loads(content)["refused"]
    # The same server goes on.
    assert answer_to(server, "check", HOST)["problems"] == []


def test_what_takes_too_long_is_given_up() -> None:
    with served(answer_s=0.0) as hurried:
        for _ in range(serving.PROCESSES + 1):
            status, _, content = asked(hurried, "/ask/check", HOST)
            assert status == 504
            assert b"try laxity check" in content


def test_more_questions_than_processes_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serving, "WAIT_S", 0.01)
    with served() as busy:
        taken = [busy.answerers._idle.get() for _ in range(serving.PROCESSES)]
        assert asked(busy, "/ask/check", HOST)[0] == 503
        for process in taken:
            busy.answerers._idle.put(process)
        assert asked(busy, "/ask/check", HOST)[0] == 200


def test_a_process_that_dies_is_replaced() -> None:
    with served() as server:
        for process in list(server.answerers._idle.queue):
            os.kill(process.program.pid, signal.SIGKILL)
            process.program.wait()
        status, _, content = asked(server, "/ask/check", HOST)
        assert status == 500
        assert b"has died" in content
        assert asked(server, "/ask/check", HOST)[0] == 200


@pytest.mark.slow
def test_strangers_make_room_for_the_newest_and_keep_no_reader_out() -> None:
    with served(request_s=600) as server, ExitStack() as stack:
        address = ("127.0.0.1", server.server_port)
        reader = HTTPConnection(*address, timeout=600)
        stack.callback(reader.close)
        reader.request("GET", "/begin", headers={serving.TOKEN: server.token})
        assert reader.getresponse().read()  # It stays open.
        strangers = [
            stack.enter_context(socket.create_connection(address))
            for _ in range(serving.STRANGERS_MAX + 3)
        ]
        assert asked(server, "/begin")[0] == 200
        for oldest in strangers[:3]:
            assert oldest.recv(1) == b""
        reader.request("GET", "/begin", headers={serving.TOKEN: server.token})
        assert reader.getresponse().status == 200


@pytest.mark.parametrize("begun", ["", "POST /ask/check HTTP/1.1\r\nX: "])
def test_a_request_that_drips_is_given_up(begun: str) -> None:
    """Each byte is soon there; the request never is."""
    with (
        served(request_s=0.5) as server,
        socket.create_connection(("127.0.0.1", server.server_port)) as connection,
        pytest.raises(ConnectionError),
    ):
        drip(connection, begun.encode() + b"x" * 3000)


def drip(connection: socket.socket, text: bytes) -> None:
    for byte in text:
        connection.send(bytes([byte]))
        time.sleep(0.02)


def test_each_request_of_a_connection_has_a_deadline_of_its_own(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now_s = 0.0
    monkeypatch.setattr(serving, "time", SimpleNamespace(monotonic=lambda: now_s))
    sender, receiver = socket.socketpair()
    with sender, receiver:
        sender.sendall(b"three")
        incoming = serving.Incoming(receiver, request_s=600)
        assert incoming.read(2) == b"th"
        now_s = 599.0
        assert incoming.read(2) == b"re"
        now_s = 600.0
        with pytest.raises(TimeoutError):
            incoming.read(1)
        incoming.begin()
        assert incoming.read(1) == b"e"


# Answers


def test_what_is_wrong_has_its_line_and_column(server: Server) -> None:
    found = answer_to(server, "check", HOST.replace("policy =", "polcy =", 1))
    assert found["good"] is False
    first = found["problems"][0]
    assert (first["line"], first["column"]) == (6, 1)
    assert first["help"] == "did you mean `policy`?"


def test_questions_are_answered_as_by_the_commands(server: Server, laxity: Laxity) -> None:
    example = EXAMPLES / "integrator.toml"
    text = example.read_text()
    check = answer_to(server, "check", text)
    assert check["good"] is True
    shown = laxity("check", example).stdout.replace(str(example), "host.toml")
    assert check["text"].split() == shown.split()
    run = answer_to(server, "run", text)
    assert run["good"] is True
    assert "control" in run["text"]
    late = answer_to(server, "why", (EXAMPLES / "overload.toml").read_text())
    assert late["good"] is False
    assert late["text"]
    design = answer_to(server, "design", LOOPS)
    assert design["good"] is True
    assert answer_to(server, "check", design["host"])["good"] is True


@pytest.mark.parametrize("question", ["run", "why"])
def test_a_run_is_shortened_to_before_a_first_job_of_a_helper(question: str) -> None:
    helper = 'name = "io", cost = "1 ms", period = "5 ms", offset = "10 h"'
    text = f"""
        duration = "20 h"
        host = {{ cpus = 1, policy = "eevdf" }}
        [[domain]]
        name = "web"
        helpers = [{{ {helper} }}]
        tasks = [{{ name = "serve", cost = "1 ms", period = "10 ms" }}]
    """
    found = answered((question, text))
    assert found["problems"] == []
    assert found["note"]


@pytest.mark.parametrize("path", HOST_FILES, ids=lambda path: path.stem)
def test_every_example_is_answered(path: Path) -> None:
    for question in ("check", "run"):
        found = answered((question, path.read_text()))
        assert found["problems"] == []
        assert len(found["text"]) > 100, found


def test_a_long_run_is_shortened_and_says_so() -> None:
    text = HOST.replace('duration = "1 s"', 'duration = "20 h"')
    found = answered(("run", text))
    assert re.fullmatch(
        r"The first [\d.e+]+ s of 7\.2e\+04 s; laxity run takes all\.", found["note"]
    )
    assert answered(("run", HOST))["note"] is None


@pytest.mark.parametrize("question", ["run", "why"])
def test_a_run_is_shortened_to_before_a_first_job(question: str) -> None:
    text = HOST.replace('duration = "1 s"', 'duration = "20 h"')
    text = text.replace('period = "40 ms" }', 'period = "40 ms", offset = "10 h" }')
    found = answered((question, text))
    assert found["problems"] == []
    assert found["note"]


@pytest.mark.parametrize("path", HOST_FILES, ids=lambda path: path.stem)
def test_what_is_simulated_while_one_types_is_short(path: Path) -> None:
    host = Host.parse(path.read_text())
    for most_ns in (questions.RUN_NS, questions.TRACED_RUN_NS):
        overrides, note = questions._shortened(host, most_ns)
        assert bool(overrides) is (note is not None)
        estimate = Sim().estimate([host.resolve(overrides)])
        # What does not grow with the duration is in the estimate too.
        assert estimate.cpu_ns <= 1.1 * most_ns


# The page, in a browser

needs_browser = pytest.mark.skipif(
    not browser.is_there(), reason="needs the Debian packages chromium and chromium-driver"
)

BACKSPACE, RIGHT = "\ue003", "\ue014"


class Page:
    """The page of a server, in a browser."""

    def __init__(self, server: Server, window: browser.Browser) -> None:
        self.server, self.window = server, window

    def open(self, text: str, question: str = "check") -> None:
        self.server.text = text
        self.window.go(self.server.address)
        self.window.wait(f"document.querySelector('#text').value === {json.dumps(text)}")
        self.window.click(f"[data-question={question}]")
        self.await_answer(question)

    @property
    def text(self) -> str:
        return str(self.window.run("return document.querySelector('#text').value"))

    def put_cursor(self, before: str) -> None:
        """Puts the cursor before the first place with this text."""
        self.window.run(
            """
            const text = document.querySelector("#text");
            const place = text.value.indexOf(arguments[0]);
            text.focus();
            text.setSelectionRange(place, place);
            text.click();
            """,
            before,
        )

    def await_answer(self, question: str) -> None:
        """Waits until the page shows what is answered about the text as it is."""
        expected = json.dumps(answered((question, self.text))["text"])
        self.window.wait(f"document.querySelector('#now pre').textContent === {expected}")
        self.window.wait("!document.querySelector('#now').classList.contains('asking')")

    def shown(self, selector: str) -> str:
        script = "return document.querySelector(arguments[0]).innerText"
        return str(self.window.run(script, selector))


@pytest.fixture(scope="module")
def page() -> Iterator[Page]:
    with pytest.MonkeyPatch.context() as patch:
        # A busy machine may take long.
        patch.setattr(serving, "WAIT_S", browser.WAIT_S)
        with (
            served(answer_s=browser.WAIT_S, request_s=browser.WAIT_S) as server,
            browser.browser() as window,
        ):
            window.size(1400, 900)  # A narrow page has one column.
            yield Page(server, window)


@needs_browser
def test_the_editor_is_answered_as_one_types(page: Page) -> None:
    page.open(HOST)
    assert page.shown("#now h2") == "check"
    page.put_cursor("policy = ")
    assert page.shown("#help").startswith("policy: ")
    page.window.press("x")
    page.window.wait("document.querySelector('#problems li')")
    assert "line 6, column 1" in page.shown("#problems")
    assert "did you mean `policy`?" in page.shown("#problems")
    assert page.shown("#lines .wrong").strip() == "6"
    page.put_cursor("duration")
    page.window.click("#problems button")
    cursor = page.window.run("return document.querySelector('#text').selectionStart")
    assert cursor == page.text.index("xpolicy")
    page.window.press(RIGHT + BACKSPACE)
    assert page.text == HOST
    page.await_answer("check")
    page.window.wait("!document.querySelector('#problems li')")
    for question in ("run", "why"):
        page.window.click(f"[data-question={question}]")
        page.window.wait(f"document.querySelector('#now h2').textContent === '{question}'")
        assert "hungry" in page.shown("#now pre")


@needs_browser
def test_a_slider_changes_a_value_and_its_answer(page: Page) -> None:
    page.open(HOST)
    page.put_cursor('budget = "2 ms"')
    before = page.shown("#now pre")
    slider = "#sliders label:nth-child(1)"
    assert page.shown("#whose") == "Values of control"
    assert page.shown(slider).split() == ["budget", "2", "ms"]
    page.window.run(f"document.querySelector('{slider} input').focus()")
    page.window.press(RIGHT * 100)
    assert page.text == HOST.replace('budget = "2 ms"', 'budget = "4 ms"')
    assert page.shown(slider).split() == ["budget", "4", "ms"]
    page.await_answer("check")
    assert page.shown("#now pre") != before


@needs_browser
def test_two_files_are_compared_side_by_side(page: Page) -> None:
    page.open(HOST)
    before = page.shown("#now pre")
    page.window.click("#keep")
    page.put_cursor('ms"\nperiod = "10 ms"')
    page.window.press("0")
    page.await_answer("check")
    assert page.shown("#kept pre") == before != page.shown("#now pre")
    sides = page.window.run(
        """
        const place = (name) => document.querySelector(name).getBoundingClientRect();
        return [place("#now").right <= place("#kept").left, place("#now").top - place("#kept").top];
        """
    )
    assert sides == [True, 0]
    page.window.click("#kept summary")
    difference = page.shown("#kept .difference").splitlines()
    assert difference == ['- budget = "2 ms"', '+ budget = "2 0ms"']
    page.window.click("#drop")
    assert page.window.run("return document.querySelector('#kept').hidden")


@pytest.mark.slow
@needs_browser
def test_a_design_is_written_into_the_file(page: Page) -> None:
    page.open(LOOPS, "design")
    page.window.click("#take")
    assert page.text == answered(("design", LOOPS))["host"]
    page.window.click("[data-question=check]")
    page.await_answer("check")
    page.window.wait("document.querySelector('#now').className === 'good'")


@needs_browser
def test_other_pages_are_refused_in_a_browser(page: Page, tmp_path: Path) -> None:
    page.open(HOST)
    here = f"http://127.0.0.1:{page.server.server_port}"
    headers = json.dumps({serving.TOKEN: page.server.token})

    def fetched(options: str) -> Any:
        call = f"fetch('{here}/ask/check', {{ method: 'POST', body: 'x', {options} }})"
        return page.window.run_async(f"{call}.then((answer) => answer.status, String)")

    assert fetched(f"headers: {headers}") == 200
    assert fetched("") == 403
    other = tmp_path / "other.html"
    other.write_text(f"<!DOCTYPE html><title>other</title><iframe src='{page.server.address}'>")
    page.window.open(other)
    assert "TypeError" in fetched(f"headers: {headers}")
    assert "TypeError" in fetched("")
    # The page shows in no frame.
    page.window.call("POST", "/frame", id=0)
    assert not page.window.run("return document.querySelector('#text')")
    for address in (here, f"{here}/?token={page.server.token}x"):
        page.window.go(address)
        assert "open the address that `laxity serve` printed" in page.shown("body")


@needs_browser
def test_the_page_says_that_a_file_is_too_long(page: Page) -> None:
    page.open(HOST)
    page.window.run(
        """
        const text = document.querySelector("#text");
        text.value = "#".repeat(arguments[0]) + "\\n" + text.value;
        text.dispatchEvent(new Event("input"));
        """,
        serving.BODY_BYTES_MAX,
    )
    # Until then the answer about the file as it was stands there.
    said = json.dumps("a host file has at most 1,048,576 bytes here")
    page.window.wait(f"document.querySelector('#now pre').textContent === {said}")
    assert page.window.run("return document.querySelector('#now').className") == "bad"


# The command


@contextmanager
def command(host: Path) -> Iterator[tuple[int, str]]:
    """The command with a file: its port and its token."""
    program = subprocess.Popen(
        [sys.executable, "-c", "from laxity.cli import main; main()", "serve", str(host)],
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert program.stdout is not None
        line = program.stdout.readline()
        found = re.fullmatch(r"Open http://127\.0\.0\.1:(\d+)/\?token=([\w-]{32})\n", line)
        assert found, line
        yield int(found[1]), found[2]
    finally:
        program.send_signal(signal.SIGINT)
        assert program.wait(600) == 130


def begun(port: int, token: str) -> str:
    """The text that the page begins with."""
    connection = HTTPConnection("127.0.0.1", port, timeout=600)
    connection.request("GET", "/begin", headers={serving.TOKEN: token})
    text: str = json.loads(connection.getresponse().read())["text"]
    connection.close()
    return text


def test_the_command_prints_the_address_and_serves_the_file(host: Path) -> None:
    with command(host) as (port, token):
        assert begun(port, token) == HOST


def test_the_command_outlives_browsers_that_go_away(host: Path) -> None:
    with command(host) as (port, token):
        connection = HTTPConnection("127.0.0.1", port, timeout=600)
        # What is missing of the body ends with the connection, so that the answer comes after it.
        announced = {serving.TOKEN: token, "Content-Length": "1000"}
        connection.request("POST", "/ask/check", "duration", announced)
        connection.close()
        assert begun(port, token) == HOST


def test_a_port_that_is_taken_is_refused(server: Server, laxity: Laxity) -> None:
    assert "leave --port out" in laxity("serve", "--port", server.server_port, code=2).stderr


def test_a_question_under_way_ends_with_the_server() -> None:
    """Its process would go on computing for nobody, and no limit would end it."""
    answerers = serving.Answerers(600)
    processes = list(answerers._all)
    asked = answerers._idle.get()
    asked.connection.send((time.sleep, 1_000_000))
    answerers.close()
    assert len(processes) == serving.PROCESSES
    assert all(process.program.poll() is not None for process in processes)
    # Whoever awaits its answer finds the process dead, and starts none in its place.
    assert answerers._replaced(asked) is asked
    assert answerers._all == processes
