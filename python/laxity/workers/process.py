"""The program of a worker on this machine: it answers on the socket that its one argument names.

Each request is a function and its argument; each answer says whether the function returned, with
what it returned or raised. The program ends when the other end of the socket does.
"""

from __future__ import annotations

import sys
from multiprocessing.connection import Connection
from typing import Any


def answer(function: Any, part: Any) -> tuple[bool, Any]:  # noqa: ANN401 - whatever is sent
    """Returns whether the function returned, and what it returned or raised."""
    try:
        return True, function(part)
    except Exception as error:  # noqa: BLE001 - it is raised at the other end
        return False, error


def main() -> None:
    """Answers until nobody asks."""
    with Connection(int(sys.argv[1])) as connection:
        while True:
            try:
                function, part = connection.recv()
                connection.send(answer(function, part))
            except (EOFError, BrokenPipeError, ConnectionResetError):
                return


if __name__ == "__main__":
    main()
