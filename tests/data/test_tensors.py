"""Samples of several tensors, as arrays by name."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edgekit import data
from edgekit.core.errors import DataError
from edgekit.data import arrays
from edgekit.runner import input_vector
from tests import joint_data


def test_a_function_and_an_npz_give_the_same_samples(tmp_path: Path) -> None:
    found = joint_data.arrays()
    flat = {f"x_train.{name}": array for name, array in found["x_train"].items()}
    np.savez(tmp_path / "data.npz", allow_pickle=False, y_train=found["y_train"], classes=found["classes"], **flat)
    sections = ({"source": "npz", "path": str(tmp_path / "data.npz")},
                {"source": "python", "function": "tests.joint_data:arrays"})  # fmt: skip
    by_file, by_function = (
        data.load(data.parse({**section, "calibration_samples": 60}, "classification")) for section in sections
    )
    assert by_file.digest == by_function.digest and by_file.kind == "tensors"
    assert by_file.raw_shape == (73,) and by_file.raw_dtype == "float32" and by_file.raw_range is None


def test_a_sample_is_what_the_device_makes_of_its_tensors() -> None:
    found = joint_data.arrays(40)
    pools = arrays.pools_from_arrays(found, "here")
    for place in range(40):
        one = {name: array[place] for name, array in found["x_train"].items()}
        assert np.array_equal(input_vector.join_named(one, pools.tensors or ()), pools.train.x[place])


def test_a_tensor_says_what_a_device_takes() -> None:
    found = joint_data.arrays()
    found["x_train"]["share"] = np.linspace(0, 1, 600).reshape(600, 1)
    found["x_train"]["shaken"] = np.zeros((600, 20, 3))
    described = {each["name"]: each for each in arrays.pools_from_arrays(found, "here").tensors or ()}
    assert described["shaken"]["range"] is None, "a sensor may later show more"
    assert described["picture"] == {"name": "picture", "shape": [1, 8, 8], "dtype": "uint8", "range": [0, 255]}
    assert described["sensors"] == {"name": "sensors", "shape": [5], "dtype": "float32", "range": [-1.0, 1.0]}
    assert described["ids"] == {"name": "ids", "shape": [4], "dtype": "int32", "range": [0, 9]}
    assert described["share"]["range"] == [0.0, 1.0]


def test_an_id_that_only_test_samples_have_is_taken_too() -> None:
    """Or a device would refuse a sample that the evaluation answered."""
    found = joint_data.arrays(60)
    test = {name: array[:5] for name, array in found["x_train"].items()}
    test["ids"] = np.full((5, 4), 12)
    pools = arrays.pools_from_arrays({**found, "x_test": test, "y_test": found["y_train"][:5]}, "here")
    assert (pools.tensors or ())[2]["range"] == [0, 12]


def changed(**tensors: Any) -> dict[str, Any]:
    found = joint_data.arrays(60)
    return {**found, "x_train": {**found["x_train"], **tensors}}


@pytest.mark.parametrize(
    ("tensors", "word"),
    [
        (changed(picture=np.zeros((59, 1, 8, 8), np.uint8)), "different numbers of samples: picture 59, sensors 60"),
        (changed(sensors=np.zeros(60, np.float32)), r"x_train.sensors is float32 of shape \(60,\); give \(n, 1\)"),
        (changed(sensors=np.array([["a"]] * 60)), "x_train.sensors is <U1 of shape"),
        (changed(sensors=np.array([[True]] * 60)), "x_train.sensors is bool of shape"),
        (changed(sensors=np.array([[None]] * 60)), "x_train.sensors is object"),
        (changed(sensors=np.array([[0.0, np.nan]] * 60)), "x_train.sensors: sample 0, place 1 is nan"),
        (changed(sensors=np.array([[0.0, 1e300]] * 60)), "x_train.sensors: sample 0, place 1 is inf"),
        (changed(ids=np.array([[2**24 + 1]] * 60)), "tensor ids holds whole numbers from 16777217"),
        ({**joint_data.arrays(60), "y_train.a": np.zeros(60)}, "y_train consists of named tensors; only x_train"),
        ({**joint_data.arrays(60), "x_tset.ids": np.zeros(60)}, "x_tset consists of named tensors; only x_train"),
        ({"x_train.only": np.zeros((60, 2)), "y_train": np.arange(60) % 2}, "only the tensor only"),
        ({**joint_data.arrays(60), "x_test": {"ids": np.zeros((5, 4), int)}, "y_test": np.zeros(5, int)},
         "x_test has the tensors ids, but x_train has ids, picture, sensors"),
        ({**joint_data.arrays(60), "y_test": np.zeros(5, int),
          "x_test": {**{name: array[:5] for name, array in joint_data.arrays(60)["x_train"].items()},
                     "ids": np.zeros((5, 3), int)}}, "tensor ids differs between splits"),
        ({**joint_data.arrays(60), "x_test": np.zeros((5, 73), np.float32), "y_test": np.zeros(5, int)},
         "x_test is one array, but others consist of named tensors; give x_test.NAME"),
        ({"x_train": np.zeros((60, 2), np.float32), "x_train.a": np.zeros((60, 2)), "x_train.b": np.zeros((60, 2)),
          "y_train": np.arange(60) % 2}, "x_train is one array"),
        ({"x_train": np.zeros((60, 2), np.float32), "y_train": np.arange(60) % 2, "y_test": np.zeros(5, int),
          "x_test.a": np.zeros((5, 2)), "x_test.b": np.zeros((5, 2))}, "x_train is one array"),
    ],
)  # fmt: skip
def test_tensors_that_do_not_fit_are_named(tensors: dict[str, Any], word: str) -> None:
    with pytest.raises(DataError, match=word):
        arrays.pools_from_arrays(tensors, "here")


def test_a_task_that_gives_a_sample_back_takes_one_array() -> None:
    with pytest.raises(DataError, match="task anomaly needs one array each"):
        arrays.pools_from_arrays(joint_data.arrays(60), "here", "anomaly")
