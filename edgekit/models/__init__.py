"""Reference networks, and the code that builds, saves and loads any network, including the user's own.

A reference network is a public function `name(input_shape, num_classes, ...)` in a file of this folder. It returns a
plain `nn.Module` whose layers are Conv, BatchNorm and ReLU, in that order, and whose output is logits, so that fusing,
pruning, quantization and every exporter accept it unchanged.
"""

from __future__ import annotations

from edgekit.core import telemetry

telemetry.disable()
