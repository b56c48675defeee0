"""What a converter left behind in a model: transposes inside the graph and other work that computes nothing.

Told from the file itself; of OpenVINO also from what it compiles for this machine's CPU, for it lays tensors out anew
while it compiles. One file for each target reads it into a `graph.Graph`; `rules` says what counts.
"""

from __future__ import annotations

from edgekit.targets.debris.rules import Finding, Kind

__all__ = ["Finding", "Kind"]
