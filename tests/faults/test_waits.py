"""No unbounded wait in the trainer of language models or the verifier: every call that can wait has a deadline.

Read from the source. A call that waits for what cannot fail to come is listed in ALLOWED, with the reason.
"""

import ast
from pathlib import Path

import pytest

import pmdkit

ROOT = Path(pmdkit.__file__).parent
ROOMS = ("llm", "envs/verifier")

# method or function -> arguments from which on one of them is a deadline, whatever it is called
BLOCKING = {
    "wait": 1,
    "join": 1,
    "get": 1,
    "recv": 99,
    "recv_bytes": 99,
    "accept": 99,
    "result": 1,
    "acquire": 2,
    "select": 4,
    "communicate": 2,
    "check_output": 99,
    "check_call": 99,
    "urlopen": 3,
    "create_connection": 2,
    "waitpid": 2,
    "input": 99,
}
NAMED = ("timeout", "timeout_seconds", "seconds")

# file: function: call -> why it ends
ALLOWED = {
    "llm/engines/vllm/http.py: call_each: result": "each call has a deadline of its own, and all have ended there",
    "llm/engines/vllm/server.py: start: wait": "Fleet.wait itself, whose deadline is vllm.start",
    "llm/engines/vllm/server.py: restart: wait": "the same",
    "llm/engines/distributed.py: generate_watched: result": "WatchedCall.result, whose deadline is rollout.silence",
    "llm/rollouts.py: finish: result": "the same",
    "llm/sharded_checkpoint.py: wait: result": "it writes files, and its collectives have parallel.timeout",
    "llm/sharded_checkpoint.py: save: wait": "the same",
    "envs/verifier/pool.py: work_ahead: wait": "a daemon thread without work: nobody waits for it, close wakes it",
    "processes.py: guard: wait": "the child is dead: end_session has killed it",
    "processes.py: kill: wait": "the child was just killed with its whole group",
}


def waits(source: str, name: str) -> set[str]:
    """Calls of a module that wait without a deadline, as ALLOWED names them."""
    found = set()
    for function in ast.walk(ast.parse(source)):
        if not isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        for call in ast.walk(function):
            if isinstance(call, ast.Call) and unbounded(call):
                found.add(f"{name}: {function.name}: {called(call)}")
    return found


def called(call: ast.Call) -> str:
    """The last name of what is called."""
    target = call.func
    return target.attr if isinstance(target, ast.Attribute) else target.id if isinstance(target, ast.Name) else ""


def unbounded(call: ast.Call) -> bool:
    """Whether a call may wait for ever."""
    name = called(call)
    if name == "run" and isinstance(call.func, ast.Attribute) and isinstance(call.func.value, ast.Name):
        if call.func.value.id != "subprocess":
            return False
    elif name not in BLOCKING:
        return False
    if any(keyword.arg in NAMED and not is_none(keyword.value) for keyword in call.keywords):
        return False
    return len(call.args) < BLOCKING.get(name, 99) or (name != "select" and bool(call.args) and is_none(call.args[-1]))


def is_none(value: ast.expr) -> bool:
    """The constant None."""
    return isinstance(value, ast.Constant) and value.value is None


def everything() -> set[str]:
    """All waits without a deadline."""
    files = [ROOT / "processes.py", *(path for room in ROOMS for path in sorted((ROOT / room).rglob("*.py")))]
    assert len(files) > 30
    return {wait for path in files for wait in waits(path.read_text(), path.relative_to(ROOT).as_posix())}


def test_every_wait_has_a_deadline():
    assert everything() - set(ALLOWED) == set()


def test_no_exception_is_kept_that_nobody_needs():
    assert set(ALLOWED) - everything() == set()


@pytest.mark.parametrize(
    "line",
    [
        "queue.get()",
        "event.wait()",
        "event.wait(None)",
        "event.wait(timeout=None)",
        "thread.join()",
        "future.result()",
        "lock.acquire()",
        "pipe.recv()",
        "select.select([a], [], [])",
        "process.communicate()",
        "subprocess.run(['true'])",
        "subprocess.check_output(['true'])",
        "urlopen(url)",
        "os.waitpid(pid)",
    ],
)
def test_the_gate_sees_a_wait(line):
    assert waits(f"def f():\n    {line}\n", "a.py")


@pytest.mark.parametrize(
    "line",
    [
        "queue.get(timeout=1)",
        "table.get(key)",
        "event.wait(seconds)",
        "', '.join(words)",
        "thread.join(2)",
        "select.select([a], [], [], 0.1)",
        "process.communicate(timeout=3)",
        "subprocess.run(['true'], timeout=3)",
        "loop.run()",
        "os.waitpid(-1, os.WNOHANG)",
    ],
)
def test_the_gate_lets_pass_what_ends(line):
    assert not waits(f"def f():\n    {line}\n", "a.py")
