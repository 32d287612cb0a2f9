"""What a rank of several machines checks before it joins, and what torchrun's agent tells. The runs: test_launcher.py.

Not shown here: machines that are really two, NCCL.
"""

import os
import re
import socket
import sys

import pytest
import torch
from torch.distributed.elastic.multiprocessing.errors import ProcessFailure
from torch.distributed.elastic.rendezvous import api as rendezvous

from pmdkit.errors import EnvironmentLacks, UsageError
from pmdkit.llm import torchrun
from pmdkit.llm.launcher import ERROR_FILE, write_error_file

HERE = {"RANK": "3", "WORLD_SIZE": "4", "LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "2", "MASTER_PORT": "1"}


@pytest.fixture
def rank(monkeypatch):
    """Set the environment of a rank."""

    def be(**changes):
        for name in ("GLOO_SOCKET_IFNAME", torchrun.AGENT_STORE, "TORCHELASTIC_MAX_RESTARTS"):
            monkeypatch.delenv(name, raising=False)
        for name, value in {**HERE, "MASTER_ADDR": "127.0.0.1", **changes}.items():
            monkeypatch.setenv(name, value)

    return be


@pytest.mark.parametrize(
    "wrong",
    [{"RANK": "4"}, {"LOCAL_RANK": "2"}, {"LOCAL_WORLD_SIZE": "5"}, {"WORLD_SIZE": "four"}, {"MASTER_PORT": ""}],
)
def test_an_environment_that_is_no_rank_is_refused(rank, wrong):
    rank(**wrong)
    with pytest.raises(UsageError, match=rf"{next(iter(wrong))}.*start all processes with"):
        torchrun.check_rank("cpu", 1)


def test_too_few_accelerators_name_the_count_that_fits(rank, monkeypatch):
    rank(WORLD_SIZE="8", LOCAL_WORLD_SIZE="4")
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    with pytest.raises(EnvironmentLacks, match=r"4 processes were started on .* 2 accelerators.*--nproc-per-node 2"):
        torchrun.check_rank("auto", 1)
    torchrun.check_rank("cpu", 1)


def test_a_first_machine_that_cannot_be_reached_is_named_at_once(rank):
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]  # nobody listens once it is closed
    rank(MASTER_PORT=str(port), **{torchrun.AGENT_STORE: "True"})
    with pytest.raises(EnvironmentLacks, match=rf"rank 3 on .* at 127.0.0.1, port {port}: .*refused; give torchrun"):
        torchrun.check_rank("cpu", 60)


CARDS = {"lo": "127.0.0.1", "eth0": "10.0.0.7"}


@pytest.mark.parametrize(
    ("host", "address", "cards", "wanted"),
    [
        ("node0", "10.0.0.7", CARDS, "eth0"),  # the network of the first machine
        ("node0", "127.0.1.1", CARDS, "eth0"),  # Debian says so of its own name, and gloo would listen there
        ("127.0.0.1", "127.0.0.1", CARDS, "lo"),  # agents that stand for machines
        ("localhost", "127.0.0.1", CARDS, "lo"),
        ("node0", "fd00::7", CARDS, None),  # gloo's own choice
    ],
)
def test_gloo_listens_where_the_other_machines_are(rank, monkeypatch, host, address, cards, wanted):
    rank()
    monkeypatch.setattr(torchrun, "address_towards", lambda *_: address)
    monkeypatch.setattr(torchrun, "interfaces", lambda: cards)
    torchrun.join_network(host, 1)
    assert os.environ.get("GLOO_SOCKET_IFNAME") == wanted


@pytest.mark.parametrize("cards", [{"lo": "127.0.0.1"}, {**CARDS, "docker0": "172.17.0.1"}])
def test_a_machine_that_knows_itself_on_loopback_only_is_told_what_to_set(rank, monkeypatch, cards):
    rank()
    monkeypatch.setattr(torchrun, "address_towards", lambda *_: "127.0.1.1")
    monkeypatch.setattr(torchrun, "interfaces", lambda: cards)
    with pytest.raises(EnvironmentLacks, match=r"knows node0 as 127.0.1.1.*set GLOO_SOCKET_IFNAME"):
        torchrun.join_network("node0", 1)
    rank(GLOO_SOCKET_IFNAME="docker0")
    torchrun.join_network("node0", 1)  # who has chosen is believed


