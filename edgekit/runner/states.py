"""What a model with states remembers of one stream, between one of its samples and the next."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np

    from edgekit.runner.backends import Backend


class States:
    """The states of one stream: zeros at first, then what the model gave last. One object for each stream.

    Not for use by several threads at once, as the model itself.
    """

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self._arrays = backend.zeros()

    def reset(self) -> None:
        """Begin with zeros again."""
        self._arrays = self._backend.zeros()

    def step(self, x: np.ndarray) -> np.ndarray:
        """The model's outputs for the next input, as `Backend.invoke` gives them."""
        y, self._arrays = self._backend.step(x, self._arrays)
        return y
