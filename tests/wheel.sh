#!/bin/sh
# Build the wheel, install it outside the checkout, and run it there: the shelf must travel as data.
set -eu
python=$(cd "$(dirname "$1")" && pwd)/$(basename "$1")
root=$(cd "$(dirname "$0")/.." && pwd)
away=$(mktemp -d)
trap 'rm -rf "$away"' EXIT
"$python" -m build --wheel --no-isolation --outdir "$away/dist" "$root" >"$away/build.log" 2>&1 || { cat "$away/build.log"; exit 1; }
"$python" -m venv --system-site-packages "$away/venv"
# the dependencies come from the environment of $python; only pmdkit itself is the wheel's
site=$("$python" -c 'import sysconfig; print(sysconfig.get_paths()["purelib"])')
"$away/venv/bin/python" -m pip install -q --disable-pip-version-check --no-deps "$away"/dist/*.whl
cd "$away"
export PYTHONPATH="$site"
"$away/venv/bin/python" - <<'PY'
import pathlib, pmdkit
assert "site-packages" in pmdkit.__file__ and str(pathlib.Path.cwd()) in pmdkit.__file__, pmdkit.__file__
PY
"$away/venv/bin/python" -m pmdkit bandit needle --steps 5 --json --out "$away/run" >"$away/summary.json"
"$away/venv/bin/python" -c 'import json,sys; s=json.load(open(sys.argv[1])); assert s["steps"] == 5 and s["pass_rate_last"] > 0.9, s' "$away/summary.json"
echo "wheel: built, installed outside the checkout, pmdkit bandit needle ran"
