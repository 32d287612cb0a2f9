"""`pmdkit replay --web`: what the file holds; the page's arithmetic is pmdkit's, on runs of all three tiers."""

import json

import numpy as np
import pytest
import torch

from pmdkit.objectives import parts
from pmdkit_lab.dumps.recorded import RecordingText, open_step
from pmdkit_lab.replay import web
from pmdkit_lab.replay.gradient import POINTS, NotRecorded, batch_of, gradient, point
from pmdkit_lab.replay.replay import make_request
from tests.explore.by_torch import SHOWN
from tests.explore.in_node import in_node

OPTIONS = {
    "pmd-mean": [{}, {"tau": 0.3, "scale": "paper", "baseline": "mean", "norm": "none"}],
    "pmd-part": [{}, {"tau": 0.3, "target_cap": 1.5, "norm": "max"}],
    "grpo": [{}, {"std": "sample", "clip_low": 1e-3, "clip_high": 1e-3, "norm": "tokens"}],
    "gspo": [{}, {"clip_low": 0.01, "clip_high": 0.01}],
    "cispo": [{}, {"clip_low": 1e-3, "clip_high": 1e-3}],
    "chi2-po": [{}, {"kl_share": 1.0}],
    "dro": [{}, {"value": 0.25}],
}
CODE = """
const { pushes } = await load("recorded.js");
return given.asked.map(({ group, options, at }) => pushes(given.groups[group], given.run, options, at));
"""


def everything(path, step=None):
    """The recording, the head of its file and the groups of one step, as JSON holds them."""
    recording = open_step(path, step)
    groups = web.groups_of(recording, RecordingText(recording, path))
    data = json.loads(web.encode({"run": web.run_as_json(path), "groups": groups}))
    return recording, data["run"], data["groups"]


def by_pmdkit(recording, request, name):
    """[N] coefficient before the weight, weight, advantage, and [N] known rows, from pmdkit's own gradient."""
    size = recording["mass"].shape[1]
    where = point(recording, name)
    batch = batch_of(request.objective, recording)
    found = gradient(request.objective, batch, where, recording.about["ministeps"], size)
    length = recording.mask.sum(1)
    prompts = len(recording["mass"])
    cuts = [part.stop - part.start for part in parts(prompts, recording.about["ministeps"])]
    of = torch.cat([torch.full((count * size,), count) for count in cuts])
    push = -found.coefficient / (length if found.values.shape[1] > 1 else 1)
    return push, batch.weight.double() * prompts / of, batch.advantage, where.known


@pytest.mark.slow
@pytest.mark.parametrize("tier", ["bandit", "drawn", "toy", "llm", "llm_tokens"])
def test_the_page_computes_what_pmdkit_computes(tier, node, request):
    """Advantage, weight and push of every response, for every objective of the page, at every recorded policy."""
    run = request.getfixturevalue(tier)
    recording, head, groups = everything(run.path)
    asked, wanted = [], []
    for name in SHOWN:
        for options in OPTIONS.get(name, [{}]):
            question = make_request(recording, name, options)
            table = {**question.table}
            for at in POINTS:
                try:
                    truth = by_pmdkit(recording, question, at)
                except NotRecorded:
                    truth = None
                asked += [{"group": n, "options": table, "at": at} for n in range(len(groups))]
                wanted.append((name, at, truth))
    told = iter(in_node(node, CODE, {"groups": groups, "run": head, "asked": asked}))
    compared = 0
    for name, at, truth in wanted:
        pages = [next(told) for _ in groups]
        if truth is None:  # the page asks group by group: at least one of them is incomplete
            assert any("missing" in page for page in pages), (name, at)
            continue
        push, weight, advantage, known = truth
        nothing = [None] * len(groups[0]["reward"])
        rows = [row for page in pages for row in (nothing if "missing" in page else page["rows"])]
        there = torch.tensor([row is not None for row in rows])
        assert not (known & (weight != 0) & ~there).any(), (name, at)
        # losses per token are float32 in pmdkit, as the log-probabilities of a model are
        for key, exact, close in (("advantage", advantage, 1e-9), ("weight", weight, 1e-6), ("push", push, 1e-5)):
            seen = [row[key] for row in rows if row is not None]
            np.testing.assert_allclose(seen, exact.flatten()[there], close, 1e-9, err_msg=f"{name} {at} {key}")
        compared += len(seen)
    assert compared > 30 * len(groups)


def test_the_file_has_the_prompts_that_most_steps_asked(toy, tmp_path):
    path, data = web.write_web(toy.path, tmp_path / "web")
    assert json.loads(path.read_text(encoding="utf-8"))["prompts"] == json.loads(web.encode(data))["prompts"]
    asked = [len(prompt["groups"]) for prompt in data["prompts"]]
    assert asked == sorted(asked, reverse=True)
    assert len(asked) <= web.PROMPTS


def test_a_limit_on_bytes_drops_prompts_and_refuses_what_cannot_fit(toy):
    whole = web.run_as_json(toy.path)
    one = len(web.encode(whole["prompts"][0]))
    short = web.run_as_json(toy.path, most=one + 1000)
    assert 1 <= len(short["prompts"]) < len(whole["prompts"])
    assert len(web.encode(short)) <= one + 1100
    with pytest.raises(ValueError, match="record fewer steps"):
        web.run_as_json(toy.path, most=500)


def test_tokens_are_exact_in_base64(node):
    values = torch.tensor([[1e-7, -3.25, 0.1], [2.5, 0.0, 0.0]])
    mask = torch.tensor([[True, True, True], [True, False, False]])
    texts = web.packed(values, mask)
    told = in_node(node, "const { unpack } = await load('recorded.js'); return given.map(unpack);", texts)
    assert told[0] == [float(np.float32(value)) for value in values[0].tolist()]
    assert told[1] == [2.5]


BROKEN = {
    "not a file of it": ({"format": 2}, "no format 1"),
    "a text that is a number": ("text", "step"),
    "too few tokens": ("after_tokens", "step"),
    "no prompts": ("prompts", "no prompt"),
}


@pytest.mark.parametrize("kind", BROKEN)
@pytest.mark.slow
def test_a_file_that_anybody_wrote_is_judged_before_it_is_shown(kind, node, toy):
    what, words = BROKEN[kind]
    data = json.loads(web.encode(web.run_as_json(toy.path)))
    code = "const { problemOf } = await load('recorded.js'); return problemOf(given);"
    assert in_node(node, code, data) == ""
    if isinstance(what, dict):
        data |= what
    elif what == "prompts":
        data["prompts"] = []
    else:
        data["prompts"][0]["groups"][0][what][0] = 7 if what == "text" else "AAAA"
    assert words in in_node(node, code, data)
