"""CSV files become exactly the windows that a bundle promises, or an error that names line and column."""

from __future__ import annotations

import contextlib
import shlex
import subprocess
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edgekit.runner import inputs
from edgekit.runner.bundle.manifest import RawSpec
from edgekit.runner.errors import InputError
from edgekit.runner.inputs import table
from edgekit.runner.loader import load
from edgekit.runner.preprocess import transform
from tests.runner import flat
from tests.runner.flat import WINDOW, predict, refusal

NAMELESS = RawSpec("window", (4, 3), "float32")
STEPS = [
    {"step": "scale", "factor": 0.1020408},
    {"step": "normalize", "mean": [0.1, -0.2, 0.97], "std": [0.3, 0.41, 1.7]},
]


def rows(count: int = 4, end: str = "\n", between: str = ",") -> bytes:
    """Every cell another number: time, az, ax, a note, ay."""
    lines = [["t", "az", "ax", "note", "ay"]]
    lines += [[str(row / 50), f"{row}.25", f"-{row}.5", "at rest", f"{row}e-2"] for row in range(count)]
    return "".join(between.join(line) + end for line in lines).encode()


EXPECTED = np.array([[-row - 0.5 if row else -0.5, row / 100, row + 0.25] for row in range(4)], np.float32)


def sample(content: bytes, folder: Path, raw: RawSpec = WINDOW) -> np.ndarray:
    (folder / "a.csv").write_bytes(content)
    return inputs.read_first_sample(str(folder / "a.csv"), raw)


@pytest.mark.parametrize("between", [",", ";", "\t"])
@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_columns_are_found_by_name_whatever_parts_them(between: str, end: str, tmp_path: Path) -> None:
    found = sample(rows(end=end, between=between), tmp_path)
    assert (found.dtype, found.shape) == (np.float32, (4, 3))
    assert found.tobytes() == EXPECTED.tobytes()


@pytest.mark.parametrize(
    "content",
    [
        b"\xef\xbb\xbf" + rows(),
        rows() + b"\n\n",
        rows()[:-1],
        rows().replace(b"ax", b'" ax "').replace(b"at rest", b'"at rest, or not"'),
        rows().replace(b"-3.5", b" -3.5 "),
        rows().replace(b",note,", b",,").replace(b"t,", b",", 1),
    ],
)
def test_what_programs_write_around_the_numbers_changes_nothing(content: bytes, tmp_path: Path) -> None:
    assert sample(content, tmp_path).tobytes() == EXPECTED.tobytes()


@pytest.mark.parametrize("between", [";", "\t"])
def test_decimal_commas_are_read_where_no_comma_parts_the_cells(between: str, tmp_path: Path) -> None:
    content = rows(between=between).replace(b".", b",")
    assert b"," in content
    assert sample(content, tmp_path).tobytes() == EXPECTED.tobytes()
    assert sample(b"\xef\xbb\xbf" + content.replace(b"\n", b"\r\n"), tmp_path).tobytes() == EXPECTED.tobytes()


