"""What `make release-check` runs of a page: every command in order, none left out without a mark that is counted."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
TOOL = ROOT / "tests" / "commands.py"
PAGE = """
```
pmdkit --version          # a remark
make demo
pmdkit llm big            # needs: gpu
```

<!-- needs: minutes -->
```python
raise SystemExit("never run")
```

```python
import pathlib
pathlib.Path("made").write_text("here")
```
"""


def call(*pages: str, cwd: Path) -> tuple[int, list[str]]:
    """Exit code and lines of the tool."""
    done = subprocess.run([sys.executable, str(TOOL), *pages], capture_output=True, text=True, cwd=cwd)
    return done.returncode, done.stdout.splitlines()


def test_commands_run_in_order_and_marked_ones_are_counted(tmp_path):
    (tmp_path / "page.md").write_text(PAGE)
    (tmp_path / "pmdkit").write_text("#!/bin/sh\n[ $1 = --version ]\n")
    (tmp_path / "pmdkit").chmod(0o755)
    script = f"import os, runpy, sys; os.environ['PATH'] = {str(tmp_path)!r} + ':' + os.environ['PATH']; "
    script += f"sys.argv = ['commands.py', 'page.md']; runpy.run_path({str(TOOL)!r}, run_name='__main__')"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, cwd=tmp_path)
    lines = done.stdout.splitlines()
    assert done.returncode == 0, done.stdout + done.stderr
    assert [line.split("s ", 1)[-1] for line in lines[:1]] == ["pmdkit --version"]
    assert "pmdkit llm big (needs gpu)" in lines[1]
    assert "(needs minutes)" in lines[2]
    assert lines[-1] == "0 failed, 2 left out"
    assert (tmp_path / "made").read_text() == "here"


def test_a_command_that_fails_fails_the_page(tmp_path):
    (tmp_path / "page.md").write_text("\n```python\nraise ValueError(3)\n```\n")
    code, lines = call("page.md", cwd=tmp_path)
    assert code == 1
    assert lines[-1] == "1 failed, 0 left out"
    assert "ValueError: 3" in lines[0]


def test_every_command_of_the_readme_runs():
    """A mark on a line of the README is a promise that is not kept on this machine; there is none."""
    sys.path.insert(0, str(TOOL.parent))
    try:
        from commands import commands
    finally:
        sys.path.pop(0)
    found = commands((ROOT / "README.md").read_text())
    assert sum(command.language == "sh" for command in found) >= 15
    assert sum(command.language == "python" for command in found) == 1
    assert [command for command in found if command.needs] == []
