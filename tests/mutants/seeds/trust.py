"""Faults in signed mode, and in what a class of devices decides."""

from __future__ import annotations

from tests.mutants.seeds.seed import Seed

SIGNED = ("tests/device/releases/test_signed.py",)

TRUST = (
    Seed(
        "floor-not-raised",
        "device/releases/records.py",
        "        facts = trust_record(home, number) if is_confirmed(home, number) else None\n",
        "        facts: Any = None\n",
        "an older release that somebody signed once is installed over the one that was confirmed",
        SIGNED,
    ),
    Seed(
        "floor-asked-at-loads",
        "device/releases/current_release.py",
        "        check_trust(home, self.number, None, self.sha256)\n",
        "        check_trust(home, self.number, records.version_floors(home), self.sha256)\n",
        "the release that a device has gone back to does not start",
        SIGNED,
    ),
    Seed(
        "revoked-key-counts",
        "device/trust/__init__.py",
        "        if key in rules.revoked:\n",
        "        if key in rules.revoked and name is None:\n",
        "a stolen key goes on signing, where its owner has another one",
        ("tests/device/trust/test_attackers.py", *SIGNED),
    ),
    Seed(
        "statement-about-any-bundle",
        "device/trust/__init__.py",
        "    if release.sha256 != digest:\n",
        "    if not release.sha256:\n",
        "a signature of one bundle lets another in",
        SIGNED,
    ),
    Seed(
        "fastest-device-decides",
        "stages/benchmark/devices.py",
        "    slowest = max(sorted(timings)",
        "    slowest = min(sorted(timings)",
        "half of the class misses the budget that the run says is met",
        ("tests/stages/benchmark/test_devices.py",),
    ),
)
