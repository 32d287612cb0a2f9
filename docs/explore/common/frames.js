// How long frames take: script time of each draw and the distance between frames that drew. Nothing is drawn here.

const KEPT = 600; // frames; ten seconds at 60 a second

export class FrameTimer {
  constructor() {
    this.reset();
  }

  /** Forget what was measured. */
  reset() {
    this.script = []; // ms in `draw`, per frame
    this.between = []; // ms from one drawn frame to the next, where they follow each other
    this.last = -Infinity;
  }

  /** Run `draw` in the frame that began at `now` (ms, as requestAnimationFrame tells it). */
  measure(now, draw) {
    const start = performance.now();
    draw();
    this.script.push(performance.now() - start);
    if (now - this.last < 250) this.between.push(now - this.last); // longer: nothing had changed
    this.last = now;
    if (this.script.length > KEPT) this.script.shift();
    if (this.between.length > KEPT) this.between.shift();
  }

  /**
   * Median, 95 % and largest, ms. A draw below 16.7 ms, with room for the browser's own work, keeps 60 frames a second.
   * @returns {{frames: number, script: {median: number, p95: number, max: number}, between: Object}}
   */
  summary() {
    return { frames: this.script.length, script: spread(this.script), between: spread(this.between) };
  }
}

function spread(values) {
  const sorted = [...values].sort((a, b) => a - b);
  const at = (share) => sorted[Math.min(sorted.length - 1, Math.floor(share * sorted.length))] ?? NaN;
  return { median: at(0.5), p95: at(0.95), max: at(1) };
}
