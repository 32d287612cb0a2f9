"""Which loss is this, and what differs? See docs/use/your-loss.md."""

from pmdkit_lab.certify.search import CERTIFIED, Verdict, certify

__all__ = ["CERTIFIED", "Verdict", "certify"]
