#!/bin/sh
# The tested environment, .venv: every file is checked against its sha256 in requirements/, nothing is built from source, and
# torch is the build for CPUs that was tested; where pip finds no such file this stops. CI begins with it.
#   sh tools/install-locked.sh [PYTHON]      PIP_FLAGS passes options to pip
set -eu
cd "$(dirname "$0")/.."
hashed="--require-hashes --no-deps --only-binary :all:"
[ -x .venv/bin/python ] || "${1:-python3}" -m venv .venv
pip() { .venv/bin/python -m pip install -q --disable-pip-version-check ${PIP_FLAGS:-} "$@"; }
pip $hashed -r requirements/torch.txt
pip $hashed -r requirements/hashes.txt
pip --no-deps --no-build-isolation -e packages/strict-answers -e . -e packages/pmdkit-lab -e packages/pmdkit-course
touch .venv/installed .venv/installed-dev
