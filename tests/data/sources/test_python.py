import numpy as np
import pytest

from edgekit.core.errors import ConfigError, DataError
from edgekit.data import load, parse

MODULE = """
import numpy as np

KEPT = {}

def make(count=90, flaw=None):
    rng = np.random.default_rng(count)
    KEPT["x"] = x = rng.integers(0, 256, (count, 8, 8, 3), np.uint8)
    y = np.arange(count) % 3
    if flaw == "list":
        return [x, y]
    if flaw == "raise":
        raise RuntimeError("the sensor is off")
    if flaw == "ragged":
        return {"x_train": [[1.0], [1.0, 2.0]], "y_train": [0, 1]}
    if flaw == "given":
        return {"x_train": x, "y_train": y, "x_test": x[:6] ^ 255, "y_test": y[:6], "classes": ("a", "b", "c")}
    return {"x_train": x, "y_train": y, "x_test": None}

number = 3
"""


def section(tmp_path, monkeypatch):
    (tmp_path / "users_own_data.py").write_text(MODULE)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(__import__("sys").modules, "users_own_data", raising=False)
    return {"source": "python", "function": "users_own_data:make", "calibration_samples": 6}


@pytest.fixture
def own(tmp_path, monkeypatch):
    return section(tmp_path, monkeypatch)


def test_kwargs_reach_the_function(own):
    data = load(parse({**own, "kwargs": {"count": 60}}))
    assert sum(map(len, (data.train, data.calibration, data.validation, data.test))) == 60


def test_the_users_own_arrays_stay_writable(own):
    data = load(parse({**own, "kwargs": {"flaw": "given"}}))
    import users_own_data

    assert not data.test.x.flags.writeable and data.classes == ("a", "b", "c")
    users_own_data.KEPT["x"][0] = 0


@pytest.mark.parametrize(
    "flaw, message",
    [
        ("list", "returned list; it must return a dict"),
        ("raise", "RuntimeError: the sensor is off"),
        ("ragged", "x_train is not an array"),
    ],
)
def test_a_function_that_does_not_deliver(own, flaw, message):
    with pytest.raises(DataError, match=message):
        load(parse({**own, "kwargs": {"flaw": flaw}}))


def test_unknown_kwargs_are_reported(own):
    with pytest.raises(DataError, match="unexpected keyword argument 'cuont'"):
        load(parse({**own, "kwargs": {"cuont": 3}}))


@pytest.mark.parametrize(
    "function, message",
    [
        ("users_own_dta:make", "no module 'users_own_dta'"),
        ("users_own_data:mkae", "no 'mkae', did you mean \"make\""),
        ("users_own_data:number", "cannot be called under 'number'"),
    ],
)
def test_a_function_that_is_not_there(own, function, message):
    with pytest.raises(ConfigError, match=message):
        load(parse({**own, "function": function}))


def test_a_spec_without_colon_is_refused_before_anything_is_imported():
    with pytest.raises(ConfigError, match=r"data\.function: got 'users_own_data\.make'"):
        parse({"source": "python", "function": "users_own_data.make"})


def test_a_module_that_fails_to_import_says_why(own, tmp_path):
    (tmp_path / "users_broken.py").write_text("import not_there_at_all\n")
    with pytest.raises(DataError, match="needs module 'not_there_at_all'"):
        load(parse({**own, "function": "users_broken:make"}))
    (tmp_path / "users_wrong.py").write_text("1 / 0\n")
    with pytest.raises(DataError, match="ZeroDivisionError"):
        load(parse({**own, "function": "users_wrong:make"}))


def test_every_call_is_fresh(own):
    assert np.array_equal(load(parse(own)).test.x, load(parse(own)).test.x)
