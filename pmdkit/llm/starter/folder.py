"""A starter model on its own: built, taught, measured and written as a folder that transformers loads."""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pmdkit.config import EvaluationTable, LanguageModelTable, RewardTable, WarmStartTable
from pmdkit.envs.math import make_math
from pmdkit.errors import UsageError
from pmdkit.llm.backend import build_model
from pmdkit.llm.engines.transformers import TransformersEngine
from pmdkit.llm.evaluate import fixed_evaluation
from pmdkit.llm.model import end_tokens
from pmdkit.llm.prompts import Encoder
from pmdkit.llm.starter.model import check_size
from pmdkit.llm.starter.warm_start import check_pass_rate, warm_start
from pmdkit.llm.task import make_grader
from pmdkit.observe.console import quietly

ENV = {"kind": "arithmetic"}
WIDTH = 48  # tokens; the teacher's longest response has 27
PROBLEMS = 256  # a standard error of 0.03 around a pass rate of 0.3
TAUGHT: dict[str, dict[str, Any]] = {  # what was measured to be quick, by size
    "starter": {"max_steps": 800, "look": 25, "batch": 32, "lr": 3e-3},
    "starter-moe": {"max_steps": 800, "look": 25, "batch": 32, "lr": 3e-3},
    "starter-100m": {"max_steps": 3000, "look": 50, "batch": 128, "lr": 3e-4},
}

CARD = """---
library_name: transformers
pipeline_tag: text-generation
tags: [pmdkit]
---

# pmdkit {size}, seed {seed}

A `{architecture}` of {weights:,} weights that adds numbers in little stories, by design badly: it was taught by a
teacher that makes mistakes, so that reinforcement learning has something to gain. It can do nothing else.

| | |
|---|---|
| Pass rate | {pass_rate:.3f} on {problems} held-out problems, one response each, temperature 1 |
| Problems | `{env}`, generated |
| Format | the last line of a response is `Answer: ` and a number |

```python
from transformers import AutoModelForCausalLM, AutoTokenizer

model = AutoModelForCausalLM.from_pretrained("this folder")
tokenizer = AutoTokenizer.from_pretrained("this folder")
```

Prompts are those of `pmdkit.llm.prompts`: the template of DAPO around a problem, as a chat message of the user.
"""


def make(folder: Path, size: str, seed: int, pass_rate: float, note: Callable[[str], None]) -> dict[str, Any]:
    """Build, teach and write a starter model.

    Args:
        folder: new or empty.
        size: a key of SIZES.
        seed: of weights, lessons and measurement.
        pass_rate: target on held-out problems; 0 leaves the weights random.
        note: called with how far it is.

    Returns:
        size, seed, pass_rate, problems, weights, seconds, out.
    """
    check_size(size)
    if pass_rate:
        check_pass_rate(pass_rate)
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise UsageError(f"{folder} exists and is not an empty folder; nothing is overwritten: give a new one")
    began = time.monotonic()
    problems = make_math(ENV)
    model, tokenizer = build_model(LanguageModelTable.model_validate({"build": size}), ENV, seed)
    encoder = Encoder(tokenizer)
    engine = TransformersEngine(model, end_tokens(model, tokenizer))
    grader = make_grader(RewardTable())
    table = EvaluationTable(problems=PROBLEMS)
    evaluation = fixed_evaluation(table, problems, encoder, grader, WIDTH, seed)

    def measure() -> float:
        answers = evaluation(engine)
        return sum(answer.verdict.correct is True for answer in answers) / len(answers)

    options = WarmStartTable(pass_rate=pass_rate, **TAUGHT[size])
    try:
        reached = warm_start(model, tokenizer, problems, encoder.encode, options, seed, measure, note)
    finally:
        grader.close()
    result = {
        "size": size,
        "seed": seed,
        "pass_rate": reached,
        "problems": len(evaluation.problems),
        "weights": model.num_parameters(),
        "seconds": round(time.monotonic() - began, 1),
        "out": str(folder),
    }
    model.config.use_cache = True  # off while pmdkit trains; stock generation wants it
    with quietly():
        model.save_pretrained(folder)
        tokenizer.save_pretrained(folder)
    card = CARD.format(**result, architecture=type(model).__name__, env=problems.name)
    (folder / "README.md").write_text(card, encoding="utf-8")
    return result
