"""What a test needs beyond the workbook's own packages: a program, another package, data, a right, a processor.

A test asks with a function of this module, or with the marker that takes the same words:
`@pytest.mark.needs(program="chromium")`. If the thing is missing, the test is skipped with the reason. With `CI=true`
it fails instead, unless it was asked for with `required_in_ci=False`. The last lines of a session say what was missing,
how many tests needed it, and the command that installs it.
"""

from __future__ import annotations

import functools
import importlib
import importlib.util
import os
import platform
import shutil
import subprocess
import tempfile
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parent.parent
APT = "apt-get install "
PACKAGES = {
    "mosquitto_passwd": "mosquitto",
    "promtool": "prometheus",
    "qemu-aarch64": "qemu-user",
    "ssh-agent": "openssh-client",
    "setpriv": "util-linux",
    "ssh-keygen": "openssh-client",
    "sshd": "openssh-server",
    "systemd-analyze": "systemd",
    "unshare": "util-linux",
}
"""The Debian package of a program, where it has another name than the program."""
X86_FEATURES = {
    "avx2": {"avx2"},
    "avx512": {"avx512f"},
    "vnni": {"avx512_vnni", "avx_vnni"},
    "amx": {"amx_tile"},
}
"""The flags in /proc/cpuinfo, one of which an x86 processor must have for a feature."""
UNSHARE = ("unshare", "--mount") if os.geteuid() == 0 else ("unshare", "--map-root-user", "--mount")
"""Put before a command, it gives the command mounts of its own, which nobody else sees and which end with it."""


class Missing(pytest.skip.Exception):
    """Something that a test needs is not on this machine."""

    def __init__(self, what: str, install: str, why: str, required_in_ci: bool) -> None:
        super().__init__(f"needs {what}" + "".join(f": {part}" for part in (why, install) if part))
        self.what, self.install, self.required_in_ci = what, install, required_in_ci


def condition(met: bool, what: str, *, install: str = "", why: str = "", required_in_ci: bool = True) -> None:
    """Skip the test unless `met`. `what` names the thing in the closing table, and `install` is a shell command."""
    if not met:
        raise Missing(what, install, why, required_in_ci)


def program(name: str, *, required_in_ci: bool = True) -> str:
    """The path of a program on the PATH, or in the sbin folder beside a folder of it, where Debian keeps daemons."""
    path = find_program(name)
    condition(path is not None, name, install=APT + PACKAGES.get(name, name), required_in_ci=required_in_ci)
    assert path is not None
    return path


def find_program(name: str) -> str | None:
    """The path of a program, or None. Nothing is skipped."""
    folders = [Path(folder) for folder in os.environ.get("PATH", "").split(os.pathsep) if folder]
    beside = [folder.with_name("sbin") for folder in folders if folder.name == "bin"]
    return shutil.which(name, path=os.pathsep.join(map(str, [*folders, *beside])))


def package(name: str, *, required_in_ci: bool = True) -> ModuleType:
    """An imported module, by its dotted name."""
    top = name.partition(".")[0]
    found = importlib.util.find_spec(top) is not None
    condition(found, top, install=f".venv/bin/pip install {top.replace('_', '-')}", required_in_ci=required_in_ci)
    return importlib.import_module(name)


def data(name: str = "", *, required_in_ci: bool = True) -> Path:
    """The folder EDGEKIT_SHARED of real data and models, or a file below it."""
    value = os.environ.get("EDGEKIT_SHARED")
    what = "EDGEKIT_SHARED, the folder of real data and models"
    condition(bool(value) and Path(value or "").is_dir(), what, required_in_ci=required_in_ci)
    return Path(value or "") / name


def environment(path: Path | str, *, required_in_ci: bool = True) -> Path:
    """A file of an environment below build/ that the Makefile makes, such as `build/moto/bin/moto_server`."""
    file = ROOT / path
    home = "/".join(file.relative_to(ROOT).parts[:2])
    condition(file.is_file(), home, install=f"make {home}/.made", required_in_ci=required_in_ci)
    return file


def processor(feature: str, *, why: str = "", required_in_ci: bool = False) -> None:
    """A feature of X86_FEATURES. CI takes the processor that it gets."""
    condition(
        has_processor(feature), f"an x86 processor with {feature.upper()}", why=why, required_in_ci=required_in_ci
    )


def has_processor(feature: str) -> bool:
    """Whether kernels may use a feature; True on other architectures, where tests know no such gaps.

    oneDNN, and with it OpenVINO, can be switched to work without: see tests/bare.py.
    """
    if platform.machine().lower() not in ("x86_64", "amd64"):
        return True
    return feature in x86_features() and (feature == "avx2" or os.environ.get("ONEDNN_MAX_CPU_ISA") != "AVX2")


@functools.cache
def x86_features() -> frozenset[str]:
    """Those of X86_FEATURES that this processor has."""
    try:
        lines = Path("/proc/cpuinfo").read_text(errors="replace").splitlines()
    except OSError:
        return frozenset()
    flags = {flag for line in lines if line.startswith("flags") for flag in line.split()}
    return frozenset(name for name, any_of in X86_FEATURES.items() if any_of & flags)


