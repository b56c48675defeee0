"""Every Python example of the pages is run, and every piece of a config is checked as `edgekit run` would."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import numpy as np
import pytest
import yaml

from edgekit.workbook.plan import load_plan
from tests.conftest import ROOT, TINY, FinishedRun
from tests.docs.pages import Block, all_pages, blocks, name

LANGUAGES = {"python", "yaml", "bash", "text", "json"}
DIGITS = ROOT / "configs" / "digits.yaml"
RUN = """
import json, sys, traceback, types
pages = json.load(sys.stdin)
failed = {}
for page, pieces in pages.items():
    module = sys.modules[page] = types.ModuleType(page)
    for line, text in pieces:
        try:
            exec(compile("\\n" * (line - 1) + text, page, "exec"), vars(module))
        except BaseException:
            failed.setdefault(page, []).append(traceback.format_exc())
json.dump(failed, open("failed.json", "w"))
"""


def examples(page: Path) -> list[Block]:
    """What is run: the Python that is no file."""
    return [block for block in blocks(page) if block.language == "python" and not block.title]


def files(page: Path) -> list[Block]:
    """What is written into the package first."""
    return [block for block in blocks(page) if block.title.startswith("edgekit/")]


def pieces(page: Path) -> list[Block]:
    return [block for block in blocks(page) if block.language == "yaml" and not block.title]


@pytest.fixture(scope="module")
def failed(tmp_path_factory: pytest.TempPathFactory, tiny_run: FinishedRun) -> dict[str, list[str]]:
    """What went wrong in which page: pages that add to the package run over a copy of it, the others over this tree."""
    home = tmp_path_factory.mktemp("snippets")
    _lay_out(home, tiny_run)
    copy = home / "copy"
    shutil.copytree(ROOT / "edgekit", copy / "edgekit", ignore=shutil.ignore_patterns("__pycache__"))
    adding = [page for page in all_pages() if files(page)]
    for page in adding:
        for block in files(page):
            path = copy / block.title
            assert not path.exists(), f"{name(page)} would replace {block.title}"
            path.write_text(block.text, encoding="utf-8")
    return run(adding, home, copy) | run([page for page in all_pages() if page not in adding], home, ROOT)


def _lay_out(home: Path, run: FinishedRun) -> None:
    """The run, its config and a bundle, under the names that the pages have for those of the digits."""
    shutil.copytree(run.folder, home / "artifacts" / "tiny")
    (home / "artifacts" / "digits").symlink_to("tiny")
    (home / "configs").mkdir()
    shutil.copy(TINY, home / "configs" / "digits.yaml")
    shutil.copy(run.folder / "bundles" / "tiny-tflite-1.0.0.edge.zip", home / "digits-tflite-1.0.0.edge.zip")
    np.save(home / "sample.npy", np.zeros((32, 32, 1), np.uint8))


def run(pages: list[Path], home: Path, package: Path) -> dict[str, list[str]]:
    """The examples of these pages, all in one process."""
    blocks_by_page = {name(page): [(block.line, block.text) for block in examples(page)] for page in pages}
    done = subprocess.run(
        [sys.executable, "-c", RUN],
        input=json.dumps(blocks_by_page),
        cwd=home,
        env={**os.environ, "PYTHONPATH": str(package)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found: dict[str, list[str]] = json.loads((home / "failed.json").read_text())
    return found


@pytest.mark.parametrize("page", [page for page in all_pages() if examples(page)], ids=name)
def test_the_python_of_a_page_runs(page: Path, failed: dict[str, list[str]]) -> None:
    assert not failed.get(name(page), []), "\n".join(failed[name(page)])


def test_a_file_that_is_shown_is_used() -> None:
    """Or nothing would have read it."""
    idle = [name(page) for page in all_pages() if files(page) and not examples(page)]
    assert not idle


@pytest.mark.parametrize("page", [page for page in all_pages() if pieces(page)], ids=name)
def test_the_pieces_of_a_config_are_accepted(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each in the place of the same sections of the digits' config."""
    (tmp_path / "theirs.tflite").write_bytes(b"\x1c\0\0\0TFL3" + bytes(64))
    with zipfile.ZipFile(tmp_path / "colleague.keras", "w") as archive:
        for member in ("metadata.json", "config.json"):
            archive.writestr(member, "{}")
        archive.writestr("model.weights.h5", b"")
    (tmp_path / "prepare.py").write_text("def samples(raw):\n    return raw\n")
    monkeypatch.syspath_prepend(tmp_path)
    for block in pieces(page):
        values = yaml.safe_load(DIGITS.read_text()) | _whole(yaml.safe_load(block.text))
        config = tmp_path / "config.yaml"
        config.write_text(yaml.safe_dump(values))
        load_plan(config, [], checked_before=False)


def _whole(shown: dict[str, object]) -> dict[str, object]:
    """With the source of the data, which a piece may leave out."""
    data = shown.get("data")
    return {**shown, "data": {"source": "digits", **data}} if isinstance(data, dict) else shown


@pytest.mark.parametrize("page", all_pages(), ids=name)
def test_no_block_is_in_a_language_that_nothing_reads(page: Path) -> None:
    assert {block.language for block in blocks(page)} <= LANGUAGES
