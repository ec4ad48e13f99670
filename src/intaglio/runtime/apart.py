"""A process apart: what crashes, hangs or writes where it must not, does so there."""

from __future__ import annotations

import atexit
import os
import pickle
import struct
import subprocess
import sys
import threading
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any, Final

PROGRAM: Final = "from intaglio.runtime.trial import serve; serve()"
START: Final = 30.0  # seconds that a process may take to start
GRACE: Final = 2.0  # seconds after which a process that should have ended itself is ended


class LostError(Exception):
    """The process crashed, or took too long, and is gone."""


class Apart:
    """A Python process that answers requests, started at the first one and again where it was lost."""

    def __init__(self, program: str = PROGRAM) -> None:
        self._program: Final = program
        self._process: subprocess.Popen[bytes] | None = None
        self._requests: int = -1  # the end of the pipe that is written to
        self._reading: int = -1
        self._answers: SimpleQueue[object] = SimpleQueue()
        self._left: Final[list[object]] = []
        self.starts: int = 0
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=self._leave)
        atexit.register(self.close)

    def ask(self, request: object, limit: float) -> object:
        """The answer to a request.

        Raises: LostError if there is none within some seconds: the process is gone then.
        """
        started = self._process is None
        if started:
            self._start()
        try:
            send(self._requests, (request, limit))
            answer = self._answers.get(timeout=limit + GRACE + (START if started else 0))
        except (OSError, Empty):
            self.close()
            raise LostError("no answer") from None
        except BaseException:  # Ctrl-C: an answer that comes later is for nobody
            self.close()
            raise
        if isinstance(answer, LostError):
            self.close()
            raise answer
        return answer

    def close(self) -> None:
        """End the process."""
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.wait()
            os.close(self._requests)

    def _start(self) -> None:
        """Start the process: in a session of its own, so that no Ctrl-C reaches it, with this package first in sight.

        Raises: LostError if it cannot be started.
        """
        if not sys.executable:
            raise LostError("no Python to run")
        source = str(Path(__file__).parents[2])
        path = os.pathsep.join(p for p in (source, os.environ.get("PYTHONPATH", "")) if p)
        theirs, self._requests = os.pipe()
        self._reading, back = os.pipe()
        try:
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-c", self._program],
                stdin=theirs,
                stdout=back,
                stderr=subprocess.DEVNULL,
                env=os.environ | {"PYTHONPATH": path},
                start_new_session=True,
            )
        except OSError as error:
            os.close(self._requests)
            os.close(self._reading)
            raise LostError(str(error)) from None
        finally:
            os.close(theirs)
            os.close(back)
        self.starts += 1
        self._answers = SimpleQueue()
        arguments = self._reading, self._answers
        threading.Thread(target=_hand_on, args=arguments, name="intaglio-apart", daemon=True).start()

    def _leave(self) -> None:
        """In a child after fork: the process is the parent's, and must see its pipes closed when the parent ends."""
        process, self._process = self._process, None
        if process is not None:
            process.returncode = 0  # not this process's child: nobody waits for it here
            self._left.append(process)
            os.close(self._requests)
            os.close(self._reading)


def _hand_on(pipe: int, answers: SimpleQueue[object]) -> None:
    """Hand on all answers, then say that there are no more."""
    try:
        while True:
            answers.put(receive(pipe))
    except (EOFError, OSError, pickle.UnpicklingError):
        answers.put(LostError("the process ended"))
    finally:
        os.close(pipe)


def send(pipe: int, message: object) -> None:
    """Write one message to a pipe."""
    data = pickle.dumps(message)
    rest = memoryview(struct.pack("q", len(data)) + data)
    while rest:
        rest = rest[os.write(pipe, rest) :]


def receive(pipe: int) -> Any:
    """Read one message from a pipe.

    Raises: EOFError if there is none to come.
    """
    (size,) = struct.unpack("q", _exactly(pipe, 8))
    return pickle.loads(_exactly(pipe, size))


def _exactly(pipe: int, size: int) -> bytes:
    """Some bytes of a pipe."""
    parts: list[bytes] = []
    while size:
        part = os.read(pipe, size)
        if not part:
            raise EOFError
        parts.append(part)
        size -= len(part)
    return b"".join(parts)
