"""my_pmd.py, the program that a learner writes: its parts are exercises, and the whole of it learns as pmdkit does."""

import runpy
from pathlib import Path

import matplotlib.pyplot as plt
import pytest
import torch

import pmd
import pmdkit_course as learn
from pmdkit_course import answers
from pmdkit_course.exercises import thread
from pmdkit_course.notebooks import read
from pmdkit_course.source import solution_parts

PROGRAM = Path(__file__).parents[3] / "tutorials" / "my_pmd.py"


@pytest.mark.slow
def test_filled_in_it_is_right_part_by_part_and_draws_the_curves_of_pmdkit(tmp_path, monkeypatch, capsys):
    parts = answers.exercises_in(read(PROGRAM), [learn.exercise(which) for which in learn.ids()])
    assert [e.id for e in parts if e.id != "105.1"] == [which for which in learn.ids() if which.endswith(".0")]
    text = PROGRAM.read_text()
    for e in parts:
        assert text.count(e.start) == 1
        text = text.replace(e.start, solution_parts(e).text)
    monkeypatch.chdir(tmp_path)
    Path("my_pmd.py").write_text(text)
    plt.switch_backend("agg")
    names = runpy.run_path("my_pmd.py")
    assert all(learn.check(e.id, names[e.name]).right for e in parts)
    names["main"]()
    said = (float(line.removesuffix(" at most").split()[-1]) for line in capsys.readouterr().out.splitlines())
    last, differs, learned, noise = said
    assert last > 0.99
    assert differs < 1e-12
    assert learned > 0.98
    assert noise < 5 * (0.5 / 2048**0.5)  # a share of 2048 draws, and the probability that it estimates
    assert Path("my_pmd.png").stat().st_size > 5000


def test_its_transformer_and_its_stale_updates_are_those_of_the_one_file_program():
    """pmd.py, which a test holds to the package: the same policy after the same draws and updates, in float64."""
    policy = pmd.Policy(3).double()
    blocks = [(b.norm_attention, b.qkv, b.mix, b.norm_feed, b.gate_up, b.down) for b in policy.blocks]
    weights = [m.weight.detach().clone() for m in (policy.embedding, *sum(blocks, ()), policy.norm, policy.head)]
    rng, steps = torch.Generator().manual_seed(0), 3
    prompts = torch.randint(pmd.M, (steps, 8, 2), generator=rng)
    uniform = torch.rand(steps, 8, pmd.G, generator=rng, dtype=torch.float64)
    curve = thread.train_policy(weights, prompts, uniform, pmd.TAU, pmd.LR, pmd.MINISTEPS)
    optimizer = pmd.AdamW(policy.parameters())
    for asked, numbers, rate in zip(prompts, uniform, curve, strict=True):
        right = asked.sum(1, keepdim=True) % pmd.M
        assert policy(asked).gather(1, right).exp().mean().item() == pytest.approx(rate, rel=1e-9)
        drawn, logp_old = pmd.rollout(policy, asked, numbers)
        advantage = pmd.advantages(pmd.reward(asked, drawn))
        for part in torch.arange(8).chunk(pmd.MINISTEPS):
            pmd.pmd_mean(policy(asked[part]).gather(1, drawn[part]), logp_old[part], advantage[part]).backward()
            optimizer.step()
