"""The parts of pages that depend on where pmdkit lives, from one address: `Repository` in pyproject.toml.

While it is empty, there is no badge and no link, and the pages show how to install from a wheel. `python
docs/generate/address.py` rewrites the marked parts of PAGES; a test fails if they differ from the address. `--print`
prints it for mkdocs.yml; with `--needed`, as in a release, the exit code is 1 if there is none.
"""

import re
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGES = ("README.md", "docs/use/install.md", "CITATION.cff", "CHANGELOG.md", "docs/project/stability.md")
PART = re.compile(
    r"(?P<mark>(?:<!--|#) address: )(?P<name>\w+)(?P<rest>[^\n]*\n).*?(?=(?:<!--|#) end of the address)", re.S
)
HOST = re.compile(r"https://github\.com/(?P<owner>[\w-]+)/(?P<name>[\w.-]+)")


def repository(root: Path = ROOT) -> str:
    """The address in the pyproject.toml of a checkout, without a slash at its end; "" while there is none."""
    project = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    address = str(project.get("urls", {}).get("Repository", "")).rstrip("/")
    if address and not HOST.fullmatch(address):
        raise SystemExit(
            f"pyproject.toml has Repository = '{address}'; expected https://github.com/OWNER/NAME, or nothing"
        )
    return address


def version() -> str:
    """The version in pmdkit/version.py."""
    return re.findall(r'^__version__ = "(.+)"$', (ROOT / "pmdkit" / "version.py").read_text(), re.MULTILINE)[0]


def site(address: str) -> str:
    """Where the workflow `docs` puts the pages of a repository."""
    found = HOST.fullmatch(address)
    return f"https://{found['owner'].lower()}.github.io/{found['name']}/" if found else ""


def badges(address: str) -> str:
    """Tests, documentation, package and licence, each a link; nothing without an address."""
    if not address:
        return ""
    return (
        f"[![tests]({address}/actions/workflows/test.yml/badge.svg)]({address}/actions/workflows/test.yml)\n"
        f"[![documentation]({address}/actions/workflows/docs.yml/badge.svg)]({site(address)})\n"
        "[![package](https://img.shields.io/pypi/v/pmdkit)](https://pypi.org/project/pmdkit/)\n"
        f"[![licence](https://img.shields.io/pypi/l/pmdkit)]({address}/blob/main/LICENSE)\n\n"
    )


def install(address: str) -> str:
    """How to install outside a checkout: from the index, or from a wheel while no index has it."""
    if address:
        return (
            f"Elsewhere: `pip install pmdkit`, or with extras `pip install 'pmdkit[llm]'`; what is not released yet:\n"
            f"`pip install 'pmdkit @ git+{address}'`.\n"
        )
    wheel = f"./pmdkit-{version()}-py3-none-any.whl"
    return (
        f"Elsewhere, from a wheel (`python -m build` leaves one in `dist/`): `pip install {wheel}`,\n"
        f"or with extras `pip install '{wheel}[llm]'`.\n"
        "pmdkit is on no index yet: a package of that name there is not ours.\n"
    )


def start(address: str) -> str:
    """The first line of the README on where to get it."""
    if address:
        return f"`git clone {address}`, or read it first: [lessons, pictures and reference]({site(address)}).\n"
    return "pmdkit comes as this source folder or as a wheel: see [installing](docs/use/install.md).\n"


def citation(address: str) -> str:
    """The key of a citation that names the sources."""
    return f"repository-code: {address}\n" if address else ""


def releases(address: str) -> str:
    """The links of a changelog's headings."""
    if not address:
        return ""
    now = version()
    return f"[Unreleased]: {address}/compare/v{now}...HEAD\n[{now}]: {address}/releases/tag/v{now}\n"


def versions(address: str) -> str:
    """Where the documentation of each version is."""
    if not address:
        return "There is no public site yet; `make docs` builds that of the version at hand.\n"
    return f"They are at {site(address)}; the menu beside the title leads from one to another.\n"


PARTS: dict[str, Callable[[str], str]] = {
    part.__name__: part for part in (badges, install, start, citation, releases, versions)
}


def with_address(page: str, address: str) -> str:
    """The text of a page with its marked parts rewritten for an address."""
    return PART.sub(lambda found: found["mark"] + found["name"] + found["rest"] + PARTS[found["name"]](address), page)


def main() -> None:
    """Write the parts, or print the address."""
    address = repository()
    if "--print" in sys.argv:
        print(address)
        sys.exit(not address and "--needed" in sys.argv)
    for name in PAGES:
        path = ROOT / name
        path.write_text(with_address(path.read_text(encoding="utf-8"), address), encoding="utf-8")


if __name__ == "__main__":
    main()
