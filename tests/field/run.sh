#!/bin/sh
# The losses of other projects, cut from their source, against pmdkit's objectives.
#   tests/field/run.sh            the releases and commits of field.toml
#   tests/field/run.sh --newest   the newest ones; a failure says "moved: look again"
# PMDKIT_FIELD_CHECKOUTS is a folder with clones of the repositories in field.toml, each as OWNER/NAME, with or without a
# work tree; a loss whose repository is not there is skipped. PIP_FLAGS passes options to pip.
# no hashes: nothing of these sources is imported or run, and --newest asks for what nobody has seen yet; field.toml pins the rest
set -eu
[ -z "${PMDKIT_FIELD_CHECKOUTS:-}" ] || PMDKIT_FIELD_CHECKOUTS=$(cd "$PMDKIT_FIELD_CHECKOUTS" && pwd) # a path from here
cd "$(dirname "$0")/../.."
field=tests/field/field.toml
case "${1:-}" in
"") wanted='s/^package = "\(.*\)"/\1/p' packages=.venv-field ;;
--newest) wanted='s/^package = "\(.*\)==.*"/\1/p' packages=.venv-field-newest PMDKIT_FIELD_NEWEST=1 && export PMDKIT_FIELD_NEWEST ;;
*)
  echo "run.sh got '$1'; expected --newest, or nothing" >&2
  exit 2
  ;;
esac
list=$(sed -n "$wanted" "$field" | sort -u)
if [ -n "${PMDKIT_FIELD_NEWEST:-}" ] || ! echo "$list" | cmp -s - "$packages/installed.txt"; then
  rm -rf "$packages"
  # the sources alone: nothing of theirs is imported, so the interpreter and the system do not matter
  # shellcheck disable=SC2086  # both are lists of words
  .venv/bin/python -m pip install -q --disable-pip-version-check ${PIP_FLAGS:-} --target "$packages" --no-deps --no-compile \
    --ignore-requires-python --python-version 3.11 --platform manylinux1_x86_64 --only-binary :all: $list
  echo "$list" >"$packages/installed.txt"
fi
PMDKIT_FIELD_PACKAGES=$PWD/$packages .venv/bin/python -m pytest -q -rs tests/field
