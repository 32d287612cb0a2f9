#!/bin/sh
# Checks pins, hashes, bounds and what is installed in .venv, then asks PyPI for known vulnerabilities, by pip-audit.
# Exit codes: 0 nothing found, 3 nobody could be asked, 4 something is wrong.
#   sh tools/audit.sh [PYTHON]
set -eu
cd "$(dirname "$0")/.."
[ -x .venv-audit/bin/python ] || "${1:-python3}" -m venv .venv-audit
cmp -s requirements/audit.txt .venv-audit/installed.txt || {
  .venv-audit/bin/python -m pip install -q --disable-pip-version-check ${PIP_FLAGS:-} \
    --require-hashes --no-deps --only-binary :all: -r requirements/audit.txt
  cp requirements/audit.txt .venv-audit/installed.txt
}
exec .venv/bin/python requirements/audit.py --ask
