#!/bin/sh
# Build the wheel, install it outside the checkout, and use it there as a stranger does.
#   sh tests/wheel.sh PYTHON        the wheel beside the packages of PYTHON, and its base install with the locked versions
#   sh tests/wheel.sh PYTHON all    also the sdist and its checks, the base install with the lowest and the locked versions
#                                   on every Python that is here, and each command of the README
#   sh tests/wheel.sh PYTHON base V the base install alone, with V = lowest, locked or newest: a cell of .github/workflows
# PIP_FLAGS passes options to pip; RELEASE_PYTHONS names interpreters, by default python3.11 to python3.14 where they are.
set -eu
python=$(cd "$(dirname "$1")" && pwd)/$(basename "$1")
mode=${2:-}
root=$(cd "$(dirname "$0")/.." && pwd)
away=$(mktemp -d)
trap 'rm -rf "$away"' EXIT
"$python" -m build --no-isolation --outdir "$away/dist" "$root" >"$away/build.log" 2>&1 || { cat "$away/build.log"; exit 1; }
wheel=$(ls "$away"/dist/*.whl)
mkdir "$away/empty"
cd "$away/empty"

# The wheel beside the dependencies of $python.
beside() {
  "$python" -m venv --system-site-packages "$away/venv"
  site=$("$python" -c 'import sysconfig; print(sysconfig.get_paths()["purelib"])')
  "$away/venv/bin/python" -m pip install -q --disable-pip-version-check --no-deps "$wheel"
  export PYTHONPATH="$site"
  "$away/venv/bin/python" - "$away" <<'PY'
import pathlib, sys
import pmdkit
from pmdkit.extras import remedy
here = pathlib.Path(pmdkit.__file__)
assert here.is_relative_to(sys.argv[1]), here
assert (here.parent / "py.typed").is_file()
assert "pmdkit" not in remedy("vllm") and "constraints" not in remedy("llm"), remedy("llm")
PY
  "$away/venv/bin/python" -m pmdkit bandit needle --steps 5 --json --out "$away/run" >"$away/summary.json"
  "$away/venv/bin/python" -c 'import json,sys; s=json.load(open(sys.argv[1])); assert s["steps"] == 5 and s["pass_rate_last"] > 0.9, s' "$away/summary.json"
  echo "wheel: built, installed outside the checkout, pmdkit bandit needle ran"
  unset PYTHONPATH
}

# The base install: no torch, and what it can do without.
base() { # interpreter, then lowest, locked or newest
  rm -rf "$away/base" "$away/empty" && mkdir "$away/empty" && cd "$away/empty"
  "$1" -m venv "$away/base"
  : >"$away/pins"
  [ "$2" != locked ] || cp "$root/constraints.txt" "$away/pins"
  if [ "$2" = lowest ]; then
    "$python" - "$root/pyproject.toml" >"$away/pins" <<'PY'
import sys, tomllib
for line in tomllib.load(open(sys.argv[1], "rb"))["project"]["dependencies"]:
    print(line.replace(">=", "=="))
PY
  fi
  scripts=$away/base/bin
  [ -d "$scripts" ] || scripts=$away/base/Scripts  # Windows
  "$scripts/python" -m pip install -q --disable-pip-version-check ${PIP_FLAGS:-} --only-binary :all: -c "$away/pins" "$wheel"
  bin=$scripts/pmdkit
  "$bin" theory --p 0.01 --tau 0.05 --json >theory.json
  "$bin" ledger >ledger.txt
  "$bin" doctor >doctor.txt
  "$bin" figures fig1-right --out figures 2>figures.txt >&2
  "$bin" learn start lessons >start.txt
  code=0; "$bin" learn check 103.2 >check.txt || code=$?
  [ "$code" = 4 ] || { echo "learn check 103.2 left with $code, not 4"; cat check.txt; exit 1; }
  code=0; "$bin" bandit needle 2>bandit.txt || code=$?
  [ "$code" = 3 ] && grep -q "needs torch, .* pip install .*'torch>=" bandit.txt || { cat bandit.txt; exit 1; }
  size=$("$scripts/python" - <<'PY'
import pathlib, sysconfig
site = pathlib.Path(sysconfig.get_paths()["purelib"])
files = [p for top in site.iterdir() if not top.name.startswith("pip") for p in (top.rglob("*") if top.is_dir() else [top])]
size = sum(p.stat().st_size for p in files if p.is_file()) / 1e6
assert size < 400, f"the base install takes {size:.0f} MB; expected less than 400"
assert not (site / "torch").exists()
print(f"{size:.0f} MB")
PY
  )
  echo "base: $("$scripts/python" -V), $2 versions, $size: theory, ledger, doctor, figures and learn work without torch"
}
if [ "$mode" = base ]; then
  base "$python" "$3"
  exit 0
fi
beside
base "$python" locked
[ "$mode" = all ] || exit 0

"$root/.venv-release/bin/twine" check --strict "$away"/dist/*
"$root/.venv-release/bin/check-wheel-contents" "$wheel"
for name in ${RELEASE_PYTHONS:-python3.11 python3.12 python3.13 python3.14}; do
  found=$(command -v "$name") && "$found" -c 'import venv' 2>/dev/null || { echo "base: $name is not here; its cells run in .github/workflows"; continue; }
  base "$found" lowest
  base "$found" locked
done
# Each command of the README in order, from the wheel with the extra llm, in an empty folder: minutes.
"$python" -m venv "$away/full"
"$away/full/bin/python" -m pip install -q --disable-pip-version-check ${PIP_FLAGS:-} -c "$root/constraints.txt" torch
"$away/full/bin/python" -m pip install -q --disable-pip-version-check ${PIP_FLAGS:-} -c "$root/constraints.txt" "$wheel[llm]"
rm -rf "$away/empty" && mkdir "$away/empty" && cd "$away/empty"
PATH="$away/full/bin:$PATH" "$away/full/bin/python" "$root/tests/commands.py" "$root/README.md"
