"""Every command that README, CONTRIBUTING and the site show is run, or stands in a list with the reason why not."""

from __future__ import annotations

import importlib
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer

from edgekit.cli.app import app
from edgekit.runner import cli
from tests import requirements
from tests.conftest import FinishedRun
from tests.docs import scene
from tests.docs.commands import ELSEWHERE, LONG, NEEDS_FFMPEG, NEEDS_SHARED, QUICK, as_run
from tests.docs.pages import ROOT, all_pages, blocks, commands, name

PAGES = [page for page in all_pages() if commands(page)]
OTHERS = ("perf_analyzer", "scp", "rpicam-vid", "apt-get", "docker", "install", "systemctl", "openssl", "uv", "curl",
          "useradd", "arecord", "ffmpeg", "socat", "ssh-keygen", "pipx", "sbatch", "kubectl", "ray",
          "torchrun", "echo", "tee", "nano", "ssh")  # fmt: skip
LISTS = {"QUICK": QUICK, "LONG": LONG, "ELSEWHERE": set(ELSEWHERE)}


@pytest.fixture(scope="module")
def supplies(tmp_path_factory: pytest.TempPathFactory, tiny_run: FinishedRun) -> Path:
    home = tmp_path_factory.mktemp("docs") / "supplies"
    scene.lay_out(home, tiny_run)
    return home


def run_page(page: Path, selected: set[str], supplies: Path, tmp_path: Path) -> list[str]:
    """Run the selected commands of a page in its order, up to one that fails; return those that were left out."""
    home, left_out = tmp_path / "scene", []
    scene.copied(supplies, home, page)
    scene.written(page, home)
    for command in dict.fromkeys(commands(page)):
        if command not in selected:
            continue
        if missing(command):
            left_out.append(command)
            continue
        done = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", as_run(command)],
            cwd=home,
            env=scene.environment(home),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=1800,
            check=False,
        )
        assert done.returncode == 0, f"{command}\n{done.stdout[-3000:]}\n{done.stderr[-3000:]}"
    return left_out


def missing(command: str) -> bool:
    """Whether this machine lacks what the command works on; CI has all of it."""
    no_film = command in NEEDS_FFMPEG and not requirements.find_program("ffmpeg")
    return no_film or (command in NEEDS_SHARED and not scene.has_shared())


def showing(selected: set[str]) -> list[Path]:
    return [page for page in PAGES if selected & set(commands(page))]


@pytest.mark.docs
@pytest.mark.parametrize("page", showing(QUICK), ids=name)
def test_the_quick_commands_of_a_page_run(page: Path, supplies: Path, tmp_path: Path) -> None:
    for command in run_page(page, QUICK, supplies, tmp_path):  # the others ran
        requirements.program("ffmpeg") if command in NEEDS_FFMPEG else requirements.data(scene.THEIRS)


@pytest.mark.long
@pytest.mark.parametrize("page", showing(LONG), ids=name)
def test_all_commands_of_a_page_run(page: Path, supplies: Path, tmp_path: Path) -> None:
    """With the quick ones before them: `run` needs what `init` has written."""
    run_page(page, QUICK | LONG, supplies, tmp_path)


def test_a_tutorial_starts_from_what_it_names() -> None:
    """And from the clone: what else a reader's folder holds, the page must have made."""
    tutorials = {name(page): page.read_text() for page in all_pages() if page.parent.name == "tutorials"}
    assert set(scene.TUTORIALS) == set(tutorials)
    for page, supplied in scene.TUTORIALS.items():
        data = {each for each in supplied if not (ROOT / each).exists()} - {".venv"}
        assert not [each for each in data if each not in tutorials[page]], page


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_every_command_of_a_page_is_listed(page: Path) -> None:
    unknown = [each for each in commands(page) if not any(each in listed for listed in LISTS.values())]
    assert not unknown, "list them in tests/docs/commands.py"


def test_the_lists_hold_nothing_else_and_nothing_twice() -> None:
    shown = {command for page in PAGES for command in commands(page)}
    listed = [command for members in LISTS.values() for command in members]
    assert len(listed) == len(set(listed))
    assert set(listed) <= shown, sorted(set(listed) - shown)


@pytest.mark.docs
@pytest.mark.parametrize("command", ELSEWHERE)
def test_what_cannot_run_here_is_spelt_right(command: str, tmp_path: Path) -> None:
    """Bash takes it, and so does what it calls, up to the point where it would begin."""
    assert ELSEWHERE[command]
    subprocess.run(["bash", "-n", "-c", command], check=True)
    for words in parts(command):
        parse(words)


def parts(command: str) -> Iterator[list[str]]:
    """The words of each program in a line."""
    words: list[str] = []
    for word in [*shlex.split(command), "&&"]:
        if word in ("&&", "|"):
            yield words
            words = []
        else:
            words.append(word)


def parse(words: list[str]) -> None:
    """AssertionError, or the parser's own error, for words that the program would not take."""
    words = words[words[0] == "sudo" :]
    program, rest = Path(words[0]).name, words[1:]
    named = {word for word in rest if word.startswith("deploy/")} - {"deploy/token"}  # which the line makes
    assert not [word for word in named if not (ROOT / word).is_file()], words
    if program.startswith("python") and rest[0] == "-m":
        assert rest[1] == "venv" or importlib.util.find_spec(rest[1]), rest
    elif program == "python" and rest[0] == "-c":
        compile(rest[1], "-c", "exec")
    elif program == "python" and rest[0].endswith(".py"):  # a file that a page shows
        assert any(block.title == rest[0] for page in all_pages() for block in blocks(page)), rest
    elif program == "make":
        subprocess.run(["make", "--dry-run", *rest], cwd=ROOT, check=True, capture_output=True)
    elif program == "pytest":  # what is collected; the suites run it
        collected = [sys.executable, "-m", "pytest", "--collect-only", "-q", "-p", "no:nbval", "-p", "no:cacheprovider"]
        done = subprocess.run([*collected, *rest], cwd=ROOT, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout[-2000:]
    elif program == "pip":
        offered = pip_help(rest[0])
        assert not [word for word in rest if word.startswith("-") and f" {word}" not in offered]
    elif program == "edgekit":
        of_edgekit(rest)
    elif program == "dask":
        of_dask(rest)
    elif program == "edgerun" or rest[:1] == ["edgerun.pyz"]:
        of_edgerun(rest[rest[:1] == ["edgerun.pyz"] :])
    else:
        assert program in OTHERS, f"{program}: say how its words are checked"


def pip_help(command: str) -> str:
    """Return the help of one of pip's commands."""
    words = [sys.executable, "-m", "pip", command, "--help"]
    return subprocess.run(words, capture_output=True, text=True, check=True).stdout


def of_edgekit(words: list[str]) -> None:
    command: Any = typer.main.get_command(app)
    while hasattr(command, "commands"):
        assert words[0] in command.commands, words
        command, *words = command.commands[words[0]], *words[1:]
    command.make_context(command.name, words)


def of_dask(words: list[str]) -> None:
    module = importlib.import_module(f"distributed.cli.dask_{words[0]}")
    module.main.make_context(words[0], words[1:])


def of_edgerun(words: list[str]) -> None:
    assert cli.parse_command_line(words)[0].HELP
