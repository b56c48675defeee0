"""The learning rate over a training: a linear warm-up, then a fall to zero, or none.

Warm-up: Goyal et al. 2017, "Accurate, Large Minibatch SGD". Cosine: Loshchilov & Hutter, "SGDR: Stochastic Gradient
Descent with Warm Restarts", ICLR 2017, without restarts.
"""

from __future__ import annotations

import math


def learning_rate_at(step: int, total: int, schedule: str = "cosine", warmup_share: float = 0.1) -> float:
    """Factor of the peak rate at a step: linear over the warm-up's share, then half a cosine or a line down to zero.

    `constant` stays at the peak.
    """
    warm = max(1, round(total * warmup_share))
    if step < warm:
        return (step + 1) / warm
    done = (step - warm) / max(1, total - warm)
    if schedule == "constant":
        return 1.0
    if schedule == "linear":
        return 1 - done
    return 0.5 * (1 + math.cos(math.pi * (step - warm) / max(1, total - warm)))
