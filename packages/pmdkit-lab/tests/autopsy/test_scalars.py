"""The door for scalars: one run in every format, logs that nobody would write, and each cause from its curves.

The curves are means over groups that are drawn here from a pass rate, so laws hold for them because they do for draws.
"""

import csv
import gzip
import itertools
import json
import os
import struct

import numpy as np
import pytest

from pmdkit.errors import UsageError
from pmdkit_lab.autopsy import report, scalars
from pmdkit_lab.autopsy.changes import group_std, jump, trend
from pmdkit_lab.autopsy.scalar_causes import Curves, held_at, scalar_causes
from pmdkit_lab.autopsy.scalars import Log, holds_scalars, read_logs
from pmdkit_lab.dumps.readers import Source

STEPS = 60


def curves(rate, spread=0.25, prompts=32, seed=0, **columns):
    """Logged rows of a run whose prompts have pass rates around `rate`, one value for each step; groups of eight."""
    rng, rows = np.random.default_rng(seed), []
    steps = np.arange(1, len(rate) + 1)
    for n, p in enumerate(rate):
        each = np.clip(p + spread * rng.uniform(-1.7, 1.7, prompts), 0, 1)
        drawn = (rng.random((prompts, 8)) < each[:, None]).astype(float)
        std = drawn.std(1, ddof=1)
        row = {"step": int(steps[n]), "reward": drawn.mean(), "reward_std": std.mean(), "entropy": 0.8, "kl": 0.02}
        row |= {"frac_reward_zero_std": np.mean(std == 0), "completions/mean_length": 200.0, "grad_norm": 0.3}
        row |= {"learning_rate": 1e-6} | {key: (x[n] if np.ndim(x) else x) for key, x in columns.items()}
        for key in ("entropy", "kl", "completions/mean_length", "grad_norm"):
            row[key] *= 1 if key in columns else 1 + 0.03 * rng.normal()
        rows.append(row)
    return rows


def state(folder, rows):
    path = folder / "trainer_state.json"
    path.write_text(json.dumps({"log_history": rows}))
    return path


# ---- Formats


def tensorboard(rows, newer):
    """Events as TensorBoard frames them; newer writers put the value into a tensor."""

    def field(number, kind, data):
        return bytes([number << 3 | kind]) + (bytes([len(data)]) if kind == 2 else b"") + data

    out = b""
    for row in rows:
        for tag, value in row.items():
            number = struct.pack("<f", value)
            held = field(8, 2, field(1, 0, b"\x01") + field(5, 2, number)) if newer else field(2, 5, number)
            summary = field(5, 2, field(1, 2, field(1, 2, tag.encode()) + held))
            event = field(1, 1, struct.pack("<d", 1.0)) + field(2, 0, bytes([row["step"]])) + summary
            out += struct.pack("<QI", len(event), 0) + event + struct.pack("<I", 0)
    return out


def table(rows, prefix="", **more):
    return [dict(more) | {key if key == "step" else prefix + key: x for key, x in row.items()} for row in rows]


def write_csv(path, rows):
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, rows[0].keys())
        writer.writeheader()
        writer.writerows(rows)


def as_lines(rows):
    return "".join(json.dumps(row) + "\n" for row in rows)


FORMATS = {
    "trainer_state.json": lambda path, rows: path.write_text(json.dumps({"log_history": rows})),
    "list.json": lambda path, rows: path.write_text(json.dumps(rows)),
    "wide.csv": write_csv,
    "wandb.csv": lambda path, rows: write_csv(path, table(rows, "clean-sun-7 - train/")),
    "long.csv": lambda path, rows: write_csv(
        path,
        [
            {"run_name": "a", "metric": key, "step": row["step"], "value": x}
            for row in rows
            for key, x in row.items()
            if key != "step"
        ],
    ),
    "tidy.csv": lambda path, rows: write_csv(  # all of one metric, then all of the next
        path, [{"step": row["step"], "metric": key, "value": row[key]} for key in ("reward", "kl") for row in rows]
    ),
    "verl.jsonl": lambda path, rows: path.write_text(
        as_lines({"step": row["step"], "data": {"critic/score/mean": row["reward"], "kl": row["kl"]}} for row in rows)
    ),
    "text.jsonl": lambda path, rows: path.write_text(as_lines({k: str(x) for k, x in row.items()} for row in rows)),
    "console.log": lambda path, rows: path.write_text(
        "".join(f" {row['step']}/60 | {row['step']}/60 [0:1, 2s/it] {row}\n" for row in rows)
    ),
    "verl.log": lambda path, rows: path.write_text(
        "".join(
            f"(Task pid=9) step:{r['step']} - critic/score/mean:{r['reward']} - actor/kl_loss:{r['kl']}\n" for r in rows
        )
    ),
    "events.out.tfevents.1.host": lambda path, rows: path.write_bytes(tensorboard(rows, False)),
    "new.tfevents": lambda path, rows: path.write_bytes(tensorboard(rows, True)),
}


@pytest.mark.parametrize("name", FORMATS)
def test_one_run_reads_the_same_from_every_format(name, tmp_path):
    rows = [{"step": n, "reward": n / 64, "kl": 0.5**n} for n in range(1, 9)]
    FORMATS[name](tmp_path / name, rows)
    source = Source()
    (log,) = read_logs(tmp_path / name, {}, source)
    assert not source.left_out
    assert log.step.tolist() == list(range(1, 9))
    np.testing.assert_allclose(log.get("reward"), np.arange(1, 9) / 64)
    np.testing.assert_allclose(log.get("kl"), 0.5 ** np.arange(1, 9), rtol=1e-6)
    assert holds_scalars(tmp_path / name, {})


