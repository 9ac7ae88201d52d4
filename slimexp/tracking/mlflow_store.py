"""Opens an MLflow store: is it there, and our experiment in it.

Everything that a user can get wrong about a store is found here, in seconds and before training starts. Left alone,
MLflow retries for 102 s on a database that cannot be opened and for 247 s on a server that does not answer.
"""

from __future__ import annotations

import contextlib
import dataclasses
import logging
import os
import re
import shlex
import socket
import sqlite3
import time
import urllib.parse
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Any

from slimexp.errors import UserError
from slimexp.tracking.location import DATABASE_NAME, SERVER_DATABASES, Location
from slimexp.tracking.masking import mask_text

__all__ = ["Store", "StoreUnavailableError", "cause_of", "is_refusal", "open_store"]

_LOG = logging.getLogger(__name__)

_ARTIFACT_FOLDER = "mlflow-artifacts"
_CONNECT_SECS, _ANSWER_SECS = 4, 10
# A fresh store takes 2 to 8 s to make, so this is ten starts in a row on a slow disk.
_LOCK_SECS = 90
_BUSY_SECS = 20

# Set only where the user has not: MLflow reads these at each request. Retries are ours to make (see sender.py).
_ENVIRONMENT = {
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "MLFLOW_LOGGING_LEVEL": "WARNING",
    # Else it prints the run's address into our progress bar when the run ends.
    "MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT": "true",
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "0",
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "60",
}
# What MLflow answers when it understood us and will never agree, as opposed to being busy, down or unreachable.
_REFUSALS = frozenset(
    {
        *("INVALID_PARAMETER_VALUE", "MALFORMED_REQUEST", "BAD_REQUEST", "INVALID_STATE"),
        *("RESOURCE_DOES_NOT_EXIST", "RESOURCE_ALREADY_EXISTS"),
    }
)


class StoreUnavailableError(Exception):
    """The store is right but does not answer now; the message is the cause."""


@dataclasses.dataclass(frozen=True)
class Store:
    """An open store.

    Attributes:
        client: MLflow's client; its calls name their run, so nothing depends on an active run.
        experiment_id: Our experiment in it.
        database: The file of a SQLite store, else None.
    """

    client: Any
    experiment_id: str
    database: Path | None = None


def open_store(location: Location, experiment: str, on_answer: Callable[[], None] = lambda: None) -> Store:
    """Opens the store and finds or creates the experiment.

    Several processes may do so at once, also on a database that is not there yet: a SQLite store is opened under a
    lock file beside it. Environment variables that steer MLflow (telemetry off, its own retries off, a timeout) are
    set where the user has not set them.

    Args:
        location: From `resolve_uri`.
        experiment: The experiment's name.
        on_answer: Called once the store is known to be there, if only slow.

    Returns:
        The store.

    Raises:
        UserError: If the user has to mend something: the database's folder or version, a deleted experiment.
        StoreUnavailableError: If the store does not answer now.
    """
    if not experiment.strip():
        raise UserError("tracking.experiment is empty; give the experiment a name, e.g. tracking.experiment=digits.")
    for name, value in _ENVIRONMENT.items():
        os.environ.setdefault(name, value)
    if location.uri.startswith(("http://", "https://")):
        _check_server(location)
    elif location.database is None:
        _check_port(location)
    on_answer()
    lock: contextlib.AbstractContextManager[None] = contextlib.nullcontext()
    if location.database is not None:
        _make_folder(location, location.database.parent)
        lock = _locked(location, location.database)
    with lock:
        fresh = location.database is not None and _check_database(location, location.database)
        try:
            client = _connect(location, fresh)
            return Store(client, _experiment_id(client, location, experiment), location.database)
        except UserError:
            raise
        except Exception as error:
            raise _explain(error, location) from error


def is_refusal(error: BaseException) -> bool:
    """Tells whether MLflow has refused for good, so that trying again is of no use."""
    return getattr(error, "error_code", None) in _REFUSALS


def cause_of(error: BaseException) -> str:
    """Returns the line of an error that names its cause, without passwords and of bounded length, for our messages."""
    text = str(error).strip() or type(error).__name__
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    # SQLAlchemy names the database's own error, e.g. "(sqlite3.OperationalError) database or disk is full", in the
    # second line where it first tells how it came to ask the database.
    database_lines = [line for line in lines if re.match(r"\([\w.]+\) .", line)]
    line = mask_text((database_lines or lines or [type(error).__name__])[0])
    # What failed underneath says more than the layers of urllib3 that wrap it.
    inner = re.search(r"\[Errno -?\d+\] [^'\")]+", line)
    status = re.search(r"too many (\d{3}) error responses", line)
    line = inner[0] if inner else line
    line = f"the server is there, but answers with an error, HTTP {status[1]}" if status else line
    return line if len(line) <= 300 else line[:297] + "..."


