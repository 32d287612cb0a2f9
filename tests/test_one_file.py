"""pmd.py beside the package: same first weights, same draws, same loss, same update, same gauges, at every step."""

import ast
import re
from pathlib import Path

import torch

import pmd
from pmdkit.envs.tokens import TokenTask, make_tokens
from pmdkit.loop import graded, ministeps
from pmdkit.objectives import PMDMean, credit
from pmdkit.observe.metrics import StepMetrics
from pmdkit.randomness import derive
from pmdkit.specs import ToySpec
from pmdkit.toy.learner import ToyLearner, build_model, held_out_pass_rate
from pmdkit.toy.sampling import uniforms

SPEC = ToySpec.read("modular-sum")
SEED = 5
TEXT = Path(pmd.__file__).read_text()


def test_every_step_is_that_of_the_package():
    """In float64 and from the same draws: rollout, rewards, advantages, losses, updates, pass rate and gauges."""
    problem, objective = make_tokens(SPEC.env), PMDMean(tau=SPEC.objective["tau"])
    model = build_model(SPEC.model, problem, SEED)
    policy = pmd.Policy(derive(SEED, "weights"))
    for name, weight in model.state_dict().items():
        assert torch.equal(policy.state_dict()[name], weight), name  # the same bits
    model, policy = model.double(), policy.double()

    space = tuple(torch.from_numpy(x) for x in problem.responses())
    learner = ToyLearner(model, problem.eos, problem.width, space, SPEC.schedule.lr, SPEC.schedule.optimizer)
    optimizer, task = pmd.AdamW(policy.parameters()), TokenTask(problem, pmd.P, SEED)
    for step in range(1, 5):
        prompts, seed = task.prompts(step), derive(SEED, "rollout", step)
        rollouts = learner.rollout(prompts, pmd.G, seed)
        answers, logp_old = pmd.rollout(policy, prompts, uniforms(seed, pmd.P * pmd.G, 1).view(pmd.P, pmd.G))
        assert torch.equal(answers.view(-1, 1), rollouts.responses)
        close(logp_old.view(-1, 1), rollouts.logp_old)

        groups = graded(task.reward(rollouts), rollouts)
        r = pmd.reward(prompts, answers)
        assert torch.equal(r, groups.reward)
        batch = credit(objective, groups, rollouts.logp_old, rollouts.mask)
        close(pmd.advantages(r).flatten(), batch.advantage)

        parts = torch.arange(pmd.P).chunk(pmd.MINISTEPS)
        updates = []
        for part, (rows, their) in zip(parts, ministeps(rollouts, batch, pmd.MINISTEPS), strict=True):
            updates.append(learner.update(objective, rows, their))
            loss = pmd.pmd_mean(policy(prompts[part]).gather(1, answers[part]), logp_old[part], pmd.advantages(r)[part])
            loss.backward()
            optimizer.step()
            close(loss.item(), updates[-1]["loss"])
            for name, weight in model.state_dict().items():
                close(policy.state_dict()[name], weight)

        close(pmd.pass_rate(policy), held_out_pass_rate(learner, problem, task.held_out(256), 1, 0))
        change = (learner.logp(rollouts).detach() - rollouts.logp_old).view(r.shape)
        mixed = (r.mean(1) > 0) & (r.mean(1) < 1)
        mass, reward, change, tau = (x[mixed] for x in (groups.mass, r, change, batch.tau.view(r.shape)[:, 0]))
        row = StepMetrics(objective).gauge(rollouts, mass, reward, change, torch.ones_like(change), tau)
        columns = ("log_ratio_neg", "log_ratio_pos", "theory_log_ratio_neg", "theory_log_ratio_pos")
        close(pmd.gauges(policy, prompts, answers, logp_old, r), [row[name] for name in columns])


def test_it_learns_and_stands_alone(capsys):
    """From chance to 0.99; torch is all that it imports, and it has the length of three screens."""
    assert 0.08 < pmd.pass_rate(pmd.Policy(0)) < 0.1
    assert pmd.pass_rate(pmd.train(seed=0)) > 0.985
    assert len(capsys.readouterr().out.splitlines()) == 11
    imports = [n for n in ast.walk(ast.parse(TEXT)) if isinstance(n, ast.Import | ast.ImportFrom)]
    assert {getattr(n, "module", n.names[0].name) for n in imports} == {"torch"}
    assert len(TEXT.splitlines()) <= 150


def close(one, other):
    torch.testing.assert_close(torch.as_tensor(one), torch.as_tensor(other), atol=1e-12, rtol=0)


def test_the_readme_shows_its_core():
    readme = Path(pmd.__file__).with_name("README.md").read_text()
    (shown,) = re.findall(r'```python title="pmd.py"\n(.*?)```', readme, re.DOTALL)
    assert shown in TEXT
