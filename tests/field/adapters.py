"""The losses of other projects, cut from their source: of each, how it is given the same batch as pmdkit's objectives.

None of their code is here: `cut` takes definitions from an installed release, or from a commit of a checkout, and an
adapter calls them. field.toml has what is cut, its digest, and the objective that it was found to be.
"""

import __future__

import ast
import hashlib
import os
import subprocess
import tomllib
from collections import defaultdict
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from types import CodeType, SimpleNamespace
from typing import Any

import numpy as np
import torch

FIELD = tomllib.loads(Path(__file__).with_name("field.toml").read_text(encoding="utf-8"))
RECORD = FIELD["cut"]
PACKAGES = os.environ.get("PMDKIT_FIELD_PACKAGES")  # the --target of pip
CHECKOUTS = os.environ.get("PMDKIT_FIELD_CHECKOUTS")  # OWNER/NAME below it
NEWEST = bool(os.environ.get("PMDKIT_FIELD_NEWEST"))
ADAPTERS: dict[str, Any] = {}


class Config(dict):
    """A configuration as verl has them: attributes, None where there is no key."""

    __getattr__ = dict.get


def read(entry: dict[str, Any], path: str) -> str | None:
    """The text of a source file; None if there is no package or checkout to read it from."""
    if "package" in entry:
        if PACKAGES is None:
            return None
        file = Path(PACKAGES) / path
        assert file.exists(), f"{entry['package']} has no {path}; moved: look again"
        return file.read_text(encoding="utf-8")
    repository, commit = entry["checkout"].split("@")
    if CHECKOUTS is None or not (folder := Path(CHECKOUTS) / repository).exists():
        return None
    where = f"{entry['branch'] if NEWEST else commit}:{path}"
    shown = subprocess.run(["git", "-C", str(folder), "show", where], capture_output=True, text=True)
    assert shown.returncode == 0, f"{repository}: {shown.stderr}; moved: look again"
    return shown.stdout


def cut(entry: dict[str, Any]) -> tuple[CodeType, str] | None:
    """The definitions of an entry as one piece of code, and the sha256 of their text; None without their source.

    A name is that of a function, a class, a method as CLASS.METHOD, or a variable, of which all assignments are taken.
    Decorators go, but for dataclass. What is under `defaults` is in the digest only: "as shipped" is about it too.
    """
    kept, text = [], []
    for path, names in (entry["definitions"] | entry.get("defaults", {})).items():
        source = read(entry, path)
        if source is None:
            return None
        lines, tree, nodes = source.splitlines(), ast.parse(source), []
        for name in names:
            found = [tree]
            for part in name.split("."):
                found = [node for outer in found for node in ast.walk(outer) if part in defined(node)]
            assert found, f"{path} has no {name}; moved: look again"
            nodes += found
        nodes.sort(key=lambda node: node.lineno)
        for node in nodes:
            if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
                node.decorator_list = [each for each in node.decorator_list if "dataclass" in ast.dump(each)]
            text += lines[node.lineno - 1 : node.end_lineno]
        kept += nodes if path in entry["definitions"] else []
    lazy = __future__.annotations.compiler_flag
    code = compile(ast.Module(kept, []), entry.get("package") or entry["checkout"], "exec", lazy)
    return code, hashlib.sha256("\n".join(text).encode()).hexdigest()


def defined(node: ast.AST) -> list[str]:
    """The names that a statement defines."""
    if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
        return [node.name]
    targets = node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AnnAssign) else []
    return [each.id for each in targets if isinstance(each, ast.Name)]


def run(code: CodeType, **given: Any) -> SimpleNamespace:
    """What the code defines. `given` stands for what it imports; types and logging are of no matter to a loss."""
    names = {"torch": torch, "np": np, "dataclass": dataclass, "field": field, "defaultdict": defaultdict}
    space = names | {"__name__": __name__, "AlgoConfig": type(None)} | given
    exec(code, space)
    return SimpleNamespace(**space)


class Given:
    """Rewards [P, G], old log-probabilities and mask [N, T], and what trainers make of them before the loss."""

    def __init__(self, reward, old, mask):
        self.reward, self.old, self.mask = reward, old, mask
        self.advantage = self.rows(reward - reward.mean(1, keepdim=True))  # on the tokens

    def rows(self, values):
        return values.flatten()[:, None] * self.mask

    def mean(self, losses):
        return (losses * self.mask).sum() / self.mask.sum()


