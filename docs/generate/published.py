"""Published runs against the planner: the tables of docs/use/plan.md, from published.jsonl.

`python docs/generate/published.py` rewrites them; a test fails if they differ. Each row names its source.
"""

import json
from dataclasses import replace
from math import exp, log
from pathlib import Path
from typing import Any

import numpy as np

from pmdkit_lab.planner.cluster import PRACTICE, Efficiency, cluster
from pmdkit_lab.planner.memory import GIB, trainer_state, update_parts
from pmdkit_lab.planner.predict import Prediction
from pmdkit_lab.planner.step_time import update
from pmdkit_lab.planner.workload import ResponseLengths, Sizes, Workload, lengths

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "use" / "plan.md"
BEGIN, END = "<!-- published: python docs/generate/published.py -->\n", "<!-- end of the published runs -->"
ROWS: list[dict[str, Any]] = [
    json.loads(line)
    for line in (ROOT / "packages" / "pmdkit-lab" / "tests" / "planner" / "published.jsonl")
    .read_text("utf-8")
    .splitlines()
]
COUNTED = [row for row in ROWS if "left_out" not in row]
PROMPT = 100  # tokens of a prompt of OpenMathInstruct-2, where only the length of the sequence is published
FLASH_3 = 0.6  # of an H100's peak, forward at 16k: the paper of flash-attention 3 reports 580 to 650 TFLOP/s
COMPILED = 0.5  # of kernels and their memory traffic: torch.compile fuses norms, gates and residuals. An assumption
FILE = 1.76e9  # bytes/s of weights that prime-rl writes to a file after each step: a Qwen3-30B-A3B in 34.7 s
# Of bytes that a head moves for a logit: these trainers keep logits in float32 more than once, pmdkit's moves 38.
BASE = replace(PRACTICE, logit_bytes=280.0)  # calibrated
RECOMPUTED = {"recompute": 1.0, "offload": 1.0, "selective": 0.5, "selective layer": 0.5, "none": 0.0}

# layers, width, inner width (of an expert), query heads, size of a head, key heads, vocabulary, tied, experts, chosen,
# shared experts. Facts of the published config.json of each; INTELLECT-3 has a dense first layer, left out here.
MODELS = {
    "qwen3-0.6b": (28, 1024, 3072, 16, 128, 8, 151_936, True, 1, 1, 0),
    "qwen3-4b": (36, 2560, 9728, 32, 128, 8, 151_936, True, 1, 1, 0),
    "qwen3-30b-a3b": (48, 2048, 768, 32, 128, 4, 151_936, False, 128, 8, 0),
    "qwen3-32b": (64, 5120, 25_600, 64, 128, 8, 151_936, False, 1, 1, 0),
    "qwen3-235b-a22b": (94, 4096, 1536, 64, 128, 4, 151_936, False, 128, 8, 0),
    "qwen2.5-7b": (28, 3584, 18_944, 28, 128, 4, 152_064, False, 1, 1, 0),
    "intellect-3": (46, 4096, 1408, 96, 128, 8, 151_552, False, 128, 8, 1),
    "llama3.1-8b": (32, 4096, 14_336, 32, 128, 8, 128_256, False, 1, 1, 0),
    "llama3.1-70b": (80, 8192, 28_672, 64, 128, 8, 128_256, False, 1, 1, 0),
    "llama2-13b": (40, 5120, 13_824, 40, 128, 40, 32_000, False, 1, 1, 0),
    "llama2-70b": (80, 8192, 28_672, 64, 128, 8, 32_000, False, 1, 1, 0),
}


def sizes(name: str, rank: int | None = None) -> Sizes:
    """The sizes of a model; with a rank, also of adapters on every linear layer."""
    layers, width, inner, heads, head, kv_heads, vocabulary, tied, choices, chosen, shared = MODELS[name]
    attention = width * head * (2 * heads + 2 * kv_heads)
    experts = layers * 3 * width * inner * choices if choices > 1 else 0
    dense = layers * (attention + 3 * width * inner * (shared if experts else 1) + (width * choices if experts else 0))
    ends = width * vocabulary
    total = dense + experts + ends * (1 if tied else 2)
    met = inner * (chosen + shared if experts else 1)
    block = (
        10 * width + 4 * met + (2 * chosen * width if experts else 0)
    )  # as in pmdkit_lab.planner.model_size.activations
    adapter = 0
    if rank is not None:
        adapter = layers * rank * (width * 4 + head * (2 * heads + 2 * kv_heads) + 3 * (width + inner) * choices)
    return Sizes(
        weights=total + adapter,
        active=total - experts + experts * chosen // choices,
        experts=experts,
        choices=choices,
        chosen=chosen,
        lookup=0 if tied else ends,
        layers=layers,
        vocabulary=vocabulary,
        dimension=width,
        attention=heads * head,
        kv_bytes=4 * layers * kv_heads * head,
        kv_heads=kv_heads,
        kept_bytes=2 * layers * block,
        head_tokens=1024,
        width_bytes=2,
        trained=adapter or total,
    )


def practice(row: dict[str, Any], base: Efficiency) -> Efficiency:
    """The efficiency constants for the kernels of a published update."""
    part = COMPILED if row["compile"] else 1.0
    flash = FLASH_3 if row["attention"] == "fa3" and row["gpus"].split("x")[1] in ("H100", "H200") else None
    return replace(base, moves=base.moves * part, kernels=base.kernels * part, attention=flash)


