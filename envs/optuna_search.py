"""Search the learning rate and the temperature of a toy run with optuna, as a program to read and change.

    python envs/optuna_search.py --trials 20 --steps 40

Each trial is a run with its own folder, averaged over seeds: optuna's sampler proposes, its pruner ends what falls
behind. `pmdkit sweep` makes grids; this is the way when a grid would be too large. Needs optuna: the extra `sweep`.
"""

import argparse
from pathlib import Path

import optuna

from pmdkit import train


def pass_rate(trial: optuna.Trial, out: Path, steps: int, seeds: int) -> float:
    """Mean pass rate after training with the settings that optuna proposes; it is told after each seed."""
    lr = trial.suggest_float("lr", 1e-4, 1e-2, log=True)
    tau = trial.suggest_float("tau", 0.01, 1.0, log=True)
    rates: list[float] = []
    for seed in range(seeds):
        place = out / f"trial-{trial.number}-seed-{seed}"
        run = train("pmd-mean", "toy", "modular-sum", steps=steps, seed=seed, lr=lr, tau=tau, out=place)
        rates.append(run.summary["pass_rate_last"])
        trial.report(sum(rates) / len(rates), seed)
        if trial.should_prune():
            raise optuna.TrialPruned
    return sum(rates) / len(rates)


def main() -> None:
    """Search, and print the best settings."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trials", type=int, default=20)
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--out", type=Path, default=Path("runs/search"))
    chosen = parser.parse_args()
    sampler = optuna.samplers.TPESampler(seed=0)
    study = optuna.create_study(direction="maximize", sampler=sampler, pruner=optuna.pruners.MedianPruner())
    study.optimize(lambda trial: pass_rate(trial, chosen.out, chosen.steps, chosen.seeds), chosen.trials)
    print(f"best pass rate {study.best_value:.3f} with {study.best_params}")


if __name__ == "__main__":
    main()
