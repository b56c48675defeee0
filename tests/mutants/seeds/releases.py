"""Faults in the releases of a device: what a kill at a bad moment, or a bad release, would leave behind."""

from __future__ import annotations

from tests.mutants.seeds.seed import Seed

KILLED = ("tests/device/releases/test_killed.py",)

RELEASES = (
    Seed(
        "turned-without-a-rename",
        "device/releases/transitions.py",
        "        os.replace(temporary, home.current)\n",
        "        remove_file(home.current)\n        os.replace(temporary, home.current)\n",
        "a device that is switched off at that moment has no release",
        KILLED,
    ),
    Seed(
        "trial-written-after-the-turn",
        "device/releases/transitions.py",
        "    records.write_probation(home, Probation(number, records.current_number(home), tries))\n"
        "    _point_current_to(home, number)\n",
        "    probation = Probation(number, records.current_number(home), tries)\n"
        "    _point_current_to(home, number)\n    records.write_probation(home, probation)\n",
        "a release that was never tried counts as confirmed",
        KILLED,
    ),
    Seed(
        "release-built-in-its-place",
        "device/releases/installation.py",
        '    folder = home.releases / f".{number}.tmp"\n',
        "    folder = home.release(number)\n",
        "half a release stands where a whole one is expected",
        KILLED,
    ),
    Seed(
        "try-spent-after-the-start",
        "device/releases/transitions.py",
        "probation._replace(tries=tries - 1, boot=boot",
        "probation._replace(tries=tries, boot=boot",
        "a release that takes the machine down is started for ever",
        ("tests/device/releases/test_boot.py",),
    ),
    Seed(
        "digest-of-a-release-not-compared",
        "device/releases/current_release.py",
        "if hashlib.sha256(data).hexdigest() != sha256:",
        "if not data:",
        "a file that was put in a release's place is run",
        ("tests/device/releases/test_current.py",),
    ),
)
