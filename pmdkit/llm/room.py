"""What this tier needs beside the base install, asked before anything else of it is imported."""

from importlib.util import find_spec

from pmdkit.errors import EnvironmentLacks

NEEDS = {"transformers": "transformers", "tokenizers": "tokenizers", "math_verify": "math-verify"}
REMEDY = "pip install -c constraints.txt -e '.[llm]'"


def check_room() -> None:
    """Raise where a package is missing, with the line that installs it."""
    missing = [package for module, package in NEEDS.items() if find_spec(module) is None]
    if missing:
        raise EnvironmentLacks(f"the tier of language models needs {', '.join(missing)}; {REMEDY}")


def check_engine(engine: str, elsewhere: bool = False) -> None:
    """Raise where vLLM is to write on this machine and is missing, or is a version that takes no weights.

    Args:
        engine: of the recipe.
        elsewhere: its servers are started by somebody else.
    """
    from pmdkit.llm.engines import ENGINES

    here = engine == "vllm" or (engine == "vllm-server" and not elsewhere)
    if here and ENGINES[engine].startswith("pmdkit."):
        from pmdkit.llm.engines.vllm.versions import installed_version, interface

        interface(installed_version())
