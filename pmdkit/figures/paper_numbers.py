"""Numbers that arXiv:2602.05933 prints in its four tables and says of them. What follows from them: tables_*.py."""

from typing import NamedTuple

PROBLEMS, DRAWS = 30, 32  # AIME 2024 and AIME 2025 have 30 problems each; Avg@32


class Score(NamedTuple):
    """A row of table main-results or gspo; scores in percent."""

    model: str
    method: str
    tau: float | None
    staleness: int
    aime24: float
    aime25: float
    average: float

    @property
    def pair(self) -> tuple[float, float]:
        """AIME 24 and AIME 25."""
        return self.aime24, self.aime25

    @property
    def name(self) -> str:
        """The method with its temperature."""
        return self.method if self.tau is None else f"{self.method}, tau {self.tau:g}"


SCORES = (  # table main-results, in its order
    Score("7B", "GRPO", None, 16, 17.08, 10.52, 13.80),
    Score("7B", "on-policy", None, 1, 18.65, 18.33, 18.49),
    Score("7B", "PMD-mean", 0.005, 16, 19.69, 19.48, 19.58),
    Score("7B", "PMD-mean", 0.01, 16, 17.60, 17.50, 17.55),
    Score("7B", "PMD-mean", 0.02, 16, 22.50, 16.67, 19.58),
    Score("30B", "GRPO", None, 16, 36.56, 27.92, 32.24),
    Score("30B", "PMD-mean", 0.01, 16, 50.00, 35.10, 42.55),
    Score("30B", "PMD-mean", 0.1, 16, 50.83, 37.19, 44.01),
)
GSPO = (  # table gspo; its two rows of PMD-mean are those of table main-results at tau 0.005 and 0.1
    Score("7B", "GSPO", None, 16, 15.52, 11.98, 13.75),
    Score("30B", "GSPO", None, 16, 53.33, 34.58, 43.96),
)
NAMED = {"7B": 0.005, "30B": 0.1}  # the temperature whose gains the text states, by model
GAINS = {"7B": (2.6, 9.0), "30B": (14.6, 8.1)}  # points over GRPO on AIME 24 and 25, by the text

MILLISECONDS = {  # table efficiency_comparison, per token
    "on-policy": {"overall": 0.0569, "generation": 0.0512, "update": 0.0057},
    "PMD-mean": {"overall": 0.0126, "generation": 0.0062, "update": 0.0064},
}
SPEEDUP = 4.6  # of the text

HYPERPARAMETERS: tuple[tuple[str, str | float, str | float], ...] = (  # table hyperparams: name, 7B dense, 30B MoE
    ("trainer.nnodes", 4, 8),
    ("trainer.n_gpus_per_node", 8, 8),
    ("distributed strategy", "FSDP", "Megatron"),
    ("model.path", "Qwen/Qwen2.5-7B", "Qwen/Qwen3-30B-A3B-Base"),
    ("data.train_batch_size (prompts)", 512, 512),
    ("data.gen_batch_size (prompts)", 512, 512),
    ("data.max_prompt_length", 2048, 2048),
    ("data.max_response_length", 8192, 20480),
    ("rollout.name", "vLLM", "vLLM"),
    ("rollout.n (group size)", 16, 16),
    ("rollout.temperature", 1.0, 1.0),
    ("rollout.top_p", 1.0, 1.0),
    ("rollout.max_model_len", 10240, 22528),
    ("val_kwargs.n (avg@k)", 32, 32),
    ("val_kwargs.temperature", 1.0, 1.0),
    ("val_kwargs.top_p", 0.7, 0.7),
    ("actor.ppo_epochs", 1, 1),
    ("actor.ppo_mini_batch_size (prompts)", 32, 32),
    ("actor.clip_ratio_low, GRPO", 0.2, 0.2),
    ("actor.clip_ratio_high, GRPO", 0.2, 0.2),
    ("actor.clip_ratio_low, GSPO", 3e-4, 3e-4),
    ("actor.clip_ratio_high, GSPO", 4e-4, 4e-4),
    ("optim.lr", 1e-6, 1e-6),
    ("optim.betas, first", 0.9, 0.9),
    ("optim.betas, second", 0.999, 0.999),
    ("optim.weight_decay", 0.01, 0.01),
    ("grad clip", 1.0, 1.0),
    ("tensor_model_parallel_size", 1, 2),
    ("pipeline_model_parallel_size", 1, 2),
    ("expert_model_parallel_size", "N/A", 8),
)
STEPS = {"7B": 495, "30B": 300}
EPOCHS = 15  # of the 7B model, by the text
