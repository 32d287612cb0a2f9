"""A step of another trainer's dump as a recording, which a replay takes."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from pmdkit.errors import UsageError, short
from pmdkit.recording import Recording
from pmdkit_lab.dumps.readers import KNOWN, Row, Source, read
from pmdkit_lab.dumps.recorded import ROUNDING

POLICIES = {"logp_engine": "the engine that drew", "logp": "the trainer", "logp_after": "the policy after the step"}
MAX_HELD = 2**25  # log-probabilities and characters of a step, and places of its rectangle: about 1 GB
COSTLY = (*POLICIES, "logp_ref", "prompt", "response")  # the columns that take memory
NEITHER = "responses without the log-probabilities of both policies, token by token or as sums"


def open_dump(path: Path, step: int | None, columns: Mapping[str, str]) -> tuple[Recording, Source]:
    """A step of a dump, by default the newest, as a recording without an objective; and the rows left out.

    The policy that drew is pi_old, by the engine's log-probabilities, and the trainer's are those before its update.
    Where the engine's are missing, the trainer's are pi_old, if those after the step are there. One update is assumed.

    Args:
        path, columns: as for `read`.
        step: its number in the dump; a dump without steps is one step, 0.

    Raises:
        UsageError: nothing can be read, this step is not there, or it lacks rewards, groups or log-probabilities.
    """
    source, seen, rows, held = Source(), set[int](), list[Row](), 0
    newest = step
    for _, row in read(path, columns, source):
        here = row.step or 0
        seen.add(here)
        if step is None and (newest is None or here > newest):
            newest, rows, held = here, [], 0
        if here == newest:
            rows.append(row)
            held += 1 + sum(len(getattr(row, name) or ()) for name in COSTLY)
            if held > MAX_HELD:
                raise UsageError(
                    f"step {here} of {path} has more than {MAX_HELD:,} log-probabilities and characters; "
                    "expected fewer, to fit into memory: give a file with some of its groups, or name the "
                    "steps with --columns step=..."
                )
    if not seen:
        raise UsageError(f"{path} holds no responses that replay can read ({source.reasons}); name --columns")
    if newest not in seen:
        raise UsageError(f"step {step} is not in {path}, which holds {short(sorted(seen))}: choose one with --step")
    where = f"step {newest} of {path} ({' and '.join(source.read)})"
    return recording(matched(rows, where, source), newest, where, source), source


def matched(rows: Sequence[Row], where: str, source: Source) -> list[Row]:
    """The rows that name a group or a prompt, each with the trainer's numbers from wherever they are.

    slime and prime-rl write rewards into one file and training data into another. Both hold the engine's
    log-probabilities, here compared as float32, which no two responses of several tokens share.
    """

    def key(row: Row) -> bytes:
        return np.array(row.logp_engine, np.float32).tobytes()

    named, apart = [], defaultdict[bytes, list[Row]](list)
    for row in rows:
        if row.group is not None or row.prompt is not None:
            named.append(row)
        elif row.logp_engine:
            apart[key(row)].append(row)
    for n, row in enumerate(named):
        if row.logp is None and row.logp_engine and (twins := apart[key(row)]):
            twin = twins.pop(0)
            named[n] = replace(row, logp=twin.logp, logp_ref=twin.logp_ref)
    for _ in range(sum(map(len, apart.values()))):
        source.leave_out("rows of training data whose response is not there", where)
    return named


def recording(rows: Sequence[Row], step: int, where: str, source: Source) -> Recording:
    """The rows of a step as a recording. Groups smaller than the largest are filled with rows of mass 0."""
    policies = [name for name in POLICIES if any(getattr(row, name) for row in rows)]
    old, *later = policies or [""]
    lacks = [] if rows else ["groups"]
    if not any(row.reward is not None for row in rows):
        lacks.append("rewards")
    if not later:
        lacks += [f"log-probabilities of {POLICIES[name]}" for name in ("logp_engine", "logp") if name != old]
    if lacks:
        advice = [each["both"] for each in KNOWN["format"] if each["name"] in source.read]
        raise UsageError(
            f"{where} has no {' and no '.join(lacks)}; a replay takes groups with rewards, and log-probabilities under "
            f"two policies: {'; '.join(advice) or '--columns group=...,reward=...,logp_engine=...,logp=... names them'}"
        )

    # each row with its tokens and log-probabilities: one for each token, or a list with their sum
    groups, by_token = defaultdict[Any, list[tuple[Row, int]]](list), True
    for row in rows:
        held = [len(getattr(row, name) or ()) for name in policies]
        length = row.length or max(held)
        if all(each in (1, length) for each in held):
            groups[row.prompt if row.group is None else row.group].append((row, length))
            by_token &= all(each == length for each in held)
        else:
            source.leave_out(NEITHER, where)
    if not groups:
        raise UsageError(f"{where} has only {NEITHER}; record both of the same tokens")

    whole = [row for group in groups.values() for row, _ in group]
    size, width = max(map(len, groups.values())), max(length for group in groups.values() for _, length in group)
    if len(groups) * size * width > MAX_HELD:  # one long response widens all rows, one large group pads all groups
        raise UsageError(
            f"{where} has {len(groups):,} groups of up to {size:,} responses of up to {width:,} tokens; expected at "
            f"most {MAX_HELD:,} tokens, to fit into memory: give a file with some of its groups"
        )
    mask = torch.zeros(len(groups) * size, width, dtype=torch.bool)
    reward, mass = torch.zeros(2, len(groups), size, dtype=torch.float64)
    names = {old: "logp_old"} | {name: "logp_after" if name == "logp_after" else "logp_seen" for name in later}
    if by_token and all(len(row.logp_ref or ()) == len(getattr(row, old)) for row in whole):
        names["logp_ref"] = "logp_ref"
    tokens = {name: torch.zeros(mask.shape, dtype=torch.float64) for name in names.values()}
    texts = [""] * len(mask)
    for p, group in enumerate(groups.values()):
        for k, (row, length) in enumerate(group):
            n = p * size + k
            mask[n, :length], texts[n] = True, row.response or ""
            if row.reward is not None:
                reward[p, k], mass[p, k] = row.reward, 1.0
            for theirs, ours in names.items():
                values = torch.tensor(getattr(row, theirs), dtype=torch.float64)
                tokens[ours][n, :length] = values if by_token else values.sum() / length
    for name, logp in tokens.items():
        if bool((logp > ROUNDING).any()):
            raise UsageError(
                f"{where} has {logp.max():.3g} for {name}; a log-probability is at most 0: name its column"
            )
    # The dump has sums, which were divided evenly over the tokens above. No number may depend on that, so only logp_old
    # stays by token: a log-ratio to itself is 0 at every token.
    if not by_token:
        tokens = {name: logp if name == "logp_old" else logp.sum(1) for name, logp in tokens.items()}
    rewards = {row.reward for row in whole if row.reward is not None}
    about = {
        "tier": " and ".join(source.read), "env": "dump", "objective": None, "updates": [], "ministeps": 1,
        "step": step, "version": min((row.version for row in whole if row.version is not None), default=None),
        "seed": 0, "sampled": True, "width": width, "drop_equal_groups": False, "texts": texts,
        "passed": None if len(rewards) > 2 else 0.0 if min(rewards, default=0.0) < 0 else 0.5,
        "problems": [group[0][0].prompt or str(name) for name, group in groups.items()],
    }  # fmt: skip
    nothing = torch.zeros(len(groups), dtype=torch.int64)
    return Recording(
        about,
        mask,
        {
            "reward": reward, "mass": mass / mass.sum(1, keepdim=True).clamp_min(1), "responses": mask.long(),
            "prompts": torch.arange(len(groups)), "prompt_length": nothing, "prompt_tokens": nothing[:0], **tokens,
        },
    )  # fmt: skip
