"""Colab, Binder and the browser: all from one address, nothing without it; notebooks begin with an install."""

import json
import re
from pathlib import Path

import nbformat
import pytest
from generate.address import repository
from generate.cloud import FOLDER, cloud_files, links
from lite import INSTALL, LESSONS, STORED, lite_notebook, problems

ROOT = Path(__file__).parents[2]


@pytest.fixture
def project(tmp_path):
    """A checkout with two lessons and an address of one's choice."""
    (tmp_path / "tutorials").symlink_to(ROOT / "tutorials")

    def make(urls):
        (tmp_path / "pyproject.toml").write_text(f'[project]\nname = "x"\n{urls}', encoding="utf-8")
        return tmp_path

    return make


@pytest.mark.parametrize("urls", ["", '[project.urls]\nPaper = "x"\n', '[project.urls]\nRepository = ""\n'])
def test_without_an_address_there_is_nothing(urls, project):
    root = project(urls)
    assert repository(root) == ""
    assert links("101_simplex", "") == ""
    assert cloud_files(root) == {}


def test_with_an_address_every_lesson_has_links_and_a_first_cell_that_installs(project):
    root = project('[project.urls]\nRepository = "https://github.com/some/where/"\n')
    files = cloud_files(root)
    assert len(files) == len(list((ROOT / "tutorials").glob("[0-9]*.py")))
    for name, text in files.items():
        code = [cell.source for cell in nbformat.reads(text, as_version=4).cells if cell.cell_type == "code"]
        assert re.search(r'%pip install -q "pmdkit(\[[a-z,]+\])? @ git\+https://github\.com/some/where"', code[0]), name
    assert "pmdkit @ git" in files["103_hidden_regulariser.ipynb"]
    assert "pmdkit[gym,llm] @ git" in files["301_language_model.ipynb"]
    assert cloud_files(root) == files  # the same bytes every time
    said = links("101_simplex", "https://github.com/some/where")
    assert f"https://colab.research.google.com/github/some/where/blob/main/{FOLDER}/101_simplex.ipynb" in said
    assert "https://mybinder.org/v2/gh/some/where/main?labpath=tutorials%2Fcloud%2F101_simplex.ipynb" in said


def test_the_folder_is_that_of_the_address():
    """`python -m generate.cloud`, in docs/, writes it or removes it."""
    there = {path.name: path.read_text(encoding="utf-8") for path in (ROOT / FOLDER).glob("*")}
    assert there == cloud_files(ROOT)


def executed():
    """A lesson of three cells after its run."""
    new = nbformat.v4
    torch = new.new_code_cell("# alt: A line.\nimport torch\nprint(1)", metadata={"tags": ["torch"]})
    torch.outputs = [
        new.new_output("stream", name="stdout", text="1\n"),
        new.new_output("display_data", {"image/svg+xml": "<svg/>", "text/plain": "x"}),
    ]
    plain = new.new_code_cell("print(2)")
    plain.outputs = [new.new_output("stream", name="stdout", text="2\n")]
    return new.new_notebook(cells=[new.new_markdown_cell("# 101: Why?\n<!-- claim: a :: b -->"), torch, plain])


def test_a_cell_that_needs_torch_becomes_a_text_with_its_output():
    title, install, torch, plain = lite_notebook(executed()).cells
    assert title.source == "# 101: Why?\n"
    assert install.source == INSTALL
    assert torch.cell_type == "markdown"
    assert torch.source.startswith(STORED)
    assert "import torch" in torch.source
    assert "```text\n1\n```" in torch.source
    assert "![A line.](attachment:picture-1.svg)" in torch.source
    assert list(torch.attachments) == ["picture-1.svg"]
    assert (plain.cell_type, plain.source, plain.outputs) == ("code", "print(2)", [])


def test_a_lite_site_is_judged(tmp_path):
    """Complete it passes; without a notebook, an index, or with another wheel it does not."""
    wheel, name = "pmdkit-1-py3-none-any.whl", "101_simplex.ipynb"
    for folder in ("lab", "files", "api/contents", "pypi"):
        (tmp_path / folder).mkdir(parents=True)
    for page in ("index.html", "lab/index.html", f"pypi/{wheel}"):
        (tmp_path / page).touch()
    nbformat.write(lite_notebook(executed()), tmp_path / "files" / name)
    (tmp_path / "api" / "contents" / "all.json").write_text(json.dumps({"content": [{"path": name}]}))
    (tmp_path / "pypi" / "all.json").write_text(json.dumps({"pmdkit": {"releases": {"1": [{"filename": wheel}]}}}))
    assert problems(tmp_path, [name], wheel) == []
    assert len(problems(tmp_path, [name], "pmdkit-2.whl")) == 1
    assert "not among the files" in problems(tmp_path, ["102_one_step.ipynb"], wheel)[0]
    notebook = nbformat.read(tmp_path / "files" / name, as_version=4)
    notebook.cells[3].source = "import torch"
    notebook.cells.pop(1)
    nbformat.write(notebook, tmp_path / "files" / name)
    assert len(problems(tmp_path, [name], wheel)) == 2


def test_lite_has_the_lessons_that_run_without_torch():
    assert list(LESSONS) == list(range(100, 107))
