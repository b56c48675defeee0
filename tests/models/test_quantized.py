"""Quantized networks: saved, restored bit for bit, taken by OpenVINO."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from edgekit.core.errors import ModelError
from edgekit.models import quantized, store
from edgekit.stages.quantize import ptq

NETWORKS = {
    "edgekit.models.ds_cnn:ds_cnn": {"width": 16, "blocks": 2},  # its root is a Sequential
    "edgekit.models.resnet:resnet8": {"stem_stride": 2},
    "edgekit.models.conv1d:conv1d": {},
    "edgekit.models.efficientnet_lite:efficientnet_lite0": {"alpha": 0.1, "last": 32, "padding": "tensorflow"},
}


def shape_of(builder: str) -> tuple[int, ...]:
    return (64, 3) if "conv1d" in builder else (3, 32, 32)


def saved(tmp_path: Path, builder: str, kwargs: dict) -> tuple[nn.Module, store.ModelSpec]:
    shape = shape_of(builder)
    spec = store.ModelSpec(
        builder=builder,
        kwargs=kwargs,
        input_shape=shape,
        num_classes=10,
        classes=tuple("abcdefghij"),
        raw={"kind": "image", "shape": [32, 32, 3], "dtype": "uint8"},
    )
    module = store.build(spec)
    generator = torch.Generator().manual_seed(0)
    inputs = [torch.rand(1, *shape, generator=generator) for _ in range(4)]
    made = ptq.quantize(module, inputs)
    with torch.no_grad():  # as after training: no tensor has its initial value
        for value in made.state_dict().values():
            if value.is_floating_point():
                value.mul_(1.0 + 0.01 * torch.rand(value.shape, generator=generator))
    store.save(tmp_path / "model", module, spec)
    quantized.save(tmp_path / "nncf", made)
    return made, spec


@pytest.mark.parametrize("builder", NETWORKS)
def test_rebuilt_bit_equal_and_taken_by_openvino(builder: str, tmp_path: Path) -> None:
    import openvino

    made, _ = saved(tmp_path, builder, NETWORKS[builder])
    again = quantized.rebuild(tmp_path / "model", tmp_path / "nncf")
    shape = shape_of(builder)
    x = torch.rand(16, *shape, generator=torch.Generator().manual_seed(1))
    with torch.inference_mode():
        expected = made(x)
        assert torch.equal(again(x), expected)
    quantized.save(tmp_path / "again", again)
    for name in (quantized.CONFIG, quantized.STATE):
        assert (tmp_path / "again" / name).read_bytes() == (tmp_path / "nncf" / name).read_bytes()

    converted = openvino.convert_model(again, example_input=x[:1], input=[1, *shape])
    assert any(op.get_type_name() == "FakeQuantize" for op in converted.get_ops())
    compiled = openvino.compile_model(converted, "CPU", {"INFERENCE_PRECISION_HINT": "f32"})
    results = np.concatenate([compiled(x[i : i + 1].numpy())[0] for i in range(len(x))])
    noise = np.abs(results - expected.numpy()).max()
    assert noise < 0.1 * np.abs(expected.numpy()).max()


def test_no_pickle_and_no_other_class_is_read(tmp_path: Path) -> None:
    saved(tmp_path, "edgekit.models.ds_cnn:ds_cnn", {"width": 8, "blocks": 1})
    path = tmp_path / "nncf" / quantized.CONFIG
    config = json.loads(path.read_text())
    config["compression_state"][0]["module_path"] = "nncf.torch.function_hook.pruning.magnitude.modules"
    path.write_text(json.dumps(config))
    with pytest.raises(ModelError, match="does not fit the network"):
        quantized.rebuild(tmp_path / "model", tmp_path / "nncf")


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        (quantized.CONFIG, b"{", "not the state of a quantized model"),
        (quantized.CONFIG, b'{"format": 99}', "newer edgekit"),
        (quantized.STATE, b"\x00" * 4, "cannot be read"),
    ],
)
def test_a_damaged_folder_is_reported(name: str, content: bytes, message: str, tmp_path: Path) -> None:
    saved(tmp_path, "edgekit.models.ds_cnn:ds_cnn", {"width": 8, "blocks": 1})
    (tmp_path / "nncf" / name).write_bytes(content)
    with pytest.raises(ModelError, match=message):
        quantized.rebuild(tmp_path / "model", tmp_path / "nncf")


def test_a_state_of_another_network_is_refused(tmp_path: Path) -> None:
    saved(tmp_path / "one", "edgekit.models.ds_cnn:ds_cnn", {"width": 8, "blocks": 1})
    saved(tmp_path / "two", "edgekit.models.ds_cnn:ds_cnn", {"width": 16, "blocks": 1})
    with pytest.raises(ModelError, match="run stage 'quantize' again"):
        quantized.rebuild(tmp_path / "one" / "model", tmp_path / "two" / "nncf")
