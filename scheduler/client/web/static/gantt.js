// A Gantt chart on a canvas: pixels for all segments, lines and labels for those that are wide.

import { COMPUTING, EXPECTED, KINDS, LEAVING, LENT, STARTING, moment } from "./document.js";
import { colourOf } from "./colours.js";

const AXIS = 22;
const MOST_LABELS = 3000;
const STEPS = [0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 15, 30, 60, 120,
  300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200, 86400, 172800, 604800, 1209600];

export const gutter = () => (innerWidth < 600 ? 40 : 76);

// Round times between two ones, about 110 pixels apart.
export function ticks(run, view, width) {
  const wish = (110 * (view.to - view.from)) / width;
  const step = STEPS.find((each) => each >= wish) ?? 86400 * 30 * Math.ceil(wish / 86400 / 30);
  const zone = run.origin === null ? 0
    : run.origin - 60 * new Date(1000 * (run.origin + view.from)).getTimezoneOffset();
  const found = [];
  for (let at = Math.ceil((view.from + zone) / step) * step - zone; at < view.to; at += step) {
    found.push(at);
  }
  return { step, times: found };
}

export function tickText(run, at, step) {
  if (run.origin === null) {
    const s = Math.round(at / step) * step;
    if (step < 60) return `${Number(s.toFixed(3))} s`;
    if (step < 3600) return `${Math.round(s / 60)} min`;
    return step < 86400 ? `${Math.round(s / 3600)} h` : `${Math.round(s / 86400)} d`;
  }
  const date = new Date(Math.round(1000 * (run.origin + at)));
  if (step >= 86400) return date.toLocaleDateString([], { month: "short", day: "numeric" });
  const parts = { hour: "2-digit", minute: "2-digit", ...(step < 60 ? { second: "2-digit" } : {}) };
  return date.toLocaleTimeString([], parts);
}

export class Gantt {
  constructor(canvas) {
    this.canvas = canvas;
    this.rows = [0, 1]; // part of the processors that is shown
    this.image = null;
  }

  // Set the run and the size of the canvas.
  show(run) {
    this.run = run;
    const rows = Math.max(1, run.processors);
    const height = Math.max(110, Math.min(rows * 24, innerHeight < 700 ? 300 : 440));
    this.canvas.style.height = `${height + AXIS}px`;
  }

  // Place of a time and of a processor, in CSS pixels.
  x(view, time) {
    return this.left + ((time - view.from) / (view.to - view.from)) * this.width;
  }

  y(processor) {
    const [low, high] = this.rows;
    return AXIS + ((processor / this.run.processors - low) / (high - low)) * this.height;
  }

  // Time and processor below a point of the canvas; null: it is beside the chart.
  under(view, x, y) {
    const [low, high] = this.rows;
    const part = (y - AXIS) / this.height;
    if (x < this.left || part < 0 || part >= 1) return null;
    return {
      time: view.from + ((x - this.left) / this.width) * (view.to - view.from),
      processor: Math.floor((low + part * (high - low)) * this.run.processors),
    };
  }

  draw(view, theme, lit) {
    const { canvas, run } = this;
    const scale = devicePixelRatio || 1;
    const width = canvas.clientWidth, height = canvas.clientHeight;
    if (canvas.width !== Math.round(width * scale) || canvas.height !== Math.round(height * scale)) {
      canvas.width = Math.round(width * scale);
      canvas.height = Math.round(height * scale);
      this.image = null;
    }
    this.left = gutter();
    this.width = Math.max(1, width - this.left);
    this.height = Math.max(1, height - AXIS);
    const context = (this.context = canvas.getContext("2d"));
    context.setTransform(1, 0, 0, 1, 0, 0);
    context.clearRect(0, 0, canvas.width, canvas.height);
    this.paint(view, theme, scale);
    context.setTransform(scale, 0, 0, scale, 0, 0);
    context.save();
    context.beginPath();
    context.rect(this.left, AXIS, this.width, this.height);
    context.clip();
    this.drawMarks(view, theme);
    if (lit !== null && run.rowOf.has(lit)) this.light(view, theme, lit);
    this.drawLabels(view, theme, lit);
    if (run.origin !== null && run.now < view.to) {
      context.fillStyle = theme.accent;
      context.fillRect(this.x(view, run.now) - 0.5, AXIS, 1.5, this.height);
    }
    context.restore();
    this.drawAxes(view, theme);
  }

