"""The Unix socket on which the clients of a `NAME.eim` connect.

The socket appears at once, because the Go client waits for only a second. The model is opened after that, and an error
is sent to the first client: if the process ended without a socket, the Python client would wait forever.
"""

from __future__ import annotations

import os
import signal
import socket
import stat
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

from edgekit.device.eim import messages
from edgekit.runner.errors import BackendError, InputError, ResourceError

if TYPE_CHECKING:
    from edgekit.device.eim.session import Session
    from edgekit.runner.model import Model

MOST_CLIENTS = 16
"""Further clients wait until one of these has gone."""
CHUNK_BYTES = 1 << 18
LONGEST_PATH = 100
"""The system accepts paths of up to 107 bytes, and the temporary name is longer than the final one."""
BASE_BYTES, FEATURE_BYTES = 1 << 16, 32
"""The largest message: so many bytes, and so many more for each feature."""
DISCARD_S = 2.0
FAILURE_S = 10.0
"""How long a client may take to ask, if the model could not be opened."""


def serve(path: str, bundle: str, stay: bool = False) -> None:
    """Answer clients on the socket `path` until the last of them has gone, or until SIGINT, SIGTERM or SIGHUP.

    Parameters
    ----------
    path : str
        Where to create the socket. One that another process left behind is replaced.
    bundle : str
        A bundle, or a `NAME.eim`. It is opened after the socket was created.
    stay : bool
        Continue to wait for clients after the last one has gone.

    Raises
    ------
    InputError
        The path is too long, is something other than a socket, or another process listens there.
    ResourceError
        The socket cannot be created.
    RunnerError
        The bundle cannot be opened; the first client has received the text of the error.
    """
    if sys.platform == "win32":
        raise BackendError("eim needs Unix sockets, which Windows does not offer; run it in WSL 2 or on Linux")
    if not hasattr(socket, "AF_UNIX"):
        raise BackendError("Edge Impulse's protocol needs Unix sockets, which Windows' Python lacks; use WSL 2")
    with _ended_by_signals(), _listening(path) as listener:
        try:
            from edgekit.device.eim import archive

            model = archive.open_model(bundle)
        except Exception as error:
            _send_failure(listener, str(error))
            raise
        server = Server(listener, model, stay)
        try:
            server.run()
        finally:
            server.close()


class Server:
    """Accepts clients and answers each in a thread of its own."""

    def __init__(self, listener: socket.socket, model: Model, stay: bool) -> None:
        from edgekit.device.eim.parameters import feature_count
        from edgekit.device.eim.shared_memory import remove_abandoned

        self._listener, self._model, self._stay = listener, model, stay
        self._most_bytes = BASE_BYTES + FEATURE_BYTES * feature_count(model.manifest.raw)
        self._model_lock, self._lock = threading.Lock(), threading.Lock()
        self._places = threading.Semaphore(MOST_CLIENTS)
        self._sessions: set[Session] = set()
        remove_abandoned()

    def run(self) -> None:
        """Accept clients until the last one has gone, or forever."""
        from edgekit.device.eim.session import Session

        while True:
            self._places.acquire()
            try:
                connection, _ = self._listener.accept()
            except OSError:  # the last client has gone
                return
            session = Session(self._model, self._model_lock)
            with self._lock:
                self._sessions.add(session)
            threading.Thread(target=self._answer, args=(connection, session), daemon=True).start()

    def close(self) -> None:
        """Remove the shared memory of all clients."""
        with self._lock:
            for session in self._sessions:
                session.unlink()

    def _answer(self, connection: socket.socket, session: Session) -> None:
        try:
            with connection, suppress(OSError):  # the client has gone, in the middle of an answer
                for message in _received(connection, self._most_bytes):
                    connection.sendall(messages.encode(session.answer(message)))
        finally:
            self._leave(session)

    def _leave(self, session: Session) -> None:
        with self._lock:
            session.close()
            self._sessions.discard(session)
            if not self._sessions and not self._stay:
                with suppress(OSError):
                    self._listener.shutdown(socket.SHUT_RDWR)  # ends `accept`
        self._places.release()


def _received(connection: socket.socket, most_bytes: int) -> Iterator[bytes]:
    """Yield the messages of a client. What cannot be a message is answered with an error and ends the connection."""
    from edgekit.device.eim.session import failure

    splitter = messages.MessageSplitter(most_bytes)
    try:
        while data := connection.recv(CHUNK_BYTES):
            yield from splitter.split(data)
    except InputError as error:
        connection.sendall(messages.encode(failure(str(error), None)))
        _discard_rest(connection)


def _discard_rest(connection: socket.socket) -> None:
    """Read what a client still sends, but not for long. Closing before would keep it from reading the error."""
    connection.shutdown(socket.SHUT_WR)
    connection.settimeout(DISCARD_S)
    end = time.monotonic() + DISCARD_S
    while time.monotonic() < end and connection.recv(CHUNK_BYTES):
        pass


def _send_failure(listener: socket.socket, text: str) -> None:
    """Send an error to the first client as the answer to its message."""
    with suppress(OSError):
        listener.settimeout(FAILURE_S)
        connection, _ = listener.accept()
        with connection:
            connection.settimeout(FAILURE_S)
            identity = messages.find_id(connection.recv(CHUNK_BYTES))
            known = {} if identity is None else {"id": identity}
            connection.sendall(messages.encode({**known, "success": False, "error": text}))


@contextmanager
def _listening(path: str) -> Iterator[socket.socket]:
    """Create the socket, and remove it at the end.

    It gets its name only when it accepts connections, because clients connect as soon as they see it.
    """
    if len(os.fsencode(path)) > LONGEST_PATH:
        raise InputError(f"{path}: has {len(os.fsencode(path))} bytes, but a socket takes {LONGEST_PATH}; shorten it")
    _check_free(path)
    temporary = f"{path}.{os.getpid() % 10_000}"
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
        try:
            listener.bind(temporary)
            listener.listen(MOST_CLIENTS)
            os.rename(temporary, path)
        except OSError as error:
            with suppress(OSError):
                os.unlink(temporary)
            raise ResourceError(f"{path}: the socket cannot be created: {error.strerror or error}") from None
        try:
            yield listener
        finally:
            with suppress(OSError):  # clients remove the folder of the socket themselves
                os.unlink(path)


def _check_free(path: str) -> None:
    """Raise InputError unless there is nothing at the path, or a socket on which nobody listens."""
    try:
        is_socket = stat.S_ISSOCK(os.lstat(path).st_mode)
    except OSError:
        return
    if not is_socket:
        raise InputError(f"{path}: exists and is not a socket; name another path")
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as attempt:
        if attempt.connect_ex(path) == 0:
            raise InputError(f"{path}: another process listens there; name another path")


@contextmanager
def _ended_by_signals() -> Iterator[None]:
    """Leave the block, without an error, at the first signal with which clients and services end a process.

    The Node.js client reports an error if its model's process ends with another exit code than 0.
    """
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

    def end(*_: Any) -> None:
        for number in numbers:
            signal.signal(number, signal.SIG_IGN)  # no second signal may interrupt the cleaning
        raise _Ended

    for number in numbers:
        signal.signal(number, end)
    with suppress(_Ended):
        yield


class _Ended(BaseException):
    """A signal has arrived."""
