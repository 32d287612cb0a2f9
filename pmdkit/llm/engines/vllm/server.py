"""The engine of rollout.engine = "vllm-server": vLLM servers, started here or elsewhere, with one policy.

Only the main process owns and calls them. Anyone who reaches a server can replace its weights, since vLLM's routes for
that have no authentication: servers listen on loopback by default, on a private network at most.
"""

import tempfile
from collections.abc import Callable, Mapping, Sequence
from importlib.metadata import entry_points
from pathlib import Path
from secrets import token_hex
from time import monotonic, sleep
from typing import Any, TypeVar

import numpy as np
import torch

from pmdkit.errors import EnvironmentLacks, UsageError
from pmdkit.llm.engines.base import (
    NO_WEIGHTS,
    EngineConfig,
    EngineLost,
    Finished,
    Phase,
    Progress,
    Responses,
    Sampling,
    Tokens,
)
from pmdkit.llm.engines.vllm import arguments, check_version, completions, installed_version, outputs, server_process
from pmdkit.llm.engines.vllm.http import Json, Server, call_each
from pmdkit.llm.engines.vllm.plugin import FILE
from pmdkit.llm.engines.vllm.weights_file import WeightNames
from pmdkit.llm.engines.vllm.weights_transfer import FileTransfer, NCCLTransfer, make_transfer

Answer = TypeVar("Answer")
REQUESTS_PER_REPLICA = 288  # at a time: vLLM generates 256 together, the rest wait in its queue
POLL = 0.25  # seconds between checks of a server that starts
LAST_WORDS = 1.0  # seconds for a failed server to exit and say why
SOON = 10.0  # seconds in which a working server answers a trivial request
PLUGINS = "vllm.general_plugins"
HOW_TO_START = (
    "start it with VLLM_SERVER_DEV_MODE=1 vllm serve MODEL --logprobs-mode processed_logprobs "
    '--generation-config vllm --weight-transfer-config \'{"backend": "%s"}\''
)


def make(config: EngineConfig) -> "ServerEngine":
    """Servers for a run, ready for weights.

    Raises:
        EnvironmentLacks: vLLM or accelerators are missing, a port is taken, a server does not start or answer, or has
            the wrong settings.
        UsageError: vllm.options sets an argument that is set here, vllm.host is every network, a URL is invalid.
    """
    fleet = Fleet(config)
    try:
        try:
            fleet.start()
            transfer = make_transfer(config, fleet.transfer, fleet.names)
            transfer.prepare(fleet.servers)
        except EngineLost as problem:
            raise EnvironmentLacks(fleet.explain(problem)) from problem
    except BaseException:
        fleet.close()
        raise
    return ServerEngine(config, fleet, transfer)


