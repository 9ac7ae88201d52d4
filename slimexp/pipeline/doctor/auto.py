"""`pipeline.threads=auto` and `pipeline.readers=auto`: counts that a short measurement on the real data finds.

Threads compute, so there are no more of them than cores; readers wait for a disk or a network, so there may be. Of the
counts that are about equally fast the smallest is taken.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from slimexp.dataset.split import AnySplit
from slimexp.pipeline.doctor.cpus import available_cpus, whole_cpus
from slimexp.pipeline.doctor.measure import StageBench
from slimexp.pipeline.preprocessing.base import PreprocessingLike
from slimexp.pipeline.settings import PipelineSettings

__all__ = ["Choice", "choose_counts", "thread_candidates"]

# As fast as the fastest, give or take what a short measurement cannot tell apart.
_AS_FAST = 0.95
# Readers are to be that much faster than what they feed, so that a slow file now and then does not show.
_READERS_AHEAD = 1.25
_READER_CANDIDATES = (1, 2, 4, 8, 16, 32)
_SECS = 0.5
_EXAMPLES = 256


@dataclasses.dataclass(frozen=True)
class Choice:
    """A count that was found.

    Attributes:
        key: `pipeline.threads` or `pipeline.readers`.
        value: The count.
        measured: Images a second by count, as far as was tried.
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
    cpus: float | None = None,
    secs: float = _SECS,
    **file_access: Any,
) -> list[Choice]:
    """Finds the counts of preprocessing threads and readers by measuring.

    Takes about a second for each power of two up to the number of cores, and three seconds for the readers.

    Args:
        split: The examples; some hundred of them are tried.
        preprocessing: The preprocessing for training.
        settings: The pipeline's other settings; a count that is looked for may have any value in them.
        seed: The seed of the run.
        threads: Whether to look for the threads.
        readers: Whether to look for the readers.
        skip_bad: Whether files that hold no picture are left out instead of refused.
        cpus: The cores that there are; by default those available to this process.
        secs: For how long each count is tried.
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
        **file_access,
    )
    choices = []
    if threads:
        rates = {n: bench.preprocess(secs, dataclasses.replace(settings, threads=n)) for n in thread_candidates(cpus)}
        chosen = _smallest(rates, _AS_FAST * max(rates.values()))
        cores = "core is" if cpus == 1 else "cores are"
        choices.append(Choice("pipeline.threads", chosen, rates, f"{cpus:g} {cores} available"))
        fed = rates[chosen]
    elif readers:
        fed = bench.preprocess(secs)
    if readers:
        rates, where = _reader_rates(bench, _READERS_AHEAD * fed, secs)
        chosen = _smallest(rates, min(_AS_FAST * max(rates.values()), _READERS_AHEAD * fed))
        choices.append(Choice("pipeline.readers", chosen, rates, f"{where}; preprocessing takes {fed:,.0f}"))
    return choices


def thread_candidates(cpus: float) -> list[int]:
    """Returns the powers of two up to the number of cores, and that number."""
    most = whole_cpus(cpus)
    return sorted({most, *(2**power for power in range(most.bit_length()) if 2**power <= most)})


def _reader_rates(bench: StageBench, enough: float, secs: float) -> tuple[dict[int, float], str]:
    """Measures more and more readers until they are fast enough; on files out of the page cache where that works."""
    try:
        return _until(enough, lambda count: bench.read_cold(secs, count), _READER_CANDIDATES), "from the disk"
    except OSError as error:
        where = f"from memory, as {error}"
        return _until(enough, lambda count: bench.read(secs, count), _READER_CANDIDATES), where


def _until(enough: float, measure: Callable[[int], float], counts: Sequence[int]) -> dict[int, float]:
    rates: dict[int, float] = {}
    for count in counts:
        rates[count] = measure(count)
        if rates[count] >= enough:
            break
    return rates


def _smallest(rates: Mapping[int, float], enough: float) -> int:
    return min(count for count, rate in rates.items() if rate >= enough)
