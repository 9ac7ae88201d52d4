"""Each rule of the grammar, and the message of each way to break it."""

from __future__ import annotations

import re

import pytest

from slimexp.dataset.listfile_grammar import (
    LabelReader,
    LineError,
    NumClassesUnknownError,
    format_path,
    split_line,
)
from slimexp.errors import UserError


@pytest.mark.parametrize(
    ("line", "path", "labels", "free"),
    [
        (b"0.jpg -1:* 1:0,7", "0.jpg", "-1:* 1:0,7", False),
        (b"a.jpg   3", "a.jpg", "3", False),
        (b"  a.jpg 3 \t \r", "a.jpg", "3", False),
        (b"a.jpg\t3", "a.jpg", "3", True),
        (b"a.jpg \t 3", "a.jpg", "3", True),
        (b"my cat, 1.jpg\t0", "my cat, 1.jpg", "0", True),
        (b"my cat.jpg\t-1:*\t1:0", "my cat.jpg", "-1:*\t1:0", True),
        (b"a.jpg\tgolden retriever", "a.jpg", "golden retriever", True),
        (b'"my cat.jpg" 1:0', "my cat.jpg", "1:0", True),
        (b'"my cat 1:2.jpg"\t-1:* 1:0', "my cat 1:2.jpg", "-1:* 1:0", True),
        (b'"a\tb #,:.jpg" 1', "a\tb #,:.jpg", "1", True),
        (b'"say ""hi"".jpg" 1', 'say "hi".jpg', "1", True),
        (b'" " 1', " ", "1", True),
        (b'"C:\\new\\a.jpg" 1', "C:\\new\\a.jpg", "1", True),
        ("étiquettes/中文.jpg 1".encode(), "étiquettes/中文.jpg", "1", False),
        ("a\u00a0b\u3000c.jpg 1".encode(), "a\u00a0b\u3000c.jpg", "1", False),  # only spaces and tabs are blanks
        (b"a:1,2.jpg 1", "a:1,2.jpg", "1", False),
    ],
)
def test_splits_path_from_labels(line: bytes, path: str, labels: str, free: bool) -> None:
    assert split_line(line) == (path.encode(), labels, free)


@pytest.mark.parametrize("line", [b"", b" \t ", b"\r", b"# a.jpg 1", b"  \t# x", b"#", b"# \xff\0"])
def test_skips_blank_and_comment_lines(line: bytes) -> None:
    assert split_line(line) is None


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (b"a.jpg", "'a.jpg': no labels after the path"),
        (b"a.jpg,3", "a comma doesn't separate them"),
        (b'"a.jpg"', "no labels after the path"),
        (b'"" 1', "the path is empty"),
        (b'"my cat.jpg 1', "closing quote mark is missing"),
        (b'"my cat.jpg"1:0', "a blank must follow"),
        (b'"a\\"b.jpg" 1', "a blank must follow"),
        (b'cat.jpg" 1', "must be quoted, and the mark doubled"),
        (b'my "cat".jpg\t1', "must be quoted, and the mark doubled"),
        (b"a.jpg 1:0\t1:3", "both a blank and the tab could end the path"),
        (b"my cat -5:x.jpg\t1:3", "both a blank and the tab"),
        (b"a\0b.jpg 1", r"b'a\\x00b.jpg 1': a NUL byte"),
        (b"caf\xe9.jpg 1", r"b'caf\\xe9.jpg 1': byte 0xe9 is not UTF-8"),
        (b"a.jpg 1\rb.jpg 1", r"'a.jpg 1\\rb.jpg 1': a carriage return within a line"),
    ],
)
def test_refuses_lines_without_a_clear_path(line: bytes, message: str) -> None:
    with pytest.raises(LineError) as error:
        split_line(line)
    assert re.search(message, str(error.value))


@pytest.mark.parametrize(
    ("labels", "row"),
    [
        ("-1:* 1:0,3", [1, -1, -1, 1]),
        ("1:0,3 -1:*", [-1, -1, -1, -1]),  # later terms win
        ("1:1", [0, 1, 0, 0]),  # what no term names is don't care
        ("-1:* 0:2 1:0", [1, -1, 0, -1]),
        ("1:* \t 0:1", [1, 0, 1, 1]),
        ("1:2,2,2", [0, 0, 1, 0]),
        ("1:003", [0, 0, 0, 1]),
        ("1:0 -1:0 1:0 0:0", [0, 0, 0, 0]),
        ("0:*", [0, 0, 0, 0]),
    ],
)
def test_reads_terms(labels: str, row: list[int]) -> None:
    assert LabelReader("multi", 4).read_multi(labels).tolist() == row


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        ("1:", "'1:': no index after the colon; write 1:0,7 for some labels or 1:* for all"),
        ("-1:* 1:", "'1:': no index"),
        ("1:0,,3", "'1:0,,3': a comma must stand between two indices"),
        ("1:0,", "a comma must stand between two"),
        ("1:,0", "a comma must stand between two"),
        ("1:-3", "'1:-3': an index is a whole number without a sign"),
        ("1:+3", "without a sign"),
        ("1:*,3", "'1:*,3': * means all labels and stands alone"),
        ("1:3,*", "stands alone"),
        ("1:**", "stands alone"),
        ("2:3", "'2:3': the value before the colon must be 1 (positive), -1 (negative) or 0 (don't care)"),
        ("+1:3", "the value before the colon"),
        ("01:3", "the value before the colon"),
        ("-0:3", "the value before the colon"),
        (":3", "the value before the colon"),
        ("3", "'3': a label needs its value here, as in 1:3"),
        ("1:0, 3", "'1:0,': a comma must stand between two"),
        ("1:0 3", "no blank may stand among the indices"),
        ("cat.jpg 1:0", "'cat.jpg': not a VALUE:INDICES term such as 1:0,7; if it belongs to the path, quote the path"),
        ("1:2.jpg -1:* 1:0", "'1:2.jpg': the indices must be whole numbers"),
        ("1:2:3", "the indices must be whole numbers"),
        ("1:３", "the indices must be whole numbers"),  # a full-width digit
        ("1:4", "'4': the label is outside 0..3 (dataset.num_classes=4)"),
        ("1:" + "9" * 5000, "the label is outside 0..3"),
    ],
)
def test_refuses_malformed_terms(labels: str, message: str) -> None:
    with pytest.raises(LineError) as error:
        LabelReader("multi", 4).read_multi(labels)
    assert message in str(error.value)
    assert len(str(error.value)) < 300


