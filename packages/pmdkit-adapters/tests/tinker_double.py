"""The Tinker SDK against a server in this process: a real model, its log-probabilities, gradients and AdamW.

Put in the place of the module `tinker`. All weights are trained, not adapters; nothing else differs for a caller.
`fault` plants what a server may do to the loss of a sequence; "sum" is what SkyRL 0.4 does as shipped.
"""

from copy import deepcopy
from types import SimpleNamespace

import torch
from torch import nn


class TinkerError(Exception):
    pass


REDUCE = {  # from the losses of tokens, their weights and the number of sequences to the loss of one sequence
    None: lambda losses, weights, count: losses.sum(),
    "sum": lambda losses, weights, count: losses.sum() / weights.sum().clamp_min(1e-9) / count,
    "absolute": lambda losses, weights, count: losses.sum() / weights.abs().sum().clamp_min(1e-9),
    "length": lambda losses, weights, count: losses.sum() / len(losses),
    "mean": lambda losses, weights, count: losses.sum() / count,
    "sign": lambda losses, weights, count: -losses.sum(),
    "positive": lambda losses, weights, count: losses[weights > 0].sum(),
}


class Tinker:
    """The module, and the state of its server."""

    TinkerError = TinkerError
    Datum = staticmethod(lambda model_input, loss_fn_inputs: SimpleNamespace(tokens=model_input, inputs=loss_fn_inputs))
    ModelInput = SimpleNamespace(from_ints=list)
    SamplingParams = staticmethod(lambda **given: SimpleNamespace(**given))
    AdamParams = staticmethod(
        lambda **given: {"beta1": 0.9, "beta2": 0.95, "eps": 1e-12, "weight_decay": 0.0, "grad_clip_norm": 0.0} | given
    )

    def __init__(self, name, model, fault=None, norms=True):
        self.name, self.model, self.fault, self.norms = name, model, fault, norms
        self.states, self.clients, self.sampled = {}, [], []

    def ServiceClient(self, base_url, api_key, http_client):
        found = SimpleNamespace(supported_models=[SimpleNamespace(model_name=self.name)])
        return SimpleNamespace(
            get_server_capabilities=lambda: found,
            create_lora_training_client=lambda base_model, rank, seed: Training(self),
            create_sampling_client=lambda base_model: done(Sampler(self, self.model)),  # SDK 0.38 gives a future
        )


def done(value):
    return SimpleNamespace(result=lambda: value)


def logp_of(model, tokens, targets):
    return model(torch.tensor([tokens])).logits[0].log_softmax(-1).gather(1, targets[:, None])[:, 0]


class Training:
    """A model that is trained; it counts its calls, since a state is loaded by the first or not at all."""

    def __init__(self, server):
        self.server, self.model = server, deepcopy(server.model).requires_grad_(True)
        self.adam = torch.optim.AdamW(self.model.parameters(), lr=0.0)
        self.number, self.calls, self.gradient = len(server.clients), 0, {}
        server.clients.append(self)

    def outputs(self, logps):
        kept = [{"logprobs": SimpleNamespace(data=logp.detach().tolist())} for logp in logps]
        return done(SimpleNamespace(loss_fn_outputs=kept, metrics={}))

    def forward(self, data, loss_fn):
        self.calls += 1
        with torch.no_grad():
            return self.outputs([logp_of(self.model, d.tokens, d.inputs["target_tokens"]) for d in data])

    def forward_backward(self, data, loss_fn):
        self.calls += 1
        found, losses = [], []
        for d in data:
            logp = logp_of(self.model, d.tokens, d.inputs["target_tokens"])
            if loss_fn == "cross_entropy":
                weights, gain = d.inputs["weights"], logp * d.inputs["weights"]
            else:
                weights = torch.ones(len(logp))
                gain = (logp - d.inputs["logprobs"]).exp() * d.inputs["advantages"]
            losses.append(REDUCE[self.server.fault](-gain, weights, len(data)))
            found.append(logp)
        torch.stack(losses).sum().backward()
        return self.outputs(found)

    def forward_backward_custom(self, data, loss_fn):
        logps = [torch.tensor(out["logprobs"].data) for out in self.forward(data, "").result().loss_fn_outputs]
        loss, _ = loss_fn(data, [logp.requires_grad_() for logp in logps])
        loss.backward()
        for d, logp in zip(data, logps, strict=True):
            assert set(d.inputs) == {"target_tokens"}
            d.inputs["weights"] = -logp.grad
        return self.forward_backward(data, "cross_entropy")

    def optim_step(self, adam):
        self.calls += 1
        weights = dict(self.model.named_parameters())
        self.gradient = {name: x.grad for name, x in weights.items() if x.grad is not None}
        norm = torch.nn.utils.get_total_norm(list(self.gradient.values()))
        if adam["grad_clip_norm"]:
            nn.utils.clip_grad_norm_(weights.values(), adam["grad_clip_norm"])
        names = {"lr": "learning_rate", "eps": "eps", "weight_decay": "weight_decay"}
        self.adam.param_groups[0] |= {ours: adam[theirs] for ours, theirs in names.items()}
        self.adam.param_groups[0]["betas"] = (adam["beta1"], adam["beta2"])
        self.adam.step()
        self.adam.zero_grad()
        return done(SimpleNamespace(metrics={"double/grad_norm": float(norm)} if self.server.norms else None))

    def save_state(self, name):
        self.calls += 1
        path = f"tinker://{self.number}/{name}"
        self.server.states[path] = deepcopy((self.model.state_dict(), self.adam.state_dict()))
        return done(SimpleNamespace(path=path))

    def load_state_with_optimizer(self, path):
        if self.calls or path not in self.server.states:
            raise TinkerError(f"there is no {path}" if not self.calls else "a state is loaded first")
        weights, adam = deepcopy(self.server.states[path])
        self.model.load_state_dict(weights)
        self.adam.load_state_dict(adam)
        return done(None)

    def save_weights_and_get_sampling_client(self):
        return Sampler(self.server, deepcopy(self.model))


class Sampler:
    """Draws from weights that no longer change."""

    def __init__(self, server, model):
        self.server, self.model = server, model

    @torch.no_grad()
    def sample(self, prompt, num_samples, sampling_params):
        generator, rows = torch.Generator().manual_seed(sampling_params.seed), []
        self.server.sampled.append((tuple(prompt), num_samples))
        for _ in range(num_samples):
            tokens, logps = [], []
            while len(tokens) < sampling_params.max_tokens and (not tokens or tokens[-1] not in sampling_params.stop):
                logits = self.model(torch.tensor([prompt + tokens])).logits[0, -1]
                policy = (logits / sampling_params.temperature).log_softmax(-1)
                tokens.append(int(torch.multinomial(policy.exp(), 1, generator=generator)))
                logps.append(policy[tokens[-1]].item())
            rows.append(SimpleNamespace(tokens=tokens, logprobs=logps))
        return done(SimpleNamespace(sequences=rows))

    @torch.no_grad()
    def compute_logprobs(self, prompt):
        return done([None, *logp_of(self.model, prompt[:-1], torch.tensor(prompt[1:])).tolist()])
