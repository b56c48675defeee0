"""Energy by a power meter: a file that somebody else's program rewrites with one number, watts or joules."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter
from typing import Literal

from edgekit.measure.energy.source import Spent, Unreadable

Unit = Literal["watts", "joules"]
POLL_S = 0.05
"""Between two looks at a file of watts."""
MOST_BYTES = 64
"""Of the file: more is no number."""
PATIENCE_S = 1.0
"""A file that is being rewritten is empty or half for a moment; after so long it is a fault."""


@dataclass(frozen=True)
class Meter:
    """A meter's file. Joules are counted from any moment on; watts are summed up over the time that they are seen."""

    path: Path
    unit: Unit

    @property
    def name(self) -> str:
        """The file and its unit."""
        return f"power meter ({self.unit} in {self.path.name}) of all that it feeds"

    def read(self) -> float:
        """The number now; Unreadable where there is none for `PATIENCE_S`."""
        late = perf_counter() + PATIENCE_S
        while True:
            try:
                return self._read()
            except Unreadable:
                if perf_counter() > late:
                    raise
                time.sleep(POLL_S / 10)

    def of(self, work: Callable[[], object]) -> Spent:
        """Energy while `work` runs; Unreadable where the counter went back, or moved not at all."""
        return self._counted(work) if self.unit == "joules" else self._summed(work)

    def _read(self) -> float:
        text = ""
        try:
            if self.path.is_fifo():  # it would keep its reader waiting
                raise Unreadable(f"{self.path} is a pipe; a file is wanted that is rewritten")
            with open(self.path, "rb") as stream:
                text = stream.read(MOST_BYTES).decode(errors="backslashreplace").strip()
            if len(text) == MOST_BYTES:
                raise ValueError
            value = float(text)
        except OSError as error:
            raise Unreadable(f"{self.path} cannot be read ({error.strerror or error})") from None
        except ValueError:
            raise Unreadable(f"{self.path} holds {text[:40]!r} and no number of {self.unit}") from None
        if not math.isfinite(value) or value < 0:
            raise Unreadable(f"{self.path} holds {text[:40]!r}; a number of {self.unit} from 0 is wanted")
        return value

    def _counted(self, work: Callable[[], object]) -> Spent:
        began, before = perf_counter(), self.read()
        work()
        after, ended = self.read(), perf_counter()
        if after < before:
            raise Unreadable(f"{self.path} went back from {before:g} to {after:g} joules")
        if after == before:
            raise Unreadable(
                f"{self.path} stayed at {before:g} joules for {ended - began:.2g} s; raise benchmark.cost.energy_s"
            )
        return Spent(after - before, ended - began)

    def _summed(self, work: Callable[[], object]) -> Spent:
        """The trapezoidal sum of the watts that were seen."""
        looks, over, broken = [(perf_counter(), self.read())], threading.Event(), list[Unreadable]()

        def watch() -> None:
            while not over.wait(POLL_S):
                try:
                    looks.append((perf_counter(), self.read()))
                except Unreadable as error:
                    broken.append(error)
                    return

        watcher = threading.Thread(target=watch, daemon=True)
        watcher.start()
        try:
            work()
        finally:
            over.set()
            watcher.join()
        if broken:
            raise broken[0]
        looks.append((perf_counter(), self.read()))
        steps = zip(looks, looks[1:], strict=False)
        joules = sum((later - sooner) * (watts + then) / 2 for (sooner, watts), (later, then) in steps)
        return Spent(joules, looks[-1][0] - looks[0][0])
