"""One bit flipped anywhere in what is signed, or in the signatures: refused, every time."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from edgekit.device import trust
from edgekit.device.trust import policy
from edgekit.runner import bundle
from edgekit.runner.errors import RunnerError, TrustError

from .workstation import Workstation

STEP = 97
"""The short test flips every 97th byte, the long one all of them; the bit moves on with the place."""


def files(workstation: Workstation) -> dict[str, Path]:
    kept = {name: workstation.trust / name for name in (policy.POLICY, policy.SIGNATURE, policy.ROOT)}
    return {**kept, "statement": workstation.statement, "signature": workstation.signature}


def flipped(data: bytes, step: int, bit: int = 0) -> Iterator[bytes]:
    """The bytes with one bit flipped, in each place in turn."""
    for place in range(0, len(data), step):
        yield data[:place] + bytes([data[place] ^ 1 << (place + bit) % 8]) + data[place + 1 :]


def accepted(workstation: Workstation, path: Path, step: int, bit: int = 0) -> tuple[int, int]:
    """How many of the flips were taken, and how many there were."""
    data, found, tried = path.read_bytes(), 0, 0
    for changed in flipped(data, step, bit):
        path.write_bytes(changed)
        tried += 1
        try:
            workstation.check(remember=False)
            found += 1
        except TrustError:
            pass
    path.write_bytes(data)
    workstation.check(remember=False)
    return found, tried


@pytest.mark.parametrize("name", ["statement", "signature", policy.POLICY, policy.SIGNATURE, policy.ROOT])
def test_a_flipped_bit_here_and_there_is_refused(name: str, workstation: Workstation) -> None:
    found, tried = accepted(workstation, files(workstation)[name], STEP)
    assert found == 0 and tried >= 1


@pytest.mark.long
@pytest.mark.parametrize("name", ["statement", "signature", policy.POLICY, policy.SIGNATURE, policy.ROOT])
def test_a_flipped_bit_in_any_byte_is_refused(name: str, workstation: Workstation) -> None:
    path = files(workstation)[name]
    assert accepted(workstation, path, 1) == (0, path.stat().st_size)


@pytest.mark.long
@pytest.mark.parametrize("bit", range(1, 8))
def test_every_other_bit_of_a_signature_counts(bit: int, workstation: Workstation) -> None:
    """ssh-keygen itself takes a few of them for the same signature, those of its line ends."""
    assert accepted(workstation, workstation.signature, 1, bit) == (0, workstation.signature.stat().st_size)


def test_a_flipped_bit_in_any_byte_of_the_bundle_is_refused(workstation: Workstation) -> None:
    """The digest that was signed is compared with that of the bytes, and the archive has one spelling anyway."""
    data = workstation.bundle.read_bytes()
    signed = workstation.check().sha256
    changed = list(flipped(data, 1))
    assert len(changed) == len(data)
    assert all(bundle.sha256.hexdigest(each) != signed for each in changed)
    for each in changed[::STEP]:
        with pytest.raises(RunnerError):
            bundle.read_bytes(each)
    workstation.bundle.write_bytes(changed[0])
    with pytest.raises(TrustError, match="the signed statement is about"):
        trust.check_bundle(workstation.bundle, workstation.trust, {})


@pytest.mark.parametrize(
    "change",
    [
        lambda text: text.replace(b"\n", b"\r\n"),
        lambda text: text + b"\n",
        lambda text: b"\n" + text,
        lambda text: text.rstrip(b"\n"),
        lambda text: text.replace(b"\n", b" \n", 1),
        lambda text: text + text,
        lambda text: text.replace(b"=", b""),
        lambda text: text[:40] + text[41:],
        lambda text: b"",
        lambda text: text + b"x" * 5000,
        lambda text: text[: len(text) // 2],
    ],
)
def test_another_spelling_of_a_signature_is_none(change: object, workstation: Workstation) -> None:
    assert callable(change)
    workstation.signature.write_bytes(change(workstation.signature.read_bytes()))
    with pytest.raises(TrustError):
        workstation.check()
