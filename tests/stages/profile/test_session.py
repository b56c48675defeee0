"""A session is measured in a real process: its parts add up, and what goes wrong in it is one line."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from edgekit.core.errors import ModelError, StageError
from edgekit.models import store
from edgekit.stages.profile import session

STEPS = [{"step": "scale", "factor": 1 / 255}]


@pytest.fixture(scope="module")
def network(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("network") / "model"
    spec = store.ModelSpec(
        builder="edgekit.models.ds_cnn:ds_cnn",
        kwargs={"width": 8, "blocks": 1},
        input_shape=(1, 8, 8),
        num_classes=3,
        classes=("a", "b", "c"),
        preprocess=STEPS,
        raw={"kind": "image", "shape": [8, 8, 1], "dtype": "uint8"},
    )
    store.save(folder, store.build(spec), spec)
    return folder


SAMPLES = np.random.default_rng(0).integers(0, 256, (4, 8, 8, 1), dtype=np.uint8)


def test_the_parts_add_up_to_what_is_measured_from_outside(network: Path) -> None:
    found = session.measure(network, SAMPLES, 20, 5, 300)
    assert set(found["session"]["parts_ms"]) == {*session.COLD, *session.PARTS}
    assert found["session"]["covered"] == pytest.approx(1, abs=0.02)
    assert 0.98 <= found["session"]["calls_covered"] <= 1
    assert 0 < found["session"]["stamped"]["low"] <= found["session"]["stamped"]["high"]
    assert found["session"]["calls"] == 25
    assert found["session"]["parts_ms"]["import"] > 0
    total = found["latency"]["total"]
    assert total["calls"] == 20
    means_ms = [found["latency"][name]["mean_ms"] for name in session.PARTS]
    assert sum(means_ms) == pytest.approx(total["mean_ms"])
    assert sum(found["latency"][name]["share"] for name in session.PARTS) == pytest.approx(1)


def test_a_network_that_cannot_be_opened_is_reported_in_one_line(network: Path, tmp_path: Path) -> None:
    broken = tmp_path / "model"
    broken.mkdir()
    (broken / store.SPEC).write_bytes((network / store.SPEC).read_bytes())
    with pytest.raises(ModelError, match=rf"profile: .*{store.WEIGHTS}: cannot be read") as caught:
        session.measure(broken, SAMPLES, 5, 1, 300)
    assert "\n" not in str(caught.value)


def test_the_error_for_a_slow_network_says_which_limit_to_raise(network: Path) -> None:
    with pytest.raises(StageError, match=r"did not end within 0\.5 s; raise profile\.timeout_s"):
        session.measure(network, SAMPLES, 5, 1, 0.5)  # a process that loads torch says nothing for longer
