"""Contract of every file in edgekit/training/augmentations; what each does has a file of its own beside this."""

from __future__ import annotations

import importlib
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edgekit.core.errors import ConfigError
from edgekit.data import Data
from edgekit.training import augmentations
from edgekit.training.augmentations import AugmentationOptions
from edgekit.training.batches import Chain
from edgekit.training.checkpoint import Checkpoint
from edgekit.training.fit import fit
from tests.training.test_checkpoint import Stopped, stop_after
from tests.training.test_fit import SCALE, bars, blobs, convolutions, data_of, options, over_time, same, waves

ALL = ", ".join(augmentations.NAMES)
SHAPES = {"image": [(16, 8, 8, 3), (16, 9, 5, 1), (2, 1, 1, 3)], "window": [(16, 24, 2)]}
MADE = {"image": lambda: data_of(bars, "image", 2), "window": lambda: data_of(waves, "window", 2)}


def parsed(name: str, **changes: Any) -> AugmentationOptions:
    return augmentations.parse({"kind": name, **changes})


def kinds(name: str) -> tuple[str, ...]:
    return tuple(importlib.import_module(f"edgekit.training.augmentations.{name}").KINDS)


def samples(shape: tuple[int, ...], seed: int = 0) -> np.ndarray:
    random = np.random.default_rng(seed)
    if len(shape) == 4:
        return random.integers(0, 256, shape, dtype=np.uint8)
    return random.normal(9.81, 1, shape).astype(np.float32)


def applied(name: str, raw: np.ndarray, seed: int = 0, **changes: Any) -> tuple[np.ndarray, Any]:
    chosen = parsed(name, **changes)
    return augmentations.function(chosen)(raw, chosen, np.random.default_rng(seed))


def small(name: str, **changes: Any) -> tuple[Data, Any, Any]:
    kind = kinds(name)[0]
    chosen = options(4, augment="shift", augmentations=[{"kind": name, "probability": 0.7, **changes}])
    return MADE[kind](), (convolutions if kind == "image" else over_time), chosen


def test_the_folder_holds_these() -> None:
    assert set(augmentations.NAMES) >= {"cutmix", "erase", "mixup", "rand_augment"}


