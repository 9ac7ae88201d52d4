"""An export as an MLflow model: it answers to tables of files' bytes, by name from the registry too."""

from __future__ import annotations

import base64
import dataclasses
import json
import os
import shutil
import subprocess
import sys

import mlflow
import numpy as np
import pandas
import pytest

from slimexp.errors import UserError
from slimexp.export.log_model import log_model
from slimexp.export.manifest import Manifest
from slimexp.pipeline.preprocessing import PlainPreprocessing
from tests.export.pictures import encoded, smooth
from tests.export.test_manifest import MANIFEST
from tests.export.test_module import model_of

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")  # MLflow's own.
FILES = [encoded(smooth(20, 14, seed=seed), "PNG") for seed in range(2)]


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    """A store with a run; its address and the run's id."""
    folder = tmp_path_factory.mktemp("store")
    client = mlflow.MlflowClient(f"sqlite:///{folder}/mlflow.db")
    experiment = client.create_experiment("e", artifact_location=(folder / "artifacts").as_uri())
    return f"sqlite:///{folder}/mlflow.db", client.create_run(experiment).info.run_id


def exported(folder, task, preprocessing):
    model = model_of(preprocessing, task)
    values = {**json.loads(MANIFEST.text()), "task": task, "saved_model": {name: {} for name in model.signatures()}}
    values["model"]["image_size"] = 8
    manifest = Manifest(**values)
    model.save(folder / "saved_model", assets={"export.json": manifest.text()})
    return model, manifest


def loaded(uri, address):
    mlflow.set_tracking_uri(address)
    return mlflow.pyfunc.load_model(uri)


@pytest.fixture(scope="module")
def with_bytes(tmp_path_factory):
    """An export's folder, the model that was saved there, and its description."""
    folder = tmp_path_factory.mktemp("export")
    return folder, *exported(folder, "single", PlainPreprocessing(8))


@pytest.fixture(scope="module")
def served(store, with_bytes):
    """The registered model as MLflow's servers load it."""
    address, run_id = store
    folder, _, manifest = with_bytes
    said = log_model(folder, manifest, tracking_uri=address, run_id=run_id, registered_name="photos")
    assert said.startswith("models:/photos/1 (models:/m-")
    client = mlflow.MlflowClient(address)
    experiment = client.get_experiment(client.get_run(run_id).info.experiment_id)
    (logged,) = client.search_logged_models([experiment.experiment_id])
    assert logged.source_run_id == run_id
    assert logged.artifact_location.startswith(experiment.artifact_location)  # And not within the current folder.
    return loaded("models:/photos/1", address)


def test_a_registered_model_answers_to_the_bytes_of_files(served, with_bytes):
    _, model, manifest = with_bytes
    answer = served.predict(pandas.DataFrame({"image": FILES}))
    scores = model.image_bytes(FILES)["scores"].numpy()
    np.testing.assert_allclose(np.array(answer["scores"].tolist()), scores, atol=1e-6)
    assert answer["class"].tolist() == [manifest.classes[place] for place in scores.argmax(axis=1)]
    np.testing.assert_allclose(answer["score"], scores.max(axis=1), atol=1e-6)
    with pytest.raises(mlflow.exceptions.MlflowException, match=r"missing.*image"):
        served.predict(pandas.DataFrame({"picture": FILES}))
    # Base64 as it stands in JSON, whose reader in MLflow decodes it only where it knows the signature.
    python = served.unwrap_python_model()
    table = pandas.DataFrame({"image": [base64.encodebytes(FILES[0]).decode(), bytearray(FILES[1])]})
    np.testing.assert_allclose(np.array(python.predict(None, table)["scores"].tolist()), scores, atol=1e-6)
    assert python.predict(None, table[:0]).columns.tolist() == ["class", "score", "scores"]


@pytest.mark.parametrize(
    ("images", "reason"),
    [
        ([FILES[0], b"no picture", FILES[1], b""], "Column image, row 1, 10 bytes: .*are no JPEG.*; row 3, 0 bytes: "),
        ([FILES[0], FILES[1][:300]], "Column image, row 1, 300 bytes: Invalid PNG data, size 300"),
        ([FILES[0], "photo.jpg"], "row 1: the text 'photo.jpg' is no base64; the bytes of an image file are wanted"),
        ([None], "row 0: is of the type NoneType; the bytes of an image file are wanted, or their base64 as text"),
    ],
    ids=["no pictures", "half a picture", "a path", "nothing"],
)
def test_a_row_that_cannot_be_scored_is_named_with_the_reason(served, images, reason):
    with pytest.raises(mlflow.exceptions.MlflowException, match=reason) as caught:
        served.unwrap_python_model().predict(None, pandas.DataFrame({"image": images}))
    assert caught.value.error_code == "INVALID_PARAMETER_VALUE"
    assert len(str(caught.value).splitlines()) == 1


@pytest.mark.slow
def test_labels_on_their_own_have_a_threshold_and_ready_images_a_signature_too(store, with_bytes, tmp_path):
    address, run_id = store
    folder, _, manifest = with_bytes
    multi = tmp_path / "multi"
    multi.mkdir()
    shutil.copytree(folder / "saved_model", multi / "saved_model")
    manifest = dataclasses.replace(manifest, task="multi")
    (multi / "saved_model" / "assets.extra" / "export.json").write_text(manifest.text(), encoding="utf-8")
    uri = log_model(multi, manifest, tracking_uri=address, run_id=run_id)
    model = loaded(uri, address)
    answer = model.predict(pandas.DataFrame({"image": FILES}), params={"threshold": 0.0001})
    assert answer["classes"].tolist() == [
        [n for n, s in zip("éb", row, strict=True) if s >= 1e-4] for row in answer["scores"]
    ]
    _, manifest = exported(tmp_path / "images", "single", None)
    uri = log_model(tmp_path / "images", manifest, tracking_uri=address, run_id=run_id)
    answer = loaded(uri, address).predict(np.zeros([2, 8, 8, 3], np.float32))
    assert answer["score"].tolist() == [0.5, 0.5]


def test_a_store_that_does_not_take_it_is_named(with_bytes, store):
    folder, _, manifest = with_bytes
    with pytest.raises(UserError, match=r"the tracking store did not take the model: .*\. The export is complete: "):
        log_model(folder, manifest, tracking_uri=store[0], run_id="0" * 32)


@pytest.mark.slow
def test_mlflow_s_command_line_answers_to_base64(store, with_bytes, tmp_path):
    address, run_id = store
    folder, model, manifest = with_bytes
    uri = log_model(folder, manifest, tracking_uri=address, run_id=run_id)
    table = {"columns": ["image"], "data": [[base64.b64encode(content).decode()] for content in FILES]}
    (tmp_path / "in.json").write_text(json.dumps({"dataframe_split": table}))
    command = [sys.executable, "-m", "mlflow", "models", "predict", "-m", uri, "--env-manager", "local"]
    files = ["-i", str(tmp_path / "in.json"), "-o", str(tmp_path / "out.json"), "-t", "json"]
    environment = {**os.environ, "MLFLOW_TRACKING_URI": address}
    subprocess.run([*command, *files], check=True, env=environment, timeout=240)
    answer = json.loads((tmp_path / "out.json").read_text())["predictions"]
    scores = model.image_bytes(FILES)["scores"].numpy()
    np.testing.assert_allclose([row["scores"] for row in answer], scores, atol=1e-6)
