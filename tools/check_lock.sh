#!/bin/sh
# The lock names no host and drags in no other training framework (research/environment.md, section 8).
set -eu
cd "$(dirname -- "$0")/.."
if grep -nE '://' requirements.lock; then
    echo "check: requirements.lock names a host; export it again with 'make lock'" >&2
    exit 1
fi
if grep -nE '^(torch|transformers|tensorflow|nvidia-)' requirements.lock; then
    echo "check: requirements.lock pulls in a framework that the lab does not use" >&2
    exit 1
fi
