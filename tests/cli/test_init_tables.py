"""`edgekit init` on tables and label tracks: which column is the label, and a folder that may be moved."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from edgekit.data import load
from edgekit.runner import input_path
from edgekit.runner.preprocess import sliding_windows
from edgekit.workbook.plan import load_plan
from tests.cli.test_init import NEWER, edgekit, of_kind, write_config
from tests.data.pictures import samples, unpacked
from tests.data.sources.test_csv_rows import CLASSES
from tests.data.sources.test_csv_rows import written as rows
from tests.data.sources.test_text_folder import folder as texts
from tests.data.sources.test_wav_folder import folder as sounds
from tests.data.sources.test_wav_track import alternating, recording
from tests.data.test_file_list import listed


def table(path: Path, header: str, cells: str, count: int = 90) -> Path:
    """Rows of `cells`, a format string over the row's number and its class 0 to 2."""
    lines = [cells.format(n=number, k=number % 3, x=number % 3 + (number * 37 % 100) / 200) for number in range(count)]
    path.write_text("\n".join([header, *lines]) + "\n")
    return path


@pytest.mark.parametrize(
    ("header", "cells", "label", "columns"),
    [
        ("x,y2,species", "{x},{n}.5,s{k}", "species", ["x", "y2"]),
        ("label,x,y2", "{k},{x},{n}.5", "label", ["x", "y2"]),
        ("x,y2,grade", "{x},{n}.5,{k}", "grade", ["x", "y2"]),
        ("id,x,target,place", "{n},{x},{k},here", "target", ["x"]),
    ],
)
def test_the_label_is_found(header: str, cells: str, label: str, columns: list[str], tmp_path: Path) -> None:
    data = write_config("--data", table(tmp_path / "t.csv", header, cells), out=tmp_path)["data"]
    assert (data["source"], data["label"], data["columns"]) == ("csv_rows", label, columns)


def test_a_table_as_excel_writes_it_in_europe_keeps_every_column(tmp_path: Path) -> None:
    lines = [
        f"{20 + k / 8:.3f};{k % 9};{k % 7 + 0.5:.1f};Halle {k % 4};{'warm' if k % 2 else 'kalt'}" for k in range(90)
    ]
    text = "\n".join(["Temperatur;Stufe;Feuchte;Ort;Klasse", *(line.replace(".", ",") for line in lines)])
    (tmp_path / "excel.csv").write_text(text, encoding="utf-8-sig")
    done = edgekit("init", "mine", "--data", tmp_path / "excel.csv", "--out", tmp_path / "out")
    output = " ".join(done.output.split())
    assert "3 features (Temperatur, Stufe, Feuchte)" in output
    assert "left out, because they hold no numbers or count the rows: Ort" in output


def test_measured_values_want_a_regression_and_words_want_classes(tmp_path: Path) -> None:
    values = table(tmp_path / "v.csv", "x,speed", "{n}.5,{x}")
    done = edgekit("init", "mine", "--data", values, "--out", tmp_path / "out")
    assert (done.exit_code, "measured values; use --task regression" in done.output) == (2, True), done.output
    assert write_config("--data", values, "--task", "regression", out=tmp_path)["task"] == "regression"
    words = table(tmp_path / "w.csv", "x,kind", "{x},s{k}")
    done = edgekit("init", "mine", "--data", words, "--task", "regression", "--out", tmp_path / "out")
    assert (done.exit_code, "are words; use --task classification" in done.output) == (2, True), done.output


def test_a_folder_of_tables_has_the_splits_of_its_files(tmp_path: Path) -> None:
    for seed, (name, count) in enumerate({"train": 90, "test": 30}.items()):
        rows(tmp_path / "waters" / f"{name}.csv", count, seed)
    values = write_config("--data", tmp_path / "waters", out=tmp_path)
    assert "validation_fraction" in values["data"] and "test_fraction" not in values["data"]
    assert load(load_plan(tmp_path / "mine.yaml").data).classes == CLASSES


