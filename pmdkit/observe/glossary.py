"""Glossary of the columns of metrics.jsonl: meaning, unit, what to look for. The site uses it too."""

from typing import Any, NamedTuple


class Meaning(NamedTuple):
    """Attributes: text: what it is; unit: nats, tokens, reward units ... ("" for pure numbers); look: when to act."""

    text: str
    unit: str = ""
    look: str = ""


EVERY_TIER: dict[str, Meaning] = {
    "step": Meaning("Rollout batches so far; the first is 1."),
    "reward_mean": Meaning("Mean reward of the step's rollouts.", "reward units"),
    "pass_rate": Meaning(
        "Share of right responses among the step's rollouts, drawn under pi_old.",
        look="It is a sample: with 256 responses of 16 prompts it scatters by several points from step to step.",
    ),
    "loss": Meaning(
        "Mean over the ministeps of the loss before each update.",
        "reward units",
        "Under the regressions it need not fall over steps: every step poses a new problem.",
    ),
    "grad_norm": Meaning("Norm of the gradient before clipping, mean over ministeps.", look="Watch for spikes."),
    "log_ratio_min": Meaning(
        "Smallest log pi_new / pi_old of a response after the step.", "nats", "Below -20: responses are being erased."
    ),
    "log_ratio_max": Meaning("Largest log pi_new / pi_old of a response after the step.", "nats"),
    "kl": Meaning("KL(pi_new || pi_old) of the step, estimated on its own rollouts.", "nats"),
    "ess": Meaning(
        "Effective share of a group when old draws stand for the new policy, 1 / (1 + chi2).",
        look="Near 1: the step was small. Below 0.3: few responses carry what later ministeps learn from.",
    ),
    "entropy": Meaning(
        "Entropy of a response, -log pi summed over its tokens, mean.", "nats", "Towards 0: nothing new is tried."
    ),
    "tokens": Meaning("Tokens drawn in the step; 0 where the full support is enumerated.", "tokens"),
    "response_length": Meaning("Mean length of a response.", "tokens"),
    "zero_variance_groups": Meaning(
        "Groups whose rewards are all equal: their advantages are 0, they only pull back to pi_old.",
        "groups",
        "Most of the batch: the prompts are too easy or too hard for this group size.",
    ),
    "policy_version": Meaning("Steps that were complete when the rollouts were drawn."),
    "staleness": Meaning("Updates between the policy that drew and the last one that learned in this step.", "updates"),
    "log_ratio_pos": Meaning("Mean log pi_new / pi_old of right responses, measured after the step.", "nats"),
    "log_ratio_neg": Meaning("Mean log pi_new / pi_old of wrong responses, measured after the step.", "nats"),
    "theory_log_ratio_pos": Meaning(
        "What the exact update of each prompt alone would give right responses; length-weighted where norm is length.",
        "nats",
        "Targets may be far beyond what one step can reach: the share that was reached is the number to watch.",
    ),
    "theory_log_ratio_neg": Meaning("The same for wrong responses.", "nats"),
    "tau": Meaning("Temperature, mean over the step's prompts; a rule gives each its own.", "reward units"),
    "theory_lambda": Meaning("Multiplier of PMD-mean's exact update, mean over prompts.", "reward units squared"),
    "theory_lambda_over_tau": Meaning(
        "Ratio of theory_lambda to tau: strength of the hidden chi-squared term beside the KL term.", "reward units"
    ),
    "noise_share": Meaning(
        "Share of groups in which the peers of some response misjudge PMD-part's log-partition by more than a nat.",
        look="Large: PMD-part's targets are noise, as those of a lone success are. Raise tau or the group size.",
    ),
    "theory_noise_share": Meaning("Expected noise_share at the step's pass rates, by the binomial distribution."),
    "gauge": Meaning("All of the above by bucket of pass rate: a list, drawn in the picture of the run."),
    "seconds_rollout": Meaning("Time to draw the step's responses.", "seconds"),
    "seconds_update": Meaning("Time for the step's updates.", "seconds"),
}
LANGUAGE_MODELS: dict[str, Meaning] = {
    "token_entropy": Meaning("Entropy per token.", "nats per token"),
    "unscored": Meaning(
        "Responses without a verdict, because the verifier timed out or failed: mass 0, not reward 0.",
        "responses",
        "More than a few: the run stops by itself at reward.most_unscored.",
    ),
    "unanswered": Meaning("Responses in which no answer was found: wrong, and counted.", "responses"),
    "cut_off": Meaning("Responses that reached the budget of tokens.", "responses", "Many: raise rollout.width."),
    "turns": Meaning("Mean number of turns of the policy in an episode with an environment.", "turns"),
    "environment_tokens": Meaning("Tokens that the environment wrote: read by the policy, but in no loss.", "tokens"),
    "skipped_updates": Meaning(
        "Optimizer steps that were not taken because every coefficient of the gradient was rounding error.",
        "updates",
        "Most of them: no group has rewards that differ.",
    ),
    "skipped_groups": Meaning("Groups with fewer than two verdicts, which get no weight.", "groups"),
    "mismatch_mean": Meaning(
        "Mean absolute difference in log-probability between engine and trainer, on the same tokens and weights.",
        "nats per token",
        "Should be that of the number format: 1e-7 in float32, about 1e-2 in bfloat16. More is a bug.",
    ),
    "mismatch_max": Meaning("The largest of these differences.", "nats per token"),
    "mismatch_response": Meaning("The absolute difference summed over a response, mean.", "nats"),
    "mismatch_kl": Meaning(
        "Mean log-probability excess of engine over trainer on the engine's tokens: estimates KL(engine || trainer).",
        "nats per token",
        "Beyond 0.015 a warning is given: another temperature, a top_p below 1, or other weights.",
    ),
    "target_bias": Meaning(
        "How far the mismatch of a response moves its target, tau times nats over the range of rewards.",
        look="Beyond 0.01 a warning is given, beyond 0.1 in three steps the run stops: take rollout.old = recompute.",
    ),
    "canary_mean": Meaning(
        "Mean absolute difference between engine and trainer on fixed texts, each time weights are published.",
        "nats per token",
        "Beyond rollout.canary_tolerance the run stops: the engine has other weights.",
    ),
    "canary_max": Meaning("The largest of these differences.", "nats per token"),
    "canary_own": Meaning(
        "Mean absolute difference between the engine's log-probabilities when writing and when rereading its text.",
        "nats per token",
    ),
    "engine_restarts": Meaning("Always 0: an engine that is lost ends the run.", "restarts"),
}
ON_REQUEST: dict[str, Meaning] = {
    "learning_rate": Meaning(
        "Learning rate of the step's last update, if update.lr_scheduler_type or a warm-up changes it."
    ),
    "rewards/NAME/mean": Meaning(
        "Mean of one part of the reward before its weight, over the responses with a verdict.", "reward units"
    ),
}
"Columns of language models that appear only with an option."
GLOSSARY: dict[str, Meaning] = EVERY_TIER | LANGUAGE_MODELS


def format_tau(tau: Any, scale: str = "{0, 1}") -> str:
    """`tau 0.05 on rewards {0,1} (0.1 on ±1)`: a temperature means nothing without the scale of the rewards.

    Args:
        tau: a number, a rule as a table, or None.
        scale: reward scale of the environment, as in `Bandit.scale`: "{0, 1}", "{-1, 1}", or another.
    """
    if tau is None:
        return "no temperature"
    if not isinstance(tau, (int, float)):
        return f"tau by rule: {tau['rule'] if isinstance(tau, dict) else tau}"
    if scale == "{0, 1}":
        return f"tau {tau:g} on rewards {{0,1}} ({2 * tau:g} on ±1)"
    if scale == "{-1, 1}":
        return f"tau {tau:g} on rewards ±1 ({tau / 2:g} on {{0,1}})"
    return f"tau {tau:g} in reward units (rewards {scale})"
