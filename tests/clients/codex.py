"""Codex's own `exec` against a server that plays a script: in a home of its own, and alone with the server."""

from __future__ import annotations

import asyncio
import json
import os
import socket
from pathlib import Path
from typing import Any

from antiphon.serving.service import Options
from tests.clients.checked import checked_server
from tests.clients.npm import installed

VERSION = "0.171.0"
CONTEXT = 400_000  # bytes, which are tokens here: Codex's own prompt and tools are 40 kB

# Without `plugins = false` it fetches a list of plugins from outside, whatever the provider.
CONFIG = """
model = "{model}"
model_provider = "antiphon"
check_for_update_on_startup = false
[model_providers.antiphon]
name = "Antiphon"
base_url = "{url}/v1"
wire_api = "responses"
requires_openai_auth = false
request_max_retries = 0
stream_max_retries = 0
[features]
plugins = false
[analytics]
enabled = false
"""


class Codex:
    """Works in `work`. `outside` is the proxy by which it would reach more than this machine: nobody answers there."""

    def __init__(self, folder: Path, outside: socket.socket) -> None:
        self.work = folder / "work"
        self._folder = folder
        self._home = folder / "home"
        self._prompts = folder / "prompts.jsonl"
        self._outside = outside
        outside.setblocking(False)
        self.work.mkdir()
        self._home.mkdir()

    async def run(self, name: str, model: dict[str, Any], turns: list[dict[str, Any]]) -> str:
        """Codex's last message, once it has done what it was asked for. `model`: a script's, to be served as `name`."""
        top = {**model, "model": name, "context_length": CONTEXT}
        options = Options(log_prompts=self._prompts)
        async with checked_server(self._folder, turns, top=top, options=options) as server:
            (self._home / "config.toml").write_text(CONFIG.format(model=name, url=server.url))
            answer = await self._exec()
        assert not self._reached_out(), "it has talked to others than the server"
        return answer

    @property
    def prompts(self) -> list[str]:
        """What the model was shown, request by request."""
        return [json.loads(line)["prompt"] for line in self._prompts.read_text().splitlines()]

    async def _exec(self) -> str:
        command = await asyncio.to_thread(installed, "@openai/codex", VERSION, "codex")
        flags = ["--skip-git-repo-check", "--dangerously-bypass-approvals-and-sandbox", "--color=never"]
        process = await asyncio.create_subprocess_exec(
            command,
            *["exec", *flags, "Do it."],
            cwd=self.work,
            env=self._environment(),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        try:
            answer, log = await process.communicate()
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
        assert process.returncode == 0, log.decode()
        return answer.decode().strip()

    def _reached_out(self) -> bool:
        try:
            self._outside.accept()[0].close()
        except BlockingIOError:
            return False
        return True

    def _environment(self) -> dict[str, str]:
        """Nothing of whoever runs the tests but the path, where Node.js is found."""
        proxy = f"http://127.0.0.1:{self._outside.getsockname()[1]}"
        proxies = {f"{kind}_proxy": proxy for kind in ("http", "https", "all")}
        home = {"HOME": str(self._home), "CODEX_HOME": str(self._home)}
        return {"PATH": os.environ["PATH"], "no_proxy": "127.0.0.1", **home, **proxies}
