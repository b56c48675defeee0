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

from .desk import DAY_S, LABEL, YEAR_S, Desk, make_bundle

THIEF = 2**31
WITH_AND_WITHOUT: tuple[dict[str, dict[str, int]] | None, ...] = ({}, None)
"""Floors at an installation, and at a load."""


def refused(desk: Desk, *words: str, **options: Any) -> None:
    """One sentence with these words, and exit code 8."""
    with pytest.raises(TrustError) as found:
        desk.check(**options)
    said = str(found.value)
    assert found.value.exit_code == 8 and "\n" not in said
    for word in words:
        assert word in said, said


def test_what_a_signer_of_the_policy_signed_is_trusted(desk: Desk) -> None:
    found = desk.check(floors={LABEL: {"epoch": 1, "counter": 4}, "other": {"epoch": 9, "counter": 9}})
    assert (found.name, found.epoch, found.counter, found.signers) == (LABEL, 1, 5, ("anna",))
    assert found.sha256 == trust.digests.hexdigest(desk.bundle.read_bytes())
    assert abs(found.statement_time - time.time()) < 600 and found.expires == found.statement_time + YEAR_S


@pytest.mark.parametrize("kind", ["ecdsa", "ed25519"])
def test_keys_of_each_kind_sign(kind: str, desk: Desk) -> None:
    from .desk import make_key

    make_key(desk.home / "carla", kind)
    desk.add("carla")
    desk.sign("carla")
    assert desk.check().signers == ("carla",)


def test_a_foreign_key_signs_nothing(desk: Desk) -> None:
    desk.forge("thief")
    refused(desk, "signed by nobody, but the policy requires", "is not a signer of this policy")


def test_a_foreign_root_makes_no_policy(desk: Desk) -> None:
    desk.put_policy("thief")
    refused(desk, "not by the root")


def test_a_signer_makes_no_policy(desk: Desk) -> None:
    desk.put_policy("anna")
    refused(desk, "not by the root")


@pytest.mark.parametrize("namespace", ["file", "edgekit-policy", "edgekit-bundl", "edgekit-bundle2", "git"])
def test_a_signature_for_something_else_counts_for_nothing(namespace: str, desk: Desk) -> None:
    """So nobody can be made to sign a bundle by being asked to sign a mail, a commit or a policy."""
    desk.forge(namespace=namespace)
    refused(desk, "namespace", namespace)


def test_the_root_signs_policies_for_devices_only_in_its_namespace(desk: Desk) -> None:
    desk.put_policy(namespace="edgekit-bundle")
    refused(desk, "namespace", "edgekit-policy")


def test_an_older_release_is_refused_and_the_confirmed_one_is_not(desk: Desk) -> None:
    refused(desk, "counter 5 is older", "counter 6", floors={LABEL: {"epoch": 1, "counter": 6}})
    assert desk.check(floors={LABEL: {"epoch": 1, "counter": 5}}).counter == 5
    assert desk.check(floors=None).counter == 5


def test_a_release_replayed_after_a_newer_one_is_refused(desk: Desk) -> None:
    replayed = Path(shutil.copytree(desk.home, desk.home.parent / "replayed"))
    desk.sign(counter=6)
    confirmed = desk.check()
    floors = {confirmed.name: {"epoch": confirmed.epoch, "counter": confirmed.counter}}
    refused(Desk(replayed), "older than", floors=floors)


def test_a_statement_about_another_bundle_is_refused(desk: Desk) -> None:
    make_bundle(desk.bundle, "1.0.1")
    refused(desk, "the signed statement is about")


def test_a_revoked_signer_is_refused_as_soon_as_the_policy_arrives(desk: Desk) -> None:
    device = desk.home / "device"
    adopt_policy(desk.trust, device)
    assert trust.check_bundle(desk.bundle, device, {}).signers == ("anna",)
    desk.add("bert")
    desk.revoke("anna")
    assert trust.check_bundle(desk.bundle, device, {}).signers == ("anna",), "the device has not heard of it"
    adopt_policy(desk.trust, device)
    for floors in WITH_AND_WITHOUT:
        with pytest.raises(TrustError, match="is revoked"):
            trust.check_bundle(desk.bundle, device, floors)
    desk.sign("bert")
    assert trust.check_bundle(desk.bundle, device, {}).signers == ("bert",)


