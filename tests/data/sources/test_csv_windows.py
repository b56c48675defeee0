"""Recordings in a folder or a zip, cut into windows that never leave their recording's split."""

from __future__ import annotations

import re
import zipfile
from pathlib import Path

import numpy as np
import pytest

from edgekit.core.errors import ConfigError, DataError
from edgekit.data import Data, load, parse
from edgekit.data.types import Split

COLUMNS = ("ax", "ay", "az")
SHAKES_HZ = {"rest": 0.0, "walk": 2.0, "run": 5.0}
RATE_HZ = 50


def recording(rows: int, shakes_hz: float, seed: int) -> np.ndarray:
    """(rows, 3) in m/s²: gravity, a shake with its own phase, and noise."""
    random = np.random.default_rng(seed)
    at = np.arange(rows)[:, None] / RATE_HZ
    shake = np.sin(2 * np.pi * (shakes_hz * at + random.random(3))) * (shakes_hz > 0)
    return np.array([0.0, 0.0, 9.81]) + 2 * shake + random.normal(0, 0.3, (rows, 3))


def written(path: Path, values: np.ndarray, header: str = ",".join(COLUMNS), between: str = ",") -> Path:
    """A recording as CSV, numbers with three decimals."""
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = [header.replace(",", between), *(between.join(f"{cell:.3f}" for cell in row) for row in values)]
    path.write_text("\n".join(lines) + "\n")
    return path


def folder(home: Path, each: int = 8, rows: int = 40, splits: tuple[str, ...] = ("train",)) -> Path:
    """Three classes, `each` recordings of `rows` rows of every class in every split."""
    seed = 0
    for split in splits:
        for name, shakes_hz in SHAKES_HZ.items():
            for number in range(each):
                seed += 1
                written(home / split / name / f"{number:03}.csv", recording(rows, shakes_hz, seed))
    return home


def section(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, object]:
    return {"path": str(folder(tmp_path / "worn", 20)), "window": 20, "calibration_samples": 12}


def options(home: Path, **more: object) -> dict[str, object]:
    return {"source": "csv_windows", "path": str(home), "window": 20, "calibration_samples": 6, **more}


def every(data: Data) -> dict[str, Split]:
    return {"train": data.train, "calibration": data.calibration, "validation": data.validation, "test": data.test}


def read(path: Path) -> np.ndarray:
    return np.loadtxt(path, delimiter=",", skiprows=1, dtype=np.float64).astype(np.float32)


def windows_of(path: Path, window: int, stride: int) -> set[bytes]:
    values = read(path)
    return {values[start : start + window].tobytes() for start in range(0, len(values) - window + 1, stride)}


@pytest.mark.parametrize(("stride", "count"), [(None, 2), (20, 2), (5, 5), (7, 3), (50, 1)])
def test_windows_are_the_rows_of_their_file(stride: int | None, count: int, tmp_path: Path) -> None:
    home = folder(tmp_path)
    data = load(parse(options(home, stride=stride)))
    assert (data.kind, data.raw_shape, data.columns) == ("window", (20, 3), COLUMNS)
    assert (data.classes, data.raw_range) == (("rest", "run", "walk"), None)
    files = sorted(home.rglob("*.csv"))
    expected = set().union(*(windows_of(path, 20, stride or 20) for path in files))
    assert len(expected) == 24 * count
    assert {x.tobytes() for split in every(data).values() for x in split.x} == expected


@pytest.mark.parametrize("seed", range(6))
def test_the_windows_of_a_recording_stay_in_one_split(seed: int, tmp_path: Path) -> None:
    """Overlapping by three quarters: any other division would test on what was trained on."""
    home = folder(tmp_path, each=5)
    data = load(parse(options(home, stride=5, split_seed=seed)))
    owner = {window: path for path in home.rglob("*.csv") for window in windows_of(path, 20, 5)}
    homes = {name: {owner[x.tobytes()] for x in split.x} for name, split in every(data).items()}
    assert sum(map(len, homes.values())) == len(set().union(*homes.values())) == 15
    for name, split in every(data).items():
        assert set(split.y.tolist()) == {0, 1, 2}, name
        labels = [data.classes[label] for label in split.y]
        assert labels == [owner[x.tobytes()].parent.name for x in split.x]
    line = next(note for note in data.notes if note.startswith("samples of recordings"))
    assert re.search(
        r"train 30 of 6, calibration 15 of 3, validation 15 of 3, test 15 of 3|of recordings: .*test", line
    )


