"""Where a device's releases and its policy lie. Every load asks, so nothing else is imported."""

from __future__ import annotations

import os

VARIABLE = "EDGERUN_HOME"
SYSTEM = "/var/lib/edge"
TRUST = "trust"
"""Folder of the policy in there; a device that has it is in signed mode."""


def locate(given: str | None = None) -> str:
    """The folder that was named, else $EDGERUN_HOME, else /var/lib/edge where it can be written, else ~/.edge."""
    named = given or os.environ.get(VARIABLE)
    if not named:
        named = SYSTEM if os.access(SYSTEM, os.W_OK) else os.path.expanduser("~/.edge")
    return os.path.abspath(named)
