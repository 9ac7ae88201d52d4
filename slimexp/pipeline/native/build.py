"""Builds the native op on demand, with the machine's own compiler, into the cache.

The library's name carries what it depends on: TensorFlow's version, the sources and the flags. So a new version of
either is built anew, and several may lie side by side. It is compiled for any processor of the kind: what only some
of them have is chosen when it runs, so machines may share the cache.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib.metadata
import logging
import os
import platform
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from slimexp.cache_dir import default_cache_dir

__all__ = [
    "BuildError",
    "build",
    "compiler",
    "ensure",
    "find",
    "library_path",
    "missing_tools",
    "run_compiler",
    "source_dir",
]

_log = logging.getLogger(__name__)

_SOURCES = ("kernels.cc", "header.cc", "decoder.cc", "pool.cc", "ops.cc")
_COMPILERS = ("g++", "c++", "clang++")
# Fused multiply-adds wherever the processor has them, which the C++ standard's modes leave out. Without heed to traps
# and errno, of which nothing makes use, the loops over colours become vector code: 8 times as fast.
_FLAGS = (
    "-O3",
    "-fPIC",
    "-shared",
    "-fvisibility=hidden",
    "-ffp-contract=fast",
    "-fno-trapping-math",
    "-fno-math-errno",
    "-pthread",
    "-w",
)
_FOLDER = "native"
_TIMEOUT_SECS = 600
_PACKAGES = "On Debian and Ubuntu: apt-get install g++ libjpeg62-turbo-dev (Ubuntu: libjpeg-turbo8-dev)."


class BuildError(RuntimeError):
    """The native op could not be built; its message is the reason in words."""


def source_dir() -> Path:
    """Returns the folder of the C++ sources."""
    return Path(__file__).resolve().parent


def library_path(cache_dir: str | None = None) -> Path:
    """Returns where the library lies, or will lie once it is built.

    Args:
        cache_dir: The cache's folder; by default `$SLIMEXP_CACHE`, else `$XDG_CACHE_HOME/slimexp`, else
            `~/.cache/slimexp`.
    """
    folder = Path(cache_dir or default_cache_dir()).expanduser()
    return folder.resolve() / _FOLDER / f"slimexp-ops-{_key()}.so"


def find(cache_dir: str | None = None) -> tuple[Path | None, str]:
    """Looks for the built library, and builds nothing. TensorFlow is not imported.

    Args:
        cache_dir: As for `library_path`.

    Returns:
        Its path and an empty string, or None and the reason why it is not there, in words.
    """
    path = library_path(cache_dir)
    if path.is_file():
        return path, ""
    if missing := missing_tools():
        return None, missing
    return None, "it has not been built yet: ./scripts/build_ops does that, in some 10 seconds"


def compiler() -> list[str]:
    """Returns the compiler's command: `$CXX`, which may have options, or the first there is; empty if there is none."""
    named = os.environ.get("CXX")
    for candidate in (named,) if named else _COMPILERS:
        command = shlex.split(candidate)
        if command and shutil.which(command[0]):
            return command
    return []


def missing_tools() -> str:
    """Returns what the machine lacks for building the native op and how to get it, or an empty string."""
    command = compiler()
    if not command:
        named = os.environ.get("CXX")
        what = f"there is no compiler CXX={named}" if named else f"there is no C++ compiler ({', '.join(_COMPILERS)})"
        return f"{what}. {_PACKAGES}"
    if not _has_header(command):
        return f"libjpeg-turbo's header jpeglib.h is missing. {_PACKAGES}"
    return ""


def build(cache_dir: str | None = None) -> Path:
    """Compiles the library into the cache, whether or not it is there.

    Several processes may do so at once: each writes under a name of its own and renames it at the end.

    Args:
        cache_dir: As for `library_path`.

    Returns:
        Its path.

    Raises:
        BuildError: If there is no compiler or no libjpeg-turbo, the compiler fails, or the cache can't be written.
    """
    if missing := missing_tools():
        raise BuildError(missing)
    path = library_path(cache_dir)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(prefix=f".{path.stem}-", suffix=".so", dir=path.parent)
        os.close(handle)
        try:
            run_compiler([*_compile_command(), "-o", name])
            os.chmod(name, 0o755)
            os.replace(name, path)
        finally:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(name)
    except OSError as error:
        raise BuildError(
            f"the library can't be written to {path.parent} ({error.strerror or error}); the environment variable "
            "SLIMEXP_CACHE names another folder."
        ) from error
    return path


