"""The networks of the targets' tests serve the convert stage's too."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "targets"))  # the children, too, build its networks by name

from convert_fixtures import data, odd_folder, one_thread, tiny_folder, trained

__all__ = ["data", "odd_folder", "one_thread", "tiny_folder", "trained"]
