#!/bin/sh
# Run the fast tests as two runs of pytest side by side: the folders given, whose tests compile programs, and all others.
# Many tests wait for processes, so two workers each keep two cores busy (docs/design/tests.md has the measurement).
# The first run's output is in .pytest_cache/compiling.log; it is shown at the end.
set -u
python=.venv/bin/python
log=.pytest_cache/compiling.log
mkdir -p .pytest_cache
ignored=
for folder in "$@"; do
    ignored="$ignored --ignore=$folder"
done
echo "tests of $*: output in $log, shown at the end"
$python -m pytest -n 2 "$@" >"$log" 2>&1 &
compiling=$!
trap 'kill "$compiling" 2>/dev/null' EXIT # an interrupt does not reach a background process of sh
trap 'exit 130' INT TERM
# shellcheck disable=SC2086 # one argument for each folder
$python -m pytest -n 3 $ignored
others=$?
wait "$compiling"
first=$?
trap - EXIT
cat "$log"
[ "$others" -eq 0 ] && [ "$first" -eq 0 ]
