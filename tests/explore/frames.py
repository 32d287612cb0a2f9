"""Frames of an explorable while a number changes in each; benchmarks/page_frames.py measures what a frame costs."""

SWEEP = """async ([key, values]) => {
  const field = document.querySelector(`[data-key="${key}"]`);
  const { frames } = document.querySelector(".explore");
  const frame = () => new Promise((done) => requestAnimationFrame(done));
  await frame();
  frames.reset();
  for (const value of values) {
    field.value = value;
    field.dispatchEvent(new Event("input", { bubbles: true }));
    await frame();
  }
  await frame();
  return frames.script.length;
}"""


def drawn_frames(page, key, values):
    """How many frames drew while a number field went through values, one a frame."""
    return page.evaluate(SWEEP, [key, list(values)])
