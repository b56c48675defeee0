"""report.html contains everything in the result, loads nothing from elsewhere, and is never stale."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from edgekit.core.errors import DataError
from edgekit.report import html
from edgekit.report.formatting import count, milliseconds, percent, percentage_points
from edgekit.report.html.templates import CONTENT_SECURITY_POLICY, TEMPLATES
from edgekit.report.result import RESULT
from tests.conftest import TINY, FinishedRun, run_edgekit
from tests.report.html import runs

WITHOUT_FRAMEWORK = """
import sys
from edgekit.__main__ import main
try:
    main()
finally:
    print("IMPORTED", *{name.split(".")[0] for name in sys.modules} & {"torch", "tensorflow", "openvino"})
"""


class Read(HTMLParser):
    """The text of a page, its tags with their attributes, and its tables as rows of cells."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str]]] = []
        self.rows: list[list[str]] = []
        self.text = ""
        self.in_cell = False
        self.feed(path.read_text())

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, {name: value or "" for name, value in attrs}))
        if tag == "tr":
            self.rows.append([])
        elif tag in ("th", "td"):
            self.rows[-1].append("")
            self.in_cell = True

    def handle_endtag(self, tag: str) -> None:
        self.in_cell = self.in_cell and tag not in ("th", "td")

    def handle_data(self, data: str) -> None:
        self.text += data
        if self.in_cell:
            self.rows[-1][-1] += data

    def named(self, tag: str) -> list[dict[str, str]]:
        return [attributes for name, attributes in self.tags if name == tag]

    def row(self, first: str, with_: str) -> list[str]:
        return next(row for row in self.rows if row[:1] == [first] and with_ in row)


@pytest.fixture(scope="module")
def read(tiny_run: FinishedRun) -> Read:
    html.write_page(tiny_run.folder)
    return Read(tiny_run.folder / html.PAGE)


@pytest.fixture(scope="module")
def result(tiny_run: FinishedRun) -> dict[str, Any]:
    return json.loads((tiny_run.folder / RESULT).read_text())


@pytest.fixture
def copy(tiny_run: FinishedRun, read: Read, tmp_path: Path) -> Path:
    return runs.copy(tiny_run, tmp_path)


def test_every_variant_stands_with_its_figures_and_its_reasons(read: Read, result: dict[str, Any]) -> None:
    for row in result["variants"]:
        cells = read.row(row["name"], percent(row["accuracy_test"]))
        expected = [percent(row["accuracy_validation"]), count(row["bytes"]), percentage_points(row.get("bound_pp"))]
        expected += [milliseconds(row[f"p{rank}_ms"]) for rank in (50, 95, 99)]
        assert [each for each in expected if each not in cells] == [], row["name"]
        assert all(reason in cells[1] for reason in row.get("reasons", []))
        ships = row["name"] in result["winners"].values()
        assert ships == cells[1].startswith("ships for")
        assert cells[1].startswith("rejected") == (row.get("inside_budget") is False)


def test_every_rejected_step_machine_version_and_digest_is_shown(
    read: Read, result: dict[str, Any], tiny_run: FinishedRun
) -> None:
    for row in result["rejected"]:
        assert any(cells[:2] == [row["stage"], row["what"]] and row["reason"] in cells for cells in read.rows)
    conditions = result["conditions"]
    for value in (*conditions.values(), *conditions["disturbed"]):
        assert value is None or isinstance(value, (dict, list)) or str(value) in read.text
    for bundle in result["bundles"].values():
        assert bundle["sha256"] in read.text
    record = json.loads((tiny_run.folder / "benchmark/artifact.json").read_text())
    for library, version in record["versions"].items():
        assert any(cells[:2] == [library, version] for cells in read.rows)
    verdict = result["verdict"]
    assert (
        f"{verdict['winner']} is the fastest variant that ships. A call takes {milliseconds(verdict['p50_ms'])} ms"
        in read.text
    )


