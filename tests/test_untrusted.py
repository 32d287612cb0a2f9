"""The guarded reader: what is no regular file of text is refused with a sentence, at once."""

import json
import os

import pytest
import torch

from pmdkit import untrusted
from pmdkit.errors import UsageError

READERS = (untrusted.read_bytes, untrusted.read_text, untrusted.read_json, untrusted.read_lines)


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
    assert untrusted.read_text(tmp_path / "link") == "text"


def test_what_our_own_files_hold_is_read(tmp_path):
    value = {"a": [1, -0.5, 2**63, -(2**63), 1e-300, 1e300, None, True, "é \u202e", 0.00012345678901234567], "b": {}}
    (tmp_path / "file").write_text(json.dumps(value))
    assert untrusted.read_json(tmp_path / "file") == value
    deep = json.loads("[" * untrusted.DEEPEST + "]" * untrusted.DEEPEST)
    (tmp_path / "file").write_text(json.dumps(deep))
    assert untrusted.read_json(tmp_path / "file") == deep


def test_lines_end_in_a_newline(tmp_path):
    (tmp_path / "file").write_bytes(b"1\n2\ntorn")
    assert untrusted.read_lines(tmp_path / "file") == [b"1\n", b"2\n"]


def test_weights_that_are_not_numbers_are_named_as_that():
    weights = {"a": torch.ones(2), "n": torch.ones(2, dtype=torch.int64), "b": torch.tensor([1.0, torch.nan])}
    with pytest.raises(UsageError, match="NaN in b"):
        untrusted.check_numbers(weights, "here")
    del weights["b"]
    untrusted.check_numbers(weights, "here")