def test_a_key_that_is_a_signer_and_revoked_is_revoked(desk: Desk) -> None:
    """A policy edited by hand may say both."""
    desk.put_policy(revoked=[desk.public("anna").read_text().strip()])
    refused(desk, "anna is revoked")


def test_a_thief_with_a_signing_key_cannot_shut_the_device_for_ever(desk: Desk) -> None:
    """Counter 2^31 is confirmed; then the key is revoked and a new epoch begins, and an honest counter 1 is newer."""
    desk.forge(counter=THIEF)
    stolen = desk.check()
    floors = {stolen.name: {"epoch": stolen.epoch, "counter": stolen.counter}}
    assert stolen.counter == THIEF
    desk.rotate(anna="anna-2")
    refused(desk, "is revoked", floors=floors)
    refused(desk, "is revoked", floors=None)
    desk.sign("anna-2", counter=1)
    assert desk.check(floors=floors).epoch == 2


def test_releases_of_an_earlier_epoch_install_no_more_but_what_runs_goes_on(desk: Desk) -> None:
    desk.rotate()
    refused(desk, "has epoch 1, but the policy has epoch 2", "sign the bundle again")
    assert desk.check(floors=None).epoch == 1


def test_a_release_of_a_later_epoch_waits_for_its_policy(desk: Desk) -> None:
    desk.forge(epoch=3)
    refused(desk, "install the newest policy first")


def test_revoked_releases_are_refused_also_where_they_run(desk: Desk) -> None:
    desk.revoke(**{LABEL: 5})
    assert desk.check().counter == 5
    desk.revoke(**{LABEL: 6, "other": 9})
    for floors in WITH_AND_WITHOUT:
        refused(desk, "counter 5 is revoked", "counter 6 on", floors=floors)
    desk.rotate()
    desk.revoke(**{LABEL: 1})
    refused(desk, "epoch 1, counter 5 is revoked", "epoch 2, counter 1 on", floors=None)


def test_an_older_policy_is_refused(desk: Desk) -> None:
    earlier = {name: (desk.trust / name).read_bytes() for name in (policy.POLICY, policy.SIGNATURE)}
    desk.add("bert")
    desk.revoke("anna")
    desk.sign("bert")
    desk.check()
    for name, data in earlier.items():
        (desk.trust / name).write_bytes(data)
    refused(desk, "policy.json: has version 2, but this device has already seen version 4")


def test_a_device_that_only_looks_remembers_nothing(desk: Desk) -> None:
    desk.check(remember=False)
    assert not (desk.trust / policy_history.SEEN).exists()


def test_two_policies_of_one_version_are_not_both_believed(desk: Desk) -> None:
    """Two people who hold the root key may each have changed the same policy."""
    desk.check()
    desk.put_policy(minimum={"other": 1})
    refused(desk, "differs from the version 2 that this device has already seen")


def test_the_memory_of_a_device_is_not_guessed(desk: Desk) -> None:
    desk.check()
    seen = desk.trust / policy_history.SEEN
    for text in ("", "{}", '{"version": 1}', '{"version": 1, "version": 2, "sha256": "", "time": ""}'):
        seen.write_text(text)
        refused(desk, "seen.json")


@pytest.mark.parametrize("revoked", [None, "", {}, [""], ["ssh-ed25519 AAAA"], [1], [[]]])
def test_a_policy_without_a_whole_list_of_revoked_keys_is_refused(revoked: Any, desk: Desk) -> None:
    """ssh-keygen itself takes an empty file for a list that revokes nobody."""
    desk.put_policy(revoked=revoked)
    refused(desk, "policy.json")


def test_the_list_of_revoked_keys_cannot_be_emptied(desk: Desk) -> None:
    desk.add("bert")
    desk.revoke("anna")
    path = desk.trust / policy.POLICY
    values = json.loads(path.read_bytes())
    assert values["revoked"]
    path.write_text(json.dumps({**values, "revoked": []}))
    refused(desk, "policy.json.sig", "does not verify")


@pytest.mark.parametrize("lost", [policy.POLICY, policy.SIGNATURE, policy.ROOT])
def test_a_policy_of_which_a_file_is_missing_trusts_nobody(lost: str, desk: Desk) -> None:
    (desk.trust / lost).unlink()
    refused(desk, lost, "No such file")


