// Charts of a run on canvases: a Gantt chart, and curves below it on the same axis of time.

const COLOURS = 12, LEVELS = 16;
const LIGHT = ["#4477aa", "#ee7733", "#228833", "#aa3377", "#66aadd", "#bb9933", "#44aa99",
  "#cc6677", "#8866bb", "#999933", "#5599cc", "#dd8866"];
const DARK = ["#5c93cc", "#f08a4b", "#48a858", "#c85a98", "#7fb8e6", "#cfae4e", "#57bfae",
  "#dc8090", "#a284d4", "#b3b34d", "#71aede", "#e69d80"];
const AXIS = 22, GAP = 12;
const MOST_LABELS = 3000;
const STEPS = [0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 15, 30, 60, 120,
  300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200, 86400, 172800, 604800, 1209600];
const UNITS = [["d", 86400], ["h", 3600], ["min", 60]];
const PANELS = {
  busy: { label: "processors in use", tall: 54, fill: "accent" },
  waiting: { label: "jobs waiting", tall: 42, fill: "faint" },
  gained: { label: "seconds that resizes have saved ended jobs", tall: 42, fill: "accent" },
};

const rgb = (text) => text.match(/\d+/g).map(Number);

// A colour between two ones as a pixel of an ImageData: 32 bits, little-endian as all browsers are.
function mixed(one, other, part) {
  const [red, green, blue] = one.map((value, i) => Math.round(part * value + (1 - part) * other[i]));
  return ((255 << 24) | (blue << 16) | (green << 8) | red) >>> 0;
}

// Colours of the present theme as a canvas needs them; `ground` and the others are those of page.css.
class Theme {
  constructor() {
    const probe = by("spoken"), read = (colour) => {
      probe.style.color = colour;
      return getComputedStyle(probe).color;
    };
    for (const name of ["ground", "ink", "faint", "accent"]) this[name] = read(`var(--${name})`);
    this.jobs = LIGHT.map((light, i) => read(`light-dark(${light}, ${DARK[i]})`));
    this.onJobs = read("light-dark(#ffffff, #10151a)");
    const jobs = this.jobs.map(rgb), ground = rgb(this.ground), ink = rgb(this.ink);
    this.solid = jobs.map((job) => mixed(job, ground, 1));
    this.light = jobs.map((job) => mixed(job, ground, 0.35));
    this.deep = jobs.map((job) => mixed(job, ink, 0.7));
    // Pixels of an image: colour + COLOURS * coverage of LEVELS.
    this.image = Uint32Array.from({ length: COLOURS * (LEVELS + 1) }, (_, value) => {
      const level = Math.floor(value / COLOURS) / LEVELS;
      return mixed(jobs[value % COLOURS], ground, level && 0.15 + 0.85 * level);
    });
  }
}

// Move an interval into one between two limits, and shorten it if it is longer.
function within(from, to, low, high) {
  const length = Math.min(to - from, high - low), begin = Math.min(Math.max(from, low), high - length);
  return [begin, begin + length];
}

// Fit a canvas to its place; return its context, which draws in CSS pixels, and its size in them.
function prepared(canvas) {
  const scale = devicePixelRatio || 1, width = canvas.clientWidth, height = canvas.clientHeight;
  canvas.width = Math.round(width * scale);
  canvas.height = Math.round(height * scale);
  const context = canvas.getContext("2d");
  context.setTransform(scale, 0, 0, scale, 0, 0);
  context.font = "11px system-ui, sans-serif";
  return { context, width, height };
}

function write(context, text, x, y, { align = "left", base = "middle", most } = {}) {
  context.textAlign = align;
  context.textBaseline = base;
  context.fillText(text, x, y, most);
}

function clipped(context, [x, y, width, height], draw) {
  context.save();
  context.beginPath();
  context.rect(x, y, width, height);
  context.clip();
  draw();
  context.restore();
}

// The linear function with the value `start` at `low`, and `start` + `length` at `high`.
function scale(low, high, start, length) {
  const slope = length / (high - low);
  return (value) => start + (value - low) * slope;
}

