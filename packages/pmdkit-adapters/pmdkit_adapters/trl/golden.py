"""The golden vectors through TRL: PMDTrainer trains on recorded responses and log-probabilities.

Everything in between is TRL's: sampler, rewards, shuffle, micro-batches, accumulation, backward. The tiny model is
there because GRPOTrainer needs one; a table replaces its token scores.
"""

import logging
import tempfile
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from datasets import Dataset
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from transformers import PreTrainedTokenizerFast, PrinterCallback, Qwen2Config, Qwen2ForCausalLM

from pmdkit.observe.telemetry import quietly
from pmdkit.testing.golden import Case, Result, objective_of, rows_of
from pmdkit_adapters.trl import PMDConfig, PMDTrainer

PAD, FIRST = 0, 1  # token ids: padding; from here on, the number of a row or prompt


def path(case: Case) -> Result:
    """Losses of the ministeps, and the gradient with respect to every token's log-probability.

    TRL trains once on the case's responses, a group in a micro-batch.
    """
    prompts, size = len(case["reward"]), len(case["reward"][0])
    updates = case["ministeps"]
    words = {"pad": PAD} | {f"p{k}": FIRST + k for k in range(prompts * size)}
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=Tokenizer(WordLevel(words, unk_token="pad")), pad_token="pad", eos_token="pad"
    )
    tiny: dict[str, Any] = dict.fromkeys(("hidden_size", "intermediate_size"), 4)
    tiny |= dict.fromkeys(("num_hidden_layers", "num_attention_heads", "num_key_value_heads"), 1)
    model = Qwen2ForCausalLM(Qwen2Config(vocab_size=len(words), **tiny))
    with tempfile.TemporaryDirectory() as folder, silent():
        config = RecordedConfig(
            output_dir=folder,
            use_cpu=True,
            bf16=False,
            per_device_train_batch_size=size,
            steps_per_generation=prompts,
            gradient_accumulation_steps=prompts // updates,
            num_generations=size,
            max_steps=updates,
            max_completion_length=case["width"] or max(map(len, case["logp"])),
            max_grad_norm=0.0,
            shuffle_dataset=False,
            gradient_checkpointing=False,
            save_strategy="no",
            logging_steps=1,
            report_to="none",
            disable_tqdm=True,
            num_iterations=2,  # so that TRL scores pi_old; only the first pass is run
        )
        trainer = Recorded(case, model, config, tokenizer)
        trainer.remove_callback(PrinterCallback)
        trainer.train()
    return trainer.losses, trainer.gradient()


@contextmanager
def silent() -> Iterator[None]:
    """Suppress advice about a model that generates nothing, and a message for each reward that is None."""
    logger = logging.getLogger("trl")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with quietly(), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logger.setLevel(level)


class RecordedConfig(PMDConfig):
    """Settings for any version of TRL."""

    version_checked = True


class Recorded(PMDTrainer):
    """PMDTrainer whose responses, rewards and log-probabilities are those of a case."""

    def __init__(self, case: Case, model: Any, config: PMDConfig, tokenizer: Any) -> None:
        self.case = case
        self.table = torch.nn.Parameter(rows_of(case, "logp_old"))
        self.losses = [0.0] * case["ministeps"]
        super().__init__(
            model,
            self.reward,
            config,
            Dataset.from_dict({"prompt": [f"p{p}" for p in range(len(case["reward"]))]}),
            processing_class=tokenizer,
            objective=objective_of(case),
            optimizers=(torch.optim.SGD([self.table], lr=0.0), None),
        )

    def reward(self, completion_ids: list[list[int]], **_: Any) -> list[float | None]:
        """The recorded rewards. TRL asks for them after scoring pi_old, so this is where the policy moves."""
        with torch.no_grad():
            self.table.copy_(rows_of(self.case, "logp"))
        flat = [reward for group in self.case["reward"] for reward in group]
        return [flat[ids[0] - FIRST] for ids in completion_ids]

    def _generate(self, prompts: list[str]) -> tuple[Any, ...]:
        """The recorded responses: each begins with the number of its row."""
        size = len(self.case["reward"][0])
        asked = [int(prompt[1:]) for prompt in prompts]
        rows = [prompt * size + k % size for k, prompt in enumerate(asked)]
        masks = [self.case["mask"][row] for row in rows]
        ids = [[FIRST + row] + [FIRST] * (len(mask) - 1) for row, mask in zip(rows, masks, strict=True)]
        return [[FIRST]] * len(rows), ids, masks, [""] * len(rows), None, {}, None, []

    def _get_per_token_logps_and_entropies(
        self, model: Any, input_ids: torch.Tensor, attention_mask: torch.Tensor, logits_to_keep: int, *_: Any, **__: Any
    ) -> tuple[torch.Tensor, None, None]:
        """The recorded log-probabilities of these rows."""
        return self.table[input_ids[:, -logits_to_keep] - FIRST, :logits_to_keep], None, None

    def _compute_loss(self, model: Any, inputs: dict[str, Any]) -> torch.Tensor:
        loss = super()._compute_loss(model, inputs)
        self.losses[self._step // self.args.gradient_accumulation_steps] += loss.item()
        return loss

    def gradient(self) -> list[list[float]]:
        """[N][T_n] of all ministeps: Trainer clears the gradients of its model only, and a row is in one ministep."""
        assert self.table.grad is not None
        return [row[: len(tokens)].tolist() for row, tokens in zip(self.table.grad, self.case["logp"], strict=True)]
