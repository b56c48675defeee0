"""`python -m benchmarks.sparse.dense`: dense layers with zeros, opened with OpenVINO's option and without."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from benchmarks.sparse import dense


def test_openings_of_one_file_are_compared(tmp_path: Path) -> None:
    path = dense.make(64, 1, tmp_path)
    rows = [line.split(" | ") for line in dense.measure(path, 64, 11)]
    assert [row[0].removeprefix("| ") for row in rows] == [dense.PLAIN, "rate 0.5", "rate 0.8"]
    assert [row[2] for row in rows] == ["same bits"] * 3


def test_most_weights_of_the_file_are_zeros(tmp_path: Path) -> None:
    import openvino

    model = openvino.Core().read_model(str(dense.make(128, 1, tmp_path)))
    weights = [op.get_data() for op in model.get_ops() if op.get_type_name() == "Constant"]
    [kept] = [each for each in weights if each.size == 128 * 128]
    assert 0.75 < np.mean(kept == 0) < 0.85


@pytest.mark.parametrize(
    ("flag", "value", "said"),
    [
        ("--width", "0", "at least 64"),
        ("--layers", "0", "at least 1"),
        ("--rounds", "10", "at least 11"),
        ("--width", "100", "write a multiple of 64"),
    ],
)
def test_a_wrong_number_is_told_in_a_line(flag: str, value: str, said: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.argv", ["dense", flag, value])
    with pytest.raises(SystemExit, match=rf"^{flag}: got {value}; {said}$"):
        dense.main()
