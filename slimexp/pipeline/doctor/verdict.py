"""The verdict: what holds a run back, and what to set. Numbers in, words out; TensorFlow is not imported here.

Read from the network's end: where it hardly waits, it holds the run back itself. Where it waits, the slow stage is the
one between the last queue that is full and the first that is empty. Two things look like a slow stage and are none:
all cores at work, so that more threads only take turns, and a queue too short to level out what comes and goes
in bursts: it is full at one moment and empty at the next, and the stages on both sides have time to spare.

Everything is decided by ratios with margins, never by absolute speeds: a noisy machine changes those.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping

from slimexp.pipeline.doctor.cpus import whole_cpus
from slimexp.pipeline.stats import PipelineStats, QueueStats, StageStats

__all__ = ["BOTTLENECKS", "MISSING_COMPILER", "Verdict", "verdict"]

BOTTLENECKS = ("network", "reading", "preprocessing", "batching", "queue", "cores", "balanced", "unknown")

# The option that says what `pipeline.decoder=auto` lacked for the native decoder, in words.
MISSING_COMPILER = "pipeline.decoder: missing"

# Below the first share of waiting the network is what holds the run back; above the second, its input is; above the
# third, what the network could do cannot be told.
_HARDLY_WAITS, _WAITS, _WAITS_MOSTLY = 0.05, 0.15, 0.9
# From here on a stage's threads count as always at work, the cores as used up.
_BUSY, _ALL_CORES = 0.75, 0.88
# A queue that is mostly empty, or mostly full.
_EMPTY, _FULL = 0.25, 0.75
# What a suggested thread count has to spare.
_MARGIN = 1.1
_MOST_READERS, _MOST_THREADS = 64, 1024
# A queue that chokes gets this many times its capacity, and no less than this many elements.
_QUEUE_FACTOR = 4
_QUEUE_LEAST = {"names": 256, "images": 64, "batches": 4}

# Settings that make an image cheaper: their values while they are off, and on.
_CHEAPER = {"pipeline.decoder": ("tensorflow", "native"), "pipeline.cache": ("none", "shrunk")}


@dataclasses.dataclass(frozen=True)
class Verdict:
    """What holds a run back.

    Attributes:
        bottleneck: One of `BOTTLENECKS`; `balanced` where network and input keep pace.
        sentence: The finding in plain words.
        overrides: What to add to the command, e.g. `pipeline.threads=6`; empty where nothing would help or need be.
    """

    bottleneck: str
    sentence: str
    overrides: tuple[str, ...] = ()

    def __str__(self) -> str:
        return f"{self.sentence} Set: {' '.join(self.overrides)}" if self.overrides else self.sentence


def verdict(
    stats: PipelineStats | None,
    *,
    network_images_per_sec: float | None = None,
    decode_share: float | None = None,
    options: Mapping[str, str] | None = None,
) -> Verdict:
    """Says what holds a run back.

    Args:
        stats: What was measured while the network was fed, without the first step, in which it is compiled; None if
            nothing was.
        network_images_per_sec: What the network takes when its input costs nothing, if that was measured; otherwise it
            is worked out from the time that it did not wait. So it is, too, where it was measured as slower than it was
            seen to be with the pipeline, which cannot be true.
        decode_share: The share of the preprocessing threads' time that decoding takes, 0..1, if that was measured.
        options: The settings that advice depends on, by their keys. `{"pipeline.decoder": "tensorflow"}` lets it advise
            the native decoder, and `{"pipeline.cache": "none"}` the cache. Where the decoder is `auto`, the native one
            is in use already, or `MISSING_COMPILER` says what the machine lacks for it; it is then advised in words, as
            setting it would be refused before that is there.

    Returns:
        The verdict. Nothing was measured in an interval without images: then it is `unknown`.
    """
    if stats is None or stats.images <= 0 or stats.secs <= 0:
        return Verdict("unknown", "Too few steps were made to say what holds the run back.")
    found = _find(stats, network_images_per_sec, decode_share, options or {})
    missing = (options or {}).get(MISSING_COMPILER)
    if missing and found.bottleneck in ("cores", "preprocessing", "batching"):
        told = (
            "pipeline.decoder=native would make images cheaper, where the preprocessing is one that it knows, and "
            f"cannot be had yet: {missing.rstrip('.')}. Once that is there, pipeline.decoder=auto takes it."
        )
        return dataclasses.replace(found, sentence=f"{found.sentence} {told}")
    return found


def _find(
    stats: PipelineStats,
    network_images_per_sec: float | None,
    decode_share: float | None,
    options: Mapping[str, str],
) -> Verdict:
    if network_images_per_sec is not None and network_images_per_sec < stats.images_per_sec:
        network_images_per_sec = None
    case = _Case(stats, network_images_per_sec, decode_share, dict(options))
    if stats.wait_frac < _HARDLY_WAITS:
        return _network(case)
    if stats.wait_frac < _WAITS:
        # Behind a full queue it only waits to be handed the batch, which a quick step notices.
        return _network(case) if stats.queue("batch").fill_frac >= _FULL else _balanced(case)
    if stats.cpu_frac >= _ALL_CORES:
        return _cores(case)
    guilty = _slow_stage(stats, case.wanted)
    if isinstance(guilty, QueueStats):
        return _queue(case, guilty)
    if guilty is None:
        return _batching(case)
    return _reading(case, guilty) if guilty.name == "read" else _preprocessing(case, guilty)


@dataclasses.dataclass(frozen=True)
class _Case:
    stats: PipelineStats
    measured_network: float | None
    decode_share: float | None
    options: dict[str, str]

    @property
    def wanted(self) -> float:
        """The images a second that the network takes when it need not wait."""
        seen = self.stats.images_per_sec / max(1 - self.stats.wait_frac, 1 - _WAITS_MOSTLY)
        return max(self.measured_network or seen, self.stats.images_per_sec)

    @property
    def or_more(self) -> str:
        """Says that the network may take more: the little time that it did not wait says nothing about its speed."""
        return " or more" if self.measured_network is None and self.stats.wait_frac > _WAITS_MOSTLY else ""

    @property
    def cores_wanted(self) -> float:
        """The cores that would be at work at the network's full rate."""
        stats = self.stats
        return stats.cpu_frac * stats.num_cpus * self.wanted / stats.images_per_sec

    def threads_for(self, stage: StageStats, images_per_sec: float) -> int:
        """Returns the threads with which a stage makes so many images a second, with some to spare."""
        # A thread that is starved of a core or of input is not at work, so this is what it makes while it is.
        busy = min(max(stage.busy_frac, 0.01), 1.0)
        each = stage.images_per_sec / (stage.threads * busy)
        # Rounding errors are no reason for one thread more.
        return max(1, math.ceil(_MARGIN * images_per_sec / each - 1e-6)) if each > 0 else stage.threads

    def lacks(self, key: str) -> bool:
        """Tells whether a setting that makes an image cheaper is there and off."""
        return self.options.get(key) == _CHEAPER[key][0]


