"""What every kind of source keeps, and addresses and options that are refused."""

from __future__ import annotations

import importlib
from typing import Any

import pytest

from edgekit.device.live import sources
from edgekit.device.live.sources import address, base
from edgekit.runner.errors import InputError
from tests.device.live.sources import cameras

EXAMPLES = {
    "v4l2:/dev/null": cameras.PICTURE,
    "rtsp://127.0.0.1:9/x": cameras.PICTURE,
    "rtsps://127.0.0.1:9/x": cameras.PICTURE,
    "http://127.0.0.1:9/x": cameras.PICTURE,
    "https://127.0.0.1:9/x": cameras.PICTURE,
    "alsa:hw:9": cameras.SOUND,
    "serial:/dev/null": cameras.VECTOR,
}
"""Sources that cannot be connected here."""


@pytest.mark.parametrize("scheme", sources.MODULES)
def test_each_scheme_is_that_of_its_module(scheme: str) -> None:
    module = importlib.import_module(f"edgekit.device.live.sources.{sources.MODULES[scheme]}")
    assert scheme in module.SCHEMES
    assert callable(module.open)


def test_no_module_has_other_schemes() -> None:
    modules = {importlib.import_module(f"edgekit.device.live.sources.{name}") for name in sources.MODULES.values()}
    assert sorted(scheme for module in modules for scheme in module.SCHEMES) == sorted(sources.MODULES)


@pytest.mark.parametrize("text", EXAMPLES)
def test_what_cannot_be_connected(text: str) -> None:
    source = cameras.source_of(text, EXAMPLES[text], name="one")
    assert source.name == "one"
    assert source.kind == {"image": "picture", "audio": "audio", "vector": "rows"}[EXAMPLES[text].kind]
    assert source.status() == base.SourceStatus("starting", 0, 0, 0, "", 0, 0)
    with pytest.raises(InputError) as caught:
        source.check()
    assert str(caught.value).startswith(f"{text}: ")
    assert "\n" not in str(caught.value)
    assert source.status().state == "ended"
    assert source.newest(0.0) is None
    source.close()


@pytest.mark.parametrize("text", EXAMPLES)
def test_without_a_check_it_is_tried_again(text: str) -> None:
    source = cameras.source_of(text, EXAMPLES[text])
    source.start()
    source.start()
    status = cameras.status_with(source, state="reconnecting")
    assert status.detail.startswith(f"{text}: ")
    source.close()


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"rate": 0}, "rate: got 0"),
        ({"rotate": 45}, "rotate: got 45"),
        ({"flip": "left"}, "flip: got 'left'"),
        ({"size": (0, 4)}, "size: got"),
        ({"freeze_s": -1}, "freeze_s: got -1"),
    ],
)
def test_bad_options(options: dict[str, Any], expected: str) -> None:
    with pytest.raises(InputError, match=expected):
        sources.SourceOptions(**options)


@pytest.mark.parametrize("scheme", ["ftp", "RTSP"])
def test_an_unknown_scheme(scheme: str) -> None:
    with pytest.raises(InputError, match="neither a kind of source nor an existing path") as caught:
        cameras.source_of(f"{scheme}://joe:secret@host/x")
    assert "secret" not in str(caught.value)


def test_addresses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PASSWORD", "a:b@c/d'#")
    monkeypatch.setenv("HOST", "10.0.0.7")
    parsed = address.parse("rtsp://joe:${PASSWORD}@${HOST}:554/live?token=t0ken#x=1", sources.SourceOptions(), ("x",))
    assert (parsed.username, parsed.password, parsed.host) == ("joe", "a:b@c/d'#", ("10.0.0.7", 554))
    assert parsed.url == "rtsp://10.0.0.7:554/live?token=t0ken"
    assert parsed.url_with_login == "rtsp://joe:a%3Ab%40c%2Fd%27%23@10.0.0.7:554/live?token=t0ken"
    assert parsed.parameters == {"x": "1"}
    assert parsed.shown == "rtsp://***@${HOST}:554/live?token=***#x=1"
    for text in (parsed.url_with_login, parsed.password, "failed: token=t0ken"):
        shown = parsed.redact(text)
        assert "a:b" not in shown
        assert "a%3Ab" not in shown
        assert "t0ken" not in shown
    assert "a:b" not in repr(parsed)
    with pytest.raises(InputError, match="the variable NO_SUCH is not set"):
        address.parse("rtsp://joe:${NO_SUCH}@host/x", sources.SourceOptions())


@pytest.mark.parametrize("password", ["se@cret", "se/cret", "a@se/cret"])
def test_a_password_that_is_not_encoded_is_not_shown(password: str) -> None:
    assert address.hide(f"rtsp://joe:{password}@host:554/live") == "rtsp://***@host:554/live"
    assert address.hide("rtsp://host:554/live@2") == "rtsp://host:554/live@2"


def test_a_password_file_that_cannot_be_used(tmp_path: Any) -> None:
    (tmp_path / "empty").touch()
    for name, expected in (("none", "No such file"), ("empty", "its first line is empty")):
        with pytest.raises(InputError, match=expected):
            address.parse("rtsp://host/x", sources.SourceOptions(password_file=str(tmp_path / name)))
