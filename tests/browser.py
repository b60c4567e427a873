"""Headless Chromium, told what to do over a pipe: no driver, no package."""

import fcntl
import json
import os
import shutil
import subprocess
import time

PATIENCE = 20
"""Seconds within which what is waited for must come."""
KEYS = {
    "Tab": (9, ""),
    "Enter": (13, "\r"),
}
"""Name of a key -> its code in Windows, and the text that it makes."""


def find_chromium():
    """Returns the path of Chromium, or None."""
    names = ("chromium", "chromium-browser", "google-chrome")
    return next(filter(None, map(shutil.which, names)), None)


class Browser:
    """A tab of Chromium.

    Args:
        folder: empty folder for what it keeps.

    Raises:
        ConnectionError: it does not start, or ends.
    """

    def __init__(self, folder):
        (near_end, self._write), (self._read, far_end) = os.pipe(), os.pipe()
        # Chromium reads at 3 and writes at 4, which may be in use here.
        read, write = (
            fcntl.fcntl(n, fcntl.F_DUPFD, 10) for n in (near_end, far_end)
        )
        flags = "--headless=new --no-sandbox --disable-gpu --no-first-run"
        flags += " --disable-dev-shm-usage --disable-background-networking"
        line = f'exec "$0" "$@" 3<&{read} 4>&{write}'
        self._process = subprocess.Popen(
            [
                *("bash", "-c", line, find_chromium(), *flags.split()),
                *("--remote-debugging-pipe", f"--user-data-dir={folder}"),
                "--no-proxy-server",
            ],
            pass_fds=(read, write),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        for one in (near_end, far_end, read, write):
            os.close(one)
        self._rest, self._number, self._tab = b"", 0, {}
        self.console = []
        target = self.send("Target.createTarget", url="about:blank")
        opened = self.send("Target.attachToTarget", **target, flatten=True)
        self._tab = {"sessionId": opened["sessionId"]}
        for domain in ("Page", "Runtime", "Log", "DOM"):
            self.send(f"{domain}.enable")

    def close(self):
        """Ends it."""
        self._process.kill()
        self._process.wait()
        os.close(self._write)
        os.close(self._read)

    def send(self, method, **parameters):
        """Calls a method of the DevTools protocol; returns its result."""
        self._number += 1
        asked = {"id": self._number, "method": method, "params": parameters}
        os.write(self._write, json.dumps(asked | self._tab).encode() + b"\0")
        while True:
            found = self._next()
            if found.get("id") == self._number:
                assert "error" not in found, found
                return found["result"]
            if found.get("method") == "Log.entryAdded":
                self.console.append(found["params"]["entry"]["text"])
            if found.get("method") == "Runtime.exceptionThrown":
                self.console.append(str(found["params"]))

    def _next(self):
        while b"\0" not in self._rest:
            some = os.read(self._read, 1 << 20)
            if not some:
                raise ConnectionError("Chromium has ended")
            self._rest += some
        message, _, self._rest = self._rest.partition(b"\0")
        return json.loads(message)

    def run(self, code):
        """Returns the value of an expression of JavaScript."""
        found = self.send(
            "Runtime.evaluate",
            expression=code,
            returnByValue=True,
            awaitPromise=True,
        )
        assert "exceptionDetails" not in found, found
        return found["result"].get("value")

    def wait(self, code):
        """Waits until an expression is true; returns its value."""
        end = time.monotonic() + PATIENCE
        while not (value := self.run(code)):
            assert time.monotonic() < end, f"never true: {code}"
            time.sleep(0.02)
        return value

    def open(self, address):
        """Opens an address, until it is loaded."""
        self.send("Page.navigate", url=address)
        self.wait("document.readyState === 'complete'")

    def press(self, key):
        """Presses a key, by its name in `KEYS`."""
        code, text = KEYS[key]
        key = {"key": key, "code": key, "windowsVirtualKeyCode": code}
        down = {**key, "text": text} if text else key
        for kind, what in (("keyDown", down), ("keyUp", key)):
            self.send("Input.dispatchKeyEvent", type=kind, **what)

    def type(self, text):
        """Types a text where the focus is."""
        self.send("Input.insertText", text=text)

    def tab_to(self, code, most=60):
        """Presses Tab until the focus is on what an expression says."""
        for _ in range(most):
            if self.run(f"document.activeElement === {code}"):
                return
            self.press("Tab")
        raise AssertionError(f"Tab does not come to {code}")

    def choose(self, selector, path):
        """Gives a file to an input, as its dialog does."""
        root = self.send("DOM.getDocument")["root"]["nodeId"]
        node = self.send("DOM.querySelector", nodeId=root, selector=selector)
        self.send("DOM.setFileInputFiles", files=[str(path)], **node)

    def resize(self, width, height=900, dark=False):
        """Makes the window so large, in a light or dark colour scheme."""
        self.send(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=False,
        )
        scheme = {"name": "prefers-color-scheme", "value": "light"}
        if dark:
            scheme["value"] = "dark"
        self.send("Emulation.setEmulatedMedia", features=[scheme])