def ensure(log: logging.Logger = _log, cache_dir: str | None = None) -> tuple[Path | None, str]:
    """Returns the library, built now if it isn't there and can be.

    Args:
        log: Gets one line when something is built.
        cache_dir: As for `library_path`.

    Returns:
        Its path and an empty string, or None and the reason why there is none, in words.
    """
    path, reason = find(cache_dir)
    if path is not None or missing_tools():
        return path, reason
    start = time.monotonic()
    try:
        path = build(cache_dir)
    except BuildError as error:
        return None, str(error)
    log.info("Built the native decoder, once for this TensorFlow, in %.0f s: %s", time.monotonic() - start, path)
    return path, ""


def _key() -> str:
    """Returns a short name for all that the library depends on."""
    digest = hashlib.sha256()
    for text in (importlib.metadata.version("tensorflow"), sys.platform, platform.machine(), *_FLAGS):
        digest.update(text.encode() + b"\0")
    for path in sorted([*source_dir().glob("*.cc"), *source_dir().glob("*.h")]):
        digest.update(path.name.encode() + b"\0" + path.read_bytes() + b"\0")
    version = importlib.metadata.version("tensorflow")
    return f"tf{version}-{digest.hexdigest()[:16]}"


def _has_header(command: list[str]) -> bool:
    # jpeglib.h wants stdio.h before it; the constant is in libjpeg-turbo's alone.
    text = "#include <stdio.h>\n#include <jpeglib.h>\n#ifndef LIBJPEG_TURBO_VERSION\n#error\n#endif\n"
    command = [*command, "-x", "c++", "-fsyntax-only", "-"]
    try:
        return subprocess.run(command, input=text, text=True, capture_output=True, timeout=60).returncode == 0
    except (OSError, subprocess.TimeoutExpired):
        return False


def _compile_command() -> list[str]:
    # Imported here: it takes seconds, and only building needs it.
    import tensorflow as tf

    sources = [str(source_dir() / name) for name in _SOURCES]
    # libjpeg comes first, so that its functions are taken from it whatever TensorFlow's library has.
    return [*compiler(), *tf.sysconfig.get_compile_flags(), *_FLAGS, *sources, "-ljpeg", *tf.sysconfig.get_link_flags()]


def run_compiler(command: list[str]) -> None:
    """Runs the compiler.

    Raises:
        BuildError: If it fails, with its first line that tells of an error.
    """
    try:
        result = subprocess.run(command, text=True, capture_output=True, timeout=_TIMEOUT_SECS, errors="replace")
    except subprocess.TimeoutExpired as error:
        raise BuildError(f"the compiler did not end within {_TIMEOUT_SECS} s: {shlex.join(command)}") from error
    if result.returncode != 0:
        lines = [line for line in (result.stderr + result.stdout).splitlines() if line.strip()]
        first = next((line for line in lines if "error" in line or "cannot find" in line), lines[0] if lines else "")
        raise BuildError(
            f"the compiler failed ({first.strip() or f'exit code {result.returncode}'}); its command was: "
            f"{shlex.join(command)}"
        )


def main() -> int:
    """Builds the library unless it is there; for `scripts/build_ops`."""
    quiet = "--quiet" in sys.argv[1:]
    path, reason = find()
    if path is None and not missing_tools():
        print("Building the native decoder (once, some 10 seconds) ...", file=sys.stderr, flush=True)
        try:
            path, reason = build(), ""
        except BuildError as error:
            reason = str(error)
    if path is None:
        print(f"The native decoder is not there, TensorFlow's is used: {reason}", file=sys.stderr)
        return 0 if quiet else 1
    if not quiet:
        print(path)
    return 0


if __name__ == "__main__":
    sys.exit(main())
