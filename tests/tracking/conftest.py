"""Real stores: a SQLite database that is made once and copied, and `mlflow server` with a proxy in front of it."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from slimexp.tracking.location import resolve_uri
from slimexp.tracking.mlflow_store import open_store


def wait_for(condition: Callable[[], bool], timeout_secs: float) -> None:
    """Waits until something is so, or fails."""
    deadline = time.monotonic() + timeout_secs
    while not condition():
        assert time.monotonic() < deadline, "timed out"
        time.sleep(0.05)


@pytest.fixture(scope="session")
def database(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An MLflow database with nothing but the experiment `tests` in it, to be copied: to make one takes seconds."""
    folder = tmp_path_factory.mktemp("template")
    open_store(resolve_uri(f"sqlite:///{folder}/mlflow.db", folder), "tests")
    return folder / "mlflow.db"


@pytest.fixture(scope="module")
def store(database: Path, tmp_path_factory: pytest.TempPathFactory) -> str:
    """The address of a real SQLite store of the module's own."""
    path = tmp_path_factory.mktemp("store") / "mlflow.db"
    shutil.copy(database, path)
    return f"sqlite:///{path}"


class Server:
    """`mlflow server` on a port of its own, over a database that outlives it."""

    def __init__(self, folder: Path) -> None:
        self.port = free_port()
        self.folder = folder
        self.uri = f"http://127.0.0.1:{self.port}"
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Starts it and waits until it answers."""
        command = [sys.executable, "-m", "mlflow", "server", "--workers", "1", "--host", "127.0.0.1"]
        command += ["--backend-store-uri", f"sqlite:///{self.folder}/mlflow.db", "--port", str(self.port)]
        command += ["--artifacts-destination", str(self.folder / "artifacts")]
        self.process = subprocess.Popen(
            command,
            cwd=self.folder,
            env={**os.environ, "MLFLOW_DISABLE_TELEMETRY": "true", "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false"},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        wait_for(self.answers, 120)

    def answers(self) -> bool:
        """Tells whether it answers."""
        try:
            with urllib.request.urlopen(f"{self.uri}/health", timeout=2):
                return True
        except OSError:
            return False

    def kill(self) -> None:
        """Kills it with all its processes, if it is there."""
        if self.process is not None:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait(10)
            self.process = None


@pytest.fixture(scope="module")
def server(database: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server that runs; a test that kills it starts it again."""
    folder = tmp_path_factory.mktemp("server")
    shutil.copy(database, folder / "mlflow.db")
    server = Server(folder)
    try:
        server.start()
        yield server
    finally:
        server.kill()


class Proxy:
    """Hands what comes to a port of its own on to a server: late, or only for who knows the password."""

    def __init__(self, target: int, *, port: int = 0, delay_secs: float = 0.0, login: bytes | None = None) -> None:
        self._target = target
        self._delay_secs = delay_secs
        self._login = login
        self.requests = 0
        self._listener = socket.create_server(("127.0.0.1", port))
        self.port = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        """Takes no more connections."""
        self._listener.close()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        with client, contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self._target)) as server:
            threading.Thread(target=self._answer, args=(server, client), daemon=True).start()
            while data := client.recv(1 << 16):
                if data.startswith((b"GET ", b"POST ", b"PATCH ", b"PUT ", b"DELETE ")):
                    self.requests += 1
                    time.sleep(self._delay_secs)
                    if self._login is not None and self._login not in data:
                        client.sendall(b"HTTP/1.1 401 Unauthorized\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
                        return
                server.sendall(data)

    def _answer(self, server: socket.socket, client: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := server.recv(1 << 16):
                client.sendall(data)
            client.shutdown(socket.SHUT_RDWR)


def free_port() -> int:
    """Returns a port on which nothing listens."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])
