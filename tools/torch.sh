#!/bin/sh
# The rehearsal's tests with another torch, whose private names it uses; by default with the torch of constraints-gpu.txt.
#   sh tools/torch.sh [PYTHON [VERSION]]
# no hashes: the version is an argument; constraints.txt pins everything else
set -eu
cd "$(dirname "$0")/.."
version=${2:-$(sed -n 's/^torch==//p' constraints-gpu.txt)}
venv=.venv-torch-$version
[ -e "$venv/installed" ] || {
  "${1:-python3}" -m venv "$venv"
  grep -v '^torch==' constraints.txt >"$venv/constraints.txt"
  pip() { "$venv/bin/python" -m pip install -q --disable-pip-version-check ${PIP_FLAGS:-} "$@"; }
  pip "torch==$version"
  pip -c "$venv/constraints.txt" -e packages/strict-answers -e '.[lora]' -e packages/pmdkit-lab pytest hypothesis
  touch "$venv/installed"
}
exec "$venv/bin/python" -m pytest -q packages/pmdkit-lab/tests/rehearsal
