"""The page of `edgerun live`, served by a process of its own so that viewers cost the models nothing.

The loop's process opens the port and keeps it. The child (`server`) accepts connections, draws and encodes. Only while
somebody looks, pictures and figures are sent to it through a pipe, and the next picture of a source only after the
one before has been drawn. If the child ends, it is started again.
"""

from __future__ import annotations

import json
import os
import secrets
import socket
import subprocess
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, NamedTuple

from edgekit.device import processes
from edgekit.device.live.config import PageConfig
from edgekit.device.live.page.messages import write_message
from edgekit.runner.errors import InputError, ResourceError
from edgekit.runner.files import make_folder, write_atomically

if TYPE_CHECKING:
    import numpy as np

SERVER = "edgekit.device.live.page.server:main"
PICTURES_PER_S = 15.0
STATES_PER_S = 2.0
EVENTS = 50
DRAWN_S = 5.0
"""If a picture is not drawn within this time, the next one is sent all the same."""
HUNG_S = 10.0
FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.5, 30.0
SHORTEST_TOKEN = 16
BACKLOG = 32


class Picture(NamedTuple):
    """A frame, and for each model that answered it the model's name, its outputs, and its answer in a few words.

    The child derives the answer from the outputs once more, to draw it.
    """

    number: int
    pixels: np.ndarray
    answers: tuple[tuple[str, np.ndarray, str], ...]


