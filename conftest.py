"""What every test runs under: float64 by default, one thread, no run folder left behind; a model, a browser if asked.

Where Chromium, Node or playwright are missing the tests that need them skip and say so; PMDKIT_REQUIRE_BROWSER=1 makes
them fail.
"""

import os
import shutil
import signal
from collections import Counter

import pytest
import torch

torch.set_num_threads(1)
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # a job in the background of a script; what tests start hears it
    signal.signal(signal.SIGINT, signal.default_int_handler)
if hasattr(signal, "SIGHUP") and signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:  # under nohup
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
# a name that is not an address is not found: what a page asks for elsewhere fails, and is seen
FLAGS = ["--no-sandbox", "--disable-gpu", "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1"]


def pytest_configure(config):
    """No property has a deadline: no test is about time, and machines are busy."""
    if config.pluginmanager.hasplugin("hypothesispytest"):  # an environment of an adapter is without it
        from hypothesis import settings

        settings.register_profile("pmdkit", deadline=None)
        settings.load_profile("pmdkit")


@pytest.fixture(autouse=True)
def clean_place(tmp_path, monkeypatch):
    """Runs without --out land in a folder of the test's own."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "120")


def pytest_collection_modifyitems(config, items):
    """Whoever asks for the browser is a test of the site, marked `site`. Faults are slow ones.

    Under xdist files with slow tests come first: at the end no process waits for another that began a long file late.
    """
    for item in items:
        if "browser" in getattr(item, "fixturenames", ()):
            item.add_marker("site")
        if "faults" in item.path.parts[-2:-1]:
            item.add_marker("slow")
    if hasattr(config, "workerinput"):
        slow = Counter(item.path for item in items if item.get_closest_marker("slow"))
        items.sort(key=lambda item: -slow[item.path])


@pytest.fixture(scope="session")
def missing():
    """`missing(sentence)`: skip, or fail where the browser is required (CI)."""

    def say(sentence: str) -> None:
        if os.environ.get("PMDKIT_REQUIRE_BROWSER") == "1":
            pytest.fail(f"{sentence} PMDKIT_REQUIRE_BROWSER=1 does not let the test be skipped.")
        pytest.skip(sentence)

    return say


@pytest.fixture(scope="session")
def node(missing) -> str:
    """The path of Node, which runs the ES modules without a browser."""
    found = shutil.which("node")
    if found is None:
        missing("node is not installed: apt-get install nodejs, version 18 or newer.")
    return str(found)


@pytest.fixture(scope="session")
def browser(missing):
    """One Chromium for the session."""
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        missing("playwright is not installed: pip install playwright (its own browsers are not needed).")
    chromium = os.environ.get("PMDKIT_CHROMIUM") or shutil.which("chromium") or shutil.which("google-chrome")
    if chromium is None:
        missing("Chromium is not installed: apt-get install chromium, or put its path into PMDKIT_CHROMIUM.")
    with sync_playwright() as driver:
        running = driver.chromium.launch(executable_path=chromium, args=FLAGS)
        yield running
        running.close()


@pytest.fixture(scope="session")
def model_folder(tmp_path_factory):
    """A folder with a tiny random model and its tokenizer, as they are saved. Whoever changes it takes a copy."""
    from pmdkit.envs.math.synthetic import Arithmetic
    from pmdkit.llm.starter.model import build
    from pmdkit.llm.starter.tokenizer import train_tokenizer

    folder = tmp_path_factory.mktemp("model")
    tokenizer = train_tokenizer(Arithmetic(numbers=2, problems=100).build())
    build("starter", tokenizer, 0).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


@pytest.fixture
def call():
    """Run a command in this process; returns its exit code."""

    from pmdkit.cli import main

    def run(*arguments):
        try:
            main([str(a) for a in arguments])
        except SystemExit as leave:
            return leave.code or 0
        return 0

    return run