  // Paint all segments as pixels; many that begin in one pixel show how much of it they cover.
  paint(view, theme, scale) {
    const w = Math.max(1, Math.round(this.width * scale)), h = Math.max(1, Math.round(this.height * scale));
    if (this.image === null || this.image.width !== w || this.image.height !== h) {
      this.image = new ImageData(w, h);
      this.pixels = new Uint32Array(this.image.data.buffer);
      this.cover = new Float32Array(w * h);
      this.colour = new Uint8Array(w * h);
    }
    const { run, pixels } = this;
    pixels.fill(theme.groundPixel);
    this.drawImage(view, theme, w, h);
    const { job, first, count, begin, end, kind } = run.segment;
    const [low, high] = this.rows, tick = run.tick_s;
    const xs = (tick * w) / (view.to - view.from), x0 = (view.from * w) / (view.to - view.from);
    const ys = h / ((high - low) * run.processors), y0 = (low * h) / (high - low);
    const gap = ys >= 4 ? 1 : 0;
    let isCovered = false;
    for (let i = 0; i < begin.length; i++) {
      const left = begin[i] * xs - x0, right = end[i] * xs - x0;
      if (right <= 0 || left >= w) continue;
      const top = Math.max(0, Math.round(first[i] * ys - y0));
      const bottom = Math.min(h, Math.max(Math.round((first[i] + count[i]) * ys - y0) - gap, top + 1));
      const colour = colourOf(run.job.number[job[i]]);
      if (right - left < 1.5) {
        if (!isCovered) {
          this.cover.fill(0);
          isCovered = true;
        }
        const x = Math.min(w - 1, Math.max(0, Math.floor(left)));
        for (let y = top; y < bottom; y++) {
          this.cover[y * w + x] += right - left;
          this.colour[y * w + x] = colour;
        }
        continue;
      }
      const from = Math.max(0, Math.round(left));
      const to = Math.min(w, Math.max(from + 1, Math.round(right) - (gap && right - left > 4 ? 1 : 0)));
      this.fill(theme, colour, kind[i], from, to, top, bottom, w);
    }
    if (isCovered) {
      for (let i = 0; i < pixels.length; i++) {
        if (this.cover[i] > 0) pixels[i] = theme.covered(this.colour[i], this.cover[i]);
      }
    }
    this.context.putImageData(this.image, Math.round(this.left * scale), Math.round(AXIS * scale));
  }

  fill(theme, colour, kind, from, to, top, bottom, w) {
    const { pixels } = this;
    const full = kind === EXPECTED ? theme.light[colour]
      : kind === LENT ? theme.deep[colour] : theme.solid[colour];
    const hatched = kind === STARTING || kind === LEAVING;
    const slope = kind === LEAVING ? -1 : 1;
    for (let y = top; y < bottom; y++) {
      const start = y * w;
      pixels.fill(full, start + from, start + to);
      if (hatched) {
        for (let x = from; x < to; x++) {
          if (((x + slope * y) & 7) < 4) pixels[start + x] = theme.light[colour];
        }
      }
    }
  }

  // Paint the image that stands for segments which the server did not send.
  drawImage(view, theme, w, h) {
    const { run, pixels } = this;
    if (run.pixels === null) return;
    const [rows, columns] = run.image;
    const [low, high] = this.rows;
    for (let y = 0; y < h; y++) {
      const row = Math.floor((low + (y / h) * (high - low)) * rows);
      for (let x = 0; x < w; x++) {
        const time = view.from + (x / w) * (view.to - view.from);
        const column = Math.floor(((time - run.from) / (run.to - run.from)) * columns);
        if (column >= 0 && column < columns) {
          pixels[y * w + x] = theme.image[run.pixels[row * columns + column]];
        }
      }
    }
  }

  // Rectangle of a segment in CSS pixels.
  box(view, i) {
    const { first, count, begin, end } = this.run.segment;
    const tick = this.run.tick_s;
    const x = this.x(view, begin[i] * tick), y = this.y(first[i]);
    return [x, y, this.x(view, end[i] * tick) - x, this.y(first[i] + count[i]) - y];
  }

  light(view, theme, number) {
    const { context, run } = this;
    context.globalAlpha = 0.62;
    context.fillStyle = theme.ground;
    context.fillRect(this.left, AXIS, this.width, this.height);
    context.globalAlpha = 1;
    context.strokeStyle = theme.ink;
    for (const i of run.segmentsOf(run.rowOf.get(number))) {
      const [x, y, width, height] = this.box(view, i);
      const kind = run.segment.kind[i];
      context.globalAlpha = kind === COMPUTING || kind === LENT ? 1 : 0.5;
      context.fillStyle = theme.jobs[colourOf(number)];
      context.fillRect(x, y, Math.max(width, 1), Math.max(height, 1));
      context.globalAlpha = 1;
      if (width > 3 && height > 3) context.strokeRect(x + 0.5, y + 0.5, width - 1, height - 1);
    }
  }

