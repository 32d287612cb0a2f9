"""Sums in stories with a calculator as a tool, in TRL."""

import re

from datasets import load_dataset
from transformers import AutoTokenizer
from trl import GRPOConfig, GRPOTrainer

BEFORE = (
    "Solve the following math problem step by step. The last line of your response should be of the form "
    "Answer: $Answer (without quotes) where $Answer is the answer to the problem.\n\n"
)
AFTER = '\n\nRemember to put your answer on its own line after "Answer:".'


def to_prompt(row):
    prompt = [{"role": "user", "content": BEFORE + row["question"] + AFTER}]
    return {"prompt": prompt, "gold": row["answer"].rpartition("####")[2].strip()}


def calculator(expression: str) -> str:
    """Adds up numbers.

    Args:
        expression: numbers and plus signs, such as 3+4+8.

    Returns:
        The sum.
    """
    return str(sum(int(number) for number in expression.split("+")))


def math(completions, gold, **_):
    said = [re.findall(r"Answer: *(-?\d+)", completion[-1]["content"]) for completion in completions]
    return [
        float(bool(numbers) and int(numbers[-1]) == int(answer)) for numbers, answer in zip(said, gold, strict=True)
    ]


tokenizer = AutoTokenizer.from_pretrained("caller")
tokenizer.chat_template = (  # the starter's own is refused: TRL wants names and arguments of calls shown
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n{{ message['content'] }}"
    "{% for call in message.get('tool_calls') or [] %}{{ call.function.name }}{{ call.function.arguments | tojson }}"
    "{% endfor %}<|im_end|>\n{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
tokenizer.response_template = {  # how this model writes a call; TRL knows the templates of some families
    "defaults": {"role": "assistant"},
    "start_anchor": "<|im_start|>assistant\n",
    "fields": {
        "tool_calls": {
            "open": "Calculate: ",
            "close_pattern": r"<\|im_end\|>\s*",
            "repeats": True,
            "content": "text",
            "transform": {
                "type": "function",
                "function": {"name": "calculator", "arguments": {"expression": "{content}"}},
            },
        },
        "content": {"close_pattern": r"<\|im_end\|>\s*", "content": "text"},
    },
}
config = GRPOConfig(
    output_dir="trained",
    learning_rate=3e-4,
    lr_scheduler_type="constant",
    max_steps=20,
    per_device_train_batch_size=64,
    num_generations=8,
    max_completion_length=96,
    max_tool_calling_iterations=2,
    loss_type="grpo",
    logging_steps=1,
    save_strategy="no",
    report_to="none",
    use_cpu=True,
    bf16=False,
    gradient_checkpointing=False,
)
data = load_dataset("json", data_files="sums.jsonl", split="train").map(to_prompt)
trainer = GRPOTrainer("caller", math, config, train_dataset=data, processing_class=tokenizer, tools=[calculator])
trainer.train()
trainer.save_model("trained")
