"""What every test runs under: float64 by default, one thread, no run folder left behind."""

import pytest
import torch

torch.set_num_threads(1)


@pytest.fixture(autouse=True)
def clean_place(tmp_path, monkeypatch):
    """Runs without --out land in a folder of the test's own."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "120")
