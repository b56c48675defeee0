"""Each attacker of docs/explanation/trust.md that signatures stop, with the real ssh-keygen."""

from __future__ import annotations

import json
import os
import shutil
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from edgekit.device import trust
from edgekit.device.trust import policy, policy_history, ssh_keygen, statement
from edgekit.device.trust.adoption import adopt_policy
from edgekit.runner.errors import TrustError

from .workstation import DAY_S, LABEL, YEAR_S, Workstation, make_bundle

THIEF = 2**31
WITH_AND_WITHOUT: tuple[dict[str, dict[str, int]] | None, ...] = ({}, None)
"""Floors at an installation, and at a load."""


def refused(workstation: Workstation, *words: str, **options: Any) -> None:
    """Check that the bundle is refused in one sentence with these words, and exit code 8."""
    with pytest.raises(TrustError) as found:
        workstation.check(**options)
    message = str(found.value)
    assert found.value.exit_code == 8 and "\n" not in message
    for word in words:
        assert word in message, message


def test_what_a_signer_of_the_policy_signed_is_trusted(workstation: Workstation) -> None:
    found = workstation.check(floors={LABEL: {"epoch": 1, "counter": 4}, "other": {"epoch": 9, "counter": 9}})
    assert (found.name, found.epoch, found.counter, found.signers) == (LABEL, 1, 5, ("anna",))
    assert found.sha256 == trust.digests.hexdigest(workstation.bundle.read_bytes())
    assert abs(found.statement_time - time.time()) < 600 and found.expires == found.statement_time + YEAR_S


@pytest.mark.parametrize("kind", ["ecdsa", "ed25519"])
def test_keys_of_each_kind_sign(kind: str, workstation: Workstation) -> None:
    from .workstation import make_key

    make_key(workstation.home / "carla", kind)
    workstation.add("carla")
    workstation.sign("carla")
    assert workstation.check().signers == ("carla",)


def test_a_foreign_key_signs_nothing(workstation: Workstation) -> None:
    workstation.forge("thief")
    refused(workstation, "signed by nobody, but the policy requires", "is not a signer of this policy")


def test_a_foreign_root_makes_no_policy(workstation: Workstation) -> None:
    workstation.put_policy("thief")
    refused(workstation, "not by the root")


def test_a_signer_makes_no_policy(workstation: Workstation) -> None:
    workstation.put_policy("anna")
    refused(workstation, "not by the root")


@pytest.mark.parametrize("namespace", ["file", "edgekit-policy", "edgekit-bundl", "edgekit-bundle2", "git"])
def test_a_signature_for_something_else_counts_for_nothing(namespace: str, workstation: Workstation) -> None:
    """So whoever signs a mail, a commit or a policy cannot have signed a bundle by it."""
    workstation.forge(namespace=namespace)
    refused(workstation, "namespace", namespace)


def test_the_root_signs_policies_for_devices_only_in_its_namespace(workstation: Workstation) -> None:
    workstation.put_policy(namespace="edgekit-bundle")
    refused(workstation, "namespace", "edgekit-policy")


def test_an_older_release_is_refused_and_the_confirmed_one_is_not(workstation: Workstation) -> None:
    refused(workstation, "counter 5 is older", "counter 6", floors={LABEL: {"epoch": 1, "counter": 6}})
    assert workstation.check(floors={LABEL: {"epoch": 1, "counter": 5}}).counter == 5
    assert workstation.check(floors=None).counter == 5


def test_a_release_replayed_after_a_newer_one_is_refused(workstation: Workstation) -> None:
    replayed = Path(shutil.copytree(workstation.home, workstation.home.parent / "replayed"))
    workstation.sign(counter=6)
    confirmed = workstation.check()
    floors = {confirmed.name: {"epoch": confirmed.epoch, "counter": confirmed.counter}}
    refused(Workstation(replayed), "older than", floors=floors)


def test_a_statement_about_another_bundle_is_refused(workstation: Workstation) -> None:
    make_bundle(workstation.bundle, "1.0.1")
    refused(workstation, "the signed statement is about")


def test_a_revoked_signer_is_refused_as_soon_as_the_policy_arrives(workstation: Workstation) -> None:
    device = workstation.home / "device"
    adopt_policy(workstation.trust, device)
    assert trust.check_bundle(workstation.bundle, device, {}).signers == ("anna",)
    workstation.add("bert")
    workstation.revoke("anna")
    assert trust.check_bundle(workstation.bundle, device, {}).signers == ("anna",), "the device has not heard of it"
    adopt_policy(workstation.trust, device)
    for floors in WITH_AND_WITHOUT:
        with pytest.raises(TrustError, match="is revoked"):
            trust.check_bundle(workstation.bundle, device, floors)
    workstation.sign("bert")
    assert trust.check_bundle(workstation.bundle, device, {}).signers == ("bert",)


