"""Reference networks, and how any network, one of these or a user's own, is built, saved and loaded.

A reference network is a public function `name(input_shape, num_classes, ...)` in a file of this folder; it returns a
plain `nn.Module` of Conv, BatchNorm, ReLU in that order whose output is logits. So fusing, pruning, quantizing and
every exporter accept it unchanged.
"""

from __future__ import annotations

from edgekit.core import telemetry

telemetry.disable()