def update_seconds(row: dict[str, Any], base: Efficiency = BASE) -> float:
    """Seconds of a published training step."""
    place = cluster(row["gpus"])
    work = Workload(
        prompts=row["rows"] * row["passes"] * place.count,
        group=1,
        ministeps=1,
        passes=1,
        token_budget=row["rows"] * row["length"],
        prompt=0,
        longest=row["length"],
        checkpointing=RECOMPUTED[row["checkpointing"]],
        fsdp2=place.count > 1,
        recompute=False,
        experts_alone=place.gpu.name == "B200",  # the torch of these runs has no grouped product for it
    )
    shape = ResponseLengths(np.ones(row["length"]))
    return update(sizes(row["model"], row["lora"]), work, shape, place, practice(row, base)).seconds


def published_tokens(row: dict[str, Any], base: Efficiency = BASE) -> float:
    """Tokens/s as prime-rl counts them: from step to step, including the time to write the weights to a file."""
    tokens = row["rows"] * row["passes"] * row["length"] * cluster(row["gpus"]).count
    written = 2 * sizes(row["model"]).weights / FILE if row["task"] == "rl" and row["lora"] is None else 0.0
    return tokens / (update_seconds(row, base) + written)


def step(row: dict[str, Any], base: Efficiency = BASE) -> Prediction:
    """A published step of RL: generation, scoring, updates. With a lag, NeMo RL splits its GPUs in half."""
    place = cluster(row["gpus"], row["tensor"])
    mean = row.get("mean_sequence")
    work = Workload(
        prompts=row["rows"] / 16,
        group=16,
        ministeps=row["ministeps"],
        passes=1,
        token_budget=20_480,
        prompt=170 if mean is None else PROMPT,
        longest=row["width"] + 2048,
        checkpointing=True,
        fsdp2=True,
        recompute=True,
        lag=row["lag"],
        sleeps=row["lag"] == 0,
    )
    shape = lengths("direct", row["width"], None if mean is None else mean - PROMPT)
    return Prediction(sizes(row["model"]), work, shape, place, base, serve=place.count // 2 if row["lag"] else 0)


def step_seconds(told: Prediction) -> float:
    """Seconds of a step of NeMo RL, which scores every response twice: by the policy, and by its KL's reference."""
    training = told.update.seconds + 2 * told.scoring
    generating = told.generation.seconds
    return max(generating, training) if told.overlaps else generating + training


def compare(row: dict[str, Any], base: Efficiency = BASE) -> list[tuple[str, float, float]]:
    """(what, published, predicted) of a row; the first entry counts: seconds, or milliseconds per token."""
    if row["kind"] == "update":
        found = [("s per step", row["seconds"], update_seconds(row, base))]
        if row["framework"] == "prime-rl":
            found.append(("tokens/s, weights written", row["tokens_per_second"], published_tokens(row, base)))
        return found
    told = step(row, base)
    if "ms_update" in row:
        whole = row["ms_generation"] + row["ms_update"]
        return [("ms per token", whole, told.ms_per_token["generation"] + told.ms_per_token["update"])]
    return [("s per step", row["seconds"], step_seconds(told))]


def within(published: float, predicted: float) -> bool:
    """Whether a prediction is within a factor of two."""
    return abs(log(predicted / published)) <= log(2)


def spread(rows: list[dict[str, Any]], base: Efficiency = BASE) -> float:
    """The typical factor between published and predicted: the exponential of the root mean square log-ratio."""
    errors = [log(told / known) for row in rows for _, known, told in compare(row, base)[:1]]
    return exp((sum(error**2 for error in errors) / len(errors)) ** 0.5)


def peak_gib(row: dict[str, Any]) -> float:
    """Peak memory of a published update by the memory model, in GiB."""
    place = cluster(row["gpus"])
    tokens = row["rows"] * row["length"]
    again = RECOMPUTED[row["checkpointing"]] == 1
    work = Workload(1, 1, 1, 1, tokens, 0, row["length"], again, place.count > 1, False)
    model = sizes(row["model"], row["lora"])
    return (sum(trainer_state(model, work, place).values()) + sum(update_parts(model, work, place).values())) / GIB


def measured_peaks() -> list[tuple[dict[str, Any], float, float]]:
    """(row, measured, predicted) of allocator peaks on accelerators, where logits are formed in parts, as here."""
    rows = [row for row in COUNTED if row.get("peak_gib") and row["task"] == "rl"]
    return [(row, row["peak_gib"], peak_gib(row)) for row in rows]


def tables() -> str:
    """The text between the marks of the page."""
    peaks = [told / known for _, known, told in measured_peaks()]
    lines = [
        "| half | kind | runs | within a factor of two | typical factor |",
        "|---|---|---|---|---|",
        *(
            f"| {half} | {words} | {len(rows)} | {sum(counts(row) for row in rows)} | {spread(rows):.2f} |"
            for half, split in (("calibrated on", "calibrate"), ("only checked", "check"))
            for words, kind in (("updates", "update"), ("whole steps of RL", "step"))
            for rows in [[row for row in COUNTED if (row["split"], row["kind"]) == (split, kind)]]
        ),
        "",
        f"Peaks of the allocator in {len(peaks)} runs of RL: predicted over measured {min(peaks):.2f} to "
        f"{max(peaks):.2f}, {sum(0.8 <= one <= 1.25 for one in peaks)} of them from 0.8 to 1.25.",
        "",
    ]
    return "\n".join(lines) + "\n"


def counts(row: dict[str, Any]) -> bool:
    """Whether the prediction for a row is within a factor of two."""
    _, published, predicted = compare(row)[0]
    return within(published, predicted)


def with_tables(page: str) -> str:
    """The text of the page with the current tables between its marks."""
    before, _, rest = page.partition(BEGIN)
    _, found, after = rest.partition(END)
    if not found:
        raise SystemExit(f"the page has no {BEGIN.strip()} ... {END}; add them where the tables belong")
    return before + BEGIN + tables() + END + after


if __name__ == "__main__":
    PAGE.write_text(with_tables(PAGE.read_text("utf-8")), "utf-8")
