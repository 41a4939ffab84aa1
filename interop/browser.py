"""Runs headless Chromium and controls it with the DevTools protocol over two pipes."""

import base64
import contextlib
import fcntl
import itertools
import json
import os
import select
import subprocess
import time
from pathlib import Path

PROGRAM = "/usr/bin/chromium-headless-shell"
DEADLINE_S = 60
FIRST_FREE_FD = 10


class Browser:
    """A running browser with an empty profile in `directory`."""

    def __init__(self, directory: Path):
        directory.mkdir(parents=True, exist_ok=True)
        # The browser reads commands from descriptor 3 and writes to 4, which may be in use here.
        pipes = [fcntl.fcntl(end, fcntl.F_DUPFD, FIRST_FREE_FD) for end in (*os.pipe(), *os.pipe())]
        their_input, self._to, self._from, their_output = pipes
        # Without a sandbox, because tests may run as root, which has none.
        words = [PROGRAM, "--no-sandbox", "--disable-gpu", "--no-first-run", f"--user-data-dir={directory}", "--remote-debugging-pipe"]
        with (directory / "log").open("wb") as log:
            self.process = subprocess.Popen(
                ["bash", "-c", f'exec "$@" 3<&{their_input} 4>&{their_output}', "bash", *words],
                pass_fds=(their_input, their_output), stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True,
                env={"PATH": "/usr/bin:/bin", "HOME": str(directory), "LANG": "C.UTF-8"},
            )
        for end in (their_input, their_output):
            os.close(end)
        self._numbers = itertools.count(1)
        self._received = b""
        self._events: list[dict] = []

    def close(self) -> None:
        """Ends the browser."""
        with contextlib.suppress(OSError, TimeoutError):
            self.call("Browser.close")
        try:
            self.process.wait(DEADLINE_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        for end in (self._to, self._from):
            os.close(end)

    def call(self, method: str, session: str | None = None, **parameters) -> dict:
        """Calls a method of the protocol and returns its result."""
        number = next(self._numbers)
        request = {"id": number, "method": method, "params": parameters} | ({"sessionId": session} if session else {})
        os.write(self._to, json.dumps(request).encode() + b"\0")
        answer = self._next(lambda message: message.get("id") == number)
        if "error" in answer:
            raise RuntimeError(f"{method}: {answer['error']}")
        return answer["result"]

    def wait_for(self, event: str, session: str) -> dict:
        """Returns the parameters of the next event of this name."""
        def is_wanted(message: dict) -> bool:
            return message.get("method") == event and message.get("sessionId") == session

        found = next(filter(is_wanted, self._events), None)
        if found:
            self._events.remove(found)
        return (found or self._next(is_wanted))["params"]

    def events(self, event: str, session: str) -> list[dict]:
        """Returns the parameters of all events of this name that were received and not waited for."""
        return [message["params"] for message in self._events if message["method"] == event and message.get("sessionId") == session]

    def _next(self, is_wanted) -> dict:
        deadline = time.monotonic() + DEADLINE_S
        while True:
            while b"\0" in self._received:
                text, _, self._received = self._received.partition(b"\0")
                message = json.loads(text)
                if is_wanted(message):
                    return message
                if "method" in message:
                    self._events.append(message)
            ready, _, _ = select.select([self._from], [], [], max(0, deadline - time.monotonic()))
            data = os.read(self._from, 1 << 20) if ready else b""
            if not data:
                raise TimeoutError("Chromium does not answer" if not ready else "Chromium has ended")
            self._received += data


class Tab:
    """A tab with a viewport of `width` × `height` pixels."""

    def __init__(self, browser: Browser, width: int, height: int, *, dark: bool = False, scripts: bool = True):
        self.browser = browser
        target = browser.call("Target.createTarget", url="about:blank")["targetId"]
        self.session = browser.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=width < 600)
        scheme = "dark" if dark else "light"
        self.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])
        self.call("Emulation.setScriptExecutionDisabled", value=not scripts)

    def call(self, method: str, **parameters) -> dict:
        """Calls a method of the protocol in this tab."""
        return self.browser.call(method, self.session, **parameters)

    def open(self, url: str) -> None:
        """Opens a page and waits until it has loaded."""
        failure = self.call("Page.navigate", url=url).get("errorText")
        if failure:
            raise RuntimeError(f"{url}: {failure}")
        self.browser.wait_for("Page.loadEventFired", self.session)

    def click(self, selector: str) -> None:
        """Clicks the middle of an element; it must not lead to another page."""
        element = f"document.querySelector({json.dumps(selector)}).getBoundingClientRect()"
        box = self.run(f"(box => ({{x: box.x + box.width / 2, y: box.y + box.height / 2}}))({element})")
        for kind in ("mousePressed", "mouseReleased"):
            self.call("Input.dispatchMouseEvent", type=kind, button="left", clickCount=1, **box)

    def follow(self, selector: str) -> None:
        """Clicks an element that leads to another page, and waits until that has loaded."""
        self.click(selector)
        self.browser.wait_for("Page.loadEventFired", self.session)

    def type(self, text: str) -> None:
        """Types into the element with the focus."""
        self.call("Input.insertText", text=text)

    def run(self, expression: str):
        """Returns the value of an expression in JavaScript."""
        answer = self.call("Runtime.evaluate", expression=expression, returnByValue=True)
        if "exceptionDetails" in answer:
            raise RuntimeError(answer["exceptionDetails"])
        return answer["result"].get("value")

    def complaints(self) -> list[str]:
        """Returns errors that the browser logged, such as violations of the policy."""
        entries = [event["entry"] for event in self.browser.events("Log.entryAdded", self.session)]
        thrown = self.browser.events("Runtime.exceptionThrown", self.session)
        return [entry["text"] for entry in entries] + [str(event) for event in thrown]

    def screenshot(self, file: Path) -> None:
        """Writes a picture of the viewport."""
        file.write_bytes(base64.b64decode(self.call("Page.captureScreenshot")["data"]))
