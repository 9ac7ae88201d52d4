"""Reads the label terms (`-1:* 1:0,7`) of many lines at once with NumPy.

Nothing here words an error: lines whose terms aren't all well-formed and in range are told apart, for
`listfile_grammar` to judge.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

__all__ = ["Terms", "apply_terms", "read_terms"]

# Longer indices go to the grammar.
_MAX_INDEX_DIGITS = 9

_NEWLINE, _ZERO, _ONE, _MINUS, _ALL = b"\n01-*"

# The classes of bytes that label terms are made of, and which may follow which.
_KINDS = 8
_END, _BLANK, _DIGIT, _SIGN, _MARK, _COMMA, _STAR, _OTHER = range(_KINDS)
_KIND_OF = np.full(256, _OTHER, np.uint8)
for _members, _kind in (
    (b"\n", _END),
    (b" \t", _BLANK),
    (b"0123456789", _DIGIT),
    (b"-", _SIGN),
    (b":", _MARK),
    (b",", _COMMA),
    (b"*", _STAR),
):
    _KIND_OF[list(_members)] = _kind
_MAY_FOLLOW = np.zeros(_KINDS * _KINDS, bool)  # [previous * _KINDS + next]
for _previous, _nexts in {
    _END: (_DIGIT, _SIGN),
    _BLANK: (_BLANK, _DIGIT, _SIGN),
    _DIGIT: (_DIGIT, _MARK, _COMMA, _BLANK, _END),
    _SIGN: (_DIGIT,),
    _MARK: (_DIGIT, _STAR),
    _COMMA: (_DIGIT,),
    _STAR: (_BLANK, _END),
}.items():
    _MAY_FOLLOW[[_previous * _KINDS + _next for _next in _nexts]] = True


class Terms(NamedTuple):
    """The label terms of some lines, in the order in which they are to be applied.

    Attributes:
        good: bool [number of lines asked for], whether the line's terms could be read here.
        term_line, term_value: the line and the value of each term, sorted by the term's place in its line.
        is_all: bool, whether the term is for all labels.
        place_ends: For each place, the number of terms up to it.
        item_term, item_index: each index that a term names, sorted by term.
        term_item_ends: For each term, the number of items up to it.
    """

    good: np.ndarray
    term_line: np.ndarray
    term_value: np.ndarray
    is_all: np.ndarray
    place_ends: np.ndarray
    item_term: np.ndarray
    item_index: np.ndarray
    term_item_ends: np.ndarray


def read_terms(bytes_: np.ndarray, starts: np.ndarray, ends: np.ndarray, num_classes: int, offset: int) -> Terms:
    """Reads the terms in bytes_[start:end] of each line; lines that need the grammar are told by `good`."""
    good = np.ones(len(starts), bool)
    while True:
        chosen = np.flatnonzero(good)
        terms, bad = _read_good_terms(bytes_, starts[chosen], ends[chosen], num_classes, offset)
        if terms is not None:
            return terms._replace(good=good, term_line=chosen[terms.term_line])
        good[chosen[bad]] = False  # Lines that don't parse would shift the arrays of all others: start again.


def _read_good_terms(
    bytes_: np.ndarray, starts: np.ndarray, ends: np.ndarray, num_classes: int, offset: int
) -> tuple[Terms | None, np.ndarray]:
    """Returns the terms and no lines, or None and the lines (at least one) that can't be read here."""
    none = np.zeros(0, np.int64)
    if not len(starts):
        return Terms(none, none, none, none, none, none, none, none), none

    # The label texts one after the other, each with one byte after it, which is made its end.
    inside = np.zeros(len(bytes_) + 2, np.int8)
    inside[starts] += 1
    inside[ends + 1] -= 1
    text = bytes_[np.flatnonzero(np.cumsum(inside, dtype=np.int8)[: len(bytes_)])]
    line_ends = np.cumsum(ends - starts + 1)  # one past each line's end byte
    text[line_ends - 1] = _NEWLINE

    kinds = _KIND_OF[text]
    before = np.concatenate((np.array([_END], np.uint8), kinds[:-1]))
    wrong = np.flatnonzero(~_MAY_FOLLOW[before * np.uint8(_KINDS) + kinds])
    if len(wrong):
        return None, np.unique(np.searchsorted(line_ends, wrong, side="right"))

    # Each term has one colon, with 1, 0 or -1 before it.
    is_digit = kinds == _DIGIT
    term_starts = np.flatnonzero((before <= _BLANK) & (kinds > _BLANK))
    colons = np.flatnonzero(kinds == _MARK)
    terms_up_to = np.searchsorted(term_starts, line_ends)
    unequal = np.diff(terms_up_to, prepend=0) != np.diff(np.searchsorted(colons, line_ends), prepend=0)
    if unequal.any():
        return None, np.flatnonzero(unequal)
    num_terms = np.diff(terms_up_to, prepend=0)
    term_line = np.repeat(np.arange(len(starts)), num_terms)
    width = colons - term_starts
    first = text[term_starts]
    last = text[colons - 1]
    is_value = (width == 1) & ((first == _ZERO) | (first == _ONE))
    is_value |= (width == 2) & (first == _MINUS) & (last == _ONE)
    if not is_value.all():
        return None, np.unique(term_line[~is_value])
    value = np.where(width == 2, -1, last.astype(np.int8) - _ZERO).astype(np.int8)

    # Indices begin after a colon or comma; the digits that end before a colon are the terms' values.
    item_starts = np.flatnonzero(is_digit & ((before == _MARK) | (before == _COMMA)))
    item_ends = np.flatnonzero(is_digit[:-1] & ~is_digit[1:] & (kinds[1:] != _MARK)) + 1
    items_up_to = np.searchsorted(item_starts, np.append(term_starts[1:], len(text)))
    item_term = np.repeat(np.arange(len(term_starts)), np.diff(items_up_to, prepend=0))
    lengths = item_ends - item_starts
    index: np.ndarray = np.zeros(len(item_starts), np.int64)
    for place in range(min(int(lengths.max(initial=0)), _MAX_INDEX_DIGITS)):
        digit = text[np.minimum(item_starts + place, len(text) - 1)]
        index = np.where(place < lengths, index * 10 + digit - _ZERO, index)
    index -= offset
    outside = (index < 0) | (index >= num_classes) | (lengths > _MAX_INDEX_DIGITS)
    if outside.any():
        return None, np.unique(term_line[item_term[outside]])

    # Sorted by place: later terms win, which NumPy doesn't promise for repeated indices of one assignment.
    place_of = np.arange(len(term_starts)) - np.repeat(terms_up_to - num_terms, num_terms)
    order = np.argsort(place_of, kind="stable")
    new_term = np.empty_like(order)
    new_term[order] = np.arange(len(order))
    item_term = new_term[item_term]
    item_order = np.argsort(item_term, kind="stable")
    return Terms(
        good=none,
        term_line=term_line[order],
        term_value=value[order],
        is_all=text[colons[order] + 1] == _ALL,
        place_ends=np.cumsum(np.bincount(place_of)),
        item_term=item_term[item_order],
        item_index=index[item_order],
        term_item_ends=np.cumsum(np.bincount(item_term, minlength=len(order))),
    ), none


def apply_terms(terms: Terms, row_of_line: np.ndarray, labels: np.ndarray) -> None:
    """Writes the terms of the lines into their rows of labels, int8 [rows, num_classes], which begin as zeros."""
    term_row = row_of_line[terms.term_line]
    begin = 0
    for end in terms.place_ends.tolist():
        is_all = terms.is_all[begin:end]
        labels[term_row[begin:end][is_all]] = terms.term_value[begin:end][is_all, None]
        item_begin = terms.term_item_ends[begin - 1] if begin else 0
        items = slice(item_begin, terms.term_item_ends[end - 1])
        term = terms.item_term[items]
        labels[term_row[term], terms.item_index[items]] = terms.term_value[term]
        begin = end
