"""Targets: a trained network made into the files that a device runs, in fresh child processes. One target, one file."""

from __future__ import annotations

import importlib


def precisions(target: str) -> tuple[str, ...]:
    """What a target offers, fp32 first."""
    offered: tuple[str, ...] = importlib.import_module(f"edgekit.targets.{target}").PRECISIONS
    return offered
