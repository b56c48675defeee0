"""A push to one device and a rollback, quickly; `make fleet` has the rest."""

from __future__ import annotations

from tests.fleet.rollout.conftest import Fleet


def test_a_bundle_goes_to_a_device_and_is_taken_back(fleet: Fleet) -> None:
    only = ("--only", "d0")
    assert fleet.run(0, "push", fleet.bundles["1.0.0"], "--confirm", *only).endswith("failed 0 · unreachable 0\n")
    assert fleet.states(0, "push", fleet.bundles["2.0.0"], "--confirm", *only) == ["confirmed"]
    assert fleet.run(0, "rollback", fleet.bundles["2.0.0"], *only) == "taken back 1/1\n"
    assert fleet.report(0, "status", *only)["d0"]["version"] == "1.0.0"
