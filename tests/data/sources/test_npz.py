import io
import pickle
import zipfile

import numpy as np
import pytest

from edgekit.core.errors import ConfigError, DataError
from edgekit.data import load, parse


def vectors(count=120, features=5, classes=3, seed=0):
    rng = np.random.default_rng(seed)
    return rng.normal(size=(count, features)), np.arange(count) % classes


def written(folder, **arrays):
    path = folder / "samples.npz"
    np.savez(path, **arrays)
    return {"source": "npz", "path": str(path), "calibration_samples": 6}


def section(tmp_path, monkeypatch):
    x, y = vectors()
    return written(tmp_path, x_train=x, y_train=y, classes=["ant", "bee", "cat"])


@pytest.mark.parametrize(
    ("values", "kind"), [((-1, 0), np.int8), ((-1, 1), np.int64), ((3, 7), np.uint8), ((-2, 0, 5), np.int16)]
)
def test_classes_may_be_any_pair_of_integers_or_below_zero(tmp_path, values, kind):
    """They are named by their numbers, in all splits alike; -1 and 0 are how some tools write two classes."""
    x, y = vectors(classes=len(values))
    labels = np.array(values, kind)[y]
    path = tmp_path / "data.npz"
    np.savez(path, x_train=x[:90], y_train=labels[:90], x_test=x[90:], y_test=labels[90:])
    data = load(parse({"source": "npz", "path": str(path), "calibration_samples": 10}))
    assert data.classes == tuple(map(str, values))
    for split in (data.train, data.test):
        for sample, label in zip(split.x, split.y, strict=True):
            place = int(np.flatnonzero((x.astype(np.float32) == sample).all(axis=1))[0])
            assert values[label] == values[y[place]]


def test_many_labels_below_zero_are_no_classes(tmp_path):
    x, _ = vectors(count=3000)
    path = tmp_path / "data.npz"
    np.savez(path, x_train=x, y_train=np.arange(3000) - 1500)
    with pytest.raises(DataError, match=r"labels from -1500 to 1499, 3000 values; .*floating-point labels"):
        load(parse({"source": "npz", "path": str(path)}))


def test_vectors_become_float32_and_classes_are_numbered(tmp_path):
    x, y = vectors()
    data = load(parse(written(tmp_path, x_train=x, y_train=y)))
    assert data.raw_shape == (5,) and data.classes == ("0", "1", "2")
    assert {row.tobytes() for row in data.train.x} <= {row.tobytes() for row in x.astype(np.float32)}


def windows(count=120, time=16, channels=3):
    return np.random.default_rng(7).normal(size=(count, time, channels)), np.arange(count) % 2


def test_floats_of_three_axes_are_windows_and_bytes_are_still_pictures(tmp_path):
    x, y = windows()
    data = load(parse(written(tmp_path, x_train=x, y_train=y)))
    assert (data.kind, data.raw_shape, data.raw_dtype, data.columns) == ("window", (16, 3), "float32", None)
    assert data.raw_range is None
    assert any("number the recordings in groups_train, or give all splits" in note for note in data.notes)
    found = load(parse(written(tmp_path, x_train=(x * 40 + 128).clip(0, 255).astype(np.uint8), y_train=y)))
    assert found.kind == "image"


def test_windows_whose_recordings_are_named_stay_with_them(tmp_path):
    x, y = windows()
    recordings = np.arange(120) // 6  # of both classes: as when one person does everything
    data = load(parse(written(tmp_path, x_train=x, y_train=y, groups_train=recordings)))
    whose = {window.tobytes(): owner for window, owner in zip(x.astype(np.float32), recordings, strict=True)}
    homes = [
        {whose[window.tobytes()] for window in split.x} for split in (data.train, data.calibration, data.validation)
    ]
    homes.append({whose[window.tobytes()] for window in data.test.x})
    assert sum(map(len, homes)) == len(set().union(*homes)) == 20
    assert not any("groups_train" in note for note in data.notes)
    with pytest.raises(DataError, match="train: groups are int64 of shape .3,. for 120 samples"):
        load(parse(written(tmp_path, x_train=x, y_train=y, groups_train=np.arange(3))))


def test_grey_images_get_their_channel_axis(tmp_path):
    images = np.random.default_rng(0).integers(0, 256, (60, 6, 7), np.uint8)
    data = load(parse(written(tmp_path, x_train=images, y_train=np.arange(60) % 2)))
    assert data.kind == "image" and data.raw_shape == (6, 7, 1)


def test_given_splits_stay_as_they_are(tmp_path):
    (x, y), (xv, yv), (xt, yt) = vectors(), vectors(30, seed=1), vectors(33, seed=2)
    arrays = {"x_train": x, "y_train": y, "x_validation": xv, "y_validation": yv, "x_test": xt, "y_test": yt}
    data = load(parse(written(tmp_path, **arrays)))
    assert np.array_equal(data.test.x, xt.astype(np.float32)) and np.array_equal(data.validation.y, yv)
    assert len(data.train) + len(data.calibration) == 120


