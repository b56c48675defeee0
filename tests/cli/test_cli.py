"""The `edgekit` command, as a process: exit codes, messages, no tracebacks."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner, Result

from edgekit.cli.app import app

ROOT = Path(__file__).parents[2]


def edgekit(*arguments: str, cwd: Path = ROOT, **environment: str) -> subprocess.CompletedProcess[str]:
    """The command as a process of its own."""
    return subprocess.run(
        [sys.executable, "-m", "edgekit", *arguments],
        capture_output=True,
        text=True,
        cwd=cwd,
        env={**os.environ, **environment},
        timeout=120,
        check=False,
    )


def invoke(*arguments: str, **environment: str) -> Result:
    """The command in this process."""
    return CliRunner().invoke(app, arguments, env={"COLUMNS": "200", **environment})


def test_dry_run_prints_the_plan_and_writes_nothing(tmp_path: Path) -> None:
    done = edgekit("run", "configs/digits.yaml", "--dry-run", "--set", "prune.ratio=0.4", "--out", str(tmp_path / "a"))
    assert done.returncode == 0, done.stderr
    for word in (
        "01_profile",
        "07_bundle",
        "ratio=0.4",
        "student=edgekit.models.ds_cnn:ds_cnn(width=48",
        "accuracy drop ≤ 2.5 pp at 95 % confidence",
        "tflite, openvino, onnx",
    ):
        assert word in done.stdout
    assert not (tmp_path / "a").exists()


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["run", "configs/digit.yaml"], 2, 'did you mean "configs/digits.yaml"?'),
        (["run", "digits"], 2, 'digits: no such config file; did you mean "configs/digits.yaml"?'),
        (["run", "configs/digits.yaml", "--set", "prune.ration=0.4"], 2, 'did you mean "ratio"?'),
        (["run", "configs/digits.yaml", "--set", "prune.ratio=2"], 2, "prune.ratio: got 2"),
        (["run", "configs/digits.yaml", "--sett", "a=b"], 2, "--set"),
        (["walk"], 2, "walk"),
        (["run"], 2, "CONFIG"),
    ],
)
def test_a_wrong_command_is_explained(arguments: list[str], code: int, message: str) -> None:
    done = invoke(*arguments)
    assert done.exit_code == code and isinstance(done.exception, SystemExit)
    assert message in done.stderr


def test_a_wrong_config_never_starts_a_kernel(tmp_path: Path) -> None:
    done = invoke("run", "configs/digits.yaml", "--set", "seed=-1", "--out", str(tmp_path / "runs"))
    assert done.exit_code == 2
    assert not (tmp_path / "runs").exists()


def test_an_unset_variable_in_a_path_is_a_config_fault() -> None:
    done = invoke("run", "configs/cifar10.yaml", "--dry-run", EDGEKIT_SHARED="")
    assert done.exit_code == 2
    assert "EDGEKIT_SHARED" in done.stderr


@pytest.mark.parametrize("dry", [["--dry-run"], []], ids=["dry run", "run"])
def test_missing_data_is_exit_code_4_and_starts_no_kernel(dry: list[str], tmp_path: Path) -> None:
    settings = ("--set", "distill.teachers=[{baseline: true}]", "--set", "benchmark.rivals=[]")
    settings += ("--set", "budget={accuracy_drop_pp: 1.2}")
    out, nowhere = tmp_path / "runs", str(tmp_path / "nowhere")
    done = invoke("run", "configs/cifar10.yaml", "--out", str(out), *settings, *dry, EDGEKIT_SHARED=nowhere)
    assert done.exit_code == 4 and isinstance(done.exception, SystemExit), done.output
    assert "cifar10.zip" in done.stderr
    assert not list(tmp_path.rglob("*.ipynb"))


@pytest.mark.processes
def test_the_error_of_a_stage_names_its_cell_and_the_command_that_continues(tmp_path: Path) -> None:
    """Nothing can be wrong with half a second, but no session starts Python and imports torch in it."""
    out = tmp_path / "runs"
    few = ["--set", "profile.epochs=1", "--set", "profile.timeout_s=0.5"]
    done = edgekit("run", "tests/configs/tiny.yaml", "--out", str(out), *few)
    assert done.returncode == 6, done.stderr
    assert "01_profile.ipynb, cell" in done.stderr and "Traceback" not in done.stderr
    assert f"continue with: edgekit run tests/configs/tiny.yaml {' '.join(few)} " in done.stderr
    assert done.stderr.rstrip().endswith(f"--out {out}")
    (folder,) = (path for path in out.iterdir() if path.is_dir())
    output = edgekit("status", str(folder)).stdout
    assert re.search(r"profile +│ failed ", output), output
    assert re.search(r"cell \d+: StageError", " ".join(output.split())), output
    assert (folder / "notebooks/01_profile.failed.ipynb").is_file()
    assert not (folder / "notebooks/01_profile.ipynb").exists()


def test_a_folder_that_cannot_be_made_is_exit_code_7(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    done = invoke("run", "configs/digits.yaml", "--out", str(tmp_path / "file"))
    assert done.exit_code == 7
    assert "choose another folder with --out" in done.stderr


@pytest.mark.processes
def test_ctrl_c_ends_it_with_one_line(tmp_path: Path) -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", "edgekit", "run", "configs/digits.yaml", "--out", str(tmp_path)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=ROOT,
        start_new_session=True,
    )
    deadline = time.monotonic() + 60
    while not (tmp_path / "digits/notebooks/.profile.partial.ipynb").exists() and time.monotonic() < deadline:
        time.sleep(0.1)
    os.killpg(process.pid, signal.SIGINT)
    _, stderr = process.communicate(timeout=60)
    assert process.returncode == 130, stderr
    assert "interrupted" in stderr
    assert "Traceback" not in stderr


def test_ctrl_c_within_a_strings_exec_ends_it_alike(tmp_path: Path) -> None:
    """CPython remembers such a Ctrl-C though it was caught, and dies of SIGINT at the end of a module run by -m."""
    (tmp_path / "struck.py").write_text(
        "import typer\nfrom edgekit.cli.exit_codes import errors_as_exit_codes\n"
        "try:\n    with errors_as_exit_codes():\n        exec('raise KeyboardInterrupt')\n"
        "except typer.Exit as end:\n    raise SystemExit(end.exit_code)\n"
    )
    done = subprocess.run([sys.executable, "-m", "struck"], capture_output=True, text=True, check=False, cwd=tmp_path)
    assert (done.returncode, done.stderr.count("interrupted")) == (130, 1), done


def test_version() -> None:
    from edgekit import __version__

    assert edgekit("--version").stdout.strip() == f"edgekit {__version__}"


COMMANDS = ["", "init", "run", "report", "compare", "status", "reproduce", "bundle", "load", "sign", "verify", "trust"]
GROUP = ["trust init", "trust add", "trust revoke", "trust rotate", "trust renew"]


@pytest.mark.parametrize("command", [*COMMANDS, *GROUP])
def test_help_shows_every_word_of_every_option_and_no_type_for_a_switch(command: str) -> None:
    """Of which rich would take what stands in square brackets for its own."""
    arguments = [*command.split(), "--help"]
    output = CliRunner().invoke(app, arguments, env={**os.environ, "COLUMNS": "200", "TERM": "dumb"}).output
    assert "<bool>" not in output and "--help" in output
    plain = " ".join(re.sub(r"[│╭╮╰╯─]", " ", output).split())
    result: Any = typer.main.get_command(app)
    for word in command.split():
        result = result.commands[word]
    for option in result.params:
        assert option.help and option.help in plain, option.name
