"""`edgerun doctor`: report whether a bundle will run on this device, and how to fix what would keep it from running.

Neither NumPy nor any interpreter is imported.
"""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from edgekit.runner.commands import _shared
from edgekit.runner.errors import DoctorError

if TYPE_CHECKING:
    from edgekit.device.trust.ssh_keygen import VerifierFault

HELP = "report what would keep a bundle from running here, with the command that fixes it"


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's options."""
    parser.add_argument("bundle", metavar="BUNDLE", nargs="?", help="a file that ends in .edge.zip (default: none)")
    parser.add_argument(
        "--interpreter",
        metavar="NAME",
        type=_shared.interpreter_name,
        help="interpreter that must work (default: any that can)",
    )
    parser.add_argument("--device", metavar="NAME", help="OpenVINO's device that must work: CPU, GPU or NPU")
    parser.add_argument(
        "--input", metavar="FILE", help="a file whose type must be readable as a sample; only its name is checked"
    )
    _shared.add_json_argument(parser)


def run(options: argparse.Namespace) -> None:
    """Print the facts and the findings. Raises DoctorError if a finding keeps the bundle from running."""
    from edgekit.device import doctor
    from edgekit.device.doctor import bundle_requirements, report
    from edgekit.device.hardware import facts

    requirements = bundle_requirements.read_requirements(options.bundle) if options.bundle else None
    case = doctor.DoctorCase(
        facts.gather_facts(), requirements, options.interpreter, options.device, options.input, _verifier()
    )
    findings = doctor.examine(case)
    if options.json:
        _shared.print_json(report.to_dict(case, findings))
    else:
        for line in report.text_lines(case, findings):
            print(line)
    if doctor.blocks(findings):
        codes = ", ".join(sorted({each.code for each in findings if each.severity == doctor.ERROR}))
        subject = "the bundle" if options.bundle else "a bundle"
        raise DoctorError(f"doctor: {subject} would not run on this device ({codes}); see the fixes above")


def _verifier() -> VerifierFault | None:
    """Return the problem that keeps ssh-keygen from verifying signatures here.

    Returns None if there is no problem, or if the device is not in signed mode.
    """
    from edgekit.runner import device_home

    if not device_home.homes_with_policy(device_home.find_home()):
        return None
    from edgekit.device.trust import ssh_keygen

    return ssh_keygen.find_fault()
