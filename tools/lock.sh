#!/bin/sh
# Rewrites the lock files in requirements/ after constraints.txt has changed. Read the difference before you commit it.
#   sh tools/lock.sh [PYTHON]
set -eu
cd "$(dirname "$0")/.."
[ -x .venv-lock/bin/python ] || "${1:-python3}" -m venv .venv-lock
.venv-lock/bin/python -m pip install -q --disable-pip-version-check ${PIP_FLAGS:-} \
  --require-hashes --no-deps --only-binary :all: -r requirements/lock.txt
exec .venv-lock/bin/python requirements/lock.py
