"""The page "One step, three tiers": the traced calls of one step, in order, with the functions that they run.

One step of each tier is run and traced when the site is built, so the page cannot drift from the source.
`python docs/generate/one_step.py bandit` prints the calls of one tier as JSON.
"""

import ast
import inspect
import json
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

ROOT = Path(__file__).parents[2]
DEPTH = 5  # levels that the page shows; the loop itself is the first
TIERS: dict[str, tuple[str, str, dict[str, Any]]] = {
    "bandit": ("Tier 1, a table of logits", "needle", {"group": 16}),
    "toy": ("Tier 2, a small transformer", "modular-sum", {}),
    "llm": (
        "Tier 3, a language model",
        "starter",
        {"options": {"warm_start.pass_rate": 0.02, "warm_start.look": 5, "evaluation.problems": 8}},
    ),
}
HEAD = """# One step, three tiers

The same loop drives a table, a small transformer and a language model. This page shows one step of each as it runs:
every call that the loop makes, down to {depth} levels, in order. The page is made by running and tracing the code, so
it is always that of the version you read. Checkpoints, metrics and other callbacks come after a step and are left out.

Each line names the function and its file, and says what it does in the words of its docstring. A call that repeats is
shown once, with the number of times.

The loop itself:

```python
{loop}
```
"""


def write_one_step(page: Path) -> int:
    """Write the page; returns the number of calls on it."""
    calls = {tier: traced(tier) for tier in TIERS}
    text = HEAD.format(depth=DEPTH, loop=source("pmdkit/loop.py", "run"))
    for tier, (title, env, _) in TIERS.items():
        files = list(dict.fromkeys(call["file"] for call in calls[tier]))
        text += f"\n## {title}\n\n`pmdkit {tier} {env}`; one step runs {len(files)} files to this depth.\n\n"
        for call in calls[tier]:
            times = f" ({call['times']} times)" if call["times"] > 1 else ""
            text += f"{'    ' * (call['depth'] - 1)}* `{call['name']}` in `{call['file']}`{times}: {call['says']}\n"
    page.write_text(text, encoding="utf-8")
    return sum(len(found) for found in calls.values())


def traced(tier: str) -> list[dict[str, Any]]:
    """The calls of one step, each with its depth below the loop, traced in a separate process."""
    done = subprocess.run(
        [sys.executable, __file__, tier], cwd=ROOT, capture_output=True, text=True, check=False, timeout=300
    )
    if done.returncode:
        raise SystemExit(f"one step of tier {tier} did not run; the page cannot be made:\n{done.stderr}")
    found: list[dict[str, Any]] = json.loads(done.stdout.splitlines()[-1])
    return found


def trace(tier: str) -> list[dict[str, Any]]:
    """Run one step with a profiler that keeps the calls near the loop."""
    import pmdkit
    from pmdkit import loop

    calls: list[dict[str, Any]] = []
    stack: list[FrameType] = []
    begun: set[CodeType] = set()  # generators that have started

    def profile(frame: FrameType, event: str, argument: object) -> None:
        code = frame.f_code
        if event == "call" and code.co_filename.startswith(str(ROOT / "pmdkit")) and code.co_name[0] not in "_<":
            if not stack or not within(frame, stack):
                return
            stack.append(frame)
            depth = len(stack) - 1
            if depth <= DEPTH:
                file = str(Path(code.co_filename).relative_to(ROOT))
                # resuming a generator is not another call, but what it calls belongs below it
                new = not (code.co_flags & inspect.CO_GENERATOR and code in begun)
                begun.add(code)
                calls.append({"depth": depth, "file": file, "name": code.co_qualname, "new": new})
        elif event == "return" and stack and stack[-1] is frame:
            stack.pop()

    real = loop.run

    def run(*args: Any, **options: Any) -> None:
        if "observers" in options:
            options["observers"] = ()
        else:
            args = (*args[:4], (), *args[5:])
        stack.append(sys._getframe())
        sys.setprofile(profile)
        try:
            real(*args, **options)
        finally:
            sys.setprofile(None)
            stack.clear()

    loop.run = run
    _, env, options = TIERS[tier]
    with tempfile.TemporaryDirectory() as folder:
        pmdkit.train("pmd-mean", tier, env, steps=1, out=f"{folder}/run", **options)
    return together(calls)


def within(frame: FrameType, stack: Sequence[FrameType]) -> bool:
    """Whether the innermost kept frame is among the callers of a frame."""
    above: FrameType | None = frame.f_back
    while above is not None and above is not stack[-1]:
        above = above.f_back
    return above is not None


def together(calls: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The calls with their docstrings; repeated calls below the same caller become one, with a count."""
    root: dict[str, Any] = {"children": []}
    path = [root]
    for call in calls:
        del path[call["depth"] :]
        siblings = path[-1]["children"]
        same = next((c for c in siblings if (c["file"], c["name"]) == (call["file"], call["name"])), None)
        if same is None:
            same = {**call, "times": 0, "children": [], "says": sentence(call["file"], call["name"])}
            siblings.append(same)
        same["times"] += call["new"]
        path.append(same)

    def flat(node: dict[str, Any]) -> list[dict[str, Any]]:
        found = []
        for child in node["children"]:
            found.append({key: value for key, value in child.items() if key not in ("children", "new")})
            found += flat(child)
        return found

    return flat(root)


def sentence(file: str, name: str) -> str:
    """The first sentence of a function's docstring."""
    node = definition(file, name)
    text = (ast.get_docstring(node) or "").split("\n\n")[0].replace("\n", " ") if node is not None else ""
    return text or "no docstring"


def source(file: str, name: str) -> str:
    """The source of a function."""
    node = definition(file, name)
    if node is None:
        raise SystemExit(f"{file} has no function {name}; docs/generate/one_step.py names it")
    return ast.get_source_segment((ROOT / file).read_text(encoding="utf-8"), node) or ""


def definition(file: str, name: str) -> ast.FunctionDef | None:
    """A function or method by its qualified name, also inside another function; None if there is none."""
    body: Sequence[ast.stmt] = ast.parse((ROOT / file).read_text(encoding="utf-8")).body
    found: ast.stmt | None = None
    for part in name.split("."):
        if part == "<locals>":
            continue
        found = next(
            (n for b in body for n in ast.walk(b) if isinstance(n, ast.FunctionDef | ast.ClassDef) and n.name == part),
            None,
        )
        if found is None:
            return None
        body = found.body
    return found if isinstance(found, ast.FunctionDef) else None


if __name__ == "__main__":
    print(json.dumps(trace(sys.argv[1])))
