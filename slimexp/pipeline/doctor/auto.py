"""`pipeline.threads=auto` and `pipeline.readers=auto`: counts that a short measurement on the real data finds.

Threads compute, so there are no more of them than cores; readers wait for a disk or a network, so there may be. Each
count is measured three times, by turns, and the median taken; of the counts that are about equally fast it is the
smallest. Where the rates go down and up again further than noise explains, nothing is read from them.
"""

from __future__ import annotations

import dataclasses
import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from slimexp.dataset.split import AnySplit
from slimexp.pipeline.doctor.cpus import available_cpus, whole_cpus
from slimexp.pipeline.doctor.measure import StageBench
from slimexp.pipeline.doctor.rates import Rate
from slimexp.pipeline.preprocessing.base import PreprocessingLike
from slimexp.pipeline.settings import PipelineSettings

__all__ = ["Choice", "choose_counts", "thread_candidates"]

# As fast as the fastest, give or take what a short measurement cannot tell apart.
_AS_FAST = 0.9
_ROUNDS = 3
# Readers are to be that much faster than what they feed, so that a slow file now and then does not show.
_READERS_AHEAD = 1.25
# What `conf/pipeline/default.yaml` has.
_USUAL_READERS = 4
_TOO_NOISY = "the rates go down and up again, as other programs disturbed them"
_READER_CANDIDATES = (1, 2, 4, 8, 16, 32)
_SECS = 0.5
_EXAMPLES = 256


@dataclasses.dataclass(frozen=True)
class Choice:
    """A count that was found.

    Attributes:
        key: `pipeline.threads` or `pipeline.readers`.
        value: The count.
        measured: Images a second by count, as far as was tried; medians.
        limit: What else decided, in words.
    """

    key: str
    value: int
    measured: Mapping[int, float]
    limit: str

    def __str__(self) -> str:
        rates = ", ".join(f"{count}: {rate:,.0f}" for count, rate in self.measured.items())
        return f"{self.key}=auto: {self.value} (images/s by count: {rates}; {self.limit})"


def choose_counts(
    split: AnySplit,
    *,
    preprocessing: PreprocessingLike,
    settings: PipelineSettings,
    seed: int,
    threads: bool,
    readers: bool,
    skip_bad: bool = False,
    check_stop: Callable[[], None] = lambda: None,
    cpus: float | None = None,
    secs: float = _SECS,
    **file_access: Any,
) -> list[Choice]:
    """Finds the counts of preprocessing threads and readers by measuring.

    Takes about two seconds for each power of two up to the number of cores, and ten seconds at most for the readers.

    Args:
        split: The examples; some hundred of them are tried.
        preprocessing: The preprocessing for training.
        settings: The pipeline's other settings; a count that is looked for may have any value in them.
        seed: The seed of the run.
        threads: Whether to look for the threads.
        readers: Whether to look for the readers.
        skip_bad: Whether files that hold no picture are left out instead of refused.
        check_stop: Called a few times a second meanwhile; what it raises ends the measurement.
        cpus: The cores that there are; by default those available to this process.
        secs: For how long each count is tried, each time.
        file_access: `read_file` and `locate`, where image files' bytes come from; see `build_dataset`.

    Returns:
        What was found: threads, readers.

    Raises:
        UserError: If the settings do not fit the split, or an image cannot be read.
    """
    cpus = available_cpus() if cpus is None else cpus
    bench = StageBench(
        split,
        preprocessing=preprocessing,
        settings=settings,
        seed=seed,
        skip_bad=skip_bad,
        most_examples=_EXAMPLES,
        check_stop=check_stop,
        **file_access,
    )
    choices = []
    if threads:
        rates = _by_turns(
            lambda count: bench.preprocess(secs, dataclasses.replace(settings, threads=count)),
            thread_candidates(cpus),
        )
        chosen = _smallest(rates, math.inf)
        cores = "core is" if cpus == 1 else "cores are"
        limit = f"{cpus:g} {cores} available"
        if chosen is None:
            chosen, limit = whole_cpus(cpus), f"{_TOO_NOISY}, so as many as the cores; {limit}"
        choices.append(Choice("pipeline.threads", chosen, _medians(rates), limit))
        fed = rates[chosen].median
    elif readers:
        fed = _by_turns(lambda count: bench.preprocess(secs), [settings.threads])[settings.threads].median
    if readers:
        rates, where = _reader_rates(bench, _READERS_AHEAD * fed, secs)
        chosen = _smallest(rates, _READERS_AHEAD * fed)
        limit = f"{where}; preprocessing takes {fed:,.0f}"
        if chosen is None:
            chosen, limit = _USUAL_READERS, f"{_TOO_NOISY}, so as many as usual; {limit}"
        choices.append(Choice("pipeline.readers", chosen, _medians(rates), limit))
    return choices


def thread_candidates(cpus: float) -> list[int]:
    """Returns the powers of two up to the number of cores, and that number."""
    most = whole_cpus(cpus)
    return sorted({most, *(2**power for power in range(most.bit_length()) if 2**power <= most)})


def _reader_rates(bench: StageBench, enough: float, secs: float) -> tuple[dict[int, Rate], str]:
    """Measures more and more readers until they are fast enough; on files out of the page cache where that works."""
    try:
        return _by_turns(lambda count: bench.read_cold(secs, count), _READER_CANDIDATES, enough), "from the disk"
    except OSError as error:
        where = f"from memory, as {error}"
        return _by_turns(lambda count: bench.read(secs, count), _READER_CANDIDATES, enough), where


def _by_turns(measure: Callable[[int], float], candidates: Sequence[int], enough: float = math.inf) -> dict[int, Rate]:
    """Measures counts three times each, by turns, up to the first one that is fast enough."""
    found: dict[int, list[float]] = {}
    left = list(candidates)
    while left and not any(statistics.median(rates) >= enough for rates in found.values()):
        added: dict[int, list[float]] = {}
        while left and not any(max(rates) >= enough for rates in added.values()):
            count = left.pop(0)
            added[count] = [measure(count)]
        for _ in range(_ROUNDS - 1):
            for count, rates in added.items():
                rates.append(measure(count))
        found.update(added)
    return {count: Rate.of(rates) for count, rates in found.items()}


def _smallest(rates: Mapping[int, Rate], enough: float) -> int | None:
    """Returns the smallest count that is as fast as the fastest, or fast enough; None if the rates tell nothing.

    More threads than a machine runs well make it slower, so rates may fall behind the fastest count. Before it, where
    they are to rise, a fall that is larger than what the rounds of a count differ by is a disturbance.
    """
    medians = _medians(rates)
    counts = sorted(rates)
    fastest = max(counts, key=medians.__getitem__)
    rising = counts[: counts.index(fastest) + 1]
    for number, count in enumerate(rising):
        if any(_fell(rates[before], rates[count]) for before in rising[:number]):
            return None
    least = min(_AS_FAST * medians[fastest], enough)
    return min(count for count in counts if medians[count] >= least)


def _fell(before: Rate, after: Rate) -> bool:
    return after.median < _AS_FAST * before.median and after.high < before.low


def _medians(rates: Mapping[int, Rate]) -> dict[int, float]:
    return {count: rate.median for count, rate in rates.items()}
