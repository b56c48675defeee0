"""Objects in a stream of bytes, however it is cut, and answers that clients can split."""

from __future__ import annotations

import json

import pytest

from edgekit.device.eim import messages
from edgekit.device.eim.messages import MessageSplitter
from edgekit.runner.errors import InputError

STREAM = [{"hello": 1, "id": 1}, {"a": {"b": ['}"{', "\\", '\\"{']}, "id": 2}, {"classify": [1.5, -2e-7], "id": 3}]


@pytest.mark.parametrize("between", ["", "\n", "\0", " \r\n\0"])
@pytest.mark.parametrize("step", [1, 2, 7, 1000])
def test_objects_are_found_whatever_separates_and_cuts_them(between: str, step: int) -> None:
    stream = between.join(json.dumps(each) for each in STREAM).encode()
    splitter = MessageSplitter(1000)
    found = [each for at in range(0, len(stream), step) for each in splitter.split(stream[at : at + step])]
    assert [messages.parse(each) for each in found] == STREAM


@pytest.mark.parametrize("wrong", [b"hello", b'{"id": 1} ]', b'"{}"', b"\xff"])
def test_something_else_between_objects_is_refused(wrong: bytes) -> None:
    with pytest.raises(InputError, match="the message begins with .* send a JSON object"):
        list(MessageSplitter(1000).split(wrong))


def test_an_object_is_refused_as_soon_as_it_is_too_long() -> None:
    splitter = MessageSplitter(100)
    assert len(list(splitter.split(b'{"a": "%s"}' % (b"x" * 91)))) == 1  # exactly 100 bytes
    with pytest.raises(InputError, match="more than 100 bytes"):
        list(splitter.split(b'{"a": "%s"}' % (b"x" * 92)))
    endless = MessageSplitter(100)
    assert list(endless.split(b'{"a": [' + b"1," * 40)) == []
    with pytest.raises(InputError, match="more than 100 bytes"):
        list(endless.split(b"1," * 40))


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ('{"id": 7, "classify": [1, }', "Expecting value"),
        ('{"id": 7, "classify": ' + "[" * 5000 + "]" * 5000 + "}", "nested too deeply"),
        ('{"id": 7, "classify": [' + "9" * 100_000 + "]}", "Exceeds the limit"),
        ('{"id": 7, "classify": "\\ud800\xff"}', "utf-8"),
    ],
)
def test_what_is_not_json_is_refused_but_its_id_is_found(text: str, reason: str) -> None:
    data = text.encode("latin-1")
    with pytest.raises(InputError, match=f"^the message is not JSON: .*{reason}"):
        messages.parse(data)
    assert messages.find_id(data) == 7


def test_clients_that_count_braces_split_answers_right() -> None:
    answer = {"result": {"classification": {"}{": 1.0, '"{"': 0.5, "größer\n\\": 0.0}}, "id": 1}
    data = messages.encode(answer)
    assert data.endswith(b"\n\0") and data.count(b"\n") == 1 and data.isascii()
    assert data.count(b"{") == data.count(b"}") == 3
    assert json.loads(data[:-1]) == answer
