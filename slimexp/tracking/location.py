"""Works out where runs are stored, and refuses addresses that would lose or scatter them."""

from __future__ import annotations

import dataclasses
import os
import re
import shlex
import sys
import urllib.parse
from pathlib import Path

from slimexp.errors import UserError
from slimexp.tracking.masking import mask_text

__all__ = ["DATABASE_NAME", "SERVER_DATABASES", "Location", "resolve_uri"]

DATABASE_NAME = "mlflow.db"
# Kinds of database servers with the port that each listens on by default.
SERVER_DATABASES = {"postgresql": 5432, "mysql": 3306, "mssql": 1433}


@dataclasses.dataclass(frozen=True)
class Location:
    """Where runs are stored.

    Attributes:
        uri: The address as MLflow takes it; may hold a password, so it is for no eyes.
        database: The file of a SQLite store, absolute; else None.
        origin: Where the address came from, for messages, e.g. `tracking.uri`.
    """

    uri: str
    database: Path | None
    origin: str

    @property
    def display(self) -> str:
        """The address with its password masked."""
        return mask_text(self.uri)

    @property
    def ui_command(self) -> str:
        """What to enter, in a shell or a browser, to look at the runs."""
        if self.uri.startswith(("http://", "https://")):
            parts = urllib.parse.urlsplit(self.uri)
            return urllib.parse.urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2]))
        if self.uri.startswith("databricks"):
            return self.display
        script = Path(sys.executable).with_name("mlflow")
        command = [str(script)] if script.exists() else [sys.executable, "-m", "mlflow"]
        uri = shlex.quote(self.display)
        if self.display != self.uri and self.origin == "MLFLOW_TRACKING_URI":
            uri = '"$MLFLOW_TRACKING_URI"'
        return f"{shlex.join(command)} ui --backend-store-uri {uri}"


def resolve_uri(uri: str | None, start_dir: Path) -> Location:
    """Works out where runs are stored.

    Args:
        uri: What the user set as `tracking.uri`; None or empty means MLFLOW_TRACKING_URI, and without that a SQLite
            file in `start_dir`.
        start_dir: The folder the user started in; relative files are meant from there.

    Returns:
        The location, absolute.

    Raises:
        UserError: If the address is a folder, an in-memory database or of an unknown kind.
    """
    origin = "tracking.uri"
    if not uri:
        uri, origin = os.environ.get("MLFLOW_TRACKING_URI", ""), "MLFLOW_TRACKING_URI"
    if not uri:
        return _sqlite_location(str(start_dir / DATABASE_NAME), "", start_dir, "the default")
    where = f"{origin}={mask_text(uri)}"
    if uri.startswith("databricks"):
        return Location(uri, None, origin)
    scheme = uri.partition(":")[0].lower() if re.match(r"[A-Za-z][A-Za-z0-9+.\-]+:", uri) else ""
    base = scheme.partition("+")[0]
    if base == "sqlite":
        match = re.fullmatch(r"[^:]+:///(?P<path>[^?]*)(?P<query>\?.*)?", uri)
        path = urllib.parse.unquote(match["path"]) if match else ""
        if not match and uri.lower().rstrip("/") != f"{scheme}:":
            name = re.sub(r"^[^:]+:/*", "", uri)
            raise UserError(f"{where}: a SQLite address has three slashes and then the file: sqlite:///{name}.")
        if path in ("", ":memory:"):
            raise UserError(
                f"{where} is a database in memory: its runs would be gone at the end. "
                f"Name a file instead: sqlite:///{DATABASE_NAME}."
            )
        assert match is not None
        return _sqlite_location(path, match["query"] or "", start_dir, origin)
    if scheme in ("", "file"):
        raise UserError(_folder_message(where, uri, scheme, start_dir))
    if scheme in ("http", "https") or base in SERVER_DATABASES:
        return Location(uri, None, origin)
    raise UserError(
        f"{where}: {scheme}: is no kind of tracking store. Use sqlite:///FILE, http(s)://SERVER:PORT, "
        f"postgresql://, mysql:// or mssql://; tracking=none does without."
    )


def _sqlite_location(path: str, query: str, start_dir: Path, origin: str) -> Location:
    database = Path(os.path.abspath(start_dir / Path(path).expanduser()))
    if "?" in str(database) or re.search(r"%[0-9A-Fa-f]{2}", str(database)):
        raise UserError(
            f"The tracking database {database} (from {origin}) has a '?' or a '%' code in its path, which a database "
            f"address cannot hold. Set tracking.uri=sqlite:////ANOTHER/FOLDER/{DATABASE_NAME}."
        )
    return Location(f"sqlite:///{database}{query}", database, origin)


def _folder_message(where: str, uri: str, scheme: str, start_dir: Path) -> str:
    name = urllib.parse.unquote(urllib.parse.urlsplit(uri).path) if scheme == "file" else uri
    folder = Path(os.path.abspath(start_dir / Path(name).expanduser()))
    if folder.suffix in (".db", ".sqlite", ".sqlite3"):
        return f"{where} is a file name, not an address. For that SQLite file set tracking.uri=sqlite:///{folder}."
    database = folder.with_name(DATABASE_NAME)
    message = (
        f"{where} is a folder, and MLflow no longer keeps runs in folders. "
        f"Either use a SQLite file: tracking.uri=sqlite:///{database}"
    )
    if folder.is_dir():
        source, target = shlex.quote(str(folder)), shlex.quote(f"sqlite:///{database}")
        return (
            f"{message}; or take the old runs along, before the first new one: "
            f"mlflow migrate-filestore --source {source} --target {target}, and then the same tracking.uri."
        )
    return f"{message}; or leave tracking.uri (and MLFLOW_TRACKING_URI) unset for {start_dir / DATABASE_NAME}."
