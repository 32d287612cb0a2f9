"""The engine of rollout.engine = "vllm-server": vLLM servers, started here or elsewhere, that all hold one policy.

The main process of a team alone owns and asks them. Whoever reaches a server can replace its weights, since vLLM's
routes for that have no keys: loopback by default, a private network at most. Which files: serve_command.py what is
started, serve_process.py how, http.py and serve_rows.py how servers are asked, serve_asking.py what, serve_file.py and
serve_nccl.py how weights reach them, serve_fleet.py which servers there are.
"""

from collections.abc import Callable, Mapping, Sequence
from secrets import token_hex
from typing import TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from pmdkit.errors import EnvironmentLacks, UsageError
from pmdkit.llm.engines.protocol import Engine, EngineLost, Phase, Progress, Responses, Sampling, Tokens
from pmdkit.llm.engines.vllm.reading import responses as in_rows
from pmdkit.llm.engines.vllm.serve_asking import response_body, response_reader, score_body, score_reader
from pmdkit.llm.engines.vllm.serve_file import while_paused
from pmdkit.llm.engines.vllm.serve_fleet import Fleet
from pmdkit.llm.engines.vllm.serve_rows import ask_all, deal
from pmdkit.llm.engines.vllm.serve_transfers import Transfer, make_transfer
from pmdkit.llm.engines.wanted import Wanted

Answer = TypeVar("Answer")
NOTHING = -1  # version of an engine without weights
LINES = 288  # requests to one copy of the model at a time: vLLM writes 256 together, some wait at its door


def make(wanted: Wanted) -> Engine:
    """Servers for a run, ready for weights.

    Raises:
        EnvironmentLacks: vLLM or accelerators are missing, a port is taken, a server does not start or answer, or is
            not as it must be.
        UsageError: vllm.options sets what is set here, vllm.host is every network, a URL is none.
    """
    fleet = Fleet(wanted)
    try:
        try:
            fleet.start()
            transfer = make_transfer(wanted, fleet)
            transfer.prepare(fleet.servers)
        except EngineLost as problem:
            raise EnvironmentLacks(fleet.told(problem)) from problem
    except BaseException:
        fleet.close()
        raise
    return ServerEngine(wanted, fleet, transfer)


class ServerEngine:
    """Writes and scores responses with the servers of a fleet.

    Args:
        wanted: what the engine is made from.
        fleet: its servers, which answer.
        transfer: how weights reach them.

    Attributes:
        tag: of the weights that all servers have said they hold; "" where there are none, or a publish was cut off.
        torn: some server may hold parts of two versions.
    """

    def __init__(self, wanted: Wanted, fleet: Fleet, transfer: Transfer) -> None:
        self.fleet, self.transfer = fleet, transfer
        self.ends = list(wanted.ends)
        self.vocabulary = int(wanted.model.config.get_text_config().vocab_size)
        self.silence = wanted.rollout.silence
        self.lines = (wanted.vllm.rows or LINES) * wanted.vllm.data_parallel
        self.version = NOTHING
        self.nonce, self.count = token_hex(4), 0
        self.tag, self.torn = "", False

    def generate(
        self,
        prompts: Sequence[Tokens],
        group: int,
        seeds: NDArray[np.uint64],
        sampling: Sampling,
        progress: Progress | None = None,
    ) -> Responses:
        """`group` responses to each of P prompts; a row depends on its prompt and its own entry of seeds [P * group].

        Which other rows are written at the same time, and on which server, moves its log-probabilities by rounding.
        """
        if not len(prompts) or group < 1 or seeds.shape != (len(prompts) * group,):
            raise UsageError(
                f"{len(prompts)} prompts, group {group}, seeds {list(seeds.shape)}; expected at least one prompt and "
                "one seed per row"
            )
        self.check_weights()
        call = token_hex(8)
        rows = self.asked(
            lambda: ask_all(
                deal(self.fleet.servers, len(prompts), group),
                response_body(prompts, group, seeds.tolist(), sampling, self.ends, call),
                response_reader(self.vocabulary, call),
                lines=self.lines,
                silence=self.silence,
                progress=progress,
            )
        )
        self.check_weights()  # nobody has exchanged them in between
        return self.asked(lambda: in_rows(rows, self.ends, sampling.width, self.version))

    def score(self, prompts: Sequence[Tokens], responses: Sequence[Tokens]) -> list[Tensor]:
        """[T_n] float32 log-probabilities of the tokens of N responses, each to its own prompt, at temperature 1."""
        if not len(prompts):
            return []
        self.check_weights()
        call = token_hex(8)
        rows = self.asked(
            lambda: ask_all(
                deal(self.fleet.servers, len(prompts), 1),
                score_body(prompts, responses, call),
                score_reader(prompts, responses, call),
                lines=self.lines,
                silence=self.silence,
            )
        )
        return [torch.tensor(row, dtype=torch.float32) for row in rows]

    def publish(self, weights: Mapping[str, Tensor], version: int) -> None:
        """All servers take these weights, named as the model names them, or none is asked for anything any more.

        They are paused until each has loaded everything and says so; nothing computed with older ones survives.
        """
        if version < self.version:
            raise UsageError(f"version {version} after version {self.version}; weights must not go back")
        servers = self.fleet.servers
        packed = self.transfer.pack(weights)
        try:
            self.count += 1
            tag = f"pmdkit-{self.nonce}-{version}-{self.count}"
            self.tag, self.torn = "", True
            self.asked(lambda: while_paused(servers, lambda: self.update(packed, tag), self.silence))
        finally:
            self.transfer.drop(packed)
        self.tag, self.torn, self.version = tag, False, version

    def update(self, packed: object, tag: str) -> None:
        """Weights into paused servers."""
        self.transfer.push(packed, self.fleet.servers, tag)
        self.check_tags(tag)

    def enter(self, phase: Phase) -> None:
        """Servers have memory of their own: there is nothing to free or claim."""

    def restart(self) -> None:
        """Start anew what was started here and is dead, hung or half updated; wait for servers of others."""
        self.tag, self.version = "", NOTHING
        self.fleet.restart(every=self.torn)
        self.transfer.prepare(self.fleet.servers)
        self.torn = False

    def close(self) -> None:
        """End what was started here; servers of others run on, without a connection for weights."""
        self.tag = ""
        self.transfer.close(self.fleet.servers)
        self.fleet.close()

    def check_weights(self) -> None:
        """Refuse to ask servers without weights, and servers with others than were published."""
        if self.torn:
            raise EngineLost("the last publish was cut off: a vLLM server may hold parts of two versions; restart it")
        if not self.tag:
            raise UsageError("the vLLM servers have no weights yet; publish weights before asking for responses")
        self.asked(lambda: self.check_tags(self.tag))

    def check_tags(self, tag: str) -> None:
        """Every server holds these weights."""
        for server, held in zip(self.fleet.servers, self.transfer.held(self.fleet.servers), strict=True):
            if held != tag:
                raise EngineLost(
                    f"the server at {server.url} has weights {held}; expected {tag}: somebody else exchanged them, or "
                    "it lost them"
                )

    def asked(self, call: Callable[[], Answer]) -> Answer:
        """What a call to servers returns; where it is lost, with what a server that ended has said."""
        try:
            return call()
        except EngineLost as lost:
            self.tag = ""
            raise EngineLost(self.fleet.told(lost)) from lost
