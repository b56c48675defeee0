"""How many numbers are so few that Python's own arithmetic takes less time than a call of numpy."""

from __future__ import annotations

FEW = 32
