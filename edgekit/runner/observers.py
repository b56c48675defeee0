"""Observers of a model's answers.

A model without observers pays nothing for them, and a failing observer never breaks an answer.
"""

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
        """The methods of an observer. Each must return within microseconds, because inference waits for it."""

        def answered(self, raw: np.ndarray, outputs: np.ndarray, prediction: Any) -> None:
            """Receive a sample in the form of `manifest.raw`, the outputs for it, and the answer with its times."""

        def refused(self, error: RunnerError) -> None:
            """Receive the error of a sample that got no answer: an InputError about the sample, or a BackendError."""

        def dropped(self, count: int) -> None:
            """Receive the number of windows of a stream that were dropped, because the model was too slow."""

        def close(self) -> None:
            """Write pending data, and release threads and sockets. Nothing is reported afterwards."""


class Observers:
    """The observers of one model. An observer that raises is removed, with a warning."""

    __slots__ = ("_all",)

    def __init__(self) -> None:
        self._all: tuple[Observer, ...] = ()

    def __bool__(self) -> bool:
        return bool(self._all)

    def __iter__(self) -> Iterator[Observer]:
        return iter(self._all)

    def add(self, observer: Observer) -> None:
        """Notify an observer from now on."""
        self._all = (*self._all, observer)

    def remove(self, observer: Observer) -> None:
        """Stop notifying an observer. Nothing happens if it was never added."""
        self._all = tuple(each for each in self._all if each is not observer)

    def answered(self, raw: np.ndarray, outputs: np.ndarray, prediction: Any) -> None:
        """Report one answered sample; see `Observer`."""
        for observer in self._all:
            try:
                observer.answered(raw, outputs, prediction)
            except Exception as error:  # whatever went wrong, the answer must go out
                self._remove_failed(observer, error)

    def refused(self, error: RunnerError) -> None:
        """Report one refused sample; see `Observer`."""
        for observer in self._all:
            try:
                observer.refused(error)
            except Exception as failure:
                self._remove_failed(observer, failure)

    def dropped(self, count: int) -> None:
        """Report dropped windows; see `Observer`."""
        for observer in self._all:
            try:
                observer.dropped(count)
            except Exception as error:
                self._remove_failed(observer, error)

    def executed(self, size: int) -> None:
        """Report a model call for a batch of `size` samples to those observers that have a method `executed`."""
        for observer in self._all:
            try:
                getattr(observer, "executed", int)(size)
            except Exception as error:
                self._remove_failed(observer, error)

    def reading(self, samples: Callable[..., Iterator[Any]], *arguments: Any) -> Iterator[Any]:
        """Yield the samples of a file, and report it as refused if it cannot be read."""
        try:
            yield from samples(*arguments)
        except InputError as error:
            self.refused(error)
            raise

    def close(self) -> None:
        """Close and remove all observers."""
        closing, self._all = self._all, ()
        for observer in closing:
            try:
                observer.close()
            except Exception as error:
                self._remove_failed(observer, error)

    def _remove_failed(self, observer: Observer, error: Exception) -> None:
        self.remove(observer)
        message = f"{type(observer).__name__} failed and was removed: {type(error).__name__}: {error}"
        with suppress(RuntimeWarning):  # even if warnings are errors, the answer must go out
            warnings.warn(message, RuntimeWarning, stacklevel=3)
