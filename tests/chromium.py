"""A page as a reader sees it: Chromium without a window, driven by its own protocol.

Tornado, which Dask brings, has the web socket.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import subprocess
import tempfile
import time
from contextlib import contextmanager
from pathlib import Path

import pytest

BROWSER = next(
    filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None
)
PATIENCE = 30  # seconds that any answer may take


class Tab:
    """One page that was opened."""

    def __init__(self, loop, socket):
        self._loop, self._socket, self._number = loop, socket, 0
        self.complaints = []  # what the console had to say, and requests that went out

    def call(self, method, **params):
        return self._loop.run_until_complete(asyncio.wait_for(self._call(method, params), PATIENCE))

    async def _call(self, method, params):
        self._number += 1
        number = self._number
        await self._socket.write_message(
            json.dumps({"id": number, "method": method, "params": params})
        )
        while True:
            answer = json.loads(await self._socket.read_message())
            if answer.get("id") == number:
                assert "error" not in answer, answer
                return answer["result"]
            self._note(answer)

    def _note(self, event):
        method, params = event["method"], event["params"]
        if method in ("Runtime.exceptionThrown", "Runtime.consoleAPICalled", "Log.entryAdded"):
            self.complaints.append(json.dumps(params))
        if method == "Network.requestWillBeSent":
            url = params["request"]["url"]
            if not url.startswith(("file:", "data:")):
                self.complaints.append(f"asked for {url}")

    def value(self, expression):
        """What a line of script gives."""
        answer = self.call("Runtime.evaluate", expression=expression, returnByValue=True)
        assert "exceptionDetails" not in answer, answer
        return answer["result"].get("value")

    def press(self, key):
        for kind in ("keyDown", "keyUp"):
            code = {"ArrowRight": 39, "ArrowLeft": 37, "Tab": 9}[key]
            self.call("Input.dispatchKeyEvent", type=kind, key=key, windowsVirtualKeyCode=code)

    def open(self, path, *, width=1200, dark=False):
        scheme = [{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}]
        self.call("Emulation.setEmulatedMedia", features=scheme)
        size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 500}
        self.call("Emulation.setDeviceMetricsOverride", **size)
        self.call("Page.navigate", url=Path(path).resolve().as_uri())
        end = time.monotonic() + PATIENCE
        while self.value("document.readyState + location.protocol") != "completefile:":
            assert time.monotonic() < end, "the page did not load"
            time.sleep(0.02)
        return self


@contextmanager
def browser():
    """A tab of a browser of its own; skips where there is none."""
    websocket = pytest.importorskip("tornado.websocket", reason="tornado comes with dask")
    if BROWSER is None:
        pytest.skip("no Chromium on this machine; apt-get install chromium")
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        flags = ["--headless", "--disable-gpu", "--remote-debugging-port=0", "--no-first-run"]
        flags += ["--disable-background-networking", f"--user-data-dir={profile}"]
        flags += ["--no-sandbox"] if os.geteuid() == 0 else []
        process = subprocess.Popen(
            [BROWSER, *flags, "about:blank"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        loop = asyncio.new_event_loop()
        try:
            socket = loop.run_until_complete(_connect(websocket, Path(profile), process))
            tab = Tab(loop, socket)
            for domain in ("Page", "Runtime", "Log", "Network"):
                tab.call(f"{domain}.enable")
            yield tab
            loop.run_until_complete(_close(socket))
        finally:
            process.kill()
            process.wait()
            loop.close()


async def _close(socket):
    socket.close()  # tornado writes its farewell in the loop that runs


async def _connect(websocket, profile, process):
    from tornado.httpclient import AsyncHTTPClient

    end = time.monotonic() + PATIENCE
    port_file = profile / "DevToolsActivePort"
    while not (port_file.exists() and port_file.read_text().strip()):
        assert process.poll() is None, "the browser ended at once"
        assert time.monotonic() < end, "the browser did not start"
        await asyncio.sleep(0.05)
    port = port_file.read_text().split()[0]
    answer = await AsyncHTTPClient().fetch(f"http://127.0.0.1:{port}/json/list")
    pages = [page for page in json.loads(answer.body) if page["type"] == "page"]
    return await websocket.websocket_connect(
        pages[0]["webSocketDebuggerUrl"], max_message_size=2**28
    )