def test_a_key_that_is_a_signer_and_revoked_is_revoked(workstation: Workstation) -> None:
    """A policy edited by hand may say both."""
    workstation.put_policy(revoked=[workstation.public("anna").read_text().strip()])
    refused(workstation, "anna is revoked")


def test_a_thief_with_a_signing_key_cannot_shut_the_device_for_ever(workstation: Workstation) -> None:
    """Counter 2^31 is confirmed; then the key is revoked and a new epoch begins, and an honest counter 1 is newer."""
    workstation.forge(counter=THIEF)
    stolen = workstation.check()
    floors = {stolen.name: {"epoch": stolen.epoch, "counter": stolen.counter}}
    assert stolen.counter == THIEF
    workstation.rotate(anna="anna-2")
    refused(workstation, "is revoked", floors=floors)
    refused(workstation, "is revoked", floors=None)
    workstation.sign("anna-2", counter=1)
    assert workstation.check(floors=floors).epoch == 2


def test_releases_of_an_earlier_epoch_install_no_more_but_what_runs_goes_on(workstation: Workstation) -> None:
    workstation.rotate()
    refused(workstation, "has epoch 1, but the policy has epoch 2", "sign the bundle again")
    assert workstation.check(floors=None).epoch == 1


def test_a_release_of_a_later_epoch_waits_for_its_policy(workstation: Workstation) -> None:
    workstation.forge(epoch=3)
    refused(workstation, "install the newest policy first")


def test_revoked_releases_are_refused_also_where_they_run(workstation: Workstation) -> None:
    workstation.revoke(**{LABEL: 5})
    assert workstation.check().counter == 5
    workstation.revoke(**{LABEL: 6, "other": 9})
    for floors in WITH_AND_WITHOUT:
        refused(workstation, "counter 5 is revoked", "counter 6 on", floors=floors)
    workstation.rotate()
    workstation.revoke(**{LABEL: 1})
    refused(workstation, "epoch 1, counter 5 is revoked", "epoch 2, counter 1 on", floors=None)


def test_an_older_policy_is_refused(workstation: Workstation) -> None:
    earlier = {name: (workstation.trust / name).read_bytes() for name in (policy.POLICY, policy.SIGNATURE)}
    workstation.add("bert")
    workstation.revoke("anna")
    workstation.sign("bert")
    workstation.check()
    for name, data in earlier.items():
        (workstation.trust / name).write_bytes(data)
    refused(workstation, "policy.json: has version 2, but this device has already seen version 4")


def test_a_device_that_only_looks_remembers_nothing(workstation: Workstation) -> None:
    workstation.check(remember=False)
    assert not (workstation.trust / policy_history.SEEN).exists()


def test_two_policies_of_one_version_are_not_both_believed(workstation: Workstation) -> None:
    """Two people who hold the root key may each have changed the same policy."""
    workstation.check()
    workstation.put_policy(minimum={"other": 1})
    refused(workstation, "differs from the version 2 that this device has already seen")


def test_the_memory_of_a_device_is_not_guessed(workstation: Workstation) -> None:
    workstation.check()
    seen = workstation.trust / policy_history.SEEN
    for text in ("", "{}", '{"version": 1}', '{"version": 1, "version": 2, "sha256": "", "time": ""}'):
        seen.write_text(text)
        refused(workstation, "seen.json")


@pytest.mark.parametrize("revoked", [None, "", {}, [""], ["ssh-ed25519 AAAA"], [1], [[]]])
def test_a_policy_without_a_whole_list_of_revoked_keys_is_refused(revoked: Any, workstation: Workstation) -> None:
    """ssh-keygen itself takes an empty file for a list that revokes nobody."""
    workstation.put_policy(revoked=revoked)
    refused(workstation, "policy.json")


def test_the_list_of_revoked_keys_cannot_be_emptied(workstation: Workstation) -> None:
    workstation.add("bert")
    workstation.revoke("anna")
    path = workstation.trust / policy.POLICY
    values = json.loads(path.read_bytes())
    assert values["revoked"]
    path.write_text(json.dumps({**values, "revoked": []}))
    refused(workstation, "policy.json.sig", "does not verify")


@pytest.mark.parametrize("lost", [policy.POLICY, policy.SIGNATURE, policy.ROOT])
def test_a_policy_of_which_a_file_is_missing_trusts_nobody(lost: str, workstation: Workstation) -> None:
    (workstation.trust / lost).unlink()
    refused(workstation, lost, "No such file")


