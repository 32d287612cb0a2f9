"""Replays of other trainers' dumps: the same numbers as from a recording, a group by hand, and what is refused."""

import json
from dataclasses import replace
from math import exp, log, sqrt
from pathlib import Path

import numpy as np
import pytest
import torch

from pmdkit.errors import UsageError
from pmdkit_lab.dumps.as_recording import open_dump
from pmdkit_lab.dumps.recorded import RecordingText, open_step
from pmdkit_lab.replay.replay import BESIDE, make_request, make_requests, replay

TRL = Path(__file__).parents[1] / "autopsy" / "trl"
COLUMNS = {
    "step": "t", "group": "g", "prompt": "q", "response": "a", "reward": "r", "length": "n",
    "logp_engine": "e", "logp": "l", "logp_after": "z",
}  # fmt: skip


def lines(path, records):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    return path


def asked(recording, **options):
    """The replay under PMD-mean, PMD-part and GRPO."""
    return replay(recording, *(make_request(recording, name, options) for name in BESIDE))


def table(found, key, *names):
    """A row of numbers for each response, NaN for null; of some objectives only, if named."""

    def leaves(value):
        return [each for inner in value.values() for each in leaves(inner)] if isinstance(value, dict) else [value]

    rows = ({name: row[key][name] for name in names or row[key]} for row in found["responses"])
    return np.array([leaves(row) for row in rows], float)


def written(recording, path, sums=False):
    """A recorded step as JSON Lines with columns of another's names."""
    words, size = RecordingText(recording), recording["mass"].shape[1]

    def values(name, n):
        found = recording[f"logp_{name}"][n][recording.mask[n]].tolist()
        return sum(found) if sums else found

    return lines(
        path,
        [
            {
                "t": 7, "g": n // size, "q": words.prompt(n // size), "a": words.response(n), "n": int(on.sum()),
                "r": float(recording["reward"].flatten()[n]),
                "e": values("old", n), "l": values("seen", n), "z": values("after", n),
            }
            for n, on in enumerate(recording.mask)
        ],
    )  # fmt: skip


@pytest.fixture
def recording(toy):
    step = open_step(toy.path)
    return replace(step, about=step.about | {"ministeps": 1})  # a dump does not say how its step was cut


def test_a_recorded_step_gives_the_same_as_a_dump(recording, tmp_path):
    """Every push, log-ratio, exact update, gradient and text; float32 in the recording, float64 in the dump."""
    dump, _ = open_dump(written(recording, tmp_path / "dump.jsonl"), None, COLUMNS)
    assert [request.name for request in make_requests(dump, None, {"tau": 0.1})] == list(BESIDE)
    ours, theirs = asked(recording), asked(dump)
    assert theirs["recorded"] is None
    for key in ("push", "log_ratio", "exact"):
        np.testing.assert_allclose(table(theirs, key), table(ours, key), rtol=1e-4, atol=1e-7)
    for own, other in zip((ours, *ours["beside"]), (theirs, *theirs["beside"]), strict=True):
        for name, at in own["points"].items():
            assert other["points"][name]["norm"] == pytest.approx(at["norm"], rel=1e-4)
            assert other["points"][name]["rows"] == at["rows"]
    words = RecordingText(dump), RecordingText(recording)
    assert [words[0].response(n) for n in (0, 127)] == [words[1].response(n) for n in (0, 127)]
    shares = [[driver["share"] for driver in each["drivers"]] for each in (ours, theirs)]
    assert shares[0] == pytest.approx(shares[1], rel=1e-4)


def test_sums_are_enough_for_a_loss_per_response(recording, tmp_path):
    dump, _ = open_dump(written(recording, tmp_path / "dump.jsonl", sums=True), None, COLUMNS)
    found = asked(dump)
    both = [table(each, "push", "pmd-mean", "pmd-part") for each in (asked(recording), found)]
    np.testing.assert_allclose(*both, rtol=1e-4, atol=1e-7)
    assert all(row["push"]["grpo"]["seen"] is None for row in found["responses"])
    assert "by token" in found["beside"][1]["points"]["seen"]["missing"]


GROUP = [  # reward, engine, trainer; one group of four
    (1.0, [-1.0, -2.0], [-0.9, -1.7]),
    (0.0, [-1.5], [-1.6]),
    (0.0, [-0.5], [-0.3]),
    (0.0, [-2.0, -1.0, -1.0], [-2.1, -1.5, -1.0]),
]