def test_a_config_without_augmentations_imports_neither_torch_nor_numpy() -> None:
    code = (
        "import sys\nfrom edgekit.training import augmentations\nprint(*sorted({'torch', 'numpy'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == []


@pytest.mark.parametrize(
    ("section", "message"),
    [
        ({"kind": "cutmx"}, "augmentations.1.kind: got 'cutmx'; did you mean \"cutmix\"?"),
        ({"kind": "nothing alike"}, f"allowed here: {ALL}"),
        ({"kind": 3}, f"augmentations.1: got {{'kind': 3}}; it needs `kind:` with one of {ALL}"),
        ("mixup", f"augmentations.1: got 'mixup'; it needs `kind:` with one of {ALL}"),
        ({"kind": "mixup", "alhpa": 1.0}, 'augmentations.1.alhpa: unknown key, did you mean "alpha"?'),
        ({"kind": "mixup", "probability": 1.5}, "augmentations.1.probability: got 1.5; "),
    ],
)
def test_what_is_not_there_is_refused_with_its_place(section: Any, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        augmentations.parse_all([{"kind": "erase"}, section])
    assert message in str(caught.value)


def test_samples_and_labels_that_they_make_no_sense_of_are_refused_before_the_first_batch() -> None:
    vectors, windows = data_of(blobs, "vector", 3), data_of(waves, "window", 2)
    for data, name, words in (
        (vectors, "cutmix", "got cutmix, but the samples are vectors; it supports only images; leave it out"),
        (vectors, "mixup", "got mixup, but the samples are vectors; it supports only images and windows; leave it out"),
        (windows, "erase", "got erase, but the samples are windows; it supports only images; leave it out"),
    ):
        with pytest.raises(ConfigError) as caught:
            fit(convolutions(), data, [], options(1, augmentations=[{"kind": name}]), seed=0, device="cpu", threads=1)
        assert words in str(caught.value)


@pytest.mark.parametrize("task", ["detection", "segmentation", "anomaly"])
@pytest.mark.parametrize("name", augmentations.NAMES)
def test_tasks_whose_labels_would_be_wrong_are_refused(name: str, task: str) -> None:
    class Pictures:
        kind = "image"

    pictures: Any = Pictures()
    pictures.task = task
    with pytest.raises(ConfigError, match=f"got {name}, but task is {task}: the labels would not fit"):
        augmentations.active([{"kind": name}], pictures)


def test_one_that_changes_nothing_is_left_out_so_that_labels_stay_what_they_were() -> None:
    data = data_of(bars, "image", 2)
    found = augmentations.active([{"kind": "mixup", "probability": 0.0}, {"kind": "erase"}], data)
    assert [each.kind for each in found] == ["erase"]
    without, zero = convolutions(), convolutions()
    expected = fit(without, data, SCALE, options(2), seed=1, device="cpu", threads=1)
    chosen = options(2, augmentations=[{"kind": "mixup", "probability": 0.0}])
    assert fit(zero, data, SCALE, chosen, seed=1, device="cpu", threads=1) == expected
    assert same(without, zero)


@pytest.mark.parametrize("name", augmentations.NAMES)
class TestContract:
    def test_its_name_is_its_files(self, name: str) -> None:
        chosen = parsed(name)
        assert chosen.kind == name
        assert type(chosen)().kind == name

    def test_every_option_is_described(self, name: str) -> None:
        fields = type(parsed(name)).model_fields
        assert all(field.description for key, field in fields.items() if key != "kind")

    def test_shape_type_and_range_stay(self, name: str) -> None:
        for kind in kinds(name):
            for shape in SHAPES[kind]:
                raw = samples(shape)
                before = raw.copy()
                found, _ = applied(name, raw, probability=1.0)
                assert (found.shape, found.dtype) == (raw.shape, raw.dtype)
                assert found is not raw and np.array_equal(raw, before), "its input is not written on"
                if raw.dtype != np.uint8:
                    assert raw.min() <= found.min() and found.max() <= raw.max()

    def test_the_generator_decides(self, name: str) -> None:
        raw = samples(SHAPES[kinds(name)[0]][0])
        (first, mixed), (again, mixed_again), (other, _) = (
            applied(name, raw, seed, probability=1.0) for seed in (1, 1, 2)
        )
        assert np.array_equal(first, again)
        assert not np.array_equal(first, other)
        assert not np.array_equal(first, raw)
        assert (mixed is None) == (mixed_again is None) == (not augmentations.mixes_samples(parsed(name)))
        if mixed is not None:
            assert np.array_equal(mixed.own_shares, mixed_again.own_shares)
            assert np.array_equal(mixed.partners, mixed_again.partners)

    def test_probability_is_that_of_a_sample(self, name: str) -> None:
        raw = samples((400, *SHAPES[kinds(name)[0]][0][1:]))
        found, mix = applied(name, raw, probability=0.0)
        assert np.array_equal(found, raw) and (mix is None or (mix.own_shares == 1).all())
        found, mix = applied(name, raw, probability=0.5)
        changed = (found != raw).reshape(len(raw), -1).any(axis=1)
        assert 100 < changed.sum() < 260  # some operations change little
        if mix is not None:
            by_another = mix.partners != np.arange(len(raw))
            assert (mix.own_shares[~changed & by_another] > 0.9).all()

    def test_mixed_labels_are_shares_and_all_others_stay_as_they_are(self, name: str) -> None:
        raw, labels = samples(SHAPES[kinds(name)[0]][0]), np.arange(SHAPES[kinds(name)[0]][0][0]) % 3
        chain = Chain([parsed(name, probability=1.0)], 3)
        found, soft = chain(raw, labels, np.random.default_rng(0))
        expected, mix = applied(name, raw, probability=1.0)
        assert np.array_equal(found, expected)
        if mix is None:
            assert soft is labels
            return
        assert soft.dtype == np.float32 and soft.shape == (len(raw), 3)
        assert (soft >= 0).all() and soft.sum(axis=1) == pytest.approx(1)
        for row, label, other, kept in zip(soft, labels, labels[mix.partners], mix.own_shares, strict=True):
            assert row[label] == pytest.approx(1 if label == other else kept)

    def test_a_stopped_training_goes_on_to_the_same_bits(self, name: str, tmp_path: Path) -> None:
        data, network, chosen = small(name)
        steps = SCALE if data.kind == "image" else []
        whole, again = network(), network(9)
        expected = fit(whole, data, steps, chosen, seed=3, device="cpu", threads=1)
        place = Checkpoint(tmp_path / "net.safetensors", "key")
        with pytest.raises(Stopped):
            fit(network(), data, steps, chosen, seed=3, device="cpu", threads=1, resume=place, on_epoch=stop_after(2))
        assert fit(again, data, steps, chosen, seed=3, device="cpu", threads=1, resume=place) == expected
        assert same(again, whole)
