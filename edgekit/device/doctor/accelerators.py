"""GPU and NPU: a device that the user requests needs OpenVINO, OpenVINO's plug-in for it, a driver and permissions."""

from __future__ import annotations

from collections.abc import Iterator

from edgekit.device.doctor import ERROR, DoctorCase, DoctorFinding, advice

DEVICES = ("CPU", "GPU", "NPU")
OPENVINO_PICKS = ("AUTO", "HETERO", "MULTI", "BATCH")  # with these, OpenVINO chooses the device itself
DRIVERS = {
    "GPU": "sudo apt install -y intel-opencl-icd ocl-icd-libopencl1",
    "NPU": "install Intel's linux-npu-driver release for this kernel (6.6 or newer), then: sudo modprobe intel_vpu",
}


def known_device(case: DoctorCase) -> Iterator[DoctorFinding]:
    known = (*DEVICES, *OPENVINO_PICKS)
    if case.device and case.device.partition(":")[0].partition(".")[0] not in known:
        yield DoctorFinding(
            "device-unknown", ERROR, f"--device {case.device}: no such device", f"use {', '.join(DEVICES)}"
        )


def device_needs_openvino(case: DoctorCase) -> Iterator[DoctorFinding]:
    device = _pinned(case)
    if not device:
        return
    if case.interpreter not in (None, "openvino"):
        cause = f"--device {device} works with openvino only, not with {case.interpreter}"
        yield DoctorFinding("device-interpreter", ERROR, cause, "leave out --interpreter or --device")
    elif case.target == "tflite":
        cause = f"--device {device} is for openvino and onnx bundles; this one is tflite"
        yield DoctorFinding(
            "device-interpreter", ERROR, cause, "use the openvino bundle of the same run, or --device CPU"
        )


def plugin(case: DoctorCase) -> Iterator[DoctorFinding]:
    device, openvino = _pinned(case), case.facts.has("openvino")
    if not device or not openvino or device in case.facts.plugins:
        return
    cause, fix = f"the installed openvino {openvino.version} has no plug-in for the {device}", "use --device CPU"
    if case.facts.machine == "x86_64":  # wheels for other processors do not contain one
        fix = advice.install_command(case.facts, "--force-reinstall", "openvino")
    yield DoctorFinding(f"{device.lower()}-plugin", ERROR, cause, fix)


def driver(case: DoctorCase) -> Iterator[DoctorFinding]:
    """Check the kernel's device node and, for a GPU, the OpenCL driver."""
    device, facts = _pinned(case), case.facts
    if not device:
        return
    nodes, place = (facts.render_nodes, "/dev/dri/renderD*") if device == "GPU" else (facts.accel_nodes, "/dev/accel/*")
    closed = [node for node in nodes if node in facts.closed_nodes]
    if not nodes:
        yield DoctorFinding(
            f"{device.lower()}-driver", ERROR, f"no {device} driver is loaded: there is no {place}", DRIVERS[device]
        )
    elif device == "GPU" and not facts.opencl_drivers:
        cause = "the GPU has no OpenCL driver: /etc/OpenCL/vendors names none"
        yield DoctorFinding("gpu-opencl", ERROR, cause, DRIVERS["GPU"])
    elif len(closed) == len(nodes):
        cause = f"this user may not open {closed[0]}"
        yield DoctorFinding(
            f"{device.lower()}-permission", ERROR, cause, 'sudo usermod -aG render "$USER", then log in again'
        )


def _pinned(case: DoctorCase) -> str | None:
    first = (case.device or "").partition(".")[0]  # GPU.1 means the second GPU
    return first if first in ("GPU", "NPU") else None


CHECKS = (known_device, device_needs_openvino, plugin, driver)
