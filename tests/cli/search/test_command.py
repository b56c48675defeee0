from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner

from edgekit.cli.app import app

CONFIGS = Path(__file__).parents[2] / "configs"
TINY = CONFIGS / "tiny.yaml"


def refused(tmp_path: Path, *arguments: str) -> tuple[int, str]:
    """The exit code and the message of a search that must leave nothing behind."""
    out = tmp_path / "out"
    ended = CliRunner().invoke(app, ["search", *arguments, "--out", str(out)])
    assert not out.exists() and "Traceback" not in ended.output
    return ended.exit_code, ended.output


def space(tmp_path: Path, text: str) -> str:
    path = tmp_path / "mine.yaml"
    path.write_text(text)
    return str(path)


@pytest.mark.parametrize(
    ("text", "expected_message"),
    [
        ("space: {prune.ratoi: [0.1]}", "prune.ratoi"),
        ("space: {prune.ratio: {low: 0.5, high: 2.0}}", "prune.ratio"),
        ("space: {}", "mine.yaml: space: got nothing"),
        ("spaces: {}", "unknown key"),
        ("space: {budget.size_bytes: [1, 2]}", "space.budget.size_bytes: must be the same for all trials"),
        ("objectives: [speed]\nspace: {prune.ratio: [0.1]}", "objectives"),
        ("space: [", "mine.yaml"),
    ],
)
def test_a_wrong_space_is_one_line_and_nothing_is_written(text: str, expected_message: str, tmp_path: Path) -> None:
    code, message = refused(tmp_path, str(TINY), "--space", space(tmp_path, text), "--trials", "2")
    assert code == 2 and expected_message in message and len(message.strip().splitlines()) <= 2


def test_the_error_for_a_config_without_a_student_says_what_is_missing(tmp_path: Path) -> None:
    values = yaml.safe_load(TINY.read_text())
    config = tmp_path / "plain.yaml"
    config.write_text(yaml.safe_dump({key: values[key] for key in ("name", "data", "model", "preprocess", "convert")}))
    code, message = refused(tmp_path, str(config))
    assert code == 2 and "has no distill section" in message and "set distill.student" in message


@pytest.mark.parametrize(
    ("options", "code", "message"),
    [
        (["--replay", "nowhere"], 2, "--replay nowhere: not a study"),
        (["--cache", "ftp://there"], 2, "cache 'ftp://there'"),
        (["--space", "nowhere.yaml"], 2, "nowhere.yaml"),
        (["--trials", "0"], 2, "--trials"),
        (["--trials", "1" * 400], 2, "--trials"),
        (["--minutes", "nan"], 2, "--minutes"),
        (["--minutes", "inf"], 2, "--minutes"),
        (["--on", "there"], 2, "--on: got 'there'; use dask://HOST:PORT"),
        (["--on", "dask://there:1", "--workers", "1"], 2, "--workers and --on: got both; choose one"),
        (["--minutes", "0"], 2, "--minutes"),
        (["--batch", "0"], 2, "--batch"),
        (["--workers", "0"], 2, "--workers"),
        (["--set", "prune.ratio=7"], 2, "prune.ratio"),
        (["--to", "mine.yaml"], 2, "--to mine.yaml: applies only with --take"),
        (["--take", "3"], 4, "no such study"),
    ],
)
def test_a_wrong_option_is_refused_before_anything_is_written(
    options: list[str], code: int, message: str, tmp_path: Path
) -> None:
    assert refused(tmp_path, str(TINY), *options)[0] == code
    assert message in refused(tmp_path, str(TINY), *options)[1]


def test_the_error_for_an_out_that_is_a_file_says_what_to_do(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    ended = CliRunner().invoke(app, ["search", str(TINY), "--out", str(tmp_path / "file")])
    assert ended.exit_code == 7 and "choose another folder with --out" in ended.output
