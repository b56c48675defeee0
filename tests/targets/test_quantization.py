"""How int8 comes about on each target: ranges, biases, layers kept in float, and what stays in float unasked."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from convert_runs import spec_of

from edgekit.core.config import TARGETS
from edgekit.models import store
from edgekit.stages.convert import numerics
from edgekit.targets import evaluate, launch
from edgekit.targets.jobs import ConversionJob, ConversionStep, ConvertedFiles, Quantization
from tests import requirements

SHAPE = (3, 24, 24)
RECIPES = {
    "minmax": Quantization(),
    "percentile": Quantization("percentile"),
    "corrected": Quantization(bias_correction=True),
}
KEPT = {"minmax": Quantization(), "kept": Quantization(keep_float=("first",))}
Files = dict[str, tuple[ConvertedFiles, bytes, float]]


@pytest.fixture(scope="module")
def quantized(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str, str], Files]]:
    """By network and target: each recipe's files, their bytes, and the SNR on samples like the tame ones.

    They are calibrated on samples of which every fifth has one wild value.
    """
    home = tmp_path_factory.mktemp("quantization")
    random = np.random.default_rng(0)
    images, wild = (random.normal(size=(20, *SHAPE)).astype(np.float32) for _ in range(2))
    wild[::5, 0, 12, 7] = 60.0
    networks = {
        "tiny": (spec_of("tiny", shape=SHAPE), wild, images, RECIPES),
        "waving": (spec_of("waving", shape=(12,)), wild[:, 0, 12, :12], images[:, 0, 0, :12], KEPT),
    }
    for name, (spec, calibration, _, _) in networks.items():
        store.save(home / name, store.build(spec, seed=1), spec)
        np.save(home / f"{name}.npy", calibration)
    stop = threading.Event()

    def convert(network: str, target: str) -> Files:
        _, _, inputs, recipes = networks[network]
        folder, out = home / network, home / target / network
        steps = tuple(
            ConversionStep("int8", "ptq", folder, out / name, quantization=recipe) for name, recipe in recipes.items()
        )
        outcomes = launch.convert(ConversionJob(network, target, home / f"{network}.npy", steps), home, 240, stop)
        reference = evaluate.torch_outputs(folder, inputs)
        found: Files = {}
        for step, one in zip(steps, outcomes, strict=True):
            assert isinstance(one, launch.ConvertedStep)
            outputs = evaluate.file_outputs(network, target, step.out, one.files, inputs)
            content = b"".join((step.out / name).read_bytes() for name in one.files.names)
            found[step.out.name] = one.files, content, numerics.compare(reference, outputs).snr_db
        return found

    with ThreadPoolExecutor(2) as pool:
        futures = {
            (network, target): pool.submit(convert, network, target) for target in TARGETS for network in networks
        }
        yield lambda network, target: futures[network, target].result()
        stop.set()


@pytest.mark.numerics
@pytest.mark.parametrize("target", TARGETS)
def test_percentiles_are_not_moved_by_wild_samples(quantized: Any, target: str) -> None:
    found = quantized("tiny", target)
    assert found["percentile"][2] > found["minmax"][2] + 1


@pytest.mark.numerics
@pytest.mark.parametrize("target", TARGETS)
def test_a_kept_layer_and_no_other_computes_in_float(quantized: Any, target: str) -> None:
    found = quantized("waving", target)
    before, after = (
        [name for name in found[recipe][0].float_ops if not name.upper().startswith("SIN:")]
        for recipe in ("minmax", "kept")
    )
    assert before == [] and [name.partition(":")[2] for name in after] == ["first"]
    if target == "openvino":
        requirements.processor("vnni", why="OpenVINO's second int8 layer sums in 16 bits without it, and overflows")
    assert found["kept"][2] > found["minmax"][2] + 3, "the wild values now meet a layer in float"


@pytest.mark.numerics
@pytest.mark.parametrize("target", TARGETS)
def test_biases_are_corrected_or_said_not_to_be(quantized: Any, target: str) -> None:
    (plain, plain_bytes, _), (corrected, corrected_bytes, snr_db) = (
        quantized("tiny", target)[name] for name in ("minmax", "corrected")
    )
    assert plain.not_offered == ()
    offered = target == "openvino"
    assert corrected.not_offered == (() if offered else ("bias_correction",))
    assert (plain_bytes != corrected_bytes) is offered
    assert snr_db > 10


@pytest.mark.numerics
@pytest.mark.parametrize("target", TARGETS)
def test_an_operator_that_has_no_integer_form_is_named(quantized: Any, target: str) -> None:
    files, _, _ = quantized("waving", target)["minmax"]
    assert [name.partition(":")[0].upper() for name in files.float_ops] == ["SIN"]


@pytest.mark.numerics
@pytest.mark.parametrize("target", ["tflite", "onnx"])
def test_nothing_of_a_plain_network_stays_in_float(quantized: Any, target: str) -> None:
    assert quantized("tiny", target)["minmax"][0].float_ops == ()


def test_a_recipe_survives_its_json() -> None:
    recipe = Quantization("percentile", True, ("stem.0", "head"))
    assert Quantization.from_json(recipe.to_json()) == recipe
    step = ConversionStep("int8", "mixed", Path("a"), Path("b"), quantization=recipe)
    job = ConversionJob("pruned", "onnx", Path("c"), (step,))
    assert ConversionJob.from_json(job.to_json()) == job
