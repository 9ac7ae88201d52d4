"""Makes the README's pictures of a sweep again: its chart, and MLflow's table of the runs by thread count.

    python scripts/readme_figures.py [--keep FOLDER] [OVERRIDES]     e.g. benchmark.rounds=9

Runs `python -m slimexp -m job=benchmark pipeline.threads=1,2,4,8` on photos of 1600 x 1200 in a folder of its own,
starts `mlflow server` on loopback over the store that this leaves, and takes a screenshot with Chromium without a
display (Debian's package `chromium`), which gets to loopback alone. Both pictures go to `scripts/readme/`. On a machine
that is busy with something else the sweep's verdict says so, and the pictures are worth nothing.
"""

from __future__ import annotations

import _venv  # isort: skip  # noqa: F401  # First: it may go on with another interpreter.

import argparse
import base64
import contextlib
import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import urllib.parse
import urllib.request
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import mlflow
import numpy as np
from PIL import Image
from sklearn.datasets import load_sample_images

from slimexp.sweep.results import read_results
from slimexp.sweep.verdict import disturbance

_ROOT = Path(__file__).resolve().parent.parent
_PICTURES = _ROOT / "scripts" / "readme"
_COMMAND = ("-m", "job=benchmark", "pipeline.threads=1,2,4,8", "benchmark.cold=false")
# Photos for a network that takes more of them than one thread makes.
_PHOTOS = ("dataset=image_folder", "dataset.root=photos", "preprocessing=inception")
_NUM_PHOTOS, _PHOTO_PX = 64, (1600, 1200)
_MAX_BYTES = 250_000
_SIZE_PX = (1420, 470)
_WAIT_SECS = 60.0
# The columns of the table, in their order, with their widths in pixels.
_COLUMNS = {
    "metrics.`pipeline.threads`": 130,
    "metrics.`benchmark/training_images_per_sec`": 255,
    "metrics.`benchmark/pipeline_images_per_sec`": 255,
    "tags.`bottleneck`": 120,
}
_FIXED_COLUMNS = {"attributes.`Run Name`": 190}
_SORTED_BY = "metrics.`pipeline.threads`"


