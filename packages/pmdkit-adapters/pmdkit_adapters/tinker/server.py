"""A deadline around each call of a server, and limits on what it sends.

The SDK tries again for minutes without a word, its time-outs hold for each byte, it follows redirects with the key in
the request, and it reads a reply of any size.
"""

import sys
import threading
from collections.abc import AsyncIterator, Callable
from typing import Any, TypeVar

import httpx

from pmdkit.errors import ComponentDied, PmdkitError, first_line, printable

CONTACT = 60  # seconds for a server's first answers
LONGEST = 600  # seconds for a later call: a large model may be loaded or compiled first
WRITTEN, READ = 10, 1000  # tokens a second of a slow server: a call with many tokens gets more than LONGEST
NOTICE = 5  # seconds until a wait is mentioned
LARGEST = 2**27  # bytes of a reply: 4 million log-probabilities in JSON; a request for responses has far fewer

T = TypeVar("T")


class Server:
    """The server at an address.

    Attributes:
        refused: why a reply was refused, once one was; the SDK would ask for it again and again.
        mentioned: calls whose wait was mentioned, each once in a run.
    """

    def __init__(self, url: str) -> None:
        self.url = url
        self.refused = ""
        self.mentioned: set[str] = set()

    def ask(
        self,
        what: str,
        call: Callable[[], T],
        seconds: float = LONGEST,
        error: type[PmdkitError] = ComponentDied,
        remedy: str = "the last checkpoint is intact: run again with --resume",
    ) -> T:
        """The result of `call`, made in a thread that is left behind if it takes too long.

        Raises:
            error: it raises, takes more than `seconds`, or a reply was refused.
        """
        answers: list[T] = []
        problems: list[BaseException] = []

        def run() -> None:
            try:
                answers.append(call())
            except BaseException as problem:
                problems.append(problem)

        thread = threading.Thread(target=run, daemon=True)
        thread.start()
        waited = 0.0
        while not self.refused and waited < seconds:
            pause = min(1.0, seconds - waited)
            thread.join(pause)
            if not thread.is_alive():
                break
            waited += pause
            if waited >= NOTICE and what not in self.mentioned:
                self.mentioned.add(what)
                limit = f"at most {seconds:.0f} s; later waits for this are not mentioned"
                print(f"pmdkit: waiting for the Tinker server at {self.url} to {what}, {limit}", file=sys.stderr)
        problem = problems[0] if problems else None
        if isinstance(problem, PmdkitError):
            raise problem
        if answers and not self.refused:
            return answers[0]
        late = (
            f"no answer in {seconds:.0f} s" if problem is None else f"{type(problem).__name__}: {first_line(problem)}"
        )
        why = printable(self.refused or late)
        raise error(f"the Tinker server at {self.url} failed to {what} ({printable(why)}); {remedy}") from problem

    def http_client(self) -> httpx.AsyncClient:
        """A client for the SDK. Three replies make it call `refuse`: a redirect, with which the key would go along, a
        compressed one, whose few bytes may stand for gigabytes, and one of more than LARGEST bytes.
        """

        async def check(response: httpx.Response) -> None:
            if response.is_redirect:
                place = response.headers.get("location", "no address")[:200]
                why = f"it redirects to {place} (status {response.status_code}), and the key is not sent elsewhere"
                self.refuse(why)
            if response.headers.get("content-encoding", "identity") != "identity":
                self.refuse("it sends a compressed reply, which was not asked for")
            assert isinstance(response.stream, httpx.AsyncByteStream)
            response.stream = Limited(response.stream, self.refuse)

        return httpx.AsyncClient(
            follow_redirects=False,
            headers={"accept-encoding": "identity"},
            limits=httpx.Limits(max_connections=1000, max_keepalive_connections=20),  # the SDK's own
            event_hooks={"response": [check]},
        )

    def refuse(self, why: str) -> None:
        """Refuse a reply: the SDK gets an error, and every `ask` ends."""
        self.refused = why
        raise httpx.DecodingError(why)


class Limited(httpx.AsyncByteStream):
    """The bytes of a reply; after LARGEST of them `refuse` is called, which raises."""

    def __init__(self, stream: httpx.AsyncByteStream, refuse: Callable[[str], Any]) -> None:
        self.stream, self.refuse = stream, refuse

    async def __aiter__(self) -> AsyncIterator[bytes]:
        """The bytes, in pieces."""
        size = 0
        async for piece in self.stream:
            size += len(piece)
            if size > LARGEST:
                self.refuse(f"it sends more than {LARGEST // 2**20} MiB in one reply")
            yield piece

    async def aclose(self) -> None:
        """Close the connection."""
        await self.stream.aclose()
