"""`python -m benchmarks.bits`: files of a small network are made and timed, and what is missing is told in one line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks import bits
from tests.benchmarks.untrained import saved
from tests.conftest import TINY


@pytest.mark.long
def test_every_file_is_made_and_timed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "out"
    bits.main(["make", str(TINY), str(saved(tmp_path / "model")), str(out), "--targets", "onnx"])
    rows = json.loads((out / "answers.json").read_text())
    names = [row["name"] for row in rows if "files" in row]
    assert "int8-onnx" in names
    capsys.readouterr()
    bits.main(["time", str(out)])
    lines = [line.split(" | ") for line in capsys.readouterr().out.splitlines() if line.startswith("| ")]
    assert [cells[0].removeprefix("| ") for cells in lines] == names and {len(cells) for cells in lines} == {6}


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["make", "none.yaml", "none", "out"], r"none\.yaml: no such config file"),
        (["make", str(TINY), "none", "out"], r"none.model\.json: not a saved model"),
        (["time", "none"], r"none: has no answers\.json; run python -m benchmarks\.bits make CONFIG MODEL none first$"),
    ],
    ids=["config", "model", "answers"],
)
def test_what_is_missing_is_told_in_a_line(
    arguments: list[str], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit, match=f"^{said}") as ended:
        bits.main(arguments)
    assert "\n" not in str(ended.value) and not (tmp_path / "out").exists()


def test_a_folder_for_which_no_file_could_be_made_is_told_in_a_line(tmp_path: Path) -> None:
    (tmp_path / "answers.json").write_text('[{"name": "int8-onnx", "reason": "no such operator"}]')
    with pytest.raises(SystemExit, match="answers.json: names no file"):
        bits.main(["time", str(tmp_path)])
