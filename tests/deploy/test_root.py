"""The folder of an image starts with an empty environment, writes nothing, and holds nothing that no start needs."""

from __future__ import annotations

import fnmatch
import io
import json
import platform
import re
import stat
import subprocess
import sys
import time
import zipfile
from pathlib import Path

import numpy as np
import pytest
import tomllib

from deploy import root as script
from deploy.unneeded import EVERYWHERE, OF
from edgekit.runner import load
from edgekit.runner.backends import INTERPRETERS
from tests import requirements
from tests.conftest import ROOT
from tests.deploy.conftest import DEPLOY, TARGETS, Built, build
from tests.deploy.serving import BEARER, bare_python, serving, token_file
from tests.runner.conftest import samples
from tests.test_packaging import PROJECT, normal, pins

pytestmark = pytest.mark.processes

HASHED = re.compile(r"^([\w.-]+)==(\S+) \\\n((?:    --hash=sha256:[0-9a-f]{64}(?: \\)?\n)+)", re.MULTILINE)
EXTRAS = {"ai-edge-litert": "tflite", "openvino": "openvino", "onnxruntime": "onnx"}
KERNEL = "Linux 6.3 or later, for PR_SET_MDWE"
DENIED = """
import ctypes, os, sys
libc = ctypes.CDLL(None, use_errno=True)
if libc.prctl(65, 1, 0, 0, 0):  # PR_SET_MDWE, of Linux 6.3: what systemd's MemoryDenyWriteExecute asks for
    sys.exit(99)
os.execv(sys.argv[1], sys.argv[1:])
"""


def required(part: str) -> dict[str, str]:
    """Distribution → version, of a file of requirements."""
    return {normal(name): version for name, version, _ in HASHED.findall(text(part))}


def text(part: str) -> str:
    return (DEPLOY / "requirements" / f"{part}.txt").read_text()


