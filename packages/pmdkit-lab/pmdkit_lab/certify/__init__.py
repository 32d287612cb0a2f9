"""Which loss is this, which KL divergence does it have, and what differs? See docs/use/your-loss.md."""

from pmdkit_lab.certify.kl import KLVerdict, certify_kl
from pmdkit_lab.certify.search import CERTIFIED, Verdict, assert_is, certify

__all__ = ["CERTIFIED", "KLVerdict", "Verdict", "assert_is", "certify", "certify_kl"]