def _slow_stage(stats: PipelineStats, wanted: float) -> StageStats | QueueStats | None:
    """Returns the stage that is too slow, or the queue that chokes; None is the batching, which has no threads."""
    read, preprocess = stats.stage("read"), stats.stage("preprocess")
    queues = {queue.name: queue for queue in stats.queues}
    before, after, last = (queues[name].fill_frac for name in ("read", "prefetch", "batch"))
    if after >= _FULL and last <= _EMPTY:
        return None
    if before >= _FULL and after <= _EMPTY:
        return preprocess
    # Readers that could do more, with room before them, would not leave both queues empty.
    if before <= _EMPTY and after <= _EMPTY and read.busy_frac >= min(preprocess.busy_frac, 0.5):
        return read
    busiest = max((read, preprocess), key=lambda stage: stage.busy_frac)
    if busiest.busy_frac >= _BUSY and busiest.images_per_sec / busiest.busy_frac < _MARGIN * wanted:
        return busiest
    # Nobody is short of work and nobody of cores: what comes in bursts finds no room, or nothing in store.
    return max((queues[name] for name in ("batch", "prefetch", "read")), key=_swing)


def _swing(queue: QueueStats) -> float:
    """Rates how far a queue is from being steadily full or steadily empty, 0..1, and how short it is, 0..1."""
    least = _QUEUE_LEAST[queue.unit]
    return 4 * queue.fill_frac * (1 - queue.fill_frac) + least / (least + queue.capacity)


def _network(case: _Case) -> Verdict:
    stats = case.stats
    stage = stats.stage("preprocess")
    enough = case.threads_for(stage, stats.images_per_sec)
    spare = f"; {_threads(enough)} would do" if enough < stage.threads else ""
    return Verdict(
        "network",
        f"The network holds this run back: it waited for input {_percent(stats.wait_frac)} of the time{spare}.",
    )


def _balanced(case: _Case) -> Verdict:
    return Verdict(
        "balanced",
        f"Network and input keep pace: the network waited for input {_percent(case.stats.wait_frac)} of the time. "
        "Speeding up one of them alone brings little.",
    )


def _cores(case: _Case) -> Verdict:
    stats = case.stats
    cores = f"All {_number(stats.num_cpus)} cores are" if stats.num_cpus != 1 else "The one core is"
    needed = ""
    if case.cores_wanted > stats.num_cpus:
        rate = f"{_rate(case.wanted)}{case.or_more}"
        needed = f" For the {rate} that the network takes it would be {_number(case.cores_wanted)}."
    overrides = _cheaper(case)
    cheaper = f", {', '.join(overrides)}" if overrides else ", or smaller images"
    return Verdict(
        "cores",
        f"{cores} at work: more threads bring nothing. The network waited for input {_percent(stats.wait_frac)} of the "
        f"time.{needed} What helps is a machine with more cores, or less work an image{cheaper}.",
        overrides,
    )