def test_a_given_validation_leaves_test_to_be_made(tmp_path):
    (x, y), (xv, yv) = vectors(), vectors(30, seed=1)
    data = load(parse(written(tmp_path, x_train=x, y_train=y, x_validation=xv, y_validation=yv)))
    assert [len(data.train), len(data.calibration), len(data.validation), len(data.test)] == [90, 6, 30, 24]


@pytest.mark.parametrize(
    "change, message",
    [
        ({"y_train": None}, "y_train missing; it holds x_train"),
        ({"x_test": vectors()[0]}, "y_test missing"),
        ({"x_trian": np.zeros(3)}, "unknown name 'x_trian', did you mean \"x_train\""),
        ({"classes": np.arange(3)}, "classes is int64"),
        ({"classes": ["a", "a", "b"]}, "names must be unique"),
        ({"classes": ["a", "b"]}, "labels must be 0 to 1"),
        ({"y_train": np.arange(120) * 7}, "without gaps"),
    ],
)
def test_wrong_arrays_are_named(tmp_path, change, message):
    x, y = vectors()
    arrays = {name: array for name, array in {"x_train": x, "y_train": y, **change}.items() if array is not None}
    with pytest.raises(DataError, match=message):
        load(parse(written(tmp_path, **arrays)))


def test_objects_are_never_unpickled(tmp_path):
    class Trap:
        def __reduce__(self):
            return open, (str(tmp_path / "sprung"), "w")

    stream = io.BytesIO()
    np.lib.format.write_array_header_1_0(stream, {"descr": "|O", "fortran_order": False, "shape": (1,)})
    stream.write(pickle.dumps([Trap()]))
    with zipfile.ZipFile(tmp_path / "samples.npz", "w") as archive:
        archive.writestr("x_train.npy", stream.getvalue())
    with pytest.raises(DataError, match="without unpickling"):
        load(parse({"source": "npz", "path": str(tmp_path / "samples.npz")}))
    assert not (tmp_path / "sprung").exists()


@pytest.mark.parametrize("content", [b"", b"not a zip", b"PK\x03\x04 half a zip"])
def test_a_foreign_file_is_refused(tmp_path, content):
    path = tmp_path / "samples.npz"
    path.write_bytes(content)
    with pytest.raises(DataError, match=r"samples\.npz: cannot be read as \.npz"):
        load(parse({"source": "npz", "path": str(path)}))


def test_a_damaged_member_is_refused(tmp_path):
    found = written(tmp_path, x_train=vectors()[0], y_train=vectors()[1])
    path = tmp_path / "samples.npz"
    damaged = bytearray(path.read_bytes())
    damaged[400] ^= 0xFF
    path.write_bytes(damaged)
    with pytest.raises(DataError, match="cannot be read"):
        load(parse(found))


def test_a_single_array_is_refused(tmp_path):
    np.save(tmp_path / "samples.npy", np.zeros(3))
    with pytest.raises(DataError, match="a single array"):
        load(parse({"source": "npz", "path": str(tmp_path / "samples.npy")}))


def test_paths_expand_variables(tmp_path, monkeypatch):
    monkeypatch.setenv("SAMPLES", str(tmp_path))
    found = {**section(tmp_path, monkeypatch), "path": "${SAMPLES}/samples.npz"}
    assert load(parse(found)).classes == ("ant", "bee", "cat")
    assert parse(found).model_dump()["path"] == "${SAMPLES}/samples.npz"


def test_an_unset_variable_is_a_fault_of_the_config(monkeypatch):
    monkeypatch.delenv("NOWHERE_SET", raising=False)
    with pytest.raises(ConfigError, match=r"data\.path.*'NOWHERE_SET' is not set"):
        parse({"source": "npz", "path": "${NOWHERE_SET}/x.npz"})


def test_a_missing_file_says_where_it_was_looked_for(tmp_path):
    with pytest.raises(DataError, match=r"data\.path: .*absent\.npz does not exist"):
        load(parse({"source": "npz", "path": str(tmp_path / "absent.npz")}))


@pytest.mark.parametrize(
    ("low", "high", "promised"),
    [(0.0, 1.0, [0.0, 1.0]), (-1.0, 1.0, [-1.0, 1.0]), (0.0, 255.0, None), (-0.5, 0.5, [-1.0, 1.0]), (-3.0, 3.0, None)],
)
def test_float_samples_promise_the_usual_range_they_lie_in(tmp_path, low, high, promised):
    x, y = vectors()
    x = (x - x.min()) / (x.max() - x.min()) * (high - low) + low
    assert load(parse(written(tmp_path, x_train=x, y_train=y))).raw_range == promised
