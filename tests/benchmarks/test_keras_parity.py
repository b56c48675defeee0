"""The networks that `benchmarks.keras_parity` times are the same on both sides. How fast they are is not tested."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks import keras_parity
from benchmarks.networks import NETWORKS
from edgekit.models import store
from edgekit.models.cost import cost


@pytest.mark.long
@pytest.mark.parametrize("network", keras_parity.PARITY)
def test_edgekit_and_keras_hold_the_same_network(network: str, tmp_path: Path) -> None:
    folder = keras_parity.make(network, tmp_path / network)
    off = keras_parity.farthest(folder)
    for name in ("Keras", "keras-fp32", "edgekit-fp32"):
        assert off[name] < keras_parity.NEAR, name
    for name in ("keras-int8", "edgekit-int8"):
        assert keras_parity.NEAR < off[name] < 0.1, f"{name}: an int8 file this near computes in float"
    module, spec = store.load(folder / "model")
    expected = cost(module, spec.input_shape).macs
    for side in keras_parity.SIDES:
        for precision in keras_parity.PRECISIONS:
            assert keras_parity.macs(folder / f"{side}-{precision}.tflite") == expected, (side, precision)


def test_the_networks_compared_are_reference_networks() -> None:
    assert set(keras_parity.PARITY) <= set(NETWORKS)
