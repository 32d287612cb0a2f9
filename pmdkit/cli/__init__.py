"""The command line `pmdkit VERB`: imports a verb only when called; errors become one line and an exit code."""

import errno
import os
import sys
import sysconfig
import traceback
from collections.abc import Sequence
from opcode import opmap
from pathlib import Path

from cyclopts import App, CycloptsError, Group
from cyclopts.exceptions import MissingArgumentError, UnknownCommandError, UnknownOptionError

from pmdkit import __version__, companions
from pmdkit.child_processes import distrust_folder
from pmdkit.errors import PmdkitError, short, unknown

GROUPS = {  # as --help shows them
    "Start here": {
        "tour": "Compare both updates, then take one of them through the three tiers (two minutes).",
        "doctor": "What this machine can run, and what is missing.",
        "objectives": "The objectives: names, equations, options.",
        "envs": "The environments on the shelf.",
        "theory": "What one exact update does to a prompt of a given pass rate.",
    },
    "Run": {
        "bandit": "Tier 1: solve a contextual bandit exactly, by regression, or from draws.",
        "toy": "Tier 2: train a small transformer on a token task.",
        "llm": "Tier 3: train a language model on problems with checkable answers.",
        "sweep": "A grid of runs over any option.",
    },
    "Look": {
        "figure": "The picture of a run: does it learn, and how far does a step go?",
        "eval": "How good a trained policy is: avg@k, pass@k and maj@k with intervals.",
        "compare": "Runs side by side: paired by seed, with intervals, as table, CSV or LaTeX.",
        "export": "The model of a checkpoint as a folder that transformers and vLLM load.",
    },
}
VERBS = {name: text for verbs in GROUPS.values() for name, text in verbs.items()}

OTHER_WORDS = {"plot": "figure RUN", "train": "toy modular-sum", "run": "toy modular-sum", "help": "--help"}  # meant

EPILOGUE = """\
For example: pmdkit toy modular-sum --tau 0.05 --steps 100, then pmdkit figure and the folder that it names.
Data goes to stdout, progress to stderr; --json prints one JSON value; --debug shows the traceback of an error.
Exit codes: docs/use/command-line.md#exit-codes.
"""

LONGEST_WORD = 300
SPINS = 10_000  # iterations of a waiting loop, less than a millisecond; OpenMP's own default is 300,000
WAITING = ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT", "KMP_BLOCKTIME")  # variables that set how OpenMP's threads wait


def make_app() -> App:
    """The whole command line; building it imports no verb."""
    app = App(
        name="pmdkit",
        help="Learn, check and use policy mirror descent: one objective, one loop, from a bandit to a cluster.",
        help_epilogue=EPILOGUE,
        help_format="plaintext",
        version=__version__,
        suppress_keyboard_interrupt=False,  # main reports it and exits with the documented code
    )
    added = companions.verbs()
    for number, (title, verbs) in enumerate(GROUPS.items()):
        group = Group(title, sort_key=number)
        for row, (name, text) in enumerate(verbs.items()):
            # a companion may do more under the same name: pmdkit figure fig2
            place = added[name][1] if name in added else f"pmdkit.cli.{name}:{name}"
            app.command(place, name=name, help=text, group=group, sort_key=row)
    extra = Group("From companions", sort_key=len(GROUPS))
    for number, (name, (text, place)) in enumerate(added.items()):
        if name not in VERBS:
            app.command(place, name=name, help=text, group=extra, sort_key=number)
    other = Group("Other", sort_key=len(GROUPS) + 1)
    app.register_install_completion_command(help="Install the completion of this shell's command line.", group=other)
    for flag in ("--help", "--version"):
        app[flag].group = other
    return app


def main(argv: Sequence[str] | None = None) -> None:
    """Run a command and exit with its exit code."""
    tokens = list(sys.argv[1:] if argv is None else argv)
    debug = "--debug" in tokens
    tokens = [token for token in tokens if token != "--debug"]
    # Threads of a run spin briefly while they wait, then sleep, unless the user has set how they wait. GNU OpenMP, with
    # which torch for CPUs comes, spins 30 times as long: on a busy machine a waiting thread then uses up the core that
    # the thread it waits for needs. It reads the variable once, when torch is imported. If threads sleep at once, small
    # models run slower than with one thread (benchmarks/README.md).
    if "torch" not in sys.modules and not any(name in os.environ for name in WAITING):
        os.environ["GOMP_SPINCOUNT"] = str(SPINS)
    if argv is None:
        distrust_folder()
    try:
        try:
            if tokens and tokens[0] in companions.HOMES and tokens[0] not in companions.verbs():
                raise companions.missing(tokens[0])
            make_app()(tokens, exit_on_error=False, print_error=False)
        finally:
            if sys.stdout is not None:
                sys.stdout.flush()  # else the interpreter flushes at exit and reports a full disk in its own words
    except BrokenPipeError:  # the reader of our output closed the pipe, as `head` does
        drop_output()
        sys.exit(0)
    except KeyboardInterrupt:
        fail("interrupted; a run with --out goes on with --resume", 75)
    except Exception as problem:
        if debug:
            traceback.print_exception(problem)
        fail(*explain_error(problem))