// Draw a quantity that changes in steps as an area: (time, value), up to a time, within a box.
function drawSteps(context, steps, until, x, [left, top, width, height], fill, most = 1) {
  const largest = steps.reduce((sofar, [, value]) => Math.max(sofar, value), most);
  const y = scale(0, largest, top + height, -height);
  clipped(context, [left, top - 1, width, height + 2], () => {
    context.beginPath();
    context.moveTo(x(steps.length ? steps[0][0] : until), top + height);
    steps.forEach(([time, value], i) => {
      context.lineTo(x(time), y(value));
      context.lineTo(x(i + 1 < steps.length ? steps[i + 1][0] : until), y(value));
    });
    context.lineTo(x(until), top + height);
    context.globalAlpha = 0.55;
    context.fillStyle = context.strokeStyle = fill;
    context.fill();
    context.globalAlpha = 1;
    context.stroke();
  });
  write(context, String(Math.round(largest)), left - 8, top - 2, { align: "right", base: "top" });
  write(context, "0", left - 8, top + height + 4, { align: "right", base: "bottom" });
}

// Draw an image within a box; nothing where it is transparent.
function drawImage(context, image, box) {
  const canvas = new OffscreenCanvas(image.width, image.height);
  canvas.getContext("2d").putImageData(image, 0, 0);
  context.imageSmoothingEnabled = false;
  context.drawImage(canvas, ...box);
}

// Round times between two ones, about 110 pixels apart.
function ticks(run, view, width) {
  const wish = (110 * (view.to - view.from)) / width;
  const step = STEPS.find((each) => each >= wish) ?? 86400 * 30 * Math.ceil(wish / 86400 / 30);
  const zone = run.origin === null ? 0
    : run.origin - 60 * new Date(1000 * (run.origin + view.from)).getTimezoneOffset();
  const times = [];
  for (let at = Math.ceil((view.from + zone) / step) * step - zone; at < view.to; at += step) times.push(at);
  return { step, times };
}

function tickText({ origin }, at, step) {
  if (origin === null) {
    const [unit, seconds] = UNITS.find(([, each]) => each <= step) ?? ["s", 1];
    return `${Number((at / seconds).toFixed(3))} ${unit}`;
  }
  const ofDay = { hour: "2-digit", minute: "2-digit", ...(step < 60 ? { second: "2-digit" } : {}) };
  const parts = step < 86400 ? ofDay : { month: "short", day: "numeric" };
  return new Date(Math.round(1000 * (origin + at))).toLocaleString([], parts);
}

// A heading, a Gantt chart (pixels for all segments, labels for wide ones), and curves.
class Chart {
  constructor() {
    this.section = by("chart").content.firstElementChild.cloneNode(true);
    [this.head, this.numbers, this.canvas] = this.section.children;
    this.rows = [0, 1]; // part of the processors that is shown
  }

  // Set the run, and the size of the canvases.
  show(run) {
    this.run = run;
    const { jobs, in_use, running, queued, wait_s, turnaround_s } = run.totals;
    this.head.textContent = run.name;
    this.numbers.textContent = [
      `${counted(jobs, "job")}, ${counted(run.processors, "processor")}`,
      ...(running + queued ? [`${in_use} in use, ${running} running, ${queued} queued`] : []),
      ...(wait_s === null ? [] : [`mean wait ${duration(wait_s)}`]),
      ...(turnaround_s === null ? [] : [`mean turnaround ${duration(turnaround_s)}`]),
      ...(run.utilization === null ? [] : [`utilisation ${(100 * run.utilization).toFixed(1)} %`]),
    ].join(", ");
    const curves = run.curves.map(([name]) => PANELS[name]);
    this.canvas.ariaLabel = `${run.name}: ${counted(run.processors, "processor")} over time; `
      + curves.map(({ label }) => label).join(", ");
    this.height = Math.max(110, Math.min(run.processors * 24, innerHeight < 700 ? 300 : 440));
    this.canvas.style.height = `${AXIS + this.height + curves.reduce((sum, { tall }) => sum + tall + GAP, 6)}px`;
  }

  // Rectangle of a segment, in CSS pixels.
  box(i) {
    const { first, count, begin, end } = this.run.segments;
    const x = this.x(begin[i]), y = this.y(first[i]);
    return [x, y, this.x(end[i]) - x, this.y(first[i] + count[i]) - y];
  }

  // Time and processor below the pointer; null: it is beside the chart.
  under({ clientX, clientY }) {
    const { left, top } = this.canvas.getBoundingClientRect(), y = clientY - top - AXIS;
    if (!this.view || clientX - left < this.left || y < 0 || y >= this.height) return null;
    const time = scale(this.x(0), this.x(1), 0, 1)(clientX - left);
    return { time, processor: Math.floor(scale(this.y(0), this.y(1), 0, 1)(y + AXIS)) };
  }

  moveRows(part) {
    const [low, high] = this.rows, by = part * (high - low);
    this.rows = within(low + by, high + by, 0, 1);
  }

  zoomRows(factor, at) {
    const [low, high] = this.rows.map((row) => at + factor * (row - at));
    this.rows = within(low, Math.max(high, low + 0.01), 0, 1);
  }

