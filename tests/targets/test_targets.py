"""Every target the folder holds: its files run, agree with PyTorch, are really int8, and come out the same twice."""

from __future__ import annotations

import importlib
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from convert_runs import SHAPE, spec_of

from edgekit.core.config import TARGETS
from edgekit.data import Data
from edgekit.models import store
from edgekit.stages.convert import ConvertConfig, numerics
from edgekit.targets import evaluate, launch
from edgekit.targets.jobs import ConversionJob, ConversionStep, ConvertedFiles, plain_method
from tests import requirements

pytestmark = pytest.mark.numerics

ROOT = Path(__file__).parents[2]


@dataclass(frozen=True)
class Converted:
    """One network on one target: its files by precision, their folders, and the samples to compare on."""

    target: str
    model_folder: Path
    home: Path
    files: dict[str, ConvertedFiles]
    inputs: np.ndarray

    def agreements(self) -> dict[str, numerics.Agreement]:
        reference = evaluate.torch_outputs(self.model_folder, self.inputs)
        return {
            name: numerics.compare(
                reference, evaluate.file_outputs(name, self.target, self.home / name, files, self.inputs)
            )
            for name, files in self.files.items()
        }

    def members(self) -> Iterator[Path]:
        for precision, files in self.files.items():
            yield from (self.home / precision / name for name in files.names)


def precisions(target: str) -> tuple[str, ...]:
    return tuple(importlib.import_module(f"edgekit.targets.{target}.convert").PRECISIONS)


@pytest.fixture(scope="module")
def networks(
    tiny_folder: Path, odd_folder: Path, data: Data, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, tuple[Path, np.ndarray, np.ndarray]]:
    """Folder, calibration and check samples of each network."""
    steps = store.read_spec(tiny_folder).preprocess
    images = [evaluate.network_inputs(split.x, steps) for split in (data.calibration, data.validation)]
    dense_folder = tmp_path_factory.mktemp("dense") / "model"
    spec = spec_of("dense", shape=(12,))
    store.save(dense_folder, store.build(spec, seed=3), spec)
    vectors = np.random.default_rng(0).normal(size=(40, 12)).astype(np.float32)
    return {
        "tiny": (tiny_folder, images[0], images[1]),
        "again": (tiny_folder, images[0], images[1]),
        "odd": (odd_folder, images[0], images[1]),
        "dense": (dense_folder, vectors, vectors),
    }


@pytest.fixture(scope="module")
def conversions(networks: Any, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str, str], Converted]:
    """Each network on each target, where a test asks for it, by a fresh process of its own."""

    @cache
    def make(network: str, target: str) -> Converted:
        folder, calibration, inputs = networks[network]
        home = tmp_path_factory.mktemp(f"{network}-{target}")
        np.save(home / "calibration.npy", calibration)
        steps = tuple(ConversionStep(name, plain_method(name), folder, home / name) for name in precisions(target))
        made = launch.convert(
            ConversionJob(network, target, home / "calibration.npy", steps), home, 240, threading.Event()
        )
        files = {one.precision: one.files for one in made if isinstance(one, launch.ConvertedStep)}
        assert len(files) == len(steps), made
        return Converted(target, folder, home, files, inputs)

    return make


@pytest.fixture
def converted(conversions: Any, request: pytest.FixtureRequest) -> Callable[[str, str], Converted]:
    """The same; what a test's own parameters name is made before it begins, so that its time is the fixture's."""
    named = request.node.callspec.params if hasattr(request.node, "callspec") else {}
    if "target" in named:
        conversions(named.get("network", "tiny"), named["target"])
    make: Callable[[str, str], Converted] = conversions
    return make


ODD = pytest.mark.zoo
"""The network of layers that few have goes with the other architectures."""


@pytest.mark.parametrize("network", ["tiny", pytest.param("odd", marks=ODD), "dense"])
@pytest.mark.parametrize("target", TARGETS)
def test_every_precision_agrees_with_torch(converted: Any, target: str, network: str) -> None:
    found = converted(network, target).agreements()
    assert tuple(found) == precisions(target)
    for precision, agreement in found.items():
        assert numerics.tolerance_faults(agreement, ConvertConfig().tolerance(precision)) == [], precision
    assert found["int8"].snr_db < 60, "an int8 model that is this exact computes in float"


@pytest.mark.parametrize("network", ["tiny", "dense"])
@pytest.mark.parametrize("target", TARGETS)
def test_int8_uses_the_whole_range_of_the_samples(converted: Any, target: str, network: str) -> None:
    if (network, target) == ("dense", "openvino"):
        requirements.processor("vnni", why="OpenVINO's int8 dense layers sum in 16 bits without it: 16 dB of 25")
    assert converted(network, target).agreements()["int8"].snr_db > 25, "clipped ranges end near 10 dB"


@pytest.mark.parametrize(
    ("target", "network", "in_float"),
    [
        *((target, network, []) for target in TARGETS for network in ("tiny", "dense")),
        pytest.param("tflite", "odd", [], marks=ODD),
        # nncf keeps squeeze-excite in float, by a rule of its own
        pytest.param(
            "openvino",
            "odd",
            ["GroupNormalization:norm", "HSwish", "Convolution:squeeze", "Convolution:excite"],
            marks=ODD,
        ),
        pytest.param("onnx", "odd", ["InstanceNormalization", "HardSigmoid", "Gelu"], marks=ODD),
    ],
)
def test_what_stays_in_float_is_named(converted: Any, target: str, network: str, in_float: list[str]) -> None:
    found = list(converted(network, target).files["int8"].float_ops)
    if target == "onnx":
        found = [name for name in found if not name.startswith("ReduceMean:")]
    assert len(found) == len(in_float)
    assert all(name.startswith(start) for name, start in zip(found, in_float, strict=True))


@pytest.mark.parametrize("target", TARGETS)
def test_specs_say_shape_and_layout(converted: Any, target: str) -> None:
    for files in converted("tiny", target).files.values():
        nhwc = target == "tflite"
        assert files.input.layout == ("NHWC" if nhwc else "NCHW")
        assert files.input.shape == ((1, 8, 8, 3) if nhwc else (1, *SHAPE))
        assert (files.outputs[0].shape, files.outputs[0].layout) == ((1, 4), "NC")
    assert {files.input.layout for files in converted("dense", target).files.values()} == {"NC"}


def test_tflite_int8_takes_and_gives_int8(converted: Any) -> None:
    files = converted("tiny", "tflite").files["int8"]
    assert (files.input.dtype, files.outputs[0].dtype) == ("int8", "int8")


def test_openvino_weights_shrink_with_precision(converted: Any) -> None:
    home = converted("tiny", "openvino").home
    int8, fp16, fp32 = ((home / name / "model.bin").stat().st_size for name in ("int8", "fp16", "fp32"))
    assert int8 < fp16 < fp32


@pytest.mark.parametrize("target", TARGETS)
def test_two_fresh_processes_make_the_same_bytes(converted: Any, target: str) -> None:
    first, second = (list(converted(network, target).members()) for network in ("tiny", "again"))
    assert len(first) >= len(precisions(target))
    for one, other in zip(first, second, strict=True):
        assert one.read_bytes() == other.read_bytes(), one.relative_to(one.parents[1])


@pytest.mark.parametrize("target", TARGETS)
def test_files_say_nothing_of_this_machine(converted: Any, target: str) -> None:
    made = converted("odd", target)
    for path in made.members():
        content = path.read_bytes()
        for place in (ROOT, made.model_folder.parent, Path(np.__file__).parents[1]):
            assert str(place).encode() not in content, path.name