def test_a_console_with_bars(tmp_path):
    line = "10:00 SUCCESS Step {} | Time: 9.1s | Reward: {} | Seq. Length: {}.5 tokens/sample\n"
    (tmp_path / "rl.log").write_text("".join(line.format(n, n / 8, n) for n in range(8)))
    (log,) = read_logs(tmp_path / "rl.log", {}, Source())
    assert log.step.tolist() == list(range(8))
    assert log.get("reward").tolist() == [n / 8 for n in range(8)]
    assert log.get("length").tolist() == [n + 0.5 for n in range(8)]


def test_names_of_ones_own(tmp_path):
    (tmp_path / "a.jsonl").write_text(as_lines({"t": n, "score_mean": n / 8} for n in range(8)))
    with pytest.raises(UsageError, match="score_mean"):
        read_logs(tmp_path / "a.jsonl", {}, Source())
    (log,) = read_logs(tmp_path / "a.jsonl", {"reward": "score_mean", "step": "t"}, Source())
    assert log.get("reward").tolist() == [n / 8 for n in range(8)]


def test_a_step_counter_that_begins_anew_is_another_run(tmp_path):
    rows = [{"step": n, "reward": 0.5} for n in (*range(9), 0, *range(4))]
    rows.insert(5, {"step": 4, "eval_reward": 0.25})  # logged apart, at the same step
    (tmp_path / "a.jsonl").write_text(as_lines(rows))
    logs = read_logs(tmp_path / "a.jsonl", {}, Source())
    assert [len(log.step) for log in logs] == [9, 1, 4]
    assert logs[0].get("held_out").tolist() == [0.25]


def test_a_tidy_table_by_metric_has_its_restarts_rare_metrics_and_a_bound(tmp_path, monkeypatch):
    """Each metric's steps come together; the second start of the counter is a second run of all of them."""
    steps = (*range(0, 90, 2), *range(30))
    rows = [("reward", n, n) for n in steps] + [("kl", n, n) for n in steps] + [("eval_reward", 7, 0.5)]
    (tmp_path / "a.csv").write_text("metric,step,value\n" + "".join(f"{k},{n},{x}\n" for k, n, x in rows))
    for most in (10_000, 40):
        monkeypatch.setattr("pmdkit_lab.autopsy.scalars.MAX_POINTS", most)
        long, short = read_logs(tmp_path / "a.csv", {}, Source())
        assert len(long.step) + len(short.step) <= most
        assert (np.diff(long.step) > 0).all()
        assert (long.get("kl") == long.get("reward")).all()
        assert (long.get("kl") == long.steps_of("kl")).all()
        assert long.get("held_out").tolist() == [0.5]
        assert (short.get("kl") == short.step).all()
        assert short.get("held_out") is None
    assert len(long.get("kl")) == 6  # 45 steps, every eighth: five metrics of two runs share the bound


def test_a_constant_zero_is_not_measured_where_zero_cannot_last(tmp_path):
    rows = curves(np.full(STEPS, 0.4), entropy=0.0, loss=0.0, grad_norm=0.0)
    (log,) = read_logs(state(tmp_path, rows), {}, Source())
    assert log.get("entropy") is None
    assert log.get("loss") is None
    assert not log.get("grad_norm").any()


# ---- Logs that nobody would write


def test_bad_lines_cost_themselves(tmp_path):
    good = as_lines({"step": n, "reward": 0.5} for n in range(8))
    odd = [
        '"' + "a" * 2**21 + '"',
        "[" * 10**5,
        "{",
        '{"step": {"a": 1}, "reward": [1]}',
        '{"step": 1e999, "reward": NaN}',
    ]
    (tmp_path / "a.jsonl").write_text("\n".join(odd) + "\n" + good + '{"step": 9, "rew')
    source = Source()
    (log,) = read_logs(tmp_path / "a.jsonl", {}, source)
    assert len(log.step) == 8
    assert sum(count for count, _ in source.left_out.values()) == 4

    whole = tensorboard([{"step": n, "reward": 0.5} for n in range(1, 5)], False)
    (tmp_path / "tfevents").write_bytes(whole + struct.pack("<QI", 9, 0) + b"\xff" * 13 + whole[:30])
    source = Source()
    (log,) = read_logs(tmp_path / "tfevents", {}, source)
    assert len(log.step) == 4
    assert list(source.left_out) == ["events that are no protocol buffer"]


