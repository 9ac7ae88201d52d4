from __future__ import annotations

from slimexp.sweep import stopping


def test_a_wish_to_stop_is_read_by_all_and_taken_back(tmp_path):
    assert stopping.requested(tmp_path) is None
    stopping.request(tmp_path, stopping.Stop(15, 2))
    assert stopping.requested(tmp_path) == stopping.Stop(15, 2)
    stopping.clear(tmp_path)
    assert stopping.requested(tmp_path) is None


def test_a_disk_that_takes_nothing_does_not_keep_a_sweep_from_stopping(tmp_path):
    folder = tmp_path / "gone"
    stopping.request(folder, stopping.Stop(2))
    assert stopping.requested(folder) == stopping.Stop(2)
    stopping.clear(folder)
    assert stopping.requested(folder) is None
