#!/bin/sh
# The adapters against the real verl and TRL, and the tinker backend against a real server, each in an environment of its
# own beside the repository's .venv.
#   packages/pmdkit-adapters/tests/run.sh        build what is missing, run all
#   packages/pmdkit-adapters/tests/run.sh trl    one of them
# PYTHON picks the interpreter of the environments, PIP_FLAGS passes options to pip.
# no hashes: verl, TRL and tinker name torches of their own, some without wheels; the lists of requirements pin their versions
set -eu
cd "$(dirname "$0")/../../.."
PYTHON=${PYTHON:-python3}
export OMP_NUM_THREADS="${OMP_NUM_THREADS:-1}" HF_HUB_OFFLINE=1 HF_HUB_DISABLE_TELEMETRY=1 PMDKIT_ADAPTERS=1
export PYTHONPATH="$PWD/packages/pmdkit-lab${PYTHONPATH:+:$PYTHONPATH}" # reads what the recorders wrote

wanted="verl trl tinker"
case "${1:-}" in
"") ;;
verl | trl | tinker) wanted=$1 ;;
*)
  echo "run.sh got '$1'; expected verl, trl, tinker, or nothing" >&2
  exit 2
  ;;
esac

# torch first and alone: where a CPU build is offered it is taken, and nothing later replaces it. SkyRL asks for Python
# 3.12, and runs on 3.11
build() {
  venv=.venv-$1
  list=packages/pmdkit-adapters/tests/$1/requirements.txt
  alone=packages/pmdkit-adapters/tests/$1/without-dependencies.txt # what asks for CUDA or an older torch, and does not need them here
  [ -f "$alone" ] || alone=/dev/null
  if cat "$list" "$alone" pyproject.toml packages/pmdkit-adapters/pyproject.toml | cmp -s - "$venv/installed.txt"; then return; fi
  echo "building $venv" >&2
  rm -rf "$venv"
  "$PYTHON" -m venv "$venv"
  # shellcheck disable=SC2086  # PIP_FLAGS is a list of words
  for what in "$(grep '^torch==' "$list")" "-r $list" "--no-deps --ignore-requires-python -r $alone -e packages/strict-answers -e . -e packages/pmdkit-adapters"; do
    "$venv/bin/python" -m pip install -q --disable-pip-version-check ${PIP_FLAGS:-} $what
  done
  cat "$list" "$alone" pyproject.toml packages/pmdkit-adapters/pyproject.toml >"$venv/installed.txt" # pyproject.toml has the entry points
}

for adapter in $wanted; do build "$adapter"; done; exit 0
  build "$adapter"
  timeout 1800 ".venv-$adapter/bin/python" -m pytest -q "packages/pmdkit-adapters/tests/$adapter"
done
