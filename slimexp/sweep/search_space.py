"""What a search may choose from: Hydra's own sweep grammar, read as spaces.

key=interval(0.1, 0.9)                 any number between the two
key=tag(log, interval(1e-4, 1e-1))     the same, each power of ten as likely as the next
key=int(interval(1, 8))                whole numbers, both ends included
key=range(8, 65, 8)                    8, 16, ..., 64
key=choice(adam, momentum)             one of these; adam,momentum and glob(*) are the same kind
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Iterable, Sequence
from typing import Any

from hydra.core.override_parser.types import IntervalSweep, Override, RangeSweep

from slimexp.errors import UserError

__all__ = ["Space", "combinations", "split"]

# The values of a search are rounded to this part of their interval (on a log scale of themselves): names stay readable.
_RESOLUTION = 1e-4
# What a search may not try: it decides about the search itself, or only about where things lie.
_OWN_KEYS = ("sweep", "tracking", "run_dir", "output_root", "dry_run", "job", "trainer.resume")


@dataclasses.dataclass(frozen=True)
class Space:
    """The values that one key may take.

    Attributes:
        key: The key as in an override, e.g. `optimizer` or `+model.network.width`.
        text: What stood behind the `=`.
        choices: The values as override texts; empty for numbers.
        low: The smallest number.
        high: The largest number, included.
        step: The distance of two numbers; None for any number in between.
        log: Whether numbers are as likely in each power of ten.
        integer: Whether the numbers are whole.
    """

    key: str
    text: str
    choices: tuple[str, ...] = ()
    low: float = 0
    high: float = 0
    step: float | None = None
    log: bool = False
    integer: bool = False

    @property
    def name(self) -> str:
        """The key without Hydra's plus signs."""
        return self.key.lstrip("+")

    def distribution(self) -> Any:
        """Returns the space as Optuna has it."""
        from optuna import distributions

        if self.choices:
            return distributions.CategoricalDistribution(self.choices)
        if self.integer:
            return distributions.IntDistribution(int(self.low), int(self.high), log=self.log, step=int(self.step or 1))
        return distributions.FloatDistribution(self.low, self.high, log=self.log, step=self.step)

    def value_text(self, value: object) -> str:
        """Returns a value that Optuna chose as the text of an override."""
        if not isinstance(value, (int, float)) or self.choices:
            return str(value)
        if self.integer:
            return str(int(value))
        if self.step is not None:
            return repr(float(f"{value:.12g}"))  # 0.1 + 2 * 0.1 is 0.30000000000000004.
        resolution = (self.high - self.low) * _RESOLUTION
        if self.log:
            resolution = min(resolution, value * _RESOLUTION)
        decimals = max(math.ceil(-math.log10(resolution)), 0) if resolution > 0 else 17
        return repr(min(max(round(value, decimals), self.low), self.high))

    def values(self) -> list[Any] | None:
        """Returns all values there are, as Optuna has them; None if they cannot be counted."""
        if self.choices:
            return list(self.choices)
        if self.step is None:
            return None
        count = int((self.high - self.low) / self.step + 1e-9) + 1
        return [self.low + i * self.step for i in range(count)]

    def corners(self) -> list[str]:
        """Returns the values that show whether the space is sound: each choice, and both ends of numbers."""
        ends = self.choices or (self.value_text(self.low), self.value_text(self.high))
        return list(dict.fromkeys(ends))


def split(overrides: Iterable[Override]) -> tuple[list[str], list[Space]]:
    """Splits overrides into those that are the same for every trial and the spaces to search; later ones win.

    Raises:
        UserError: If there is no space, or one cannot be searched.
    """
    fixed: dict[str, str] = {}
    spaces: dict[str, Space] = {}
    for override in overrides:
        name = override.get_key_element().lstrip("+")
        fixed.pop(name, None)
        spaces.pop(name, None)
        if override.is_sweep_override():
            spaces[name] = _space(override)
        else:
            fixed[name] = override.input_line or ""
    if not spaces:
        raise UserError(
            "hydra/sweeper=search: there is nothing to search. Give a key a space, e.g. "
            "'learning_rate.initial=tag(log, interval(1e-4, 1e-1))' or 'optimizer=choice(adam, momentum)'."
        )
    return list(fixed.values()), list(spaces.values())


def combinations(spaces: Sequence[Space], at_most: int) -> list[dict[str, Any]] | None:
    """Returns every combination of values, by name; None if there are more than `at_most`, or without end."""
    values = []
    count = 1
    for space in spaces:
        options = space.values()
        if options is None or count * len(options) > at_most:
            return None
        count *= len(options)
        values.append(options)
    names = [space.name for space in spaces]
    return [dict(zip(names, chosen, strict=True)) for chosen in itertools.product(*values)]


def _space(override: Override) -> Space:
    key = override.get_key_element()
    text = override.get_value_string()
    shown = f"{key}={text}"
    if any(key.lstrip("+") == own or key.lstrip("+").startswith(f"{own}.") for own in _OWN_KEYS):
        raise UserError(f"{shown}: is the same for all trials of a search; give it one value.")
    sweep: Any = override.value()
    tags = set(getattr(sweep, "tags", ()))
    if tags - {"log"}:
        raise UserError(f"{shown}: the tag {min(tags - {'log'})} is unknown; there is only log.")
    log = "log" in tags
    if override.is_choice_sweep():
        choices = tuple(dict.fromkeys(override.sweep_string_iterator()))
        if log:
            raise UserError(f"{shown}: choices have no log scale; tag an interval or a range.")
        if not choices:
            raise UserError(f"{shown}: there is nothing to choose from.")
        return Space(key, text, choices=choices)
    if isinstance(sweep, IntervalSweep):
        space = _interval(key, text, sweep, log)
    else:
        space = _range(key, text, override, log)
    if log and space.low <= 0:
        raise UserError(f"{shown}: a log scale has no {space.low:g}; begin above 0.")
    return space


def _interval(key: str, text: str, sweep: IntervalSweep, log: bool) -> Space:
    low, high = sweep.start, sweep.end
    assert low is not None
    assert high is not None
    if not (low < high and math.isfinite(low) and math.isfinite(high)):
        raise UserError(f"{key}={text}: an interval goes from a number to a larger one.")
    whole = isinstance(low, int) and isinstance(high, int)
    return Space(key, text, low=low, high=high, step=1 if whole else None, log=log, integer=whole)


def _range(key: str, text: str, override: Override, log: bool) -> Space:
    sweep: Any = override.value()
    assert isinstance(sweep, RangeSweep)
    if not sweep.step:
        raise UserError(f"{key}={text}: a range with the step 0 has no end.")
    numbers: list[Any] = sorted(override.sweep_iterator())
    if not numbers:
        raise UserError(f"{key}={text}: the range is empty; range(1, 4) is 1, 2, 3.")
    whole = all(isinstance(number, int) for number in numbers)
    step = abs(sweep.step)
    if log and not (whole and step == 1):
        raise UserError(f"{key}={text}: a log scale goes with an interval, or a range of whole numbers in steps of 1.")
    return Space(key, text, low=numbers[0], high=numbers[-1], step=step, log=log, integer=whole)
