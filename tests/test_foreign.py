"""The guarded reader: what is no regular file of text is refused with a sentence, at once."""

import json
import math
import os

import pytest
import torch

from pmdkit import foreign
from pmdkit.errors import UsageError

READERS = (foreign.read_bytes, foreign.read_text, foreign.read_json, foreign.read_lines)


@pytest.mark.parametrize("kind", ["pipe", "folder", "device", "loop", "hole", "nothing", "x" * 5000])
def test_what_is_no_regular_file_is_refused_at_once(kind, tmp_path):
    path = tmp_path / kind
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "folder":
        path.mkdir()
    elif kind in ("device", "loop"):
        path.symlink_to("/dev/zero" if kind == "device" else path)
    elif kind == "hole":
        with path.open("wb") as file:
            file.truncate(2**43)
    for read in READERS:
        with pytest.raises(UsageError, match=r"take another$"):
            read(path, advice="take another")


def test_a_link_to_a_file_is_read(tmp_path):
    """The cache of the hub is made of them."""
    (tmp_path / "file").write_text("text")
    (tmp_path / "link").symlink_to("file")
    assert foreign.read_text(tmp_path / "link") == "text"


@pytest.mark.parametrize(
    "data",
    [
        b"[" * 100_000, b"[" * 65 + b"]" * 65, b'{"a": NaN}', b'{"a": -Infinity}', b'{"a": 1e999}',
        b'{"a": 99999999999999999999}', b'{"a": ' + b"9" * 5000 + b"}", b"\xff\xfe{}", b"{", b"",
    ],
)  # fmt: skip
def test_json_that_is_none_is_one_sentence(tmp_path, data):
    (tmp_path / "file").write_bytes(data)
    with pytest.raises(UsageError, match="cannot be read as JSON"):
        foreign.read_json(tmp_path / "file")


def test_what_our_own_files_hold_is_read(tmp_path):
    value = {"a": [1, -0.5, 2**63, -(2**63), 1e-300, 1e300, None, True, "é \u202e", 0.00012345678901234567], "b": {}}
    (tmp_path / "file").write_text(json.dumps(value))
    assert foreign.read_json(tmp_path / "file") == value
    deep = json.loads("[" * foreign.DEEPEST + "]" * foreign.DEEPEST)
    (tmp_path / "file").write_text(json.dumps(deep))
    assert foreign.read_json(tmp_path / "file") == deep


def test_models_have_infinities():
    assert foreign.parse_json(b'{"a": Infinity}', "here", numbers=False) == {"a": math.inf}


def test_lines_end_in_a_newline(tmp_path):
    (tmp_path / "file").write_bytes(b"1\n2\ntorn")
    assert foreign.read_lines(tmp_path / "file") == [b"1\n", b"2\n"]


def test_a_field_of_another_kind_is_named():
    number = foreign.Number
    wanted = foreign.table(n=foreign.Count, x=number | None, tau=number | str | foreign.table(rule=str))
    assert foreign.check_fields({"n": 1, "x": None, "tau": {"rule": "kl"}}, wanted, "here")
    for value, named in (
        ([], "its value is"),
        ({"n": 1, "x": 1}, "tau is missing"),
        ({"n": True, "x": 1, "tau": 1}, "n is True"),
        ({"n": 1, "x": math.nan, "tau": 1}, "x is nan"),
        ({"n": 1, "x": 1, "tau": {}}, "tau"),
    ):
        with pytest.raises(UsageError, match=named):
            foreign.check_fields(value, wanted, "here")


@pytest.mark.parametrize("use", [lambda v: v["a"], lambda v: v.a, lambda v: v + 1, lambda v: [][1], lambda v: 1 / 0])
def test_a_shape_that_is_another_is_a_sentence(use):
    with pytest.raises(UsageError, match="here is not a thing"), foreign.shaped("here", "a thing"):
        use({})


def test_weights_that_are_not_numbers_are_named_as_that():
    weights = {"a": torch.ones(2), "n": torch.ones(2, dtype=torch.int64), "b": torch.tensor([1.0, torch.nan])}
    with pytest.raises(UsageError, match="NaN in b"):
        foreign.check_numbers(weights, "here")
    del weights["b"]
    foreign.check_numbers(weights, "here")
