#!/bin/sh
# Resolve jax's plugin of each accelerator, and Ray, into deploy/accelerators/NAME.lock, by hash, with the image's own versions:
#   sh tools/lock_accelerators.sh           after `make lock`, in the repository's root
set -eu
jax=$(sed -nE 's/^jax==([0-9.]+).*/\1/p' deploy/requirements.lock)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
sed -nE 's/^([A-Za-z0-9_.-]+==[^ ;]+).*/\1/p' deploy/requirements.lock >"$work/constraints.txt"
for name in tpu cuda12 ray; do
    echo "jax[$name]==$jax" >"$work/wanted.txt"
    [ "$name" != ray ] || sed -nE 's/^ray = \["(ray==[^"]+)"\]$/\1/p' pyproject.toml >"$work/wanted.txt"
    .venv/bin/uv --system-certs pip compile --quiet --python-version 3.12 --python-platform x86_64-manylinux_2_35 --generate-hashes \
        --no-header --no-annotate --no-emit-index-url --constraint "$work/constraints.txt" "$work/wanted.txt" \
        --output-file "deploy/accelerators/$name.lock" >/dev/null
done
