"""Who is told of each answer of a model. Telling costs nothing where nobody listens, and never breaks an answer."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from edgekit.runner.errors import InputError

if TYPE_CHECKING:
    from typing import Protocol

    import numpy as np

    from edgekit.runner.errors import RunnerError

    class Observer(Protocol):
        """What an observer offers. Each method returns within microseconds: inference waits for it."""

        def answered(self, raw: np.ndarray, outputs: np.ndarray, prediction: Any) -> None:
            """A sample as `manifest.raw` states it, the model's outputs for it, and the answer with its times."""

        def refused(self, error: RunnerError) -> None:
            """A sample that got no answer: an InputError of what was given, or a BackendError."""

        def dropped(self, count: int) -> None:
            """Windows of a stream that nobody answered, because the model was too slow."""

        def close(self) -> None:
            """Nothing more will come: write what is not written yet, and let threads and sockets go."""


class Observers:
    """Those of one model. One that raises is left out from then on, with a warning."""

    __slots__ = ("_all",)

    def __init__(self) -> None:
        self._all: tuple[Observer, ...] = ()

    def __bool__(self) -> bool:
        return bool(self._all)

    def __iter__(self) -> Iterator[Observer]:
        return iter(self._all)

    def add(self, observer: Observer) -> None:
        """Tell it of all that comes from now on."""
        self._all = (*self._all, observer)

    def remove(self, observer: Observer) -> None:
        """Tell it nothing more; nothing happens where it was not told anyway."""
        self._all = tuple(each for each in self._all if each is not observer)

    def answered(self, raw: np.ndarray, outputs: np.ndarray, prediction: Any) -> None:
        """Of one sample: see `Observer`."""
        for observer in self._all:
            try:
                observer.answered(raw, outputs, prediction)
            except Exception as error:  # whatever it is, the answer goes out
                self._leave_out(observer, error)

    def refused(self, error: RunnerError) -> None:
        """See `Observer`."""
        for observer in self._all:
            try:
                observer.refused(error)
            except Exception as failure:
                self._leave_out(observer, failure)

    def dropped(self, count: int) -> None:
        """See `Observer`."""
        for observer in self._all:
            try:
                observer.dropped(count)
            except Exception as error:
                self._leave_out(observer, error)

    def executed(self, size: int) -> None:
        """A call of the model for a batch of so many samples; of interest to observers that have this method."""
        for observer in self._all:
            try:
                getattr(observer, "executed", int)(size)
            except Exception as error:
                self._leave_out(observer, error)

    def reading(self, samples: Callable[..., Iterator[Any]], *of: Any) -> Iterator[Any]:
        """The samples of a file, which is refused where it cannot be read."""
        try:
            yield from samples(*of)
        except InputError as error:
            self.refused(error)
            raise

    def close(self) -> None:
        """Close and forget all of them."""
        closing, self._all = self._all, ()
        for observer in closing:
            try:
                observer.close()
            except Exception as error:
                self._leave_out(observer, error)

    def _leave_out(self, observer: Observer, error: Exception) -> None:
        self.remove(observer)
        what = f"{type(observer).__name__} failed and is left out: {type(error).__name__}: {error}"
        with suppress(RuntimeWarning):  # where warnings are errors, the answer goes out all the same
            warnings.warn(what, RuntimeWarning, stacklevel=3)
