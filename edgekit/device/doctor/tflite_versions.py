"""The highest version of every builtin operator that a TFLite interpreter supports; 0 if it lacks the operator.

`tests/runner/probe_operators.py` measured them on x86-64: for each operator and version, it checks whether the
interpreter opens a model that needs just this operator. The operators' names and numbers are those of LiteRT's schema.
"""

from __future__ import annotations

from edgekit.runner.operators.tflite import BUILTIN_NAMES

VERSIONS: dict[str, tuple[tuple[int, ...], str]] = {
    "tflite-runtime": (
        (2, 14),
        """
        5 3 4 7 7 2 5 3 1 10 1 2 1 1 3 1 4 3 7 3 1 3 1 4 3 3 2 4 3 0 1 0 0 1 4 3 6 4 4 6 3 5 2 2 4 8 3 2 3 4
        2 0 3 5 1 4 3 4 3 1 4 2 3 2 4 6 1 4 3 3 1 4 3 1 2 1 2 1 1 3 2 2 3 4 1 1 1 1 4 3 3 1 1 1 4 2 2 4 2 2 3
        5 2 1 1 3 1 4 1 2 1 1 1 1 3 1 1 1 1 1 1 1 1 2 1 1 4 0 1 1 3 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 2 1
        1 1 1 1 1 1 2 1 1 1
        """,
    ),
    "tensorflow": (
        (2, 21),
        """
        5 3 5 8 7 2 7 5 1 14 1 2 1 1 3 1 4 3 7 3 1 3 1 4 3 3 2 4 3 0 1 0 0 1 5 3 7 4 4 7 3 5 2 2 4 8 3 2 3 4
        2 0 3 8 1 4 3 4 3 1 5 2 3 2 4 7 1 5 3 3 1 5 4 2 2 2 3 1 1 3 2 2 3 4 1 1 1 1 4 3 3 1 1 1 4 2 2 4 2 2 3
        5 2 1 1 3 1 5 1 2 1 1 1 1 4 1 1 1 1 1 1 1 1 2 1 1 4 0 1 1 3 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 2 5
        1 1 1 1 1 1 2 1 1 1 0 1 0 1 1 0 0 0 0 0 0 0 0 0 1 0 0 0 0 1 0 0 0 0 0 0 0 0 1 0 0 0 0 1 0 0 1 0 0 1 0
        1 1 1 1 1 0 1
        """,
    ),
    "ai-edge-litert": (
        (2, 3),
        """
        6 3 7 8 7 2 9 5 1 14 1 2 1 1 3 1 4 3 8 3 1 3 1 4 3 4 2 4 3 0 1 0 0 1 6 3 8 4 4 9 3 5 2 2 4 8 3 2 3 5
        2 0 3 9 1 4 3 4 3 1 6 2 3 2 4 8 2 5 3 3 1 5 4 2 2 2 3 1 1 3 2 2 3 5 1 1 1 1 6 3 3 1 1 1 5 2 2 4 2 2 3
        5 3 1 1 4 1 6 2 2 1 1 1 1 6 1 1 1 1 1 1 1 1 2 1 1 4 0 1 1 4 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 3 6
        1 1 1 1 1 1 2 1 1 1 0 1 0 1 1 0 0 0 0 0 0 0 0 0 1 0 0 0 0 1 0 0 0 0 0 0 0 0 1 0 0 0 0 1 0 0 1 0 0 1 0
        1 1 1 1 1 0 1
        """,
    ),
}
"""Distribution -> (measured release, highest version of each operator, in the order of the operators' numbers)."""


def highest_versions(distribution: str, release: tuple[int, ...]) -> dict[str, int] | None:
    """Return the highest version of every operator that a release may support, or None if that is unknown.

    It is unknown for a release newer than the measured one. An older release supports no more than the measured one, so
    whatever the table rules out fails there as well.
    """
    measured, versions = VERSIONS.get(distribution, ((), ""))
    if release[: len(measured)] > measured:
        return None
    return dict(zip(BUILTIN_NAMES.split(), [*map(int, versions.split()), *[0] * len(BUILTIN_NAMES)]))
