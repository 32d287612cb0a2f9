#!/bin/sh
# Build the wheel, install it outside the checkout, and use it there as a stranger does.
#   sh tests/wheel.sh PYTHON         the wheel beside the packages of PYTHON, and its base install with the locked versions
#   sh tests/wheel.sh PYTHON all     what make release-check runs: wheel and sdist checked, the base with the lowest and the
#                                    locked versions on every Python that is here, torch on PYTHON, the commands of the pages
#   sh tests/wheel.sh PYTHON base V  the base install alone, with V = lowest, locked or newest: a cell of .github/workflows;
#                                    one more word is the interpreter to install for, if PYTHON is only to build the wheel
#   sh tests/wheel.sh PYTHON torch V the same with torch, transformers and the verifier
#   sh tests/wheel.sh PYTHON pages   the commands of README.md and docs/use alone; PAGES has the full paths of others
# PIP_FLAGS passes options to pip; RELEASE_PYTHONS names interpreters, by default python3.11 to python3.14 where they are.
# TORCH_LOWEST is the torch of the lowest cell, where the index has no CPU build of the bound.
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
  "$python" -m venv --without-pip --system-site-packages "$away/venv"
  site=$("$python" -c 'import sysconfig; print(sysconfig.get_paths()["purelib"])')
  "$python" -m pip --python "$away/venv/bin/python" install -q --disable-pip-version-check --no-deps "$wheel"
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

# What pip is told beside the wheel: nothing for newest, constraints.txt for locked; for lowest every bound of the named
# extras as the version.
pins() { # lowest, locked or newest, then extras
  : >"$away/pins"
  [ "$1" != locked ] || cp "$root/constraints.txt" "$away/pins"
  [ "$1" = lowest ] || return 0
  "$python" - "$root/pyproject.toml" "$@" >"$away/pins" <<'PY'
import os, sys, tomllib
project = tomllib.load(open(sys.argv[1], "rb"))["project"]
lines = project["dependencies"] + [line for extra in sys.argv[3:] for line in project["optional-dependencies"][extra]]
for line in lines:
    if line.startswith("torch") and "TORCH_LOWEST" in os.environ:
        line = "torch==" + os.environ["TORCH_LOWEST"]
    if not line.startswith("pmdkit["):
        print(line.replace(">=", "==", 1))
PY
}

# A fresh environment under $away/NAME with the wheel and extras; sets $scripts and $seconds.
fresh() { # interpreter, versions, name, extras such as "llm torch" or ""
  rm -rf "$away/$3" "$away/empty" && mkdir "$away/empty" && cd "$away/empty"
  "$1" -m venv --without-pip "$away/$3"
  scripts=$away/$3/bin
  [ -d "$scripts" ] || scripts=$away/$3/Scripts  # Windows
  pins "$2" $4
  wanted=$wheel
  [ -z "$4" ] || wanted="$wheel[$(echo "$4" | tr ' ' ,)]"
  begun=$(date +%s)
  # torch first and alone: where a CPU build is offered it is taken, and nothing later replaces it
  case " $4 " in *" torch "*)
    "$python" -m pip --python "$scripts/python" install -q --disable-pip-version-check ${PIP_FLAGS:-} -c "$away/pins" torch ;;
  esac
  # nothing is built: no compiler is asked for
  "$python" -m pip --python "$scripts/python" install -q --disable-pip-version-check ${PIP_FLAGS:-} \
    --only-binary :all: -c "$away/pins" "$wanted"
  seconds=$(($(date +%s) - begun))
}

# The base install: no torch, and what it can do without.
base() { # interpreter, then lowest, locked or newest
  fresh "$1" "$2" base ""
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
size = sum(p.stat().st_size for p in site.rglob("*") if p.is_file()) / 1e6
assert size < 400, f"the base install takes {size:.0f} MB; expected less than 400"
assert not (site / "torch").exists()
print(f"{size:.0f} MB")
PY
  )
  echo "base: $("$scripts/python" -V), $2 versions, $size in $seconds s: theory, ledger, doctor, figures and learn work without torch"
}

