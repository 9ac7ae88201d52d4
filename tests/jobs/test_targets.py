"""What a `_target_` names is found, or the key and the cause are said."""

from __future__ import annotations

import pytest

from slimexp.config.optimization import MomentumConfig
from slimexp.errors import UserError
from slimexp.jobs import build
from slimexp.jobs.targets import arguments, call, locate


def test_locate_finds_functions_and_classes():
    assert locate("key", "slimexp.dataset.load_digits").__name__ == "load_digits"


@pytest.mark.parametrize(
    ("target", "message"),
    [
        ("slimexp.nets.vgg.vgg_61", r"slimexp\.nets\.vgg has no function or class vgg_61\. The nearest is .*\.vgg_16"),
        ("slimexp.nets.vg.vgg_16", r"cannot import slimexp\.nets\.vg: No module named 'slimexp\.nets\.vg'"),
        ("vgg_16", r"must be MODULE\.NAME"),
        ("tests.jobs.broken_module.net", r"importing tests\.jobs\.broken_module fails: ZeroDivisionError"),
        ("slimexp.nets.vgg.__all__", r"has no function or class __all__"),
    ],
)
def test_what_is_not_there_is_named_with_its_key(target, message):
    with pytest.raises(UserError, match=f"model\\.network\\._target_={target}: .*{message}"):
        locate("model.network._target_", target)


def test_arguments_leave_out_what_is_for_others():
    option = MomentumConfig("slimexp.training.optimizers.momentum", "momentum", momentum=0.5, use_nesterov=True)
    assert arguments(option, ignore=("name",)) == {"momentum": 0.5, "use_nesterov": True}
    assert arguments({"_target_": "mine", "shards": 3}) == {"shards": 3}


def load(*, name, shards=1):
    return name, shards


def test_call_hands_the_keys_over_as_arguments():
    option = {"_target_": "tests.jobs.test_targets.load", "name": "mine", "shards": 3}
    assert call("dataset", option) == ("mine", 3)
    with pytest.raises(UserError, match=r"dataset\._target_=tests.*load: .*'shard'.*The keys of dataset are its arg"):
        call("dataset", {"_target_": option["_target_"], "name": "mine", "shard": 3})


def test_every_target_is_checked_before_work_starts(job):
    build.check_targets(job.config())
    with pytest.raises(UserError, match=r"model\.network\._target_=slimexp\.nets\.lenet\.lent: .*nearest is .*lenet"):
        job.train("model.network._target_=slimexp.nets.lenet.lent")
    assert job.runs()[0].info.status == "FAILED"


def test_a_dataset_of_another_kind_is_refused(job):
    config = job.config()
    config.dataset = {"_target_": "tests.jobs.test_targets.load", "name": "mine"}
    with pytest.raises(UserError, match=r"returned a tuple; it must be a slimexp\.dataset\.Dataset"):
        build.dataset(config)
