"""What `make release-check` runs of a page: every command in order, none left out without a mark that is counted."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TOOL = ROOT / "tests" / "commands.py"
PAGE = """
```
pmdkit --version          # a remark
echo "a # b" \\
    > said
pmdkit llm big            # needs: gpu
```

```text
pmdkit is not run here
```

<!-- needs: minutes -->
```python
raise SystemExit("never run")
```

```python title="my.py"
NUMBER = 3
```

```python
from my import NUMBER

assert NUMBER == 3
```

```toml
no = "command"
```
"""


@pytest.fixture
def tool(monkeypatch):
    """The module of the tool."""
    monkeypatch.syspath_prepend(str(TOOL.parent))
    import commands

    return commands


def call(page: str, folder: Path, most: int = 0) -> tuple[int, list[str]]:
    """Exit code and lines of the tool on a page, with a `pmdkit` that knows --version alone."""
    (folder / "page.md").write_text(page)
    (folder / "pmdkit").write_text("#!/bin/sh\n[ $1 = --version ]\n")
    (folder / "pmdkit").chmod(0o755)
    script = f"import sys; sys.path.insert(0, {str(TOOL.parent)!r}); sys.argv[1:] = ['page.md']; import commands; "
    script += f"commands.MARKED = {most}; commands.main()"
    env = os.environ | {"PATH": f"{folder}:{os.environ['PATH']}"}
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, cwd=folder, env=env)
    return done.returncode, done.stdout.splitlines()


def test_commands_run_in_order_in_an_empty_folder_and_marked_ones_are_counted(tmp_path):
    code, lines = call(PAGE, tmp_path, most=2)
    assert code == 0, lines
    assert [line[12:].removeprefix(" ") for line in lines[1:-1]] == [
        "pmdkit --version",
        'echo "a # b" > said',
        "pmdkit llm big  (needs: gpu)",
        'raise SystemExit("never run")  (needs: minutes)',
        "my.py",
        "from my import NUMBER",
    ]
    assert lines[-1] == "4 ran, 0 failed, 2 marked and not run (at most 2)"
    assert sorted(path.name for path in (tmp_path / "page").iterdir() if path.is_file()) == ["my.py", "said"]


def test_one_mark_more_than_allowed_fails(tmp_path):
    code, lines = call("\n```\npmdkit llm big   # needs: gpu\n```\n", tmp_path)
    assert code == 1
    assert lines[-1] == "0 ran, 0 failed, 1 marked and not run (at most 0)"


@pytest.mark.parametrize("block", ["```python\nraise ValueError(3)\n```", "```\npmdkit --version; false\n```"])
def test_a_command_that_fails_fails_the_page(block, tmp_path):
    code, lines = call(f"\n{block}\n", tmp_path)
    assert code == 1
    assert lines[-1].startswith("1 ran, 1 failed, ")


def test_the_number_of_marks_does_not_rise_and_the_five_minutes_of_the_readme_have_none(tool):
    found = [command for page in tool.PAGES for command in tool.commands(page.read_text(encoding="utf-8"))]
    assert sum(command.needs is not None for command in found) == tool.MARKED, "MARKED in tests/commands.py may fall"
    readme = tool.commands((ROOT / "README.md").read_text(encoding="utf-8"))
    ours = [command for command in readme if command.text.startswith("pmdkit ") or command.language == "python"]
    assert len(ours) == 17
    assert [command for command in ours if command.needs] == []