def _reading(case: _Case, stage: StageStats) -> Verdict:
    needed = case.threads_for(stage, case.wanted)
    told = f"Reading files holds this run back: {_rates(case)}"
    cache = case.lacks("pipeline.cache")
    # Readers wait for the disk or the network, so they may be more than the cores; but a disk has an end too.
    readers = min(needed, max(4 * stage.threads, 8), _MOST_READERS)
    overrides = [f"pipeline.readers={readers}"] if readers > stage.threads else []
    if readers >= needed and overrides:
        return Verdict("reading", f"{told}; {readers} readers would feed it.", tuple(overrides))
    if overrides:
        how = f"it would take {needed} readers; try {readers}, and if that is no faster, put the files on a faster disk"
    else:
        how = "more readers than there are will hardly help; put the files on a faster disk"
    return Verdict(
        "reading",
        f"{told}; {how}{' or let pipeline.cache=shrunk keep small copies of large photos' if cache else ''}.",
        (*overrides, *(["pipeline.cache=shrunk"] if cache else [])),
    )


def _preprocessing(case: _Case, stage: StageStats) -> Verdict:
    stats = case.stats
    needed = min(case.threads_for(stage, case.wanted), _MOST_THREADS)
    told = f"Preprocessing holds this run back: {_rates(case)}"
    if case.decode_share is not None and case.decode_share >= 0.6:
        told += f", and {_percent(case.decode_share)} of its time is decoding"
    # Threads that compute need a core each; those that wait in a step of the user's own do not.
    cpu_bound = stats.cpu_frac * stats.num_cpus >= 0.5 * stage.busy_frac * stage.threads
    most = whole_cpus(stats.num_cpus) if cpu_bound else _MOST_THREADS
    if needed <= most:
        if needed > stage.threads:
            short = cpu_bound and case.cores_wanted > stats.num_cpus
            how = f"bring it as far as {_number(stats.num_cpus)} cores go" if short else "feed it"
            return Verdict("preprocessing", f"{told}; {_threads(needed)} would {how}.", (f"pipeline.threads={needed}",))
        return Verdict(
            "preprocessing", f"{told}; its threads had to wait for a core or for each other.", _cheaper(case)
        )
    threads = (f"pipeline.threads={most}",) if stage.threads < most else ()
    cheaper = _cheaper(case)
    helps = f"; {', '.join(cheaper)} would make it cheaper" if cheaper else ""
    return Verdict(
        "preprocessing",
        f"{told}; it would take {_threads(needed)} with a core each, and there are {_number(stats.num_cpus)} "
        f"cores{helps}.",
        (*threads, *cheaper),
    )


def _batching(case: _Case) -> Verdict:
    overrides = ("pipeline.decoder=native",) if case.lacks("pipeline.decoder") else ()
    helps = " pipeline.decoder=native makes images in their batch's place." if overrides else ""
    return Verdict(
        "batching",
        f"Putting batches together holds this run back: {_rates(case)}, while finished images wait for it.{helps}",
        overrides,
    )


def _queue(case: _Case, queue: QueueStats) -> Verdict:
    capacity = max(_QUEUE_FACTOR * queue.capacity, _QUEUE_LEAST[queue.unit])
    return Verdict(
        "queue",
        f"The {queue.name} queue of {queue.capacity} {_one(queue.unit, queue.capacity)} chokes: the network waited for "
        f"input {_percent(case.stats.wait_frac)} of the time, though the stages around the queue and the cores have "
        "time to spare. It is too short to level out what comes and goes in bursts.",
        (f"pipeline.queues.{queue.name}.capacity={capacity}",),
    )


def _cheaper(case: _Case) -> tuple[str, ...]:
    """Returns the settings that make an image cheaper and are not set."""
    return tuple(f"{key}={on}" for key, (_, on) in _CHEAPER.items() if case.lacks(key))


def _rates(case: _Case) -> str:
    return f"{_rate(case.stats.images_per_sec)} against {_number(case.wanted)}{case.or_more} that the network takes"


def _rate(images_per_sec: float) -> str:
    return f"{_number(images_per_sec)} images/s"


def _number(value: float) -> str:
    """Writes a number with three digits or more, and no decimals that say nothing: 1,150, 41.3, 2."""
    if value >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}".removesuffix(".0") if value >= 1 else f"{value:.2g}"


def _percent(share: float) -> str:
    return f"{100 * share:.0f} %"


def _threads(count: int) -> str:
    return f"{count} thread{'s' if count != 1 else ''}"


def _one(unit: str, count: int) -> str:
    return unit if count != 1 else {"batches": "batch"}.get(unit, unit.removesuffix("s"))
