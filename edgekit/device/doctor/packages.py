"""Python, NumPy and the interpreters: what is missing, and what does not work together."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from pathlib import PurePath

from edgekit.device.doctor import ERROR, WARNING, DoctorCase, DoctorFinding, advice, wheels
from edgekit.runner.inputs import READERS

OLDEST_PYTHON, OLDEST_NUMPY = (3, 9), (1, 22)
PICTURES = tuple(suffix for suffix, reader in READERS.items() if reader == "picture")
TEXTS = tuple(suffix for suffix, reader in READERS.items() if reader in ("text", "text_table"))
ANOTHER_PYTHON = "sudo apt install -y python3 python3-venv"


def python_too_old(case: DoctorCase) -> Iterator[DoctorFinding]:
    if case.facts.python < OLDEST_PYTHON:
        cause = f"Python {_dotted(case.facts.python)} is older than the 3.9 that the runner needs"
        yield DoctorFinding("python-too-old", ERROR, cause, f"{ANOTHER_PYTHON}, on a system that has 3.9 or newer")


def numpy_missing(case: DoctorCase) -> Iterator[DoctorFinding]:
    if not case.facts.has("numpy"):
        fix = _with_numpy(case)
        if not case.installed:
            fix = advice.first_install_command(case.facts, case.interpreters) or fix
        elif advice.makes_venv(case.facts) and case.facts.apt:
            fix = "sudo apt install -y python3-numpy"
        yield DoctorFinding("numpy-missing", ERROR, "numpy is not installed", fix)


def numpy_too_old(case: DoctorCase) -> Iterator[DoctorFinding]:
    numpy = case.facts.has("numpy")
    if numpy and numpy.release and numpy.release < OLDEST_NUMPY:
        cause = f"numpy {numpy.version} is older than the 1.22 that the runner needs"
        yield DoctorFinding("numpy-too-old", ERROR, cause, _with_numpy(case, ">=1.22"))


def numpy_2(case: DoctorCase) -> Iterator[DoctorFinding]:
    """Check for interpreters built against NumPy 1, which crash or give wrong outputs with NumPy 2."""
    numpy = case.facts.has("numpy")
    for name in case.installed if numpy and numpy.release >= (2,) else []:
        distribution = case.facts.has(wheels.distribution_of(name))
        if distribution and distribution.release < wheels.NUMPY_2_FROM.get(distribution.name, ()):
            cause = (
                f"{distribution.name} {distribution.version} was built for numpy 1 and fails with numpy {numpy.version}"  # type: ignore[union-attr]
            )
            yield DoctorFinding(f"numpy-2-{distribution.name}", ERROR, cause, _with_numpy(case, "<2", name), name)


def no_interpreter(case: DoctorCase) -> Iterator[DoctorFinding]:
    """Check that a suitable interpreter is installed.

    The fix installs the first suitable interpreter that has a wheel for the device.
    """
    if case.installed or not case.interpreters or case.facts.python < OLDEST_PYTHON:
        return
    line = advice.first_install_command(case.facts, case.interpreters)
    if not line:
        yield from _no_wheel(case)
    elif case.interpreters == ["openvino"]:
        yield DoctorFinding("openvino-missing", ERROR, f"openvino is not installed; {_purpose(case)} needs it", line)
    else:
        cause = f"no interpreter for {_purpose(case)} is installed"
        yield DoctorFinding("no-interpreter", ERROR, cause, line)


def _no_wheel(case: DoctorCase) -> Iterator[DoctorFinding]:
    """Explain for each interpreter whether the Python or the C library keeps it from being installed."""
    facts = case.facts
    for name in case.interpreters:
        distribution = wheels.distribution_of(name)
        rows = wheels.wheels_of(distribution, facts.architecture)
        first, last = wheels.python_range(distribution)
        if facts.musl or not rows:
            continue  # platforms.py reports this once for all interpreters
        if not first <= facts.python[1] <= last:
            age = "newer" if facts.python[1] > last else "older"
            cause = f"Python {_dotted(facts.python)} is {age} than any {distribution} wheel (3.{first} to 3.{last})"
            yield DoctorFinding("python-without-wheel", ERROR, cause, _other_python(case, name, first, last), name)
        elif fitting := [row for row in rows if row.first <= facts.python[1] <= row.last]:
            least = min(row.glibc[facts.architecture] for row in fitting)
            cause = (
                f"{distribution} needs glibc 2.{least} on {facts.architecture}; this system has {_dotted(facts.glibc)}"
            )
            fix = "install Raspberry Pi OS 12 (bookworm), Debian 12, Ubuntu 22.04 or newer on the device"
            yield DoctorFinding("glibc-too-old", ERROR, cause, fix, name)


def installed_glibc(case: DoctorCase) -> Iterator[DoctorFinding]:
    """Check for wheels that need a newer C library, for example after a downgrade or on an SD card that was copied."""
    for name in case.installed if case.facts.glibc else []:
        distribution = case.facts.has(wheels.distribution_of(name))
        needed = [need for tag in (distribution.tags if distribution else ()) if (need := _glibc_of(tag))]
        if distribution and needed and min(needed) > case.facts.glibc[:2]:
            has = _dotted(case.facts.glibc)
            cause = (
                f"{distribution.name} {distribution.version} needs glibc {_dotted(min(needed))}; this system has {has}"
            )
            fix = (
                advice.interpreter_command(case.facts, name)
                or "install Raspberry Pi OS 12 (bookworm) or newer on the device"
            )
            yield DoctorFinding("glibc-too-old", ERROR, cause, fix, name)


def foreign_wheel(case: DoctorCase) -> Iterator[DoctorFinding]:
    """Check for wheels that were built for another processor or Python.

    They occur in an environment that was copied from a PC, or that was created before Python was upgraded.
    """
    for name in ["numpy", *case.installed]:
        distribution = "numpy" if name == "numpy" else wheels.distribution_of(name)
        installed = case.facts.has(distribution)
        if not installed or not installed.tags or case.facts.system != "Linux":
            continue
        again = advice.install_command(case.facts, "--force-reinstall", "--no-cache-dir", distribution)
        whose = None if name == "numpy" else name
        platforms = {tag.rpartition("-")[2] for tag in installed.tags}
        if not any(each == "any" or each.endswith(f"_{case.facts.architecture}") for each in platforms):
            cause = f"the installed {distribution} is for {min(platforms)}; this machine is {case.facts.architecture}"
            yield DoctorFinding("wheel-architecture", ERROR, cause, again, whose)
        elif not any(_fits_python(tag, case.facts.python) for tag in installed.tags):
            wheel_python, this_python = installed.tags[0].partition("-")[0], _dotted(case.facts.python)
            cause = f"the installed {distribution} is for {wheel_python}; this is Python {this_python}"
            yield DoctorFinding("wheel-python", ERROR, cause, again, whose)


def only_tensorflow(case: DoctorCase) -> Iterator[DoctorFinding]:
    if case.installed == ["tensorflow"] and case.target == "tflite" and not case.interpreter:
        line = advice.first_install_command(case.facts, ["litert", "tflite_runtime"])
        if line:
            cause = "only tensorflow is installed for tflite: it works, but is slow to start"
            yield DoctorFinding("only-tensorflow", WARNING, cause, line)


def slow_tflite_runtime(case: DoctorCase) -> Iterator[DoctorFinding]:
    line = advice.interpreter_command(case.facts, "litert")
    if line and case.installed == ["tflite_runtime"] and not case.interpreter:
        cause = "tflite-runtime is several times slower at int8 than ai-edge-litert"
        yield DoctorFinding("slow-interpreter", WARNING, cause, line)


def pillow_missing(case: DoctorCase) -> Iterator[DoctorFinding]:
    """Report an error if the input is a picture, or a warning if the bundle takes pictures."""
    picture = case.input is not None and PurePath(case.input).suffix.lower() in PICTURES
    if not case.facts.has("pillow") and (picture or (case.subject and case.subject.kind == "image")):
        what = f"{case.input} is a picture" if picture else "the bundle takes pictures"
        rest = "" if picture else " (.npy works)"
        fix = advice.install_command(case.facts, "pillow")
        if case.installed and advice.makes_venv(case.facts) and case.facts.apt:
            fix = "sudo apt install -y python3-pil"
        yield DoctorFinding(
            "pillow-missing", ERROR if picture else WARNING, f"{what} and Pillow is not installed{rest}", fix
        )


def tokenizers_missing(case: DoctorCase) -> Iterator[DoctorFinding]:
    """Report an error if the input is a text, or a warning if the bundle takes texts."""
    text = case.input is not None and PurePath(case.input).suffix.lower() in TEXTS
    if case.subject and case.subject.kind == "text" and not case.facts.has("tokenizers"):
        what = f"{case.input} is a text" if text else "the bundle takes texts"
        rest = "" if text else " (.npy of token ids works)"
        cause = f"{what} and the package tokenizers is not installed{rest}"
        fix = advice.install_command(case.facts, "tokenizers")
        yield DoctorFinding("tokenizers-missing", ERROR if text else WARNING, cause, fix)


def unreadable_input(case: DoctorCase) -> Iterator[DoctorFinding]:
    """Check whether the bundle can read files with the input's suffix; without a bundle, whether any reader can."""
    if case.input is None:
        return
    suffixes = case.subject.inputs if case.subject and case.subject.inputs else tuple(READERS)
    suffix = PurePath(case.input).suffix.lower()
    if suffix not in suffixes:
        cause = f"{case.input}: {suffix or 'a file without an ending'} is not supported; {', '.join(suffixes)} are"
        outputs = [f"OUT{ending}" for ending in (".png", ".wav") if ending in suffixes]
        fix = f"ffmpeg -i {shlex.quote(case.input)} {' (or '.join(outputs)}{')' * (len(outputs) - 1)}"
        yield DoctorFinding("input-unreadable", ERROR, cause, fix if outputs else f"save it as {suffixes[-1]}")