  drawLabels(view, theme, lit) {
    const { context, run } = this;
    const { job, begin, end, count } = run.segment;
    const size = (this.height / ((this.rows[1] - this.rows[0]) * run.processors));
    const wide = (26 * (view.to - view.from)) / this.width / run.tick_s;
    context.textAlign = "center";
    context.textBaseline = "middle";
    context.font = "11px system-ui, sans-serif";
    for (let i = 0, drawn = 0; i < begin.length && drawn < MOST_LABELS; i++) {
      if (end[i] - begin[i] < wide || count[i] * size < 12) continue;
      const [x, y, width, height] = this.box(view, i);
      const left = Math.max(x, this.left), right = Math.min(x + width, this.left + this.width);
      if (right - left < 26 || y + height < AXIS || y > AXIS + this.height) continue;
      const number = run.job.number[job[i]];
      if (lit !== null && lit !== number) continue;
      const text = run.jobs.labels[job[i]] ?? String(number);
      if (context.measureText(text).width > right - left - 4) continue;
      context.fillStyle = run.segment.kind[i] === COMPUTING && !theme.isDark ? "#ffffff" : theme.isDark
        && run.segment.kind[i] === COMPUTING ? "#10151a" : theme.ink;
      context.fillText(text, (left + right) / 2, y + height / 2);
      drawn++;
    }
  }

  drawMarks(view, theme) {
    const { context, run } = this;
    for (const [kind, intervals, begin, end, text] of run.marks) {
      const x = this.x(view, begin), width = this.x(view, Math.min(end, view.to)) - x;
      for (const [low, high] of intervals) {
        const y = this.y(low), height = this.y(high + 1) - y;
        context.globalAlpha = kind === "reservation" ? 0.25 : 0.35;
        context.fillStyle = kind === "reservation" ? theme.accent : theme.faint;
        context.fillRect(x, y, width, height);
        context.globalAlpha = 1;
        context.strokeStyle = kind === "reservation" ? theme.accent : theme.faint;
        context.setLineDash([4, 3]);
        context.strokeRect(x + 0.5, y + 0.5, width - 1, height - 1);
        context.setLineDash([]);
      }
      if (width > 60 && intervals.length) {
        context.fillStyle = theme.ink;
        context.textAlign = "left";
        context.textBaseline = "top";
        context.font = "10px system-ui, sans-serif";
        context.fillText(text, Math.max(x, this.left) + 4, this.y(intervals[0][0]) + 3, width - 8);
      }
    }
  }

  drawAxes(view, theme) {
    const { context, run } = this;
    context.fillStyle = theme.ink;
    context.strokeStyle = theme.faint;
    context.font = "11px system-ui, sans-serif";
    context.textBaseline = "middle";
    context.textAlign = "center";
    const { step, times } = ticks(run, view, this.width);
    for (const at of times) {
      const x = this.x(view, at);
      if (x < this.left + 16 || x > this.left + this.width - 20) continue;
      context.fillText(tickText(run, at, step), x, AXIS / 2 - 1);
      context.fillRect(x, AXIS - 4, 1, 4);
    }
    context.textAlign = "right";
    const size = this.height / ((this.rows[1] - this.rows[0]) * run.processors);
    const hosts = run.hosts.filter(([, intervals]) => intervals.length);
    if (hosts.length > 1 && hosts.length <= this.height / 11) {
      for (const [name, intervals] of hosts) {
        for (const [low, high] of intervals) {
          const y = this.y(low), middle = (y + this.y(high + 1)) / 2;
          context.fillText(name, this.left - 8, middle, this.left - 10);
          context.fillRect(this.left - 6, Math.max(y, AXIS), 6, 1);
        }
      }
    } else {
      const every = STEPS.find((each) => each >= 1 && each * size >= 18) ?? run.processors;
      for (let number = 0; number < run.processors; number += Math.ceil(every)) {
        const y = this.y(number + 0.5);
        if (y > AXIS && y < AXIS + this.height) context.fillText(String(number), this.left - 8, y);
      }
    }
  }

  // Lines of text on what is below the pointer.
  describe(place) {
    const { run } = this;
    const i = run.at(place.time, place.processor);
    if (i < 0) {
      const mark = run.marks.find(([, intervals, begin, end]) => begin <= place.time && place.time < end
        && intervals.some(([low, high]) => low <= place.processor && place.processor <= high));
      return mark ? { number: null, lines: [mark[4]] } : null;
    }
    const row = run.row(run.segment.job[i]);
    const size = run.segmentsOf(run.segment.job[i])
      .filter((j) => run.segment.begin[j] * run.tick_s <= place.time && place.time < run.segment.end[j] * run.tick_s)
      .reduce((sum, j) => sum + run.segment.count[j], 0);
    const from = run.segment.begin[i] * run.tick_s, to = run.segment.end[i] * run.tick_s;
    return {
      number: row.number,
      lines: [
        `job ${row.label} ${row.name}`.trim(),
        `${KINDS[run.segment.kind[i]]}, ${size} of ${row.least === row.most ? row.most : `${row.least} to ${row.most}`} processors`,
        `${moment(run, from)} to ${moment(run, to)}`,
        ...(row.user ? [`${row.user}, ${row.state}`] : []),
      ],
    };
  }
}
