"""Sums in stories with a reward for the format beside that for the answer, in TRL."""

import re

from datasets import load_dataset
from trl import GRPOConfig, GRPOTrainer

BEFORE = (
    "Solve the following math problem step by step. The last line of your response should be of the form "
    "Answer: $Answer (without quotes) where $Answer is the answer to the problem.\n\n"
)
AFTER = '\n\nRemember to put your answer on its own line after "Answer:".'


def to_prompt(row):
    prompt = [{"role": "user", "content": BEFORE + row["question"] + AFTER}]
    return {"prompt": prompt, "gold": row["answer"].rpartition("####")[2].strip()}


def math(completions, gold, **_):
    said = [re.findall(r"Answer: *(-?\d+)", completion[0]["content"]) for completion in completions]
    return [
        float(bool(numbers) and int(numbers[-1]) == int(answer)) for numbers, answer in zip(said, gold, strict=True)
    ]


def form(completions, **_):
    texts = [completion[0]["content"] for completion in completions]
    return [float(bool(re.search(r"(^|\n)Answer: \d+$", text))) for text in texts]


config = GRPOConfig(
    output_dir="trained",
    learning_rate=3e-4,
    lr_scheduler_type="constant",
    max_steps=20,
    per_device_train_batch_size=64,
    num_generations=8,
    max_completion_length=48,
    loss_type="grpo",
    reward_weights=[1.0, 0.2],
    logging_steps=1,
    save_strategy="no",
    report_to="none",
    use_cpu=True,
    bf16=False,
    gradient_checkpointing=False,
)
data = load_dataset("json", data_files="sums.jsonl", split="train").map(to_prompt)
trainer = GRPOTrainer("starter", [math, form], config, train_dataset=data)
trainer.train()
trainer.save_model("trained")
