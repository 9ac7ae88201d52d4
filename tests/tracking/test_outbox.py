from __future__ import annotations

import threading
from pathlib import Path

from slimexp.tracking.outbox import Entry, Outbox


def entries(kind: str, count: int) -> list[Entry]:
    return [Entry(kind, str(i), "x") for i in range(count)]


def test_entries_of_one_kind_go_together_a_hundred_at_most() -> None:
    outbox = Outbox()
    for batch in (entries("params", 150), entries("tags", 2), entries("params", 1)):
        outbox.put(batch)
    sizes = []
    while first := outbox.first_entries():
        assert first == outbox.first_entries()
        sizes.append((first[0].kind, len(first)))
        outbox.drop_entries(len(first))
    assert sizes == [("params", 100), ("params", 50), ("tags", 2), ("params", 1)]
    assert outbox.is_empty


def test_a_file_that_is_put_back_comes_last() -> None:
    outbox = Outbox()
    outbox.put_file(Path("a"), None)
    outbox.put_file(Path("b"), "figures")
    outbox.put_file_back()
    assert outbox.first_file() == (Path("b"), "figures")
    outbox.drop_file()
    assert outbox.first_file() == (Path("a"), None)
    assert not outbox.is_empty


def test_what_is_left_is_what_was_not_dropped() -> None:
    outbox = Outbox()
    outbox.put(entries("tags", 2))
    outbox.put_file(Path("a"), None)
    outbox.drop_entries(1)
    outbox.close("FAILED", 7)
    assert outbox.end == ("FAILED", 7)
    assert outbox.left() == (1, ("a",), True)
    outbox.drop_end()
    assert outbox.left() == (1, ("a",), False)
    outbox.close(None, 7)
    assert outbox.end is None


def test_the_wait_ends_with_news_with_the_end_or_when_it_is_abandoned() -> None:
    outbox = Outbox()
    outbox.put(entries("tags", 1))
    assert not outbox.wait(60.0, for_news=True, closing_secs=0.0)
    assert not outbox.wait(0.01, for_news=True, closing_secs=0.0)  # It is no news any more.
    outbox.put(entries("tags", 1))
    assert not outbox.wait(0.01, for_news=False, closing_secs=0.0)
    threading.Timer(0.05, outbox.close, ("FINISHED", None)).start()
    assert outbox.wait(60.0, for_news=False, closing_secs=0.0)
    assert outbox.wait(60.0, for_news=False, closing_secs=0.01)
    threading.Timer(0.05, outbox.abandon).start()
    assert outbox.wait(60.0, for_news=False, closing_secs=60.0)
    assert outbox.abandoned
