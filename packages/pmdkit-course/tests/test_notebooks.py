"""What is taken from a learner's file: the tagged cell and the imports it uses, nothing else of the notebook."""

import json
import os

import nbformat
import numpy as np
import pytest

from pmdkit.errors import UsageError
from pmdkit_course import exercise, ids
from pmdkit_course.notebooks import answer_to, exercises_in, read

QUESTION = exercise("103.2")
KNOWN = [exercise(which) for which in ids()]


def notebook(path, *cells):
    """Write a notebook of code cells: (source, tags)."""
    nb = nbformat.v4.new_notebook()
    for source, tags in cells:
        cell = nbformat.v4.new_code_cell(source)
        cell.metadata["tags"] = tags
        nb.cells.append(cell)
    nbformat.write(nb, path)
    return path


TAGS = ["exercise", "103.2"]
FUNCTION = "def find_lambda(pi, reward, tau):\n    return np.var(reward)"


def test_the_cell_and_the_imports_it_uses_are_taken(tmp_path):
    path = notebook(
        tmp_path / "a.ipynb",
        ("%matplotlib inline\nimport numpy as np, sys\nimport matplotlib.pyplot as plt\nx = 1 / 0", []),
        ("import time\nwhile True: time.sleep(1)", []),
        (FUNCTION, TAGS),
        ("from pmdkit import learn\nlearn.check('103.2', find_lambda)", ["check", "103.2"]),
    )
    cells = read(path)
    assert exercises_in(cells, KNOWN) == [QUESTION]
    code = answer_to(QUESTION, cells)
    assert code.imports == ("import numpy as np, sys",)
    assert code.cell == FUNCTION


def test_a_split_cell_counts_whole_and_a_cell_without_tags_is_found_by_name(tmp_path):
    split = read(notebook(tmp_path / "a.ipynb", ("half = 0.5", TAGS), (FUNCTION, TAGS)))
    assert answer_to(QUESTION, split).cell == f"half = 0.5\n{FUNCTION}"
    lost = read(notebook(tmp_path / "b.ipynb", ("def find_lambda(): ...", []), (FUNCTION, []), ("y = 2", [])))
    assert answer_to(QUESTION, lost).cell == FUNCTION
    assert exercises_in(lost, KNOWN) == [QUESTION]
    broken = read(notebook(tmp_path / "c.ipynb", ("def find_lambda(pi:\n    return (", [])))
    assert answer_to(QUESTION, broken) is not None


def test_commands_of_jupyter_do_not_hide_a_cell(tmp_path):
    cells = read(notebook(tmp_path / "a.ipynb", (f"%%time\n!pip list\n{FUNCTION}\n  # %done", TAGS)))
    assert compile(answer_to(QUESTION, cells).cell, "cell", "exec")


def test_a_plain_file_is_one_cell_and_one_with_marks_has_many(tmp_path):
    plain, marked = tmp_path / "a.py", tmp_path / "b.py"
    plain.write_text(f"import numpy as np\n{FUNCTION}\n")
    marked.write_text(f'# %%\nimport numpy as np\n1 / 0\n\n# %% tags=["exercise", "103.2"]\n{FUNCTION}\n')
    assert answer_to(QUESTION, read(plain)).cell == plain.read_text()
    assert answer_to(QUESTION, read(marked)).cell.strip() == FUNCTION
    assert answer_to(QUESTION, read(marked)).imports == ("import numpy as np",)
    assert answer_to(exercise("103.1"), read(plain)) is None


@pytest.mark.parametrize(
    ("name", "content", "told"),
    [
        ("a.ipynb", b"{", "not a notebook of format 4"),
        ("a.ipynb", b"[]", "not a notebook of format 4"),
        ("a.ipynb", json.dumps({"nbformat": 3, "cells": []}).encode(), "not a notebook of format 4"),
        (
            "a.ipynb",
            json.dumps({"nbformat": 4, "cells": [{"cell_type": "code", "source": 3}]}).encode(),
            "a notebook of",
        ),
        ("a.ipynb", b'{"a":' + b"[" * 10**5, "not a notebook of format 4"),
        ("a.py", b"\xff\xfe\x00", "not UTF-8 text"),
        ("a.py", b"x = 1\n" * 30_000, "more than 131,072 characters of code"),
        ("a.py", b"# %%\nx = 1\n" * 30_000, "more than 131,072 characters of code"),
        ("a.py", b"# ---\n# jupyter:\n#   jupytext: 3\n# ---\n# %%\nx = 1\n", "cells that jupytext does not read"),
        ("a.txt", b"", "neither .ipynb nor .py"),
    ],
)
def test_what_is_no_notebook_is_told(tmp_path, name, content, told):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(UsageError, match=told):
        read(tmp_path / name)


def test_a_file_that_is_not_there_is_told(tmp_path):
    with pytest.raises(UsageError, match="No such file"):
        read(tmp_path / "none.py")


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="makes a pipe")
def test_only_regular_files_of_bounded_size_are_read(tmp_path):
    """A pipe would wait for a writer for ever, a device has no end, and a link leads anywhere."""
    pipe, link, device, large = (tmp_path / f"{name}.py" for name in ("pipe", "link", "device", "large"))
    os.mkfifo(pipe)
    link.symlink_to(__file__)
    device.symlink_to("/dev/zero")
    with large.open("wb") as file:
        file.truncate(2**27)  # takes no room
    for path, links, told in (
        (pipe, True, "not a regular file"),
        (device, True, "not a regular file"),
        (link, False, "is a link; expected the file itself"),
        (large, True, "larger than 64 MiB"),
    ):
        with pytest.raises(UsageError, match=told):
            read(path, links=links)
    assert read(link)


HELPED = "def find_lambda(pi, reward, tau):\n    return spread(reward) * HALF"


def test_a_helper_of_another_cell_counts_with_what_it_uses(tmp_path):
    """As in the notebook: the last definition before the cell; what a cell computes is not run."""
    path = notebook(
        tmp_path / "a.ipynb",
        ("import numpy as np\nfrom pmdkit import train", []),
        ("def spread(x):\n    return 1 / 0", []),
        (
            "reward, TAU = np.ones(3), 0.5\nTWO = 2\nHALF = 1 / TWO\nruns = [train() for _ in range(9)]\nnamed = train",
            [],
        ),
        ("def spread(x):\n    return centred(x) @ centred(x) / len(x)\n\nprint(spread(np.ones(3)))", []),
        (HELPED, TAGS),
        ("def centred(x):\n    return x - np.mean(x)\n\ndef unused():\n    pass", []),
    )
    code = answer_to(QUESTION, read(path))
    assert code.cell == HELPED
    assert code.imports == ("import numpy as np",)
    names = {}
    exec("\n".join([*code.imports, *code.helpers, code.cell]), names)
    assert names["find_lambda"](None, np.array([0.0, 2.0]), 1.0) == 0.5
    assert not {"runs", "named", "unused", "train", "reward", "TAU"} & set(names)


def test_what_a_cell_computes_is_not_there(tmp_path):
    cells = read(notebook(tmp_path / "a.ipynb", ("half = load()", []), ("def f():\n    pass", []), (HELPED, TAGS)))
    assert answer_to(QUESTION, cells).helpers == ()


def test_helpers_that_use_each_other_are_taken_once(tmp_path):
    one, other = "def spread(x):\n    return other(x)", "def other(x):\n    return spread(x)"
    cells = read(notebook(tmp_path / "a.ipynb", (one, []), (other, []), (HELPED, TAGS)))
    assert [helper.split("(")[0] for helper in answer_to(QUESTION, cells).helpers] == ["def spread", "def other"]