def _purpose(case: DoctorCase) -> str:
    if case.interpreter:
        return f"--interpreter {case.interpreter}"
    return f"--device {case.device}" if case.device in ("GPU", "NPU") else f"{case.target or 'any'} models"


def _with_numpy(case: DoctorCase, bound: str = "", only: str | None = None) -> str:
    """Return the command that repairs NumPy. If it creates a virtual environment, it installs interpreters as well."""
    facts = case.facts
    interpreters = [
        distribution
        for name in ([only] if only else case.installed)
        if (distribution := facts.has(wheels.distribution_of(name)))
    ]
    if (
        interpreters
        and all(distribution.release < wheels.NUMPY_2_FROM.get(distribution.name, ()) for distribution in interpreters)
        and "<2" not in bound
    ):
        bound = f"{bound},<2" if bound else "<2"
    along = (
        [f"{distribution.name}=={distribution.version}" for distribution in interpreters]
        if advice.makes_venv(facts)
        else []
    )
    return advice.install_command(facts, f"numpy{bound}", *along)


def _other_python(case: DoctorCase, name: str, first: int, last: int) -> str:
    """Return the command to use if an interpreter has no wheel for this Python.

    It installs another interpreter for the same target if that has a wheel, or else another Python.
    """
    others = [each for each in wheels.interpreters_for(case.target or wheels.INTERPRETERS[name][1][0]) if each != name]
    line = advice.first_install_command(case.facts, others)
    if line:
        sibling = next(each for each in others if advice.interpreter_command(case.facts, each))
        return f"{line}  # and use --interpreter {sibling}"
    return advice.other_python_command(case.facts, name, last)