def main() -> int:
    """Runs the sweep, copies its chart and takes the screenshot."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--keep", type=Path, help="run there, or take the sweep that is there, and leave it")
    parser.add_argument("overrides", nargs="*", help="more for the command of the sweep")
    options = parser.parse_args()
    chromium = next((path for name in ("chromium", "chromium-browser") if (path := shutil.which(name))), None)
    if chromium is None:
        print("There is no chromium here; on Debian: apt-get install --no-install-recommends chromium", file=sys.stderr)
        return 1
    with contextlib.ExitStack() as stack:
        folder = options.keep or Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="slimexp-readme-")))
        folder.mkdir(parents=True, exist_ok=True)
        if not (folder / "mlflow.db").exists():
            run_sweep(folder, options.overrides)
        (chart,) = folder.glob("outputs/sweeps/*/*/sweep_threads.png")
        shutil.copyfile(chart, _PICTURES / chart.name)
        address, experiment = stack.enter_context(served(folder))
        picture = _PICTURES / "mlflow_threads.png"
        take_screenshot(chromium, address, experiment, picture)
        note = disturbance(read_results(chart.parent))
    for path in (_PICTURES / chart.name, picture):
        shrink(path)
        print(f"{path.relative_to(_ROOT)}: {path.stat().st_size / 1000:.0f} kB")
        if path.stat().st_size > _MAX_BYTES:
            print(f"{path} is larger than {_MAX_BYTES / 1000:.0f} kB.", file=sys.stderr)
            return 1
    if note:
        print(f"These pictures are not for the README. {note}", file=sys.stderr)
        return 1
    return 0


def run_sweep(folder: Path, overrides: Sequence[str]) -> None:
    """Runs the sweep with everything that it leaves in a folder."""
    environment = {**os.environ, "PYTHONPATH": str(_ROOT)}
    for variable in ("MLFLOW_TRACKING_URI", "MLFLOW_EXPERIMENT_NAME", "MLFLOW_RUN_ID"):
        environment.pop(variable, None)
    make_photos(folder / "photos")
    command = [sys.executable, "-m", "slimexp", *_COMMAND, *_PHOTOS, *overrides]
    subprocess.run(command, cwd=folder, env=environment, check=True)


def make_photos(folder: Path) -> None:
    """Writes two classes of photos: pieces of the two that come with scikit-learn, enlarged."""
    random = np.random.default_rng(0)
    width, height = _PHOTO_PX
    found = load_sample_images()
    for name, pixels in zip(found.filenames, found.images, strict=True):
        large = Image.fromarray(pixels).resize((1920, 1281), Image.Resampling.BICUBIC)
        target = folder / Path(name).stem
        target.mkdir(parents=True, exist_ok=True)
        for number in range(_NUM_PHOTOS):
            x, y = (int(random.integers(size + 1)) for size in (large.width - width, large.height - height))
            large.crop((x, y, x + width, y + height)).save(target / f"{number}.jpg", quality=90)


@contextlib.contextmanager
def served(folder: Path) -> Iterator[tuple[str, str]]:
    """Starts MLflow's server over the folder's store; yields its address and the experiment's id."""
    uri = f"sqlite:///{folder.resolve()}/mlflow.db"
    experiment = mlflow.MlflowClient(uri).get_experiment_by_name("slimexp")
    if experiment is None:
        raise SystemExit(f"{folder}: its mlflow.db has no experiment slimexp.")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [sys.executable, "-m", "mlflow", "server", "--backend-store-uri", uri, "--workers", "1"]
    command += ["--host", "127.0.0.1", "--port", str(port)]
    with open(folder / "server.log", "w", encoding="utf-8") as log:
        environment = {**os.environ, "MLFLOW_DISABLE_TELEMETRY": "true"}
        # In a session of its own, so that its workers end with it.
        server = subprocess.Popen(command, stdout=log, stderr=log, env=environment, start_new_session=True)
        try:
            _await_health(f"http://127.0.0.1:{port}/health", folder / "server.log")
            yield f"http://127.0.0.1:{port}", experiment.experiment_id
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(server.pid, 15)
            server.wait()


def _await_health(url: str, log: Path) -> None:
    deadline = time.monotonic() + _WAIT_SECS
    while time.monotonic() < deadline:
        with contextlib.suppress(OSError), urllib.request.urlopen(url, timeout=2):
            return
        time.sleep(0.3)
    raise SystemExit(f"MLflow's server does not answer; its log is {log}:\n{log.read_text()[-2000:]}")


def take_screenshot(chromium: str, address: str, experiment: str, path: Path) -> None:
    """Opens the experiment's runs with the columns of a comparison, and saves what is seen.

    The page keeps the columns that a user picks in the browser's local storage, so that is where they are put.
    """
    widths = {**_FIXED_COLUMNS, **_COLUMNS}
    state = {
        "selectedColumns": list(_COLUMNS),
        "columnOrder": list(widths),
        "columnWidths": widths,
        "orderByKey": _SORTED_BY,
        "orderByAsc": True,
    }
    sorting = urllib.parse.urlencode({"orderByKey": _SORTED_BY, "orderByAsc": "true"})
    page = f"{address}/#/experiments/{experiment}/runs"
    with Browser(chromium, *_SIZE_PX) as browser:
        browser.open(page)
        # The page writes its own state first, with all that it needs.
        key = f'MLflowLocalStorage-1.1-ExperimentPage-["{experiment}"]-ReactComponentState'
        name, changes = json.dumps(key), json.dumps(state)
        browser.wait_for(f"localStorage.getItem({name}) !== null")
        before = f"JSON.parse(localStorage.getItem({name}))"
        browser.evaluate(
            f"localStorage.setItem({name}, JSON.stringify({{...{before}, ...{changes}}}));"
            "localStorage.setItem('mlflow.assistant.panelOpen_v1', 'false')"
        )
        browser.open("about:blank")
        browser.open(f"{page}?{sorting}")
        # Four jobs and their parent.
        browser.wait_for("document.querySelectorAll('[role=row] a[href*=\"/runs/\"]').length >= 5")
        time.sleep(2)  # The columns are laid out with a delay.
        path.write_bytes(browser.screenshot())
        seen = browser.evaluate("document.body.innerText")
    missing = [word for word in ("pipeline.threads", "threads=1", "threads=8") if word not in seen]
    if missing:
        raise SystemExit(f"{path} does not show {', '.join(missing)}.")