def explain_error(problem: Exception) -> tuple[str, int]:
    """The sentence shown to the user about an error, and the exit code."""
    if isinstance(problem, UnknownCommandError) and not problem.command_chain:  # the parser knows no absent companion
        word, *rest = problem.unused_tokens or [""]
        if word in OTHER_WORDS:
            meant = f"{rest[0]} --help" if word == "help" and rest else OTHER_WORDS[word]
            return f"unknown command '{word}'; try: pmdkit {meant}", 2
        return unknown("command", word, {*VERBS, *companions.HOMES}), 2
    if isinstance(problem, UnknownCommandError) and (n := [w for w in problem.unused_tokens or () if w[:1].isdigit()]):
        return f"to read a task: pmdkit learn show {n[0] if '.' in n[0] else n[0] + '.1'}; see pmdkit learn --help", 2
    if isinstance(problem, MissingArgumentError) and problem.argument and problem.argument.name == "ENV":
        from pmdkit.specs.find import names

        verb = str((problem.command_chain or ("toy",))[0])
        return f"pmdkit {verb} needs one of {', '.join(names(verb))}, or a .toml file; pmdkit envs describes them", 2
    if isinstance(problem, UnknownOptionError) and f"Did you mean {problem.token.keyword}?" in str(problem):
        return f"{problem.token.keyword} stands after --, where it is no option; put it before, or leave out --", 2
    if isinstance(problem, CycloptsError):
        return f"{str(problem).strip().rstrip('.')}; see pmdkit --help", 2
    if isinstance(problem, PmdkitError):
        return str(problem), problem.exit_code
    if isinstance(problem, ImportError):
        from pmdkit.extras import lacking

        if (lacks := lacking(problem)) is not None:
            return str(lacks), lacks.exit_code
    if isinstance(problem, ValueError) and is_refusal(problem):
        return str(problem), 2
    if isinstance(problem, MemoryError):
        return f"out of memory: {problem}; reduce the sizes, or use a machine with more memory", 1
    if isinstance(problem, OSError) and problem.errno in (errno.ENAMETOOLONG, errno.ELOOP):
        return f"{short(str(problem.filename))}: {problem.strerror}; give another path", 2
    if isinstance(problem, OSError):
        where = f" ({problem.filename})" if problem.filename else ""
        return f"{problem.strerror or problem}{where}; what was saved is intact: fix it, then go on with --resume", 1
    return f"{type(problem).__name__}: {problem}; a bug, most likely: run again with --debug and report the output", 1


def is_refusal(problem: ValueError) -> bool:
    """Whether a `raise` in our own code or in the user's file refused an input.

    A library raises ValueError for calls that were wrong, and so does an operation that fails, such as int("x"): those
    are slips of the code that made the call. UsageError is a refusal wherever it is raised.
    """
    from pmdkit.sibling_modules import OWN_PACKAGES

    trace = problem.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next  # to the frame where it was raised
    if trace is None:
        return False
    code, paths = trace.tb_frame.f_code, sysconfig.get_paths()
    libraries = [paths[name] for name in ("stdlib", "platstdlib", "purelib", "platlib")]
    # our packages may be installed among the libraries
    ours = str(trace.tb_frame.f_globals.get("__name__")).partition(".")[0] in OWN_PACKAGES
    raised = code.co_code[trace.tb_lasti] == opmap["RAISE_VARARGS"]
    return raised and (ours or not any(Path(code.co_filename).is_relative_to(folder) for folder in libraries))


def fail(sentence: str, code: int) -> None:
    """Print one readable line on stderr and exit: overlong words are cut, and control characters are escaped."""
    from pmdkit.observe.run_folder import redacted

    words = (word if len(word) <= LONGEST_WORD else word[:LONGEST_WORD] + "..." for word in sentence.split())
    line = "".join(char if char.isprintable() else ascii(char)[1:-1] for char in redacted(" ".join(words)))
    print("pmdkit: error: " + line, file=sys.stderr)
    try:
        if sys.stdout is not None:
            sys.stdout.flush()
    except OSError:
        drop_output()
    sys.exit(code)


def drop_output() -> None:
    """Discard output that stdout no longer takes, so that the interpreter's final flush does not fail."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
