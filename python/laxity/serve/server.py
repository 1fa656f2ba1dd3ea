"""The HTTP server of the page, on loopback, for whoever has its token.

The standard library serves it: there are four paths and one reader, and what matters are refusals,
which a framework would not know either. A request must name this server as its host (against DNS
that is made to point here), must not come from another origin, must have the token, and must keep
to the limits below.
"""

from __future__ import annotations

import io
import json
import queue
import secrets
import socket
import time
from contextlib import suppress
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.resources import files
from threading import Lock
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs, urlsplit

from laxity import _core
from laxity.serve.questions import QUESTIONS, answered
from laxity.workers.processes import Process

if TYPE_CHECKING:
    from collections.abc import Mapping

    from laxity.serve.questions import Answer

LOOPBACK = "127.0.0.1"

TOKEN = "X-Laxity-Token"  # noqa: S105 - the name of the header
"""The header that has the token in all requests but that of the page."""

BODY_BYTES_MAX = 1 << 20
"""The largest request."""

STRANGERS_MAX = 32
"""Connections at a time that have not shown the token; one more takes the place of the oldest."""

REQUEST_S = 10
"""The seconds in which a request must have come, and in which its reader must take the answer."""

PROCESSES = 2
"""Questions that are answered at a time."""

WAIT_S = 1.0
"""The seconds that a question waits for one of these."""

ANSWER_S = 20.0
"""The seconds after which a question is given up, and its process ended."""

PAGE = {
    "/": ("page.html", "text/html; charset=utf-8"),
    "/page.css": ("page.css", "text/css; charset=utf-8"),
    "/page.js": ("page.js", "text/javascript; charset=utf-8"),
}
"""The files of the page: that one has the token in its address, the others are no secret."""

HEADERS = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    # The token in the address is told to nobody.
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}
"""What every answer says."""


class BusyError(Exception):
    """All processes are busy."""


class TooLongError(Exception):
    """An answer took too long."""


class Answerers:
    """Processes that answer questions, each of which is ended if that takes too long."""

    def __init__(self, answer_s: float) -> None:
        """Starts them."""
        self._answer_s = answer_s
        # The last one to answer is the next: it has imported what most questions need.
        self._idle: queue.LifoQueue[Process] = queue.LifoQueue()
        self._lock = Lock()
        self._is_closed = False
        self._all = [Process() for _ in range(PROCESSES)]
        for process in self._all:
            self._idle.put(process)

    def answer(self, question: str, text: str) -> Answer:
        """Raises BusyError or TooLongError."""
        try:
            process = self._idle.get(timeout=WAIT_S)
        except queue.Empty:
            raise BusyError from None
        try:
            return self._answer_of(process, question, text)
        except BaseException:
            process = self._replaced(process)
            raise
        finally:
            self._idle.put(process)

    def _answer_of(self, process: Process, question: str, text: str) -> Answer:
        process.connection.send((answered, (question, text)))
        if not process.connection.poll(self._answer_s):
            raise TooLongError
        returned, value = process.connection.recv()
        if not returned:
            raise value
        found: Answer = value
        return found

    def _replaced(self, process: Process) -> Process:
        """Ends a process, and returns a new one in its place, or the old one after `close`."""
        process.end()
        with self._lock:
            if self._is_closed:
                return process
            new = Process()
            self._all[self._all.index(process)] = new
            return new

    def close(self) -> None:
        """Ends all, whatever they do."""
        with self._lock:
            self._is_closed = True
            for process in self._all:
                process.end()