def test_a_bundle_without_a_statement_or_without_a_signature_is_refused(desk: Desk) -> None:
    desk.signature.unlink()
    refused(desk, "the bundle is not signed")
    desk.statement.unlink()
    refused(desk, "No such file", "edgekit sign")


def test_what_has_expired_is_refused(desk: Desk) -> None:
    now_s = time.time()
    desk.forge(expires=desk.later(1))
    assert desk.check(clock=now_s).signers == ("anna",)
    refused(desk, "intoto.json: expired", "sign the bundle again", clock=now_s + 2 * DAY_S, remember=False)
    desk.forge(expires=desk.later(1000))
    refused(desk, "policy.json: expired", "install a newer policy", clock=now_s + 366 * DAY_S)


@pytest.mark.parametrize("days", [0, -1])
def test_a_statement_that_ends_before_it_was_signed_is_none(days: int, desk: Desk) -> None:
    desk.forge(expires=desk.later(days))
    refused(desk, "before its time", "sign again", clock=time.time() - 10 * DAY_S)


def test_a_key_counts_until_it_expires(desk: Desk) -> None:
    now_s = time.time()
    desk.add("carla", now_s + 10 * DAY_S)
    desk.sign("carla")
    assert desk.check(clock=now_s + 9 * DAY_S, remember=False).signers == ("carla",)
    refused(desk, "carla expired at", clock=now_s + 11 * DAY_S)


def test_ssh_keygen_itself_refuses_a_key_that_has_expired(desk: Desk) -> None:
    """The same rule a second time, with the time that it is given and not the system's clock."""
    data, armour = desk.statement.read_bytes(), desk.signature.read_bytes()
    key = policy.read_policy(desk.trust).signers["anna"].key
    expires_s = time.time() + DAY_S
    signature = ssh_keygen.Signature(data, armour, statement.NAMESPACE, "anna", key, expires_s, "here")
    ssh_keygen.verify([signature], (), expires_s - 10)
    with pytest.raises(TrustError, match="key has expired"):
        ssh_keygen.verify([signature], (), expires_s + 10)
    with pytest.raises(TrustError, match="does not verify"):
        ssh_keygen.verify([signature], (key,), expires_s - 10)


@pytest.mark.parametrize("years", [-10, -30])
def test_a_clock_set_back_revives_no_key(years: int, desk: Desk) -> None:
    """Carla's key ends; a device that has seen a later time knows it, whatever its clock says."""
    now_s = time.time()
    desk.add("carla", now_s + 10 * DAY_S)
    desk.sign("carla")
    back = now_s + years * YEAR_S
    assert desk.check(clock=back).signers == ("carla",), "the statement's time is all that it knows"
    refused(desk, "carla expired", clock=back, clock_floor=now_s + 11 * DAY_S)
    desk.forge("anna", time=desk.later(20))
    desk.check(clock=back)
    desk.forge("carla", time=desk.later(0))
    refused(desk, "carla expired", clock=back)


def test_a_clock_ten_years_ahead_refuses_and_says_so(desk: Desk) -> None:
    refused(desk, "policy.json: expired at", "or set the clock", clock=time.time() + 10 * YEAR_S)
    assert desk.check().signers == ("anna",), "nothing was remembered of that time"


def test_a_thief_cannot_set_every_clock_far_ahead(desk: Desk) -> None:
    """Else a device would take everything for expired, for ever."""
    last, beyond, never = (desk.later(days) for days in (364, 366, 2000))
    desk.forge(time=beyond, expires=never)
    refused(desk, "after the policy expired")
    desk.forge(time=last, expires=never)
    desk.check()
    later_s = time.time() + 2 * DAY_S
    assert policy_history.read_history(desk.trust).time_s > later_s
    desk.rotate(anna="anna-2")
    desk.sign("anna-2", days=500)
    assert desk.check(floors={LABEL: {"epoch": 1, "counter": 5}}).epoch == 2


def test_two_signers_are_two_people(desk: Desk) -> None:
    desk.add("bert")
    desk.rotate(threshold=2)
    desk.sign("anna")
    refused(desk, "signed by anna, but the policy requires 2")
    shutil.copy(desk.signature, f"{desk.signature}.2")
    refused(desk, "requires 2", "anna has signed twice")
    os.unlink(f"{desk.signature}.2")
    desk.sign("bert", cosign=True)
    assert desk.check().signers == ("anna", "bert")
    desk.revoke("bert")
    refused(desk, "requires 2", "is revoked")