def test_a_bundle_without_a_statement_or_without_a_signature_is_refused(workstation: Workstation) -> None:
    workstation.signature.unlink()
    refused(workstation, "the bundle is not signed")
    workstation.statement.unlink()
    refused(workstation, "No such file", "edgekit sign")


def test_what_has_expired_is_refused(workstation: Workstation) -> None:
    now_s = time.time()
    workstation.forge(expires=workstation.later(1))
    assert workstation.check(clock=now_s).signers == ("anna",)
    refused(workstation, "intoto.json: expired", "sign the bundle again", clock=now_s + 2 * DAY_S, remember=False)
    workstation.forge(expires=workstation.later(1000))
    refused(workstation, "policy.json: expired", "install a newer policy", clock=now_s + 366 * DAY_S)


@pytest.mark.parametrize("days", [0, -1])
def test_a_statement_that_ends_before_it_was_signed_is_none(days: int, workstation: Workstation) -> None:
    workstation.forge(expires=workstation.later(days))
    refused(workstation, "before its time", "sign again", clock=time.time() - 10 * DAY_S)


def test_a_key_counts_until_it_expires(workstation: Workstation) -> None:
    now_s = time.time()
    workstation.add("carla", now_s + 10 * DAY_S)
    workstation.sign("carla")
    assert workstation.check(clock=now_s + 9 * DAY_S, remember=False).signers == ("carla",)
    refused(workstation, "carla expired at", clock=now_s + 11 * DAY_S)


def test_ssh_keygen_itself_refuses_a_key_that_has_expired(workstation: Workstation) -> None:
    """The same rule a second time, with the time that it is given and not the system's clock."""
    data, armour = workstation.statement.read_bytes(), workstation.signature.read_bytes()
    key = policy.read_policy(workstation.trust).signers["anna"].key
    expires_s = time.time() + DAY_S
    signature = ssh_keygen.Signature(data, armour, statement.NAMESPACE, "anna", key, expires_s, "here")
    ssh_keygen.verify([signature], (), expires_s - 10)
    with pytest.raises(TrustError, match="key has expired"):
        ssh_keygen.verify([signature], (), expires_s + 10)
    with pytest.raises(TrustError, match="does not verify"):
        ssh_keygen.verify([signature], (key,), expires_s - 10)


@pytest.mark.parametrize("years", [-10, -30])
def test_a_clock_set_back_revives_no_key(years: int, workstation: Workstation) -> None:
    """Carla's key ends; a device that has seen a later time knows it, whatever its clock says."""
    now_s = time.time()
    workstation.add("carla", now_s + 10 * DAY_S)
    workstation.sign("carla")
    back = now_s + years * YEAR_S
    assert workstation.check(clock=back).signers == ("carla",), "the statement's time is all that it knows"
    refused(workstation, "carla expired", clock=back, clock_floor=now_s + 11 * DAY_S)
    workstation.forge("anna", time=workstation.later(20))
    workstation.check(clock=back)
    workstation.forge("carla", time=workstation.later(0))
    refused(workstation, "carla expired", clock=back)


def test_a_clock_ten_years_ahead_refuses_and_says_so(workstation: Workstation) -> None:
    refused(workstation, "policy.json: expired at", "or set the clock", clock=time.time() + 10 * YEAR_S)
    assert workstation.check().signers == ("anna",), "nothing was remembered of that time"


def test_a_thief_cannot_set_every_clock_far_ahead(workstation: Workstation) -> None:
    """Else a device would take everything for expired, for ever."""
    last, beyond, never = (workstation.later(days) for days in (364, 366, 2000))
    workstation.forge(time=beyond, expires=never)
    refused(workstation, "after the policy expired")
    workstation.forge(time=last, expires=never)
    workstation.check()
    later_s = time.time() + 2 * DAY_S
    assert policy_history.read_history(workstation.trust).time_s > later_s
    workstation.rotate(anna="anna-2")
    workstation.sign("anna-2", days=500)
    assert workstation.check(floors={LABEL: {"epoch": 1, "counter": 5}}).epoch == 2


def test_two_signers_are_two_people(workstation: Workstation) -> None:
    workstation.add("bert")
    workstation.rotate(threshold=2)
    workstation.sign("anna")
    refused(workstation, "signed by anna, but the policy requires 2")
    shutil.copy(workstation.signature, f"{workstation.signature}.2")
    refused(workstation, "requires 2", "anna has signed twice")
    os.unlink(f"{workstation.signature}.2")
    workstation.sign("bert", cosign=True)
    assert workstation.check().signers == ("anna", "bert")
    workstation.revoke("bert")
    refused(workstation, "requires 2", "is revoked")