def _check_server(location: Location) -> None:
    """Asks the server whether it is there: any answer will do, an error of its own included."""
    import requests

    try:
        requests.get(location.uri.rstrip("/") + "/health", timeout=(_CONNECT_SECS, _ANSWER_SECS), stream=True).close()
    except requests.exceptions.SSLError:
        pass  # Somebody answered; MLflow has settings of its own for certificates.
    except (requests.exceptions.InvalidURL, UnicodeError) as error:
        raise UserError(f"{location.origin}={location.display} is no valid address: {cause_of(error)}") from error
    except requests.exceptions.RequestException as error:
        raise StoreUnavailableError(cause_of(error)) from error


def _check_port(location: Location) -> None:
    """Tries to connect to a database server, as MLflow would retry that for 102 s."""
    parts = urllib.parse.urlsplit(location.uri)
    port = SERVER_DATABASES.get(parts.scheme.partition("+")[0])
    if port is None or not parts.hostname or parts.hostname.startswith("/"):
        return  # Not a database server, or one behind a Unix socket.
    try:
        socket.create_connection((parts.hostname, parts.port or port), timeout=_CONNECT_SECS).close()
    except ValueError as error:
        raise UserError(f"{location.origin}={location.display} is no valid address: {cause_of(error)}") from error
    except OSError as error:
        raise StoreUnavailableError(cause_of(error)) from error


def _make_folder(location: Location, folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise _unwritable(location, folder, error) from error
    if not os.access(folder, os.W_OK | os.X_OK):
        raise _unwritable(location, folder, None)


def _unwritable(location: Location, folder: Path, error: OSError | None) -> UserError:
    reason = f" ({error.strerror or error})" if error else ""
    return UserError(
        f"The tracking database {location.database} (from {location.origin}) cannot be made: the folder {folder} is "
        f"not writable{reason}. Set tracking.uri=sqlite:////WRITABLE/FOLDER/{DATABASE_NAME}, or tracking=none."
    )


@contextlib.contextmanager
def _locked(location: Location, database: Path) -> Iterator[None]:
    """Holds the lock file beside a database; where files cannot be locked, goes on without."""
    try:
        import fcntl
    except ImportError:
        yield
        return
    # The file stays: removing a lock file that another process waits on would let two in.
    with _open_lock_file(location, f"{database}.lock") as file:
        deadline = time.monotonic() + _LOCK_SECS
        held = False
        while not held:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                held = True
            except BlockingIOError as error:
                if time.monotonic() > deadline:
                    raise StoreUnavailableError(f"another process has held {file.name} for {_LOCK_SECS} s") from error
                time.sleep(0.05)
            except OSError as error:
                _LOG.debug("%s cannot be locked: %s", file.name, error)
                break
        try:
            yield
        finally:
            if held:
                fcntl.flock(file, fcntl.LOCK_UN)


def _open_lock_file(location: Location, name: str) -> IO[bytes]:
    try:
        try:
            return open(name, "ab")
        except PermissionError:
            return open(name, "rb")  # Another user's; reading it is enough to lock it.
    except OSError as error:
        raise UserError(
            f"The tracking database {location.database} (from {location.origin}) cannot be made or locked: {name}: "
            f"{error.strerror or error}. Set tracking.uri=sqlite:////WRITABLE/FOLDER/{DATABASE_NAME}, or tracking=none."
        ) from error


def _check_database(location: Location, database: Path) -> bool:
    """Checks that the file can be opened and written; returns whether it holds no tables yet."""
    try:
        with contextlib.closing(sqlite3.connect(database, timeout=_BUSY_SECS, isolation_level=None)) as connection:
            connection.execute("BEGIN IMMEDIATE")
            tables = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]
            connection.execute("ROLLBACK")
            return tables == 0
    except sqlite3.OperationalError as error:
        if "locked" in str(error) or "busy" in str(error):
            raise StoreUnavailableError(f"another process has locked {database} for {_BUSY_SECS} s") from error
        raise UserError(
            f"The tracking database {database} (from {location.origin}) cannot be opened for writing: {error}. "
            f"Mend its permissions, or set tracking.uri=sqlite:////WRITABLE/FOLDER/{DATABASE_NAME}."
        ) from error
    except sqlite3.DatabaseError as error:
        raise UserError(
            f"{database} (from {location.origin}) is not a SQLite database: {error}. "
            f"Move it away, or set tracking.uri=sqlite:///ANOTHER.db."
        ) from error


