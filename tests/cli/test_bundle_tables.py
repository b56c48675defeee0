"""`edgekit bundle` of classic models, and tables of rows: from a forest to its answers on a device."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from edgekit.cli import app
from edgekit.runner import load
from tests.models.files import classic
from tests.models.files.test_onnx_classic import by_least, one_column

COLUMNS = ("wind", "rain", "heat", "dew", "sun", "haze")


def edgekit(*words: object) -> tuple[int, str]:
    """The command in this process: its exit code, and what it printed."""
    from typer.testing import CliRunner

    result = CliRunner().invoke(app.app, [str(word) for word in words])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return int(result.exit_code), result.output


def model(home: Path, name: str) -> Path:
    path = home / "model.onnx"
    path.write_bytes(classic.model_file(name).content)
    return path


def table(path: Path, x: np.ndarray, header: tuple[str, ...] = COLUMNS, last: tuple[str, ...] = ()) -> Path:
    """Rows as CSV; `last` is a further column of words."""
    rows = [",".join([*map(str, row.tolist()), *last[place : place + 1]]) for place, row in enumerate(x.astype(float))]
    names = [*header, *(["weather"] if last else [])]
    path.write_text("\n".join([",".join(names), *rows]) + "\n")
    return path


def bundled(home: Path, *words: object) -> tuple[Path, str]:
    """The bundle, and what was printed."""
    code, output = edgekit("bundle", *words, "--out", home / "out")
    assert code == 0, output
    (path,) = (home / "out").glob("*.edge.zip")
    return path, output


def test_a_forest_from_its_file_to_a_devices_answers(tmp_path: Path) -> None:
    """A thousand rows of one table, by edgerun.pyz in a process of its own: scikit-learn's own probabilities."""
    created, x = classic.model_file("forest"), classic.samples(classic.ROWS, 2)
    golden = table(tmp_path / "golden.csv", classic.samples(60, 4))
    bundle, output = bundled(tmp_path, model(tmp_path, "forest"), "--golden", golden)
    assert "labels      calm, storm, wind: the model's own names" in output
    assert "changed     its label (output_label) and its ZipMap were removed" in output
    assert f"columns     {', '.join(COLUMNS)}: those of golden.csv" in output
    rows = table(tmp_path / "rows.csv", x)
    runner = str(tmp_path / "out" / "edgerun.pyz")
    requested = [sys.executable, runner, "predict", str(bundle), str(rows), "--json", "--no-trial"]
    done = subprocess.run(requested, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    result = [json.loads(line) for line in done.stdout.splitlines()]
    assert [each["row"] for each in result] == list(range(1, classic.ROWS + 1))
    scores, own = np.array([each["scores"] for each in result]), created.own(x)
    assert np.abs(scores - own).max() < 1e-6
    assert [each["label"] for each in result] == classic.WORDS[own.argmax(axis=1)].tolist()
    opened = load(bundle, trial=False)
    assert opened.manifest.activation == "none" and opened.manifest.raw.columns == COLUMNS
    for place in (0, 500, 999):  # a row alone and a row of the table: the same bits
        assert opened.predict(x[place]).scores.tolist() == result[place]["scores"]


@pytest.mark.parametrize("name", ["XGBoost of two classes", "LightGBM of two classes", "logistic"])
def test_boosted_and_linear_models(name: str, tmp_path: Path) -> None:
    created, x = classic.model_file(name), classic.samples(50, 2)
    golden = table(tmp_path / "golden.csv", classic.samples(60, 4))
    bundle, _ = bundled(tmp_path, model(tmp_path, name), "--golden", golden)
    opened = load(bundle, trial=False)
    assert tuple(opened.manifest.labels) == created.classes
    assert opened.selftest().ok
    result = np.stack([opened.predict(row).scores for row in x])
    assert np.abs(result - created.own(x)).max() < 1e-6


def test_a_regressor_is_a_regression(tmp_path: Path) -> None:
    created, x = classic.model_file("XGBoost of values"), classic.samples(20, 2)
    golden = table(tmp_path / "golden.csv", classic.samples(60, 4))
    bundle, output = bundled(tmp_path, model(tmp_path, "XGBoost of values"), "--golden", golden)
    assert "labels      variable: the model's own names" in output
    opened = load(bundle, trial=False)
    assert opened.manifest.task == "regression"
    result = [opened.predict(row).values["variable"] for row in x]
    np.testing.assert_allclose(result, created.own(x)[:, 0], atol=1e-5)
    (tmp_path / "out").rename(tmp_path / "first")
    bundle, _ = bundled(tmp_path, tmp_path / "model.onnx", "--golden", golden, "--labels", "lux")
    assert load(bundle, trial=False).manifest.labels == ["lux"]


def test_a_lone_probability_is_two_classes_where_two_are_named(tmp_path: Path) -> None:
    (tmp_path / "tree.onnx").write_bytes(one_column(False, True))
    golden = table(tmp_path / "golden.csv", classic.samples(30, 4)[:, :2], ("a", "b"))
    bundle, output = bundled(tmp_path, tmp_path / "tree.onnx", "--golden", golden, "--labels", "no,yes",
                           "--task", "classification")  # fmt: skip
    assert "its single probability p was converted to the probabilities of its two classes, [1 - p, p]" in output
    answer = load(bundle, trial=False).predict(np.array([1, 0], np.float32))
    assert (answer.label, answer.scores[1]) == ("yes", pytest.approx(1 / (1 + np.exp(-1.5))))


def test_a_column_of_words_is_no_feature_and_labels_may_be_renamed_in_order(tmp_path: Path) -> None:
    x = classic.samples(30, 4)
    golden = table(tmp_path / "golden.csv", x, last=("calm",) * len(x))
    path = model(tmp_path, "forest")
    bundle, _ = bundled(tmp_path, path, "--golden", golden, "--labels", "still,wild,blowing")
    opened = load(bundle, trial=False)
    assert opened.manifest.raw.columns == COLUMNS
    assert opened.manifest.labels == ["still", "wild", "blowing"]
    [first, *_] = opened.predict_file(golden)
    assert first.span and str(first.span) == "row 1"
    code, output = edgekit("bundle", path, "--golden", golden, "--labels", "wind,storm,calm", "--out", tmp_path / "no")
    assert code == 2 and "the model's own order is calm, storm, wind" in output


FAULTS = {
    "other columns": (
        ("--golden", "wide.csv"),
        2,
        "has 7 columns (wind, rain, heat, dew, sun, haze, more), but the model",
    ),
    "too few named": (("--golden", "golden.csv", "--columns", "wind,rain"), 2, "got 2 names, but the model takes 6"),
    "a column twice": (("--golden", "golden.csv", "--columns", "a,b,a"), 2, "'a' is column 1 and 3"),
    "an empty cell": (
        ("--golden", "gap.csv"),
        4,
        "gap.csv, line 2, column 'heat': got ''; every cell must be a number",
    ),
    "NaN": (("--golden", "nan.csv"), 4, "nan.csv, line 2, column 'heat': got 'nan'; write a finite number"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_what_cannot_be_is_one_line(fault: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    x = classic.samples(10, 4)
    table(tmp_path / "golden.csv", x)
    table(tmp_path / "wide.csv", np.hstack([x, x[:, :1]]), (*COLUMNS, "more"))
    for name, cell in (("gap", ""), ("nan", "nan")):
        header = ",".join(COLUMNS)
        (tmp_path / f"{name}.csv").write_text(f"{header}\n1,2,{cell},4,5,6\n1,2,3,4,5,6\n")
    words, code, expected = FAULTS[fault]
    result, output = edgekit("bundle", model(tmp_path, "forest"), *words, "--out", "out")
    assert (result, expected in " ".join(output.split())) == (code, True), output
    assert not (tmp_path / "out").exists()


def test_missing_values_are_refused_on_the_device(tmp_path: Path) -> None:
    """Trees could be asked with them; nothing in a manifest lets them in."""
    golden = table(tmp_path / "golden.csv", classic.samples(30, 4))
    bundle, _ = bundled(tmp_path, model(tmp_path, "forest"), "--golden", golden)
    sample = classic.samples(1, 5)[0]
    sample[2] = np.nan
    with pytest.raises(Exception, match="holds NaN or infinity"):
        load(bundle, trial=False).predict(sample)


def test_the_error_for_a_model_with_a_column_for_each_class_says_what_to_do(tmp_path: Path) -> None:
    from skl2onnx import to_onnx
    from sklearn.tree import DecisionTreeClassifier

    x = classic.samples(60, 1)
    tree = DecisionTreeClassifier(max_depth=3).fit(x, classic.classes_of(x, 3))
    options = {"zipmap": "columns"}
    content = to_onnx(tree, x[:1], options=options, target_opset={"": 17, "ai.onnx.ml": 3}).SerializeToString()
    (tmp_path / "tree.onnx").write_bytes(content)
    golden = table(tmp_path / "golden.csv", x)
    code, output = edgekit("bundle", tmp_path / "tree.onnx", "--golden", golden, "--out", tmp_path / "out")
    assert code == 4 and "convert it again with options={'zipmap': False}" in " ".join(output.split()), output


def test_the_error_for_a_model_of_doubles_says_how_to_convert_it_to_floats(tmp_path: Path) -> None:
    from skl2onnx import to_onnx
    from sklearn.tree import DecisionTreeClassifier

    x = classic.samples(60, 1).astype(np.float64)
    tree = DecisionTreeClassifier(max_depth=3).fit(x, classic.classes_of(x, 3))
    content = to_onnx(tree, x[:1], target_opset={"": 17, "ai.onnx.ml": 3}).SerializeToString()
    (tmp_path / "tree.onnx").write_bytes(content)
    golden = table(tmp_path / "golden.csv", x)
    code, output = edgekit("bundle", tmp_path / "tree.onnx", "--golden", golden, "--out", tmp_path / "out")
    assert code == 4 and "X[:1].astype(numpy.float32)" in " ".join(output.split()), output


def test_a_label_that_is_another_than_the_scores_on_golden_rows_alone_is_refused(tmp_path: Path) -> None:
    """Random samples, which are near zero, do not show it; the rows of the data do."""
    path = tmp_path / "model.onnx"
    path.write_bytes(by_least(above=5000.0))
    rows = classic.samples(30, 4)[:, :2]
    far = table(tmp_path / "far.csv", rows * np.float32(1000) + np.float32(20000), ("a", "b"))
    code, output = edgekit("bundle", path, "--golden", far, "--out", tmp_path / "out")
    assert code and "model.onnx: the class of its largest score differs from its label for 30 of 30 golden" in output
    assert "CalibratedClassifierCV" in output and not (tmp_path / "out").exists()
    near = table(tmp_path / "near.csv", rows, ("a", "b"))
    _, output = bundled(tmp_path, path, "--golden", near)
    assert "label       the class of the largest score, for each of the 30 golden samples" in output
