"""Progress in a kernel that somebody watches in JupyterLab: a line that updates, and is empty in what is stored."""

from __future__ import annotations

import contextvars
import os
import sys
import threading
import time
from contextlib import suppress
from typing import Any

from edgekit.core.progress_state import State, elapsed

SESSION = "JPY_SESSION_NAME"
"""Environment variable that Jupyter's server sets for the kernels of its notebooks; papermill and nbval set none."""
EVERY_S = 1.0
"""What is over sooner shows nothing. Updates come no faster, for they are sent beside what is measured."""


class Display:
    """One output of the cell, from the first second on; a thread updates it, for a long step may publish nothing."""

    def __init__(self, last_said: int) -> None:
        """`last_said`: the number of the last sentence that was said before."""
        self._handle: Any = None
        self._state: State | None = None
        self._began, self._last_said = time.monotonic(), last_said
        self._stop = threading.Event()
        context = contextvars.copy_context()  # says which cell the output belongs to
        self._thread = threading.Thread(target=context.run, args=(self._go_on,), daemon=True)
        with suppress(RuntimeError):  # no more threads: then there is less to show
            self._thread.start()

    def show(self, state: State) -> None:
        """The state of now, for the next update."""
        self._state = state

    def end(self) -> None:
        """Nothing is left of it to be stored."""
        self._stop.set()
        with suppress(RuntimeError):  # it never began
            self._thread.join()
        if self._handle is not None:
            with suppress(Exception):  # as below
                self._write({})

    def _go_on(self) -> None:
        while not self._stop.wait(EVERY_S):
            with suppress(Exception):  # a frontend that has gone must not end what it watched
                self._write({"text/plain": self._text()})

    def _text(self) -> str:
        """What goes on and since when; what was said for good stands above it until the end."""
        said, text = [], ""
        if self._state is not None:
            said = [sentence for number, sentence in self._state.said if number > self._last_said]
            text = str(self._state)
        taken = elapsed(time.monotonic() - self._began)
        return "\n".join([*said, f"{text} · {taken}" if text else f"at work {taken}"])

    def _write(self, data: dict[str, str]) -> None:
        from IPython.display import DisplayHandle

        if self._handle is None:
            self._handle = DisplayHandle()
            self._handle.display(data, raw=True)
        else:
            self._handle.update(data, raw=True)


def watched() -> bool:
    """Whether this process is a kernel of a notebook that is open in JupyterLab."""
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython is not None and SESSION in os.environ else None
    return getattr(shell, "kernel", None) is not None