def _connect(location: Location, fresh: bool) -> Any:
    import mlflow

    if location.uri.startswith(("http://", "https://")):
        return mlflow.MlflowClient(tracking_uri=location.uri)
    # These log a traceback for each failed call; we say the same in one line.
    logging.getLogger("mlflow.store.db.utils").setLevel(logging.CRITICAL)
    # MLflow's models are declared with an option that SQLAlchemy 2.1 calls deprecated. That is between those two, and
    # must not end a run of somebody who turns warnings into errors.
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        if fresh and location.database is not None:
            from mlflow.store.tracking.sqlalchemy_store import SqlAlchemyStore

            # Makes the tables. MLflow alone would give its experiment "Default" a folder `mlruns` in the working one.
            SqlAlchemyStore(location.uri, str(location.database.with_name(_ARTIFACT_FOLDER)))
        return mlflow.MlflowClient(tracking_uri=location.uri)


def _experiment_id(client: Any, location: Location, name: str) -> str:
    from mlflow.exceptions import MlflowException

    experiment = client.get_experiment_by_name(name)
    if experiment is None:
        artifacts = location.database.with_name(_ARTIFACT_FOLDER) if location.database else None
        try:
            created = client.create_experiment(name, artifact_location=str(artifacts) if artifacts else None)
            return _real_id(created)
        except MlflowException as error:
            if error.error_code != "RESOURCE_ALREADY_EXISTS":
                raise
            experiment = client.get_experiment_by_name(name)  # Another process was quicker.
    found = _real_id(experiment.experiment_id)
    if experiment.lifecycle_stage == "deleted":
        uri = '"$MLFLOW_TRACKING_URI"' if location.display != location.uri else shlex.quote(location.uri)
        raise UserError(
            f"tracking.experiment={name} was deleted in {location.display}. Restore it with: "
            f"MLFLOW_TRACKING_URI={uri} mlflow experiments restore --experiment-id {found}; "
            f"or set another tracking.experiment."
        )
    return found


def _real_id(experiment_id: object) -> str:
    """Returns an experiment's id as text; a server of another kind that answers `{}` to all gives none."""
    if not experiment_id:
        raise StoreUnavailableError("what answers there is no MLflow server, or not at this path (it gives no ids)")
    return str(experiment_id)


def _explain(error: Exception, location: Location) -> Exception:
    """Returns what to raise for a store that failed to open."""
    text = str(error)
    if "out-of-date database schema" in text:
        versions = re.search(r"\(.*?\)", text)
        found = re.search(r"found version (\w+)", text)
        if found and not _is_known_revision(found[1]):
            return UserError(
                f"The tracking database {location.display} was written by a newer version of MLflow: its revision "
                f"{found[1]} is unknown to the installed {_mlflow_version()}. Install that version "
                "(pip install --upgrade mlflow), or set tracking.uri to a new file."
            )
        return UserError(
            f"The tracking database {location.display} was written by another version of MLflow "
            f"{versions[0] if versions else ''}. Copy it, then run: mlflow db upgrade "
            f"{shlex.quote(location.display)}; or set tracking.uri to a new file."
        )
    if isinstance(error, ImportError):
        return UserError(f"tracking.uri={location.display} needs a Python package that is missing: {error}")
    status = _http_status(error)
    if status in (401, 403):
        return UserError(
            f"{location.origin}={location.display} refuses the login (HTTP {status}). Set MLFLOW_TRACKING_USERNAME and "
            "MLFLOW_TRACKING_PASSWORD, or MLFLOW_TRACKING_TOKEN, in the environment, or tracking.uri=http://USER:"
            "PASSWORD@SERVER; tracking=none does without."
        )
    if status is not None and status < 500:
        return StoreUnavailableError(f"what answers there is no MLflow server, or not at this path ({cause_of(error)})")
    if is_refusal(error):
        return UserError(f"{location.display} refuses the experiment: {cause_of(error)}")
    return StoreUnavailableError(cause_of(error))


def _http_status(error: Exception) -> int | None:
    """Returns the HTTP status behind an error, where MLflow tells it."""
    # Answers of MLflow itself have an error code; the status of others stands in the text only.
    match = re.search(r"failed with error code (\d{3})", str(error))
    if match:
        return int(match[1])
    if getattr(error, "error_code", None) in ("UNAUTHENTICATED", "PERMISSION_DENIED"):
        return 401 if getattr(error, "error_code", None) == "UNAUTHENTICATED" else 403
    # An answer of another server, with status 200, is no JSON.
    return 200 if "valid JSON format" in str(error) else None


def _is_known_revision(revision: str) -> bool:
    """Tells whether the installed MLflow knows how to come from, or to, a database's revision."""
    import mlflow

    folder = Path(mlflow.__file__).parent / "store" / "db_migrations" / "versions"
    # Where the files are not found, it is taken for known: then the message names the upgrade.
    return not folder.is_dir() or any(folder.glob(f"{revision}_*.py"))


def _mlflow_version() -> str:
    import mlflow

    return f"mlflow {mlflow.__version__}"
