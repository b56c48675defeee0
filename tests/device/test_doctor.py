"""Incompatibilities, seeded: every code that the doctor knows is brought about here and named."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from edgekit.device import doctor
from edgekit.device.doctor import DoctorCase, advice, report, wheels
from edgekit.device.doctor.bundle_requirements import BundleRequirements
from edgekit.device.doctor.bundle_requirements import read_requirements as read_subject
from edgekit.device.hardware import facts
from edgekit.device.hardware.facts import DeviceFacts, InstalledDistribution
from edgekit.device.hardware.health import HealthReading
from edgekit.device.trust.ssh_keygen import VerifierFault
from edgekit.runner import bundle
from edgekit.runner.backends import INTERPRETERS, PREFERENCE
from edgekit.runner.bundle import archive
from edgekit.runner.errors import BundleError
from edgekit.runner.operators.tflite import BUILTIN_NAMES
from tests import requirements
from tests.runner import handmade
from tests.runner.conftest import NCHW, NHWC, SCORES, ModelFiles, WriteBundle

ROOT = Path(__file__).resolve().parents[2]
CODE = {name: number for number, name in enumerate(BUILTIN_NAMES.split())}
HEAVY = (
    "numpy",
    "ai_edge_litert",
    "tflite_runtime",
    "openvino",
    "onnxruntime",
    "tensorflow",
    "PIL",
    "hashlib",
    "zipfile",
)
MODELS = {
    "tflite": ModelFiles("tflite", {"model.tflite": handmade.tflite(CODE["CONV_2D"], 3)}, NHWC, SCORES, 0.1),
    "tflite-new": ModelFiles(
        "tflite", {"model.tflite": handmade.tflite(CODE["FULLY_CONNECTED"], 12)}, NHWC, SCORES, 0.1
    ),
    "onnx": ModelFiles("onnx", {"model.onnx": handmade.onnx(13, 8)}, NCHW, SCORES, 0.1),
    "onnx-opset": ModelFiles("onnx", {"model.onnx": handmade.onnx(25, 8)}, NCHW, SCORES, 0.1),
    "onnx-ir": ModelFiles("onnx", {"model.onnx": handmade.onnx(13, 12)}, NCHW, SCORES, 0.1),
    "onnx-domain": ModelFiles("onnx", {"model.onnx": handmade.onnx(13, 8, "Mine", "com.example")}, NCHW, SCORES, 0.1),
    "openvino": ModelFiles(
        "openvino", {"model.xml": handmade.ir(("ReLU", "opset1")), "model.bin": b""}, NCHW, SCORES, 0.1
    ),
    "openvino-new": ModelFiles(
        "openvino", {"model.xml": handmade.ir(("FakeFuture", "opset99")), "model.bin": b""}, NCHW, SCORES, 0.1
    ),
}
VERSION = f"cp3{sys.version_info[1]}"
TAG = f"{VERSION}-{VERSION}-manylinux_2_17_{os.uname().machine}"


def installed(site: Path, *packages: str, tag: str = TAG) -> Path:
    """A folder as pip leaves it: one `.dist-info` for every "name==version"."""
    for package in packages:
        name, _, version = package.partition("==")
        folder = site / f"{name.replace('-', '_')}-{version}.dist-info"
        folder.mkdir(parents=True)
        (folder / "WHEEL").write_text(f"Wheel-Version: 1.0\nTag: {tag}\n")
        (folder / "METADATA").write_text(f"Name: {name}\nVersion: {version}\n")
        (site / name.replace("-", "_")).mkdir(exist_ok=True)
    site.mkdir(exist_ok=True)
    return site


def opsets(site: Path, newest: int) -> None:
    for number in range(1, newest + 1):
        (site / "openvino" / f"opset{number}").mkdir(parents=True)


def ask(site: Path, *arguments: object, python: str = sys.executable) -> tuple[int, dict[str, object]]:
    """The real command in a Python that sees the seeded packages only; its exit code and its JSON."""
    command = [python, "-S", "-m", "edgekit.runner", "doctor", "--json", *map(str, arguments)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join((str(site), str(ROOT)))}
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, env=environment, cwd=site)
    assert "Traceback" not in done.stderr, done.stderr
    return done.returncode, json.loads(done.stdout)


@dataclass(frozen=True)
class Seed:
    """Packages on disk, a bundle and a command line; `code` must be named, and must block or not."""

    code: str
    packages: tuple[str, ...] = ()
    model: str | None = "tflite"
    arguments: tuple[str, ...] = ()
    blocks: bool = True
    tag: str = TAG


NEW = ("numpy==2.3.1", "pillow==12.0.0")
OLD = ("numpy==1.26.4", "pillow==12.0.0")
SEEDS = [
    Seed("numpy-missing", ("ai-edge-litert==2.3.0",)),
    Seed("numpy-too-old", ("numpy==1.19.5", "ai-edge-litert==2.3.0")),
    Seed("numpy-2-tflite-runtime", (*NEW, "tflite-runtime==2.14.0")),
    Seed("numpy-2-onnxruntime", (*NEW, "onnxruntime==1.18.1"), "onnx"),
    Seed("numpy-2-openvino", (*NEW, "openvino==2024.0.0"), "openvino"),
    Seed("numpy-2-tensorflow", (*NEW, "tensorflow==2.15.0")),
    Seed("no-interpreter", NEW),
    Seed("no-interpreter", NEW, "onnx"),
    Seed("openvino-missing", NEW, "openvino"),
    Seed("wheel-architecture", (*NEW, "ai-edge-litert==2.3.0"), tag=f"{VERSION}-{VERSION}-manylinux_2_17_riscv64"),
    Seed("wheel-python", (*NEW, "ai-edge-litert==2.3.0"), tag=f"cp36-cp36m-manylinux_2_17_{os.uname().machine}"),
    Seed("glibc-too-old", (*NEW, "ai-edge-litert==2.3.0"), tag=TAG.replace("2_17", "2_99")),
    Seed("only-tensorflow", (*NEW, "tensorflow==2.21.0"), blocks=False),
    Seed("slow-interpreter", (*OLD, "tflite-runtime==2.14.0"), blocks=False),
    Seed("pillow-missing", ("numpy==2.3.1", "ai-edge-litert==2.3.0"), blocks=False),
    Seed("pillow-missing", ("numpy==2.3.1", "ai-edge-litert==2.3.0"), arguments=("--input", "cat.JPG")),
    Seed("input-unreadable", (*NEW, "ai-edge-litert==2.3.0"), arguments=("--input", "cat.gif")),
    Seed("input-unreadable", (*NEW, "ai-edge-litert==2.3.0"), arguments=("--input", "clip.mp4")),
    Seed("operator-too-new", (*OLD, "tflite-runtime==2.14.0"), "tflite-new"),
    Seed("onnx-opset", (*NEW, "onnxruntime==1.23.2"), "onnx-opset"),
    Seed("onnx-ir", (*NEW, "onnxruntime==1.23.2"), "onnx-ir"),
    Seed("operator-custom", (*NEW, "onnxruntime==1.23.2"), "onnx-domain"),
    Seed("openvino-opset", (*NEW, "openvino==2026.4.1"), "openvino-new"),
    Seed("interpreter-unknown", (*NEW, "ai-edge-litert==2.3.0"), arguments=("--interpreter", "onnxruntime")),
    Seed("gpu-plugin", (*NEW, "openvino==2026.4.1"), "openvino", ("--device", "GPU")),
    Seed("npu-plugin", (*NEW, "openvino==2026.4.1"), "openvino", ("--device", "NPU")),
    Seed("device-unknown", (*NEW, "openvino==2026.4.1"), "openvino", ("--device", "TPU")),
    Seed("device-interpreter", (*NEW, "openvino==2026.4.1"), "tflite", ("--device", "GPU")),
    Seed("no-interpreter", NEW, None),
]


@pytest.mark.parametrize(
    "seed", SEEDS, ids=lambda seed: f"{seed.code}-{seed.model}{'-' + seed.arguments[-1] if seed.arguments else ''}"
)
def test_seeded_packages_are_named(seed: Seed, tmp_path: Path, write_bundle: WriteBundle) -> None:
    site = installed(tmp_path / "site", *seed.packages, tag=seed.tag)
    if any(each.startswith("openvino") for each in seed.packages):
        opsets(site, 16)
    bundle_arguments = [write_bundle(MODELS[seed.model])] if seed.model else []
    code, answer = ask(site, *bundle_arguments, *seed.arguments)
    found = {each["code"]: each for each in answer["findings"]}  # type: ignore[attr-defined]
    assert seed.code in found, found
    assert found[seed.code]["severity"] == ("error" if seed.blocks else "warning")
    assert (code == 5, answer["ok"]) == (seed.blocks, not seed.blocks)
    if seed.blocks:  # nothing else is blamed for what is wrong
        blamed = {name for name, each in found.items() if each["severity"] == "error"}
        assert blamed - {"gpu-driver", "npu-driver", "gpu-plugin"} <= {seed.code}


FINE = HealthReading(
    51.0, 1500.0, 2400.0, "ondemand", False, False, False, None, 15_000_000, 7_000_000_000, 8_000_000_000
)
VERSIONS = {"numpy": "2.3.1", "ai-edge-litert": "2.3.0", "pillow": "12.0"}
LITE = {name: InstalledDistribution(name, version) for name, version in VERSIONS.items()}
PI = DeviceFacts(
    (3, 11, 2),
    "/usr/bin/python3",
    machine="aarch64",
    glibc=(2, 36),
    externally_managed=True,
    distributions=LITE,
    reading=FINE,
)
INTEL = replace(
    PI,
    machine="x86_64",
    instructions=("sse4_1", "avx", "avx2"),
    render_nodes=("/dev/dri/renderD128",),
    accel_nodes=("/dev/accel/accel0",),
    plugins=("GPU", "NPU"),
    opencl_drivers=("intel.icd",),
    opsets=(1, 16),
)
BARE = {"numpy": LITE["numpy"], "pillow": LITE["pillow"]}


def with_packages(base: DeviceFacts, **versions: str) -> DeviceFacts:
    more = {
        name.replace("_", "-"): InstalledDistribution(name.replace("_", "-"), version)
        for name, version in versions.items()
    }
    return replace(base, distributions={**BARE, **more})


OPENVINO = with_packages(INTEL, openvino="2026.4.1")
OLDER = with_packages(PI, numpy="1.26.4", tflite_runtime="2.14.0")
WHOLE = with_packages(INTEL, tensorflow="2.21.0")
NOTHING = with_packages(PI)
TFLITE, IR, ONNX = (
    BundleRequirements("x.edge.zip", target, model_bytes=100_000) for target in ("tflite", "openvino", "onnx")
)

TEXTS = replace(TFLITE, kind="text", inputs=(".npy", ".txt"))


def feels(**changes: object) -> DeviceFacts:
    return replace(PI, reading=replace(FINE, **changes))  # type: ignore[arg-type]


NO_KEYGEN = VerifierFault("ssh-keygen: not found; install openssh-client", True)
OLD_KEYGEN = VerifierFault("ssh-keygen is too old; install OpenSSH 8.8", False)
PYTHON_312, PYTHON_313 = (replace(NOTHING, python=version) for version in ((3, 12, 1), (3, 13, 0)))
CASES: list[tuple[str, bool, DoctorCase]] = [
    ("python-too-old", True, DoctorCase(replace(PI, python=(3, 8, 18)), TFLITE)),
    ("python-without-wheel", True, DoctorCase(PYTHON_313, TFLITE, interpreter="tflite_runtime")),
    ("python-without-wheel", True, DoctorCase(PYTHON_312, TFLITE, interpreter="tflite_runtime")),
    ("python-without-wheel", True, DoctorCase(replace(NOTHING, python=(3, 15, 0)), TFLITE)),
    ("glibc-too-old", True, DoctorCase(replace(NOTHING, glibc=(2, 17)), ONNX)),
    ("glibc-too-old", True, DoctorCase(replace(NOTHING, glibc=(2, 31), python=(3, 12, 0)), IR)),
    ("musl", True, DoctorCase(replace(NOTHING, glibc=(), musl=True), TFLITE)),
    ("arm-32-bit", True, DoctorCase(replace(NOTHING, machine="armv6l", bits=32), TFLITE)),
    ("arm-32-bit", True, DoctorCase(replace(NOTHING, machine="armv7l", bits=32), IR)),
    ("arm-32-bit", False, DoctorCase(replace(OLDER, machine="armv7l", bits=32), TFLITE)),
    ("python-32-bit", False, DoctorCase(replace(OLDER, bits=32), TFLITE)),
    ("python-32-bit", True, DoctorCase(replace(NOTHING, bits=32), ONNX)),
    ("architecture-unknown", True, DoctorCase(replace(NOTHING, machine="riscv64"), TFLITE)),
    ("bundle-architecture", True, DoctorCase(PI, replace(TFLITE, architectures=("x86_64",)))),
    ("bundle-format", True, DoctorCase(PI, BundleRequirements("x.edge.zip", None, format=99))),
    ("instructions-missing", True, DoctorCase(replace(WHOLE, instructions=("sse4_1",)), TFLITE)),
    ("memory", True, DoctorCase(feels(total_bytes=300 * 2**20), replace(TFLITE, model_bytes=100 * 2**20))),
    ("memory", False, DoctorCase(feels(available_bytes=20 * 2**20), TFLITE)),
    ("gpu-driver", True, DoctorCase(replace(OPENVINO, render_nodes=()), IR, device="GPU")),
    ("gpu-opencl", True, DoctorCase(replace(OPENVINO, opencl_drivers=()), IR, device="GPU")),
    ("gpu-permission", True, DoctorCase(replace(OPENVINO, closed_nodes=("/dev/dri/renderD128",)), IR, device="GPU")),
    ("gpu-plugin", True, DoctorCase(replace(OPENVINO, machine="aarch64", plugins=()), IR, device="GPU")),
    ("npu-driver", True, DoctorCase(replace(OPENVINO, accel_nodes=()), ONNX, device="NPU")),
    ("npu-permission", True, DoctorCase(replace(OPENVINO, closed_nodes=("/dev/accel/accel0",)), IR, device="NPU")),
    ("device-interpreter", True, DoctorCase(with_packages(INTEL, openvino="2026.4.1"), ONNX, "onnxruntime", "GPU")),
    ("under-voltage", False, DoctorCase(feels(under_voltage=True, throttled=True), TFLITE)),
    ("throttled", False, DoctorCase(feels(throttled=True, throttled_since_boot=True), TFLITE)),
    ("throttled-before", False, DoctorCase(feels(throttled_since_boot=True), TFLITE)),
    ("hot", False, DoctorCase(feels(temperature_c=82.0), TFLITE)),
    ("governor", False, DoctorCase(feels(governor="powersave"), TFLITE)),
    ("emulated", False, DoctorCase(replace(PI, emulator="qemu-aarch64"), TFLITE)),
    ("tokenizers-missing", False, DoctorCase(PI, TEXTS)),
    ("tokenizers-missing", True, DoctorCase(PI, TEXTS, input="mail.txt")),
    ("ssh-keygen", True, DoctorCase(PI, TFLITE, verifier=NO_KEYGEN)),
    ("ssh-keygen", False, DoctorCase(PI, TFLITE, verifier=OLD_KEYGEN)),
]  # fmt: skip


@pytest.mark.parametrize(("code", "blocks", "case"), CASES, ids=lambda value: value if isinstance(value, str) else "")
def test_seeded_devices_are_named(code: str, blocks: bool, case: DoctorCase) -> None:
    findings = doctor.examine(case)
    found = {each.code: each for each in findings}
    assert code in found, found
    assert found[code].severity == ("error" if blocks else "warning") and doctor.blocks(findings) is blocks
    for finding in findings:
        assert finding.cause and finding.fix and "\n" not in finding.cause + finding.fix
    assert any(code in line for line in report.text_lines(case, findings))
    json.dumps(report.to_dict(case, findings), allow_nan=False)


def test_flex_operators_are_named() -> None:
    from tests.runner.test_operators import custom

    subject = replace(TFLITE, needs=_needs(custom("FlexErf")))
    assert [each.code for each in doctor.examine(DoctorCase(PI, subject))] == ["operator-flex"]
    assert doctor.blocks(doctor.examine(DoctorCase(WHOLE, subject))), "TensorFlow has them, and some open any file"
    mine = replace(TFLITE, needs=_needs(custom("Mine")))
    assert [each.code for each in doctor.examine(DoctorCase(PI, mine))] == ["operator-custom"]


def _needs(data: bytes) -> object:
    from edgekit.runner.operators import tflite

    return tflite.read(data)


def test_every_code_is_seeded_and_there_are_more_than_twenty() -> None:
    sources = "".join(path.read_text() for path in (ROOT / "edgekit/device/doctor").glob("*.py"))
    words = set(re.findall(r'Finding\(\s*f?"([a-z0-9{}.()-]+)"', sources)) | {"arm-32-bit", "python-32-bit"}
    known = set()
    for word in words:
        parts = {"{device.lower()}": ("gpu", "npu"), "{distribution.name}": wheels.NUMPY_2_FROM}
        wild = next((part for part in parts if part in word), None)
        known |= {word.replace(wild, each) for each in parts[wild]} if wild else {word}
    seeded = {seed.code for seed in SEEDS} | {code for code, _, _ in CASES} | {"operator-flex"}
    assert seeded == known, seeded ^ known
    assert len(known) >= 20


IN_ORDER = {
    "tflite": DoctorCase(PI, TFLITE),
    "no bundle": DoctorCase(PI),
    "pinned": DoctorCase(PI, TFLITE, "litert", "CPU", "cat.png"),
    "gpu": DoctorCase(OPENVINO, IR, device="GPU"),
    "npu": DoctorCase(OPENVINO, ONNX, device="NPU"),
    "onnx": DoctorCase(with_packages(PI, onnxruntime="1.31.1"), ONNX),
    "numpy 1": DoctorCase(with_packages(PI, numpy="1.26.4", ai_edge_litert="2.3.0"), TFLITE),
    "texts": DoctorCase(with_packages(PI, ai_edge_litert="2.3.0", tokenizers="0.22.2"), TEXTS, input="mail.txt"),
    "intel's powersave": DoctorCase(replace(feels(governor="powersave"), frequency_driver="intel_pstate"), TFLITE),
}


@pytest.mark.parametrize("case", IN_ORDER.values(), ids=IN_ORDER)
def test_a_device_in_order_has_no_findings(case: DoctorCase) -> None:
    assert doctor.examine(case) == []
    assert list(report.text_lines(case, []))[-1] == "No problem found"


def test_what_ails_one_interpreter_only_warns_where_another_does_the_work() -> None:
    both = with_packages(PI, tflite_runtime="2.14.0", ai_edge_litert="2.3.0")
    findings = doctor.examine(DoctorCase(both, TFLITE))
    assert [(each.code, each.severity) for each in findings] == [("numpy-2-tflite-runtime", "warning")]
    pinned = doctor.examine(DoctorCase(both, TFLITE, interpreter="tflite_runtime"))
    assert [(each.code, each.severity) for each in pinned] == [("numpy-2-tflite-runtime", "error")]


def test_the_fix_fits_the_system_s_python() -> None:
    """PEP 668: where apt owns the Python, pip is only offered inside a virtual environment."""

    def fix(base: DeviceFacts, target: BundleRequirements = TFLITE) -> str:
        return next(
            each.fix
            for each in doctor.examine(DoctorCase(base, target))
            if each.code in ("no-interpreter", "openvino-missing")
        )

    assert fix(NOTHING).endswith("-m venv edge && edge/bin/pip install numpy ai-edge-litert")
    assert fix(replace(NOTHING, apt=True, can_make_venv=False)).startswith("sudo apt install -y python3-venv && ")
    free = replace(NOTHING, in_venv=True, distributions={**BARE, "pip": InstalledDistribution("pip", "25.0")})
    assert fix(free).endswith("-m pip install numpy ai-edge-litert") and "venv" not in fix(free)
    assert fix(replace(free, python=(3, 9, 2))).endswith("numpy ai-edge-litert==2.1.0")
    assert fix(replace(free, glibc=(2, 31), python=(3, 9, 2)), IR).endswith("'numpy<2' openvino==2024.0.0")
    narrow = replace(free, machine="armv7l", bits=32)
    assert fix(narrow).endswith("'numpy<2' tflite-runtime")
    found = doctor.examine(DoctorCase(with_packages(PI, tflite_runtime="2.14.0"), TFLITE))[0]
    assert found.fix.endswith("-m venv edge && edge/bin/pip install 'numpy<2' tflite-runtime==2.14.0")
    bare = replace(PI, apt=True, distributions={})
    assert {each.fix for each in doctor.examine(DoctorCase(bare, TFLITE)) if each.severity == "error"} == {fix(NOTHING)}
    blind = replace(bare, distributions={name: LITE[name] for name in ("numpy", "ai-edge-litert")})
    pictures = doctor.examine(DoctorCase(blind, replace(TFLITE, kind="image")))
    assert [each.fix for each in pictures] == ["sudo apt install -y python3-pil"]


def test_a_word_is_quoted_for_the_shell() -> None:
    for word in ("numpy<2", "it's", "", "a b", "plain-1.0", "$(x)"):
        done = subprocess.run(
            ["sh", "-c", f"printf %s {advice.shell_quote(word)}"], capture_output=True, text=True, check=True
        )
        assert done.stdout == word


def test_a_newer_format_is_named_and_a_broken_bundle_is_an_error(tmp_path: Path, write_bundle: WriteBundle) -> None:
    path = write_bundle(MODELS["tflite"])
    data = path.read_bytes()
    good = bundle.read(path)
    newer = re.sub(rb'"format": \d+', b'"format": 99', good.text).replace(b'"labels"', b'"names"')
    path.write_bytes(b"".join(archive.archive_parts({bundle.MANIFEST: newer, **good.members})))
    assert read_subject(str(path)).format == 99
    code, answer = ask(installed(tmp_path / "site", *NEW, "ai-edge-litert==2.3.0"), path)
    assert code == 5 and [each["code"] for each in answer["findings"]] == ["bundle-format"]  # type: ignore[attr-defined]
    path.write_bytes(data[:100])
    with pytest.raises(BundleError):
        read_subject(str(path))


def test_the_doctor_imports_nothing_that_could_crash(tmp_path: Path, write_bundle: WriteBundle) -> None:
    """In this environment, where all of them are installed; a picture is named, so that Pillow is needed."""
    script = (
        "import sys; from edgekit.runner.cli import main; code = main(sys.argv[1:]); "
        f"print('LOADED', [name for name in {HEAVY} if name in sys.modules], file=sys.stderr); sys.exit(code)"
    )
    for model in ("tflite", "onnx", "openvino"):
        command = [sys.executable, "-c", script, "doctor", str(write_bundle(MODELS[model])), "--input", "cat.png"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, cwd=ROOT)
        assert done.returncode == 0 and "LOADED []" in done.stderr, done.stdout + done.stderr
        assert done.stdout.rstrip().endswith("No problem found")


def test_a_real_environment_that_works_gives_zero(bundles: dict[str, Path]) -> None:
    """No false alarm: what the doctor passes here, the real interpreters then run."""
    for path in bundles.values():
        for command in ("doctor", "selftest"):
            line = [sys.executable, "-m", "edgekit.runner", command, str(path), "--json"]
            done = subprocess.run(line, capture_output=True, text=True, timeout=120, cwd=ROOT)
            assert done.returncode == 0 and json.loads(done.stdout)["ok"], done.stdout + done.stderr


def test_the_interpreters_are_those_of_the_backends() -> None:
    assert {name: (each.distribution, each.targets) for name, each in INTERPRETERS.items()} == wheels.INTERPRETERS
    for target, order in PREFERENCE.items():
        assert wheels.interpreters_for(target) == list(order)


def test_facts_come_from_the_tree(tmp_path: Path) -> None:
    site = installed(tmp_path / "site", "numpy==2.3.1", "openvino==2026.4.1", tag="cp313-cp313-manylinux_2_28_x86_64")
    (tmp_path / "later" / "numpy-1.0.0.dist-info").mkdir(parents=True)
    (tmp_path / "debian" / "Pillow-9.4.0.egg-info").mkdir(parents=True)
    opsets(site, 3)
    (site / "openvino" / "libs").mkdir()
    (site / "openvino" / "libs" / "libopenvino_intel_gpu_plugin.so").touch()
    for name in ("dev/dri/renderD128", "dev/dri/card0", "dev/accel/accel0", "etc/OpenCL/vendors/intel.icd"):
        (tmp_path / "root" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "root" / name).touch()
    found = facts.gather_facts(
        [str(site), str(tmp_path / "later"), str(tmp_path / "debian"), "/nowhere"], tmp_path / "root"
    )
    assert {name: each.version for name, each in found.distributions.items()} == {
        "numpy": "2.3.1", "openvino": "2026.4.1", "pillow": "9.4.0"
    }  # fmt: skip
    assert found.distributions["numpy"].tags == ("cp313-cp313-manylinux_2_28_x86_64",)
    assert (found.opsets, found.plugins) == ((1, 2, 3), ("GPU",))
    assert [Path(each).name for each in (*found.render_nodes, *found.accel_nodes)] == ["renderD128", "accel0"]
    assert [Path(each).name for each in found.opencl_drivers] == ["intel.icd"]
    assert [facts.version_numbers(text) for text in ("2.14.0", "1.0rc1", "2026.4.1+x", "odd")] == [
        (2, 14, 0),
        (1, 0),
        (2026, 4, 1),
        (),
    ]


def test_a_kernel_of_another_processor_is_emulation(tmp_path: Path) -> None:
    other = "aarch64" if os.uname().machine == "x86_64" else "x86"
    path = tmp_path / "sys/devices/system/cpu/modalias"
    path.parent.mkdir(parents=True)
    path.write_text(f"cpu:type:{other}:feature:,0000")
    assert facts.gather_facts([], tmp_path).emulator


@pytest.mark.matrix
@pytest.mark.slow
def test_a_real_environment_with_numpy_2_beside_tflite_runtime(tmp_path: Path, bundles: dict[str, Path]) -> None:
    """The doctor names it, the interpreter really fails, the doctor's own line repairs it."""
    requirements.condition(
        sys.version_info[:2] <= (3, 11), "tflite-runtime, which has no wheel for this Python", required_in_ci=False
    )
    environment = {key: value for key, value in os.environ.items() if not key.startswith("PYTHON")}

    def run(*words: object) -> subprocess.CompletedProcess[str]:
        command = list(map(str, words))
        return subprocess.run(
            command,
            capture_output=True,
            text=True,
            timeout=600,
            cwd=tmp_path,
            env={**environment, "PYTHONPATH": str(ROOT)},
        )

    assert run(sys.executable, "-m", "venv", tmp_path / "edge").returncode == 0
    python = tmp_path / "edge" / "bin" / "python"
    assert run(python, "-m", "pip", "install", "-q", "numpy>=2", "tflite-runtime==2.14.0").returncode == 0
    command = (python, "-m", "edgekit.runner")
    sick = run(*command, "doctor", bundles["tflite"], "--json")
    found = {each["code"]: each for each in json.loads(sick.stdout)["findings"]}
    assert sick.returncode == 5 and found["numpy-2-tflite-runtime"]["severity"] == "error"
    assert run(*command, "selftest", bundles["tflite"], "--json").returncode != 0
    fixed = subprocess.run(
        ["sh", "-c", found["numpy-2-tflite-runtime"]["fix"]], cwd=tmp_path, env=environment, timeout=600
    )
    assert fixed.returncode == 0
    assert run(*command, "doctor", bundles["tflite"]).returncode == 0
    assert run(*command, "selftest", bundles["tflite"], "--json").returncode == 0


def test_pythons_of_this_machine_run_the_doctor(tmp_path: Path, write_bundle: WriteBundle) -> None:
    """Whatever Python is found here, bare as it is: a diagnosis, never a traceback."""
    found = sorted({str(path.resolve()) for name in pythons() for path in name() if path.exists()})
    path, site = write_bundle(MODELS["tflite"]), installed(tmp_path / "site")
    assert found
    for python in found:
        code, answer = ask(site, path, python=python)
        codes = [each["code"] for each in answer["findings"]]  # type: ignore[attr-defined]
        assert code == 5 and "numpy-missing" in codes and "no-interpreter" in codes, (python, codes)


def pythons() -> list[Callable[[], list[Path]]]:
    """Where Pythons from 3.9 to 3.14 may lie."""
    numbers = range(9, 15)
    return [
        lambda: [Path(sys.executable)],
        lambda: [Path(folder) / f"python3.{n}" for folder in ("/usr/bin", "/usr/local/bin") for n in numbers],
        lambda: [each for n in numbers for each in (Path.home() / ".pyenv/versions").glob(f"3.{n}.*/bin/python3.{n}")],
    ]