def test_a_policy_gives_one_key_only_one_name(desk: Desk) -> None:
    signers = json.loads((desk.trust / policy.POLICY).read_bytes())["signers"]
    desk.put_policy(signers={**signers, "bert": signers["anna"]}, threshold=2)
    refused(desk, "signers: two of them have the same key")


def test_a_signature_that_nobody_knows_neither_helps_nor_harms(desk: Desk) -> None:
    foreign = Desk(Path(shutil.copytree(desk.home, desk.home.parent / "foreign")))
    foreign.forge("thief", counter=5)
    desk.put(foreign.statement.read_bytes())
    Path(f"{desk.signature}.2").write_bytes(foreign.signature.read_bytes())
    assert desk.check().signers == ("anna",)


def test_a_damaged_signature_of_a_signer_harms(desk: Desk) -> None:
    desk.add("bert")
    Path(f"{desk.signature}.1").write_bytes(desk.signature.read_bytes()[:-40] + b"\n")
    refused(desk, ".sig.1: not a signature")


def test_another_statement_put_there_during_the_check_is_not_the_one_that_is_read(desk: Desk) -> None:
    """A thief swaps the two statements all the time; what is trusted is always the one that was signed."""
    honest, stolen = desk.statement.read_bytes(), desk.statement.read_bytes().replace(b'"counter":5', b'"counter":9')
    assert honest != stolen
    done = threading.Event()

    def swap() -> None:
        side = desk.home / "side"
        while not done.is_set():
            for data in (stolen, honest):
                side.write_bytes(data)
                os.replace(side, desk.statement)

    thief = threading.Thread(target=swap)
    thief.start()
    counters, refusals = [], 0
    try:
        for _ in range(8):
            try:
                counters.append(desk.check().counter)
            except TrustError as error:
                assert "does not verify" in str(error)
                refusals += 1
    finally:
        done.set()
        thief.join()
    assert counters == [5] * len(counters) and len(counters) + refusals == 8


def test_the_caller_says_which_bytes_it_has_read(desk: Desk) -> None:
    """So that nothing can be swapped between the check and the use."""
    digest = desk.check().sha256
    desk.bundle.write_bytes(b"swapped")
    assert desk.check(sha256=digest).sha256 == digest
    refused(desk, "the signed statement is about")


@pytest.mark.parametrize("name", ["statement", "signature"])
def test_links_and_pipes_are_not_followed(name: str, desk: Desk) -> None:
    path: Path = getattr(desk, name)
    path.rename(desk.home / "elsewhere")
    path.symlink_to(desk.home / "elsewhere")
    refused(desk, path.name, "cannot be read")
    path.unlink()
    os.mkfifo(path)
    refused(desk, path.name, "not a regular file")


def test_a_folder_in_which_others_can_write_trusts_nobody(desk: Desk) -> None:
    desk.trust.chmod(0o770)
    refused(desk, "other users can write there (user", "mode 770)")
    desk.trust.chmod(0o700)
    assert desk.check().signers == ("anna",)


def test_without_ssh_keygen_nothing_is_trusted(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ssh_keygen, "PROGRAMS", ("/nowhere/ssh-keygen",))
    refused(desk, "ssh-keygen: not found as /nowhere/ssh-keygen", "openssh-client")


def test_an_ssh_keygen_that_says_nothing_is_not_believed(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    """Something else of that name, which ends with 0."""
    other = desk.home / "bin" / "ssh-keygen"
    other.parent.mkdir()
    other.symlink_to("/bin/true")
    monkeypatch.setattr(ssh_keygen, "PROGRAMS", (str(other),))
    refused(desk, "does not verify")


def test_what_ssh_keygen_gets_lies_where_nobody_else_looks(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    private = desk.home / "private"
    private.mkdir()
    monkeypatch.setenv("TMPDIR", str(private))
    with ssh_keygen.private_folder() as folder:
        assert Path(folder).parent == private and Path(folder).stat().st_mode & 0o777 == 0o700
    desk.check()
    desk.forge("thief")
    refused(desk, "not a signer")
    assert list(private.iterdir()) == []
