"""Board reports: written by the real runner, accepted from a quiet board, and refused if forged or disturbed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner, Result

from edgekit.cli.app import app
from edgekit.core.errors import DataError
from edgekit.device.hardware import health
from edgekit.device.measure import conditions
from edgekit.report.field.board_reports import read_board_report
from edgekit.report.field.board_table import best_of_each, page
from edgekit.runner.cli import main
from tests.device.releases import device
from tests.report.field.boards import CALLS, Change, forged, measured, quiet, signed


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return device.write(tmp_path_factory.mktemp("board") / "tiny.edge.zip")


@pytest.fixture(scope="module")
def real(bundle: Path) -> dict[str, Any]:
    return measured(bundle, bundle.with_name("real.json"))


@pytest.fixture
def quiet_report(real: dict[str, Any]) -> dict[str, Any]:
    return quiet(real)


def written(folder: Path, name: str, content: dict[str, Any]) -> Path:
    path = folder / f"{name}.json"
    path.write_text(json.dumps(content))
    return path


def board_table(*arguments: object) -> Result:
    return CliRunner().invoke(app, ["field", "board-table", *map(str, arguments)])


def test_the_runner_writes_what_a_reader_needs(real: dict[str, Any], bundle: Path) -> None:
    first, second = real["rows"]
    assert real["digest"] == signed(real)["digest"] and len(real["digest"]) == 64
    assert first["sha256"] == second["sha256"] == device.digest(bundle)
    assert len(first["samples_ns"]) == len(second["samples_ns"]) == CALLS
    assert np.percentile(first["samples_ns"], 95) / 1e6 == pytest.approx(first["p95_ms"])
    assert min(first["ratio"], second["ratio"]) <= 1 <= max(first["ratio"], second["ratio"])
    assert [each["selftest"]["ok"] for each in real["starts"]] == [True] * 3
    assert all(each["open_ms"] > 0 and each["peak_bytes"] > 10_000_000 for each in real["starts"])
    (file,) = real["model_files"].values()
    assert set(file) == {"bytes", "sha256"} and real["machine"]["memory_bytes"] > 0
    text = json.dumps(real)
    assert str(bundle) not in text and "host" not in real["machine"]  # a stranger's folders and names stay private


def test_a_disturbed_machine_is_refused_with_its_reasons(real: dict[str, Any], tmp_path: Path) -> None:
    """Whatever this machine does just now: the report says it, and the reader agrees."""
    path = written(tmp_path, "real", real)
    if real["disturbed"]:
        with pytest.raises(DataError, match=r"disturbed: "):
            read_board_report(path)
    else:
        read_board_report(path)


def test_a_quiet_board_is_accepted(quiet_report: dict[str, Any], tmp_path: Path) -> None:
    report = read_board_report(written(tmp_path, "pi", quiet_report))
    assert report.p50.low_ms <= report.p50.p50_ms <= report.p50.high_ms and 4.0 < report.p50.p50_ms < 4.1
    assert report.content.machine.board == "Raspberry Pi 5 Model B Rev 1.0"


def set_(*path: str | int, to: Any) -> Change:
    def change(content: dict[str, Any]) -> None:
        where: Any = content
        for key in path[:-1]:
            where = where[key]
        where[path[-1]] = to

    return change


def halved(content: dict[str, Any]) -> None:
    for row in content["rows"]:
        for key in ("p50_ms", "p90_ms", "p95_ms", "p99_ms", "low_ms", "high_ms"):
            row[key] /= 2


def copied(content: dict[str, Any]) -> None:
    content["rows"][1] = content["rows"][0]


FORGED: dict[str, tuple[Change, str]] = {
    "figures halved": (halved, "says that p50_ms is 2.0"),
    "narrow interval": (set_("rows", 0, "low_ms", to=4.02), "says that low_ms"),
    "A/A copied": (copied, "one is a copy"),
    "A/A of another file": (set_("rows", 1, "sha256", to="0" * 64), "different files"),
    "fewer samples": (lambda content: content["rows"][0]["samples_ns"].pop(), "49 samples, but 10 rounds of 5 calls"),
    "no samples": (set_("rows", 0, "samples_ns", to=[]), "0 samples"),
    "negative sample": (set_("rows", 0, "samples_ns", 3, to=-5), "samples_ns.3: Input should be greater than 0"),
    "noise hidden": (set_("seen", "noise", to=0.2), "rounds spread by 0.2, but its samples give"),
    "longer than it took": (set_("seen", "seconds", to=0.1), "add up to"),
    "throttled": (set_("seen", "throttled", to=True), "disturbed: the processor throttled"),
    "hot": (set_("seen", "temperature_after_c", to=85.0), "disturbed: the processor was at 85 °C"),
    "busy": (set_("seen", "others_share", to=0.4), "disturbed: other processes took 40%"),
    "said to be disturbed": (set_("disturbed", to=["a fan failed"]), "disturbed: a fan failed"),
    "emulated": (set_("emulated", to=True), "emulated machine"),
    "self-test failed": (set_("starts", 1, "selftest", "ok", to=False), "golden self-test failed"),
    "self-test far off": (set_("starts", 1, "selftest", "max_abs_delta", to=9.0), "golden self-test failed"),
    "self-test of nothing": (set_("starts", 1, "selftest", "vectors", to=0), "golden self-test failed"),
    "never opened": (set_("starts", to=[]), "starts: List should have at least 1 item"),
    "another format": (set_("format", to=2), "of format 2, but this version of edgekit reads 1"),
    "another kind": (set_("kind", to="edgekit field report"), "not a board report"),
    "low confidence": (set_("confidence", to=0.5), "confidence: Input should be greater than or equal to 0.99"),
    "one opening": (set_("openings", to=1), "openings: Input should be greater than or equal to 10"),
    "text for a number": (set_("rows", 0, "threads", to="1"), "rows.0.threads: Input should be a valid integer"),
    "no conditions": (set_("seen", to={}), "seen.seconds: Field required"),
}  # fmt: skip


@pytest.mark.parametrize("name", FORGED)
def test_what_was_forged_with_a_new_digest_is_refused(name: str, quiet_report: dict[str, Any], tmp_path: Path) -> None:
    change, reason = FORGED[name]
    path = written(tmp_path, "forged", forged(quiet_report, change))
    with pytest.raises(DataError) as refusal:
        read_board_report(path)
    assert reason in str(refusal.value) and "\n" not in str(refusal.value)


@pytest.mark.parametrize("change", [set_("machine", "board", to="Faster board"), set_("rows", 0, "p50_ms", to=1.0)])
def test_an_edited_file_is_refused_by_its_digest(change: Change, quiet_report: dict[str, Any], tmp_path: Path) -> None:
    path = written(tmp_path, "edited", forged(quiet_report, change, sign=False))
    with pytest.raises(DataError, match="was edited after it was written"):
        read_board_report(path)


def test_a_file_that_differs_from_itself_is_refused(real: dict[str, Any], tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"A/A check failed: the file took 0\.9"):
        read_board_report(written(tmp_path, "apart", quiet(real, slower=1.05)))


def test_the_page_has_a_column_for_each_board(real: dict[str, Any], tmp_path: Path) -> None:
    other = forged(quiet(real, ms=8.0, seed=1), set_("machine", "board", to="Intel N100 | ![x](http://x)"))
    written(tmp_path, "a", quiet(real))
    written(tmp_path, "b", other)
    done = board_table(tmp_path, "--out", tmp_path / "page.md")
    assert done.exit_code == 0, done.output
    lines = (tmp_path / "page.md").read_text().splitlines()
    head = next(line for line in lines if line.startswith("| model"))
    assert "Intel N100 x (http://x) | Raspberry Pi 5 Model B Rev 1.0 |" in head  # no picture can be put into the page
    [row] = [line for line in lines if line.startswith(f"| {real['bundle']['name']} ")]
    cells = [cell.strip() for cell in row.strip("|").split("|")]
    assert cells[5].startswith("8.0") and cells[6].startswith("4.0") and cells[3] == "onnxruntime, 1 thread"


def test_of_several_reports_the_least_disturbed_is_kept(real: dict[str, Any], tmp_path: Path) -> None:
    busier = forged(quiet(real, ms=3.0), set_("seen", "others_share", to=0.04))
    paths = [written(tmp_path, "a", busier), written(tmp_path, "b", quiet(real, ms=4.0))]
    reports = [read_board_report(path) for path in paths]
    assert [each.name for each in best_of_each(reports)] == ["b.json"]
    assert page(reports) == page(reports[::-1])


def test_refused_files_are_named_and_the_others_are_shown(quiet_report: dict[str, Any], tmp_path: Path) -> None:
    written(tmp_path, "good", quiet_report)
    written(tmp_path, "edited", forged(quiet_report, set_("governor", to="performance"), sign=False))
    (tmp_path / "broken.json").write_bytes(b'{"kind": "edgekit board report"')
    done = board_table(tmp_path)
    assert done.exit_code == 4 and "Raspberry Pi 5" in done.stdout
    refused = [line for line in done.stderr.splitlines() if line]
    assert len(refused) == 2 and all(line.startswith("edgekit: refused: ") for line in refused)
    assert "broken.json: not JSON" in refused[0] and "edited.json: was edited" in refused[1]


def test_a_folder_without_reports_is_an_error(tmp_path: Path) -> None:
    done = board_table(tmp_path / "none")
    assert done.exit_code == 4 and "has no board report" in done.stderr


@pytest.mark.parametrize("words", [["--compare"], ["--minutes", "1"]])
def test_a_report_is_about_one_bundle_in_rounds(
    words: list[str], bundle: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(["bench", str(bundle), "--report", str(tmp_path / "r.json"), *words])
    with pytest.raises(SystemExit, match="2"):
        main(["bench", str(bundle), str(bundle), "--report", str(tmp_path / "r.json")])
    stderr = capsys.readouterr().err
    assert "leave out --compare" in stderr and "--report is about one bundle" in stderr and not list(tmp_path.iterdir())


def test_a_file_that_cannot_be_written_is_one_line(bundle: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", str(bundle), "--no-trial", "--calls", "10", "--report", "/proc/none/r.json"]) == 7
    assert "--report /proc/none/r.json: " in capsys.readouterr().err


def test_facts_of_a_raspberry_pi(tmp_path: Path) -> None:
    for name, text in (
        ("proc/device-tree/model", "Raspberry Pi 5 Model B Rev 1.0\0"),
        ("etc/os-release", 'NAME="Debian"\nPRETTY_NAME="Debian GNU/Linux 13 (trixie)"\n'),
        ("proc/meminfo", "MemTotal:        8000000 kB\n"),
        ("proc/self/status", "VmPeak:   9 kB\nVmHWM:    2000 kB\n"),
    ):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    facts = health.board_facts(tmp_path)
    assert (facts["board"], facts["os"]) == ("Raspberry Pi 5 Model B Rev 1.0", "Debian GNU/Linux 13 (trixie)")
    assert facts["memory_bytes"] == 8_192_000_000 and health.peak_bytes(tmp_path) == 2_048_000
    assert health.board_facts(tmp_path / "none") == {"board": None, "os": None, "memory_bytes": None}
    assert health.peak_bytes(tmp_path / "none") is None


def test_the_limits_of_disturbance_are_those_of_the_runner(quiet_report: dict[str, Any], tmp_path: Path) -> None:
    just = set_("seen", "others_share", to=conditions.MAX_OTHERS_SHARE)
    read_board_report(written(tmp_path, "just", forged(quiet_report, just)))
