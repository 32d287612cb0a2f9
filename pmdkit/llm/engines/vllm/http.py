"""JSON over HTTP to one or several vLLM servers: a deadline on every call, one sentence for every failure.

It uses the standard library: thousands of small rows in threads cost as little as with aiohttp and half as much as with
httpx (both were measured), and the trainer and vLLM share no package for it.
"""

import json
import os
import socket
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from typing import Any, TypeVar
from urllib.parse import urlsplit

from pmdkit.errors import UsageError
from pmdkit.llm.engines.base import EngineLost

Item = TypeVar("Item")
Answer = TypeVar("Answer")
CONNECT = 10.0  # seconds: a machine that runs accepts a connection at once, even where the server is busy
Json = dict[str, Any]


class Server:
    """The address of a vLLM server, and the name under which it serves the model.

    Args:
        url: such as http://127.0.0.1:8000.
        model: name that it must serve; "" until it is known.
    """

    def __init__(self, url: str, model: str = "") -> None:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname or parts.path.strip("/"):
            raise UsageError(f"vllm.urls holds {url}; expected the address of a server, such as http://127.0.0.1:8000")
        self.url = url.rstrip("/")
        self.host, self.port = parts.hostname, parts.port or (443 if parts.scheme == "https" else 80)
        self.kind = HTTPSConnection if parts.scheme == "https" else HTTPConnection
        self.model = model
        key = os.environ.get("VLLM_API_KEY")
        self.headers = {"Content-Type": "application/json"} | ({"Authorization": f"Bearer {key}"} if key else {})
        self.connections: set[Connection] = set()
        self.lock = threading.Lock()

    @contextmanager
    def connect(self, seconds: float) -> Iterator["Connection"]:
        """A connection for calls one after another; each read may take at most this many seconds."""
        connection = Connection(self, seconds)
        with self.lock:
            self.connections.add(connection)
        try:
            yield connection
        finally:
            with self.lock:
                self.connections.discard(connection)
            # in the thread that uses it, since its file descriptor may be reused at once
            connection.http.close()

    def call(self, method: str, path: str, body: Json | None = None, *, seconds: float) -> Json:
        """One call on a new connection, which must finish within this many seconds.

        Raises:
            UsageError: the server refuses it (4xx); the message has the server's reason.
            EngineLost: no answer in time, a broken connection, a server error (5xx), or an answer that is not JSON.
        """
        with self.connect(seconds) as connection:
            timer = threading.Timer(seconds, connection.cut)  # bytes that drip in one by one never time out
            timer.daemon = True
            timer.start()
            try:
                answer = connection.call(method, path, body)
            finally:
                timer.cancel()
        return answer

    def text(self, path: str, *, seconds: float) -> str:
        """The raw text at a path; "" if there is none."""
        with self.connect(seconds) as connection:
            status, data = connection.exchange("GET", path, None)
        return data.decode(errors="replace") if status == 200 else ""

    def cut(self) -> None:
        """Abort all calls in progress; threads that wait for them fail at once."""
        with self.lock:
            for connection in self.connections:
                connection.cut()


class Connection:
    """One connection to a server."""

    def __init__(self, server: Server, seconds: float) -> None:
        self.server, self.seconds = server, seconds
        self.http = server.kind(server.host, server.port, timeout=min(seconds, CONNECT))
        self.broken = False

    def call(self, method: str, path: str, body: Json | None) -> Json:
        """The JSON object of an answer."""
        status, data = self.exchange(method, path, body)
        if status >= 500:
            raise EngineLost(f"the server at {self.server.url} fails at {path} ({status}): {error_text(data)}")
        if status >= 400:
            raise UsageError(f"the server at {self.server.url} refuses {path} ({status}): {error_text(data)}")
        try:
            answer = json.loads(data) if data else {}
        except ValueError as problem:
            raise EngineLost(f"the server at {self.server.url} answers {path} without JSON: {data[:80]!r}") from problem
        if not isinstance(answer, dict):
            raise EngineLost(f"the server at {self.server.url} answers {path} with {data[:80]!r}, not an object")
        return answer

    def exchange(self, method: str, path: str, body: Json | None) -> tuple[int, bytes]:
        """Status and content of an answer."""
        connection = self.http
        try:
            if connection.sock is None:
                connection.connect()
                assert connection.sock is not None
                if self.broken:  # aborted meanwhile
                    raise ConnectionAbortedError("aborted")
                connection.sock.settimeout(self.seconds)
                connection.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            connection.request(method, path, None if body is None else json.dumps(body), self.server.headers)
            response = connection.getresponse()
            return response.status, response.read()
        except TimeoutError as problem:
            reason = f"does not answer {path} within {self.seconds:g} s"
            raise EngineLost(f"the server at {self.server.url} {reason}") from problem
        except (OSError, HTTPException) as problem:
            reason = str(problem) or type(problem).__name__
            raise EngineLost(f"the server at {self.server.url} is lost at {path}: {reason}") from problem

    def cut(self) -> None:
        """Abort the connection, from any thread; the one that reads from it notices, and closes it."""
        self.broken = True
        if (sock := self.http.sock) is not None:
            with suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)


def error_text(data: bytes, most: int = 300) -> str:
    """What a server says about a failure, without the JSON around it."""
    text = data.decode(errors="replace").strip()
    try:
        answer = json.loads(text)
        error = answer.get("error", answer)
        text = str(error.get("message", error) if isinstance(error, dict) else error)
    except (ValueError, AttributeError):
        pass
    return " ".join(text.split())[:most] or "no message"


def call_each(items: Sequence[Item], call: Callable[[Item], Answer]) -> list[Answer]:
    """Call with every item in parallel; return the results in order, or raise the first failure once all have ended.

    Each call must have its own deadline.
    """
    if not items:
        return []
    with ThreadPoolExecutor(len(items)) as pool:
        futures = [pool.submit(call, item) for item in items]
    return [future.result() for future in futures]


def with_deadline(seconds: float, what: str, call: Callable[[], Answer]) -> Answer:
    """What a call returns or raises; it runs in a thread, which is left behind if it does not return in time.

    For calls of other packages that have no deadline. Nothing that such a thread holds can be used again.
    """
    future: Future[Answer] = Future()

    def run() -> None:
        try:
            future.set_result(call())
        except BaseException as problem:
            future.set_exception(problem)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(seconds)
    if not future.done():
        raise EngineLost(f"{what} did not end within {seconds:g} s")
    return future.result(0)
