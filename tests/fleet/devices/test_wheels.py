"""Which wheels a device gets."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from edgekit.core.errors import ConfigError
from edgekit.fleet.devices import wheels
from edgekit.fleet.devices.device_errors import DeviceError
from edgekit.fleet.devices.facts import HelloFacts
from tests.fleet.devices.wheel_files import wheel

PI = HelloFacts(
    python=(3, 11, 2), implementation="CPython", bits=64, machine="aarch64", system="Linux", libc="glibc 2.36",
    home="/var/lib/edge", runner=True, packages=(), distributions={}, free_bytes=None, ahead_s=0.0,
)  # fmt: skip
NEW, OLD = "cp311-cp311-manylinux_2_28_aarch64", "cp311-cp311-manylinux2014_aarch64"


def chosen(folder: Path, facts: HelloFacts = PI, target: str = "onnx") -> list[str]:
    return sorted(each.path.name for each in wheels.choose_wheels(wheels.read_folder(folder), facts, target))


@pytest.fixture
def wheelhouse(tmp_path: Path) -> Path:
    """numpy and ONNX Runtime for several devices."""
    for tag in (NEW, "cp311-cp311-manylinux_2_28_x86_64", "cp312-cp312-manylinux_2_28_aarch64", "cp311-cp311-win32"):
        wheel(tmp_path, "numpy-2.1.0", tag)
        wheel(tmp_path, "onnxruntime-1.20.0", tag, ("numpy>=1.21", "flatbuffers", "colorama; sys_platform == 'win32'"))
    wheel(tmp_path, "numpy-1.26.4", OLD)
    wheel(tmp_path, "flatbuffers-25.1", needs=("nothing; extra == 'x'",))
    return tmp_path


def test_wheels_fit_the_python_processor_and_c_library_and_bring_what_they_need(wheelhouse: Path) -> None:
    assert chosen(wheelhouse) == [
        "flatbuffers-25.1-py3-none-any.whl", f"numpy-2.1.0-{NEW}.whl", f"onnxruntime-1.20.0-{NEW}.whl"
    ]  # fmt: skip


def test_no_wheel_is_sent_that_is_already_installed(wheelhouse: Path) -> None:
    there = replace(PI, distributions={"numpy": "1.24.2"})
    assert chosen(wheelhouse, there) == ["flatbuffers-25.1-py3-none-any.whl", f"onnxruntime-1.20.0-{NEW}.whl"]
    assert chosen(wheelhouse, replace(PI, distributions={"onnxruntime": "1.20.0"})) == [f"numpy-2.1.0-{NEW}.whl"]
    assert chosen(wheelhouse, replace(PI, distributions={"numpy": "2.0", "openvino": "2025.1"})) == []
    assert wheels.missing_distributions(replace(PI, distributions={"numpy": "2.0", "onnxruntime": "1"}), "onnx") == []


def test_a_version_that_does_not_do_is_replaced(wheelhouse: Path) -> None:
    assert f"numpy-2.1.0-{NEW}.whl" in chosen(wheelhouse, replace(PI, distributions={"numpy": "1.19.5"}))


def test_an_older_c_library_gets_an_older_wheel(wheelhouse: Path) -> None:
    old = replace(PI, libc="glibc 2.17", distributions={"onnxruntime": "1.16"})
    assert chosen(wheelhouse, old) == [f"numpy-1.26.4-{OLD}.whl"]


def test_an_interpreter_that_was_built_for_numpy_1_gets_that(tmp_path: Path) -> None:
    for name in ("numpy-2.1.0", "numpy-1.26.4", "tflite_runtime-2.14.0"):
        wheel(tmp_path, name, NEW)
    assert chosen(tmp_path, target="tflite") == [f"numpy-1.26.4-{NEW}.whl", f"tflite_runtime-2.14.0-{NEW}.whl"]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"machine": "armv7l", "bits": 32}, "for CPython 3.11 on armv7l"),
        ({"bits": 32}, "for CPython 3.11 on armv7l"),
        ({"python": (3, 9, 1)}, "for CPython 3.9 on aarch64"),
        ({"libc": "musl"}, r"\(musl\)"),
        ({"implementation": "PyPy"}, "needs a wheel of onnxruntime"),
    ],
)
def test_what_the_folder_lacks_is_named_with_the_line_that_fetches_it(
    changes: dict[str, object], message: str, wheelhouse: Path
) -> None:
    with pytest.raises(DeviceError, match=message) as caught:
        chosen(wheelhouse, replace(PI, **changes))  # type: ignore[arg-type]
    assert "pip download --only-binary :all: --python-version" in str(caught.value)
    assert caught.value.exit_code == 5


def test_a_need_of_a_need_that_is_not_there_is_named(wheelhouse: Path) -> None:
    (wheelhouse / "flatbuffers-25.1-py3-none-any.whl").unlink()
    with pytest.raises(DeviceError, match="needs a wheel of flatbuffers"):
        chosen(wheelhouse)


def test_a_folder_without_wheels_is_refused(tmp_path: Path) -> None:
    for folder, message in ((tmp_path / "none", "no such folder"), (tmp_path, "holds no wheel")):
        with pytest.raises(ConfigError, match=message):
            wheels.read_folder(folder)
    (tmp_path / "numpy.whl").touch()
    with pytest.raises(ConfigError, match="not the name of a wheel"):
        wheels.read_folder(tmp_path)
