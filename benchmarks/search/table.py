"""The exhaustive table: 720 small networks, each really trained on digits, in 12 precisions and densities.

    python -m benchmarks.search.table [--table benchmarks/search/table.jsonl]

One line a training, made durable, so the script may be stopped and goes on where it was. Accuracy is that of real
answers to 719 samples: weights are rounded to the bits and the smallest are set to zero, layer by layer. Latency and
bytes are formulas of the network's layers, for nobody could time 8,640 files alike.
"""

from __future__ import annotations

import argparse
import copy
import itertools
import json
import math
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

TABLE = Path(__file__).parent / "table.jsonl"
KINDS, WIDTHS, BLOCKS = ("separable", "plain"), (4, 8, 12, 16, 24, 32), (1, 2, 3)
LEARNING_RATES, EPOCHS = (0.01, 0.03, 0.1, 0.3), (1, 2, 4, 8, 12)
BITS, RATIOS = (32, 8, 6, 4), (0.0, 0.3, 0.6)
ANSWERS, BATCH = 719, 64

MACS_A_SECOND = {32: 2e9, 8: 6e9, 6: 6e9, 4: 9e9}
"""Of a small core; fewer bits are faster, but not in proportion."""
BYTES_A_SECOND, CALL_S, LAYER_S = 1e9, 8e-6, 1.5e-6
SPARSE_GAIN = 0.7
"""Share of a removed multiplication's time that is really saved."""


def trainings() -> Iterator[tuple[str, int, int, float, int]]:
    """Every training, in the table's order."""
    return itertools.product(KINDS, WIDTHS, BLOCKS, LEARNING_RATES, EPOCHS)


def latency_s(kind: str, width: int, blocks: int, bits: int, ratio: float) -> float:
    """A roofline of each layer (the slower of its multiplications and its bytes), and a fixed time for each call."""
    dense = 1 - ratio * SPARSE_GAIN
    seconds = CALL_S
    for macs, weights, moved in _layers(kind, width, blocks):
        data = weights * bits / 8 * dense + moved * (4 if bits == 32 else 1)
        seconds += LAYER_S + max(macs * dense / MACS_A_SECOND[bits], data / BYTES_A_SECOND)
    return seconds


def size_bytes(kind: str, width: int, blocks: int, bits: int, ratio: float) -> float:
    """Weights of the bits, those of a sparse file with a bitmap, and 600 bytes and 80 a layer for all else."""
    total = 600.0
    for _, weights, _ in _layers(kind, width, blocks):
        total += 80 + weights * (bits / 8 * (1 - ratio) + (1 / 8 if ratio else 0))
    return total


def _layers(kind: str, width: int, blocks: int) -> Iterator[tuple[int, int, int]]:
    """(multiply-adds, weights, values read and written) of each layer, at 8×8 and behind the first block at 4×4."""
    yield 64 * 9 * width, 9 * width, 64 + 64 * width
    for block in range(blocks):
        before, behind = (64 if block == 0 else 16) * width, 16 * width
        if kind == "plain":
            yield 16 * 9 * width * width, 9 * width * width, before + behind
        else:
            yield 16 * 9 * width, 9 * width, before + behind
            yield 16 * width * width, width * width, 2 * behind
    yield 10 * width, 10 * width, width + 10


def rows(table: Path = TABLE) -> dict[tuple[Any, ...], tuple[float, float, float]]:
    """(kind, width, blocks, learning rate, epochs, bits, ratio) → accuracy, p50 in ms, bytes."""
    found = {}
    for line in table.read_text().splitlines():
        kind, width, blocks, rate, epochs, right = json.loads(line)
        for (bits, ratio), count in zip(itertools.product(BITS, RATIOS), right):
            point = (kind, width, blocks, bits, ratio)
            key = (kind, width, blocks, rate, epochs, bits, ratio)
            found[key] = (count / ANSWERS, latency_s(*point) * 1e3, size_bytes(*point))
    return found


def _data() -> tuple[Any, Any, Any, Any]:
    import torch
    from sklearn.datasets import load_digits

    bunch = load_digits()
    order = np.random.default_rng(0).permutation(len(bunch.target))
    x = torch.tensor((bunch.images[order, None] / 16 - 0.3053) / 0.3761, dtype=torch.float32)
    y = torch.tensor(bunch.target[order])
    return x[ANSWERS:], y[ANSWERS:], x[:ANSWERS], y[:ANSWERS]


def network(kind: str, width: int, blocks: int) -> Any:
    """Of edgekit's own layers: DS-CNN, or the same with plain convolutions."""
    from torch import nn

    from edgekit.models.ds_cnn import ds_cnn
    from edgekit.models.layers import conv_bn_relu

    strides = [2] + [1] * (blocks - 1)
    if kind == "separable":
        return ds_cnn((1, 8, 8), 10, width, blocks, stem_stride=1, block_strides=strides)
    return nn.Sequential(
        conv_bn_relu(1, width, 3, 1),
        *(conv_bn_relu(width, width, 3, stride) for stride in strides),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(width, 10),
    )


def trained(kind: str, width: int, blocks: int, rate: float, epochs: int, data: tuple[Any, Any, Any, Any]) -> list[int]:
    """Right answers for each precision and density, after a training from a fixed seed."""
    import torch
    from torch.nn import functional

    x, y, *held_out = data
    torch.manual_seed(0)
    net = network(kind, width, blocks)
    optimizer = torch.optim.SGD(net.parameters(), rate, momentum=0.9, nesterov=True, weight_decay=5e-4)
    steps = math.ceil(len(x) / BATCH) * epochs
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 0.5 + 0.5 * math.cos(math.pi * step / steps))
    for _ in range(epochs):
        order = torch.randperm(len(x))
        for begin in range(0, len(x), BATCH):
            chosen = order[begin : begin + BATCH]
            optimizer.zero_grad()
            functional.cross_entropy(net(x[chosen]), y[chosen]).backward()
            optimizer.step()
            schedule.step()
    return [_right(net, bits, ratio, *held_out) for bits, ratio in itertools.product(BITS, RATIOS)]


def _right(net: Any, bits: int, ratio: float, x: Any, y: Any) -> int:
    import torch

    rounded = copy.deepcopy(net).eval()
    with torch.no_grad():
        for weight in (parameter for parameter in rounded.parameters() if parameter.dim() > 1):
            if ratio:
                weight[weight.abs() <= weight.abs().flatten().quantile(ratio)] = 0
            if bits < 32:
                most = 2 ** (bits - 1) - 1
                scale = weight.abs().flatten(1).amax(1).clamp_min(1e-12).view(-1, *[1] * (weight.dim() - 1)) / most
                weight.copy_((weight / scale).round() * scale)
        return int((rounded(x).argmax(1) == y).sum())


def main() -> None:
    """Every training that the table lacks."""
    import torch

    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])  # type: ignore[union-attr]
    parser.add_argument("--table", type=Path, default=TABLE)
    table: Path = parser.parse_args().table
    torch.set_num_threads(1)
    text = table.read_text() if table.exists() else ""
    whole = text[: text.rfind("\n") + 1]
    if whole != text:
        table.write_text(whole)
    done, data = {tuple(json.loads(line)[:5]) for line in whole.splitlines()}, _data()
    with open(table, "a") as stream:
        for training in trainings():
            if training not in done:
                line = json.dumps([*training, trained(*training, data)], separators=(",", ":"))
                stream.write(line + "\n")
                stream.flush()
                os.fsync(stream.fileno())


if __name__ == "__main__":
    main()
