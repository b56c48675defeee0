"""A headless Chromium, driven through its DevTools: pages at a given width, in light or dark, and their errors."""

from __future__ import annotations

import base64
import json
import os
import subprocess
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import websocket

FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-dev-shm-usage",
    "--disable-background-networking", "--disable-component-update", "--disable-sync", "--disable-extensions",
    "--no-default-browser-check", "--mute-audio", "--remote-debugging-port=0", "--remote-allow-origins=*",
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
)  # fmt: skip
START_S = 60.0
REPLY_S = 60.0
END_S = 30.0


@dataclass
class Browser:
    """One tab. `complaints` are console messages, log entries and exceptions since the last `open`."""

    process: subprocess.Popen[bytes] = field(repr=False)
    socket: websocket.WebSocket = field(repr=False)
    complaints: list[str] = field(default_factory=list)
    requested: list[str] = field(default_factory=list)
    last: int = 0

    @classmethod
    def start(cls, program: str, profile: Path) -> Browser:
        """With a new user folder; the port is the one that Chromium writes down there. What fails leaves no process."""
        process = subprocess.Popen(
            [program, *FLAGS, f"--user-data-dir={profile}", "about:blank"],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env={name: value for name, value in os.environ.items() if "proxy" not in name.lower()},
        )
        try:
            browser = cls(process, _tab(process, program, profile / "DevToolsActivePort"))
            for domain in ("Page", "Runtime", "Log", "Network"):
                browser.call(f"{domain}.enable")
        except BaseException:
            end(process)
            raise
        return browser

    def stop(self) -> None:
        """Ends the process that was started, and waits for it."""
        try:
            self.socket.close()
        finally:
            end(self.process)

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        """One DevTools command; events that arrive meanwhile are looked through."""
        self.last += 1
        self.socket.send(json.dumps({"id": self.last, "method": method, "params": parameters}))
        while True:
            message = json.loads(self.socket.recv())
            if message.get("id") == self.last:
                assert "error" not in message, f"{method}: {message['error']}"
                return dict(message["result"])
            self._hear(message)

    def open(self, page: Path, *, width: int, dark: bool, media: str = "screen") -> None:
        """Load a file and wait until everything in it is there."""
        mobile = width < 600
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=900, deviceScaleFactor=1, mobile=mobile)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", media=media, features=[scheme])
        self.complaints.clear()
        self.requested.clear()
        self.call("Page.navigate", url=page.absolute().as_uri())
        until = time.monotonic() + REPLY_S
        while self.ask("document.readyState + location.protocol") != "completefile:":
            assert time.monotonic() < until, f"{page} did not load within {REPLY_S:g} s"
            time.sleep(0.05)
        self.ask("Promise.all([...document.images].map(one => one.decode().catch(() => 0))).then(() => 1)")

    def ask(self, expression: str) -> Any:
        """The value of an expression in the page, promises waited for."""
        result = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in result, f"{expression}: {result['exceptionDetails']}"
        return result["result"].get("value")

    def picture(self, path: Path, *, whole: bool = True) -> bytes:
        """A PNG of the page from its top to its end, kept in `path` as well."""
        shot = self.call("Page.captureScreenshot", format="png", captureBeyondViewport=whole)
        data = base64.b64decode(shot["data"])
        path.write_bytes(data)
        return data

    def _hear(self, message: dict[str, Any]) -> None:
        method, given = message.get("method"), message.get("params", {})
        if method == "Runtime.consoleAPICalled":
            self.complaints.append(f"console.{given['type']}: {given['args']}")
        elif method == "Runtime.exceptionThrown":
            self.complaints.append(f"exception: {given['exceptionDetails']}")
        elif method == "Log.entryAdded":
            self.complaints.append(f"{given['entry']['level']}: {given['entry']['text']}")
        elif method == "Network.requestWillBeSent":
            self.requested.append(given["request"]["url"])


def end(process: subprocess.Popen[bytes], patience_s: float = END_S) -> None:
    """Ask it to end, and kill it where it does not."""
    process.terminate()
    try:
        process.wait(timeout=patience_s)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _tab(process: subprocess.Popen[bytes], program: str, port: Path) -> websocket.WebSocket:
    """A connection to the page that Chromium opens with, once it has written its port."""
    until = time.monotonic() + START_S
    while not port.is_file() or "\n" not in port.read_text():
        assert process.poll() is None, f"{program} ended with {process.returncode}"
        assert time.monotonic() < until, f"{program} opened no port within {START_S:g} s"
        time.sleep(0.1)
    with urlopen(f"http://127.0.0.1:{port.read_text().split()[0]}/json/list", timeout=START_S) as answer:
        tab = next(one for one in json.load(answer) if one["type"] == "page")
    return websocket.create_connection(tab["webSocketDebuggerUrl"], timeout=REPLY_S)
