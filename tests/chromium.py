"""A headless Chromium, driven over a pipe with the DevTools protocol: needs no library and no port."""

from __future__ import annotations

import base64
import contextlib
import json
import os
import pathlib
import select
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from typing import Any

PROGRAM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
REASON = "no Chromium is installed: on Debian `apt-get install chromium`"
PATIENCE = 60.0


class Browser:
    """One tab. What the page says on its console, its errors and what its policy blocks are in ``complaints``."""

    def __init__(self, reading: int, writing: int) -> None:
        self._reading, self._writing = reading, writing
        self._left = b""
        self._number = 0
        self._session: str | None = None
        self._loaded = False
        self.complaints: list[str] = []
        self.requests: list[str] = []
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")

    def call(self, method: str, **params: Any) -> dict[str, Any]:
        """Call a method of the protocol and wait for its result."""
        self._number += 1
        message = {"id": self._number, "method": method, "params": params}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._writing, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._receive()
            if answer.get("id") == self._number:
                assert "error" not in answer, answer
                return answer["result"]

    def _receive(self) -> dict[str, Any]:
        end = time.monotonic() + PATIENCE
        while b"\0" not in self._left:
            ready, _, _ = select.select([self._reading], [], [], max(0.0, end - time.monotonic()))
            assert ready, "Chromium does not answer"
            piece = os.read(self._reading, 1 << 20)
            assert piece, "Chromium has ended"
            self._left += piece
        text, self._left = self._left.split(b"\0", 1)
        message = json.loads(text)
        self._listen(message.get("method"), message.get("params", {}))
        return message

    def _listen(self, method: str | None, params: dict[str, Any]) -> None:
        if method == "Page.loadEventFired":
            self._loaded = True
        elif method == "Network.requestWillBeSent":
            self.requests.append(params["request"]["url"])
        elif method == "Runtime.exceptionThrown":
            self.complaints.append(str(params["exceptionDetails"]))
        elif method == "Log.entryAdded":
            self.complaints.append(params["entry"]["text"])
        elif method == "Runtime.consoleAPICalled":
            self.complaints.append(str(params["args"]))
        elif method == "Page.javascriptDialogOpening":
            self.complaints.append(f"dialog: {params['message']}")

    def open(self, path: pathlib.Path, *, width: int = 1000, height: int = 800, dark: bool = False) -> None:
        """Show a file, as on a screen of this size."""
        screen = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 500}
        self.call("Emulation.setDeviceMetricsOverride", **screen)
        # Without motion nothing has to be waited for.
        wishes = {"prefers-color-scheme": "dark" if dark else "light", "prefers-reduced-motion": "reduce"}
        features = [{"name": name, "value": value} for name, value in wishes.items()]
        self.call("Emulation.setEmulatedMedia", features=features)
        self.complaints.clear()
        self.requests.clear()
        self._loaded = False
        self.call("Page.navigate", url=path.as_uri())
        while not self._loaded:
            self._receive()

    def without_scripts(self, off: bool = True) -> None:
        """Let no page run scripts from now on; ``ask`` still works."""
        self.call("Emulation.setScriptExecutionDisabled", value=off)

    def ask(self, expression: str) -> Any:
        """The value of a JavaScript expression."""
        answer = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in answer, answer["exceptionDetails"]
        return answer["result"].get("value")

    def key(self, name: str) -> None:
        """Press a key."""
        code = {"Tab": 9, "Enter": 13, " ": 32}[name]
        text = {"Enter": "\r", " ": " "}.get(name, "")
        for kind in ("keyDown", "keyUp"):
            typed = {"text": text} if text and kind == "keyDown" else {}
            self.call("Input.dispatchKeyEvent", type=kind, key=name, windowsVirtualKeyCode=code, **typed)

    def drag(self, start: tuple[float, float], end: tuple[float, float]) -> None:
        """Drag the mouse from one point of the window to another."""
        for kind, (x, y), pressed in (
            ("mouseMoved", start, 0), ("mousePressed", start, 1), ("mouseMoved", end, 1), ("mouseReleased", end, 0),
        ):  # fmt: skip
            button = "none" if kind == "mouseMoved" and not pressed else "left"
            self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, button=button, buttons=pressed, clickCount=1)

    def screenshot(self, path: pathlib.Path) -> None:
        """The whole page as PNG."""
        shot = self.call("Page.captureScreenshot", captureBeyondViewport=True)
        path.write_bytes(base64.b64decode(shot["data"]))


@contextlib.contextmanager
def browser() -> Iterator[Browser]:
    """Start a Chromium with a profile of its own, and end it."""
    assert PROGRAM is not None, REASON
    there_out, here_in = os.pipe()
    here_out, there_in = os.pipe()
    options = "--headless --no-sandbox --disable-gpu --no-first-run --remote-debugging-pipe --disable-dev-shm-usage"
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        # It reads from descriptor 3 and writes to 4; as these two were opened in this order, none is in the way.
        script = f"import os, sys; os.dup2({there_out}, 3); os.dup2({there_in}, 4); os.execv(sys.argv[1], sys.argv[1:])"
        child = subprocess.Popen(
            [sys.executable, "-c", script, PROGRAM, *options.split(), f"--user-data-dir={profile}"],
            pass_fds=(there_out, there_in),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(there_out)
        os.close(there_in)
        try:
            yield Browser(here_out, here_in)
        finally:
            os.close(here_in)
            os.close(here_out)
            try:
                child.wait(timeout=10)
            except subprocess.TimeoutExpired:
                child.kill()
                child.wait()
