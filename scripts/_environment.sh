# Sourced by run and test: makes $root/.venv with the package and the extras named in $extras, once for each state of
# pyproject.toml, and leaves the interpreter in $python. PYTHON=... chooses the one that .venv is made with.
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
python=$root/.venv/bin/python

_in_range() { "$1" -c 'import sys, venv; sys.exit(not (3, 10) <= sys.version_info < (3, 14))' 2>/dev/null; }

_find_python() {
    local candidate
    for candidate in ${PYTHON:-python3 python3.13 python3.12 python3.11 python3.10}; do
        if _in_range "$candidate"; then echo "$candidate"; return; fi
    done
    echo "slimexp needs Python 3.10 to 3.13 with its venv module${PYTHON:+, which PYTHON=$PYTHON is not}." \
         "On Debian: apt-get install python3-venv. Else name one: PYTHON=/path/to/python3.12 $0" >&2
    return 1
}

_prepare() {
    local stamp found
    if command -v nvidia-smi >/dev/null && nvidia-smi -L 2>/dev/null | grep -q GPU; then extras=$extras,gpu; fi
    extras=${extras#,}
    stamp="$root/.venv/.installed-$(cksum <"$root/pyproject.toml" | tr ' ' -)-${extras:-none}"
    # Another process may have installed while this one waited for the lock.
    [ -e "$stamp" ] && return
    if ! [ -x "$python" ]; then
        found=$(_find_python) || return 1
        echo "Making .venv with $("$found" --version) ..." >&2
        "$found" -m venv "$root/.venv" || return 1
    fi
    echo "Installing slimexp into .venv (once; TensorFlow is about 600 MB) ..." >&2
    "$python" -m pip install --quiet --disable-pip-version-check --editable "$root${extras:+[$extras]}" || return 1
    touch "$stamp"
}

mkdir -p "$root/.venv"
if command -v flock >/dev/null; then
    exec 9>"$root/.venv/.lock"
    flock 9
    _prepare || exit 1
    flock -u 9
    exec 9>&-
else
    _prepare || exit 1
fi