class Page:
    """The page and its process.

    Parameters
    ----------
    config : PageConfig
        Where to listen.
    home : Path
        The folder in which a new token is written, if one is needed and no file is named.
    facts : dict
        What does not change: `title`, `sources` and `models`, whose manifests are in JSON by their names.
    state : callable
        Returns the present state for JSON.
    picture : callable
        Returns the last `Picture` of a source, or None.
    keep : callable
        Keeps the last picture of a source that was shown, and returns a line about it. May raise RunnerError.
    report : callable
        Called with a line if the page's process ended.

    Raises
    ------
    InputError
        The address cannot be used, or the token is too short.
    ResourceError
        The token cannot be read or written.
    """

    def __init__(
        self,
        config: PageConfig,
        home: Path,
        facts: dict[str, Any],
        state: Callable[[], dict[str, Any]],
        picture: Callable[[str], Picture | None],
        keep: Callable[[str], str],
        report: Callable[[str], object],
    ) -> None:
        self.token_path: Path | None = None
        token = "" if config.is_loopback and config.token_file is None else self._token(config, home)
        self._socket = _listen(config)
        host, port = self._socket.getsockname()[:2]
        shown = socket.gethostname() if host in ("0.0.0.0", "::") else f"[{host}]" if ":" in host else host
        self.url = f"http://{shown}:{port}/"
        self._hello = {"facts": facts, "token": token, "secret": secrets.token_hex(32)}
        self._state, self._picture, self._keep, self._report = state, picture, keep, report
        self._sources: list[str] = [each["name"] for each in facts["sources"]]
        self._events: deque[dict[str, Any]] = deque(maxlen=EVENTS)
        self._sent_events = 0
        self._event_count = 0
        self._changed = threading.Condition()
        self._viewers: dict[str, int] = {}
        self._listeners = 0
        self._drawn_s: dict[str, float] = {}
        self._replies: deque[dict[str, Any]] = deque(maxlen=BACKLOG)
        self._is_over = self._has_left = False
        self._writing_s: float | None = None
        self.process: subprocess.Popen[bytes] | None = None
        self._thread = threading.Thread(target=self._supervise, name="edgerun page", daemon=True)

    def start(self) -> None:
        """Start the process."""
        self._thread.start()

    def add_event(self, event: dict[str, Any]) -> None:
        """Show an event. Never waits."""
        with self._changed:
            self._events.append(event)
            self._event_count += 1
            if self._listeners:
                self._changed.notify()

    def end_if_hung(self) -> None:
        """End the process if it has not read for `HUNG_S` seconds, so that it is started again. Call it regularly."""
        writing_s, process = self._writing_s, self.process
        if writing_s is not None and process is not None and time.monotonic() - writing_s > HUNG_S:
            processes.kill_process(process)

    def close(self, timeout_s: float = 1.0) -> None:
        """End the process and free the port."""
        with self._changed:
            self._is_over = True
            self._changed.notify()
        process = self.process
        if process is not None:
            processes.kill_process(process)
        if self._thread.ident is not None:
            self._thread.join(timeout_s)
        self._socket.close()

    def _token(self, config: PageConfig, home: Path) -> str:
        path = Path(config.token_file) if config.token_file else home / "live-token"
        self.token_path = path
        try:
            if not config.token_file and not path.exists():
                make_folder(home)
                write_atomically(path, f"{secrets.token_urlsafe(24)}\n".encode(), 0o600)
            token = path.read_text(encoding="utf-8").strip()
        except (OSError, UnicodeDecodeError) as error:
            reason = getattr(error, "strerror", None) or "not text"
            raise ResourceError(
                f"page: token in {path}: {reason}; name a file that holds one with --token-file"
            ) from None
        if len(token) < SHORTEST_TOKEN or not token.isprintable():
            raise InputError(
                f"page: token in {path}: too short; write at least {SHORTEST_TOKEN} characters in one line"
            )
        return token

    def _supervise(self) -> None:
        pause_s = FIRST_PAUSE_S
        while not self._is_over:
            started = time.monotonic()
            end = self._run_once()
            if self._is_over:
                return
            pause_s = (
                FIRST_PAUSE_S if time.monotonic() - started > LONGEST_PAUSE_S else min(2 * pause_s, LONGEST_PAUSE_S)
            )
            self._report(f"page: its process ended ({end}); starting it again in {pause_s:g} s")
            with self._changed:
                self._changed.wait_for(lambda: self._is_over, pause_s)

    def _run_once(self) -> str:
        """Serve until the process ends or the page is closed. Returns why."""
        handle = self._socket.fileno()
        self._has_left = False
        self._viewers, self._listeners, self._sent_events = {}, 0, max(0, self._event_count - len(self._events))
        try:
            self.process = process = processes.start_function(
                SERVER, [str(handle)], reads_input=True, stdout=subprocess.PIPE, pass_fds=(handle,)
            )
        except OSError as error:
            return f"not started: {error.strerror}"
        assert process.stdin and process.stdout
        listener = threading.Thread(target=self._listen, args=(process.stdout,), name="edgerun viewers", daemon=True)
        listener.start()
        if self._is_over:
            processes.kill_process(process)
        problem = ""
        try:
            self._feed(process.stdin)
        except OSError:  # the child has ended
            pass
        except Exception as error:  # such as a monitor that cannot read its files; the models go on
            problem = f"{type(error).__name__}: {error}"
        code = processes.end_process(process)
        listener.join(1.0)
        return problem or f"exit code {code}"

    def _write(self, pipe: IO[bytes], fields: dict[str, Any], arrays: Sequence[np.ndarray] = ()) -> None:
        self._writing_s = time.monotonic()
        try:
            write_message(pipe, fields, arrays)
        finally:
            self._writing_s = None

    def _feed(self, pipe: IO[bytes]) -> None:
        """Send what the viewers need until the child ends or the page is closed."""
        self._write(pipe, self._hello)
        next_state_s, sent = 0.0, dict.fromkeys(self._sources, -1)
        while True:
            with self._changed:
                is_watched = self._listeners or any(self._viewers.values())
                if not self._replies and not self._is_over and not self._has_left:
                    self._changed.wait(1 / PICTURES_PER_S if is_watched else None)
                replies, self._replies = list(self._replies), deque(maxlen=BACKLOG)
                first = self._event_count - len(self._events)
                events = list(self._events)[max(0, self._sent_events - first) :] if self._listeners else []
                self._sent_events = self._event_count if self._listeners else self._sent_events
                viewed = [name for name, count in self._viewers.items() if count]
                has_listeners = self._listeners > 0
            if self._is_over or self._has_left:
                return
            for message in (*replies, *({"kind": "event", "event": each} for each in events)):
                self._write(pipe, message)
            now = time.monotonic()
            if has_listeners and now >= next_state_s:
                next_state_s = now + 1 / STATES_PER_S
                self._write(pipe, {"kind": "state", "state": self._state()})
            for name in viewed:
                self._send_picture(pipe, name, sent, now)

    def _send_picture(self, pipe: IO[bytes], name: str, sent: dict[str, int], now: float) -> None:
        if now < self._drawn_s.get(name, 0.0):
            return
        picture = self._picture(name)
        if picture is None or picture.number == sent.get(name):
            return
        sent[name] = picture.number
        self._drawn_s[name] = now + DRAWN_S
        models, outputs, texts = zip(*picture.answers)
        self._write(
            pipe, {"kind": "picture", "source": name, "models": models, "texts": texts}, (picture.pixels, *outputs)
        )

    def _listen(self, pipe: IO[bytes]) -> None:
        """Receive what the child says: who looks, what was drawn, and what to keep."""
        for line in pipe:
            with suppress(ValueError):
                self._receive(json.loads(line))
        with self._changed:
            self._has_left = True
            self._changed.notify()

    def _receive(self, message: dict[str, Any]) -> None:
        reply = None
        if "keep" in message:
            reply = {"kind": "kept", "id": message["id"], **self._keep_sample(message["keep"])}
        with self._changed:
            if "viewers" in message:
                self._viewers, self._listeners = message["viewers"], message["listeners"]
                self._drawn_s.clear()
            if "drawn" in message:
                self._drawn_s[message["drawn"]] = 0.0
            if reply:
                self._replies.append(reply)
            if reply or "viewers" in message:
                self._changed.notify()

    def _keep_sample(self, source: str) -> dict[str, Any]:
        try:
            return {"ok": True, "text": self._keep(source)}
        except Exception as error:  # whatever went wrong, the page goes on
            return {"ok": False, "text": str(error)}


def _listen(config: PageConfig) -> socket.socket:
    if os.name != "posix":
        raise InputError("page: only on Linux and macOS; leave it out here")
    family = socket.AF_INET6 if ":" in config.host else socket.AF_INET
    opened = socket.socket(family, socket.SOCK_STREAM)
    opened.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        opened.bind((config.host, config.port))
        opened.listen(BACKLOG)
    except OSError as error:
        opened.close()
        why = error.strerror or str(error)
        raise InputError(
            f"page: cannot listen on {config.host}:{config.port}: {why}; use another port or address"
        ) from None
    return opened