class Server(ThreadingHTTPServer):
    """Serves the page with the text of a host file in it."""

    daemon_threads = True

    def __init__(
        self,
        text: str,
        port: int = 0,
        answer_s: float = ANSWER_S,
        request_s: float = REQUEST_S,
    ) -> None:
        """Listens; port 0 is any that is free. Raises OSError if the port is taken."""
        # They are there before the port is taken: if that fails, `server_close` ends them.
        self.answerers = Answerers(answer_s)
        super().__init__((LOOPBACK, port), Handler)
        self.token = secrets.token_urlsafe(24)
        self.text = text
        self.request_s = request_s
        self.hosts = {f"{name}:{self.server_port}" for name in (LOOPBACK, "localhost")}
        # The oldest first. Other users of this machine cannot keep the reader out, however many
        # connections they hold.
        self._strangers: dict[socket.socket, None] = {}
        self._lock = Lock()

    @property
    def address(self) -> str:
        """Where a browser finds the page."""
        return f"http://{LOOPBACK}:{self.server_port}/?token={self.token}"

    def process_request(self, request: Any, client_address: Any) -> None:  # noqa: ANN401
        """Makes room for it, if there are too many strangers."""
        with self._lock:
            if len(self._strangers) >= STRANGERS_MAX:
                oldest = next(iter(self._strangers))
                del self._strangers[oldest]
                # Its thread reads the end, and ends, unless it has already.
                with suppress(OSError):
                    oldest.shutdown(socket.SHUT_RDWR)
            self._strangers[request] = None
        super().process_request(request, client_address)

    def know(self, request: socket.socket) -> None:
        """Lets a connection that has shown the token keep its place."""
        with self._lock:
            self._strangers.pop(request, None)

    def process_request_thread(self, request: Any, client_address: Any) -> None:  # noqa: ANN401
        """Makes room when a connection ends."""
        try:
            super().process_request_thread(request, client_address)
        finally:
            self.know(request)

    def handle_error(self, request: Any, client_address: Any) -> None:  # noqa: ANN401
        """Says nothing of a browser that has gone away."""

    def server_close(self) -> None:
        """Ends all."""
        super().server_close()
        self.answerers.close()


class Incoming(io.RawIOBase):
    """What a connection sends, with a deadline for each request as a whole."""

    def __init__(self, connection: socket.socket, request_s: float) -> None:
        """The first request begins."""
        self._connection = connection
        self._request_s = request_s
        self.begin()

    def begin(self) -> None:
        """The next request begins."""
        self._deadline_s = time.monotonic() + self._request_s

    def readable(self) -> bool:
        """It is."""
        return True

    def readinto(self, buffer: Any) -> int:  # noqa: ANN401 - whatever has bytes
        """Raises TimeoutError at the deadline, however little is missing then."""
        left_s = self._deadline_s - time.monotonic()
        if left_s <= 0:
            raise TimeoutError
        self._connection.settimeout(left_s)
        return self._connection.recv_into(buffer)