def test_given_splits_are_taken_as_they_are_and_mixed(tmp_path: Path) -> None:
    data = load(parse(options(folder(tmp_path, splits=("train", "val", "test")), stride=10)))
    assert {name: len(split) for name, split in every(data).items()} == {
        "train": 63, "calibration": 9, "validation": 72, "test": 72
    }  # fmt: skip
    for split in (data.validation, data.test):
        assert set(split.y[:12].tolist()) == {0, 1, 2}


def test_a_zip_and_other_delimiters_give_the_same_windows(tmp_path: Path) -> None:
    home = folder(tmp_path / "worn")
    other = tmp_path / "other"
    for path in sorted(home.rglob("*.csv")):
        copy = other / path.relative_to(home)
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_text(path.read_text().replace(",", ";"))
    with zipfile.ZipFile(tmp_path / "worn.zip", "w") as archive:
        for path in sorted(home.rglob("*.csv")):
            archive.write(path, Path("worn") / path.relative_to(home))
    digests = {load(parse(options(place))).digest for place in (home, other, tmp_path / "worn.zip")}
    assert len(digests) == 1


def test_columns_are_chosen_by_name_and_order(tmp_path: Path) -> None:
    home = folder(tmp_path)
    data = load(parse(options(home, columns=["az", "ax"])))
    whole = load(parse(options(home)))
    assert (
        data.columns == ("az", "ax")
        and data.raw_shape == (20, 2) == parse(options(home, columns=["az", "ax"])).raw_shape
    )
    assert np.array_equal(np.sort(data.train.x[..., 0], axis=None), np.sort(whole.train.x[..., 2], axis=None))
    assert data.digest != whole.digest
    with pytest.raises(DataError, match=r"train/.*csv: no column 'gx'; its header is 'ax', 'ay', 'az'"):
        load(parse(options(home, columns=["gx"])))
    with pytest.raises(ConfigError, match="name each column once"):
        parse(options(home, columns=["ax", "ax"]))


def test_a_renamed_column_is_other_data(tmp_path: Path) -> None:
    one, other = folder(tmp_path / "one"), folder(tmp_path / "other")
    for path in other.rglob("*.csv"):
        path.write_text(path.read_text().replace("ax,", "gx,"))
    assert load(parse(options(one))).digest != load(parse(options(other))).digest


def test_columns_of_texts_and_times_are_reported(tmp_path: Path) -> None:
    home = tmp_path / "logged"
    for path in folder(tmp_path / "worn").rglob("*.csv"):
        lines = path.read_text().splitlines()
        made = [f",t,{lines[0]},who"] + [f"{row},{row / RATE_HZ},{line},ann" for row, line in enumerate(lines[1:])]
        copy = home / path.relative_to(tmp_path / "worn")
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_text("\n".join(made))
    data = load(parse(options(home)))
    assert data.columns == ("t", *COLUMNS)
    assert "channels: t, ax, ay, az; skipped, because they hold no numbers: who" in data.notes
    assert any(note.startswith("t: rises from row to row of every recording") for note in data.notes)
    named = load(parse(options(home, columns=list(COLUMNS))))
    assert named.columns == COLUMNS and not any("rises" in note or "channels" in note for note in named.notes)


def test_dropped_ends_and_short_recordings_are_reported(tmp_path: Path) -> None:
    home = folder(tmp_path, rows=45)
    written(home / "train/walk/short.csv", recording(19, 2.0, 99))
    data = load(parse(options(home)))
    assert sum(map(len, every(data).values())) == 48
    assert "120 of 1080 rows at the ends of recordings are in no window" in data.notes
    assert any(
        "skipped 1 recordings shorter than data.window, 20 rows: train/walk/short.csv (19 rows)" in note
        for note in data.notes
    )
    with pytest.raises(DataError, match=r"train/rest: every recording is shorter than data.window; .* has 45 rows"):
        load(parse(options(home, window=46)))


def test_one_recording_of_a_class_cannot_be_divided(tmp_path: Path) -> None:
    home = folder(tmp_path, each=4, rows=400)
    for path in sorted((home / "train/walk").iterdir())[1:]:
        path.unlink()
    with pytest.raises(
        DataError, match="too few recordings to divide: 'walk' has 1; train, calibration, validation, test"
    ):
        load(parse(options(home)))


