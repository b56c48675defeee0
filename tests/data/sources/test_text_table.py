"""Labelled texts in a table."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from edgekit.core.errors import DataError
from edgekit.data import Data, load, parse
from edgekit.models.from_artifact import spec_for
from edgekit.runner import input_path, inputs
from edgekit.runner.bundle.manifest import RawSpec
from edgekit.runner.errors import InputError
from edgekit.runner.input_path import DELIMITERS
from tests import requirements

from .test_text_folder import texts, vocabulary_file


def table(path: Path, header: bool = True, count: int = 90) -> Path:
    rows = [f"{name}\t{text}" for name, text in texts(count)]
    path.write_text("\n".join((["label\ttext"] if header else []) + rows) + "\n", encoding="utf-8")
    return path


def section(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, object]:
    path = table(tmp_path / "texts.tsv")
    return {"path": str(path), "tokens": 16, "tokenizer": vocabulary_file(tmp_path), "calibration_samples": 6}


def config(path: Path, **options: object) -> dict[str, object]:
    usual = {"source": "text_table", "path": str(path), "tokens": 16, "vocabulary": 120, "calibration_samples": 6}
    return {**usual, **options}


def samples(data: Data) -> list[tuple[bytes, bytes]]:
    """Of each split, all its samples and labels in order."""
    splits = (data.train, data.calibration, data.validation, data.test)
    return [(split.x.tobytes(), split.y.tobytes()) for split in splits]


def test_columns_are_found_by_name_or_by_number(tmp_path: Path) -> None:
    named = load(parse(config(table(tmp_path / "one.tsv"))))
    bare = load(parse(config(table(tmp_path / "two.tsv", header=False), header=False, text=2, label=1)))
    assert samples(named) == samples(bare) and named.classes == ("ham", "spam")


def test_cells_of_a_tsv_keep_their_quotation_marks_and_those_of_a_csv_may_hold_lines(tmp_path: Path) -> None:
    rows = [(f'no{n} say "hi" now', "a" if n % 2 else "b") for n in range(60)]
    tsv, csv = tmp_path / "x.tsv", tmp_path / "x.csv"
    tsv.write_text("\n".join(["text\tlabel", *(f"{text}\t{label}" for text, label in rows)]), encoding="utf-8")
    quoted = [text.replace('"', '""').replace(" now", "\nnow") for text, _ in rows]
    lines = [f'"{text}",{label}' for text, (_, label) in zip(quoted, rows, strict=True)]
    csv.write_text("\r\n".join(["text,label", *lines]), encoding="utf-8-sig")
    one, other = load(parse(config(tsv))), load(parse(config(csv, delimiter="comma")))
    assert samples(one) == samples(other)


def test_a_row_saved_as_a_file_of_its_own_is_the_same_sample_on_the_device(tmp_path: Path) -> None:
    data = load(parse(config(table(tmp_path / "x.tsv"))))
    raw = RawSpec(**spec_for(data, "edgekit.models.mlp:mlp", {}, []).raw)
    known = {row.tobytes() for split in (data.train, data.calibration, data.validation, data.test) for row in split.x}
    for _, text in texts(90):
        (tmp_path / "x.txt").write_text(text, encoding="utf-8")
        assert inputs.read_first_sample(str(tmp_path / "x.txt"), raw, members=data.members).tobytes() in known


@pytest.mark.parametrize(
    ("between", "header", "column"),
    [("tab", True, "text"), ("tab", False, 2), ("comma", True, "text"), ("semicolon", True, 2), ("comma", False, 2)],
)
def test_every_row_of_the_table_is_the_same_sample_on_the_device(
    between: str, header: bool, column: str | int, tmp_path: Path
) -> None:
    quote = "" if between == "tab" else '"'
    lines = [
        DELIMITERS[between].join([name, f"{quote}{text} {number}{quote}"])
        for number, (name, text) in enumerate(texts(90))
    ]
    lines[20:20] = ["", ""]  # which hold nothing
    head = [DELIMITERS[between].join(["kind", " text "])] if header else []
    for name in ("x.TSV", "x.csv"):
        (tmp_path / name).write_bytes("\r\n".join([*head, *lines]).encode("utf-8-sig"))
    options = {"delimiter": between, "header": header, "text": column, "label": "kind" if header else 1}
    data = load(parse(config(tmp_path / "x.TSV", **options)))
    raw = RawSpec(**spec_for(data, "edgekit.models.mlp:mlp", {}, []).raw)
    assert inputs.suffixes(raw) == [".npy", ".csv", ".txt", ".tsv"]
    expected = Counter(
        x.tobytes() for split in (data.train, data.calibration, data.validation, data.test) for x in split.x
    )
    for name in ("x.TSV", "x.csv"):
        found = list(inputs.samples(str(tmp_path / name), raw, members=data.members))
        assert Counter(sample.raw.tobytes() for sample in found) == expected
        assert [str(sample.span).split(",")[0] for sample in found] == [f"row {number}" for number in range(1, 91)]


DEVICE = {
    "a cell less": (
        b"label\ttext\nham\thi you\nham\n",
        "line 3: 1 cells, but 2 are needed; they are separated by a tab",
    ),
    "no such column": (
        b"label\tmessage\nham\thi\n",
        "line 1: not exactly one column 'text'; the header is 'label', 'message'",
    ),
    "an empty text": (b"label\ttext\nham\t \n", "line 2: an empty text, which has no tokens; give it words"),
    "a header alone": (b"label\ttext\n", "0 rows, but the bundle takes 1 text; check the delimiter and the header"),
    "nothing": (b"", "0 rows, but the bundle takes 1"),
    "Latin 1": (b"label\ttext\nham\tcaf\xe9\n", r"line 2: not text in UTF-8 \(byte 18\)"),
}


@pytest.mark.parametrize("fault", DEVICE)
def test_a_table_that_the_device_cannot_take_is_refused_in_one_line(fault: str, tmp_path: Path) -> None:
    content, message = DEVICE[fault]
    data = load(parse(config(table(tmp_path / "x.tsv"))))
    raw = RawSpec(**spec_for(data, "edgekit.models.mlp:mlp", {}, []).raw)
    (tmp_path / "x.tsv").write_bytes(content)
    with pytest.raises(InputError, match=message) as caught:
        list(inputs.samples(str(tmp_path / "x.tsv"), raw, members=data.members))
    assert str(caught.value).startswith(str(tmp_path / "x.tsv")) and "\n" not in str(caught.value)


def test_strict_takes_a_table_of_one_row_alone(tmp_path: Path) -> None:
    data = load(parse(config(table(tmp_path / "x.tsv"))))
    raw = RawSpec(**spec_for(data, "edgekit.models.mlp:mlp", {}, []).raw)
    with pytest.raises(InputError, match="90 rows, but the bundle takes 1 text; give one row, or leave --strict out"):
        inputs.read_first_sample(str(tmp_path / "x.tsv"), raw, strict=True, members=data.members)
    (tmp_path / "x.tsv").write_text("text\nsee you\n")
    inputs.read_first_sample(str(tmp_path / "x.tsv"), raw, strict=True, members=data.members)


def test_texts_in_files_of_their_own_make_no_bundle_that_takes_tables(tmp_path: Path) -> None:
    steps = input_path.text_steps("tokenizer.json", 16, 0)
    raw = RawSpec("text", (16,), "int32", input_path=tuple(steps))
    (tmp_path / "x.tsv").write_text("text\nsee you\n")
    with pytest.raises(InputError, match="cannot read .tsv; this bundle takes .npy, .txt"):
        inputs.read_first_sample(str(tmp_path / "x.tsv"), raw)


@pytest.mark.parametrize(
    ("content", "options", "message"),
    [
        (b"label\ttext\nham\tcaf\xe9\n", {}, r"x.tsv, line 2: not text in UTF-8 \(byte 18\)"),
        (
            b"label\tmessage\nham\thello\n",
            {},
            "data.text: x.tsv, line 1: not exactly one column 'text'; the header is 'label', 'message'",
        ),
        (b"label\ttext\nham\n", {}, "x.tsv, line 2: 1 cells instead of 2"),
        (b"label\ttext\n \thello\n", {}, "x.tsv, line 2: the label is empty"),
        (b"label\ttext\n", {}, "no row contains a text"),
        (b"label\ttext\nham\thel\0lo\n", {}, r"x.tsv, line 2: holds U\+0000, so it is not text"),
        (b"ham\thello\n", {"header": False}, "without a header columns have no names; give its number"),
        (b"ham\thello\n", {"header": False, "text": 3, "label": 1}, "data.text: x.tsv, line 1: no column 3; it has 2"),
        (b'label,text\nham,"hel"lo\n', {"delimiter": "comma"}, "x.tsv, line 2: not CSV"),
    ],
)
def test_a_table_that_does_not_fit_is_refused_in_one_line(
    content: bytes, options: dict[str, object], message: str, tmp_path: Path
) -> None:
    (tmp_path / "x.tsv").write_bytes(content)
    with pytest.raises(DataError, match=message) as caught:
        load(parse(config(tmp_path / "x.tsv", **options)))
    assert "\n" not in str(caught.value)


def test_the_collection_of_real_messages_is_read_whole() -> None:
    path = requirements.data("data/sms.tsv")
    options = {"header": False, "text": 2, "label": 1, "tokens": 64, "vocabulary": 1000, "calibration_samples": 200}
    data = load(parse(config(path, **options)))
    sizes = [len(split) for split in (data.train, data.calibration, data.validation, data.test)]
    assert sum(sizes) == 5574 and data.classes == ("ham", "spam")
    spam = np.concatenate([split.y for split in (data.train, data.calibration, data.validation, data.test)]).sum()
    assert spam == 747
