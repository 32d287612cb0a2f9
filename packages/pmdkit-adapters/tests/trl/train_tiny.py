"""A tiny Qwen2 trained by PMDTrainer on fixed responses; prints what each ministep saw. One or more processes.

`torchrun --nproc-per-node 2 train_tiny.py OUT '{"micro": 2, ...}'`; the tests also import it.
"""

import json
import sys
import tempfile
from pathlib import Path

import torch
from datasets import Dataset
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import WhitespaceSplit
from transformers import PreTrainedTokenizerFast, PrinterCallback, Qwen2Config, Qwen2ForCausalLM, TrainerCallback

from pmdkit_adapters.trl import PMDConfig, PMDRecorder, PMDTrainer

WORDS, END = 40, 1
SIZE = 4


def model_and_tokenizer():
    """Random weights, the same every time, large enough that no distribution is flat."""
    words = Tokenizer(WordLevel({f"w{k}": k for k in range(WORDS)}, unk_token="w0"))
    words.pre_tokenizer = WhitespaceSplit()
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=words, eos_token=f"w{END}", pad_token="w0")
    torch.manual_seed(0)
    model = Qwen2ForCausalLM(
        Qwen2Config(
            vocab_size=WORDS, hidden_size=16, intermediate_size=32, num_hidden_layers=2, num_attention_heads=2,
            num_key_value_heads=1, initializer_range=0.3, eos_token_id=END, pad_token_id=0,
        )
    )  # fmt: skip
    return model, tokenizer


def prompt(number):
    """[L] tokens; the length differs from prompt to prompt."""
    return [2 + (number * 7 + k) % (WORDS - 2) for k in range(1 + number % 3)]


def response(row):
    """[T] tokens of a row, the end token last; one to five of them."""
    return [2 + (row * 11 + 5 * k) % (WORDS - 2) for k in range(row % 5)] + [END]


def reward(row):
    """None where there is no verdict."""
    return None if row == 6 else float((row * row + row // 3) % 3 == 0)


def rollout(prompts, trainer):
    """What a vLLM or a program of the user's would return. A dataset row is its prompt's number in words."""
    numbers = [int(text.split()[0][1:]) for text in prompts]
    begin = trainer.accelerator.process_index * len(numbers)
    rows = [number * SIZE + (begin + k) % SIZE for k, number in enumerate(numbers)]
    return {
        "prompt_ids": [prompt(number) for number in numbers],
        "completion_ids": [response(row) for row in rows],
        "logprobs": None,
        "row": rows,
    }


class Watch(TrainerCallback):
    """The gradient of each ministep, as the optimizer has it."""

    def __init__(self, model):
        self.model, self.gradients = model, []

    def on_pre_optimizer_step(self, *_, **__):
        """Called once per ministep."""
        self.gradients.append({name: p.grad.clone() for name, p in self.model.named_parameters()})


class Seen(PMDTrainer):
    """Sums the losses of each ministep."""

    losses = ()

    def _compute_loss(self, model, inputs):
        loss = super()._compute_loss(model, inputs)
        self.losses = (*self.losses, loss.item())
        return loss


def train(prompts, micro, accumulation, per_rollout, updates, lr=0.0, objective=None, record=None, **settings):
    """The trainer, its log, and the gradient of every ministep; `record` has arguments of a recorder."""
    trainer, kind = settings.pop("trainer", Seen), settings.pop("kind", PMDConfig)
    model, tokenizer = model_and_tokenizer()
    watch = Watch(model)
    with tempfile.TemporaryDirectory() as folder:
        config = kind(
            output_dir=folder, use_cpu=True, bf16=False, per_device_train_batch_size=micro,
            gradient_accumulation_steps=accumulation, steps_per_generation=per_rollout, num_generations=SIZE,
            max_steps=updates, max_completion_length=8, learning_rate=lr, max_grad_norm=0.0, optim="sgd",
            lr_scheduler_type="constant", shuffle_dataset=False, gradient_checkpointing=False, save_strategy="no",
            logging_steps=1, report_to="none", disable_tqdm=True, **settings,
        )  # fmt: skip
        made = trainer(
            model,
            lambda row, **_: [reward(one) for one in row],
            config,
            Dataset.from_dict({"prompt": [f"w{number}" for number in range(prompts)]}),
            processing_class=tokenizer,
            callbacks=[watch],
            rollout_func=rollout,
            **({} if objective is None else {"objective": objective}),
        )
        made.remove_callback(PrinterCallback)
        if record is not None:
            PMDRecorder(**record).watch(made)
        made.train()
    return made, made.state.log_history, watch.gradients


if __name__ == "__main__":
    torch.set_num_threads(1)
    out, options = Path(sys.argv[1]), json.loads(sys.argv[2])
    made, log, gradients = train(**options)
    if made.accelerator.is_main_process:
        kept = [{name: g.tolist() for name, g in one.items()} for one in gradients]
        out.write_text(
            json.dumps({"losses": [row["loss"] for row in log if "loss" in row], "gradients": kept, "log": log})
        )
