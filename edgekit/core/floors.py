"""The floors of edgekit, from the ground up: imports only ever point down.

Read by the test of the imports, by the keys (`cache_key`) and by the teacher's remembered answers.
"""

from __future__ import annotations

FLOORS = (
    ("runner",),
    ("device",),
    ("core",),
    ("data",),
    ("models",),
    ("targets", "training"),
    ("fleet", "measure"),
    ("stages",),
    ("report",),
    ("serve", "workbook"),
    ("search",),
    ("cli",),
)
"""Packages of edgekit; those that share a floor never import one another."""


def below(package: str) -> tuple[str, ...]:
    """Every package that `package` may import, from the ground up."""
    floor = next(number for number, packages in enumerate(FLOORS) if package in packages)
    return tuple(name for packages in FLOORS[:floor] for name in packages)
