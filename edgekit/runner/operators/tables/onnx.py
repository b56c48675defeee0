"""The newest operator set and file format that an ONNX Runtime release opens.

Measured with `tests/runner/probe_operators.py`: a model of one Identity, stamped with one number after another.
"""

from __future__ import annotations

LIMITS: tuple[tuple[tuple[int, int], int, int], ...] = (
    ((1, 17), 20, 9),
    ((1, 18), 21, 10),
    ((1, 19), 21, 10),
    ((1, 20), 21, 10),
    ((1, 21), 22, 10),
    ((1, 22), 22, 10),
    ((1, 23), 23, 11),
    ((1, 24), 25, 13),
    ((1, 25), 26, 13),  # and the same up to the next line
    ((1, 31), 26, 13),
)
"""(release, newest opset of the standard domain, newest IR version), oldest first."""


def limits(release: tuple[int, ...]) -> tuple[int, int] | None:
    """(opset, IR version) that a release opens, at most; None for one newer than was measured."""
    for measured, opset, ir_version in LIMITS:
        if release[:2] <= measured:
            return opset, ir_version
    return None
