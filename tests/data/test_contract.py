"""What every source must hold to, run over every source file that `edgekit/data/` has.

A new source brings `test_<source>.py` beside this file with `section(tmp_path, monkeypatch) -> dict`: the options of
a small data set that works, a few dozen samples or more.
"""

from __future__ import annotations

import importlib
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from edgekit.core.errors import ConfigError, DataError
from edgekit.core.tasks import BOX_TASKS
from edgekit.data import Data, load, parse, source_names

HEAVY = ("torch", "tensorflow", "openvino", "sklearn", "matplotlib")


@pytest.fixture(params=source_names())
def section(request, tmp_path, monkeypatch):
    module = importlib.import_module(f".sources.test_{request.param}", __package__)
    return {"source": request.param, **module.section(tmp_path, monkeypatch)}


@pytest.fixture
def data(section) -> Data:
    return load(parsed(section))


def parsed(section):
    """For the task that the source serves: the test file's TASK, else classification."""
    name = str(section["source"]) if isinstance(section, dict) else ""
    known = name in source_names()
    module = importlib.import_module(f".sources.test_{name}", __package__) if known else None
    return parse(section, getattr(module, "TASK", "classification"))


def every(data: Data) -> dict[str, object]:
    return {"train": data.train, "calibration": data.calibration, "validation": data.validation, "test": data.test}


def test_the_folder_holds_the_sources_of_the_design():
    known = {"boxes", "csv_rows", "csv_windows", "digits", "image_folder", "masks", "npz", "python", "text_folder"}
    assert known | {"text_table", "wav_folder", "wav_track", "webdataset"} <= set(source_names())


def test_samples_are_raw(data):
    axes = {"image": ("uint8", 3), "vector": ("float32", 1), "audio": ("float32", 1), "window": ("float32", 2)}
    axes["text"] = ("int32", 1)
    expected = axes[data.kind]
    assert (data.raw_dtype, len(data.raw_shape)) == expected
    for split in every(data).values():
        assert split.x.dtype == expected[0] and split.x.shape == (len(split), *data.raw_shape)
        labels = {**dict.fromkeys(BOX_TASKS, ("float32", 3)), "segmentation": ("uint8", 3)}.get(data.task, ("int64", 1))
        assert (str(split.y.dtype), split.y.ndim, len(split.y)) == (*labels, len(split))
        assert not split.x.flags.writeable and not split.y.flags.writeable


def test_splits_are_disjoint_by_content(data):
    contents = [{sample.tobytes() for sample in split.x} for split in every(data).values()]
    assert sum(map(len, contents)) == len(set().union(*contents))


def test_every_class_is_everywhere_but_maybe_in_calibration(data):
    for split in (data.train, data.validation, data.test):
        found = split.y[:, 1:, 0] if data.task in BOX_TASKS else split.y
        assert set(found.astype(int).ravel().tolist()) - {-1, 255} == set(range(len(data.classes)))


def test_calibration_is_as_large_as_asked_and_balanced(section):
    count = 2 * len(load(parsed(section)).classes)
    data = load(parsed({**section, "calibration_samples": count}))
    if data.task in (*BOX_TASKS, "segmentation"):  # a picture has several classes
        assert len(data.calibration) == count
        return
    assert np.bincount(data.calibration.y).tolist() == [2] * len(data.classes)


def test_same_config_same_digest_and_bytes(section, data):
    again = load(parsed(section))
    assert again.digest == data.digest
    for one, other in zip(every(data).values(), every(again).values(), strict=True):
        assert np.array_equal(one.x, other.x) and np.array_equal(one.y, other.y)


def test_another_split_seed_is_another_digest(section, data):
    assert load(parsed({**section, "split_seed": 1})).digest != data.digest


def test_limit_shrinks_every_split_and_keeps_the_classes(section, data):
    limit = sum(len(split) for split in (data.train, data.calibration)) // 2
    small = load(parsed({**section, "limit": limit, "calibration_samples": 4}))
    assert len(small.train) + len(small.calibration) <= limit
    assert len(small.validation) < len(data.validation) and len(small.test) < len(data.test)
    assert small.classes == data.classes
    assert {x.tobytes() for x in small.test.x} <= {x.tobytes() for split in every(data).values() for x in split.x}


def test_a_limit_above_the_pool_changes_nothing(section, data):
    assert load(parsed({**section, "limit": 1_000_000})).digest == data.digest


def test_withheld_test_cannot_be_read(data):
    withheld = data.withhold_test()
    assert withheld.digest == data.digest and len(data.test)
    with pytest.raises(DataError, match="withheld"):
        _ = withheld.test


def test_progress_ends_at_the_total(section):
    calls: list[tuple[int, int]] = []
    load(parsed(section), lambda done, total: calls.append((done, total)))
    assert not calls or calls[-1][0] == calls[-1][1]
    assert calls == sorted(calls)


def test_a_misspelt_option_says_which_was_meant(section):
    with pytest.raises(ConfigError, match=r'data\.split_sed: unknown key, did you mean "split_seed"'):
        parsed({**section, "split_sed": 1})


def test_a_wrong_range_quotes_the_value(section):
    with pytest.raises(ConfigError, match=r"data\.calibration_samples: got 0"):
        parsed({**section, "calibration_samples": 0})


def test_fractions_that_leave_nothing_are_refused(section):
    with pytest.raises(ConfigError, match=r"validation_fraction 0\.5 and test_fraction 0\.5"):
        parsed({**section, "validation_fraction": 0.5, "test_fraction": 0.5})


def test_too_many_calibration_samples(section):
    with pytest.raises(DataError, match="calibration_samples is 90000; set it to at most"):
        load(parsed({**section, "calibration_samples": 90_000}))


def test_a_config_is_plain_and_comes_back_the_same(section):
    config = parsed(section)
    dumped = config.model_dump(mode="json")
    assert parse(dumped) == config


@pytest.mark.parametrize(
    "wrong, message",
    [
        ({}, "needs `source:`"),
        ({"source": "digts"}, 'did you mean "digits"'),
        ({"source": "checks"}, "'checks'"),
        ({"source": 3}, "got 3"),
        (None, "got None"),
    ],
)
def test_the_error_for_an_unknown_source_lists_the_sources(wrong, message):
    with pytest.raises(ConfigError, match=message):
        parse(wrong)


def test_checking_a_config_imports_nothing_heavy():
    code = (
        "import sys, edgekit.data as data\n"
        "data.source_names(), data.parse({'source': 'digits'})\n"
        f"print([name for name in {HEAVY} if name in sys.modules])"
    )
    root = Path(__file__).parents[2]
    done = subprocess.run([sys.executable, "-c", code], cwd=root, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
