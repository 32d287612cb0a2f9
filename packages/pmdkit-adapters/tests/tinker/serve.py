"""Start SkyRL 0.4.0 as a Tinker server on loopback, without uv: `python serve.py [--as-shipped] --port N ...`.

The other options are those of `skyrl.tinker.api`. As shipped, SkyRL divides a datum's loss by the sum of its signed
weights, and the gradient by the number of data. Here both are plain sums, as the Tinker SDK documents them, unless
--as-shipped is given. The process runs as the API, and starts itself again as the engine.
"""

import importlib
import inspect
import runpy
import sys
import typing

import typing_extensions

if sys.version_info < (3, 12):
    typing.TypedDict = typing_extensions.TypedDict  # pydantic refuses that of Python 3.11

SUMS = {
    "per_token_losses.sum(axis=-1) / jnp.maximum(loss_mask.sum(axis=-1), 1e-9)": "per_token_losses.sum(axis=-1)",
    "set(g[idx] / safe_count.astype(g.dtype))": "set(g[idx])",
}


def load_changed(name, changes):
    """The module, with each text replaced that it must hold once: another version is refused, not half changed."""
    module = importlib.import_module(name)
    source = inspect.getsource(module)
    for old, new in changes.items():
        if source.count(old) != 1:
            raise SystemExit(f"{name} holds {old!r} {source.count(old)} times; this file is for SkyRL 0.4.0")
        source = source.replace(old, new)
    exec(compile(source, module.__file__, "exec"), vars(module))


def main():
    """The engine if --engine is given, else the API."""
    if "--engine" in sys.argv:
        sys.argv.remove("--engine")
        if "--as-shipped" in sys.argv:
            sys.argv.remove("--as-shipped")
        else:
            load_changed("skyrl.backends.jax", SUMS)
        runpy.run_module("skyrl.tinker.engine", run_name="__main__")
        return
    import argparse

    import uvicorn
    from skyrl.tinker import api, config

    parser = argparse.ArgumentParser()
    config.add_model(parser, config.EngineConfig)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--as-shipped", action="store_true")
    given = vars(parser.parse_args())
    flags = ["--engine", *(["--as-shipped"] if given["as_shipped"] else [])]
    api._build_uv_run_cmd_engine = lambda _, engine: [sys.executable, __file__, *flags, *config.config_to_argv(engine)]
    known = config.EngineConfig.model_fields
    api.app.state.engine_config = config.EngineConfig(**{key: value for key, value in given.items() if key in known})
    uvicorn.run(api.app, host="127.0.0.1", port=given["port"], log_level="warning")


if __name__ == "__main__":
    main()
