"""Builds the decoder with AddressSanitizer and UBSan and feeds it damaged JPEGs; for `scripts/fuzz_native_op`."""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from PIL import Image
from sklearn.datasets import load_sample_images

from slimexp.pipeline.native import build

_SANITIZERS = ("-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-fno-omit-frame-pointer")
# All but what needs TensorFlow.
_SOURCES = ("kernels.cc", "header.cc", "decoder.cc")


def write_seeds(folder: Path) -> list[Path]:
    """Writes small JPEGs of every kind that the decoder takes, and two that it does not."""
    photo = Image.fromarray(load_sample_images().images[0])
    exif = Image.Exif()
    exif[0x0112], exif[0x010F] = 6, "camera"
    kinds = [
        ((97, 61), {}),
        ((160, 120), {"subsampling": 0}),
        ((64, 200), {"subsampling": 1, "optimize": True}),
        ((150, 150), {"progressive": True}),
        ((90, 40), {"progressive": True, "subsampling": 0, "exif": exif}),
        ((120, 80), {"exif": exif, "comment": b"a comment"}),
        ((120, 96), {"restart_marker_blocks": 3}),
        ((33, 17), {"restart_marker_rows": 1, "quality": 100}),
        ((1, 1), {}),
        ((640, 427), {"quality": 40}),
    ]
    paths = []
    for number, (size, options) in enumerate(kinds):
        for mode in ("RGB", "L", "CMYK") if number < 2 else ("RGB",):
            path = folder / f"{number}-{mode}.jpg"
            photo.resize(size).convert(mode).save(path, "JPEG", **options)
            paths.append(path)
    return paths


def compile_driver(folder: Path) -> Path:
    """Compiles the driver and the decoder.

    Raises:
        build.BuildError: If that can't be done.
    """
    if missing := build.missing_tools():
        raise build.BuildError(missing)
    driver = folder / "fuzz_driver"
    native = build.source_dir()
    build.run_compiler(
        [*build.compiler(), "-std=c++17", "-O1", "-g", "-Wall", "-Wextra", "-Werror", *_SANITIZERS, f"-I{native}"]
        + [str(native / name) for name in _SOURCES]
        + [str(Path(__file__).with_name("fuzz_driver.cc")), "-ljpeg", "-pthread", "-o", str(driver)]
    )
    return driver


def fuzz(seconds: float, seed: int) -> int:
    """Fuzzes for some seconds; returns the driver's exit code, 0 when it found nothing."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        driver = compile_driver(folder)
        # Leaks are looked for when it ends. A size that a damaged header makes up may ask for more than there is.
        options = {"ASAN_OPTIONS": "detect_leaks=1:allocator_may_return_null=1", "UBSAN_OPTIONS": "print_stacktrace=1"}
        command = [str(driver), str(seconds), str(seed), *map(str, write_seeds(folder))]
        return subprocess.run(command, env={**os.environ, **options}).returncode


def main() -> int:
    """Reads the command line."""
    parser = argparse.ArgumentParser(description="Feeds damaged JPEGs to the native decoder, built with sanitizers.")
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--seed", type=int, default=0, help="the same seed damages in the same way")
    options = parser.parse_args()
    try:
        return fuzz(options.seconds, options.seed)
    except build.BuildError as error:
        print(f"The decoder can't be fuzzed here: {error}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main())
