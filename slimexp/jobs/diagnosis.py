"""What holds a run back: the pipeline's doctor, asked by a job, and its answer on record."""

from __future__ import annotations

from slimexp.config import Config
from slimexp.pipeline.doctor.verdict import MISSING_COMPILER, Verdict, verdict
from slimexp.pipeline.native.build import find, missing_tools
from slimexp.pipeline.stats import PipelineStats
from slimexp.tracking import Tracker
from slimexp.validation import flatten

__all__ = ["BOTTLENECK_TAG", "diagnose"]

BOTTLENECK_TAG = "bottleneck"
# The settings that advice depends on.
_OPTIONS = ("pipeline.decoder", "pipeline.cache")


def diagnose(
    config: Config,
    stats: PipelineStats | None,
    tracker: Tracker,
    *,
    network_images_per_sec: float | None = None,
    decode_share: float | None = None,
) -> Verdict:
    """Says what holds a run back, and tags the run with it if that could be told.

    Args:
        config: Checked.
        stats: What was measured while the network was fed; None if nothing was.
        tracker: Records the run.
        network_images_per_sec: What the network takes when its input costs nothing, if that was measured.
        decode_share: The share of preprocessing that is decoding, if that was measured.

    Returns:
        The verdict.
    """
    settings = flatten(config)
    options = {key: str(settings[key]) for key in _OPTIONS if key in settings}
    if options.get("pipeline.decoder") == "auto" and find()[0] is None and (missing := missing_tools()):
        options[MISSING_COMPILER] = missing
    found = verdict(stats, network_images_per_sec=network_images_per_sec, decode_share=decode_share, options=options)
    if found.bottleneck != "unknown":
        tracker.set_tags({BOTTLENECK_TAG: found.bottleneck})
    return found
