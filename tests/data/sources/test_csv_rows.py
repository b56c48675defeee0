"""Rows of a table as vectors: the label by its column, the features by theirs, and what is wrong with a cell."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from edgekit.core.errors import ConfigError, DataError
from edgekit.data import Data, load, parse

COLUMNS = ("area", "depth", "slope")
CLASSES = ("creek", "lake", "river")


def written(path: Path, count: int, seed: int = 0, extra: tuple[str, ...] = ()) -> Path:
    """`count` rows of three features and a class that follows from them."""
    random = np.random.default_rng(seed)
    lines = [",".join([*COLUMNS, "kind", *extra])]
    for number in range(count):
        label = number % len(CLASSES)
        values = random.normal(label, 0.3, len(COLUMNS)).round(4)
        more = [f"{name}{number // 6}" for name in extra]
        lines.append(",".join([*map(str, values), CLASSES[label], *more]))
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(lines) + "\n")
    return path


def section(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, object]:
    return {"path": str(written(tmp_path / "waters.csv", 120)), "label": "kind", "calibration_samples": 12}


def read(path: Path, task: str = "classification", **more: object) -> Data:
    options = {"source": "csv_rows", "path": str(path), "label": "kind", "calibration_samples": 6, **more}
    return load(parse(options, task))  # type: ignore[arg-type]


def every(data: Data) -> np.ndarray:
    return np.concatenate([split.x for split in (data.train, data.calibration, data.validation, data.test)])


def test_a_row_is_a_sample_of_the_columns_that_hold_numbers(tmp_path: Path) -> None:
    path = written(tmp_path / "waters.csv", 60, extra=("place",))
    data = read(path)
    assert (data.kind, data.classes, data.columns) == ("vector", CLASSES, COLUMNS)
    rows = {tuple(np.float32(cell) for cell in line.split(",")[:3]) for line in path.read_text().splitlines()[1:]}
    assert {tuple(row) for row in every(data)} == rows
    assert "features: area, depth, slope; skipped, because they hold no numbers: place" in data.notes


def test_columns_are_taken_in_the_order_that_is_asked(tmp_path: Path) -> None:
    path = written(tmp_path / "waters.csv", 60)
    one, other = read(path, columns=["area", "slope"]), read(path, columns=["slope", "area"])
    assert np.array_equal(every(one)[:, ::-1], every(other)) and one.digest != other.digest


def test_a_folder_has_a_table_for_each_split(tmp_path: Path) -> None:
    home = tmp_path / "waters"
    for seed, (name, count) in enumerate({"train": 90, "val": 30, "test": 33}.items()):
        written(home / f"{name}.csv", count, seed)
    data = read(home)
    assert (len(data.train) + len(data.calibration), len(data.validation), len(data.test)) == (90, 30, 33)
    written(home / "validation.csv", 30, 7)
    with pytest.raises(DataError, match=r"validation.csv and val.csv are both validation"):
        read(home)


def test_rows_of_one_group_stay_in_one_split(tmp_path: Path) -> None:
    data = read(written(tmp_path / "waters.csv", 240, extra=("place",)), group="place")
    path = tmp_path / "waters.csv"
    rows = [line.split(",") for line in path.read_text().splitlines()[1:]]
    home = {np.array(row[:3], np.float64).astype(np.float32).tobytes(): row[4] for row in rows}
    where: dict[str, set[str]] = {}
    for name in ("train", "calibration", "validation", "test"):
        for x in getattr(data, name).x:
            where.setdefault(home[x.tobytes()], set()).add(name)
    assert len(where) == 40 and all(len(names) == 1 for names in where.values())


def test_a_group_in_two_tables_is_an_error(tmp_path: Path) -> None:
    written(tmp_path / "waters/train.csv", 60, 0, ("place",))
    written(tmp_path / "waters/test.csv", 30, 1, ("place",))
    with pytest.raises(DataError, match="train.csv and test.csv have rows of place 'place0'"):
        read(tmp_path / "waters", group="place")


def test_classes_that_are_numbers_stand_in_their_order(tmp_path: Path) -> None:
    path = tmp_path / "n.csv"
    lines = [f"{number}.5,{(10, 9, -1)[number % 3]}" for number in range(60)]
    path.write_text("\n".join(["x,kind", *lines]))
    assert read(path).classes == ("-1", "9", "10")


def test_values_and_several_labels_are_columns(tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    lines = [
        f"{a:.4f},{b:.4f},{a - b:.4f},{a + b:.4f},{int(a > 0)},{int(b > 0)}" for a, b in random.normal(size=(80, 2))
    ]
    path = tmp_path / "v.csv"
    path.write_text("\n".join(["a,b,less,more,p,q", *lines]))
    values = read(path, "regression", label=["less", "more"], columns=["a", "b"])
    assert values.classes == ("less", "more") and values.train.y.shape == (len(values.train), 2)
    np.testing.assert_allclose(values.train.y[:, 1], values.train.x.sum(axis=1), atol=1e-3)
    both = read(path, "multi_label", label=["p", "q"], columns=["a", "b"])
    assert np.array_equal(both.train.y, (both.train.x > 0).astype(int))
    with pytest.raises(
        DataError,
        match=r"v.csv, line 2, column 'less': got .*; with several labels at once, each "
        "must",
    ):
        read(path, "multi_label", label=["less", "q"], columns=["a"])


def test_a_row_number_is_reported(tmp_path: Path) -> None:
    path = tmp_path / "n.csv"
    path.write_text("\n".join(["id,x,kind", *(f"{n},{n % 7}.5,{'ab'[n % 2]}" for n in range(60))]))
    assert any(note.startswith("id: rises by 1 from row to row") for note in read(path).notes)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("x,kind\n1,a\n2,\n", "t.csv, line 3, column 'kind': empty; write the label of the row, or leave the row out"),
        ("x,kind\n1,a\n,b\n", "t.csv, line 3, column 'x': got ''; every cell must be a number"),
        ("x,kind\n1,a\nnan,b\n", "t.csv, line 3, column 'x': got 'nan'; write a finite number"),
        ("x,class\n1,a\n2,b\n", "t.csv: no column is called 'kind', as data.label says; its header is 'x', 'class'"),
        ("kind,place\na,b\n", "t.csv: no column beside 'kind' holds a number"),
        ("x,kind\n", "t.csv: no rows after the header"),
        ("1,2\n3,4\n", "its first line holds numbers"),
    ],
)
def test_what_cannot_be_read_is_named(text: str, message: str, tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text(text)
    with pytest.raises(DataError) as caught:
        read(path)
    assert message in str(caught.value)


def test_a_column_has_one_use(tmp_path: Path) -> None:
    path = written(tmp_path / "waters.csv", 60)
    with pytest.raises(ConfigError, match="names column 'kind' twice in label, columns and group"):
        read(path, columns=["area", "kind"])
    with pytest.raises(ConfigError, match="label names 2 columns; task classification has one class per row"):
        read(path, label=["kind", "area"])


def test_a_folder_without_train_is_reported(tmp_path: Path) -> None:
    written(tmp_path / "waters" / "all.csv", 30)
    with pytest.raises(DataError, match="holds no train.csv; name the table itself, or call it train.csv"):
        read(tmp_path / "waters")