# With torch: a run of each tier, and the golden vectors through every way a loss is computed here. Tier 3 is for Linux.
torch() { # interpreter, then lowest, locked or newest
  [ "$(uname)" = Linux ] && extras="torch llm" || extras=torch
  fresh "$1" "$2" torch "$extras"
  bin=$scripts/pmdkit
  "$bin" bandit needle --steps 5 --json >bandit.json
  "$bin" toy modular-sum --steps 3 --json >toy.json 2>toy.txt
  [ "$extras" = torch ] || "$bin" llm starter --steps 1 --json >llm.json 2>llm.txt || { cat llm.txt; exit 1; }
  "$bin" doctor --parity >parity.txt
  "$scripts/python" - "$2" "$seconds" <<'PY'
import json, pathlib, platform, sys, sysconfig
from importlib.metadata import distributions
ran = {path.stem: json.loads(path.read_text()) for path in pathlib.Path.cwd().glob("*.json")}
steps = {"bandit": 5, "toy": 3, "llm": 1}
assert all(run["steps"] == steps[name] for name, run in ran.items()) and ran["bandit"]["pass_rate_last"] > 0.9, ran
size = sum(p.stat().st_size for p in pathlib.Path(sysconfig.get_paths()["purelib"]).rglob("*") if p.is_file()) / 1e9
here = {d.metadata["Name"]: d.version for d in distributions()}
print(f"torch: Python {platform.python_version()}, {sys.argv[1]} versions, torch {here['torch']}, transformers {here.get('transformers')}, "
      f"{size:.1f} GB in {sys.argv[2]} s: {', '.join(sorted(ran))} and the golden vectors ran")
PY
}

# What the packages of the base install say of their licences, beside ours in wheel and sdist.
licences() {
  "$scripts/python" - "$away"/dist/* <<'PY'
import re, sys, tarfile, zipfile
from importlib.metadata import distributions
wheel, sdist = (next(p for p in sys.argv[1:] if p.endswith(end)) for end in (".whl", ".tar.gz"))
held = {name.split("/", 1)[1]: name for name in zipfile.ZipFile(wheel).namelist() if "/" in name}
assert "licenses/LICENSE" in held, "the wheel lacks LICENSE"
parts = {name.split("/", 1)[1] for name in tarfile.open(sdist).getnames() if "/" in name}
assert {"LICENSE", "docs/assets/katex/LICENSE", "README.md", "constraints.txt"} <= parts, "the sdist lacks a licence or a page"
free = re.compile(r"\b(MIT|BSD|Apache|PSF|Python Software Foundation|MPL|Mozilla|HPND|Historical|ISC|Zlib|CC0|Unlicense)\b", re.I)
found = {}
for package in distributions():
    about = package.metadata
    classes = [row.rsplit("::", 1)[1].strip() for row in about.get_all("Classifier") or () if row.startswith("License ::")]
    said = about.get("License-Expression") or ", ".join(classes) or (about.get("License") or "").split("\n")[0][:60]
    found[about["Name"]] = said
    assert free.search(said), f"{about['Name']} says of its licence: {said or 'nothing'}; look whether pmdkit may ask for it"
assert found["pmdkit"] == "Apache-2.0", found["pmdkit"]
print("licences:", "; ".join(f"{name} {said}" for name, said in sorted(found.items(), key=lambda row: row[0].lower())))
PY
}

# Every command of the README and of docs/use, each page in an empty folder: minutes.
pages() {
  fresh "$python" locked torch "torch llm gym sweep slurm ray tables"
  PATH="$scripts:$PATH" "$scripts/python" "$root/tests/commands.py" ${PAGES:-}
}

# A name such as python3.12 to an interpreter that starts: on PATH, or one of pyenv's that its shims hide.
interpreter() {
  for found in "$(command -v "$1")" "${PYENV_ROOT:-$HOME/.pyenv}/versions/${1#python}".*/bin/"$1"; do
    "$found" -c 'import ensurepip, venv' >/dev/null 2>&1 && { echo "$found"; return 0; }
  done
  return 1
}

case "$mode" in
base | torch) "$mode" "${4:-$python}" "$3"; exit 0 ;;
pages) pages; exit 0 ;;
esac
beside
[ "$mode" = all ] || { base "$python" locked; exit 0; }

"$root/.venv-release/bin/twine" check --strict "$away"/dist/*
"$root/.venv-release/bin/check-wheel-contents" --config "$root/pyproject.toml" "$wheel"
for name in ${RELEASE_PYTHONS:-python3.11 python3.12 python3.13 python3.14}; do
  found=$(interpreter "$name") || { echo "base: $name is not here; its cells run in .github/workflows"; continue; }
  base "$found" lowest
  base "$found" locked
done
base "$python" newest
licences
torch "$python" locked
pages