LOG = "step,reward\n1,0.5\n2,0.25\n"
PARTS = {"step": 1, "reward": 0.5} | {f"rewards/part{n}/mean": 1.0 for n in range(9999)}
STATE = '{"log_history": [{"step": 1, "reward": 0.5}, {"step": 2, "reward": 0.25}'
HOSTILE = {  # what the file holds, and the rewards that are read or words of the refusal
    "binary.csv": (bytes(range(256)) * 999, "no reward"),
    "long-line.csv": (LOG + "3," + "9" * 2**23 + "\n4,0.125\n", [0.5, 0.25, 0.125]),
    "long-head.csv": ("step,reward" + ",x" * 2**20 + "\n1,0.5\n", "first line"),
    "columns.csv": ("step,reward" + "".join(f",r{n}" for n in range(10**5)) + "\n1,0.5\n2,0.25\n", [0.5, 0.25]),
    "parts.jsonl": (as_lines([PARTS, PARTS | {"step": 2}]), [0.5, 0.5]),
    "numbers.csv": ("step,reward\n1,NaN\n2,Infinity\n3,-inf\n4,1e999\n5,0.5\n6,\n7,x\n", [0.5]),
    "cell.csv": (LOG + '3,"' + "a" * 2**18 + '"\n4,0.125\n', [0.5, 0.25, 0.125]),
    "twins.csv": ("step,reward,reward\n1,0.5,9\n", [0.5]),
    "mark.csv": ("\ufeff" + LOG, [0.5, 0.25]),
    "utf-16.csv": (LOG.encode("utf-16"), [0.5, 0.25]),
    "utf-16.json": ((STATE + "]}").encode("utf-16"), [0.5, 0.25]),
    "log.csv.gz": (gzip.compress(LOG.encode()), "unpack"),
    "nul.csv": (LOG + "\0\0\n3,0.125\n", [0.5, 0.25, 0.125]),
    "index.csv": (",step,reward\n0,1,0.5\n1,2,0.25\n", [0.5, 0.25]),
    "cut.json": (STATE + ', {"step": 3, "rew', [0.5, 0.25]),
    "deep.json": (STATE + ", " + "[" * 10**5, [0.5, 0.25]),
    "no-list.json": ('{"log_history": 3}', "no log_history"),
    "tidy.csv": ("metric,step,value\n" + "".join(f"rewards/{n}/mean,{n},1\nreward,1,0.5\n" for n in range(20_000)), 65),
    "pipe.csv": (None, "not a regular file"),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_log_is_read_as_far_as_it_goes_or_refused(name, tmp_path):
    data, wanted = HOSTILE[name]
    if data is None:
        os.mkfifo(tmp_path / name)
    else:
        (tmp_path / name).write_bytes(data if isinstance(data, bytes) else data.encode())
    if isinstance(wanted, str):
        with pytest.raises(UsageError, match=wanted):
            read_logs(tmp_path / name, {}, Source())
    else:
        log, *more = read_logs(tmp_path / name, {}, Source())
        assert log.get("reward").tolist() == wanted if isinstance(wanted, list) else len(more) < wanted
        assert len(log.parts) <= 20


def test_a_table_of_pmdkits_metrics_is_read_as_the_metrics_are(tmp_path):
    """Its numbers are texts there; 12 nats of a response of 4 tokens are 3 per token. The ending may be in capitals."""
    row = {"step": 1, "reward_mean": 0.5, "entropy": 12.0, "log_ratio_min": -1.0, "response_length": 4.0}
    (tmp_path / "a.jsonl").write_text(as_lines([row]))
    (tmp_path / "A.CSV").write_text(",".join(row) + "\n" + ",".join(map(str, row.values())) + "\n")
    for name in ("a.jsonl", "A.CSV"):
        assert read_logs(tmp_path / name, {}, Source())[0].get("entropy").tolist() == [3.0]


def test_a_chart_of_several_runs_is_several_logs(tmp_path):
    (tmp_path / "a.csv").write_text("Step,a - train/reward,b - train/reward\n1,0.5,\n2,0.25,0.75\n")
    logs = read_logs(tmp_path / "a.csv", {"step": "Step"}, Source())
    assert [(log.name, log.get("reward").tolist()) for log in logs] == [("a", [0.5, 0.25]), ("b", [0.75])]


def test_a_long_log_is_thinned_evenly(tmp_path, monkeypatch):
    assert (scalars.MAX_POINTS, scalars.MAX_PARTS) == (16_384, 20)  # docs/use/autopsy.md
    monkeypatch.setattr("pmdkit_lab.autopsy.scalars.MAX_POINTS", 100)
    rows = [{"step": n, "reward": n / 1000} | ({"eval_reward": 0.5} if n % 333 == 0 else {}) for n in range(1000)]
    (tmp_path / "a.jsonl").write_text(as_lines(rows))
    (log,) = read_logs(tmp_path / "a.jsonl", {}, Source())
    assert log.step.tolist() == list(range(0, 1000, 16))
    assert len(log.get("held_out")) == 4  # which few steps have
    (tmp_path / "b.jsonl").write_text(as_lines(rows) * 99)
    assert sum(len(log.step) for log in read_logs(tmp_path / "b.jsonl", {}, Source())) <= 100


# ---- Laws


@pytest.mark.parametrize(("rate", "beta"), [(0.2, 2.5), (0.5, 1.5), (0.6, 4.0), (0.05, 1.0)])
def test_a_kl_term_stops_a_policy_where_the_gradient_does(rate, beta):
    """Gradient ascent on two responses, with advantages of unit std at the policy of each step."""
    p = rate
    for _ in range(20_000):
        pull = np.log(p / (1 - p) * (1 - rate) / rate)  # the KL's derivative by the logit is p (1 - p) times it
        p = 1 / (1 + (1 / p - 1) * np.exp(-0.05 * p * (1 - p) * (1 / np.sqrt(p * (1 - p)) - beta * pull)))
    assert held_at(rate, beta) == pytest.approx(p, abs=2e-4)


@pytest.mark.parametrize("rate", [0.0, 0.1, 0.5, 0.93])
def test_std_of_a_group_is_its_mean_over_all_outcomes(rate):
    outcomes = np.array(list(itertools.product((0, 1), repeat=5)))
    chance = (rate**outcomes * (1 - rate) ** (1 - outcomes)).prod(1)
    assert group_std(np.array(rate), 5) == pytest.approx(chance @ outcomes.std(1, ddof=1), abs=1e-12)


def test_noise_of_a_trend_is_that_of_its_draws_and_a_trend_is_no_jump():
    rng = np.random.default_rng(0)
    values = np.linspace(0, 5, 400) + 0.1 * rng.normal(size=400)
    assert trend(values).noise == pytest.approx(0.1, rel=0.15)
    assert jump(values) is None
    found = jump(values + 2.0 * (np.arange(400) >= 250))
    assert abs(found.at - 250) <= 1
    assert found.size == pytest.approx(2.0, abs=0.2)


# ---- Causes

UP, FLAT = np.linspace(0.2, 0.7, STEPS), np.full(STEPS, 0.4)
LEAPS = {"rate": np.where(np.arange(STEPS) > 1, 0.05, 0.4), "entropy": np.where(np.arange(STEPS) > 0, 5, 0.8)}
SHORT = {"completions/mean_length": np.geomspace(440, 16, STEPS)}
NONE = {"rate": np.zeros(STEPS), "spread": 0}
LATE = np.arange(STEPS) >= 30
GROWS = np.geomspace(0.8, 6, STEPS)

# the cause, and options of `curves`; None is a healthy run
CASES = [
    (None, {"rate": UP}),
    (None, {"rate": np.minimum(3 * UP, 0.97), "entropy": 0.8 * np.geomspace(1, 0.1, STEPS)}),
    (None, {"rate": np.where(np.arange(STEPS) < 25, 0.0, 0.95 / (1 + np.exp(30 - np.arange(STEPS)))), "spread": 0.0}),
    (None, {"rate": UP, "rewards/strict_format/mean": 0.0, "rewards/right/mean": UP}),
    ("too-hard", {"rate": np.full(STEPS, 0.004), "spread": 0.002}),
    ("too-easy", {"rate": np.full(STEPS, 0.99), "spread": 0.005}),
    ("format-never-found", {**NONE, "rewards/format/mean": 0.0, "rewards/right/mean": 0.0}),
    ("equal-rewards", {**NONE, "reward": 0.5}),
    ("rate-too-small", {"rate": FLAT, "learning_rate": 1e-8}),
    ("rate-too-small", {"rate": FLAT, "kl": 1e-4}),
    ("rate-too-small", {"rate": FLAT, "actor/ppo_kl": 2e-9}),  # 200 steps of 200 tokens gain at most 0.09
    ("rate-too-large", LEAPS),
    ("rate-too-large", {"rate": np.where(LATE, 0.05, UP), "entropy": np.where(LATE, 4, 0.8)}),
    ("cut-off", {"rate": FLAT, "completions/clipped_ratio": 0.6}),
    ("reward-noise", {"rate": FLAT, "spread": 0.0}),
    ("kl-pushes", {"rate": FLAT, "entropy": GROWS, "kl": GROWS}),
    ("uniform-policy", {**NONE, "entropy": np.log(151_936)}),
    ("grader-changed", {"rate": np.where(LATE, 0.0, UP), "spread": 0.0}),
    ("grader-changed", {"rate": np.where(LATE, 0.1, UP)}),
    ("std-without-reason", {"rate": UP, "reward_std": np.geomspace(0.4, 1e-4, STEPS)}),
    ("right-per-token", {"rate": np.linspace(0.35, 0.2, STEPS), **SHORT}),
    ("proxy-paid", {"rate": UP, "rewards/correct/mean": 0.002, "rewards/compiles/mean": UP}),
    ("reward-falls", {"rate": UP[::-1]}),
]  # fmt: skip


@pytest.mark.parametrize(("cause", "options"), CASES, ids=[f"{n}-{case[0]}" for n, case in enumerate(CASES)])
def test_a_planted_fault_is_named_first_and_a_healthy_log_has_none(cause, options, tmp_path):
    given = dict(options)
    spread = given.pop("spread", 0.25)
    rates = given.pop("rate")
    rows = curves(rates, spread=spread, **given)
    found, _ = report.scalar_autopsy(state(tmp_path, rows), {})
    assert [each["name"] for each in found["causes"]][:1] == ([cause] if cause else [])
    assert found["verdict"] == ("causes" if cause else "healthy")
    if cause == "grader-changed":
        assert abs(found["causes"][0]["steps"][0] - 31) <= 2


def test_entropy_is_of_a_token_and_steps_are_those_of_the_trainer(tmp_path):
    """metrics.jsonl of pmdkit has the entropy of a response; wandb numbers its rows, and the trainer its steps."""
    own = {"reward_mean": 0.5, "entropy": 16.0, "response_length": 8.0, "log_ratio_min": 0.0}
    rows = [own | {"_step": 3 * n, "train/global_step": n} for n in range(1, 9)]
    rows[-1]["token_entropy"] = 3.0
    (tmp_path / "a.jsonl").write_text(as_lines(rows))
    (log,) = read_logs(tmp_path / "a.jsonl", {}, Source())
    assert log.step.tolist() == list(range(1, 9))
    assert log.get("entropy").tolist() == [2.0] * 7 + [3.0]


def test_what_a_healthy_log_cannot_show_is_said(tmp_path):
    rows = [{key: x for key, x in row.items() if key != "reward_std"} for row in curves(UP)]
    found, _ = report.scalar_autopsy(state(tmp_path, rows), {})
    assert report.headline(found).endswith("not testable: shuffled verdicts (no std inside groups).")


def test_a_flat_reward_without_evidence_has_no_cause(tmp_path):
    """Just over the thresholds of a rate that is too small."""
    rows = curves(FLAT, **{"actor/ppo_kl": 3e-9, "kl": 4e-3, "learning_rate": 2e-7})
    found, _ = report.scalar_autopsy(state(tmp_path, rows), {})
    assert (found["verdict"], found["causes"]) == ("cannot tell", [])


def test_too_few_steps_are_told_and_how_many_would_do(tmp_path):
    found, _ = report.scalar_autopsy(state(tmp_path, curves(FLAT[:9])), {})
    assert found["verdict"] == "too few steps"
    points, needed = found["points"]
    assert points == 9
    assert needed > 9
    noise = Curves(read_logs(tmp_path / "trainer_state.json", {}, Source())[0]).trend.noise
    assert 0.1 >= 3 * noise * np.sqrt(2 / (needed / 3)) >= 0.09  # three standard errors of means over thirds


def test_two_starts_of_one_log_with_two_pass_rates(tmp_path):
    rows = [{"step": n, "reward": 0.0} for n in range(10)] + [{"step": n, "reward": 0.97} for n in range(3)]
    (tmp_path / "a.jsonl").write_text(as_lines(rows))
    found, _ = report.scalar_autopsy(tmp_path / "a.jsonl", {})
    assert [each["name"] for each in found["causes"]] == ["grader-changed", "equal-rewards"]
    assert [run["steps"][2] for run in found["runs"]] == [10, 3]


def test_where_a_run_leaves_another(tmp_path, call, capsys):
    a, b = curves(UP, seed=1), curves(UP, seed=2, grad_norm=np.where(LATE, 3.0, 0.3))
    for name, rows in (("a", a), ("b", b)):
        (tmp_path / f"{name}.jsonl").write_text(as_lines(rows))
    assert call("autopsy", tmp_path / "a.jsonl", tmp_path / "b.jsonl", "--json") == 0
    (left,) = json.loads(capsys.readouterr().out)
    assert left["column"] == "grad_norm"
    assert abs(left["step"] - 31) <= 4
    assert call("autopsy", tmp_path / "a.jsonl", tmp_path / "a.jsonl") == 0
    assert "does not leave" in capsys.readouterr().out


@pytest.mark.slow
def test_command_prints_and_writes_the_page_of_a_log(call, tmp_path, capsys):
    path = state(tmp_path, curves(FLAT, learning_rate=1e-8))
    assert call("autopsy", path, "--out", tmp_path / "page") == 0
    assert "rate-too-small" in capsys.readouterr().out
    assert "rate-too-small" in (tmp_path / "page" / "autopsy.html").read_text()


# ---- Sides that a reward does not show: just over and just under each threshold


LINE, NOISE = np.linspace(0, 1, STEPS), np.random.default_rng(5).normal(size=STEPS)
HALF = np.arange(STEPS) >= STEPS // 2
FIRST, LATER = ((np.arange(STEPS) > n).astype(float) for n in (0, 1))
EVALS = np.where(np.arange(STEPS) % 4 == 3, 0.3 + 0.01 * NOISE, np.nan)
BUSY = 0.3 * (1 + 0.01 * NOISE)


def spiky(size, count=3):
    return np.where(np.isin(np.arange(STEPS), [20, 30, 40][:count]), size, 1.0) * BUSY


def grows_to(end, key="entropy"):
    return {key: np.where(np.arange(STEPS) < 6, 1.0, 1 + (end - 1) * np.minimum(LINE / 0.9, 1)) + 0.001 * NOISE}


OTHER = np.random.default_rng(6).normal(size=STEPS)


def follows(trend, share):
    """Length and reward that share a trend, and of whose noise a part is common."""
    own = trend * LINE + share * NOISE + np.sqrt(1 - share**2) * OTHER
    return {"completions/mean_length": 200 + trend * LINE + NOISE, "reward": 0.3 + 0.02 * own}


# the cause, columns that show it, and columns that do not quite; the reward rises, so most is to be watched
OVER_AND_UNDER = [
    ("not-finite", {"loss": np.where(np.arange(STEPS) > 56, np.nan, 0.1)},
     {"loss": np.where(np.arange(STEPS) > 57, np.nan, 0.1)}),
    ("kl-runaway", {"entropy": 1.0, "kl": LINE * 1.25}, {"kl": LINE * 1.1}),
    ("entropy-collapse", {"entropy": np.linspace(1, 0.2, STEPS)}, {"entropy": np.linspace(1, 0.35, STEPS)}),
    ("entropy-grows", {"kl": 0.0} | grows_to(1.22), grows_to(1.18)),
    ("kl-pushes", {"kl": 0.031} | grows_to(1.22), grows_to(1.18), {"kl": 0.029}),
    ("kl-holds", {"kl": 0.05, "loss": 0.05 * 1.7}, {"loss": 0.05 * 1.5}),  # 1.7 sqrt(0.1) = 0.54
    ("kl-holds", {"rate": FLAT, "entropy": 1.0, "kl": 0.0004, "actor/kl_coef": 2.0}, {"actor/kl_coef": 1.9}),
    ("kl-sign", {"kl": 0.07 * LINE, "loss": -LINE}, {"kl": 0.035 * LINE}, {"loss": 1 - LINE / 2}),
    ("clip-saturation", {"clip_ratio/region_mean": np.where(HALF, 0, 0.31)}, {"clip_ratio/region_mean": 0.29}),
    ("clip-saturation", {"actor/ppo_kl": 0.021}, {"actor/ppo_kl": 0.019}),
    ("rate-too-large", {"kl": FIRST * 0.031}, {"kl": FIRST * 0.029}, {"kl": FIRST * 0.2 + LATER * 0.25},
     {"kl": 0.0032 + FIRST * 0.028}),
    ("rate-too-large", {"actor/ppo_kl": np.where(np.arange(STEPS) > 0, 0, 1.01)}, {"actor/ppo_kl": 0.99}),
    ("gradient-spikes", {"grad_norm": spiky(10.5)}, {"grad_norm": spiky(9.5)}, {"grad_norm": spiky(10.5, 2)},
     {"grad_norm": spiky(10.5) * np.where(HALF, 1, 0.01)}),
    ("cut-off", {"completions/clipped_ratio": np.where(HALF, 0.31, 0.31)}, {"completions/clipped_ratio": 0.29}),
    ("cut-off", {"completions/clipped_ratio": 0.17 * LINE}, {"completions/clipped_ratio": 0.14 * LINE}),
    ("engine-mismatch", {"sampling/sampling_logp_difference/mean": 0.021},
     {"sampling/sampling_logp_difference/mean": 0.019}),
    ("engine-mismatch", {"rollout_corr/kl": 0.0021}, {"rollout_corr/kl": 0.0019}),  # 0.05^2 pi / 4 = 0.00196
    ("engine-mismatch", {"off_policy": -0.0021}, {"off_policy": -0.0021 * (np.arange(STEPS) > 0)}),
    ("engine-changed", {"sampling/sampling_logp_difference/mean": np.where(HALF, 0.027, 0.005)},
     {"sampling/sampling_logp_difference/mean": np.where(HALF, 0.024, 0.005)},
     {"sampling/sampling_logp_difference/mean": np.where(HALF, 0.038, 0.013)}),
    ("stale-policy", {"sampling/sampling_logp_difference/mean": 0.053 * LINE},
     {"sampling/sampling_logp_difference/mean": 0.05 * LINE}),
    ("proxy-paid", {"eval_reward": EVALS}, {"eval_reward": EVALS + 0.25 * LINE}),
    ("no-variety", {"frac_reward_zero_std": 0.91}, {"frac_reward_zero_std": 0.89},
     {"frac_reward_zero_std": np.where(np.arange(STEPS) > 0, 0.92, 0.5)}),
    ("length-paid", follows(0, 0.77), follows(0, 0.74)),  # from step to step they correlate with 0.73 and 0.69
    ("length-paid", follows(10, 0.6), follows(8, 0.6), follows(10, 0.55)),  # 0.958 and 0.52; 0.937; 0.46
    ("too-easy", {"reward": 0.951, "frac_reward_zero_std": 0.2}, {"reward": 0.949}),
    ("too-hard", {"reward": 0.029 + 1e-4 * NOISE, "frac_reward_zero_std": 0.2}, {"reward": 0.031 + 1e-4 * NOISE}),
    ("rate-too-large", {"entropy": np.exp(0.51 * FIRST)}, {"entropy": np.exp(0.49 * FIRST)}),
    ("rate-too-small", {"rate": FLAT, "learning_rate": 0.99e-7}, {"learning_rate": 1.01e-7}),
    ("uniform-policy", {"entropy": np.log(32_000) + 0.019}, {"entropy": np.log(32_000) - 0.03}),
    ("grader-changed", {"reward": 0.7 - 0.16 * HALF + 1e-3 * NOISE}, {"reward": 0.7 - 0.14 * HALF + 1e-3 * NOISE}),
    ("too-hard", {"rate": 0.3 * UP, "frac_reward_zero_std": 0.51}, {"frac_reward_zero_std": 0.49}),
    ("rate-too-small", {"learning_rate": np.where(HALF, 0.9e-8, 1e-6)},
     {"learning_rate": np.where(HALF, 1.1e-8, 1e-6)}),
    ("rate-too-small", {"rate": FLAT, "spread": 0.4, "entropy": 1 + 0.02 * LINE + 1e-4 * NOISE, "prompts": 999},
     {"entropy": 1 + 0.06 * LINE + 1e-4 * NOISE}),
]  # fmt: skip


@pytest.mark.parametrize(
    ("name", "over", "under"), [(name, over, under) for name, over, *unders in OVER_AND_UNDER for under in unders]
)
def test_a_side_is_named_just_over_its_threshold_and_not_just_under(name, over, under, tmp_path):
    named = []
    for columns in (over, over | under):
        rows = curves(**{"rate": UP} | columns)
        rows = [{key: x for key, x in row.items() if not (key == "eval_reward" and np.isnan(x))} for row in rows]
        found, _ = report.scalar_autopsy(state(tmp_path, rows), {})
        named.append([each["name"] for each in found["causes"] + found["watch"]])
    assert name in named[0]
    assert name not in named[1]


@pytest.mark.parametrize(
    ("rate", "level"),
    [(UP, "watch"), (np.concatenate([UP[:30] + 0.1, UP[:30][::-1] - 0.1]), "causes"), (0.5 - 0.15 * LINE, "causes")],
)
def test_a_sign_accuses_only_a_run_whose_reward_falls(rate, level, tmp_path):
    found, _ = report.scalar_autopsy(state(tmp_path, curves(rate, **{"clip_ratio": 0.5})), {})
    assert "clip-saturation" in [each["name"] for each in found[level]]
    if level == "watch":
        assert report.headline(found).startswith("Healthy so far; watch clip-saturation")


# ---- Every number of the rules, from logs without noise

STEP, WAVE = np.arange(STEPS), (-1.0) ** np.arange(STEPS)


def logged(steps=STEPS, **columns):
    """A log by our names of columns; a number is one for all steps."""
    table = {key: np.broadcast_to(np.asarray(x, float), steps) for key, x in ({"reward": 0.4} | columns).items()}
    parts = {key: table.pop(key) for key in ("correct", "format") if key in table}
    return Curves(Log("a", np.arange(1.0, steps + 1), table, parts))


def then(x, at=STEPS // 2):
    """1, and x from the middle or another place on."""
    return np.where(at > STEP, 1.0, x)


def points(count, x, others=np.nan):
    """So many points at x; the others are not logged, or have another value."""
    return np.where(count > STEP, x, others)


def drift(z, level=0.4):
    """A wave whose last third is z standard errors above its first one, as `trend` takes them."""
    return level + 0.05 * WAVE + z * 0.1 / 0.954 * np.sqrt(2 / 20) * (STEP >= 40)


DROPS, RISES, SHORTER = then(0.3), 0.3 + 0.5 * HALF, 300 * then(0.1)
ALIKE = group_std(np.array(0.4))
AFTER = np.clip(STEP - 30, 0, 29) / 29
DIPS = 0.02 * WAVE + points(54, 0.005, -0.045)  # around 0; a reward of 0.9 with it does not end above SOLVED

# the finding, a log of one number, a number just on the side where the rule is silent, and one where it speaks
NUMBERS = (
    # MIN_POINTS and FEW_POINTS
    ("equal-rewards", logged, 5, 6),
    ("kl-runaway", lambda n: logged(n, kl=2), 11, 12),
    ("kl-runaway", lambda n: logged(20, kl=points(n, 2)[:20]), 11, 12),
    ("kl-runaway", lambda n: logged(kl=points(n, 2)), 29, 30),
    ("std-without-reason", lambda n: logged(n, reward_std=points(3, 0.3, 0.003)[:n], grad_norm=0.3), 11, 12),
    ("reward-noise", lambda n: logged(n, reward_std=ALIKE), 11, 12),
    ("rate-too-small", lambda n: logged(n, lr=points(2, 1e-6, 1e-9)[:n]), 11, 12),
    ("rate-too-large", lambda n: logged(entropy=points(n, np.exp(FIRST))), 5, 6),
    ("right-per-token", lambda n: logged(held_out=points(n, then(0.5, 3)), length=SHORTER), 5, 6),
    ("proxy-paid", lambda n: logged(held_out=points(n, then(0.5, 2))), 5, 6),
    ("proxy-paid", lambda n: logged(reward=RISES, correct=points(n, 0.01)), 5, 6),
    ("cut-off", lambda n: logged(cut=points(n, 0.5)), 5, 6),
    ("too-hard", lambda n: logged(reward=0.3 + 0.01 * LINE, silent=points(n, 0.9)), 5, 6),
    ("rate-too-small", lambda n: logged(reward=drift(0), kl_response=points(n, 1e-9)), 5, 6),
    ("clip-saturation", lambda n: logged(clip=points(n, 0.5)), 5, 6),
    # what `Curves` knows
    ("format-never-found", lambda x: logged(reward=0.04 * np.where(STEP < 54, HALF, x), format=0), 0.61, 0.59),
    ("format-never-found", lambda x: logged(reward=0.05 * drift(x), format=0), 3.05, 2.95),
    ("entropy-collapse", lambda x: logged(reward=x, entropy=then(0.1)), 0.91, 0.89),
    # a change of the grader, and leaps of the policy
    ("grader-changed", lambda n: logged(reward=then(0.3, n), entropy=1), 7, 8),
    ("grader-changed", lambda x: logged(reward=DROPS, entropy=then(1 + x)), 0.51, 0.49),
    ("grader-changed", lambda n: logged(reward=DROPS, entropy=then(2, 30 + n)), 8, 9),
    ("grader-changed", lambda x: logged(reward=0.9 * then(5 / 9) - x * AFTER, entropy=1), 0.34, 0.31),
    ("grader-changed", lambda n: logged(reward=DROPS, cut=0.3 - 0.2 * then(0, 30 + n), length=then(0.8)), 3, 4),
    ("grader-changed", lambda x: logged(reward=DROPS, kl=0.01 * WAVE + x * 0.0908 * HALF), 1.02, 0.98),
    ("rate-too-large", lambda x: logged(kl_step=1.5, cut=x * HALF, length=SHORTER), 0.105, 0.095),
    ("rate-too-large", lambda x: logged(reward=then(0.7), entropy=then(np.exp(x))), 0.49, 0.51),
    ("rate-too-large", lambda x: logged(reward=then(x), entropy=then(np.exp(1))), 0.76, 0.74),
    ("rate-too-large", lambda x: logged(reward=then(x), length=then(1.6)), 0.61, 0.59),
    ("rate-too-large", lambda n: logged(kl_step=np.where(n == STEP, 1.5, 0)), 15, 14),
    ("rate-too-large", lambda x: logged(entropy=np.exp(FIRST * (0.1 * WAVE + x * 1.2 / 0.954))), 0.98, 1.02),
    ("uniform-policy", lambda x: logged(entropy=np.log(32_000) - x), 0.0205, 0.0195),
    ("entropy-grows", lambda x: logged(entropy=3 + x * np.clip((STEP - 5) / 48, 0, 1)), 0.34, 0.36),
    ("entropy-grows", lambda x: logged(entropy=1 + (1 - x) * LINE + x * HALF), 0.52, 0.48),
    ("entropy-grows", lambda x: logged(entropy=drift(x, 0.5)), 5.9, 6.1),
    ("kl-holds", lambda x: logged(kl=0.05, loss=0.1 * (1 + x * WAVE)), 0.031, 0.029),
    ("kl-sign", lambda x: logged(kl=x * LINE / LINE[30:].mean(), loss=-LINE), 0.0295, 0.0305),
    ("kl-sign", lambda x: logged(kl=LINE, loss=-1 - LINE + WAVE * LINE.std() * np.sqrt(x**-2 - 1)), 0.78, 0.82),
    ("kl-runaway", lambda x: logged(kl=x), 0.98, 1.02),
    ("kl-runaway", lambda x: logged(kl=x, entropy=then(3)), 0.029, 0.031),
    ("entropy-collapse", lambda x: logged(entropy=then(x)), 0.31, 0.29),
    # what is paid
    ("right-per-token", lambda x: logged(reward=np.repeat([0.2, 0.8, 0.5], 20), length=300 * then(x)), 0.34, 0.33),
    ("right-per-token", lambda x: logged(reward=np.repeat([0.2, 1, x], 20), length=SHORTER), 0.81, 0.79),
    ("right-per-token", lambda x: logged(reward=np.repeat([0.5, 1, 0.5], 20), length=300 * then(1 / x)), 4.9, 5.1),
    ("std-without-reason", lambda x: logged(reward_std=then(1 / x), grad_norm=0.3), 29, 31),
    ("std-without-reason", lambda x: logged(reward_std=then(1 / 40), grad_norm=then(1 / x)), 5.1, 4.9),
    ("format-never-found", lambda x: logged(reward=x + 1e-4 * WAVE, format=0), 0.031, 0.029),
    ("format-never-found", lambda n: logged(reward=0.02 + 1e-4 * WAVE, format=points(n, 0)), 2, 3),
    ("proxy-paid", lambda x: logged(held_out=then(x)), 0.76, 0.74),
    ("proxy-paid", lambda x: logged(reward=0.5 * then(x, 20) + 0.1 * WAVE, held_out=then(0.5)), 0.79, 0.81),
    ("proxy-paid", lambda x: logged(reward=drift(x, 0.8), held_out=then(0.5)), -3.05, -2.95),
    ("proxy-paid", lambda x: logged(reward=0.3 + x * HALF, correct=0.01), 0.098, 0.102),
    ("proxy-paid", lambda x: logged(reward=RISES, correct=0.8 * x), 0.105, 0.095),
    ("proxy-paid", lambda x: logged(reward=RISES, correct=0.5 * x * HALF), 0.105, 0.095),
    ("proxy-paid", lambda x: logged(reward=RISES, correct=0.3 + 0.5 * x * HALF), 0.33, 0.31),
    ("proxy-paid", lambda x: logged(reward=RISES, correct=0.01 + x * WAVE), 0.128, 0.123),
    ("cut-off", lambda x: logged(cut=drift(x, 0.05)), 5.9, 6.1),
    ("length-paid", lambda x: logged(16, length=NOISE[:16], reward=follows(0, x)["reward"][:16]), 0.85, 0.86),
    # which prompts, and silent groups
    ("too-hard", lambda x: logged(reward=0.3 + 0.01 * LINE, silent=points(6, x, 1)), 0.49, 0.51),
    ("too-hard", lambda x: logged(reward=0.3 + 0.01 * LINE, silent=points(40, 1, x)), 0.49, 0.51),
    ("too-hard", lambda x: logged(reward=x - 0.01 * LINE, silent=0.9), 0.52, 0.5),
    ("too-hard", lambda x: logged(reward=points(54, 0.01, x)), 0.155, 0.145),
    ("too-easy", lambda x: logged(reward=x + 0.01 * LINE, silent=0.9), 0.49, 0.5),
    ("no-variety", lambda x: logged(reward=x ** (1 / 8) - 0.01 * HALF, silent=0.95), 0.51, 0.49),
    ("data-changed", lambda x: logged(reward=DROPS, prompt_length=100 * then(1 + x)), 0.098, 0.102),
    ("data-changed", lambda n: logged(reward=DROPS, prompt_length=then(2, 30 + n)), 4, 3),
    # a reward that says nothing, a policy that does not move, a reward that falls
    ("reward-noise", lambda x: logged(reward=x, reward_std=group_std(np.array(x))), 0.098, 0.102),
    ("reward-noise", lambda x: logged(reward=x + DIPS, reward_std=group_std(x + DIPS)), 0.905, 0.895),
    ("reward-noise", lambda x: logged(reward_std=ALIKE * x), 0.95, 0.97),
    ("reward-noise", lambda x: logged(reward_std=ALIKE * x), 1.05, 1.03),
    ("reward-noise", lambda x: logged(reward=drift(x), reward_std=ALIKE), -3.05, -2.95),
    ("rate-too-small", lambda n: logged(lr=then(1e-3, n)), 31, 30),
    ("rate-too-small", lambda x: logged(reward=drift(x), kl=5e-4), -6.1, -5.9),
    ("rate-too-small", lambda x: logged(reward=drift(0), kl=x), 1.02e-3, 0.98e-3),
    ("rate-too-small", lambda x: logged(reward=drift(0), kl=np.where(STEP == 9, x, 5e-4)), 3.05e-3, 2.95e-3),
    ("rate-too-small", lambda n: logged(n, reward=drift(0)[:n], kl=5e-4), 39, 40),
    ("rate-too-small", lambda x: logged(reward=drift(0), kl_response=x), 5.1e-7, 4.9e-7),
    ("rate-too-small", lambda x: logged(reward=drift(0), entropy=1 + x * HALF), 0.03, 0.0285),
    ("rate-too-small", lambda x: logged(reward=0.4 + x / 2 * WAVE, entropy=1), 0.102, 0.099),
    ("reward-falls", lambda x: logged(reward=np.interp(STEP, [19, 40], [1, x])), 0.81, 0.79),
    ("reward-falls", lambda x: logged(reward=drift(x)), -2.95, -3.05),
)  # fmt: skip


@pytest.mark.parametrize(("name", "log", "silent", "speaks"), NUMBERS)
def test_a_rule_speaks_on_one_side_of_each_of_its_numbers_alone(name, log, silent, speaks):
    """Strength 0.5 is that of a component which rises too little: it is watched, and one that does not rise accused."""
    found = [scalar_causes(log(x), (name,)) for x in (silent, speaks)]
    weak, strong = (sum(cause.evidence for each in both for cause in each) for both in found)
    assert weak in (0, 0.5)
    assert strong > weak
