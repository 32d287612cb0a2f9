#!/bin/sh
# Lessons 100 to 106 as a separate site, site-lite/, in which Python runs in the browser: docs/use/browser.md.
#   sh tools/lite.sh [PYTHON]
set -eu
cd "$(dirname "$0")/.."
[ -x .venv-lite/bin/jupyter ] || {
  "${1:-python3}" -m venv .venv-lite
  .venv-lite/bin/python -m pip install -q --disable-pip-version-check ${PIP_FLAGS:-} \
    --require-hashes --no-deps --only-binary :all: -r requirements/lite.txt
}
exec .venv/bin/python docs/lite.py .venv-lite/bin/jupyter site-lite