class ServerEngine:
    """Generates and scores responses with the running servers of a fleet.

    Attributes:
        tag: of the weights that all servers have confirmed; "" if there are none, or a publish was interrupted.
        torn: some server may hold parts of two versions.
    """

    def __init__(self, config: EngineConfig, fleet: "Fleet", transfer: FileTransfer | NCCLTransfer) -> None:
        self.fleet, self.transfer = fleet, transfer
        self.ends = list(config.ends)
        self.vocabulary = int(config.model.config.get_text_config().vocab_size)
        self.silence = config.rollout.silence
        self.connections = (config.vllm.rows or REQUESTS_PER_REPLICA) * config.vllm.data_parallel
        self.version = NO_WEIGHTS
        self.nonce, self.count = token_hex(4), 0
        self.tag, self.torn = "", False
        self.on_finished: Finished | None = None

    def generate(
        self,
        prompts: Sequence[Tokens],
        group: int,
        seeds: np.ndarray,
        sampling: Sampling,
        progress: Progress | None = None,
    ) -> Responses:
        """`group` responses to each of P prompts; a row depends on its prompt and its own entry of seeds [P * group].

        The server, and the other rows generated at the same time, change its log-probabilities by rounding only.
        """
        if not len(prompts) or group < 1 or seeds.shape != (len(prompts) * group,):
            raise UsageError(
                f"{len(prompts)} prompts, group {group}, seeds {list(seeds.shape)}; expected at least one prompt and "
                "one seed per row"
            )
        self.check_weights()
        call, report = token_hex(8), self.on_finished
        rows = self.call_servers(
            lambda: completions.complete_all(
                completions.deal_rows(self.fleet.servers, len(prompts), group),
                completions.response_body(prompts, group, seeds.tolist(), sampling, self.ends, call),
                completions.response_reader(self.vocabulary, call),
                connections=self.connections,
                silence=self.silence,
                progress=progress,
                finished=None if report is None else lambda row, found: report(row // group, found.token_ids),
            )
        )
        self.check_weights()  # nobody has replaced them meanwhile
        return self.call_servers(lambda: outputs.to_responses(rows, self.ends, sampling.width, self.version))

    def score(self, prompts: Sequence[Tokens], responses: Sequence[Tokens]) -> list[torch.Tensor]:
        """[T_n] float32 log-probabilities of the tokens of N responses, each to its own prompt, at temperature 1."""
        if not len(prompts):
            return []
        self.check_weights()
        call = token_hex(8)
        rows = self.call_servers(
            lambda: completions.complete_all(
                completions.deal_rows(self.fleet.servers, len(prompts), 1),
                completions.score_body(prompts, responses, call),
                completions.score_reader(prompts, responses, call),
                connections=self.connections,
                silence=self.silence,
            )
        )
        return [torch.tensor(row, dtype=torch.float32) for row in rows]

    def publish(self, weights: Mapping[str, torch.Tensor], version: int) -> None:
        """Load these weights, named as in the model, into all servers; after a failure none is used before `restart`.

        Servers are paused until each has confirmed that all is loaded; nothing computed with older weights survives.
        """
        if version < self.version:
            raise UsageError(f"version {version} after version {self.version}; weights must not go back")
        servers = self.fleet.servers
        packed: Any = self.transfer.pack(weights)
        self.count += 1
        tag = f"pmdkit-{self.nonce}-{version}-{self.count}"

        def push_weights() -> None:
            self.transfer.push_weights(packed, servers, tag)
            self.check_tags(tag)

        try:
            self.tag, self.torn = "", True
            self.call_servers(lambda: while_paused(servers, push_weights, self.silence))
        finally:
            self.transfer.release(packed)
        self.tag, self.torn, self.version = tag, False, version

    def enter(self, phase: Phase) -> None:
        """Do nothing: servers have their own memory, so there is nothing to free or claim."""

    def restart(self) -> None:
        """Restart servers started here that are dead, hung or half updated; wait for external servers."""
        self.tag, self.version = "", NO_WEIGHTS
        self.fleet.restart(every=self.torn)
        self.transfer.prepare(self.fleet.servers)
        self.torn = False

    def close(self) -> None:
        """Stop the servers started here; external servers keep running, without a connection for weights."""
        self.tag = ""
        self.transfer.close(self.fleet.servers)
        self.fleet.close()

    def check_weights(self) -> None:
        """Refuse to call servers without weights, or with weights other than those published."""
        if self.torn:
            raise EngineLost("the last publish was cut off: a vLLM server may hold parts of two versions; restart it")
        if not self.tag:
            raise UsageError("the vLLM servers have no weights yet; publish weights before asking for responses")
        self.call_servers(lambda: self.check_tags(self.tag))

    def check_tags(self, tag: str) -> None:
        """Check that every server holds the weights with this tag."""
        servers = self.fleet.servers
        answers = call_each(servers, lambda one: one.call("GET", "/weight_info", seconds=self.silence))
        for server, answer in zip(servers, answers, strict=True):
            held = str(answer.get("weight_version"))  # vLLM's name for the weights that a server holds
            if held != tag:
                raise EngineLost(
                    f"the server at {server.url} has weights {held}; expected {tag}: somebody else replaced them, or "
                    "it lost them"
                )

    def call_servers(self, call: Callable[[], Answer]) -> Answer:
        """What a call to servers returns; a loss is raised with the last words of a server that ended."""
        try:
            return call()
        except EngineLost as lost:
            self.tag = ""
            raise EngineLost(self.fleet.explain(lost)) from lost


class Fleet:
    """The servers of a run, started here or given by URL: waits for them, checks and restarts them.

    Args:
        config: of the engine; `vllm.urls` are external servers, without any `vllm.servers` are started here.

    Attributes:
        servers: all that are used.
        processes: of servers started here, in the same order; empty for external servers.
        transfer: "file" or "nccl".
        names: of the weights.
    """

    def __init__(self, config: EngineConfig) -> None:
        self.config = config
        self.names = WeightNames(config.model.config)
        self.servers: list[Server] = [Server(url) for url in config.vllm.urls]
        self.processes: list[server_process.ServerProcess] = []
        self.own = not self.servers
        self.transfer = "file"
        self.scratch = tempfile.TemporaryDirectory(prefix="pmdkit-vllm-")
        self.folder = Path(self.scratch.name)

    def start(self) -> None:
        """Start all servers at the same time; they answer when this returns.

        Raises:
            EnvironmentLacks: a port is taken, accelerators or vLLM are missing, an external server has wrong settings.
            EngineLost: a server ends, or does not answer in time.
        """
        config, table = self.config, self.config.vllm
        if not self.own:
            self.wait()
            self.check_others()
            return
        check_version(installed_version())
        self.transfer = transfer_kind(config)
        if self.transfer == "file":
            check_plugin()
        server_process.check_host(table.host)
        self.accelerators = server_process.server_accelerators(config)
        context = arguments.max_model_len(config.context)
        arguments.write_folder(self.folder, config.model.config, self.names.architecture, context, config.tokenizer)
        ports: list[int] = []
        while len(ports) < table.servers:
            port = server_process.find_port(table.host, table.port + len(ports) if table.port else 0)
            ports += [port] if port not in ports else []  # the same free port may be found twice
        for at, port in enumerate(ports):
            server, process = self.launch(at, port)
            self.servers.append(server)
            self.processes.append(process)
        self.wait()

    def launch(self, at: int, port: int) -> tuple[Server, server_process.ServerProcess]:
        """Start one server, under a unique model name."""
        host, model = self.config.vllm.host, f"pmdkit-{token_hex(8)}"
        command = server_process.server_command(self.config, self.folder, self.transfer, host, port, model)
        environment = server_process.server_environment(self.config, self.accelerators[at])
        process = server_process.ServerProcess(command, environment, self.folder / f"{at}.log")
        return Server(f"http://{f'[{host}]' if ':' in host else host}:{port}", model), process

    def wait(self) -> None:
        """Wait until every server answers, and check that it is the right one."""
        seconds = self.config.vllm.start
        until = monotonic() + seconds
        for at, server in enumerate(self.servers):
            while not answers(server, "GET", "/health", None, min(SOON, seconds)):
                if self.own and self.processes[at].ended:
                    raise EngineLost(f"a vLLM server did not start: it {self.processes[at].how}")
                if monotonic() > until:
                    words = f"; it {self.processes[at].how}" if self.own else ""
                    raise EngineLost(
                        f"the server at {server.url} does not answer {seconds:g} s after the start (vllm.start){words}"
                    )
                sleep(POLL)
            self.check_name(server)

    def check_name(self, server: Server) -> None:
        """Check that the server that answers is the one that was started; adopt an external server's model name."""
        models = server.call("GET", "/v1/models", seconds=SOON).get("data")
        found = [one.get("id") for one in models if isinstance(one, dict)] if isinstance(models, list) else []
        if not server.model and found:
            server.model = str(found[0])
        if server.model not in found:
            raise EnvironmentLacks(
                f"another server answers at {server.url}, which serves {found}: set vllm.port to another one, or to 0"
            )

    def check_others(self) -> None:
        """Check that external servers have a supported version and the right settings."""
        for server in self.servers:
            check_version(str(server.call("GET", "/version", seconds=SOON).get("version")))
        self.transfer = transfer_kind(self.config)
        for server in self.servers:
            check_settings(server, self.config, self.transfer)

    def restart(self, every: bool) -> None:
        """Restart servers started here that ended or do not work, or all with `every`; wait for external servers."""
        if self.own:
            again = [at for at, server in enumerate(self.servers) if every or not self.works(at, server)]
            call_each(again, lambda at: self.processes[at].close())
            for at in again:
                port = self.servers[at].port if self.config.vllm.port else 0
                port = server_process.find_port(self.config.vllm.host, port)
                self.servers[at], self.processes[at] = self.launch(at, port)
        self.wait()

    def works(self, at: int, server: Server) -> bool:
        """Whether all processes of a server started here answer, including the workers."""
        body = {"method": "check_health", "timeout": SOON}
        return not self.processes[at].ended and answers(server, "POST", "/collective_rpc", body, SOON)

    def explain(self, problem: EngineLost) -> str:
        """What went wrong, with the last words of a server that ended because of it."""
        until = monotonic() + LAST_WORDS
        while self.processes and not any(process.ended for process in self.processes) and monotonic() < until:
            sleep(POLL)
        ended = [process.how for process in self.processes if process.ended]
        return f"{problem}; the server {ended[0]}" if ended and ended[0] not in str(problem) else str(problem)

    def close(self) -> None:
        """Stop the servers started here, and remove their files."""
        call_each(self.processes, lambda process: process.close())
        self.processes = []
        self.servers = []
        self.scratch.cleanup()


def answers(server: Server, method: str, path: str, body: Json | None, seconds: float) -> bool:
    """Whether a server answers in time and without an error."""
    try:
        server.call(method, path, body, seconds=seconds)
    except (EngineLost, UsageError):
        return False
    return True


def transfer_kind(config: EngineConfig) -> str:
    """How weights reach servers: "file" or "nccl". UsageError if servers do not support vllm.transfer."""
    kind = config.vllm.transfer
    if kind == "ipc":
        raise UsageError("vllm.transfer is 'ipc', which works in one process; servers take 'nccl', 'file' or 'auto'")
    if kind == "auto":
        return "nccl" if arguments.on_accelerator(config) else "file"
    return kind


def check_plugin() -> None:
    """Check that vLLM can find our backend: by an entry point, which only an installed pmdkit has.

    Raises:
        EnvironmentLacks: there is no entry point.
    """
    if not any(point.value == "pmdkit.llm.engines.vllm.plugin:register" for point in entry_points(group=PLUGINS)):
        raise EnvironmentLacks(
            f"vLLM does not know pmdkit, which is not installed here with its entry point {PLUGINS}: install it with "
            "pip (in a checkout: pip install -e .), also where servers run"
        )


def check_settings(server: Server, config: EngineConfig, transfer: str) -> None:
    """Check the settings of an external server: log-probabilities, context, and weight transfer.

    Raises:
        EnvironmentLacks: a setting is wrong; the message says how to start the server.
    """
    backend = FILE if transfer == "file" else transfer
    try:
        info = server.call("GET", "/server_info?config_format=json", seconds=SOON).get("vllm_config")
    except UsageError as problem:
        raise EnvironmentLacks(f"{problem}; {HOW_TO_START % backend}") from problem
    if not isinstance(info, dict):
        raise EnvironmentLacks(f"the server at {server.url} does not report its settings; {HOW_TO_START % backend}")
    model: dict[str, Any] = info.get("model_config") or {}
    wrong = []
    if model.get("logprobs_mode") != "processed_logprobs":
        wrong.append(f"logprobs_mode {model.get('logprobs_mode')}")
    if (model.get("max_model_len") or 0) < (needed := arguments.max_model_len(config.context)):
        wrong.append(f"max_model_len {model.get('max_model_len')} of {needed} needed")
    if (info.get("weight_transfer_config") or {}).get("backend") != backend:
        wrong.append(f"weight_transfer_config {info.get('weight_transfer_config')}")
    if wrong:
        raise EnvironmentLacks(f"the server at {server.url} has {', '.join(wrong)}; {HOW_TO_START % backend}")


def while_paused(servers: Sequence[Server], update: Callable[[], None], seconds: float) -> None:
    """Pause generation on all servers, update, drop what was computed with older weights, and resume.

    A failure on the way leaves the servers paused: they accept requests, but generate nothing.
    """
    call_each(servers, lambda server: server.call("POST", "/pause?mode=abort", seconds=seconds))
    update()
    answers = call_each(servers, lambda server: server.call("POST", "/reset_prefix_cache", seconds=seconds))
    for server, answer in zip(servers, answers, strict=True):
        if answer.get("success") is False:
            raise EngineLost(f"the server at {server.url} keeps keys and values of older weights")
    call_each(servers, lambda server: server.call("POST", "/resume", seconds=seconds))
