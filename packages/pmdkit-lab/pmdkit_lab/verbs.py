"""The verbs that this package adds to `pmdkit`, and options of its own. Light: `pmdkit --help` imports it."""

VERBS = {
    "explain": (
        "What an objective secretly solves: its regulariser, contraction and push.",
        "pmdkit_lab.cli.explain:explain",
    ),
    "certify": (
        "Which objective a loss of your own is, and what differs from it.",
        "pmdkit_lab.cli.certify:certify",
    ),
    "replay": (
        "Another objective on a recorded step; the biography of its prompts as a page.",
        "pmdkit_lab.cli.replay:replay",
    ),
    "autopsy": (
        "Why a reward does not rise: from the log of any trainer, or the dumps of TRL, verl, prime-rl and others.",
        "pmdkit_lab.cli.autopsy:autopsy",
    ),
    "plan": (
        "What a recipe of tier 3 costs on accelerators: memory by phase, time, staleness.",
        "pmdkit_lab.cli.plan:plan",
    ),
    "llm --rehearse": (
        "Two steps of a recipe at full size on fake tensors: memory, traffic, mistakes.",
        "pmdkit_lab.cli.rehearse:rehearse",
    ),
    "llm model.checkpointing=auto": (
        "Whether a run recomputes activations, by the plan of memory.",
        "pmdkit_lab.planner.checkpointing:decide",
    ),
    "ledger": ("Every claim of the paper and how it stands here.", "pmdkit_lab.cli.ledger:ledger"),
    "reproduce": (
        "Reproduce the paper within a budget of 2m, 20m or 90m: one report.",
        "pmdkit_lab.cli.reproduce:reproduce",
    ),
    "race": (
        "All objectives, or your own loss, tuned with the same budget and compared by a fixed protocol.",
        "pmdkit_lab.cli.race:race",
    ),
    "figure": ("The picture of a run; the paper's figures and tables by name.", "pmdkit_lab.cli.figures:figure"),
}
