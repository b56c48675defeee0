"""What lies beside the bundles and says where they were made: environment.lock and sbom.cdx.json."""

from __future__ import annotations

import getpass
import json
import platform
import re
import site
import socket
import subprocess
import sys
import venv
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest
import tomllib
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from edgekit.core import artifacts
from edgekit.core.artifacts import EVIDENCE_FILES
from edgekit.core.errors import StageError
from edgekit.stages.bundle import provenance
from tests.conftest import FinishedRun, run_edgekit

ROOT = Path(__file__).parents[3]
OWN = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["name"]


@pytest.fixture(scope="module")
def beside(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with both files, as the bundle stage writes them."""
    out = tmp_path_factory.mktemp("bundles")
    provenance.write_sbom(out)
    return out


@pytest.fixture(scope="module")
def bill(beside: Path) -> dict[str, Any]:
    return json.loads((beside / "sbom.cdx.json").read_text())


def lines(beside: Path) -> list[str]:
    return (beside / "environment.lock").read_text().splitlines()


def pinned(beside: Path) -> dict[str, str]:
    """Version by name of every line that pip installs."""
    found = [Requirement(line) for line in lines(beside) if not line.startswith("#")]
    return {one.name: str(one.specifier).removeprefix("==") for one in found}


def test_they_are_named_as_the_artifact_expects(beside: Path) -> None:
    assert sorted(path.name for path in beside.iterdir()) == sorted(EVIDENCE_FILES)


def test_the_lock_lists_what_is_installed(beside: Path) -> None:
    found = metadata.distributions(path=site.getsitepackages())
    installed = {canonicalize_name(one.name): one.version for one in found}
    assert {**pinned(beside), OWN: installed[OWN]} == installed
    assert pinned(beside)["torch"] == metadata.version("torch")


def test_the_lock_is_sorted_and_begins_with_the_machine(beside: Path) -> None:
    first, *rest = lines(beside)
    assert first == f"# {platform.python_implementation()} {platform.python_version()} on Linux {platform.machine()}"
    names = [re.split(r"==| @ ", line.removeprefix("# "))[0] for line in rest]
    assert names == sorted(names)
    assert all(name == canonicalize_name(name) for name in names)


def test_an_editable_install_is_a_comment(beside: Path) -> None:
    (comment,) = [line for line in lines(beside)[1:] if line.startswith("#")]
    assert re.fullmatch(rf"# {OWN}==[\d.]+ \(editable, from a local folder or file\)", comment)


def test_pip_finds_every_line_satisfied(beside: Path) -> None:
    pip = [sys.executable, "-m", "pip", "install", "--disable-pip-version-check", "--dry-run", "--no-deps"]
    done = subprocess.run(
        [*pip, "--no-index", "-r", str(beside / "environment.lock")], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "Would install" not in done.stdout
    assert done.stdout.count("already satisfied") == len(pinned(beside))


def test_the_bill_names_what_the_lock_names(beside: Path, bill: dict[str, Any]) -> None:
    assert (bill["bomFormat"], bill["specVersion"]) == ("CycloneDX", "1.6")
    components = {canonicalize_name(one["name"]): one for one in bill["components"]}
    own = components.pop(OWN)
    assert "purl" not in own  # a working copy is not the package of that name
    assert {name: one["version"] for name, one in components.items()} == pinned(beside)
    for name, one in components.items():
        kind, _, rest = one["purl"].partition("/")
        assert (kind, canonicalize_name(rest.partition("@")[0])) == ("pkg:pypi", name)
    assert components["numpy"]["purl"] == f"pkg:pypi/numpy@{metadata.version('numpy')}"


def test_the_bill_says_what_needs_what(bill: dict[str, Any]) -> None:
    refs = {canonicalize_name(one["name"]): one["bom-ref"] for one in bill["components"]}
    needs = {one["ref"]: one.get("dependsOn", []) for one in bill["dependencies"]}
    assert set(needs) == set(refs.values())
    assert refs["numpy"] in needs[refs["scikit-learn"]]
    assert refs["numpy"] in needs[refs[OWN]]


def test_they_lie_beside_the_bundles_of_a_run(tiny_run: FinishedRun, beside: Path) -> None:
    sealed = artifacts.load(tiny_run.folder / "bundles")
    details = run_edgekit("status", str(tiny_run.folder), "--all").stdout
    for name in EVIDENCE_FILES:
        assert sealed.file(name).read_bytes() == (beside / name).read_bytes(), name  # a kernel sees what a shell sees
        assert str(tiny_run.folder / "bundles" / name) in details


def test_neither_names_this_machine(beside: Path, bill: dict[str, Any]) -> None:
    for name in EVIDENCE_FILES:
        text = (beside / name).read_text()
        for private in (str(ROOT), f"{Path.home()}/", sys.prefix, str(beside), f"/{getpass.getuser()}/", "file:"):
            assert private not in text, name
    # what the packages say of themselves may hold any word, a short host name too
    components = [{**one, "description": "", "licenses": []} for one in bill["components"]]
    text = (beside / "environment.lock").read_text() + json.dumps({**bill, "components": components})
    assert not re.search(rf"\b{re.escape(socket.gethostname())}\b", text)


def install(folder: Path, name: str, direct_url: dict[str, Any]) -> None:
    """The least that makes a distribution, with where it came from (PEP 610)."""
    made = folder / f"{name}-1.2.dist-info"
    made.mkdir(parents=True)
    (made / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.2\n")
    (made / "direct_url.json").write_text(json.dumps(direct_url))


def test_where_a_distribution_came_from_is_kept_unless_it_is_this_machine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    site, out = tmp_path / "site", tmp_path / "out"
    out.mkdir()
    git = {"vcs": "git", "commit_id": "0a1b2c3d"}
    install(site, "From_Git", {"url": "https://example.org/from.git", "vcs_info": git})
    install(site, "part", {"url": "https://example.org/all.zip", "archive_info": {}, "subdirectory": "part"})
    install(site, "from_folder", {"url": f"file://{site}/sources", "dir_info": {}})
    install(site, "from_wheel", {"url": f"file://{site}/from_wheel-1.2-py3-none-any.whl", "archive_info": {}})
    monkeypatch.syspath_prepend(site)
    monkeypatch.setenv("PYTHONPATH", str(site))

    provenance.write_sbom(out)
    lock = lines(out)
    assert "from-git @ git+https://example.org/from.git@0a1b2c3d" in lock
    assert "part @ https://example.org/all.zip#subdirectory=part" in lock
    assert "# from-folder==1.2 (from a local folder or file)" in lock
    assert "# from-wheel==1.2 (from a local folder or file)" in lock
    assert pinned(out)["from-git"] == ""

    components = {one["name"]: one for one in json.loads((out / "sbom.cdx.json").read_text())["components"]}
    assert components["From_Git"]["externalReferences"][0]["url"] == "https://example.org/from.git#0a1b2c3d"
    assert not {"purl", "externalReferences"} & set(components["from_folder"])
    assert str(site) not in (out / "sbom.cdx.json").read_text() + (out / "environment.lock").read_text()


def test_a_missing_tool_is_a_stage_error_that_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    venv.create(tmp_path / "bare", with_pip=False)
    monkeypatch.setattr(sys, "executable", str(tmp_path / "bare/bin/python"))
    with pytest.raises(StageError, match=r"No module named cyclonedx_py; `pip install cyclonedx-bom`"):
        provenance.write_sbom(tmp_path)


def test_a_stray_module_where_the_command_was_started_is_not_taken_for_the_tool(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "cyclonedx_py.py").write_text("raise SystemExit(9)")
    (tmp_path / "out").mkdir()
    monkeypatch.chdir(tmp_path)
    provenance.write_sbom(tmp_path / "out")
    assert (tmp_path / "out/sbom.cdx.json").is_file()
