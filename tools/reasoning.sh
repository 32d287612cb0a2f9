#!/bin/sh
# The tests with the real reasoning-gym, in .venv-reasoning.
# no hashes: some of its packages have no wheels, and setup.py of a source may fetch more; constraints.txt pins what we share
#   sh tools/reasoning.sh [PYTHON]
set -eu
cd "$(dirname "$0")/.."
[ -e .venv-reasoning/installed ] || {
  "${1:-python3}" -m venv .venv-reasoning
  pip() { .venv-reasoning/bin/python -m pip install -q --disable-pip-version-check -c constraints.txt ${PIP_FLAGS:-} "$@"; }
  pip torch
  pip -e packages/strict-answers -e '.[llm,reasoning]' pytest hypothesis
  touch .venv-reasoning/installed
}
exec .venv-reasoning/bin/python -m pytest -q tests/envs/test_reasoning_puzzles.py
