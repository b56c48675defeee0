"""By what masks of -inf are replaced before integers are made of them.

8 bits hold no -inf: TFLite's quantizer casts it and the interpreter dies, ONNX Runtime's stretches the range of the
scores so far that none of them can be told apart. PyTorch's export writes float32's lowest number for some masks, and
networks bring -1e9. A value below all that is let through by MARGIN is as good: softmax gives it less than an int8
output can hold.
"""

from __future__ import annotations

from collections.abc import Iterable

LOWEST = -1e8
"""What is below is a mask."""
MARGIN = 16.0
"""exp(-16) is 1e-7; an int8 softmax counts in steps of 1/256."""


def value(spreads: Iterable[float]) -> float:
    """The mask's new value, from maximum - minimum of the scores that it is added to."""
    return -MARGIN - max(spreads, default=0.0)
