#!/bin/sh
# Build an environment (.venv) from a lock file (requirements.lock) with nothing but a Python 3.12 on the machine; does nothing
# when it is up to date. Another lock and environment: sh tools/bootstrap.sh requirements-extras.lock .venv-extras
# A pyenv shim called python3.12 fails unless PYENV_VERSION names an installed 3.12, so both ways are tried.
set -eu
root=$(CDPATH= cd -- "$(dirname -- "$0")/.." && pwd)
cd "$root"
lock=${1:-requirements.lock}
env=${2:-.venv}
stamp=$env/.lock-digest
digest=$(cat "$lock" tools/bootstrap.sh | cksum)
if [ -x "$env/bin/python" ] && [ "$(cat "$stamp" 2>/dev/null)" = "$digest" ]; then
    exit 0
fi

is_312() { "$@" -c 'import sys; sys.exit(sys.version_info[:2] != (3, 12))' >/dev/null 2>&1; }

find_python() {
    for candidate in "${PYTHON:-}" python3.12 python3 python; do
        if [ -n "$candidate" ] && is_312 "$candidate"; then
            command -v "$candidate"
            return
        fi
    done
    if command -v pyenv >/dev/null 2>&1; then
        version=$(pyenv versions --bare | grep -E '^3\.12\.[0-9]+$' | sort -t. -k3 -n | tail -n 1)
        if [ -n "$version" ] && is_312 "$(pyenv root)/versions/$version/bin/python"; then
            echo "$(pyenv root)/versions/$version/bin/python"
            return
        fi
    fi
    echo "setup: no Python 3.12 found (looked at \$PYTHON, python3.12, python3, python, and pyenv's versions)." >&2
    echo "setup: install one (Debian: python3.12 and python3.12-venv; pyenv: pyenv install 3.12) or set PYTHON=/path/to/python3.12" >&2
    exit 1
}

python=$(find_python)
echo "setup: $env from $lock with $("$python" --version)" >&2
rm -rf "$env"
"$python" -m venv "$env"
"$env"/bin/python -m pip install --quiet --disable-pip-version-check "uv==0.13.8"
# uv reads neither pip's configuration nor, unless told, the machine's certificates: a mirror with its own authority needs both.
index=${PIP_INDEX_URL:-$("$env"/bin/python -m pip config get global.index-url 2>/dev/null || true)}
# --compile-bytecode: where PYTHONDONTWRITEBYTECODE is set (containers) every process would compile JAX and Dagster anew, 3 to 5 s each.
# --python always: an exported UV_PYTHON would otherwise make uv install into that interpreter (docs/references.md#environment-traps).
if ! "$env"/bin/uv --system-certs pip sync --quiet --compile-bytecode --require-hashes ${index:+--default-index "$index"} \
    --python "$env"/bin/python "$lock"; then
    echo "setup: uv could not install (above); pip goes on, which takes two to three minutes" >&2
    # --no-deps: the lock is complete, and pip 23 refuses extras in hash mode (docs/references.md#environment-traps).
    "$env"/bin/python -m pip install --quiet --disable-pip-version-check --no-deps --require-hashes -r "$lock"
fi
printf '%s' "$digest" > "$stamp"
