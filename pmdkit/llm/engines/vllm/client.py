"""JSON over HTTP to vLLM servers, with httpx: one deadline, and one sentence for every failure."""

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

import httpx

from pmdkit.errors import UsageError
from pmdkit.llm.engines.base import EngineLost

Json = dict[str, Any]
Answer = TypeVar("Answer")
CONNECT = 10.0  # seconds: a machine that runs accepts a connection at once, even where the server is busy


class Server:
    """A vLLM server.

    Attributes:
        model: the name under which it serves the model.
        replicas: copies of the model among which it divides requests.

    Calls raise:
        UsageError: the server refuses it (4xx); the message has the server's reason.
        EngineLost: no answer in time, a broken connection, a server error (5xx), or an answer that is not JSON.
    """

    def __init__(self, url: str, seconds: float) -> None:
        self.url = url.rstrip("/")
        try:
            address = httpx.URL(self.url)
        except httpx.InvalidURL:
            address = httpx.URL()
        if address.scheme not in ("http", "https") or not address.host or address.path.strip("/"):
            raise UsageError(f"vllm.urls holds {url}; expected the address of a server, such as http://127.0.0.1:8000")
        key = os.environ.get("VLLM_API_KEY")
        self.headers = {"Authorization": f"Bearer {key}"} if key else {}
        self.timeout = httpx.Timeout(seconds, connect=min(seconds, CONNECT), pool=None)
        self.model, self.replicas = "", 1

    def get(self, path: str) -> Json:
        """The JSON object at a path."""
        return self.post(path, method="GET")

    def post(self, path: str, body: Json | None = None, method: str = "POST") -> Json:
        """The answer to a request, on a new connection."""
        try:
            response = httpx.request(method, self.url + path, json=body, headers=self.headers, timeout=self.timeout)
        except httpx.HTTPError as problem:
            raise self.lost(path, problem) from problem
        return self.read(path, response)

    async def post_from(self, client: httpx.AsyncClient, path: str, body: Json) -> Json:
        """The answer to a request, by a client whose requests do not block others."""
        try:
            response = await client.post(self.url + path, json=body, headers=self.headers, timeout=self.timeout)
        except httpx.HTTPError as problem:
            raise self.lost(path, problem) from problem
        return self.read(path, response)

    def lost(self, path: str, problem: httpx.HTTPError) -> EngineLost:
        """The error for a server that does not answer."""
        if isinstance(problem, httpx.ReadTimeout):
            return EngineLost(f"the server at {self.url} does not answer {path} within {self.timeout.read:g} s")
        return EngineLost(f"the server at {self.url} is lost at {path}: {problem or type(problem).__name__}")

    def read(self, path: str, found: httpx.Response) -> Json:
        """The JSON object of an answer, {} if the answer is empty; raises as the class says."""
        words = " ".join(found.text.split())[:300]
        if found.is_server_error:
            raise EngineLost(f"the server at {self.url} fails at {path} ({found.status_code}): {words}")
        if found.is_error:
            raise UsageError(f"the server at {self.url} refuses {path} ({found.status_code}): {words}")
        try:
            answer = found.json() if words else {}
        except ValueError:
            answer = None
        if not isinstance(answer, dict):
            raise EngineLost(f"the server at {self.url} answers {path} with {words!r}, which is not a JSON object")
        return answer


def call_each(servers: Sequence[Server], call: Callable[[Server], Answer]) -> list[Answer]:
    """Call with every server in parallel; the results in order, or the first failure once all have ended."""
    with ThreadPoolExecutor(len(servers)) as pool:
        return [future.result() for future in [pool.submit(call, server) for server in servers]]
