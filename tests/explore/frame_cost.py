"""What a frame of an explorable costs while a number changes: processor time, whatever else the machine does."""

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


def frame_cost(page, key, values):
    """Milliseconds of the page's main thread per frame that drew: script, style, layout and paint.

    Args:
        page: a live explorable.
        key: `data-key` of the number field that changes in every frame.
        values: what it is set to; gone through twice, the first time to warm up the compiler.
    """
    protocol = page.context.new_cdp_session(page)
    protocol.send("Performance.enable", {"timeDomain": "threadTicks"})  # of the thread, not of the clock

    def busy():
        metrics = protocol.send("Performance.getMetrics")["metrics"]
        return next(one["value"] for one in metrics if one["name"] == "TaskDuration")

    page.evaluate(SWEEP, [key, values])
    before = busy()
    drawn = page.evaluate(SWEEP, [key, values])
    assert drawn >= len(values) - 1
    return 1e3 * (busy() - before) / drawn
