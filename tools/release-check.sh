#!/bin/sh
# What must hold before a tag: the wheels and the sdists in dist/ as an index takes them, fresh installs of these wheels with the
# locked and the newest versions, every command of the pages, and the Dockerfile. The workflows: actionlint, from its releases.
#   sh tools/build.sh && sh tools/release-check.sh [PYTHON]
set -eu
cd "$(dirname "$0")/.."
[ -x .venv-release/bin/python ] || "${1:-python3}" -m venv .venv-release
.venv-release/bin/python -m pip install -q --disable-pip-version-check ${PIP_FLAGS:-} \
  --require-hashes --no-deps --only-binary :all: -r requirements/release.txt
.venv-release/bin/twine check --strict dist/*
.venv-release/bin/check-wheel-contents --config pyproject.toml dist/*.whl
.venv-release/bin/hadolint Dockerfile
export WHEELS="$PWD/dist"
sh tools/wheel.sh .venv/bin/python fresh locked
sh tools/wheel.sh .venv/bin/python fresh newest
sh tools/wheel.sh .venv/bin/python pages
