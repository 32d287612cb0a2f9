"""The guarded reader: what is no regular file of text is refused with a sentence, at once."""

import json
import math
import os
import socket

import pytest
import torch

from pmdkit import foreign
from pmdkit.errors import UsageError

READERS = (foreign.read_bytes, foreign.read_text, foreign.read_json, foreign.read_lines)


@pytest.fixture
def odd(tmp_path):
    """`odd(kind)`: the path of something that is no regular file."""

    def make(kind):
        path = tmp_path / kind
        if kind == "pipe":
            os.mkfifo(path)
        elif kind == "folder":
            path.mkdir()
        elif kind == "socket":
            socket.socket(socket.AF_UNIX).bind(str(path))
        elif kind == "device":
            path.symlink_to("/dev/zero")
        elif kind == "loop":
            path.symlink_to(path)
        elif kind == "hole":
            with path.open("wb") as file:
                file.truncate(2**43)
        return path

    return make


KINDS = [
    ("pipe", "is a pipe; expected a regular file"),
    ("folder", "is a folder; expected a regular file"),
    ("socket", "is a socket; expected a regular file"),
    ("device", "is a device; expected a regular file"),
    ("loop", r"cannot be read \(Too many levels"),
    ("hole", "bytes; expected at most"),
    ("nothing", r"cannot be read \(No such file"),
]


@pytest.mark.parametrize(("kind", "told"), KINDS)
@pytest.mark.filterwarnings("ignore:unclosed <socket")
def test_what_is_no_regular_file_is_refused_at_once(odd, kind, told):
    path = odd(kind)
    for read in READERS:
        with pytest.raises(UsageError, match=told) as problem:
            read(path, advice="take another")
        assert str(problem.value).endswith("take another")


def test_a_name_that_no_file_can_have():
    with pytest.raises(UsageError, match="is not a file name"):
        foreign.read_bytes("a\0b")
    with pytest.raises(UsageError, match="File name too long"):
        foreign.read_bytes("x" * 5000)


def test_a_link_to_a_file_is_read(tmp_path):
    """The cache of the hub is made of them."""
    (tmp_path / "file").write_text("text")
    (tmp_path / "link").symlink_to("file")
    assert foreign.read_text(tmp_path / "link") == "text"


def test_a_file_that_grows_while_it_is_read_ends(tmp_path, monkeypatch):
    path = tmp_path / "grows"
    path.write_bytes(b"x" * 10)
    monkeypatch.setattr(foreign, "BLOCK", 8)
    real = os.fstat
    monkeypatch.setattr(os, "fstat", lambda handle: (real(handle), path.write_bytes(b"x" * 100))[0])
    with pytest.raises(UsageError, match="grows beyond 20 bytes"):
        foreign.read_bytes(path, most=20)


def test_a_file_system_that_stops_to_answer(tmp_path, monkeypatch):
    (tmp_path / "slow").write_bytes(b"x")
    monkeypatch.setattr(foreign, "SECONDS", -1.0)
    with pytest.raises(UsageError, match="was not read within"):
        foreign.read_bytes(tmp_path / "slow")


WRONG = [
    (b'{"a": 1, "a": 2}', "has the key 'a' twice"),
    (b"[" * 100_000, "nested too deeply"),
    (b"[" * 65 + b"]" * 65, "nested more than 64 deep"),
    (b'{"a": NaN}', "holds nan"),
    (b'{"a": -Infinity}', "holds -inf"),
    (b'{"a": 1e999}', "holds inf"),
    (b'{"a": 99999999999999999999}', "an integer of 67 bits"),
    (b'{"a": ' + b"9" * 5000 + b"}", "4300 digits"),
    (b"\xff\xfe{}", "can't decode"),
    (b"{", "cannot be read as JSON"),
    (b"", "cannot be read as JSON"),
]


@pytest.mark.parametrize(("data", "told"), WRONG)
def test_json_that_is_none_is_one_sentence(tmp_path, data, told):
    (tmp_path / "file").write_bytes(data)
    with pytest.raises(UsageError, match=told):
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


def test_many_keys_of_which_the_last_is_repeated_take_no_time():
    """Not one pass over all of them for each."""
    data = b"{" + b",".join(b'"%d":0' % n for n in (*range(200_000), 199_999)) + b"}"
    with pytest.raises(UsageError, match="key '199999' twice"):
        foreign.parse_json(data, "here")


def test_lines_end_in_a_newline(tmp_path, monkeypatch):
    (tmp_path / "file").write_bytes(b"1\n2\ntorn")
    assert foreign.read_lines(tmp_path / "file") == [b"1\n", b"2\n"]
    monkeypatch.setattr(foreign, "LONGEST_LINE", 1)
    with pytest.raises(UsageError, match="line 1 has 2 bytes"):
        foreign.read_lines(tmp_path / "file")


def test_a_field_of_another_kind_is_named():
    wanted = {"n": foreign.is_count, "x": foreign.none_or(foreign.is_number), "tau": foreign.is_tau}
    assert foreign.check_fields({"n": 1, "x": None, "tau": {"rule": "kl"}}, wanted, "here")
    for value, told in (
        ([], r"here holds \[\]; expected an object"),
        ({"n": 1, "x": 1}, "here has no tau"),
        ({"n": True, "x": 1, "tau": 1}, "n is True; expected an integer from 0"),
        ({"n": 1, "x": math.nan, "tau": 1}, "x is nan; expected"),
        ({"n": 1, "x": 1, "tau": {}}, "tau is {}; expected a temperature"),
    ):
        with pytest.raises(UsageError, match=told):
            foreign.check_fields(value, wanted, "here")


@pytest.mark.parametrize("use", [lambda v: v["a"], lambda v: v.a, lambda v: v + 1, lambda v: [][1], lambda v: 1 / 0])
def test_a_shape_that_is_another_is_a_sentence(use):
    with pytest.raises(UsageError, match="here is not a thing"), foreign.shaped("here", "a thing"):
        use({})


def test_weights_that_are_not_numbers_are_named_as_that():
    weights = {"a": torch.ones(2), "n": torch.ones(2, dtype=torch.int64), "b": torch.tensor([1.0, torch.nan])}
    with pytest.raises(UsageError, match=r"the weights of here are not numbers \(NaN in b\)"):
        foreign.check_numbers(weights, "here")
    del weights["b"]
    foreign.check_numbers(weights, "here")
