#!/bin/sh
# Build the five wheels, install them outside the checkout, and use them there as a stranger does.
#   sh tools/wheel.sh PYTHON          beside the third-party packages of PYTHON, nothing downloaded: pmdkit alone, then all five
#   sh tools/wheel.sh PYTHON fresh V  in a fresh environment from the index, V = lowest, locked or newest: a cell of test.yml
#   sh tools/wheel.sh PYTHON pages    the commands of README.md and docs/use, each page in an empty folder: minutes
# WHEELS is a folder of wheels to use instead; PIP_FLAGS passes options to pip; TORCH_LOWEST is the torch of the lowest cell, where the index has no CPU build of the bound.
# no hashes: fresh shows what a stranger gets from the index; what is published is built and checked by hash before
set -eu
python=$(cd "$(dirname "$1")" && pwd)/$(basename "$1")
root=$(cd "$(dirname "$0")/.." && pwd)
away=$(mktemp -d)
trap 'rm -rf "$away"' EXIT
export OMP_NUM_THREADS=1 HF_HUB_OFFLINE=1
unset PYTHONPATH
if [ -n "${WHEELS:-}" ]; then
  mkdir "$away/dist" && cp "$WHEELS"/*.whl "$away/dist"
else
  for source in . packages/strict-answers packages/pmdkit-lab packages/pmdkit-course packages/pmdkit-adapters; do
    "$python" -m build --no-isolation --wheel --outdir "$away/dist" "$root/$source" >"$away/log" 2>&1 || { cat "$away/log"; exit 1; }
  done
fi
thing=$(ls "$away"/dist/pmdkit-[0-9]*.whl)
mkdir "$away/empty" && cd "$away/empty"

# An environment with the packages of PYTHON by links, without ours and without what only the companions need.
beside() {
  "$python" -m venv --without-pip "$away/venv"
  bin=$away/venv/bin
  from=$("$python" -c 'import sysconfig; print(sysconfig.get_paths()["purelib"])')
  to=$("$bin/python" -c 'import sysconfig; print(sysconfig.get_paths()["purelib"])')
  for path in "$from"/*; do
    case $(basename "$path") in
      *pmdkit* | *strict_answers* | *.pth | math_verify* | latex2sympy* | antlr4* | jupyter* | ipykernel*) ;;
      *) ln -s "$path" "$to/" ;;
    esac
  done
  pip() { "$python" -m pip --python "$bin/python" install -q --disable-pip-version-check --no-deps --no-index "$@"; }
  pip "$thing"
  rm "$to/torch"
  base
  ln -s "$from/torch" "$to/torch"
  alone
  for name in math_verify latex2sympy2_extended antlr4; do ln -sf "$from"/$name* "$to/"; done
  pip "$away"/dist/*.whl
  together
}

# pmdkit without torch
base() {
  "$bin/pmdkit" theory --p 0.01 --tau 0.05 --json >theory.json
  "$bin/pmdkit" objectives >objectives.txt && "$bin/pmdkit" envs >envs.txt && "$bin/pmdkit" doctor >doctor.txt
  code=0; "$bin/pmdkit" bandit needle >bandit.txt 2>&1 || code=$?
  [ "$code" = 3 ] || { echo "bandit needle without torch left with $code, not 3"; cat bandit.txt; exit 1; }
  code=0; "$bin/pmdkit" ledger >ledger.txt 2>&1 || code=$?
  [ "$code" = 3 ] && grep -q pmdkit-lab ledger.txt || { echo "ledger without its package left with $code"; cat ledger.txt; exit 1; }
  echo "wheel: pmdkit without torch and companions: theory, objectives, envs, doctor"
}

# pmdkit with torch and without companions: the README's promise for the base wheel
alone() {
  "$bin/pmdkit" bandit needle --steps 5 --json --out bandit >bandit.json
  "$bin/python" - <<'PY'
import json, pathlib, sys
import numpy as np
import pmdkit
from pmdkit import theory, train
from pmdkit.objectives import PMDMean
assert pathlib.Path(pmdkit.__file__).is_relative_to(sys.prefix) and (pathlib.Path(pmdkit.__file__).parent / "py.typed").is_file()
ran = json.loads(pathlib.Path("bandit.json").read_text())
assert ran["steps"] == 5 and ran["pass_rate_last"] > 0.9, ran
step = theory.pmd_mean(np.full(100, 0.01), np.eye(100)[0], tau=0.05)
assert abs(step.probs[0] - 0.379) < 1e-3, step.probs[0]
assert train(PMDMean(tau=0.05), backend="bandit", env="needle", steps=3).summary["pass_rate_last"] > 0.9
assert train(PMDMean(tau=0.05), backend="toy", env="modular-sum", steps=3).summary["steps"] == 3
assert not {"strict_answers", "pmdkit_lab", "pmdkit_course", "pmdkit_adapters"} & sys.modules.keys()
PY
  echo "wheel: pmdkit without companions: bandit, theory, train in tiers 1 and 2"
}

together() {
  # a warm start of a few updates: what is proved is that the parts are there
  "$bin/pmdkit" llm starter --steps 1 --json --set warm_start.pass_rate=0.02 warm_start.look=5 evaluation.problems=8 \
    >llm.json 2>llm.txt || { cat llm.txt; exit 1; }
  "$bin/pmdkit" ledger >ledger.txt
  "$bin/pmdkit" explain grpo --json >explain.json
  "$bin/pmdkit" figure fig1-right --out figures >figures.txt 2>&1
  "$bin/pmdkit" learn start lessons >start.txt
  code=0; "$bin/pmdkit" learn check 103.2 >check.txt || code=$?
  [ "$code" = 4 ] || { echo "learn check 103.2 left with $code, not 4"; cat check.txt; exit 1; }
  code=0; "$bin/pmdkit" learn solution 103.2 >solution.txt 2>&1 || code=$?
  [ "$code" = 3 ] || { echo "learn solution 103.2 left with $code, not 3"; cat solution.txt; exit 1; }
  "$bin/pmdkit" doctor --parity >parity.txt
  code=0; "$bin/pmdkit" llm starter --backend tinker >tinker.txt 2>&1 || code=$?
  [ "$code" = 2 ] && grep -q remote.url tinker.txt || { echo "llm --backend tinker without --url left with $code, not 2"; cat tinker.txt; exit 1; }
  echo "wheel: all five: llm, ledger, explain, figure, learn, golden vectors"
}

# From the index, with nothing for newest, constraints.txt for locked, and for lowest every bound as the version.
fresh() {
  : >"$away/pins"
  [ "$1" != locked ] || cp "$root/constraints.txt" "$away/pins"
  [ "$1" != lowest ] || (cd "$root" && "$python" - >"$away/pins" <<'PY'
import os, tomllib
for path, extras in (("pyproject.toml", ("torch", "llm")), ("packages/strict-answers/pyproject.toml", ()), ("packages/pmdkit-course/pyproject.toml", ())):
    project = tomllib.load(open(path, "rb"))["project"]
    for line in project["dependencies"] + [line for extra in extras for line in project["optional-dependencies"][extra]]:
        if line.startswith("torch") and "TORCH_LOWEST" in os.environ:
            line = "torch==" + os.environ["TORCH_LOWEST"]
        if not line.startswith(("pmdkit", "strict-answers")):
            print(line.partition(",<")[0].replace(">=", "==", 1))
PY
)
  "$python" -m venv --without-pip "$away/venv"
  bin=$away/venv/bin
  [ -d "$bin" ] || bin=$away/venv/Scripts # Windows
  pip() { # nothing is built: no compiler is asked for
    "$python" -m pip --python "$bin/python" install -q --disable-pip-version-check ${PIP_FLAGS:-} \
      --only-binary :all: -c "$away/pins" --find-links "$away/dist" "$@"
  }
  pip "$thing"
  base
  pip torch # alone: where a CPU build is offered it is taken, and nothing later replaces it
  pip "$thing[torch]"
  alone
  [ "$(uname)" = Linux ] || return 0 # tier 3 is for Linux
  pip "$thing[llm]" "$away"/dist/*.whl
  together
}

case "${2:-}" in
"") beside ;;
fresh) fresh "$3" ;;
pages)
  fresh locked
  "$python" -m pip --python "$bin/python" install -q --disable-pip-version-check ${PIP_FLAGS:-} -c "$root/constraints.txt" \
    --find-links "$away/dist" "$thing[gym,ray,slurm,sweep,tables]"
  cd "$away/empty" && mkdir pages && cd pages
  PATH="$bin:$PATH" "$bin/python" "$root/tools/commands.py"
  ;;
esac