class Handler(BaseHTTPRequestHandler):
    """One request."""

    server: Server
    protocol_version = "HTTP/1.1"
    server_version = "laxity"
    sys_version = ""

    def setup(self) -> None:
        """Reads what comes with deadlines."""
        super().setup()
        self.rfile.close()
        self._incoming = Incoming(self.connection, self.server.request_s)
        self.rfile = io.BufferedReader(self._incoming)

    def handle_one_request(self) -> None:
        """Has a deadline of its own for each."""
        self._incoming.begin()
        super().handle_one_request()

    def do_GET(self) -> None:
        """Gives the page, its parts, and what it begins with."""
        path = urlsplit(self.path).path
        if self._is_refused():
            return
        if path == "/":
            if self._has_token(parse_qs(urlsplit(self.path).query).get("token", [""])[0]):
                self._give_file(path)
        elif path in PAGE:
            self._give_file(path)
        elif path == "/begin":
            if self._has_token(self.headers.get(TOKEN, "")):
                schema = json.loads(_core.host_schema())
                self._give_json(
                    {"text": self.server.text, "schema": schema, "bytes_max": BODY_BYTES_MAX}
                )
        else:
            self._refuse(HTTPStatus.NOT_FOUND, "there is no such page")

    def do_POST(self) -> None:
        """Answers a question: the path is its name, the body the text of a host file."""
        question = urlsplit(self.path).path.removeprefix("/ask/")
        # The body is not read before the sender is known.
        self.close_connection = True
        if self._is_refused() or not self._has_token(self.headers.get(TOKEN, "")):
            return
        if question not in QUESTIONS:
            self._refuse(HTTPStatus.NOT_FOUND, f"the questions are {', '.join(QUESTIONS)}")
            return
        length = self.headers.get("Content-Length", "")
        if not (length.isascii() and length.isdigit()):
            self._refuse(HTTPStatus.LENGTH_REQUIRED, "the request does not say its length")
            return
        # More digits than any length has would take long to read as a number.
        if len(length) > len(str(BODY_BYTES_MAX)) or int(length) > BODY_BYTES_MAX:
            message = f"a host file has at most {BODY_BYTES_MAX:,} bytes here"
            self._refuse(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, message)
            return
        try:
            text = self.rfile.read(int(length)).decode()
        except UnicodeDecodeError:
            self._refuse(HTTPStatus.BAD_REQUEST, "the request is not text")
            return
        self.close_connection = False
        self._answer(question, text)

    def _answer(self, question: str, text: str) -> None:
        try:
            found = self.server.answerers.answer(question, text)
        except BusyError:
            message = f"{PROCESSES} questions are being answered"
            self._refuse(HTTPStatus.SERVICE_UNAVAILABLE, message)
        except TooLongError:
            message = f"there was no answer in time; try laxity {question} on the command line"
            self._refuse(HTTPStatus.GATEWAY_TIMEOUT, message)
        except (EOFError, OSError):
            message = "the process that answers has died: is there memory enough?"
            self._refuse(HTTPStatus.INTERNAL_SERVER_ERROR, message)
        except Exception as error:  # noqa: BLE001 - the reader is told, and goes on
            message = f"a mistake in laxity itself: {type(error).__name__}: {error}"
            self._refuse(HTTPStatus.INTERNAL_SERVER_ERROR, message)
        else:
            self._give_json(found)

    def _is_refused(self) -> bool:
        """Refuses another host's name and other origins."""
        host, origin = self.headers.get("Host", ""), self.headers.get("Origin")
        if host not in self.server.hosts:
            self._refuse(HTTPStatus.MISDIRECTED_REQUEST, "this server has another name")
            return True
        site = self.headers.get("Sec-Fetch-Site", "none")
        if origin not in (None, f"http://{host}") or site not in ("none", "same-origin"):
            self._refuse(HTTPStatus.FORBIDDEN, "another page asks")
            return True
        return False

    def _has_token(self, token: str) -> bool:
        if secrets.compare_digest(token.encode(), self.server.token.encode()):
            self.server.know(self.connection)
            return True
        self._refuse(HTTPStatus.FORBIDDEN, "open the address that `laxity serve` printed")
        return False

    def _give_file(self, path: str) -> None:
        name, kind = PAGE[path]
        self._give(HTTPStatus.OK, kind, files("laxity.serve").joinpath(name).read_bytes())

    def _give_json(self, content: Mapping[str, object], status: HTTPStatus = HTTPStatus.OK) -> None:
        self._give(status, "application/json", json.dumps(content).encode())

    def _refuse(self, status: HTTPStatus, message: str) -> None:
        self.close_connection = True
        self._give_json({"refused": message}, status)

    def _give(self, status: HTTPStatus, kind: str, content: bytes) -> None:
        self.send_response(status)
        for name, value in HEADERS.items():
            self.send_header(name, value)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(content)))
        if self.close_connection:
            self.send_header("Connection", "close")
        # The reader may take as long for the whole answer as a request may take.
        self.connection.settimeout(self.server.request_s)
        self.end_headers()
        self.wfile.write(content)
        if self.close_connection:
            self.connection.shutdown(socket.SHUT_WR)

    def log_message(self, format: str, *values: object) -> None:
        """Says nothing of requests, whose addresses have the token."""
