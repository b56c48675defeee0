"""Processor, C library and memory: limits that no package can change."""

from __future__ import annotations

from collections.abc import Iterator

from edgekit.device.doctor import ERROR, WARNING, DoctorCase, DoctorFinding, advice, wheels
from edgekit.runner import cpu

ARM_32 = ("armv6l", "armv7l", "armv8l", "arm")
ARM_64, X86_64 = "aarch64", "x86_64"
NEEDED = {"tensorflow": ("sse4_1", "avx"), "openvino": ("sse4_1",)}
"""Instructions that the x86-64 wheels use. On a processor without them, the process dies at the first of them."""
BASE_MIB = {"litert": 45, "tflite_runtime": 45, "onnxruntime": 60, "openvino": 105, "tensorflow": 450}
"""Resident memory of a process with this interpreter, without the model."""
COPIES = 3
"""Copies of the model in memory: the file's bytes, the interpreter's copy, and the weights repacked for its kernels."""
SYSTEM_64 = "put the 64-bit Raspberry Pi OS on the card (aarch64; any Pi 3 or newer runs it)"


def musl(case: DoctorCase) -> Iterator[DoctorFinding]:
    if case.facts.musl and not case.installed:
        cause = "the C library is musl (Alpine); no interpreter has wheels for it"
        fix = "use a system with glibc: Raspberry Pi OS, Debian, Ubuntu, or the image python:3.11-slim-bookworm"
        yield DoctorFinding("musl", ERROR, cause, fix)


def bits_32(case: DoctorCase) -> Iterator[DoctorFinding]:
    """Check for 32-bit Arm, and for a 32-bit Python on a 64-bit system.

    The only wheels for 32-bit Arm are those of tflite-runtime 2.14, for Python 3.8 to 3.11 and glibc 2.34 or newer.
    """
    facts = case.facts
    if facts.machine in ARM_32:
        code, what = "arm-32-bit", f"this is 32-bit Arm ({facts.machine})"
    elif facts.bits == 32 and facts.machine in (ARM_64, X86_64):
        code, what = "python-32-bit", f"a 32-bit Python on a 64-bit kernel ({facts.machine})"
    else:
        return
    fix = "install a 64-bit Python" if facts.machine == X86_64 else SYSTEM_64
    lite = wheels.newest_wheel("tflite-runtime", facts.python, facts.architecture, facts.glibc)
    if case.installed or (lite and "tflite_runtime" in case.interpreters):
        yield DoctorFinding(code, WARNING, f"{what}: only tflite-runtime has wheels, and its int8 is slow", fix)
    else:
        yield DoctorFinding(code, ERROR, f"{what}: no suitable interpreter has wheels for it", fix)


def unknown_machine(case: DoctorCase) -> Iterator[DoctorFinding]:
    facts = case.facts
    known = {machine for wheel in wheels.WHEELS for machine in wheel.glibc}
    if facts.system == "Linux" and facts.machine not in (*known, *ARM_32) and not case.installed:
        cause = f"no interpreter has wheels for {facts.machine}"
        yield DoctorFinding(
            "architecture-unknown", ERROR, cause, "use a device with an Arm (aarch64) or x86-64 processor"
        )


def bundle_architecture(case: DoctorCase) -> Iterator[DoctorFinding]:
    supported = case.subject.architectures if case.subject else ()
    machine = cpu.ARCHITECTURE_ALIASES.get(case.facts.machine.lower(), case.facts.machine)
    if supported and machine not in {cpu.ARCHITECTURE_ALIASES.get(each, each) for each in supported}:
        cause = f"the bundle was built for {', '.join(supported)}; this machine is {case.facts.machine}"
        yield DoctorFinding(
            "bundle-architecture", ERROR, cause, f"build a bundle for {machine}, or run it on {supported[0]}"
        )


def instructions(case: DoctorCase) -> Iterator[DoctorFinding]:
    if case.facts.machine != X86_64 or not case.facts.instructions:
        return  # the kernel does not list them, so nothing can be checked
    for name in case.installed:
        distribution = wheels.distribution_of(name)
        missing = [each for each in NEEDED.get(distribution, ()) if each not in case.facts.instructions]
        if missing:
            cause = f"this processor lacks {', '.join(missing)}, which the {distribution} wheel requires"
            others = [
                each
                for each in wheels.interpreters_for(case.target or "tflite")
                if not NEEDED.get(wheels.distribution_of(each))
            ]
            line = advice.first_install_command(case.facts, others) or "run the bundle on a newer processor"
            yield DoctorFinding("instructions-missing", ERROR, cause, line, name)


def memory(case: DoctorCase) -> Iterator[DoctorFinding]:
    """Compare the memory that the model needs in the lightest suitable interpreter with that of the machine."""
    reading = case.facts.reading
    names = case.installed or case.interpreters
    if not case.subject or not reading or reading.total_bytes is None or not names:
        return
    lightest = min(names, key=lambda name: BASE_MIB[name])
    needed = BASE_MIB[lightest] * 2**20 + COPIES * case.subject.model_bytes
    for word, size, severity in (("has", reading.total_bytes, ERROR), ("has free", reading.available_bytes, WARNING)):
        if size is not None and size < needed:
            cause = f"the model needs about {_mib(needed)} in {lightest}; this machine {word} {_mib(size)}"
            fix = "prune or quantize the model, or use a device with more memory"
            if severity == WARNING:
                fix = "close other programs, or: sudo apt install -y zram-tools"
            yield DoctorFinding("memory", severity, cause, fix)
            return


def _mib(size: int) -> str:
    return f"{size / 2**20:,.0f} MiB"


CHECKS = (musl, bits_32, unknown_machine, bundle_architecture, instructions, memory)
