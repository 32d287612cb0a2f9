#!/bin/sh
# Rewrites the lock files in requirements/ after constraints.txt has changed. Read the difference before you commit it.
#   sh tools/lock.sh [PYTHON]
set -eu
cd "$(dirname "$0")/.."
[ -x .venv-audit/bin/python ] || "${1:-python3}" -m venv .venv-audit
.venv-audit/bin/python -m pip install -q --disable-pip-version-check ${PIP_FLAGS:-} uv==0.13.9 packaging==26.3
exec .venv-audit/bin/python requirements/lock.py