def test_sounds_may_be_listed(tmp_path: Path) -> None:
    path = listed(tmp_path / "listed", sounds(tmp_path / "sounds", 40))
    data = write_config("--data", path, out=tmp_path)["data"]
    assert (data["source"], data["path"]) == ("wav_folder", "listed/labels.csv")


@pytest.mark.parametrize("kind", ["sounds", "pictures"])
def test_a_folder_that_holds_its_table_is_the_table(kind: str, tmp_path: Path) -> None:
    source = sounds(tmp_path / "made", 40) if kind == "sounds" else unpacked(tmp_path, samples())
    path = listed(tmp_path / "mine data", source)
    by_table = write_config("--data", path, out=tmp_path, name="table")["data"]
    assert write_config("--data", path.parent, out=tmp_path, name="folder")["data"] == by_table
    assert by_table["path"] == "mine data/labels.csv"
    shutil.copy(path, path.with_name("more.csv"))  # and labels.csv is still meant
    assert write_config("--data", path.parent, out=tmp_path, name="again")["data"] == by_table
    path.rename(path.with_name("some.csv"))
    done = edgekit("init", "mine", "--data", path.parent, "--out", tmp_path / "out")
    output = "more.csv, some.csv all list files; give --data one of them"
    assert (done.exit_code, output in " ".join(done.output.split())) == (4, True), done.output


def test_folders_of_splits_and_classes_say_more_than_a_table_beside_them(tmp_path: Path) -> None:
    folder = unpacked(tmp_path, samples(validation=12))
    (folder / "labels.csv").write_text("file,label\ntrain/nothing.jpg,cat\n")
    data = write_config("--data", folder, out=tmp_path)["data"]
    assert "validation_fraction" not in data and data["path"] == folder.name


@pytest.mark.parametrize("suffix", [".tsv", ".csv"])
def test_an_empty_class_of_a_text_is_named_with_its_line(suffix: str, tmp_path: Path) -> None:
    between = "," if suffix == ".csv" else "\t"
    lines = [
        between.join(["see you at home" if number % 2 else "free prizes now", "ab"[number % 2]]) for number in range(40)
    ]
    (tmp_path / f"x{suffix}").write_text("\n".join([f"text{between}label", f"who are you{between} ", *lines]))
    done = edgekit("init", "mine", "--data", tmp_path / f"x{suffix}", "--out", tmp_path / "out")
    assert done.exit_code == 4 and done.output == (
        f"edgekit: x{suffix}, line 2: the label is empty; fill it in, or leave the row out\n"
    )


def test_a_column_that_is_mostly_empty_names_no_classes(tmp_path: Path) -> None:
    notes = ("ok", "no", "", "")
    rows = [f"see you at home {number},{notes[number % 4]},{'abcd'[number % 4]}" for number in range(60)]
    (tmp_path / "x.csv").write_text("\n".join(["text,note,kind", *rows]))
    data = write_config("--data", tmp_path / "x.csv", out=tmp_path)["data"]
    assert (data["source"], data["label"]) == ("text_table", "kind")


def test_a_recording_is_windowed_by_its_stretches(tmp_path: Path) -> None:
    parts = [part for number in range(40) for part in ((0.4, ("bark", "bell")[number % 2]), (0.8, ""))]
    data = write_config("--data", recording(tmp_path / "street.wav", parts), out=tmp_path)["data"]
    assert (data["source"], data["seconds"], data["stride_s"], data["background"]) == (
        "wav_track",
        0.4,
        0.2,
        "background",
    )
    assert load(load_plan(tmp_path / "mine.yaml").data).classes == ("background", "bark", "bell")
    assert "smoothing: auto # of the answers to a stream, chosen on validation" in (tmp_path / "mine.yaml").read_text()


