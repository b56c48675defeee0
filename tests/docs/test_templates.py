"""The templates for continuous integration: parsed as their services would, and their scripts run."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.conftest import FinishedRun
from tests.docs import scene
from tests.docs.pages import ROOT

HOME = ROOT / "docs" / "how-to" / "templates"
GITHUB, GITLAB = HOME / "github-actions.yml", HOME / "gitlab-ci.yml"
STEP_KEYS = {"name", "uses", "with", "run", "if", "env", "id"}
JOB_KEYS = {
    *("image", "stage", "timeout", "variables", "cache"),
    *("before_script", "script", "after_script", "artifacts", "rules"),
}
INSTALLS = re.compile(r"^pip install ", re.MULTILINE)
CI_VARIABLE = re.compile(r"\$\{\{.*?\}\}")


def github() -> dict[str, Any]:
    found: dict[Any, Any] = yaml.safe_load(GITHUB.read_text())
    return {"on" if key is True else key: value for key, value in found.items()}  # YAML 1.1 reads `on` as true


def scripts(template: Path) -> list[tuple[str, dict[str, str]]]:
    """Each script with the variables that the service would set."""
    if template == GITHUB:
        (job,) = github()["jobs"].values()
        return [(step["run"], job["env"]) for step in job["steps"] if "run" in step]
    (job,) = yaml.safe_load(GITLAB.read_text()).values()
    return [(script, job["variables"]) for script in [*job["before_script"], *job["script"]]]


def test_the_workflow_has_the_shape_that_github_reads() -> None:
    workflow = github()
    assert set(workflow) <= {"name", "on", "jobs", "env", "permissions"}
    (job,) = workflow["jobs"].values()
    assert job["runs-on"] and isinstance(job["timeout-minutes"], int)
    for step in job["steps"]:
        assert set(step) <= STEP_KEYS and ("uses" in step) != ("run" in step), step
        assert "uses" not in step or re.fullmatch(r"[\w-]+/[\w-]+@v\d+", step["uses"])


def test_the_job_has_the_shape_that_gitlab_reads() -> None:
    jobs = yaml.safe_load(GITLAB.read_text())
    (job,) = jobs.values()
    assert set(job) <= JOB_KEYS
    assert all(isinstance(line, str) for line in [*job["before_script"], *job["script"]])
    assert all(isinstance(value, str) for value in job["variables"].values())
    assert job["artifacts"]["when"] in ("always", "on_success", "on_failure")


def test_both_do_the_same() -> None:
    def lines(template: Path) -> list[str]:
        return [line.strip() for script, _ in scripts(template) for line in script.splitlines() if line.strip()]

    assert lines(GITHUB) == lines(GITLAB)


@pytest.mark.parametrize("template", [GITHUB, GITLAB], ids=lambda path: path.name)
def test_what_a_template_installs_and_keeps_is_there(template: Path, tiny_run: FinishedRun) -> None:
    text = template.read_text()
    for name in re.findall(r"\$\{EDGEKIT\}/([\w.]+)", text):
        assert (ROOT / name).is_file()
    assert (ROOT / re.findall(r"CONFIG: (\S+)", text)[0]).is_file()
    for pattern in re.findall(r"artifacts/\*/(\S+)$", text, re.MULTILINE):
        assert list(tiny_run.folder.glob(pattern.rstrip("/"))), pattern


def test_the_scripts_of_both_run(tiny_run: FinishedRun, tmp_path: Path) -> None:
    """All but the installation, of which bash only reads the lines; on the tiny config, whose run is there."""
    shutil.copytree(ROOT / "configs", tmp_path / "configs")
    shutil.copy(ROOT / "tests" / "configs" / "tiny.yaml", tmp_path / "configs")
    shutil.copytree(tiny_run.folder, tmp_path / "artifacts" / "tiny")
    ran = 0
    for script, variables in scripts(GITHUB):
        assert not CI_VARIABLE.search(script), "a script must run anywhere"
        words = ["-n"] if INSTALLS.search(script) else ["-euo", "pipefail"]
        parameters = {name: str(value) for name, value in variables.items()} | {"CONFIG": "configs/tiny.yaml"}
        done = subprocess.run(
            ["bash", *words, "-c", script],
            cwd=tmp_path,
            env={**scene.environment(tmp_path), **parameters, "HOME": os.environ["HOME"]},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, f"{script}\n{done.stdout[-2000:]}{done.stderr[-2000:]}"
        ran += words != ["-n"]
    assert ran >= 3
