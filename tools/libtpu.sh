#!/bin/sh
# Install the compiler of TPUs into .libtpu, by the hash in deploy/accelerators/tpu.lock. Only its own long tests use it.
set -eu
[ -d .libtpu/libtpu ] && exit 0
work=$(mktemp)
trap 'rm -f "$work"' EXIT
sed -n '/^libtpu==/,/^[^ ]/p' deploy/accelerators/tpu.lock | sed '1!{/^[^ ]/d}' >"$work"
if .venv/bin/uv --system-certs pip install --quiet --python .venv/bin/python --no-deps --require-hashes \
    --target .libtpu.new -r "$work"; then
    mv .libtpu.new .libtpu
else
    echo "libtpu was not installed; the tests that compile for TPUs are skipped" >&2
fi
