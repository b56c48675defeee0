"""ai-edge-quantizer with its stock recipes and its own calibration, on the float TFLite file."""

from __future__ import annotations

from benchmarks.peers.peer import Peer

PEER = Peer(
    name="ai_edge_quantizer",
    what="ai-edge-quantizer's stock recipes, calibrated as it does by default",
    packages=("ai-edge-quantizer==0.10.0", "ai-edge-litert==2.3.0"),
)
