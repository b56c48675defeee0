"""Labels of every task, from an .npz through the division into splits."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from edgekit.core.errors import ConfigError, DataError
from edgekit.data import Data, load, parse
from tests.core.tasks.task_data import ARRAYS_OF, LABELS

RANDOM = np.random.default_rng(0)


def loaded(folder: Path, task: str, **arrays: np.ndarray) -> Data:
    np.savez(folder / "data.npz", allow_pickle=False, **arrays)
    return load(parse({"source": "npz", "path": str(folder / "data.npz"), "calibration_samples": 20}, task))


def vectors(count: int) -> np.ndarray:
    return RANDOM.normal(size=(count, 4)).astype(np.float32)


@pytest.mark.parametrize("task", ARRAYS_OF)
def test_data_of_a_task_are_divided(tmp_path: Path, task: str) -> None:
    arrays = ARRAYS_OF[task]()
    data = loaded(tmp_path, task, **arrays)
    splits = (data.train, data.calibration, data.validation, data.test)
    assert data.task == task
    assert sum(map(len, splits)) == len(arrays["x_train"])
    rows = [row.tobytes() for split in splits for row in split.x]
    assert len(set(rows)) == len({row.tobytes() for row in arrays["x_train"]})
    again = loaded(tmp_path, task, **arrays)
    assert again.digest == data.digest
    assert np.array_equal(again.validation.y, data.validation.y)


def test_labels_and_names(tmp_path: Path) -> None:
    data = loaded(tmp_path, "multi_label", **ARRAYS_OF["multi_label"]())
    assert data.classes == LABELS
    assert data.train.y.dtype == np.int64 and data.train.y.shape[1:] == (3,)
    assert abs(data.train.y.mean(axis=0) - data.test.y.mean(axis=0)).max() < 0.03
    data = loaded(tmp_path, "regression", **ARRAYS_OF["regression"]())
    assert data.classes == ("f", "root")
    assert data.train.y.dtype == np.float32 and data.train.y.shape[1:] == (2,)
    assert abs(data.validation.y.mean(axis=0) - data.test.y.mean(axis=0)).max() < 0.1
    assert loaded(tmp_path, "regression", x_train=vectors(200), y_train=RANDOM.normal(size=200)).classes == ("value",)


def test_other_labels_are_other_data(tmp_path: Path) -> None:
    x, y = vectors(200), RANDOM.normal(size=200)
    assert (
        loaded(tmp_path, "regression", x_train=x, y_train=y).digest
        != loaded(tmp_path, "regression", x_train=x, y_train=y + 0.001).digest
    )


def test_anomalies_leave_train(tmp_path: Path) -> None:
    data = loaded(tmp_path, "anomaly", **ARRAYS_OF["anomaly"]())
    assert data.classes == ("normal", "anomaly")
    assert not data.train.y.any() and not data.calibration.y.any()
    assert {int(data.validation.y.sum()), int(data.test.y.sum())} == {200}
    assert any("anomalies of train went to test and validation" in note for note in data.notes)


def test_validation_borrows_anomalies_of_test(tmp_path: Path) -> None:
    """Folders as MVTec's: train is normal, and test has both."""
    y_test = np.r_[np.zeros(40, int), np.ones(21, int)]
    data = loaded(
        tmp_path, "anomaly", x_train=vectors(300), y_train=np.zeros(300, int), x_test=vectors(61), y_test=y_test
    )
    assert (int(data.validation.y.sum()), int(data.test.y.sum())) == (10, 11)
    assert int((data.test.y == 0).sum()) == 40 and int((data.validation.y == 0).sum()) == 60
    assert "10 of test's 21 anomalies went to validation, which had none" in data.notes


def test_anomalies_nobody_needs_are_left_out(tmp_path: Path) -> None:
    both = np.r_[np.zeros(30, int), np.ones(10, int)]
    data = loaded(
        tmp_path, "anomaly",
        x_train=vectors(210), y_train=np.r_[np.zeros(200, int), np.ones(10, int)],
        x_validation=vectors(40), y_validation=both, x_test=vectors(40), y_test=both,
    )  # fmt: skip
    assert len(data.train) + len(data.calibration) == 200
    assert any(note.startswith("10 anomalies of train were left out") for note in data.notes)


def test_a_split_without_an_anomaly_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no anomaly among .* put more into train"):
        loaded(tmp_path, "anomaly", x_train=vectors(100), y_train=np.zeros(100, int))


def test_a_scale_that_no_training_begins_with(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"train: value has mean .* in another unit"):
        loaded(tmp_path, "regression", x_train=vectors(100), y_train=1e5 * RANDOM.normal(size=100))


def test_a_source_whose_labels_are_classes() -> None:
    with pytest.raises(ConfigError, match="task and data.source disagree: the labels of digits serve classification"):
        parse({"source": "digits"}, "regression")
    with pytest.raises(ConfigError, match="serve classification, embedding and anomaly, but task is multi_label"):
        parse({"source": "image_folder", "path": "/x", "size": 8}, "multi_label")


def test_the_task_stands_at_the_top() -> None:
    with pytest.raises(ConfigError, match="data.task: belongs at the top level of the config"):
        parse({"source": "digits", "task": "classification"}, "classification")


def test_vectors_whose_anomalies_are_sought_promise_no_range(tmp_path: Path) -> None:
    x, y = RANDOM.random((100, 4)).astype(np.float32), np.arange(100) % 4 == 0
    assert loaded(tmp_path, "anomaly", x_train=x, y_train=y.astype(int)).raw_range is None
    assert loaded(tmp_path, "classification", x_train=x, y_train=y.astype(int)).raw_range == [0.0, 1.0]


def test_names_that_no_device_could_show_are_refused(tmp_path: Path) -> None:
    names = np.array(["a\u00a0b", "c"])
    with pytest.raises(DataError, match=r"classes: got 'a\\xa0b'; rename it"):
        loaded(tmp_path, "classification", x_train=vectors(40), y_train=np.arange(40) % 2, classes=names)
