"""Ranks of one machine meet on loopback: the store of torch that they share listens on 127.0.0.1 alone.

By itself it listens on every network of the machine, whatever host it is told, and takes keys from anybody. Runs over
several machines start without this and need a private network.
"""

import os
import socket
import sys
from datetime import timedelta
from typing import Any

HOST = "127.0.0.1"
INTERFACE = "lo0" if sys.platform == "darwin" else "lo"


def stay_on_loopback() -> None:
    """Of this process, which is about to start ranks on this machine: its store, and what the ranks inherit for gloo.

    `accelerate launch` hands its arguments to torch, which has none for the address a store listens on: the name of
    the store's class is replaced where torch looks it up. tests/faults/test_security_sockets.py sees whether it holds.
    """
    from torch.distributed.elastic.rendezvous import static_tcp_rendezvous as meeting

    os.environ.setdefault("GLOO_SOCKET_IFNAME", INTERFACE)
    meeting.TCPStore = store  # type: ignore[assignment, attr-defined]


def store(host: str, port: int, size: int, is_master: bool, timeout: timedelta, multi_tenant: bool) -> Any:
    """A TCPStore with the arguments that torch's static rendezvous gives."""
    from torch.distributed import TCPStore  # type: ignore[attr-defined]

    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as place:
        place.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        place.bind((HOST, port))
        place.listen()
        return TCPStore(
            host, port, size, is_master, timeout, multi_tenant=multi_tenant, master_listen_fd=place.detach()
        )