@pytest.mark.parametrize("rate_hz", [8000, 16_000, 44_100])
@pytest.mark.parametrize("seconds", [0.0371, 0.313, 1.0])
def test_windows_of_a_stream_share_log_mel_frames(seconds: float, rate_hz: int, tmp_path: Path) -> None:
    parts = [part for number in range(16) for part in ((seconds, ("bark", "bell")[number % 2]), (1.5 * seconds, ""))]
    write_config("--data", recording(tmp_path / "street.wav", parts, rate_hz), out=tmp_path)
    plan = load_plan(tmp_path / "mine.yaml")
    cut = input_path.find_step(load(plan.data).input_path or (), "windows")
    assert cut is not None
    spectra = sliding_windows.SlidingPreprocess(plan.run.preprocess, cut["length"])
    assert spectra.frames - spectra.shared(cut["stride"]) <= spectra.frames // 2 + 1
    assert 0.3 < cut["stride"] / cut["length"] <= 0.5


def test_what_no_label_covers_is_no_anomaly(tmp_path: Path) -> None:
    parts = [part for number in range(80) for part in ((0.4, "normal" if number % 4 else "crack"), (0.8, ""))]
    values = write_config("--task", "anomaly", "--data", recording(tmp_path / "mill.wav", parts), out=tmp_path)
    assert "background" not in values["data"] and values["bundle"] == {"smoothing": "auto"}
    data = load(load_plan(tmp_path / "mine.yaml").data)
    assert not data.train.y.any() and 0 < data.validation.y.mean() < 1


def test_an_embedding_of_recordings_is_not_smoothed(tmp_path: Path) -> None:
    parts = [part for number in range(40) for part in ((0.4, ("bark", "bell")[number % 2]), (0.8, ""))]
    values = write_config("--task", "embedding", "--data", recording(tmp_path / "street.wav", parts), out=tmp_path)
    assert "bundle" not in values


@pytest.mark.parametrize("task", ["embedding", "segmentation"])
def test_rows_say_what_they_can_serve(task: str, tmp_path: Path) -> None:
    data = table(tmp_path / "t.csv", "x,y2,species", "{x},{n}.5,s{k}")
    done = edgekit("init", "mine", "--data", data, "--task", task, "--out", tmp_path / "out")
    output = "can serve classification, regression, multi_label or anomaly; use one"
    assert (done.exit_code, output in " ".join(done.output.split())) == (2, True), done.output


def test_texts_have_no_anomalies(tmp_path: Path) -> None:
    data = texts(tmp_path / "texts")
    done = edgekit("init", "mine", "--data", data, "--task", "anomaly", "--out", tmp_path / "out")
    output = "can serve classification or embedding; use one"
    assert (done.exit_code, output in " ".join(done.output.split())) == (2, True), done.output


def test_a_recording_without_a_track_is_reported(tmp_path: Path) -> None:
    path = recording(tmp_path / "street.wav", alternating())
    path.with_suffix(".txt").unlink()
    done = edgekit("init", "mine", "--data", path, "--out", tmp_path / "out")
    assert done.exit_code == 4 and "a single WAV file without a label track, NAME.txt beside it" in done.output


@pytest.mark.parametrize("kind", NEWER)
def test_a_folder_may_be_moved_with_its_data(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home, moved = tmp_path / "home", tmp_path / "moved"
    home.mkdir()
    _, data = of_kind(kind, home / "data")
    config = home / "mine.yaml"
    assert edgekit("init", "mine", "--data", data, "--out", home).exit_code == 0
    assert str(tmp_path) not in config.read_text()
    before = load(load_plan(config).data).digest
    home.rename(moved)
    monkeypatch.chdir("/")
    done = edgekit("run", moved / "mine.yaml", "--dry-run", "--out", tmp_path / "runs")
    assert done.exit_code == 0, done.output
    assert load(load_plan(moved / "mine.yaml").data).digest == before
