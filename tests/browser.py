"""A headless Chromium that tests drive by the DevTools protocol, over a pipe: no package is needed for it."""

from __future__ import annotations

import base64
import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import Any

import pytest

PROGRAM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--no-first-run",
    "--hide-scrollbars",
)


class Page:
    """One open page, and what it complained of."""

    def __init__(self, requests: Any, replies: Any):
        self.requests, self.replies, self.numbers = requests, replies, count(1)
        self.session: str | None = None
        self.problems: list[str] = []  # errors and warnings of the console, and what failed to load
        self.asked: list[str] = []  # addresses that were loaded

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        number = next(self.numbers)
        message = {"id": number, "method": method, "params": parameters}
        if self.session is not None:
            message["sessionId"] = self.session
        self.requests.write(json.dumps(message).encode() + b"\0")
        while (reply := self._next()).get("id") != number:
            self._note(reply)
        assert "error" not in reply, f"{method}: {reply['error']}"
        found: dict[str, Any] = reply["result"]
        return found

    def _next(self) -> dict[str, Any]:
        text = bytearray()
        while (byte := self.replies.read(1)) != b"\0":
            assert byte, "the browser has gone"
            text += byte
        found: dict[str, Any] = json.loads(text)
        return found

    def _note(self, event: dict[str, Any]) -> None:
        facts = event.get("params", {})
        if event["method"] == "Runtime.exceptionThrown":
            self.problems.append(str(facts["exceptionDetails"].get("exception", facts["exceptionDetails"])))
        elif event["method"] == "Runtime.consoleAPICalled" and facts["type"] in ("error", "warning", "assert"):
            self.problems.append(str(facts["args"]))
        elif event["method"] == "Log.entryAdded" and facts["entry"]["level"] in ("error", "warning"):
            self.problems.append(facts["entry"]["text"])
        elif event["method"] == "Network.requestWillBeSent":
            self.asked.append(facts["request"]["url"])

    def open(self, path: Path, width: int = 1200, height: int = 900, dark: bool = False) -> Page:
        self.problems, self.asked = [], []
        self.target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self.session = self.call("Target.attachToTarget", targetId=self.target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")
        self.resize(width, height)
        theme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", features=[theme])
        self.call("Page.navigate", url=path.resolve().as_uri())
        self.run("new Promise((done) => document.readyState === 'complete' ? done() : addEventListener('load', done))")
        return self

    def close(self) -> None:
        self.session = None
        self.call("Target.closeTarget", targetId=self.target)

    def resize(self, width: int, height: int = 900) -> None:
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)

    def run(self, script: str) -> Any:
        """The value of an expression in the page, which may be a promise."""
        found = self.call("Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True)
        assert "exceptionDetails" not in found, found["exceptionDetails"]
        return found["result"].get("value")

    def press(self, key: str) -> None:
        for kind in ("keyDown", "keyUp"):
            self.call("Input.dispatchKeyEvent", type=kind, key=key, code=key, windowsVirtualKeyCode=KEYS[key])

    def click(self, selector: str) -> None:
        """A real click in the middle of an element, which must be there to be clicked."""
        middle = "{x: box.x + box.width / 2, y: box.y + box.height / 2}"
        script = f"one.scrollIntoView({{block: 'center'}}); const box = one.getBoundingClientRect(); return {middle};"
        at = self.run(f"(() => {{ const one = document.querySelector({json.dumps(selector)}); {script} }})()")
        for kind in ("mousePressed", "mouseReleased"):
            self.call("Input.dispatchMouseEvent", type=kind, **at, button="left", clickCount=1)

    def screenshot(self, path: Path, whole: bool = True) -> None:
        found = self.call("Page.captureScreenshot", format="png", captureBeyondViewport=whole)
        path.write_bytes(base64.b64decode(found["data"]))


KEYS = {"Tab": 9, "End": 35, "Home": 36, "ArrowLeft": 37, "ArrowRight": 39, " ": 32}


@contextmanager
def browsing(folder: Path) -> Iterator[Page]:
    """A browser with nothing of the user's in it; the test is skipped where there is none."""
    if PROGRAM is None:
        pytest.skip("no Chromium is installed (Debian's package: chromium)")
    ours_in, theirs_out = os.pipe()
    theirs_in, ours_out = os.pipe()
    words = [PROGRAM, *FLAGS, f"--user-data-dir={folder / 'profile'}", "--remote-debugging-pipe", "about:blank"]
    # The protocol wants its pipes as descriptors 3 and 4.
    shell = ["bash", "-c", f'exec "$@" 3<&{theirs_in} 4>&{theirs_out}', "bash", *words]
    started = subprocess.Popen(
        shell, pass_fds=(theirs_in, theirs_out), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    os.close(theirs_in), os.close(theirs_out)
    with open(ours_out, "wb", buffering=0) as requests, open(ours_in, "rb") as replies:
        try:
            yield Page(requests, replies)
        finally:
            started.terminate()
            started.wait(20)
