"""Rows of sensors: lines of CSV and float32 rows give the answers of the same table in a file."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from edgekit.runner.errors import InputError
from edgekit.runner.loader import load
from edgekit.runner.model import Model
from tests.runner import flat
from tests.runner.streaming import recordings
from tests.runner.streaming.recordings import Answers, chunks, of_file, of_stream

SIZES = [1, 5, 100, 0]
VALUES = np.random.default_rng(3).normal(0, 2, (75, 3)).astype(np.float32)


def lines(values: np.ndarray = VALUES, between: str = ",", end: str = "\n", note: str = '"at rest"') -> bytes:
    """The columns in another order, and one that the bundle does not use."""
    rows = [between.join(("az", "note", "ax", "ay"))]
    rows += [between.join((repr(float(z)), note, repr(float(x)), repr(float(y)))) for x, y, z in values]
    return (end.join(rows) + end).encode()


@pytest.fixture(scope="module")
def models_by_hop(tmp_path_factory: pytest.TempPathFactory) -> dict[int, Model]:
    folder = tmp_path_factory.mktemp("bundles")
    return {hop: load(recordings.sensor_bundle(folder / f"{hop}.edge.zip", hop), trial=False) for hop in (1, 8, 16, 20)}


def ended(model: Model, source: object, format: str) -> tuple[Answers, str]:
    found: Answers = []
    with pytest.raises(InputError) as caught:
        for each in model.stream(source, format):
            found.append((each.span.to_dict(), each.prediction.scores.tobytes()))  # type: ignore[union-attr]
    assert "\n" not in str(caught.value)
    return found, str(caught.value)


@pytest.mark.parametrize("hop", [1, 8, 16, 20])
@pytest.mark.parametrize("size", SIZES)
def test_lines_give_the_answers_of_the_file(
    hop: int, size: int, models_by_hop: dict[int, Model], tmp_path: Path
) -> None:
    (tmp_path / "a.csv").write_bytes(lines())
    expected = of_file(models_by_hop[hop], tmp_path / "a.csv")
    assert len(expected) >= 3
    assert of_stream(models_by_hop[hop], chunks(lines(), size), "csv") == expected
    assert of_stream(models_by_hop[hop], chunks(VALUES.astype("<f4").tobytes(), size), "f32le") == expected
    assert of_stream(models_by_hop[hop], np.split(VALUES, [1, 2, 40])) == expected


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize(
    "content",
    [
        b"\xef\xbb\xbf" + lines(),
        lines() + b"\n\n",
        lines()[:-1],
        lines(between=";"),
        lines(between="\t", end="\r\n"),
        lines(note='"at rest, or\nnot"'),
        lines(note="ä").replace(b"note", "é".encode()),
    ],
)
def test_whatever_a_file_may_hold(content: bytes, size: int, models_by_hop: dict[int, Model], tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_bytes(content)
    assert of_stream(models_by_hop[8], chunks(content, size), "csv") == of_file(models_by_hop[8], tmp_path / "a.csv")


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize(
    ("line", "words"),
    [
        (b"1,x,2\n", "line 52: 3 cells, but the header has 4"),
        (b"1,x,warm,3\n", "line 52, column 'ax': got 'warm'"),
        (b"nan,x,1,3\n", "line 52, column 'az': got 'nan'"),
        (b"\n1,x,2,3\n", "line 52: empty, and more rows follow"),
        (b"1,\xff,2,3\n", "line 52: not text in UTF-8"),
        (b"az,note,ax,ay\n", "line 52, column 'ax': got 'ax'"),
    ],
)
def test_a_bad_line_is_one_line_behind_all_answers(
    line: bytes, words: str, size: int, models_by_hop: dict[int, Model], tmp_path: Path
) -> None:
    (tmp_path / "a.csv").write_bytes(lines(VALUES[:50]))
    expected = of_file(models_by_hop[8], tmp_path / "a.csv")
    rest = lines(VALUES[50:]).split(b"\n", 1)[1]
    found, message = ended(models_by_hop[8], chunks(lines(VALUES[:50]) + line + rest, size), "csv")
    assert found == expected and words in message


@pytest.mark.parametrize("size", SIZES)
def test_a_row_that_is_cut_is_one_line_behind_all_answers(
    size: int, models_by_hop: dict[int, Model], tmp_path: Path
) -> None:
    (tmp_path / "a.csv").write_bytes(lines(VALUES[:74]))
    found, message = ended(models_by_hop[8], chunks(VALUES.astype("<f4").tobytes()[:-5], size), "f32le")
    assert found == of_file(models_by_hop[8], tmp_path / "a.csv")
    assert "ended in the middle of a row, after 74 rows: 7 of its 12 bytes have arrived" in message


@pytest.mark.parametrize("format", ["s16le", "S16_LE"])
@pytest.mark.parametrize("size", SIZES)
def test_rows_of_int16_are_the_same_numbers(
    format: str, size: int, models_by_hop: dict[int, Model], tmp_path: Path
) -> None:
    counts = np.random.default_rng(4).integers(-32768, 32768, (40, 3)).astype("<i2")
    (tmp_path / "a.csv").write_bytes(lines(counts.astype(np.float32)))
    expected = of_file(models_by_hop[8], tmp_path / "a.csv")
    assert of_stream(models_by_hop[8], chunks(counts.tobytes(), size), format) == expected
    assert of_stream(models_by_hop[8], [counts[:7], counts[7:]]) == expected
    found, message = ended(models_by_hop[8], chunks(counts.tobytes()[:-1], size), format)
    assert found == expected[: len(found)] and len(found) == len(expected) - 1
    assert "ended in the middle of a row, after 39 rows: 5 of its 6 bytes have arrived" in message


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "no line arrived"),
        (b"1,2,3\n", "its first line holds numbers"),
        (b"\n1,2,3\n", "its first line is empty"),
        (b"ax,ay\n1,2\n", "no column 'az'"),
        (b"ax,ay,az,ax\n", "2 columns are called 'ax'"),
        (b"x" * (1 << 21), "line 1: over 1,048,576 bytes without an end"),
        (b"ax,ay,az\n1,2,3\n", "the stream ended after 1 rows; a window has 16"),
    ],
)
def test_what_is_no_table_is_refused(content: bytes, words: str, models_by_hop: dict[int, Model]) -> None:
    found, message = ended(models_by_hop[8], chunks(content, 4096), "csv")
    assert found == [] and words in message


def test_lines_are_answered_as_they_come(models_by_hop: dict[int, Model]) -> None:
    """Window k is there once row 8 k + 16 is, before the next row is read."""
    sent = 0

    def slow() -> object:
        nonlocal sent
        for line in lines().splitlines(keepends=True):
            yield line
            sent += 1

    for number, answer in enumerate(models_by_hop[8].stream(slow(), "csv")):
        assert answer.span.end == 8 * number + 16 and sent == answer.span.end


@pytest.mark.parametrize(
    ("format", "options", "words"),
    [
        ("s24le", {}, "rows of sensors are csv, f32le, FLOAT_LE, s16le, S16_LE"),
        ("csv", {"rate_hz": 50}, "rows have no rate here, and 3 channels"),
        ("f32le", {"channels": 4}, "rows have no rate here, and 3 channels"),
    ],
)
def test_options_of_sounds_do_not_fit(
    format: str, options: dict[str, int], words: str, models_by_hop: dict[int, Model]
) -> None:
    with pytest.raises(InputError, match=words):
        models_by_hop[8].stream(iter(()), format, **options)


def test_columns_without_names_come_as_numbers_alone(tmp_path: Path) -> None:
    from dataclasses import replace

    model = load(flat.write(tmp_path / "a.edge.zip", replace(flat.WINDOW, columns=None, input_path=None)), trial=False)
    with pytest.raises(InputError, match="names no columns; send float32 rows: --stream f32le, or int16 ones"):
        model.stream(iter(()), "csv")
    assert [each.span.to_dict() for each in model.stream([VALUES[:7]])] == [
        {"first_row": 1, "last_row": 4}, {"first_row": 3, "last_row": 6}
    ]  # fmt: skip


@pytest.mark.parametrize("part", [np.zeros((4, 2), np.float32), np.zeros((4, 3)), np.zeros(4, np.float32)])
def test_arrays_of_another_form_are_refused(part: np.ndarray, models_by_hop: dict[int, Model]) -> None:
    with pytest.raises(InputError, match="rows are float32 or int16 of \\(3,\\) or \\(rows, 3\\)"):
        list(models_by_hop[8].stream([part]))


def test_bytes_of_rows_need_a_format(models_by_hop: dict[int, Model]) -> None:
    with pytest.raises(InputError, match="name their format: csv, f32le"):
        list(models_by_hop[8].stream([b"1,2,3"]))