@settings(max_examples=200, deadline=None)
@given(st.lists(st.floats(allow_nan=False, width=64), min_size=1, max_size=6))
def test_every_number_is_rounded_once_from_pythons_own(values: list[float]) -> None:
    content = "\n".join(["x", *map(repr, values)]).encode()
    with np.errstate(over="ignore"):
        expected = np.array(values).astype(np.float32)
    parsed = table.parse("x.csv", content)
    if np.isfinite(expected).all():
        assert table.floats(parsed, ["x"])[:, 0].tobytes() == expected.tobytes()
    else:
        with pytest.raises(InputError, match="beyond float32's range|in digits"):
            table.floats(parsed, ["x"])


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", ["first line is empty"]),
        (b"\n" + rows(), ["first line is empty"]),
        (rows().split(b"\n", 1)[1], ["no column 'ax'", "its header is '0.0'"]),
        (b"1.5,2.5,3\n4,5,6\n", ["first line holds numbers", "put the columns' names"]),
        (rows().replace(b"ay", b"by"), ["no column 'ay'", "'by'"]),
        (rows().replace(b"note", b"ax"), ["2 columns are called 'ax'"]),
        (rows().replace(b"-2.5", b"-2,5"), ["line 4", "6 cells, but the header has 5"]),
        (
            rows(between=";").replace(b"-2.5", b"-2,5"),
            ["line 4, column 'ax'", "'-2,5'", "decimals with a point, or all"],
        ),
        (rows(between=";").replace(b"-2.5", b"-1.002,5"), ["line 4, column 'ax'", "nothing between thousands"]),
        (rows().replace(b"-2.5", b""), ["line 4, column 'ax'", "got ''", "fill the gap"]),
        (rows().replace(b"-2.5", b"n/a"), ["line 4, column 'ax'", "got 'n/a'", "must be a number"]),
        (rows().replace(b"-2.5", b"nan"), ["line 4, column 'ax'", "got 'nan'"]),
        (rows().replace(b"-2.5", b"-inf"), ["line 4, column 'ax'", "got '-inf'"]),
        (rows().replace(b"-2.5", b"1e39"), ["line 4, column 'ax'", "'1e39'", "beyond float32"]),
        (rows().replace(b"-2.5", b"2_5"), ["line 4, column 'ax'", "'2_5'"]),
        (rows().replace(b"\n0.04", b"\n\n0.04"), ["line 4", "empty"]),
        (rows(3), ["3 rows, but the bundle takes 4", "record for longer"]),
        (rows(9), ["more than 4 rows, but the bundle takes 4", "head -n 5"]),
        (rows().decode().encode("utf-16"), ["not text in UTF-8"]),
        (b'ax,ay,az\n"1,2,3\n', ["line 2", "1 cells"]),
    ],
)
def test_a_table_that_does_not_fit_is_refused_with_the_fix(content: bytes, words: list[str], tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_bytes(content)
    message = refusal(tmp_path / "a.csv", WINDOW)
    assert all(word in message for word in words), message


def test_the_fix_that_is_printed_works(tmp_path: Path) -> None:
    (tmp_path / "it's long.csv").write_bytes(rows(9))
    line = refusal(tmp_path / "it's long.csv", WINDOW).split("that many: ")[1]
    subprocess.run(line, shell=True, check=True, cwd=tmp_path)
    assert inputs.read_first_sample(str(tmp_path / shlex.split(line)[-1]), WINDOW).tobytes() == EXPECTED.tobytes()


def test_a_bundle_that_names_no_columns_takes_no_table(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_bytes(rows())
    assert "names no columns; give it a .npy file" in refusal(tmp_path / "a.csv", NAMELESS)
    assert "names no columns; give it a .npy file" in refusal(tmp_path / "a.csv", flat.VECTOR)
    assert "not a table; give it a .npy file" in refusal(tmp_path / "a.csv", flat.PIXELS)
    assert inputs.input_files(str(tmp_path), NAMELESS) == [str(tmp_path)]
    assert inputs.input_files(str(tmp_path), WINDOW) == [str(tmp_path / "a.csv")]


def test_a_window_on_the_device_is_the_notebooks_to_the_bit(tmp_path: Path) -> None:
    """The workbook applies the steps to all windows at once, the device to one out of a file; channels have their own
    mean and deviation, along the last axis."""
    for steps in ([], STEPS, STEPS[:1], [{"step": "normalize", "mean": [0.5], "std": [2.0]}]):
        bundle = flat.write(tmp_path / "x.edge.zip", WINDOW, steps)
        model = load(bundle, trial=False)
        assert model.manifest.input.shape == (1, 4, 3) and model.manifest.raw == WINDOW
        batch = flat.examples(WINDOW, 8)
        expected = transform.to_layout(transform.apply(steps, batch), "ANY")
        for window, row in zip(batch, expected):
            np.save(tmp_path / "x.npy", window)
            lines = [",".join(WINDOW.columns or ()), *(",".join(map(repr, moment.tolist())) for moment in window)]
            (tmp_path / "x.csv").write_text("\n".join(lines))
            for path in (tmp_path / "x.npy", tmp_path / "x.csv"):
                x = model.prepare(inputs.read_first_sample(str(path), WINDOW))
                assert x.dtype == np.float32 and x.shape == (1, 4, 3)
                assert x.tobytes() == row.tobytes()
    by_hand = (batch * np.float32(0.1020408) - np.float32([0.1, -0.2, 0.97])) / np.float32([0.3, 0.41, 1.7])
    assert transform.apply(STEPS, batch).tobytes() == by_hand.tobytes()


def test_the_runner_answers_a_folder_of_tables(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    bundle = flat.write(tmp_path / "x.edge.zip", WINDOW, STEPS)
    (tmp_path / "recorded").mkdir()
    for number in range(3):
        (tmp_path / "recorded" / f"{number}.csv").write_bytes(rows().replace(b"-2.5", b"-2.%d" % number))
    predict(bundle, tmp_path / "recorded")
    assert capsys.readouterr().out.count(".csv: ") == 3


@settings(max_examples=150, deadline=None)
@given(places=st.lists(st.tuples(st.integers(0, 120), st.integers(0, 255)), min_size=1, max_size=4))
def test_a_mangled_table_is_an_input_error_or_a_window(
    places: list[tuple[int, int]], tmp_path_factory: pytest.TempPathFactory
) -> None:
    data = bytearray(rows())
    for place, value in places:
        data[place % len(data)] = value
    path = tmp_path_factory.mktemp("mangled") / "a.csv"
    path.write_bytes(data)
    with contextlib.suppress(InputError):
        assert inputs.read_first_sample(str(path), WINDOW).shape == (4, 3)