@pytest.mark.skipif(sys.platform != "linux", reason="interfaces are listed on Linux only")
def test_interfaces_are_those_of_this_machine():
    found = torchrun.interfaces()
    assert torchrun.address_towards("127.0.0.1", 9) == "127.0.0.1"
    assert [name for name, address in found.items() if torchrun.is_loopback(address)]


@pytest.mark.parametrize(("resume", "named"), [(False, False), (True, False), (False, True)])
def test_a_command_that_torchrun_cannot_repeat_is_refused(rank, resume, named):
    rank(TORCHELASTIC_MAX_RESTARTS="3")
    with pytest.raises(UsageError, match=r"--max-restarts 3.*--resume and --out"):
        torchrun.check_restarts(resume, named)
    torchrun.check_restarts(True, True)
    rank(TORCHELASTIC_MAX_RESTARTS="0")
    torchrun.check_restarts(resume, named)


def failure(tmp_path, monkeypatch, rank, code, sentence="", consequence=False):
    """What torch elastic knows of a rank that failed."""
    path = tmp_path / f"{rank}.json"
    if sentence:
        monkeypatch.setenv(ERROR_FILE, str(path))
        write_error_file(sentence, code, consequence)
    return ProcessFailure(local_rank=rank, pid=100 + rank, exitcode=code, error_file=str(path))


@pytest.mark.parametrize(
    ("ends", "code", "told"),
    [
        ([(0, 6, "the loss is nan"), (1, 7, "rank 1 lost another one", True)], 6, ""),  # the ranks have said it
        ([(0, 75, "stopped after step 3")], 75, ""),
        ([(1, -9), (0, 7, "rank 0 lost another one", True)], 7, r"rank 1 on .* was killed by SIGKILL.*--resume"),
        ([(0, 1)], 1, "rank 0 on .* ended with exit code 1"),
    ],
)
def test_the_agent_leaves_with_the_code_of_the_cause(tmp_path, monkeypatch, ends, code, told):
    failures = {end[0]: failure(tmp_path, monkeypatch, *end) for end in ends}
    found, sentence = torchrun.report_failures(failures)
    assert found == code
    assert re.fullmatch(told + ".*" if told else "", sentence)


@pytest.mark.parametrize(
    ("problem", "told"),
    [
        (rendezvous.RendezvousTimeoutError(), "fewer than 2 machines came to the rendezvous at node0:29500 in time"),
        (rendezvous.RendezvousConnectionError("gone"), "node0:29500 cannot be reached from .*: gone"),
        (rendezvous.RendezvousClosedError(), "--rdzv-id seven has ended, its machines report; take another id"),
        (ValueError("Cuda is not available."), "torchrun refuses its options: Cuda is not available."),
    ],
)
def test_a_rendezvous_that_fails_is_one_sentence(monkeypatch, capsys, problem, told):
    def fail(options):
        raise problem

    monkeypatch.setattr("torch.distributed.run.run", fail)
    arguments = ["--nnodes", "2", "--rdzv-backend", "c10d", "--rdzv-endpoint", "node0:29500", "--rdzv-id", "seven"]
    assert torchrun.main([*arguments, "-m", "pmdkit"]) == (2 if isinstance(problem, ValueError) else 3)
    assert re.match(f"pmdkit: error: .*{told}", capsys.readouterr().err)


def test_the_machine_of_the_endpoint_opens_the_rendezvous(monkeypatch):
    """By its address, whatever its name stands for: torch compares names only."""
    found = [address for address in torchrun.interfaces().values() if not torchrun.is_loopback(address)]
    if not found:
        pytest.skip("this machine has no network")
    with socket.create_server((found[0], 0)) as taken:
        port = taken.getsockname()[1]
        assert not torchrun.hosts_endpoint(f"{found[0]}:{port}")  # another agent of this machine was first
    assert torchrun.hosts_endpoint(f"{found[0]}:{port}")
    assert not torchrun.hosts_endpoint(f"127.0.0.1:{port}")
    seen = []
    monkeypatch.setattr("torch.distributed.run.run", seen.append)
    arguments = ["--nnodes", "2", "--rdzv-backend", "c10d", "--rdzv-endpoint", f"{found[0]}:{port}", "-m", "pmdkit"]
    assert torchrun.main(["--rdzv-conf", "join_timeout=9", *arguments]) == 0
    assert seen[0].rdzv_conf == "is_host=true,join_timeout=9"
