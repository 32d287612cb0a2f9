"""Freed memory is used again. Counted in pages that the kernel had to clear, in a process of its own."""

import platform
import subprocess
import sys

import pytest

COUNT = """
import resource
import torch
from pmdkit.toy.model import ModelConfig, Transformer

Transformer(ModelConfig(vocabulary=5))
for turn in range(4):
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    blocks = [torch.zeros(2**18) for _ in range(20)]  # 20 MiB, of which one block is a twentieth
    del blocks
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="asks the allocator of glibc")
def test_a_process_with_a_transformer_touches_no_new_page_for_memory_it_has_freed(monkeypatch):
    for name in ("MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_THRESHOLD_", "MALLOC_TOP_PAD_", "LD_PRELOAD"):
        monkeypatch.delenv(name, raising=False)
    done = subprocess.run([sys.executable, "-c", COUNT], capture_output=True, text=True, check=True, timeout=120)
    assert int(done.stdout) < 20 * 256 / 10  # a tenth of the pages of 4 KiB
