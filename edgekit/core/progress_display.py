"""Progress in a kernel that somebody watches in JupyterLab: a line that updates, and is empty in what is stored."""

from __future__ import annotations

import os
import sys
import time
from contextlib import suppress
from typing import Any

from edgekit.core.progress_state import State

SESSION = "JPY_SESSION_NAME"
"""Environment variable that Jupyter's server sets for the kernels of its notebooks; papermill and nbval set none."""
AFTER_S = 1.0
"""What is over sooner shows nothing. Updates come no faster, for they are sent beside what is measured."""


class Display:
    """One output of the cell, from the first second on."""

    def __init__(self, heard: int) -> None:
        """`heard`: the number of the last sentence that was said before."""
        self._handle: Any = None
        self._shown_at, self._heard = time.monotonic(), heard

    def show(self, state: State) -> None:
        """The state of now; what was said for good stands above it until the end."""
        said = [text for number, text in state.said if number > self._heard]
        if time.monotonic() - self._shown_at < AFTER_S:
            return
        self._shown_at = time.monotonic()
        with suppress(Exception):  # a frontend that has gone must not end what it watched
            self._write({"text/plain": "\n".join([*said, str(state)])})

    def end(self) -> None:
        """Nothing is left of it to be stored."""
        if self._handle is not None:
            with suppress(Exception):
                self._write({})

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