LONE = (0.0, [-9.0], [-9.0])  # training data of a response that is in no other file


def four(**more):
    return [
        {"t": 1, "g": 5, "q": "why?", "a": f"since {n}", "r": r, "e": old, "l": new, **more}
        for n, (r, old, new) in enumerate(GROUP)
    ]


def test_a_group_of_four_by_hand(tmp_path):
    """Rewards 1, 0, 0, 0 at tau 0.5: each response weighs 1/4, each of its tokens that over its length."""
    dump, _ = open_dump(lines(tmp_path / "dump.jsonl", four()), None, COLUMNS)
    found = replay(dump, *make_requests(dump, options={"tau": 0.5}))
    s = [0.4, -0.1, 0.2, -0.6]  # log-ratios: 0.1 + 0.3; ...; -0.1 - 0.5 + 0
    tokens = [2, 1, 1, 3]
    advantage = {
        "pmd-mean": [1, -1 / 3, -1 / 3, -1 / 3],  # less the mean of the three peers
        "pmd-part": [1, *3 * [-0.5 * log((exp(2) + 2) / 3)]],  # less tau log of the peers' mean of e^(r / tau)
    }
    for n, row in enumerate(found["responses"]):
        assert row["log_ratio"]["seen"] == pytest.approx(s[n])
        for name, a in advantage.items():
            assert row["push"][name]["old"] == pytest.approx(a[n] / 4 / tokens[n])
            assert row["push"][name]["seen"] == pytest.approx((a[n] - 0.5 * s[n]) / 4 / tokens[n])
    # GRPO: (r - 1/4) / sqrt(3/16), times the ratio of a token that its clip to [0.8, 1.2] lets through
    ratios = [[exp(0.1), 0], [exp(-0.1)], [exp(0.2)], [exp(-0.1), 0, 1]]
    for n, row in enumerate(found["responses"]):
        push = (sqrt(3) if n == 0 else -1 / sqrt(3)) / 4 / tokens[n] * np.mean(ratios[n])
        assert row["push"]["grpo"]["seen"] == pytest.approx(push, rel=1e-5)
        assert row["exact"]["grpo"] is None
        boltzmann = 2 * (n == 0) - log((exp(2) + 3) / 4)
        assert row["exact"]["pmd-part"] == pytest.approx(boltzmann)
    # PMD-mean: u + x |y| e^u = Delta / tau for one x, where e^u has the mean 1
    u = np.array([row["exact"]["pmd-mean"] for row in found["responses"]])
    x = (np.array([1.5, -0.5, -0.5, -0.5]) - u) / tokens / np.exp(u)
    assert np.exp(u).mean() == pytest.approx(1)
    np.testing.assert_allclose(x, x[0], rtol=1e-9)


def test_groups_of_different_sizes_are_replayed_as_they_are(tmp_path):
    """Each group of two weighs half of what it weighs alone, whatever the other holds; one row has no reward."""
    other = [{**row, "g": 6} for row in four()[:3]]
    dump, _ = open_dump(lines(tmp_path / "two.jsonl", [*other, *four(), {**other[0], "r": None}]), None, COLUMNS)
    alone, _ = open_dump(lines(tmp_path / "one.jsonl", four()), None, COLUMNS)
    both, one = asked(dump), asked(alone)
    assert [row["reward"] for row in both["responses"]] == [1, 0, 0, None, 1, 0, 0, 0]
    np.testing.assert_allclose(table(both, "exact")[4:], table(one, "exact"), rtol=1e-12)
    np.testing.assert_allclose(table(both, "push")[4:], table(one, "push") / 2, rtol=1e-6)
    push = table(both, "push", "pmd-mean")[:4]
    assert push[0, 0] == pytest.approx(1 / 3 / 2 / 2)  # one of three responses, of two groups, of two tokens
    np.testing.assert_array_equal(push[3], [0, 0, np.nan])


def slime(folder):
    """Rewards in one file, training data in another, and in another order."""
    samples = [
        {"group_index": 5, "prompt": "why?", "response": f"since {n}", "reward": r, "status": "completed",
         "response_length": len(old), "weight_versions": ["5"], "rollout_log_probs": old}
        for n, (r, old, _) in enumerate(GROUP)
    ]  # fmt: skip
    trained = [
        {"response_lengths": len(old), "rollout_log_probs": torch.tensor(old), "log_probs": torch.tensor(new)}
        for _, old, new in reversed([*GROUP, LONE])
    ]
    torch.save({"rollout_id": 1, "samples": samples}, folder / "rollout_1.pt")
    torch.save({"rollout_id": 1, "samples": trained}, folder / "train_1_0.pt")