def test_what_a_run_did_not_measure_has_no_place_in_its_page(read: Read) -> None:
    assert "Under load" not in read.text
    assert "Predicted and achieved speed-up" not in read.text


def test_where_the_time_goes_stands_before_and_after(read: Read, result: dict[str, Any], tiny_run: FinishedRun) -> None:
    profile = json.loads((tiny_run.folder / "profile/artifact.json").read_text())["metrics"]
    for part in ("preprocess", "execute", "postprocess"):
        assert milliseconds(profile["latency"][part]["mean_ms"]) in read.row(
            part, f"{profile['latency'][part]['share']:.1%}"
        )
    rows = {row["name"]: row for row in result["variants"]}
    before, after = rows["baseline-eager"], rows[result["verdict"]["winner"]]
    assert read.row("p99, ms", milliseconds(before["p99_ms"]))[2] == milliseconds(after["p99_ms"])


def test_accuracy_stands_class_by_class_with_what_was_lost(read: Read, result: dict[str, Any]) -> None:
    outcome = result["by_class"]
    for row in outcome["groups"]:
        cells = read.row(row["name"], str(row["samples"]))
        assert [cell.split()[0] for cell in cells[2:]] == [f"{100 * one['score']:.2f}" for one in row["answers"]]
    winner = result["verdict"]["winner"]
    assert f"{winner} loses {outcome['lost'][winner]:,} and gains {outcome['gained'][winner]:,}" in read.text
    alts = [image["alt"] for image in read.named("img")]
    assert any(alt.startswith("Confusion matrix of baseline-eager and ") for alt in alts)
    assert bool(outcome["lost"][winner]) == any(alt.startswith("Lost validation samples") for alt in alts)


def test_nothing_comes_from_elsewhere_and_every_link_leads_somewhere(read: Read, tiny_run: FinishedRun) -> None:
    assert not {name for name, _ in read.tags} & {"script", "iframe", "object", "embed", "base"}
    assert {"http-equiv": "Content-Security-Policy", "content": CONTENT_SECURITY_POLICY} in read.named("meta")
    ids = [attributes["id"] for _, attributes in read.tags if "id" in attributes]
    assert len(ids) == len(set(ids))
    for name, attributes in read.tags:
        for key in {"src", "href", "srcset", "action", "data", "poster"} & set(attributes):
            there = attributes[key]
            if there.startswith("#"):
                assert there[1:] in ids
            elif not there.startswith("data:"):
                assert name == "a"
                assert (tiny_run.folder / there).is_file(), there
    css = (TEMPLATES / "page.css").read_text()
    assert "url(" not in css
    assert "@import" not in css


def test_it_is_written_for_everybody(read: Read) -> None:
    assert read.named("html") == [{"lang": "en"}]
    assert "tiny 1.0.0: Budget met: 3 of 3 targets ship" in read.text  # its title
    assert len(read.named("h1")) == 1
    pictures = read.named("img")
    assert len(pictures) >= 6
    assert all(len(picture["alt"]) > 20 and picture["width"] and picture["height"] for picture in pictures)
    assert all(cell["scope"] in ("row", "col") for cell in read.named("th"))


def test_the_notebooks_pages_are_whole_and_lead_to_one_another(tiny_run: FinishedRun, read: Read) -> None:
    pages = sorted((tiny_run.folder / html.NOTEBOOK_FOLDER).glob("*.html"))
    assert [path.stem for path in pages] == [path.stem for path in html.executed_notebooks(tiny_run.folder)]
    for path in pages:
        notebook = Read(path)
        assert not notebook.named("script")
        assert all(picture["src"].startswith("data:image/") for picture in notebook.named("img"))
        assert "✓" in notebook.text
        assert "$$" not in notebook.text
        for link in notebook.named("a"):
            assert not link["href"].endswith(".ipynb"), link


