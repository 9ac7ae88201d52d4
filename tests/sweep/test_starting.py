"""What a job says when it is started and stopped, and of a disk that is full or may not be written."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from pathlib import Path

import pytest

from slimexp.hydra_errors import explain
from slimexp.jobs.starting import disk_trouble, how_to_go_on, start


def failure(code: int, path: str | None = None) -> OSError:
    return OSError(code, os.strerror(code), path)


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EACCES, errno.EPERM])
def test_what_the_user_can_mend_is_told_with_path_and_way_out(code):
    told = disk_trouble(failure(code, "/data/a.txt"), Path("/run"))
    assert told is not None
    assert told.startswith(f"/data/a.txt: cannot be written or read ({os.strerror(code)}). Make room or set its")
    assert told.endswith("choose another place for the results with output_root=PATH.")


def test_without_a_path_it_is_the_runs_folder():
    told = disk_trouble(failure(errno.ENOSPC), Path("/run"))
    assert told is not None
    assert told.startswith("/run: cannot be written or read (No space left on device).")


def test_other_libraries_errors_and_causes_count():
    assert disk_trouble(RuntimeError("ckpt-8; No space left on device [Op:SaveV2]"), Path("/run"))
    outer = RuntimeError("no checkpoint")
    outer.__cause__ = failure(errno.EROFS, "/run/a")
    assert "/run/a: cannot be written or read (Read-only file system)" in str(disk_trouble(outer, Path("/run")))


@pytest.mark.parametrize("error", [RuntimeError("a fault"), failure(errno.ENOENT, "x"), failure(errno.EEXIST)])
def test_all_else_is_no_trouble_of_the_disk(error):
    assert disk_trouble(error, Path("/run")) is None


def test_hydra_s_own_notes_meet_it_as_well():
    assert explain(failure(errno.ENOSPC, "/run/.hydra/config.yaml")).startswith("/run/.hydra/config.yaml: cannot be")


@pytest.mark.slow
def test_what_tensorflow_says_of_the_processor_is_in_the_log_alone(tmp_path):
    script = (
        "import sys; from slimexp.jobs.starting import tensorflow_notes_to, turn_first_pixels; import pathlib\n"
        "with tensorflow_notes_to(pathlib.Path(sys.argv[1], 'slimexp.log')): import tensorflow as tf\n"
        "turn_first_pixels(sys.argv[1]); tf.transpose(tf.zeros([2, 1], tf.uint8)); print('seen', file=sys.stderr)\n"
    )
    environment = {name: value for name, value in os.environ.items() if name != "TF_CPP_MIN_LOG_LEVEL"}
    command = [sys.executable, "-c", script, str(tmp_path)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True, timeout=240)
    assert done.stderr == "seen\n"
    assert (tmp_path / "slimexp.log").is_file()


@pytest.mark.parametrize(
    ("job", "said"),
    [
        ("train", "the same command with run_dir=/r"),
        ("predict", "the same command again; job=predict begins anew"),
        ("export", "the same command again; job=export begins anew"),
        ("mine", "the same command with run_dir=/r"),
    ],
    ids=["train", "predict", "export", "mine"],
)
def test_how_to_go_on_depends_on_the_job(job, said):
    assert how_to_go_on(job, Path("/r")) == said


@pytest.mark.parametrize("is_at_work", [True, False])
def test_a_process_ends_with_its_code_and_output_whatever_our_threads_do(is_at_work):
    script = (
        "import atexit, sys, threading, time; from slimexp.jobs.starting import end_process\n"
        "atexit.register(print, 'left as Python does')\n"
        f"if {is_at_work}: threading.Thread(target=time.sleep, args=(1000,), name='slimexp sleeper').start()\n"
        "print('done'); print('said', file=sys.stderr); end_process(3)\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False, timeout=60)
    assert (done.returncode, done.stderr) == (3, "said\n")
    assert done.stdout == ("done\n" if is_at_work else "done\nleft as Python does\n")


def test_a_closed_pipe_is_told_as_what_it_is(tmp_path, capsys):
    def make_config():
        raise BrokenPipeError(errno.EPIPE, os.strerror(errno.EPIPE))

    outcome = start(make_config, [], tmp_path, go_on="once more", show_traceback=False)
    told = "what took this program's output has ended (a pipe is closed), so the job was ended as well."
    told += " To go on: once more"
    assert (outcome.exit_code, outcome.reason) == (1, told)
    assert capsys.readouterr().err == f"slimexp: error: {told}\n"


def test_a_program_without_output_has_somewhere_to_write_to():
    script = (
        "import sys; from slimexp.jobs.starting import open_missing_streams; open_missing_streams()\n"
        "print('lost', file=sys.stderr); print('lost', flush=True); sys.exit(5)\n"
    )
    command = f'exec {sys.executable} -c "$1" >&- 2>&-'
    assert subprocess.run(["bash", "-c", command, "bash", script], check=False, timeout=60).returncode == 5
