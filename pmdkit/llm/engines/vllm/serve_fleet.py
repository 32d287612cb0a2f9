"""The servers of a run: started here or given by address; waited for, checked, started anew. Not what they do."""

import tempfile
from pathlib import Path
from secrets import token_hex
from time import monotonic, sleep

from pmdkit.errors import EnvironmentLacks, UsageError
from pmdkit.llm.engines.protocol import EngineLost
from pmdkit.llm.engines.vllm.arguments import max_model_len
from pmdkit.llm.engines.vllm.folder import write_folder
from pmdkit.llm.engines.vllm.http import Server
from pmdkit.llm.engines.vllm.names import Names
from pmdkit.llm.engines.vllm.serve_command import check_host, command, divide, environment
from pmdkit.llm.engines.vllm.serve_process import ServerProcess, take_port
from pmdkit.llm.engines.vllm.serve_settings import SOON, check_plugin, check_settings, chosen
from pmdkit.llm.engines.vllm.serve_together import each
from pmdkit.llm.engines.vllm.versions import API, installed_version, interface
from pmdkit.llm.engines.wanted import Wanted

LOOK = 0.25  # seconds between looks at a server that starts
LAST = 1.0  # seconds for a server that failed to end and say why


class Fleet:
    """The servers of a run.

    Args:
        wanted: what the engine is made from; `vllm.urls` are servers of others, none starts `vllm.servers` here.

    Attributes:
        servers: all that are asked.
        processes: of servers started here, in the same order; none of others.
        api: how all of them take weights.
        transfer: "file" or "nccl".
        names: of the weights.
    """

    def __init__(self, wanted: Wanted) -> None:
        self.wanted = wanted
        self.names = Names(wanted.model.config)
        self.servers: list[Server] = [Server(url) for url in wanted.vllm.urls]
        self.processes: list[ServerProcess] = []
        self.own = not self.servers
        self.api: API = "native"
        self.transfer = "file"
        self.scratch = tempfile.TemporaryDirectory(prefix="pmdkit-vllm-")
        self.folder = Path(self.scratch.name)

    def start(self) -> None:
        """All of them, at the same time; they answer when this returns.

        Raises:
            EnvironmentLacks: a port is taken, accelerators or vLLM are missing, a server of others is not as needed.
            EngineLost: a server ends, or does not answer in time.
        """
        wanted, table = self.wanted, self.wanted.vllm
        if not self.own:
            self.wait()
            self.check_others()
            return
        self.api = interface(installed_version())
        self.transfer = chosen(wanted, self.api)
        if self.api == "native" and self.transfer == "file":
            check_plugin()
        check_host(table.host)
        self.accelerators = divide(wanted)
        context = max_model_len(wanted.context)
        write_folder(self.folder, wanted.model.config, self.names.architecture, context, wanted.tokenizer)
        ports: list[int] = []
        while len(ports) < table.servers:
            port = take_port(table.host, table.port + len(ports) if table.port else 0)
            ports += [port] if port not in ports else []  # a free one may be given twice
        for at, port in enumerate(ports):
            server, process = self.launch(at, port)
            self.servers.append(server)
            self.processes.append(process)
        self.wait()

    def launch(self, at: int, port: int) -> tuple[Server, ServerProcess]:
        """Start one server, under a name that no other server has."""
        host, model = self.wanted.vllm.host, f"pmdkit-{token_hex(8)}"
        line = command(self.wanted, self.folder, self.api, self.transfer, host, port, model)
        process = ServerProcess(line, environment(self.wanted, self.accelerators[at]), self.folder / f"{at}.log")
        return Server(f"http://{f'[{host}]' if ':' in host else host}:{port}", model), process

    def wait(self) -> None:
        """Until every server answers, as the one that is meant."""
        seconds = self.wanted.vllm.start
        until = monotonic() + seconds
        for at, server in enumerate(self.servers):
            while not self.healthy(server, min(SOON, seconds)):
                if self.own and self.processes[at].ended:
                    raise EngineLost(f"a vLLM server did not start: it {self.processes[at].how}")
                if monotonic() > until:
                    words = f"; it {self.processes[at].how}" if self.own else ""
                    raise EngineLost(
                        f"the server at {server.url} does not answer {seconds:g} s after the start (vllm.start){words}"
                    )
                sleep(LOOK)
            self.check_name(server)

    def healthy(self, server: Server, seconds: float) -> bool:
        """Whether it answers that it is well."""
        try:
            server.call("GET", "/health", seconds=seconds)
        except (EngineLost, UsageError):
            return False
        return True

    def check_name(self, server: Server) -> None:
        """The server that answers is the one that was started; one of others is taken by the name it has."""
        models = server.call("GET", "/v1/models", seconds=SOON).get("data")
        found = [one.get("id") for one in models if isinstance(one, dict)] if isinstance(models, list) else []
        if not server.model and found:
            server.model = str(found[0])
        if server.model not in found:
            raise EnvironmentLacks(
                f"another server answers at {server.url}, which serves {found}: set vllm.port to another one, or to 0"
            )

    def check_others(self) -> None:
        """Servers of others are of one supported version and were started as they must be."""
        kinds = set()
        for server in self.servers:
            answer = server.call("GET", "/version", seconds=SOON)
            kinds.add(interface(str(answer.get("version"))))
        if len(kinds) > 1:
            raise EnvironmentLacks("vllm.urls are of versions that take weights in different ways; use one version")
        self.api = kinds.pop()
        self.transfer = chosen(self.wanted, self.api)
        for server in self.servers:
            check_settings(server, self.wanted, self.api, self.transfer)

    def restart(self, every: bool) -> None:
        """Servers started here: anew where they ended, do not work, or all. Those of others: waited for."""
        if self.own:
            again = [at for at, server in enumerate(self.servers) if every or not self.works(at, server)]
            each(again, lambda at: self.processes[at].close())
            for at in again:
                port = self.servers[at].port if self.wanted.vllm.port else 0
                self.servers[at], self.processes[at] = self.launch(at, take_port(self.wanted.vllm.host, port))
        self.wait()

    def works(self, at: int, server: Server) -> bool:
        """Whether all processes of a server started here answer, the workers too."""
        if self.processes[at].ended:
            return False
        try:
            server.call("POST", "/collective_rpc", {"method": "check_health", "timeout": SOON}, seconds=SOON)
        except (EngineLost, UsageError):
            return False
        return True

    def told(self, problem: EngineLost) -> str:
        """What went wrong, with what a server that ended because of it has said."""
        until = monotonic() + LAST
        while self.processes and not any(process.ended for process in self.processes) and monotonic() < until:
            sleep(LOOK)
        ended = [process.how for process in self.processes if process.ended]
        return f"{problem}; the server {ended[0]}" if ended and ended[0] not in str(problem) else str(problem)

    def close(self) -> None:
        """End what was started here."""
        each(self.processes, lambda process: process.close())
        self.processes = []
        self.servers = []
        self.scratch.cleanup()
