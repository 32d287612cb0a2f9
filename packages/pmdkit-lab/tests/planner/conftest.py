"""Sizes of models written out by hand, so that tests of the planner need no configuration and no torch."""

import pytest
from generate.published import BASE

from pmdkit_lab.planner.cluster import cluster
from pmdkit_lab.planner.predict import Prediction
from pmdkit_lab.planner.workload import Sizes, Workload, lengths


def dense(layers, dimension, inner, heads, head, kv_heads, vocabulary, tied):
    """A Llama-shaped model."""
    block = dimension * head * (2 * heads + 2 * kv_heads) + 3 * dimension * inner
    ends = vocabulary * dimension
    total = layers * block + ends * (1 if tied else 2)
    return Sizes(
        weights=total, active=total, experts=0, choices=1, chosen=1, lookup=0 if tied else ends, layers=layers,
        vocabulary=vocabulary, dimension=dimension, attention=heads * head, kv_bytes=2 * layers * kv_heads * head * 2,
        kv_heads=kv_heads, kept_bytes=2 * layers * (10 * dimension + 4 * inner), head_tokens=1024, width_bytes=2,
        trained=total,
    )  # fmt: skip


SEVEN = dense(28, 3584, 18_944, 28, 128, 4, 152_064, tied=False)
PAPER = Workload(
    prompts=512, group=16, ministeps=16, passes=1, token_budget=20_480, prompt=170, longest=10_240, checkpointing=True,
    fsdp2=True, recompute=True,
)  # fmt: skip


@pytest.fixture(scope="session")
def paper():
    """The paper's run on Qwen2.5-7B, whose trainer was not pmdkit."""
    return Prediction(SEVEN, PAPER, lengths("direct", 8192), cluster("32xH100"), BASE)
