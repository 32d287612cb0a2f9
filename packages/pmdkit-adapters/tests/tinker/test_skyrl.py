"""Runs on SkyRL 0.4.0, a real Tinker server: with plain sums it is used as it is, as shipped it is found out."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path
from urllib.request import urlopen

from transformers import Qwen3Config, Qwen3ForCausalLM

from pmdkit.envs.math import make_math
from pmdkit.llm.starter.tokenizer import train_tokenizer

HERE = Path(__file__).parent
TINY = HERE.parents[3] / "tests" / "llm" / "tiny.toml"
REWARD = "def fn(response):\n    return float(sum(map(ord, response)) % 2)\n"
BACKEND = {"max_lora_adapters": 12, "max_lora_rank": 8, "train_micro_batch_size": 8, "sample_max_num_sequences": 8}


@contextmanager
def server(*flags):
    """The address of a server of a tiny Qwen3 in ./model, whose compiled functions the next one reuses."""
    tokenizer = train_tokenizer(make_math({"kind": "arithmetic", "numbers": 2, "problems": 300}))
    sizes = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "head_dim": 16}
    heads = {"num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 256}
    config = Qwen3Config(
        **sizes, **heads, vocab_size=len(tokenizer), bos_token_id=None, eos_token_id=tokenizer.eos_token_id
    )
    for part in (Qwen3ForCausalLM(config), tokenizer):
        part.save_pretrained("model")
    Path("my.py").write_text(REWARD)
    with socket.create_server(("127.0.0.1", 0)) as free:
        url = f"http://127.0.0.1:{free.getsockname()[1]}"
    state = Path.cwd() / "server"
    state.mkdir(exist_ok=True)
    command = [
        sys.executable,
        HERE / "serve.py",
        *flags,
        "--port",
        url.rpartition(":")[2],
        "--base-model",
        Path("model").absolute(),
    ]
    command += ["--backend", "jax", "--backend-config", json.dumps(BACKEND), "--checkpoints-base", state]
    cache = {"JAX_COMPILATION_CACHE_DIR": str(state / "jax"), "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0"}
    with open(state / "log", "w") as log:
        process = subprocess.Popen(
            [*command, "--database-url", f"sqlite:///{state}/db"],
            env={**os.environ, "JAX_PLATFORMS": "cpu", **cache}, stdout=log, stderr=log, start_new_session=True,
        )  # fmt: skip
        try:
            for _ in range(300):
                try:
                    urlopen(f"{url}/api/v1/healthz").close()
                    break
                except OSError:
                    time.sleep(1)
            yield url
        finally:
            os.killpg(process.pid, signal.SIGKILL)  # the API and its engine
            process.wait()


def pmdkit(url, *more):
    """`pmdkit llm` on that server, started."""
    changes = ["model.build=null", f"model.path={Path('model').absolute()}", "lora.rank=8", "evaluation.problems=4"]
    command = [sys.executable, "-m", "pmdkit", "llm", TINY, "--backend", "tinker", "--url", url, "--reward", "my.py:fn"]
    return subprocess.Popen(
        [*command, *more, "--set", *changes, "rollout.width=8"],
        env={**os.environ, "TINKER_API_KEY": "tml-local"}, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip


def rows(out):
    file = Path(out) / "metrics.jsonl"
    return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []


def test_a_run_is_killed_and_goes_on_and_the_server_as_shipped_is_driven_by_another_call():
    with server() as url:
        run = pmdkit(url, "--steps", "3", "--out", "run")
        while len(rows("run")) < 2 and run.poll() is None:
            time.sleep(0.1)
        run.kill()
        assert run.wait() == -signal.SIGKILL, run.stderr.read()
        again = pmdkit(url, "--steps", "3", "--out", "run", "--resume")
        said = again.communicate()[1]
        assert again.returncode == 0, said
        assert "importance_sampling" not in said
        assert [row["step"] for row in rows("run")] == [1, 2, 3]
        assert all(row["grad_norm"] > 0 and row["mismatch_max"] < 1e-4 for row in rows("run"))
    with server("--as-shipped") as url:
        run = pmdkit(url, "--steps", "1", "--out", "shipped")
        said = run.communicate()[1]
        assert run.returncode == 0, said
        assert "forward_backward_custom (with coefficients of both signs" in said
