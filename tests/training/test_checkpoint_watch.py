from __future__ import annotations

from slimexp.training.checkpoint_watch import find_checkpoints, step_of


def test_checkpoints_by_step(tmp_path):
    for name in ("model.ckpt-9", "model.ckpt-10", ".model.ckpt-11.tmp", "other-3", "none"):
        (tmp_path / f"{name}.index").touch()
    (tmp_path / "model.ckpt-12.data-00000-of-00001").touch()
    assert find_checkpoints(tmp_path) == [
        (3, f"{tmp_path}/other-3"), (9, f"{tmp_path}/model.ckpt-9"), (10, f"{tmp_path}/model.ckpt-10")
    ]  # fmt: skip
    assert find_checkpoints(tmp_path / "none") == []
    assert (step_of("/a/model.ckpt-17"), step_of("/a/model.ckpt")) == (17, None)