def test_a_page_that_is_true_is_not_drawn_again_and_one_that_is_not_is(copy: Path) -> None:
    path = copy / html.PAGE
    assert html.is_page_current(copy)
    before = path.stat().st_ino, path.stat().st_mtime_ns
    html.write_page(copy)
    assert (path.stat().st_ino, path.stat().st_mtime_ns) == before
    whole = path.read_bytes()
    path.write_bytes(whole[:-10])
    assert not html.is_page_current(copy)
    path.write_bytes(whole)
    (copy / html.NOTEBOOK_FOLDER / "03_prune.html").unlink()
    assert not html.is_page_current(copy)
    html.write_page(copy)
    assert html.is_page_current(copy)
    assert path.read_bytes() == whole
    notebook = copy / "notebooks/06_benchmark.ipynb"
    notebook.write_text(notebook.read_text().replace("Benchmark", "Benchmarks", 1))
    assert not html.is_page_current(copy)


def test_a_page_that_cannot_be_drawn_is_reported_and_the_verdict_stands(copy: Path) -> None:
    (copy / html.PAGE).unlink()
    shutil.rmtree(copy / html.NOTEBOOK_FOLDER)
    (copy / html.NOTEBOOK_FOLDER).write_text("in the way")
    done = run_edgekit("run", str(TINY), "--out", str(copy.parent))
    assert done.returncode == 0, done.stderr
    assert "report.html could not be written (FileExistsError" in done.stdout
    assert " tiny · 3 of 3 targets ship" in done.stdout
    assert not (copy / html.PAGE).exists()


def test_the_command_draws_it_without_a_framework(copy: Path) -> None:
    (copy / html.PAGE).unlink()
    command = [sys.executable, "-c", WITHOUT_FRAMEWORK, "report", "tiny", "--out", str(copy.parent)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [str(copy / html.PAGE), "IMPORTED"]
    assert html.is_page_current(copy)


def test_what_is_no_run_or_has_no_verdict_is_refused_with_what_is_missing(copy: Path) -> None:
    done = run_edgekit("report", "nothing", "--out", str(copy.parent))
    assert done.returncode == 2
    assert "nothing: no such run here, nor in" in done.stderr
    shutil.rmtree(copy / "bundles")
    shutil.rmtree(copy / "benchmark")
    done = run_edgekit("report", str(copy))
    assert done.returncode == 4
    assert "no verdict yet: benchmark, bundle have yet to run" in done.stderr
    with pytest.raises(DataError, match="edgekit run"):
        html.write_page(copy)


@pytest.mark.parametrize(
    "file", ["benchmark/decision.json", "distill/decision.json", "convert/artifact.json", "bundles/edgerun.pyz"]
)
def test_a_run_in_which_something_sealed_was_edited_gets_no_page(copy: Path, file: str) -> None:
    """Though the page that is there says what result.json says."""
    path = copy / file
    content = path.read_bytes()
    path.write_bytes(content.replace(b"2", b"3", 1))
    assert path.read_bytes() != content
    done = run_edgekit("report", str(copy))
    assert done.returncode == 8, done.stdout + done.stderr
    assert done.stdout == "" and len(done.stderr.splitlines()) == 1
    assert f"edgekit: {path}: " in done.stderr and "run" in done.stderr and "again" in done.stderr


def test_a_missed_budget_gets_its_page_with_the_nearest_miss(missed: Path) -> None:
    content = Read(missed / html.PAGE)
    result = json.loads((missed / RESULT).read_text())
    nearest = result["nearest_miss"]
    assert "Budget missed: nothing ships" in content.text
    assert f"the nearest miss is {nearest['name']}" in content.text
    assert all(reason in content.text for reason in nearest["reasons"])
    assert content.row("limit of the budget", "≤ 1,000")[3:5] == ["≤ 25", "≤ 1e-06"]
    assert not any("ships for" in cell for row in content.rows for cell in row)
    assert "What each step bought" not in content.text  # no waterfall leads anywhere
    assert "07_bundle" not in (missed / html.PAGE).read_text()
    assert not (missed / html.NOTEBOOK_FOLDER / "07_bundle.html").exists()
