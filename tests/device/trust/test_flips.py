"""One bit flipped anywhere in what is signed, or in the signatures: refused, every time."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from edgekit.device import trust
from edgekit.device.trust import policy
from edgekit.runner import bundle
from edgekit.runner.errors import RunnerError, TrustError

from .desk import Desk

STEP = 97
"""The short test flips every 97th byte, the long one all of them; the bit moves on with the place."""


def files(desk: Desk) -> dict[str, Path]:
    kept = {name: desk.trust / name for name in (policy.POLICY, policy.SIGNATURE, policy.ROOT)}
    return {**kept, "statement": desk.statement, "signature": desk.signature}


def flipped(data: bytes, step: int, bit: int = 0) -> Iterator[bytes]:
    """The bytes with one bit flipped, in each place in turn."""
    for place in range(0, len(data), step):
        yield data[:place] + bytes([data[place] ^ 1 << (place + bit) % 8]) + data[place + 1 :]


def accepted(desk: Desk, path: Path, step: int, bit: int = 0) -> tuple[int, int]:
    """How many of the flips were taken, and how many there were."""
    data, found, tried = path.read_bytes(), 0, 0
    for changed in flipped(data, step, bit):
        path.write_bytes(changed)
        tried += 1
        try:
            desk.check(remember=False)
            found += 1
        except TrustError:
            pass
    path.write_bytes(data)
    desk.check(remember=False)
    return found, tried


@pytest.mark.parametrize("name", ["statement", "signature", policy.POLICY, policy.SIGNATURE, policy.ROOT])
def test_a_flipped_bit_here_and_there_is_refused(name: str, desk: Desk) -> None:
    found, tried = accepted(desk, files(desk)[name], STEP)
    assert found == 0 and tried >= 1


@pytest.mark.long
@pytest.mark.parametrize("name", ["statement", "signature", policy.POLICY, policy.SIGNATURE, policy.ROOT])
def test_a_flipped_bit_in_any_byte_is_refused(name: str, desk: Desk) -> None:
    path = files(desk)[name]
    assert accepted(desk, path, 1) == (0, path.stat().st_size)


@pytest.mark.long
@pytest.mark.parametrize("bit", range(1, 8))
def test_every_other_bit_of_a_signature_counts(bit: int, desk: Desk) -> None:
    """ssh-keygen itself takes a few of them for the same signature, those of its line ends."""
    assert accepted(desk, desk.signature, 1, bit) == (0, desk.signature.stat().st_size)


def test_a_flipped_bit_in_any_byte_of_the_bundle_is_refused(desk: Desk) -> None:
    """The digest that was signed is compared with that of the bytes, and the archive has one spelling anyway."""
    data = desk.bundle.read_bytes()
    signed = desk.check().sha256
    changed = list(flipped(data, 1))
    assert len(changed) == len(data)
    assert all(bundle.sha256.hexdigest(each) != signed for each in changed)
    for each in changed[::STEP]:
        with pytest.raises(RunnerError):
            bundle.read_bytes(each)
    desk.bundle.write_bytes(changed[0])
    with pytest.raises(TrustError, match="the signed statement is about"):
        trust.check_bundle(desk.bundle, desk.trust, {})


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
def test_another_spelling_of_a_signature_is_none(change: object, desk: Desk) -> None:
    assert callable(change)
    desk.signature.write_bytes(change(desk.signature.read_bytes()))
    with pytest.raises(TrustError):
        desk.check()
