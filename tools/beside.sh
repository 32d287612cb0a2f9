#!/bin/sh
# Two commands at the same time, for those that keep one core busy each: sh tools/beside.sh 'ONE' 'OTHER'
# The output of the second follows that of the first; if the first fails, the second is interrupted, as by Ctrl-C.
set -u
out=$(mktemp)
trap 'rm -f "$out"' EXIT
sh -c "exec $2" >"$out" 2>&1 &
other=$!
code=0
sh -c "$1" || { code=$?; kill -INT "$other" 2>/dev/null; }
wait "$other" 2>/dev/null || { [ "$code" != 0 ] || code=$?; }
cat "$out"
exit "$code"
