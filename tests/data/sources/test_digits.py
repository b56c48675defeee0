import numpy as np
import pytest

from edgekit.core.errors import ConfigError
from edgekit.data import load, parse


def section(tmp_path, monkeypatch):
    return {}


def test_the_defaults_give_all_1797_digits():
    data = load(parse({"source": "digits"}))
    assert data.raw_shape == (32, 32, 1) and data.kind == "image"
    assert data.classes == tuple("0123456789")
    sizes = [len(split) for split in (data.train, data.calibration, data.validation, data.test)]
    assert sum(sizes) == 1797 and sizes[1:] == [200, 359, 359]


def test_the_digest_is_pinned():
    """Bit for bit on every machine: a change of Pillow, numpy or scikit-learn that moves it has to be seen."""
    assert load(parse({"source": "digits"})).digest.startswith("24576102a95ee6d5")


def test_native_size_keeps_the_grey_levels():
    from sklearn.datasets import load_digits

    data = load(parse({"source": "digits", "size": 8}))
    splits = (data.train, data.calibration, data.validation, data.test)
    ours = np.concatenate([split.x for split in splits])[..., 0]
    theirs = np.rint(load_digits().images * 255 / 16)
    assert sorted(x.tobytes() for x in ours) == sorted(x.astype(np.uint8).tobytes() for x in theirs)
    assert ours.max() == 255


def test_the_size_is_checked():
    with pytest.raises(ConfigError, match=r"data\.size: got 4"):
        parse({"source": "digits", "size": 4})