def ssh_keygen(case: DoctorCase) -> Iterator[DoctorFinding]:
    """Report a problem with ssh-keygen, which signed mode needs to verify signatures.

    An old release of ssh-keygen is only a warning, because it fails only for signers whose key expires.
    """
    if case.verifier:
        cause, _, fix = case.verifier.message.rpartition("; ")
        yield DoctorFinding("ssh-keygen", ERROR if case.verifier.blocks else WARNING, cause, fix)


def _glibc_of(tag: str) -> tuple[int, int] | None:
    """Return the oldest glibc that a wheel's tag allows: (2, 34) for cp311-cp311-manylinux_2_34_aarch64; or None."""
    platform = tag.rpartition("-")[2]
    for legacy, minor in (("manylinux2014", 17), ("manylinux2010", 12), ("manylinux1", 5)):
        if platform.startswith(legacy):
            return 2, minor
    words = platform.split("_")
    if words[0] == "manylinux" and len(words) > 3 and words[1].isdigit() and words[2].isdigit():
        return int(words[1]), int(words[2])
    return None


def _fits_python(tag: str, python: tuple[int, ...]) -> bool:
    interpreter, abi = (*tag.split("-"), "")[:2]
    own_tag = f"cp3{python[1]}"
    if abi == "abi3" and interpreter.startswith("cp3") and interpreter[3:].isdigit():
        return int(interpreter[3:]) <= python[1]
    return interpreter.startswith("py") or own_tag in interpreter.split(".")


def _dotted(numbers: tuple[int, ...]) -> str:
    return ".".join(map(str, numbers[:2]))


CHECKS = (
    python_too_old, numpy_missing, numpy_too_old, numpy_2, no_interpreter, installed_glibc, foreign_wheel,
    only_tensorflow, slow_tflite_runtime, pillow_missing, tokenizers_missing, unreadable_input, ssh_keygen,
)  # fmt: skip
