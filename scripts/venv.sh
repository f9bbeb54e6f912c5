# Shared by scripts/demo and scripts/test: a virtual environment in .venv holding this checkout.
# shellcheck shell=bash

say() { printf '\n==> %s\n' "$*"; }
die() { printf 'error: %s\n' "$*" >&2; exit 1; }

# Prints the first interpreter of a supported version. A candidate may be a shim that fails: then try the next.
find_python() {
    local candidate
    for candidate in python3 python3.13 python3.12 python3.11 python; do
        if "$candidate" -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] < (3, 14))' 2>/dev/null; then
            command -v "$candidate"
            return
        fi
    done
    die "no Python 3.11, 3.12 or 3.13 found (python3 is $(python3 --version 2>&1 || true));" \
        "install one and put it on PATH"
}

# Debian ships Python without ensurepip: there the interpreter's own pip fills the environment.
make_venv() {
    local python=$1
    if "$python" -c 'import ensurepip' 2>/dev/null; then
        "$python" -m venv --clear .venv
    else
        "$python" -m venv --clear --without-pip .venv
        "$python" -m pip --python .venv/bin/python install --quiet pip ||
            die "$python has neither ensurepip nor pip; install python3-venv or python3-pip"
    fi
}

# A person sees pip at work; a log gets its errors only.
pip_install() {
    local verbosity=--quiet
    [ -t 1 ] && verbosity=--progress-bar=on
    .venv/bin/python -m pip install --disable-pip-version-check "$verbosity" "$verbosity" "$@"
}

# What an installation depends on. Sources are not in it: the checkout is installed in place.
install_key() {
    { cat pyproject.toml; ls -- */__init__.py; .venv/bin/python --version; printf '%s\n' "$@"; } | sha256sum
}

# install REQUIREMENT PACKAGE...: the checkout with its extras, then packages without their dependencies.
install() {
    local requirement=$1 python stamp
    shift
    stamp=.venv/amk$(printf '%s' "$requirement" | tr -cd 'a-z').stamp
    if ! .venv/bin/python -m pip --version >/dev/null 2>&1; then
        python=$(find_python)
        say "Making .venv with $("$python" --version)"
        make_venv "$python"
    fi
    if [ "$(cat "$stamp" 2>/dev/null)" = "$(install_key "$requirement" "$@")" ]; then
        say "Already installed in .venv"
        return
    fi
    say "Installing $requirement into .venv (the first time takes a minute or more)"
    rm -f "$stamp"
    pip_install --editable "$requirement"
    pip_install --no-deps "$@"
    install_key "$requirement" "$@" >"$stamp"
}
