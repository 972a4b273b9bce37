"""A headless Chromium for tests, driven over its DevTools protocol, which needs no package beyond aiohttp."""

import asyncio
import json
import os
import shutil
import subprocess
import tempfile
import threading
from collections.abc import Coroutine
from pathlib import Path
from typing import Any, TypeVar

import aiohttp

from tests.support import wait_until

_T = TypeVar("_T")
_NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome")
_OPTIONS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync", "--disable-extensions",
    "--mute-audio", "--force-prefers-reduced-motion", "--in-process-gpu", "--disable-software-rasterizer",
    "--remote-debugging-port=0",
)  # fmt: skip
_ANSWER_S = 60.0


def executable() -> str | None:
    """Return the path of a Chromium; None: there is none."""
    return next((path for name in _NAMES if (path := shutil.which(name))), None)


class Browser:
    """A Chromium with one page. A context manager.

    Attributes: requests: the addresses that the page has asked for. problems: errors of its scripts, and requests that
        its policy has blocked.
    """

    def __init__(self, program: str) -> None:
        self._program, self._loop = program, asyncio.new_event_loop()
        self.requests: list[str] = []
        self.problems: list[str] = []
        self._answers: dict[int, asyncio.Future[dict[str, Any]]] = {}
        self._number = 0

    def __enter__(self) -> "Browser":
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self._folder = tempfile.TemporaryDirectory(prefix="falkirk-browser-", ignore_cleanup_errors=True)
        environment = {**os.environ, "HOME": self._folder.name}
        command = [self._program, *_OPTIONS, f"--user-data-dir={self._folder.name}", "about:blank"]
        self._process = subprocess.Popen(
            command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=environment, start_new_session=True
        )
        self._ports = Path(self._folder.name) / "DevToolsActivePort"
        wait_until(self._listens, 60, "a browser")
        self._do(self._connect())
        return self

    def _listens(self) -> bool:
        assert self._process.poll() is None, "the browser has ended"
        return self._ports.exists() and len(self._ports.read_text().splitlines()) == 2

    def __exit__(self, *error: object) -> None:
        self._do(self._disconnect())
        self._process.terminate()
        self._process.wait(30)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._folder.cleanup()

    def _do(self, work: Coroutine[Any, Any, _T]) -> _T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(_ANSWER_S)

    async def _connect(self) -> None:
        port, path = self._ports.read_text().splitlines()
        self._client = aiohttp.ClientSession()
        self._socket = await self._client.ws_connect(f"ws://127.0.0.1:{port}{path}", max_msg_size=0)
        self._reader = asyncio.ensure_future(self._read())
        self._session: str | None = None
        target = await self._send("Target.createTarget", url="about:blank")
        attached = await self._send("Target.attachToTarget", targetId=target["targetId"], flatten=True)
        self._session = attached["sessionId"]
        for domain in ("Page", "Network", "Runtime", "Log"):
            await self._send(f"{domain}.enable")

    async def _disconnect(self) -> None:
        self._reader.cancel()
        await self._socket.close()
        await self._client.close()

    async def _read(self) -> None:
        async for message in self._socket:
            content = json.loads(message.data)
            if "id" in content:
                self._answers.pop(content["id"]).set_result(content)
            elif content["method"] == "Network.requestWillBeSent":
                self.requests.append(content["params"]["request"]["url"])
            elif content["method"] == "Runtime.exceptionThrown":
                self.problems.append(json.dumps(content["params"]["exceptionDetails"])[:2000])
            elif content["method"] == "Log.entryAdded" and content["params"]["entry"]["level"] == "error":
                self.problems.append(content["params"]["entry"]["text"])

    async def _send(self, method: str, **params: Any) -> dict[str, Any]:
        self._number += 1
        answer = self._answers[self._number] = self._loop.create_future()
        session = {} if self._session is None else {"sessionId": self._session}
        await self._socket.send_json({"id": self._number, "method": method, "params": params, **session})
        content = await answer
        assert "error" not in content, content
        found: dict[str, Any] = content["result"]
        return found

    # -- actions of a user ---------------------------------------------------------------------------------------------

    def open(self, url: str, *, width: int = 1280, height: int = 900, dark: bool = False) -> None:
        """Open a page in a window of this size, and begin a new record of its requests and problems."""
        self._do(self._send("Page.navigate", url="about:blank"))
        self._do(
            self._send(
                "Emulation.setDeviceMetricsOverride",
                width=width,
                height=height,
                deviceScaleFactor=1,
                mobile=width < 600,
            )
        )
        scheme = [{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}]
        self._do(self._send("Emulation.setEmulatedMedia", features=scheme))
        self.requests.clear()
        self.problems.clear()
        self._do(self._send("Page.navigate", url=url))

    def run(self, script: str) -> Any:
        """Run JavaScript in the page; return its value, of a promise the value that it gets."""
        found = self._do(self._send("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True))
        assert "exceptionDetails" not in found, found["exceptionDetails"]
        return found["result"].get("value")

    def press(self, key: str, code: int = 0, *, text: str = "", shift: bool = False) -> None:
        """Press a key and let it go."""
        common = {"key": key, "code": key, "windowsVirtualKeyCode": code, "modifiers": 8 if shift else 0}
        self._do(self._send("Input.dispatchKeyEvent", type="keyDown", **({"text": text} if text else {}), **common))
        self._do(self._send("Input.dispatchKeyEvent", type="keyUp", **common))

    def wait(self, condition: str, what: str) -> None:
        """Wait until an expression of the page is true."""
        try:
            wait_until(lambda: self._holds(condition), 30, what)
        except AssertionError as error:
            text = self.run("document.body.innerText")[:1500]
            raise AssertionError(f"no {what}: {text} {self.problems}") from error

    def _holds(self, condition: str) -> bool:
        """Return whether an expression is true; False: it fails, or the page is being left."""
        script = f"(() => {{ try {{ return !!({condition}); }} catch (error) {{ return false; }} }})()"
        try:
            return bool(self.run(script))
        except AssertionError as error:
            if "navigated" in str(error) or "context" in str(error):
                return False
            raise