def prime_rl(folder):
    """Episodes in one folder, tokens in another; the record of an episode names the step that asked for it."""
    episodes, tokens = [], []
    for n, (r, old, new) in enumerate([*GROUP, LONE]):
        node = {"sampled": True, "message": {"content": f"since {n}"}, "logprobs": old}
        work = {"type": "train", "step": 0, "policy": {"start": 0}}
        trace = {"nodes": [node], "rewards": {"a": {"score": r}}}
        task = {"data": {"prompt": "why?"}}
        episodes += [{"task": task, "traces": [trace], "group": {"id": "5"}, "run": {"work": work}}][: n < 4]
        tokens.append({
            "schema_version": 1, "step": 1, "loss_mask": [False] + [True] * len(old), "advantages": [0.0, *old],
            "inference_logprobs": [0.0, *old], "trainer_logprobs": [-9.0, *new], "entropy": [0.0, *old],
        })  # fmt: skip
    lines(folder / "rollouts" / "step_1" / "train" / "effective" / "traces.jsonl", episodes)
    lines(folder / "token_exports" / "step_1" / "rank_0.jsonl", tokens[::-1])


@pytest.mark.parametrize("write", [slime, prime_rl], ids=lambda f: f.__name__)
def test_rewards_and_training_data_in_two_files_are_matched(write, tmp_path):
    write(tmp_path)
    dump, source = open_dump(tmp_path, None, {})
    plain, _ = open_dump(lines(tmp_path / "plain" / "dump.jsonl", four()), None, COLUMNS)
    assert [count for count, _ in source.left_out.values()] == [1]
    assert dump.about["step"] == 1
    np.testing.assert_allclose(table(asked(dump), "push"), table(asked(plain), "push"), rtol=1e-5)


def test_the_newest_step_is_taken_unless_another_is_named(tmp_path):
    path = lines(tmp_path / "dump.jsonl", [*four(t=2), *four(t=3), *four(t=1)])
    assert open_dump(path, None, COLUMNS)[0].about["step"] == 3
    assert len(open_dump(path, 1, COLUMNS)[0].mask) == 4
    with pytest.raises(UsageError, match="choose one"):
        open_dump(path, 9, COLUMNS)


def test_what_a_format_lacks_is_refused_with_what_would_record_it(tmp_path):
    verl = [{"input": row["q"], "output": row["a"], "gts": "1", "score": row["r"], "step": 1} for row in four()]
    lines(tmp_path / "verl" / "1.jsonl", verl)
    for path, advice in ((TRL, "PMDRecorder"), (tmp_path / "verl", "PMDRecorder")):
        with pytest.raises(UsageError, match=advice):
            open_dump(path, None, {})
    # verl writes what a reward function returns beside the score
    wide = lines(tmp_path / "wide" / "1.jsonl", [{**row, **own} for row, own in zip(verl, four(), strict=True)])
    names = {"step": "step", "prompt": "input", "reward": "score", "logp_engine": "e", "logp": "l"}
    assert open_dump(wide, None, names)[0].mask.sum() == 7
    (tmp_path / "slime").mkdir()
    slime(tmp_path / "slime")
    for name, advice in (("rollout_1.pt", "train-data"), ("train_1_0.pt", "rollout-data")):
        with pytest.raises(UsageError, match=advice):
            open_dump(tmp_path / "slime" / name, None, {})


def test_the_command_on_a_dump(call, tmp_path, capsys):
    path = lines(tmp_path / "dump.jsonl", [*four(), {**four()[0], "e": [-1.0] * 5}])
    columns = ",".join(f"{ours}={theirs}" for ours, theirs in COLUMNS.items())
    assert call("replay", path, "--columns", columns, "--tau", 0.5) == 0
    shown = capsys.readouterr().out
    assert "since 0" in shown
    assert "left out: 1" in shown
    assert call("replay", path, "--columns", columns, "--json", "--objective", "rloo") == 0
    assert json.loads(capsys.readouterr().out)["objective"]["name"] == "rloo"
    for words in ("", "--columns reward=r", f"--columns {columns} --set nrom=none", f"--columns {columns} --web"):
        assert call("replay", path, *words.split()) == 2