def test_a_recording_that_stands_in_two_splits_is_an_overlap(tmp_path: Path) -> None:
    home = folder(tmp_path, splits=("train", "test"))
    copied = (home / "train/walk/000.csv").read_text().splitlines()
    (home / "test/walk/copy.csv").write_text("\n".join([copied[0], *copied[21:]]))  # its second half alone
    with pytest.raises(DataError, match="overlap: 1 of 48 samples of train are also in test"):
        load(parse(options(home)))
    data = load(parse(options(home, overlap="drop")))
    assert any("and 1 more of their recordings" in note for note in data.notes)
    left = {x.tobytes() for split in (data.train, data.calibration, data.validation) for x in split.x}
    assert not left & windows_of(home / "train/walk/000.csv", 20, 20) and len(left) == 46


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            lambda text: text.replace("ax,", "gx,"),
            r"005.csv: its header is 'gx', 'ay', 'az', the first recording's 'ax'",
        ),
        (
            lambda text: re.sub(r"\n[^,]+,", "\n,", text, count=7),
            r"005.csv, line 2, column 'ax': got ''; .*fill the gap",
        ),
        (lambda text: re.sub(r"\n[^,]+,", "\nnan,", text, count=1), r"005.csv, line 2, column 'ax': got 'nan'"),
        (lambda text: re.sub(r"\n[^,]+,", "\noff,", text, count=1), r"005.csv, line 2, column 'ax': got 'off'"),
        (lambda text: text + "1,2\n", r"005.csv, line 42: 2 cells, but the header has 3"),
        (lambda text: "", r"005.csv: its first line is empty"),
        (lambda text: text.split("\n", 1)[1], r"005.csv: its first line holds numbers"),
    ],
)
def test_a_bad_recording_is_named_with_line_and_column(change: object, message: str, tmp_path: Path) -> None:
    path = folder(tmp_path) / "train/walk/005.csv"
    path.write_text(change(path.read_text()))  # type: ignore[operator]
    with pytest.raises(DataError, match=f"train/walk/{message}"):
        load(parse(options(tmp_path)))


@pytest.mark.parametrize("cell", ["", "nan", "n/a", "-inf"])
def test_a_gap_in_the_first_recording_makes_no_text_of_its_column(cell: str, tmp_path: Path) -> None:
    path = folder(tmp_path) / "train/rest/000.csv"
    path.write_text(re.sub(r"\n[^,]+,", f"\n{cell},", path.read_text(), count=1))
    with pytest.raises(DataError, match=f"train/rest/000.csv, line 2, column 'ax': got '{cell}'"):
        load(parse(options(tmp_path)))


def test_decimal_commas_are_read(tmp_path: Path) -> None:
    pointed = load(parse(options(tmp_path))) if folder(tmp_path) else None
    for path in tmp_path.rglob("*.csv"):
        path.write_text(path.read_text().replace(",", ";").replace(".", ","))
    data = load(parse(options(tmp_path)))
    assert pointed is not None and np.array_equal(data.train.x, pointed.train.x)
    assert data.columns == pointed.columns


def test_progress_counts_recordings_and_another_layout_is_explained(tmp_path: Path) -> None:
    seen: list[tuple[int, int]] = []
    load(parse(options(folder(tmp_path / "worn"))), lambda *at: seen.append(at))
    assert seen[0] == (1, 24) and seen[-1] == (24, 24)
    written(tmp_path / "flat/walk.csv", recording(40, 2, 0))
    with pytest.raises(DataError, match="expected split/class/recording, as in train/walking/0001.csv"):
        load(parse(options(tmp_path / "flat")))


def test_the_options_say_what_is_wrong(tmp_path: Path) -> None:
    for more, message in (
        ({"window": 1}, "data.window: got 1"),
        ({"stride": 0}, "data.stride: got 0"),
        ({"columns": []}, "data.columns"),
    ):
        with pytest.raises(ConfigError, match=message):
            parse(options(tmp_path, **more))
    without = {name: value for name, value in options(tmp_path).items() if name != "window"}
    with pytest.raises(ConfigError, match="data.window: missing"):
        parse(without)