  // Draw a part of the time; `lit` is the number of a job that is lit up, `at` a time that is marked.
  draw(view, theme, lit = null, at = null) {
    const { run } = this, { context, width, height } = prepared(this.canvas), only = run.rowOf.has(lit) ? lit : null;
    this.view = view;
    this.left = innerWidth < 600 ? 40 : 76;
    this.width = Math.max(1, width - this.left);
    this.shown = this.rows.map((part) => part * run.processors);
    this.x = scale(view.from, view.to, this.left, this.width);
    this.y = scale(...this.shown, AXIS, this.height);
    const box = [this.left, AXIS, this.width, this.height];
    clipped(context, box, () => {
      this.paint(context, theme, box);
      this.drawMarks(context, theme);
      if (only !== null) { // everything else becomes pale
        const others = new Path2D();
        for (const part of [box, ...run.segmentsOf(only).map((i) => this.box(i))]) others.rect(...part);
        context.globalAlpha = 0.62;
        context.fillStyle = theme.ground;
        context.fill(others, "evenodd");
        context.globalAlpha = 1;
      }
      this.drawLabels(context, theme, only);
      context.fillStyle = theme.accent;
      if (run.origin !== null) context.fillRect(this.x(run.now) - 0.5, AXIS, 1.5, this.height);
    });
    this.drawAxes(context, theme);
    this.drawCurves(context, theme);
    if (at !== null && this.x(at) >= this.left) context.fillRect(this.x(at), AXIS + this.height, 1, height);
  }

  // Paint all segments as pixels; many that begin in one pixel show how much of it they cover.
  paint(context, theme, box) {
    const [x0, y0, w, h] = box.map((length) => Math.max(1, Math.round(length * (devicePixelRatio || 1))));
    if (this.image?.width !== w || this.image.height !== h) {
      this.image = new ImageData(w, h);
      this.covered = new Float32Array(w * h);
    }
    const { run, view, image, covered, shown: [low, high] } = this, pixels = new Uint32Array(image.data.buffer);
    const { job, first, count, begin, end, kind } = run.segments, { number } = run.jobs;
    const xs = w / (view.to - view.from), ys = h / (high - low), gap = ys >= 4 ? 1 : 0;
    pixels.fill(run.pixels === null ? theme.image[0] : 0);
    covered.fill(0);
    for (let i = 0; i < begin.length; i++) {
      const left = (begin[i] - view.from) * xs, right = (end[i] - view.from) * xs, colour = number[job[i]] % COLOURS;
      if (right <= 0 || left >= w) continue;
      const top = Math.max(0, Math.round((first[i] - low) * ys));
      const bottom = Math.min(h, Math.max(Math.round((first[i] + count[i] - low) * ys) - gap, top + 1));
      const from = Math.max(0, right - left < 1.5 ? Math.floor(left) : Math.round(left));
      const to = Math.min(w, Math.max(from + 1, Math.round(right) - (gap && right - left > 4 ? 1 : 0)));
      if (right - left < 1.5) {
        for (let place = top * w + from; place < bottom * w; place += w) {
          covered[place] = Math.min(1, covered[place] + right - left);
          pixels[place] = theme.image[colour + COLOURS * Math.ceil(LEVELS * covered[place])];
        }
        continue;
      }
      const full = (kind[i] === EXPECTED ? theme.light : kind[i] === LENT ? theme.deep : theme.solid)[colour];
      const slope = kind[i] === STARTING ? 1 : kind[i] === LEAVING ? -1 : 0;
      for (let row = top; row < bottom; row++) {
        pixels.fill(full, row * w + from, row * w + to);
        for (let column = from; slope && column < to; column++) {
          if (((column + slope * row) & 7) < 4) pixels[row * w + column] = theme.light[colour];
        }
      }
    }
    if (run.pixels === null) {
      context.putImageData(image, x0, y0);
      return;
    }
    const [rows, columns] = run.image, behind = new ImageData(columns, rows); // segments that the server did not send
    new Uint32Array(behind.data.buffer).forEach((_, i, colours) => { colours[i] = theme.image[run.pixels[i]]; });
    const top = this.y(0), from = this.x(run.from);
    drawImage(context, behind, [from, top, this.x(run.to) - from, this.y(run.processors) - top]);
    drawImage(context, image, box);
  }