def test_a_policy_gives_one_key_only_one_name(workstation: Workstation) -> None:
    signers = json.loads((workstation.trust / policy.POLICY).read_bytes())["signers"]
    workstation.put_policy(signers={**signers, "bert": signers["anna"]}, threshold=2)
    refused(workstation, "signers: two of them have the same key")


def test_a_signature_that_nobody_knows_neither_helps_nor_harms(workstation: Workstation) -> None:
    foreign = Workstation(Path(shutil.copytree(workstation.home, workstation.home.parent / "foreign")))
    foreign.forge("thief", counter=5)
    workstation.put(foreign.statement.read_bytes())
    Path(f"{workstation.signature}.2").write_bytes(foreign.signature.read_bytes())
    assert workstation.check().signers == ("anna",)


def test_a_damaged_signature_of_a_signer_harms(workstation: Workstation) -> None:
    workstation.add("bert")
    Path(f"{workstation.signature}.1").write_bytes(workstation.signature.read_bytes()[:-40] + b"\n")
    refused(workstation, ".sig.1: not a signature")


def test_another_statement_put_there_during_the_check_is_not_the_one_that_is_read(workstation: Workstation) -> None:
    """A thief swaps the two statements all the time; what is trusted is always the one that was signed."""
    honest, stolen = (
        workstation.statement.read_bytes(),
        workstation.statement.read_bytes().replace(b'"counter":5', b'"counter":9'),
    )
    assert honest != stolen
    done = threading.Event()

    def swap() -> None:
        side = workstation.home / "side"
        while not done.is_set():
            for data in (stolen, honest):
                side.write_bytes(data)
                os.replace(side, workstation.statement)

    thief = threading.Thread(target=swap)
    thief.start()
    counters, refusals = [], 0
    try:
        for _ in range(8):
            try:
                counters.append(workstation.check().counter)
            except TrustError as error:
                assert "does not verify" in str(error)
                refusals += 1
    finally:
        done.set()
        thief.join()
    assert counters == [5] * len(counters) and len(counters) + refusals == 8


def test_the_caller_says_which_bytes_it_has_read(workstation: Workstation) -> None:
    """So that nothing can be swapped between the check and the use."""
    digest = workstation.check().sha256
    workstation.bundle.write_bytes(b"swapped")
    assert workstation.check(sha256=digest).sha256 == digest
    refused(workstation, "the signed statement is about")


@pytest.mark.parametrize("name", ["statement", "signature"])
def test_links_and_pipes_are_not_followed(name: str, workstation: Workstation) -> None:
    path: Path = getattr(workstation, name)
    path.rename(workstation.home / "elsewhere")
    path.symlink_to(workstation.home / "elsewhere")
    refused(workstation, path.name, "cannot be read")
    path.unlink()
    os.mkfifo(path)
    refused(workstation, path.name, "not a regular file")


def test_a_folder_in_which_others_can_write_trusts_nobody(workstation: Workstation) -> None:
    workstation.trust.chmod(0o770)
    refused(workstation, "other users can write there (user", "mode 770)")
    workstation.trust.chmod(0o700)
    assert workstation.check().signers == ("anna",)


def test_without_ssh_keygen_nothing_is_trusted(workstation: Workstation, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ssh_keygen, "PROGRAMS", ("/nowhere/ssh-keygen",))
    refused(workstation, "ssh-keygen: not found as /nowhere/ssh-keygen", "openssh-client")


def test_an_ssh_keygen_that_says_nothing_is_not_believed(
    workstation: Workstation, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Something else of that name, which ends with 0."""
    other = workstation.home / "bin" / "ssh-keygen"
    other.parent.mkdir()
    other.symlink_to("/bin/true")
    monkeypatch.setattr(ssh_keygen, "PROGRAMS", (str(other),))
    refused(workstation, "does not verify")


def test_what_ssh_keygen_gets_lies_where_nobody_else_looks(
    workstation: Workstation, monkeypatch: pytest.MonkeyPatch
) -> None:
    private = workstation.home / "private"
    private.mkdir()
    monkeypatch.setenv("TMPDIR", str(private))
    with ssh_keygen.private_folder() as folder:
        assert Path(folder).parent == private and Path(folder).stat().st_mode & 0o777 == 0o700
    workstation.check()
    workstation.forge("thief")
    refused(workstation, "not a signer")
    assert list(private.iterdir()) == []
