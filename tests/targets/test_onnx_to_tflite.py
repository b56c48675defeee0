"""An ONNX file takes the road to TFLite that works and answers as ONNX Runtime does."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from edgekit.models.files import onnx
from edgekit.runner.backends import onnxruntime
from edgekit.targets import error_causes

SIDE = 32


class Same(nn.Conv2d):
    """A convolution with TensorFlow's padding: more behind than before where the stride is two."""

    def __init__(self, channels: int, out: int, stride: int, side: int, groups: int = 1) -> None:
        super().__init__(channels, out, 3, stride, groups=groups, bias=False)
        total = max((-(-side // stride) - 1) * stride + 3 - side, 0)
        before, behind = total // 2, total - total // 2
        self.pad = nn.ZeroPad2d((before, behind, before, behind))

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(self.pad(x))


class Block(nn.Module):
    """EfficientNet-Lite's: wider, depthwise, narrow again, and added where the shapes allow it."""

    def __init__(self, channels: int, out: int, stride: int, side: int) -> None:
        super().__init__()
        self.adds, wide = channels == out, 4 * channels
        self.parts = nn.Sequential(
            nn.Conv2d(channels, wide, 1), nn.ReLU6(), Same(wide, wide, stride, side, wide), nn.ReLU6(),
            nn.Conv2d(wide, out, 1),
        )  # fmt: skip

    def forward(self, x: Tensor) -> Tensor:
        return self.parts(x) + x if self.adds else self.parts(x)


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """By the older exporter, which computes the sides of each padding by a dozen operators."""
    torch.manual_seed(0)
    network = nn.Sequential(
        Same(3, 8, 2, SIDE), nn.ReLU6(), Block(8, 12, 2, SIDE // 2), Block(12, 12, 1, SIDE // 4),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(12, 10),
    )  # fmt: skip
    path = tmp_path_factory.mktemp("lite") / "lite.onnx"
    torch.onnx.export(network.eval(), (torch.zeros(1, 3, SIDE, SIDE),), str(path), dynamo=False, input_names=["x"])
    return path


def test_paddings_that_the_older_exporter_computes_become_tflite(file: Path) -> None:
    from ai_edge_litert.interpreter import Interpreter

    content = onnx.tflite(file, "fp32", None, (SIDE, SIDE, 3))
    x = np.random.default_rng(1).random((1, 3, SIDE, SIDE), dtype=np.float32)
    expected = onnxruntime.session(file.read_bytes(), None).run(None, {"x": x})[0]
    interpreter = Interpreter(model_content=content)
    interpreter.allocate_tensors()
    interpreter.set_tensor(interpreter.get_input_details()[0]["index"], x.transpose(0, 2, 3, 1))
    interpreter.invoke()
    found = interpreter.get_tensor(interpreter.get_output_details()[0]["index"])
    np.testing.assert_allclose(found, expected, atol=1e-4 * np.ptp(expected))


def test_where_no_road_works_the_message_names_the_operator_and_the_road_that_is_open(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unfolded(content: bytes) -> bytes:
        return content

    monkeypatch.setattr(onnx, "_fold_constants", unfolded)
    with pytest.raises(ValueError, match=r"tf\.math\.add") as caught:
        onnx.tflite(file, "fp32", None, (SIDE, SIDE, 3))
    message = error_causes.classify(caught.value).describe()
    assert message.startswith("tf.math.add: ") and "give the PyTorch or Keras model itself" in message


def test_a_road_that_gives_other_answers_is_not_taken(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    attempts: list[bytes] = []

    def fake_onnx2tf(library: Any, content: bytes, sample_shape: tuple[int, ...]) -> bytes:
        attempts.append(content)
        return b"wrong" if len(attempts) == 1 else b"right"

    monkeypatch.setattr(onnx, "_run_onnx2tf", fake_onnx2tf)
    monkeypatch.setattr(onnx, "_agrees", lambda content, fake_onnx2tf: fake_onnx2tf == b"right")
    assert onnx.tflite(file, "fp32", None, (SIDE, SIDE, 3)) == b"right"
    assert len(attempts) == 2