@pytest.fixture(
    scope="module",
    params=[
        pytest.param(name, marks=[pytest.mark.slow, *([] if name == "ai-edge-litert" else [pytest.mark.long])])
        for name in script.TARGETS
    ],
)
def built(request: pytest.FixtureRequest, bundles: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Built:
    """One folder for each interpreter, of bundles for others too; every test reads it, and none changes it."""
    given = [bundles[TARGETS[request.param]], bundles["tflite" if request.param == "onnxruntime" else "onnx"]]
    return build(tmp_path_factory.mktemp("image"), request.param, given)


def bundle_of(built: Built) -> Path:
    return next((built.folder / "bundles").glob(f"*-{TARGETS[built.interpreter]}-*"))


def files(folder: Path) -> dict[str, tuple[int, int]]:
    """Each file and folder with its size and time of change in ns."""
    found = [folder, *folder.rglob("*")]
    return {str(path): (path.stat().st_size, path.stat().st_mtime_ns) for path in found}


@pytest.mark.parametrize("part", [path.stem for path in sorted((DEPLOY / "requirements").glob("*.txt"))])
def test_every_wheel_is_named_by_version_and_digest_and_is_the_workbooks(part: str) -> None:
    lines = [line for line in text(part).splitlines() if line and not line.startswith(("#", " "))]
    assert lines and len(lines) == len(required(part))
    assert part == "serve" or normal(part) in required(part)
    other = {name: version for name, version in required(part).items() if pins().get(name, version) != version}
    assert not other, "constraints.txt says otherwise"


def test_the_parts_are_those_of_the_script_and_of_the_extras() -> None:
    known = {*script.ALWAYS, *script.TARGETS, *script.EXTRA}
    assert known == {path.stem for path in (DEPLOY / "requirements").glob("*.txt")}
    assert set(OF) <= known
    assert {
        each.distribution: each.targets for each in INTERPRETERS.values() if each.distribution in script.TARGETS
    } == script.TARGETS
    for interpreter, extra in EXTRAS.items():
        (line,) = PROJECT["optional-dependencies"][extra]
        assert line.startswith(interpreter)


def test_the_servers_packages_are_those_of_the_extra_and_what_they_need() -> None:
    extra = {normal(re.split("[<>=]", line)[0]) for line in PROJECT["optional-dependencies"]["serve"]}
    assert required("serve").keys() - extra == {"click", "h11"}  # of uvicorn
    assert extra <= required("serve").keys() <= pins().keys()


def test_it_starts_with_nothing_but_itself(built: Built, tmp_path: Path) -> None:
    before, sample = files(built.folder), tmp_path / "sample.npy"
    np.save(sample, samples(1)[0])
    tested = built.run("selftest", str(bundle_of(built)))
    assert tested.returncode == 0 and "passed" in tested.stdout, tested.stderr
    answered = built.run("predict", str(bundle_of(built)), str(sample), "--json")
    assert answered.returncode == 0 and not answered.stderr, answered.stderr
    (line,) = answered.stdout.splitlines()
    best = json.loads(line)["label"]
    assert best == load(bundle_of(built), trial=False).predict(samples(1)[0]).label
    assert files(built.folder) == before


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return bare_python(tmp_path_factory.mktemp("bare") / "python")


def sample() -> bytes:
    """A file of .npy, as a client sends it."""
    stream = io.BytesIO()
    np.save(stream, samples(1)[0])
    return stream.getvalue()


def test_it_serves_with_nothing_but_itself_and_drains(built: Built, python: Path, tmp_path: Path) -> None:
    before, best = files(built.folder), load(bundle_of(built), trial=False).predict(samples(1)[0]).label
    with serving(built, python, tmp_path, "--token-file", str(token_file(tmp_path)), "--drain-s", "5") as server:
        server.wait(200)
        assert server.check() == 0
        assert server.ask("POST", "/predict", sample())[0] == 401
        status, body = server.ask("POST", "/predict", sample(), **BEARER)
        assert (status, body["answers"][0]["label"]) == (200, best)
        begun = server.begin("/predict", sample(), **BEARER)
        server.process.terminate()  # as an engine does, and systemd: to the first process alone
        server.wait(503)
        assert server.check() == 1
        answer = server.finish(begun, sample())
        assert (answer.status, json.loads(answer.read())["answers"][0]["label"]) == (200, best)
        assert answer.headers["Connection"] == "close"
        assert server.process.wait(120) == 0
    assert "Traceback" not in server.output()
    assert files(built.folder) == before


def test_the_bundles_are_those_that_the_interpreter_runs(built: Built) -> None:
    """OpenVINO reads ONNX too."""
    expected = {f"tiny-{target}-1.2.0.edge.zip" for target in script.TARGETS[built.interpreter]}
    there = [path for path in (built.folder / "bundles").iterdir()]
    assert {path.name for path in there} == expected
    assert all(built.run("selftest", str(path)).returncode == 0 for path in there)


def test_it_holds_no_tool_and_nothing_that_others_may_change(built: Built) -> None:
    found = [path.relative_to(built.folder) for path in built.folder.rglob("*")]
    tools = {"pip", "setuptools", "wheel", "ensurepip", "gcc", "cc", "ld", "bin", "include", "tests", "f2py"}
    licences = re.compile(r"packages/[^/]+\.dist-info/licenses/")
    assert not [path for path in found if path.name in tools and not licences.match(path.as_posix())]
    assert not [path for path in found if path.suffix in {".pyi", ".pyx", ".h", ".hpp", ".c", ".a"}]
    modes = {path: (built.folder / path).stat().st_mode for path in found}
    assert not [path for path, mode in modes.items() if mode & (stat.S_IWGRP | stat.S_IWOTH)]
    assert not [path for path, mode in modes.items() if not mode & stat.S_IROTH]


def test_all_code_was_compiled_and_is_not_compared_with_its_source(built: Built) -> None:
    sources = {path for path in (built.folder / "packages").rglob("*.py")}
    compiled = list((built.folder / "packages").rglob("*.pyc"))
    assert {path.parent.parent / f"{path.name.split('.')[0]}.py" for path in compiled} == sources
    assert all(path.read_bytes()[4:8] == b"\x01\0\0\0" for path in compiled)  # by hash, unchecked: PEP 552


def test_it_holds_the_distributions_that_are_named_and_no_other(built: Built) -> None:
    named = {
        name: version for part in ("numpy", "serve", built.interpreter) for name, version in required(part).items()
    }
    names = [path.name.removesuffix(".dist-info").rpartition("-") for path in built.folder.glob("packages/*.dist-info")]
    assert {normal(name): version for name, _, version in names} == named


def test_what_is_left_out_is_there_to_leave_out(built: Built) -> None:
    """By the lists of the wheels: a pattern that matches nothing is of another version."""
    requirements.condition(platform.machine() == "x86_64", "an x86-64 processor", required_in_ci=False)
    records = [path.read_text() for path in built.folder.glob("packages/*.dist-info/RECORD")]
    listed = [line.partition(",")[0] for record in records for line in record.splitlines()]
    for pattern in (*OF["numpy"], *OF[built.interpreter]):
        matching = [name for name in listed if fnmatch.fnmatch(name, pattern) or name.startswith(f"{pattern}/")]
        assert matching, pattern
    for pattern in (*OF["numpy"], *OF[built.interpreter], *EVERYWHERE[:-1]):
        assert not list((built.folder / "packages").glob(pattern)), pattern


def test_the_sizes_are_those_of_the_files(built: Built) -> None:
    rows = [line.split(" MB  ") for line in built.printed.splitlines()]
    megabytes = {name: float(size) for size, name in rows}
    total = sum(path.stat().st_size for path in built.folder.rglob("*") if path.is_file()) / 1e6
    assert megabytes.pop("in total") == pytest.approx(total, abs=0.051)
    assert sum(megabytes.values()) == pytest.approx(total, abs=0.05 * len(megabytes))
    assert {"numpy 2.4.6", "edgerun.pyz", "bundles"} <= {name for name in megabytes}


def test_a_bundle_of_another_target_is_refused(built: Built, bundles: dict[str, Path]) -> None:
    other = bundles["tflite" if built.interpreter != "ai-edge-litert" else "openvino"]
    with pytest.raises(SystemExit, match=f"{other.name} does not pass its selftest in "):
        script.selftest(built.folder, other)


def test_memory_is_never_written_and_executed_but_by_openvino(built: Built) -> None:
    """As `MemoryDenyWriteExecute` of the unit asks, and its drop-in for OpenVINO takes back."""
    done = built.run("selftest", str(bundle_of(built)), before=(sys.executable, "-c", DENIED))
    requirements.condition(done.returncode != 99, KERNEL)
    assert (done.returncode == 0) == (built.interpreter != "openvino"), done.stderr


def test_the_server_runs_under_it_too(built: Built, python: Path, tmp_path: Path) -> None:
    with serving(built, python, tmp_path, "--drain-s", "0", before=(sys.executable, "-c", DENIED)) as server:
        if built.interpreter == "openvino":
            assert server.process.wait(120) not in (0, 99)
            assert "does not pass" in server.output() or "protect" in server.output()
            return
        try:
            server.wait(200)
        except AssertionError:
            requirements.condition(server.process.poll() != 99, KERNEL)
            raise
        assert server.ask("POST", "/predict", sample())[0] == 200
        assert server.stop() == 0


def test_the_unit_allows_every_call_of_a_self_test(built: Built, tmp_path: Path) -> None:
    trace = tmp_path / "trace"
    strace = (requirements.tracing(), "-f", "-qq", "-o", str(trace))
    done = built.run("selftest", str(bundle_of(built)), before=strace)
    assert done.returncode == 0, done.stderr
    made = traced(trace)
    assert {"execve", "mmap", "openat"} <= made
    assert made <= allowed()


def test_the_unit_allows_every_call_of_the_server(built: Built, python: Path, tmp_path: Path) -> None:
    """From its start over a request to its end; `-D` leaves the server this process's child."""
    trace = tmp_path / "trace"
    strace = ("/usr/bin/strace", "-D", "-f", "-q", "-o", str(trace))
    with serving(built, python, tmp_path, "--drain-s", "0", before=strace) as server:
        server.wait(200)
        assert server.ask("POST", "/predict", sample())[0] == 200
        assert server.stop() == 0
    for _ in range(600):  # strace ends a little later
        if ended := re.search(rf"^{server.process.pid} +\+\+\+ exited with 0", trace.read_text(), re.MULTILINE):
            break
        time.sleep(0.05)
    assert ended
    made = traced(trace)
    assert {"execve", "listen", "accept4", "epoll_ctl", "exit_group"} <= made
    assert made <= allowed()


def traced(trace: Path) -> set[str]:
    """The names of the calls that strace has written down."""
    return set(re.findall(r"^\d+ +(\w+)\(", trace.read_text(), re.MULTILINE))


def allowed() -> set[str]:
    """What the unit lets through."""
    unit, found = (DEPLOY / "edgekit-serve.service").read_text(), calls("@system-service")
    for line in re.findall(r"^SystemCallFilter=~(.*)$", unit, re.MULTILINE):
        for group in line.split():
            found -= calls(group)
    return found


def calls(group: str) -> set[str]:
    """The system calls of a group, those of the groups in it too."""
    shown = subprocess.run(["systemd-analyze", "syscall-filter", group], capture_output=True, text=True, check=True)
    names = [line.strip() for line in shown.stdout.splitlines()[1:] if line.strip() and "#" not in line]
    return {each for name in names for each in (calls(name) if name.startswith("@") else {name})}


@pytest.mark.slow
def test_nothing_is_left_of_a_folder_that_failed(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "bad.edge.zip").write_text("no archive")
    with pytest.raises(SystemExit, match=r"bad\.edge\.zip does not pass its selftest"):
        script.main([str(tmp_path / "root"), "--interpreter", "ai-edge-litert", str(tmp_path)])
    assert not (tmp_path / "root").exists()
    assert capfd.readouterr().out == ""


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["there", "there/x.edge.zip"], "there exists already; name a new folder"),
        (["new", "there"], "there: no .edge.zip in it; name a bundle that openvino runs"),
        (
            ["new", "others"],
            "others: none of its 2 .edge.zip files is for openvino or onnx; name a bundle",
        ),
        (["new", "nowhere.edge.zip"], "nowhere.edge.zip does not exist"),
    ],
)
def test_errors_are_reported_before_anything_is_written(
    words: list[str], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("there").mkdir()
    Path("others").mkdir()
    for number in "12":
        with zipfile.ZipFile(f"others/{number}.edge.zip", "w") as archive:
            archive.writestr("manifest.json", '{"target": "tflite"}')
    with pytest.raises(SystemExit, match=re.escape(message)):
        script.main([*words, "--interpreter", "openvino"])
    assert not Path("new").exists() and not list(Path("there").iterdir())


def test_the_wheel_of_edgekit_carries_no_deployment() -> None:
    build = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["hatch"]["build"]["targets"]["wheel"]
    assert build["packages"] == ["edgekit"] and not any("deploy" in path for path in build["force-include"])