class Browser:
    """Chromium without a display, steered by its DevTools protocol: JSON over a pair of pipes, a NUL after each."""

    def __init__(self, program: str, width_px: int, height_px: int) -> None:
        self._command = [
            program,
            *("--headless=new", "--disable-gpu", "--hide-scrollbars", "--no-first-run", "--remote-debugging-pipe"),
            f"--window-size={width_px},{height_px}",
            # Nothing but this machine.
            "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
            # Chromium refuses its sandbox to root.
            *(["--no-sandbox"] if os.getuid() == 0 else []),
        ]
        self._size = {"width": width_px, "height": height_px}
        self._buffer = b""
        self._number = 0
        self._session: str | None = None

    def __enter__(self) -> Browser:
        self._profile = tempfile.TemporaryDirectory(prefix="slimexp-chromium-", ignore_cleanup_errors=True)
        (to_read, self._to), (self._from, to_write) = os.pipe(), os.pipe()
        # It reads from descriptor 3 and writes to 4, whatever the pipes were given.
        redirections = f'exec 200<&{to_read} 201>&{to_write}; exec 3<&200 4>&201; exec "$@"'
        command = [
            "bash",
            "-c",
            redirections,
            "bash",
            *self._command,
            f"--user-data-dir={self._profile.name}",
            "about:blank",
        ]
        self._process = subprocess.Popen(command, pass_fds=(to_read, to_write), stderr=subprocess.DEVNULL)
        os.close(to_read)
        os.close(to_write)
        target = self._call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self._call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        self._call("Emulation.setDeviceMetricsOverride", **self._size, deviceScaleFactor=1, mobile=False)
        return self

    def __exit__(self, *error: object) -> None:
        self._process.terminate()
        self._process.wait()
        self._profile.cleanup()
        os.close(self._to)
        os.close(self._from)

    def open(self, url: str) -> None:
        """Goes to a page."""
        self._call("Page.navigate", url=url)

    def evaluate(self, script: str) -> Any:
        """Runs JavaScript in the page and returns its value."""
        return self._call("Runtime.evaluate", expression=script, returnByValue=True)["result"].get("value")

    def wait_for(self, condition: str) -> None:
        """Waits until a condition in JavaScript holds."""
        deadline = time.monotonic() + _WAIT_SECS
        while not self.evaluate(condition):
            if time.monotonic() > deadline:
                raise SystemExit(f"The page never came to: {condition}")
            time.sleep(0.3)

    def screenshot(self) -> bytes:
        """Returns what is seen, as PNG."""
        return base64.b64decode(self._call("Page.captureScreenshot", format="png")["data"])

    def _call(self, method: str, **parameters: Any) -> Any:
        self._number += 1
        message: dict[str, Any] = {"id": self._number, "method": method, "params": parameters}
        if self._session is not None:
            message["sessionId"] = self._session
        os.write(self._to, json.dumps(message).encode() + b"\0")
        while True:
            while b"\0" not in self._buffer:
                block = os.read(self._from, 1 << 20)
                if not block:
                    raise SystemExit("Chromium has ended.")
                self._buffer += block
            text, _, self._buffer = self._buffer.partition(b"\0")
            answer = json.loads(text)
            if answer.get("id") == self._number:  # The others are events.
                if "error" in answer:
                    raise SystemExit(f"{method}: {answer['error']['message']}")
                return answer["result"]


def shrink(path: Path) -> None:
    """Writes a picture with a palette, which charts and pages hardly suffer from."""
    with Image.open(path) as image:
        small = image.convert("RGB").quantize(256, dither=Image.Dither.NONE)
    small.save(path, optimize=True)


if __name__ == "__main__":
    sys.exit(main())