  drawLabels(context, theme, only) {
    const { run } = this, { job, begin, end, kind } = run.segments;
    const wide = (26 * (this.view.to - this.view.from)) / this.width;
    for (let i = 0, drawn = 0; i < begin.length && drawn < MOST_LABELS; i++) {
      if (end[i] - begin[i] < wide) continue;
      const [x, y, width, height] = this.box(i), number = run.jobs.number[job[i]];
      const left = Math.max(x, this.left), room = Math.min(x + width, this.left + this.width) - left;
      if (height < 12 || room < 26 || y + height < AXIS || (only !== null && only !== number)) continue;
      const text = run.jobs.label[job[i]] || String(number);
      if (context.measureText(text).width > room - 4) continue;
      context.fillStyle = kind[i] === COMPUTING ? theme.onJobs : theme.ink;
      write(context, text, left + room / 2, y + height / 2, { align: "center" });
      drawn++;
    }
  }

  drawMarks(context, theme) {
    for (const [kind, intervals, begin, end, text] of this.run.marks) {
      const x = this.x(begin), width = this.x(Math.min(end, this.view.to)) - x;
      context.fillStyle = context.strokeStyle = kind === "reservation" ? theme.accent : theme.faint;
      context.setLineDash([4, 3]);
      for (const [low, high] of intervals) {
        const y = this.y(low), height = this.y(high + 1) - y;
        context.globalAlpha = 0.3;
        context.fillRect(x, y, width, height);
        context.globalAlpha = 1;
        context.strokeRect(x + 0.5, y + 0.5, width - 1, height - 1);
      }
      context.setLineDash([]);
      context.fillStyle = theme.ink;
      if (width > 60 && intervals.length) {
        const place = [Math.max(x, this.left) + 4, this.y(intervals[0][0]) + 3];
        write(context, text, ...place, { base: "top", most: width - 8 });
      }
    }
  }

  drawAxes(context, theme) {
    const { run, left } = this, { step, times } = ticks(run, this.view, this.width);
    context.fillStyle = theme.ink;
    for (const at of times) {
      const x = this.x(at);
      if (x < left + 16 || x > left + this.width - 36) continue;
      write(context, tickText(run, at, step), x, AXIS / 2 - 1, { align: "center" });
      context.fillRect(x, AXIS - 4, 1, 4);
    }
    const hosts = run.hosts.flatMap(([name, intervals]) => intervals.map((interval) => [name, ...interval]));
    const isByHost = hosts.length > 1 && hosts.length <= this.height / 11;
    const every = STEPS.find((each) => each >= 1 && this.y(each) - this.y(0) >= 18) ?? run.processors;
    const numbers = Array.from({ length: Math.ceil(run.processors / every) }, (_, i) => [i * every, i * every, i * every]);
    for (const [name, low, high] of isByHost ? hosts : numbers) {
      const y = this.y(low), middle = (y + this.y(high + 1)) / 2;
      if (middle <= AXIS || middle >= AXIS + this.height) continue;
      write(context, name, left - 8, middle, { align: "right", most: left - 10 });
      if (isByHost) context.fillRect(left - 6, Math.max(y, AXIS), 6, 1);
    }
  }

  drawCurves(context, theme) {
    const { run, left } = this;
    let top = AXIS + this.height + GAP;
    for (const [name, { times, values }] of run.curves) {
      const { label, tall, fill } = PANELS[name], box = [left, top, this.width, tall];
      const steps = times.map((time, i) => [time, values[i] / 100]), most = name === "busy" ? run.processors : 1;
      drawSteps(context, steps, run.now || run.end, this.x, box, theme[fill], most);
      write(context, label, left + 4, top, { base: "top" });
      top += tall + GAP;
    }
  }

  // The job at a place, and lines of text on it; null: nothing is there.
  describe({ time, processor }) {
    const { run } = this, { job, begin, end, count, kind } = run.segments, i = run.at(time, processor);
    if (i < 0) {
      const mark = run.marks.find(([, intervals, from, to]) => from <= time && time < to
        && intervals.some(([low, high]) => low <= processor && processor <= high));
      return mark ? { number: null, lines: [mark[4]] } : null;
    }
    const row = run.row(job[i]), { number, least, most } = row;
    const size = run.segmentsOf(number).filter((j) => begin[j] <= time && time < end[j])
      .reduce((sum, j) => sum + count[j], 0);
    const lines = [
      `job ${labelOf(row)} ${row.name}`,
      `${KINDS[kind[i]]}, ${size} of ${least === most ? "" : `${least} to `}${counted(most, "processor")}`,
      `${moment(run, begin[i])} to ${moment(run, end[i])}`,
    ];
    return { number, lines: row.user ? [...lines, `${row.user}, ${row.state}`] : lines };
  }
}
