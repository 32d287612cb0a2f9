"""Mistakes to plant into the trainer of 7B over 32 processes, and five correct changes; see `driver.py`."""

# ruff: noqa: E501  (a mistake is a line)

UPDATE = "learner", "CausalLearner.update", "report: dict[str, float] = {}"
SWAPPED = ".".join(f'replace("layers.{a}.", "layers.{b}.")' for a, b in ("0X", "10", "X1"))
# name: file, function, what stands there, what is planted
MISTAKES = {
    "targets on the host": ("logprobs", "hidden_at_targets", "torch.tensor(targets, device=device)", "torch.tensor(targets)"),
    "a shard is published": ("weights", "full_tensor", "tensor.full_tensor() if isinstance(tensor, DTensor) else tensor", "tensor"),
    "scores of rank 0 alone": ("policy", "CausalPolicy.logp", "torch.cat(group.gather(torch.cat(mine).cpu()))", "group.gather(torch.cat(mine).cpu())[0]"),
    "a prefix too many": ("learner", "CausalLearner.gathered_weights", "else weights.named_weights(self.model)\n", "else {f'x.{k}': v for k, v in weights.named_weights(self.model).items()}\n"),
    "all take the rows of rank 0": ("learner", "CausalLearner.update", ")[group.rank]", ")[0]"),
    "rank 0 alone makes a pass": (*UPDATE, f"{UPDATE[2]}\n    group.is_main_process and self.expected_logp()"),
    "rank 0 alone sums a number": (*UPDATE, f"{UPDATE[2]}\n    group.is_main_process and torch.distributed.all_reduce(torch.zeros(1, device=group.device))"),
    "published in float32": ("learner", "CausalLearner.gathered_weights", "torch.bfloat16 if self.policy.bfloat16 else None", "None"),
    "logits in bfloat16": ("head", "ChunkedHead.__init__", "torch.float32 if self.half else states.dtype", "states.dtype"),
    "a third moment": (*UPDATE, f"{UPDATE[2]}\n    for some in self.optimizer.param_groups: some['amsgrad'] = True"),
    "a reference for nothing": ("backend", "make_policy", "reference=traits(objective).uses_reference", "reference=True"),
    "flash attention lost": ("packed_attention", "choose_kernel", '"varlen" if fits', '"sdpa" if fits'),
    "two layers swapped": ("weights", "GatheredWeights.__getitem__", "self.source[name]", f"self.source[name.{SWAPPED}]"),
    "logits of every pass kept": ("head", "ChunkedHead.__init__", "self.temperature = temperature", "self.temperature = temperature\n    torch.kept = [*getattr(torch, 'kept', []), self]"),
    "64 MiB kept a step": (*UPDATE, f"{UPDATE[2]}\n    self.kept = [*getattr(self, 'kept', []), torch.zeros(2**26, dtype=torch.uint8, device=group.device)]"),
    "gradients of scores kept": ("policy", "CausalPolicy.logp", "mine = [", "torch.set_grad_enabled(True)\n    mine = ["),
    "all logits at once": ("fused_loss", "fused_linear_loss", "coefficients, head_tokens, temperature)", "coefficients, 10**6, temperature)"),
    "gradients averaged": ("fsdp2", "shard", "set_gradient_divide_factor(1.0)", "set_gradient_divide_factor(32.0)"),
    "gradients kept after the step": ("learner", "CausalLearner.update", "self.optimizer.zero_grad(set_to_none=True)  # the engine needs", "pass  # the engine needs"),
    "positions on the host": ("packed_attention", "PackedLayout.positions", ".to(device)", ""),
    "a batch on the host": ("fused_loss", "ResponseCoefficients.__init__", "batch_on(states.device, folded)", "folded"),
    "a product of two dtypes": ("head", "matmul_operands", "weight = weight.to(states.dtype)", "weight = weight.float()"),
    "a product of other shapes": ("head", "ChunkedHead.backward", "torch.addmm(grad_weight, dz.T, x,", "torch.addmm(grad_weight, dz, x,"),
    "a wait in every layer": ("packed_attention", "PackedLayout.attend", "if self.kept is not None:", "float(query.sum())\n    if self.kept is not None:"),
}  # fmt: skip
# what the rehearsal says of some, and where: the innermost line of pmdkit, of the mistake or of the call that shows it
REFUSED = {
    "positions on the host": ("FakeTensorDeviceMismatchError", "llm/packing.py"),  # the model adds them to its states
    "a batch on the host": ("FakeTensorDeviceMismatchError", "objectives/batch.py"),
    "a product of two dtypes": ("TypeError", "llm/head.py"),
    "a product of other shapes": ("RuntimeError", "llm/head.py"),
    "a shard is published": ("vLLM", "llm/engines/vllm/colocate.py"),
}
# these change nothing but numbers, which fake tensors lack
NUMBERS = ("two layers swapped", "gradients averaged")
CORRECT = {
    "the logarithm by its function": ("head", "ChunkedHead.forward", "- self.sums.log()", "- torch.log(self.sums)"),
    "numbers repeated response by response": ("fused_loss", "forward_backward", "c.repeat_interleave(own, output_size=place.stop - place.start)", "torch.cat([number.expand(length) for number, length in zip(c, lengths[rows], strict=True)])"),
    "lines moved": (*UPDATE, f"{UPDATE[2]}\n\n\n\n    assert not report"),
    "factors in another order": ("head", "ChunkedHead.backward", "(-coefficient.to(self.wide) / (self.temperature * self.sums))", "(-coefficient.to(self.wide) / self.sums / self.temperature)"),
    "positions counted from the prompt": ("packed_attention", "PackedLayout.positions", "torch.arange(len(head), len(head) + length)", "len(head) + torch.arange(length)"),
}  # fmt: skip
