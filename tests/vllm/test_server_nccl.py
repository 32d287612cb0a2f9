"""Our side of a transfer by NCCL against vLLM's own classes, without accelerators: what each asks of the other."""

from typing import Any

import pytest
import torch

from pmdkit.errors import EnvironmentLacks
from pmdkit.llm.engines.base import EngineLost
from pmdkit.llm.engines.vllm.http import Server
from pmdkit.llm.engines.vllm.weights_file import WeightNames
from pmdkit.llm.engines.vllm.weights_transfer import BroadcastClient, NCCLTransfer, WeightStream

pytestmark = pytest.mark.vllm


class Recorded(Server):
    """A server that answers everything with nothing, and remembers it."""

    def __init__(self, url):
        super().__init__(url)
        self.asked: list[tuple[str, Any]] = []

    def call(self, method, path, body=None, *, seconds):
        self.asked.append((path, body))
        return {"world_size": 2}


@pytest.fixture
def servers():
    return [Recorded("http://127.0.0.1:1"), Recorded("http://127.0.0.1:2")]


def test_vllm_s_sender_drives_our_client_with_what_our_source_declares(starter, servers, monkeypatch):
    """Its round trip for real, the broadcast itself aside; it compares each tensor with what was declared."""
    from vllm.distributed.weight_transfer.base import VLLMWeightSyncClient
    from vllm.distributed.weight_transfer.nccl_engine import (
        NCCLTrainerWeightTransferEngine,
        NCCLWeightTransferUpdateInfo,
    )

    fan, source = BroadcastClient(servers, [2, 2], 5.0), WeightStream(WeightNames(starter.model.config), torch.float32)
    assert isinstance(fan, VLLMWeightSyncClient)
    sender = NCCLTrainerWeightTransferEngine(client=fan, source=source)
    sent = {}
    monkeypatch.setattr(sender, "_broadcast", lambda source, meta: sent.update(sender._checked_iter(source, meta)))
    source.weights, fan.tag = starter.weights(), "a tag"
    sender.send_weights()
    for server in servers:
        assert [path for path, _ in server.asked] == [
            "/start_weight_update",
            "/update_weights",
            "/finish_weight_update",
        ]
        told = NCCLWeightTransferUpdateInfo(**server.asked[1][1]["update_info"])
        assert told.names == list(sent)
        assert set(told.dtype_names) == {"float32"}
        assert server.asked[2][1] == {"weight_version": "a tag"}
    for name, weight in starter.weights().items():
        assert torch.equal(sent[name], weight)


def test_workers_are_told_where_to_meet_in_vllm_s_own_words(servers):
    from vllm.distributed.weight_transfer.nccl_common import NCCLWeightTransferInitInfo, worker_init_payload

    info = NCCLWeightTransferInitInfo(master_address="127.0.0.1", master_port=7, rank_offset=1, world_size=5)
    BroadcastClient(servers, [2, 2], 5.0).init_weight_transfer_engine(worker_init_payload(info))
    told = [NCCLWeightTransferInitInfo(**server.asked[0][1]["init_info"]) for server in servers]
    assert [one.rank_offset for one in told] == [1, 3]
    assert {one.world_size for one in told} == {5}


def test_without_cuda_it_is_refused_and_unprepared_it_is_lost(starter, servers):
    transfer = NCCLTransfer(
        WeightNames(starter.model.config), torch.float32, torch.device("cpu"), start=1.0, seconds=1.0
    )
    with pytest.raises(EnvironmentLacks, match="NCCL needs CUDA"):
        transfer.prepare(servers)
    with pytest.raises(EngineLost, match="not met"):
        transfer.push_weights(transfer.pack(starter.weights()), servers, "a tag")
    assert not servers[0].asked
