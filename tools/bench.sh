#!/bin/sh
# Every benchmark against its peer, one after another. If an environment of peers cannot be created, its rows say so. The rows on
# page frames measure ./site: run make docs first.
#   sh tools/bench.sh PYTHON [--quick ...]
# no hashes: llama-cpp-python is compiled from source, and peers bring their own choice of packages; their versions are pinned
set -u
cd "$(dirname "$0")/.."
python=$1; shift
# Liger requires Triton, which is useless on a CPU. llama.cpp is compiled, which takes minutes; without a compiler its rows say so.
peers() (
  set -e
  [ ! -e .venv-bench/installed ] || exit 0
  [ -x .venv-bench/bin/python ] || "$python" -m venv .venv-bench
  pip() { .venv-bench/bin/python -m pip install -q --disable-pip-version-check ${PIP_FLAGS:-} "$@"; }
  pip -c constraints.txt torch
  pip -c constraints.txt -e packages/strict-answers -e '.[llm]' -e packages/pmdkit-lab -e packages/pmdkit-adapters trl==1.16.0
  pip --no-deps liger-kernel==0.8.5
  pip llama-cpp-python==0.3.36 gguf==0.19.0 || true
  touch .venv-bench/installed
)
peers
[ -e .venv-vllm/installed ] || sh tools/vllm.sh "$python"
exec .venv/bin/python benchmarks/run.py "$@"