def test_subtracts_labels_offset() -> None:
    reader = LabelReader("multi", 3, labels_offset=1)
    assert reader.read_multi("-1:* 1:1,3").tolist() == [1, -1, 1]
    for bad in ("1:0", "1:4"):
        with pytest.raises(
            LineError, match=r"the label is outside 1\.\.3 \(dataset.num_classes=3, dataset.labels_offset=1"
        ):
            reader.read_multi(bad)
    assert LabelReader("single", 3, ["a", "b", "c"], labels_offset=1).read_single("3", free=False) == 2
    assert LabelReader("single", 3, ["a", "b", "c"], labels_offset=1).read_single("c", free=False) == 2
    assert LabelReader("single", 3, labels_offset=-1).read_single("0", free=False) == 1


NAMES = ["cat", "golden retriever", "10", "1:3", "2.5", 'x"y']


@pytest.mark.parametrize(
    ("labels", "free", "index"),
    [
        ("0", False, 0),
        ("05", False, 5),
        ("cat", False, 0),
        ("golden retriever", True, 1),
        ('"golden retriever"', False, 1),
        ('"10"', False, 2),
        ("1:3", False, 3),  # a name that class_names has
        ("2.5", False, 4),
        ('"x""y"', False, 5),
        ("1:2", False, 2),
        ("-1:* 1:4", False, 4),
        ("1:* -1:* 1:1", True, 1),
    ],
)
def test_reads_one_class(labels: str, free: bool, index: int) -> None:
    assert LabelReader("single", 6, NAMES).read_single(labels, free=free) == index


@pytest.mark.parametrize(
    ("labels", "free", "message"),
    [
        ("10", False, "'10': the label is outside 0..5 (dataset.num_classes=6); a class name of digits is quoted"),
        ("6", False, "the label is outside 0..5 (dataset.num_classes=6)"),
        ("golden retriever", False, "more than one word after the path"),
        ("cat.jpg 1", False, "more than one word after the path"),
        ("golden\tretriever", True, "a tab in a class name"),
        ("-3", False, "'-3': neither an index"),
        ("3.0", False, "neither an index (a whole number, not negative) nor a name"),
        ("kat", False, "'kat': no class has this name; the nearest are 'cat'"),
        ("zzz", False, "'zzz': no class has this name"),
        ('"cat', False, "a quoted class name must be whole"),
        ('"cat" 3', False, "a quoted class name must be whole"),
        ('""', False, "not empty"),
        ('x"y"', False, "must be quoted, and the mark doubled"),
        ("-1:*", False, "0 labels are positive, but dataset.task=single takes exactly one; dataset.task=multi"),
        ("1:0,1", False, "2 labels are positive"),
        ("1:0 1:", False, "no index after the colon"),
        ("1:0 cat", False, "'cat': not a VALUE:INDICES term"),
        ("2:5", False, "the value before the colon"),
    ],
)
def test_refuses_what_is_not_one_class(labels: str, free: bool, message: str) -> None:
    with pytest.raises(LineError) as error:
        LabelReader("single", 6, NAMES).read_single(labels, free=free)
    assert message in str(error.value)


def test_learns_names() -> None:
    reader = LabelReader("single", None, learns_names=True)
    read = [reader.read_single(text, free=False) for text in ("cat", "dog", "cat", '"007"')]
    assert read == [-1, -2, -1, -3]
    assert list(reader.names) == ["cat", "dog", "007"]
    for text in ("3", "1:3"):
        with pytest.raises(NumClassesUnknownError, match=r"set dataset.num_classes=N, or dataset.class_names"):
            reader.read_single(text, free=False)


def test_refuses_names_where_classes_have_none() -> None:
    with pytest.raises(LineError, match=r"set dataset\.class_names to read it"):
        LabelReader("single", 3).read_single("cat", free=False)


@pytest.mark.parametrize(
    "path",
    [
        "a.jpg",
        "my cat.jpg",
        'say "hi".jpg',
        "#1.jpg",
        "\ta",
        " ",
        "a, b\t1:2.jpg",
        "étiquettes 中文/x y.jpg",
        "\ufeffa",
        "\\",
    ],
)
def test_format_path_is_read_back(path: str) -> None:
    assert split_line(f"{format_path(path)} -1:* 1:0".encode()) == (
        path.encode(),
        "-1:* 1:0",
        format_path(path).startswith('"'),
    )


@pytest.mark.parametrize("path", ["", "a\nb", "a\rb", "a\0"])
def test_format_path_refuses_what_a_list_cannot_say(path: str) -> None:
    with pytest.raises(UserError, match="can't stand in a list file"):
        format_path(path)
