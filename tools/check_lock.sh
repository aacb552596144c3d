#!/bin/sh
# No lock names a host or drags in another training framework (docs/references.md#environment-traps).
set -eu
cd "$(dirname -- "$0")/.."
if grep -nE '://' requirements.lock requirements-extras.lock deploy/requirements.lock deploy/accelerators/*.lock; then
    echo "check: a lock names a host; export it again with 'make lock'" >&2
    exit 1
fi
if grep -nE '^(torch|transformers|tensorflow|nvidia-)' requirements.lock requirements-extras.lock deploy/requirements.lock; then
    echo "check: a lock pulls in a framework that the lab does not use" >&2
    exit 1
fi
