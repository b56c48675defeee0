"""Fixtures of the targets' tests."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))  # the children, too, build the networks of convert_nets by name

from convert_fixtures import data, odd_folder, one_thread, tiny_folder, trained

__all__ = ["data", "odd_folder", "one_thread", "tiny_folder", "trained"]