def of(*names):
    """Register `adapter(code, batch, tau) -> loss of logp` under the names of the record."""
    return lambda adapter: ADAPTERS.update(dict.fromkeys(names, adapter)) or adapter


def verl(function, **config):
    def adapter(code, b, tau):
        space = SimpleNamespace()
        module = run(code, verl_F=space)
        space.__dict__.update(module.__dict__)
        policy = {"dro_beta": tau}
        settings = Config(global_batch_info={}, policy_loss=Config(policy), **config)
        return lambda logp: getattr(module, function)(b.old, logp, b.advantage, b.mask, "token-mean", settings)[0]

    return adapter


of("verl `dro`")(verl("compute_policy_loss_dro"))
of("verl `dppo_tv` (no Kimi in it)")(verl("compute_policy_loss_dppo_tv", clip_ratio=0.2, clip_ratio_c=20.0))
of("verl `dppo_kl`")(verl("compute_policy_loss_dppo_kl", clip_ratio=0.05, clip_ratio_c=20.0))


def openkimi(advantage):
    def adapter(code, b, tau):
        module, config = run(code), Config(partition_tau=tau, policy_loss=Config(pmd_tau=tau))
        values = advantage(module, b, config)
        mode = "seq-mean-token-mean"
        return lambda logp: module.compute_policy_loss_opmd(b.old, logp, values, b.mask, mode, config)[0]

    return adapter


def ploo(module, b, config):
    scores, group = b.rows(b.reward), np.repeat(np.arange(len(b.reward)).astype(str), b.reward.shape[1])
    scores[:, 1:] = 0  # a reward is the sum over the tokens
    return module.compute_partition_loo_outcome_advantage(scores, b.mask, group, config=config)[0]


# `rloo` is verl's own: the mean without the own draw
of("OpenKimi, `rloo`")(openkimi(lambda module, b, config: b.advantage * b.reward.shape[1] / (b.reward.shape[1] - 1)))
of("OpenKimi, `ploo`")(openkimi(ploo))


def prime_rl(function, **options):
    def adapter(code, b, tau):
        module = run(code)
        config = Config({name: tau / 2 if value == "tau / 2" else value for name, value in options.items()})
        config |= {"adv_tau": 1.0, "tau": tau}

        def loss(logp):
            rows = [list(each) for each in (logp, b.old, b.advantage, b.mask)]
            call = partial(getattr(module, function), loss_config=config)
            none = {f"{name}_weights": None for name in ("rl", "ce", "ref_kl")}
            scales = {"rl_scale": b.mask.sum(), "ce_scale": 1, "ref_kl_scale": 1}
            return module.compute_loss(rows[0], rows[1], None, *rows[2:], **none, rl_loss_fn=call, **scales)[0]

        return loss

    return adapter


REGION = {"dppo_mask_low": 0.2, "dppo_mask_high": 0.2}
of("prime-rl `default`, kl_tau = tau / 2")(prime_rl("default_loss_fn", **REGION, kl_tau="tau / 2"))
of("prime-rl `default`, kl_tau = 0.001 as shipped")(prime_rl("default_loss_fn", **REGION, kl_tau=1e-3))
of("prime-rl `ipo`")(prime_rl("ipo_loss_fn", ipo_threshold=0.1, kl_tau="tau / 2"))
of("prime-rl `kpop`")(prime_rl("kpop_loss_fn", kpop_threshold=0.1, kl_tau="tau / 2"))
of("prime-rl `kimi_k15`, as shipped")(prime_rl("kimi_k15_loss_fn", sequence_regularizer=False))
of("prime-rl `kimi_k15`, `sequence_regularizer`")(prime_rl("kimi_k15_loss_fn", sequence_regularizer=True))


def a2po(ratio):
    """beta1 is `ratio` times beta2. The value of a prompt is estimated before the training; here, from the batch."""

    def adapter(code, b, tau):
        beta, draws = ratio * tau, b.reward.shape[1]
        value = beta * ((b.reward / beta).logsumexp(1, keepdim=True) - np.log(draws)).expand_as(b.reward).flatten()
        inputs = {"rewards": b.reward.flatten(), "v_star": value, "ref_logps": (b.old * b.mask).sum(1)}
        inputs |= dict.fromkeys(("input_ids", "attention_mask", "logits_to_keep"))
        trainer = SimpleNamespace(model=Config(training=True), args=Config(beta2=tau), _metrics=defaultdict(Metrics))
        trainer._get_sequence_logps = lambda logp, *inputs: (logp * b.mask).sum(1)
        return lambda logp: run(code).compute_loss(trainer, logp, inputs)

    return adapter


