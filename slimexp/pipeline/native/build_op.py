"""Builds a library of a user's own C++ ops, for `preprocessing.steps`."""

from __future__ import annotations

import argparse
import contextlib
import os
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from slimexp.errors import UserError
from slimexp.pipeline.native.build import BuildError, compiler, run_compiler

__all__ = ["build_op"]

# The same as for our own op, see `slimexp.pipeline.native.build`; -Wall, as the source is one's own.
_FLAGS = ("-O3", "-fPIC", "-shared", "-ffp-contract=fast", "-fno-trapping-math", "-fno-math-errno", "-pthread", "-Wall")


def build_op(sources: Sequence[str | os.PathLike[str]], target: str | os.PathLike[str] | None = None) -> Path:
    """Compiles ops for the TensorFlow that is installed.

    Args:
        sources: C++ files with `REGISTER_OP` and `REGISTER_KERNEL_BUILDER`.
        target: The library; by default the first source with the ending `.so`.

    Returns:
        The library's path. It is complete or not there.

    Raises:
        UserError: If a file is missing, there is no compiler, or it fails; its first error is in the message.
    """
    for source in sources:
        if not Path(source).is_file():
            raise UserError(f"{source}: there is no such file.")
    command = compiler()
    if not command:
        raise UserError("There is no C++ compiler (g++, clang++, or $CXX). On Debian and Ubuntu: apt-get install g++.")
    # Imported here: it takes seconds, and what was refused above needs no TensorFlow.
    import tensorflow as tf

    path = Path(target or Path(sources[0]).with_suffix(".so")).absolute()
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(prefix=f".{path.stem}-", suffix=".so", dir=path.parent)
        os.close(handle)
        try:
            headers = [
                # TensorFlow's headers are not free of warnings; as the system's, they keep them to themselves.
                f"-isystem{flag[2:]}" if flag.startswith("-I") else flag
                for flag in tf.sysconfig.get_compile_flags()
            ]
            run_compiler([*command, *headers, *_FLAGS, *map(str, sources), *tf.sysconfig.get_link_flags(), "-o", name])
            os.chmod(name, 0o755)
            os.replace(name, path)
        finally:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(name)
    except OSError as error:
        raise UserError(f"{path}: cannot be written: {error.strerror or error}.") from error
    except BuildError as error:
        raise UserError(f"{', '.join(map(str, sources))}: {error}") from error
    return path


def main(arguments: Sequence[str] | None = None) -> int:
    """Reads the command line and builds; for `scripts/build_op`."""
    parser = argparse.ArgumentParser(prog="scripts/build_op", description=__doc__)
    parser.add_argument("sources", nargs="+", metavar="FILE.cc")
    parser.add_argument("-o", dest="target", metavar="LIBRARY.so", help="by default the first source's name")
    options = parser.parse_args(arguments)
    try:
        print(build_op(options.sources, options.target))
    except UserError as error:
        print(f"build_op: error: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