def python(version: str, *, required_in_ci: bool = False) -> Path:
    """A Python that runs, such as "3.9", from the PATH or from pyenv. CI needs most of them; see tests/matrix."""
    from tests.matrix import pythons

    found = pythons.available().get(version)
    condition(found is not None, f"python{version}, on the PATH or from pyenv", required_in_ci=required_in_ci)
    assert found is not None
    return found


def root(is_needed: bool = True, *, required_in_ci: bool = True) -> None:
    """The rights of root."""
    condition(os.geteuid() == 0 or not is_needed, "the rights of root", required_in_ci=required_in_ci)


def mount() -> tuple[str, ...]:
    """The right to mount a tmpfs in a name space of its own, and what to put before the command that does it."""
    _may_mount(_error_of([*UNSHARE, "sh", "-c", "mount -t tmpfs none /tmp"]))
    return UNSHARE


def mount_here() -> None:
    """The right to mount a tmpfs for all to see."""
    with tempfile.TemporaryDirectory() as folder:
        error = _error_of(["mount", "-t", "tmpfs", "none", folder])
        if not error:
            subprocess.run(["umount", folder], check=True)
    _may_mount(error)


def _may_mount(error: str) -> None:
    condition(not error, "the right to mount a tmpfs", why=error, required_in_ci=os.geteuid() == 0)


def network_namespace() -> list[str]:
    """What to put before a command for a network of its own, in which nothing answers."""
    prefix = ["unshare", "--net"] if os.geteuid() == 0 else ["unshare", "--map-root-user", "--net"]
    error = _error_of([*prefix, "true"])
    condition(not error, "the right to make a network name space", why=error)
    return prefix


def tracing() -> str:
    """strace, on a system that lets it trace."""
    path = program("strace")
    error = _error_of([path, "-o", os.devnull, "true"])
    condition(not error, "the right to trace a process", why=error)
    return path


def _error_of(command: list[str]) -> str:
    """What a command says if it fails, or if it cannot be started; empty if it succeeds."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, errors="replace", check=False)
    except OSError as error:
        return str(error)
    return (done.stderr.strip()[-300:] or f"exit code {done.returncode}") if done.returncode else ""


BY_NAME: dict[str, Callable[..., object]] = {
    "program": program,
    "package": package,
    "data": data,
    "environment": environment,
    "processor": processor,
    "python": python,
    "root": root,
}
"""What the marker `needs` takes."""


def pytest_configure(config: pytest.Config) -> None:
    """Declare the marker."""
    config.addinivalue_line("markers", f"needs({'=, '.join(BY_NAME)}=): what a test needs; see tests/requirements.py")


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Look for what the markers name before any fixture is made."""
    for marker in item.iter_markers("needs"):
        options = {name: value for name, value in marker.kwargs.items() if name not in BY_NAME}
        for name, value in marker.kwargs.items():
            if name in BY_NAME:
                BY_NAME[name](value, **options)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> object:
    """Note what was missing; in CI, turn a skip into a failure."""
    report: pytest.TestReport = yield
    error = call.excinfo.value if call.excinfo else None
    if isinstance(error, Missing):
        install = error.install if error.required_in_ci else ""  # it may not fit beside the others
        report.user_properties.append(("missing", [error.what, install]))
    may_skip = hasattr(report, "wasxfail") or (isinstance(error, Missing) and not error.required_in_ci)
    if report.skipped and not may_skip and os.environ.get("CI") == "true":
        report.outcome = "failed"
        report.longrepr = f"{item.nodeid} was skipped, and CI must have what it needs: {error}"
    return report


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> Iterator[None]:
    """After all else, the table of what was missing."""
    yield
    reports = [report for kind in ("skipped", "failed", "error") for report in terminalreporter.stats.get(kind, ())]
    for line in table(reports):
        terminalreporter.write_line(line)


def table(reports: Iterable[pytest.TestReport]) -> list[str]:
    """What was missing, how many tests needed it, and how to install it; no line where nothing was missing."""
    tests: dict[str, set[str]] = defaultdict(set)
    installs: set[str] = set()
    for report in reports:
        for name, value in getattr(report, "user_properties", ()):
            if name == "missing":
                what, install = value
                tests[what].add(report.nodeid)
                installs.add(install)
    if not tests:
        return []
    width = max(map(len, tests))
    rows = sorted(tests.items(), key=lambda row: (-len(row[1]), row[0]))
    lines = ["", "Tests that were not run, because something is missing on this machine:"]
    lines += [f"  {what:<{width}}  {len(needing):>6,}" for what, needing in rows]
    command = installation(installs)
    return [*lines, f"To run them: {command}"] if command else lines


def installation(commands: Iterable[str]) -> str:
    """One command that does what all of these do."""
    found = sorted({command for command in commands if command})
    packages = sorted(command.removeprefix(APT) for command in found if command.startswith(APT))
    apt = [APT + " ".join(packages)] if packages else []
    return " && ".join([*apt, *(command for command in found if not command.startswith(APT))])