Metrics = partial(defaultdict, list)
of("TRL A2PO, $\\beta_1 = 5\\beta_2$")(a2po(5))
of("TRL A2PO, as shipped: $\\beta_1 = 500\\beta_2$")(a2po(500))


def method(name, *given, **attributes):
    """A method called without its class: what it reads of it is in `attributes`, what it is called with in `given`."""

    def adapter(code, b, tau):
        known = {name: value(tau) if callable(value) else value for name, value in attributes.items()}
        call = partial(getattr(run(code), name), Config(known))
        return lambda logp: first(call(logp, *(getattr(b, each) for each in given)))

    return adapter


def first(found):
    return found[0] if isinstance(found, tuple) else found


K2 = {"clip_mode": "none", "weight": "none", "regularizer": "k2", "regularizer_coef": lambda tau: tau / 2}
of("Trinity `rec`, `k2`")(method("__call__", "old", "mask", "advantage", **K2))
of("Trinity `opmd`")(method("__call__", "mask", "advantage", tau=lambda tau: tau, loss_agg_mode="token-mean"))
PPO = {"clip_eps_low": 0.2, "clip_eps_high": 0.28, "policy_loss_type": "ppo", "is_correction_level": "off"}
of("OpenRLHF `PolicyLoss`")(method("forward", "old", "advantage", "mask", token_level_loss=True, **PPO))


@of("rlhf-book `DAPOLoss`")
def rlhf_book(code, b, tau):
    batch = SimpleNamespace(log_probs_old=b.old, advantages=b.advantage, action_mask=b.mask)
    return lambda logp: run(code).forward(SimpleNamespace(clip_eps_lo=0.2, clip_eps_hi=0.28), logp, batch)


@of("torchtitan `DAPOLoss`")
def torchtitan(code, b, tau):
    call = run(code, compute_logprobs=lambda logp, labels, **unused: (logp, 0 * logp)).__call__
    batch = {"generator_logprobs": b.old.flatten(), "advantages": b.advantage.flatten(), "loss_mask": b.mask.flatten()}
    loss = SimpleNamespace(ratio_clip_low=0.2, ratio_clip_high=0.28)
    return lambda logp: call(loss, logp.flatten(), None, float(b.mask.sum()), **batch)[0]


@of("AReaL `ppo_actor_loss_fn`")
def areal(code, b, tau):
    loss = run(code).ppo_actor_loss_fn
    return lambda logp: loss(logp, b.old, b.old, b.advantage, 0.2, b.mask, eps_clip_higher=0.28)[0]


@of("slime `compute_policy_loss`")
def slime(code, b, tau):
    return lambda logp: b.mean(run(code).compute_policy_loss(b.old - logp, b.advantage, 0.2, 0.28)[0])


@of("open-instruct `dapo`")
def open_instruct(code, b, tau):
    loss = run(code, GRPOLossType=SimpleNamespace(dapo="dapo")).compute_grpo_loss
    config = SimpleNamespace(loss_fn="dapo", clip_lower=0.2, clip_higher=0.28)
    return lambda logp: b.mean(loss(logp, (logp - b.old).exp(), b.advantage, None, config, b.mask.double())[0])


@of("nanochat `chat_rl`")
def nanochat(code, b, tau):
    """The lines of a script: one prompt at a time there, all in one pass here."""
    rest = {"targets": torch.where(b.mask, 0, -1), "num_passes": 1, "examples_per_rank": 1}
    return lambda logp: run(code, logp=torch.where(b.mask, logp, 0), advantages=b.advantage[:, 0], **rest).loss


def skyrl(function, **config):
    def adapter(code, b, tau):
        module = run(code, apply_off_policy_correction=lambda loss, old, rollout, mask, none: (loss, mask, {}))
        share = module.apply_loss_reduction_to_advantages_minibatch
        advantage = share(b.advantage, b.mask, "token_mean", len(b.old), b.old.shape[1])
        return lambda logp: getattr(module, function)(logp, b.old, advantage, Config(config), b.mask.double(), b.old)[0]

    return adapter


of("SkyRL `dppo`")(skyrl("dppo_policy_loss", dppo=Config(dppo_type="binary_tv", delta_low=0.2, delta_high=0.2)))
of("SkyRL `rollout_is`")(skyrl("rollout_is_policy_loss", eps_clip_low=0.5, eps_clip_high=4.0))
