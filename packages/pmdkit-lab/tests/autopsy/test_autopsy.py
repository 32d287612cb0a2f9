"""An autopsy of dumps whose contents are known: what is read, measured, named and refused."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch

from pmdkit.errors import UsageError
from pmdkit.theory import group_anchor
from pmdkit_lab.autopsy import report
from pmdkit_lab.autopsy.measures import Pairs, agrees, answer_of, by_step, effective, plain
from pmdkit_lab.autopsy.scalars import holds_scalars
from pmdkit_lab.dumps.readers import Source, read, read_config

TRL = Path(__file__).parent / "trl"  # one step that TRL 1.16.0 wrote with log_completions, a random model of two layers


def lines(path, records):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    return path


def rows_of(path, columns=None):
    source = Source()
    return [row for _, row in read(path, columns or {}, source)], source


def records(step, **more):
    """Two prompts with four responses each, in plain columns; one of four is right."""
    return [
        {"t": step, "q": f"prompt {n // 4}", "a": f"so Answer: {n % 4}", "gold": "1", "r": float(n % 4 == 1), **more}
        for n in range(8)
    ]


PLAIN = {"step": "t", "prompt": "q", "response": "a", "gold": "gold", "reward": "r"}


# ---- What is read


def test_completions_that_trl_wrote():
    rows, source = rows_of(TRL)
    assert source.read == {"TRL": len(rows)}
    assert not source.left_out
    assert {row.step for row in rows} == {40}
    assert all(row.prompt and row.response is not None for row in rows)
    reward, advantage = (np.array([getattr(row, name) for row in rows]) for name in ("reward", "advantage"))
    groups = reward.reshape(-1, 8)  # GRPO's advantage is computed again from the rewards
    again = (groups - groups.mean(1, keepdims=True)) / (groups.std(1, ddof=1, keepdims=True) + 1e-4)
    np.testing.assert_allclose(advantage, again.ravel(), atol=1e-5)


def slime(folder):
    sample = {
        "group_index": 3, "prompt": [{"role": "user", "content": "1 + 1?"}], "response": "2", "reward": 1.0,
        "status": "truncated", "response_length": 2, "weight_versions": ["5", "4"], "rollout_log_probs": [-0.5, -0.25],
    }  # fmt: skip
    torch.save({"rollout_id": 7, "samples": [sample]}, folder / "rollout_7.pt")


def prime_rl(folder):
    node = {
        "sampled": True,
        "message": {"role": "assistant", "content": "2"},
        "logprobs": [-0.5, -0.25],
        "advantages": [1.0, 1.0],
    }
    trace = {
        "nodes": [node],
        "rewards": {"a": {"score": 2.0, "weight": 0.5}, "b": None},
        "calls": [{"finish_reason": "length"}],
    }
    work = {"type": "train", "step": 7, "policy": {"start": 4, "end": 6}}
    task = {"data": {"prompt": "1 + 1?", "answer": "2"}}
    episode = {"task": task, "traces": [trace], "group": {"id": "3"}, "run": {"work": work}}
    for kind in ("all", "effective"):  # those that were trained on are among all: they count once
        lines(folder / "rollouts" / "step_7" / "train" / kind / "traces.jsonl", [episode])


def torchtitan(folder):
    turn = {
        "prompt_messages": [{"role": "user", "content": "1 + 1?"}], "completion_message": {"content": "2"},
        "min_policy_version": 4, "max_policy_version": 7, "completion_logprobs": [-0.5, -0.25],
    }  # fmt: skip
    known = {"group_id": 3, "status": "truncated_length", "reward": 1.0, "advantage": 1.0, "turns": [turn]}
    lines(folder / "rollout_samples.jsonl", [{"is_validation": False, **known}, {"is_validation": True, **known}])


def open_instruct(folder):
    record = {
        "step": 7, "prompt_idx": 3, "prompt_tokens": [1], "response_tokens": [2, 3], "reward": 1.0, "advantage": 1.0,
        "finish_reason": "length", "logprobs": [-0.5, -0.25],
    }  # fmt: skip
    lines(folder / "run_rollouts_000000.jsonl", [record])


def by_our_names(folder):
    record = {"step": 7, "group": 3, "prompt": "1 + 1?", "response": "2", "gold": "2", "reward": 1.0, "length": 2}
    lines(folder / "rows.jsonl", [record | {"cut": True, "version": 4, "logp_engine": [-0.5, -0.25]}])


@pytest.mark.parametrize("write", [slime, prime_rl, torchtitan, open_instruct, by_our_names], ids=lambda f: f.__name__)
def test_one_response_reads_the_same_from_every_format(write, tmp_path):
    write(tmp_path)
    assert not holds_scalars(tmp_path, {})
    (row,), source = rows_of(tmp_path)
    assert (row.step, row.reward, row.length, row.cut) == (7, 1.0, 2, True)
    assert row.logp_engine == [-0.5, -0.25]
    assert row.group is not None
    assert not source.left_out
    assert row.version in (4, None)


def test_verl_takes_the_step_and_its_logged_metrics(tmp_path):
    lines(tmp_path / "7.jsonl", [{"input": "1 + 1?", "output": "2", "gts": "2", "score": 1.0}])
    lines(tmp_path / "log.jsonl", [{"step": 7, "data": {"actor/grad_norm": 0.5}}])
    (row,), source = rows_of(tmp_path)
    assert (row.step, row.gold, row.response) == (7, "2", "2")
    assert source.metrics == {7: {"grad_norm": 0.5}}


def test_tokens_of_prime_rl_show_a_mask_that_begins_late(tmp_path):
    record = {
        "schema_version": 1, "step": 2, "loss_mask": [False, False, True], "inference_logprobs": [0.0, -1.0, -2.0],
        "trainer_logprobs": [-9.0, -1.5, -2.5], "advantages": [0.0, 1.0, 1.0], "entropy": [None, 1.0, 2.0],
    }  # fmt: skip
    lines(tmp_path / "token_exports" / "step_2" / "rank_0.jsonl", [record, record | {"loss_mask": [False, True, True]}])
    (late, right), _ = rows_of(tmp_path)
    assert late.mask_late
    assert not right.mask_late
    assert (right.logp_engine, right.logp, right.entropy) == ([-1.0, -2.0], [-1.5, -2.5], 1.5)


@pytest.mark.slow
def test_recorded_steps_of_pmdkit(tmp_path):
    from pmdkit import train

    options = {"model.dimension": 16, "model.layers": 1, "env.length": 2}
    train("pmd-mean", "toy", "copy", out=tmp_path / "run", steps=2, group=4, prompts=4, record=1, options=options)
    rows, source = rows_of(tmp_path / "run")
    assert len(rows) == 32
    read_config(tmp_path / "run", source)
    assert source.config["objective"]["name"] == "pmd-mean"
    logged = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    for step in by_step(read(tmp_path / "run", {}, Source()), 0.05):
        row = logged[step["step"] - 1]
        assert step["reward"] == pytest.approx(row["reward_mean"], abs=1e-6)
        assert step["anchor"] == pytest.approx(row["anchor"], rel=1e-5)


# ---- What is left out or refused


def test_a_dump_that_would_run_code_is_left_out(tmp_path):
    class Runs:
        def __reduce__(self):
            return Path.touch, (tmp_path / "ran",)

    torch.save({"rollout_id": 1, "samples": [Runs()]}, tmp_path / "rollout_1.pt")
    rows, source = rows_of(tmp_path)
    assert not rows
    assert len(source.left_out) >= 1
    assert not (tmp_path / "ran").exists()


def test_damaged_lines_are_counted_and_the_rest_is_read(tmp_path):
    path = lines(tmp_path / "dump.jsonl", records(1))
    path.write_text(path.read_text() + "[1]\n" + '{"t": 2, "q": "pro')
    rows, source = rows_of(path, PLAIN)
    assert len(rows) == 8
    assert sorted(count for count, _ in source.left_out.values()) == [1, 1]


def test_a_large_file_reads_the_same_with_its_progress(tmp_path, monkeypatch):
    path = lines(tmp_path / "dump.jsonl", records(1))
    plain, _ = rows_of(path, PLAIN)
    monkeypatch.setattr("pmdkit_lab.dumps.readers.PROGRESS_SIZE", 0)
    assert rows_of(path, PLAIN)[0] == plain


def test_nothing_readable_is_wrong_usage(call, tmp_path):
    lines(tmp_path / "dump.jsonl", [{"x": 1}])
    assert call("autopsy", tmp_path) == 2
    for columns in ("reward", "nonsense=x"):
        assert call("autopsy", tmp_path, "--columns", columns) == 2
    with pytest.raises(UsageError):
        list(read(tmp_path / "nowhere", {}, Source()))


# ---- What is measured


def test_measures_of_a_step_by_hand(tmp_path):
    path = lines(tmp_path / "dump.jsonl", records(1))
    (step,) = by_step(read(path, PLAIN, Source()), 0.1, 4)
    assert (step["reward"], step["groups"], step["group_size"], step["silent"]) == (0.25, 2, 4, 0.0)
    assert step["difficulty"] == [0, 0, 2, 0, 0, 0]  # both groups have the pass rate 1/4
    assert step["anchor"] == pytest.approx(float(group_anchor([0.0, 1.0, 0.0, 0.0], 0.1)) / 0.1)
    assert step["forms"] == {"answer line": [8, 0.25, 2, 6]}
    assert step["contradictions"] is None


def test_pairs_give_regression_and_correlation():
    rng = np.random.default_rng(0)
    x = rng.normal(size=100)
    y = 0.7 * x + 0.1 * rng.normal(size=100)
    pairs = Pairs()
    pairs.add(x[:30], y[:30])
    pairs.add(x[30:], y[30:])
    assert pairs.correlation() == pytest.approx(np.corrcoef(x, y)[0, 1], abs=1e-12)
    var, _, both = pairs.moments()
    assert both / var == pytest.approx(np.polyfit(x, y, 1)[0], abs=1e-12)


def test_effective_share_has_its_limits():
    assert effective(np.full(5, 3.0)) == pytest.approx(1.0)
    assert effective(np.array([1000.0, 0.0, 0.0, 0.0])) == pytest.approx(0.25)


@pytest.mark.parametrize(
    ("response", "form", "answer"),
    [
        (r"so \boxed{7}", "box", "7"), ("Answer: 7", "answer line", "7"), ("<answer> 7 </answer>", "tag", "7"),
        ("it is\n#### 7", "####", "7"), ("it is 7.", "number", "7"), ("I do not know", "none", None),
        ("The answer is (B).\nI hope this helps.", "answer is", "(B)"), ("the answer is: 3.5", "answer is", "3.5"),
    ],
)  # fmt: skip
def test_forms_of_answers(response, form, answer):
    assert answer_of(response) == (form, answer)


def test_two_answers_differ_only_if_both_are_plain():
    assert plain("7.0") == plain("$7$") == 7
    assert plain("(B)") == plain("b.") != plain("C")
    assert plain("yes, I think") is plain("Budapest (most likely)") is plain(None) is None


def test_content_is_judged_only_where_it_is_plain():
    assert agrees("7.0", "7")
    assert agrees("1,000", "so #### 1000")
    assert agrees("8", "7") is False
    assert agrees("7", None) is None
    assert all(agrees(answer, gold) for answer, gold in ((r"\frac{1}{2}", "0.5"), ("12 km", "12"), ("(B)", "b")))
    assert all(agrees(listed, "B") is False for listed in ("A, B, C, D", "A or B", "(a / b)", "A, B and C."))
    assert agrees("B. b", "B") is None  # an option with its text
    assert agrees("$17.94, or $26.44", "$17.94") is agrees("Paris or Rome", "Paris") is False
    assert agrees("1/2 or 0.5", "0.5")
    assert agrees("12 or so", "12") is agrees("3 or 4", "2 or 3") is agrees("3 or 4", "2") is None
    assert agrees("13 km", "12") is agrees("(C)", "B") is agrees("2/3", "1/2") is False
    assert agrees("0.33", "1/3") is agrees("x + 1", "1 + x") is agrees("Paris, France", "Paris") is None


def test_a_step_in_pieces_is_the_step_in_one(tmp_path, monkeypatch):
    from pmdkit_lab.autopsy import measures

    path = lines(tmp_path / "dump.jsonl", records(1))
    (whole,) = by_step(read(path, PLAIN, Source()), None)
    monkeypatch.setattr(measures, "MAX_ROWS_IN_MEMORY", 4)
    again = measures.merged(list(by_step(read(path, PLAIN, Source()), None)))
    for name in ("rows", "reward", "groups", "silent", "difficulty", "forms"):
        assert again[name] == whole[name]


# ---- What is named


def dump(folder, change=lambda n, step, record: None, steps=6):
    """A run that learns, with both log-probabilities; `change` edits a record."""
    rng = np.random.default_rng(0)
    found = []
    for step in range(steps):
        for n in range(64):
            right = rng.random() < 0.2 + 0.1 * step
            logp = (-rng.exponential(size=6)).tolist()
            record = {
                "t": step, "q": f"prompt {n // 8 + 8 * step}", "a": f"{n} Answer: {7 if right else n % 7}", "gold": "7",
                "r": float(right), "e": logp, "l": (np.array(logp) - 1e-3 * rng.random(6)).tolist(),
            }  # fmt: skip
            change(n, step, record)
            found.append(record)
    return lines(folder / "dump.jsonl", found)


CHANGES = {
    None: lambda n, step, record: None,
    "temperature": lambda n, step, r: r.update(l=(0.7 * np.array(r["l"])).tolist()),
    "mask-off-by-one": lambda n, step, r: r.update(l=[*r["l"][1:], -1.0]),
    "equal-rewards": lambda n, step, r: r.update(r=0.0, a=f"no {n} ?"),
    "reward-cannot-read": lambda n, step, r: r.update(r=0.0),
    "wrong-form-paid": lambda n, step, r: r.update(r=1.0) if n % 2 else None,
    "duplicate-prompts": lambda n, step, r: r.update(q=f"prompt {n // 8 % 2 if n // 8 != 3 else 0}"),
    "no-variety": lambda n, step, r: r.update(a="Answer: 1", r=0.0),
    "length-paid": lambda n, step, r: r.update(a="hmm " * (n * 37 % 64) + "Answer: 8", r=0.08 * (n * 37 % 64)),
    "silent-groups": lambda n, step, r: r.update(r=0.0, a=f"{n} ?") if n // 8 % 4 else None,
}  # fmt: skip
BOTH = PLAIN | {"logp_engine": "e", "logp": "l"}


@pytest.mark.parametrize("kind", CHANGES, ids=str)
def test_a_planted_fault_is_named_first_and_a_healthy_run_has_none(kind, tmp_path):
    found, _ = report.autopsy(dump(tmp_path, CHANGES[kind]), BOTH)
    assert [cause["name"] for cause in found["causes"]][:1] == ([kind] if kind else [])
    assert found["verdict"] == ("causes" if kind else "healthy")
    if kind:
        assert all(row.rpartition(":")[2].isdigit() for row in found["causes"][0]["rows"])


def test_how_many_prompts_are_repeated_is_unknown_until_the_size_of_a_group_is(tmp_path, call, capsys):
    """Eight groups of eight that ask one prompt, without names of groups: 64 may as well be one group."""
    path = dump(tmp_path, lambda n, step, r: r.update(q=f"prompt {step}"))
    unknown, _ = report.autopsy(path, BOTH)
    assert unknown["verdict"] == "healthy"
    assert unknown["phases"][0]["repeated"] is None
    assert any("--group" in each["needs"] for each in unknown["missing"])
    known, _ = report.autopsy(path, BOTH, group_size=8)
    assert known["phases"][0]["repeated"] == pytest.approx(7 / 8)
    assert [cause["name"] for cause in known["causes"]] == ["duplicate-prompts"]
    columns = ",".join(f"{ours}={theirs}" for ours, theirs in BOTH.items())
    assert call("autopsy", path, "--columns", columns, "--group", 8) == 0
    assert "duplicate-prompts" in capsys.readouterr().out
    assert call("autopsy", path, "--columns", columns, "--group", 1) == 2


def test_groups_that_are_named_are_counted_as_they_are(tmp_path):
    """A prompt of two groups, one of one: a third of the groups repeats a prompt, whatever --group says."""
    path = dump(tmp_path, lambda n, step, r: r.update(g=n // 8, q=f"prompt {max(n // 8, 2)}"))
    found, _ = report.autopsy(path, BOTH | {"group": "g"}, group_size=4)
    assert found["phases"][0]["repeated"] == pytest.approx(2 / 8)
    assert found["phases"][0]["group_size"] == 8


def test_paid_in_full_has_no_meaning_for_graded_rewards(tmp_path):
    """The best response of each step is wrong, and is one of many rewards."""
    path = dump(
        tmp_path, lambda n, step, r: r.update(r=1.5, a="Answer: 8") if n % 3 == 0 else r.update(r=r["r"] - n / 99)
    )
    found, _ = report.autopsy(path, BOTH)
    assert "wrong-form-paid" not in [cause["name"] for cause in found["causes"]]
    assert all(phase["paid_known"] == 0 for phase in found["phases"])


@pytest.mark.parametrize(
    ("gold", "answer", "named"),
    [("17", "any", True), ("17", '{"x": "any"}', True), ("17", "it is 17, any", False), ("17", "1 7 any", False),
     ("17", "seventeen", False),
     ("it is 17", "any", False), ("rome", "[[paris]]", True), ("rome", "[[Rome]] done", False)],
)  # fmt: skip
def test_what_is_paid_without_the_right_answer_is_wrong_in_whatever_form(gold, answer, named, tmp_path):
    """Where the right answer is a number or a word. A form that is not known is no wrong answer."""

    def change(n, step, r):
        r.update(gold=gold, a=answer if r["r"] else "hmm" + " hmm" * (n % 2))

    found, _ = report.autopsy(dump(tmp_path, change), BOTH)
    assert ("wrong-form-paid" in [cause["name"] for cause in found["causes"]]) == named


@pytest.mark.parametrize(("longest", "named"), [(40, []), (100, ["cut-off-scored-wrong"])])
def test_a_cap_is_to_blame_only_if_responses_end_just_below_it(longest, named, tmp_path):
    """Every tenth response is cut off at 100 tokens and wrong; the others end anywhere below a length."""

    def change(n, step, r):
        r.update(n=100, c=True, r=0.0, a="hmm") if n % 10 == 0 else r.update(n=1 + 37 * n % (longest - 1), c=False)

    found, _ = report.autopsy(dump(tmp_path, change), BOTH | {"length": "n", "cut": "c"})
    assert [cause["name"] for cause in found["causes"]] == named


def test_a_collapse_without_a_cause_cannot_be_told(tmp_path):
    found, _ = report.autopsy(
        dump(tmp_path, lambda n, step, r: r.update(r=float(step < 3 and n % 2))),
        {"step": "t", "reward": "r", "prompt": "q"},
    )
    assert found["verdict"] == "cannot tell"
    assert found["events"]


def test_the_noise_of_few_responses_is_no_collapse():
    """Thirty responses a step: pass rates as drawn from 0.27, without a fall of any kind."""
    rng = np.random.default_rng(0)
    for _ in range(20):
        drawn = rng.binomial(5, 0.27, 120) / 5  # responses to one prompt are alike: five count
        assert (
            report.fall([{"step": n, "reward": x, "reward_high": 1.0, "rewarded": 30} for n, x in enumerate(drawn)])
            is None
        )


@pytest.mark.slow
def test_command_writes_its_page_and_one_json_value(call, tmp_path, capsys):
    path, columns = (
        dump(tmp_path, CHANGES["temperature"]),
        ",".join(f"{ours}={theirs}" for ours, theirs in BOTH.items()),
    )
    assert call("autopsy", path, "--columns", columns, "--out", tmp_path / "page", "--json") == 0
    found = json.loads(capsys.readouterr().out)
    text = (tmp_path / "page" / "autopsy.html").read_text()
    assert found["causes"][0]["name"] == "temperature"
    assert "temperature" in text
    assert "<script" not in text
    assert call("autopsy", path, "--columns", columns) == 0
    assert "temperature" in capsys.readouterr().out
