"""Small models of several inputs, as people have them, and samples of theirs as files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

TOKENS, WORDS = 7, 50
Arrays = dict[str, np.ndarray]


class TextClassifier(nn.Module):
    """The mean of the words that the mask keeps, to three scores; called as Hugging Face calls its models."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding, self.dense = nn.Embedding(WORDS, 8), nn.Linear(8, 3)

    def forward(self, input_ids: torch.Tensor, attention_mask: torch.Tensor) -> torch.Tensor:
        mask = attention_mask.unsqueeze(-1).float()
        pooled = (self.embedding(input_ids) * mask).sum(1) / mask.sum(1).clamp(min=1)
        scores: torch.Tensor = self.dense(pooled)
        return scores


class Siamese(nn.Module):
    """How far the second picture is from the first: not the same the other way round."""

    def __init__(self) -> None:
        super().__init__()
        self.tower = nn.Sequential(nn.Conv2d(1, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(64, 5))

    def forward(self, left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
        scores: torch.Tensor = (self.tower(left) - 0.5 * self.tower(right)).sum(1, keepdim=True)
        return scores


class BytesAndNumbers(nn.Module):
    """A picture of bytes and numbers beside it, to two scores."""

    def __init__(self) -> None:
        super().__init__()
        self.dense = nn.Linear(16 + 3, 2)

    def forward(self, picture: torch.Tensor, meta: torch.Tensor) -> torch.Tensor:
        scores: torch.Tensor = self.dense(torch.cat([picture.float().flatten(1) / 255, meta], 1))
        return scores


def seeded(network: type[nn.Module]) -> nn.Module:
    torch.manual_seed(0)
    return network().eval()


def onnx(path: Path, network: nn.Module, example: Sequence[torch.Tensor], names: Sequence[str], free: Any) -> Path:
    """`free` are the open sides of each input."""
    torch.onnx.export(
        network, tuple(example), path, dynamo=True, verbose=False, external_data=False,
        input_names=list(names), output_names=["scores"], dynamic_shapes=free,
    )  # fmt: skip
    return path


def text_example(rows: int = 1) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.zeros(rows, TOKENS, dtype=torch.int64), torch.ones(rows, TOKENS, dtype=torch.int64)


def text(target: str, folder: Path, sides: Mapping[int, str] | None = None) -> Path:
    """The text classifier for a target; its batch is open where the target has such, or all that `sides` names."""
    network, names = seeded(TextClassifier), ("input_ids", "attention_mask")
    if target == "onnx":
        free = {name: dict(sides or {0: "batch"}) for name in names}
        return onnx(folder / "text.onnx", network, text_example(2), names, free)
    if target == "openvino":
        import openvino

        model = openvino.convert_model(network, example_input=text_example(), input=[[-1, TOKENS]] * 2)
        openvino.save_model(model, folder / "text.xml", compress_to_fp16=False)
        return folder / "text.xml"
    import litert_torch

    path = folder / "text.tflite"
    litert_torch.convert(network, text_example()).export(str(path))
    return path


def text_samples(count: int, names: Sequence[str] = ("input_ids", "attention_mask")) -> list[Arrays]:
    random = np.random.default_rng(count)
    ids = random.integers(0, WORDS, (count, TOKENS))
    mask = (np.arange(TOKENS) < random.integers(2, TOKENS + 1, (count, 1))).astype(np.int64)
    return [dict(zip(names, pair, strict=True)) for pair in zip(ids, mask, strict=True)]


def keras(folder: Path, samples: Sequence[Arrays]) -> tuple[Path, Path]:
    """A functional model of a picture and numbers beside it as TFLite: of floats, and quantized to int8 at its ends."""
    import tensorflow as tf

    tf.keras.utils.set_random_seed(0)
    layers = tf.keras.layers
    picture, meta = tf.keras.Input((8, 8, 1), name="picture"), tf.keras.Input((3,), name="meta")
    features = layers.Flatten()(layers.Conv2D(4, 3, activation="relu")(picture))
    scores = layers.Dense(3)(layers.Concatenate()([features, layers.Dense(4)(meta)]))
    model = tf.keras.Model([picture, meta], scores)
    floats = tf.lite.TFLiteConverter.from_keras_model(model)
    whole = tf.lite.TFLiteConverter.from_keras_model(model)
    whole.optimizations = [tf.lite.Optimize.DEFAULT]
    whole.representative_dataset = lambda: ({name: each[name][None] for name in each} for each in samples)
    whole.target_spec.supported_ops = [tf.lite.OpsSet.TFLITE_BUILTINS_INT8]
    whole.inference_input_type = whole.inference_output_type = tf.int8
    paths = folder / "keras.tflite", folder / "keras8.tflite"
    for path, converter in zip(paths, (floats, whole), strict=True):
        path.write_bytes(converter.convert())
    return paths


def keras_samples(count: int = 24) -> list[Arrays]:
    """Numbers that are a hundred times as large as a picture's, so that one scale would not do for both."""
    random = np.random.default_rng(5)
    return [
        {"picture": random.random((8, 8, 1), np.float32), "meta": random.normal(0, 100, 3).astype(np.float32)}
        for _ in range(count)
    ]


def adding(shapes: Mapping[str, Sequence[int | str]], outputs: int = 1) -> bytes:
    """ONNX: the sum of its inputs, and of a state beside them where one of them is called "total"."""
    from onnx import TensorProto, helper

    def end(name: str, shape: Sequence[int | str]) -> Any:
        return helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)

    nodes = [helper.make_node("Sum", list(shapes), ["sum"])]
    names = ["new_total"] if "total" in shapes else []
    names += [f"output_{number}" for number in range(outputs)]
    nodes += [helper.make_node("Identity", ["sum"], [name]) for name in names]
    shape = next(iter(shapes.values()))
    graph = helper.make_graph(
        nodes, "sum", [end(name, each) for name, each in shapes.items()], [end(name, shape) for name in names]
    )
    opsets = [helper.make_opsetid("", 13)]
    return bytes(helper.make_model(graph, opset_imports=opsets, ir_version=8).SerializeToString())


def write(folder: Path, samples: Sequence[Mapping[str, np.ndarray]]) -> Path:
    """A folder of one file for each sample."""
    folder.mkdir()
    for number, sample in enumerate(samples):
        np.savez(folder / f"{number:02d}.npz", **sample)  # type: ignore[arg-type]
    return folder
