#!/bin/sh
# The tested environment, .venv: every file is checked against its sha256 in requirements/, nothing is built from source, and
# torch is the build for CPUs that was tested; where pip finds no such file this stops. CI begins with it.
#   sh tools/install-locked.sh [PYTHON]      PIP_FLAGS passes options to pip
set -eu
cd "$(dirname "$0")/.."
hashed="--require-hashes --no-deps --only-binary :all:"
[ -x .venv/bin/python ] || "${1:-python3}" -m venv .venv
pip() { .venv/bin/python -m pip install -q --disable-pip-version-check ${PIP_FLAGS:-} "$@"; }
pip $hashed -r requirements/torch.txt || {
  echo "install-locked: pip found no torch that requirements/torch.txt lists. On Linux, give PIP_EXTRA_INDEX_URL the index of builds" \
    "for CPUs that .github/workflows/test.yml has. It lists 64-bit Linux, Windows on x86 and macOS on Arm, with Python 3.11 to 3.14;" \
    "elsewhere use make .venv/installed-dev, which checks no hashes" >&2
  exit 1
}
pip $hashed -r requirements/hashes.txt
pip --no-deps --no-build-isolation -e packages/strict-answers -e . -e packages/pmdkit-lab -e packages/pmdkit-course -e packages/pmdkit-adapters
touch .venv/installed .venv/installed-dev
