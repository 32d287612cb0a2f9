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


def check_engine(engine: str) -> None:
    """Raise where vLLM is to write in this process and is missing, or is a version that takes no weights."""
    from pmdkit.llm.engines import ENGINES

    if engine == "vllm" and ENGINES[engine].startswith("pmdkit."):
        from pmdkit.llm.engines.vllm.versions import installed_version, interface

        interface(installed_version())
