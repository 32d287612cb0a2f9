#!/bin/sh
# The wheel and the sdist of each distribution, in dist/, made by tools whose sha256 is in requirements/build.txt.
# The course has no sdist: its lessons lie outside its folder.
#   sh tools/build.sh [PYTHON]      PIP_FLAGS passes options to pip
set -eu
cd "$(dirname "$0")/.."
[ -x .venv-build/bin/python ] || "${1:-python3}" -m venv .venv-build
.venv-build/bin/python -m pip install -q --disable-pip-version-check ${PIP_FLAGS:-} \
  --require-hashes --no-deps --only-binary :all: -r requirements/build.txt
rm -rf dist
build() { .venv-build/bin/python -m build --no-isolation --outdir dist "$@"; }
for source in . packages/strict-answers packages/pmdkit-lab packages/pmdkit-adapters; do
  build --sdist --wheel "$source"
done
build --wheel packages/pmdkit-course
