// The page: charts of one or several runs, the table of jobs, and the story of one job.

import { decode, duration, embedded, moment } from "./document.js";
import { Theme } from "./colours.js";
import { Gantt } from "./gantt.js";
import { Curves } from "./curves.js";
import { element, storyOf, textTable } from "./story.js";
import { PAGE, fillTable, isMatch } from "./tables.js";
import { LiveSource, get, post } from "./live.js";

const REFRESH_MS = 1000;
const RECENT_S = 6 * 3600; // what a live page shows at first
const by = (id) => document.getElementById(id);

// Runs of a file: all of their data is here.
class FileSource {
  constructor(header) {
    this.header = header;
    this.isLive = false;
  }

  async jobs(place, query) {
    const run = this.header.runs[place], rows = [];
    for (let row = 0; row < run.job.number.length; row++) {
      const shown = run.row(row);
      if (isMatch(shown, query)) rows.push(shown);
    }
    return { total: rows.length, rows: rows.slice(query.offset, query.offset + PAGE) };
  }

  async job(place, number) {
    const run = this.header.runs[place];
    if (!run.rowOf.has(number)) return null;
    return { row: run.row(run.rowOf.get(number)), story: run.stories[number] ?? null };
  }
}

export class Page {
  constructor(source) {
    this.source = source;
    this.view = null;
    this.lit = null; // number of the job that is lit up
    this.opened = null; // whose story is open
    this.at = null; // time below the pointer
    this.query = { group: "all", text: "", offset: 0 };
    this.place = 0; // of the run whose jobs are listed
    this.charts = [];
    this.theme = new Theme();
    this.isDrawing = false;
    this.listen();
  }

  // Show runs, which may be the same ones with newer data.
  show(runs) {
    this.runs = runs;
    if (runs.length !== this.charts.length) this.makeCharts();
    this.charts.forEach(({ gantt, numbers, head, canvas }, place) => {
      const run = runs[place];
      gantt.show(run);
      head.textContent = run.name;
      numbers.textContent = this.numbers(run);
      canvas.setAttribute("aria-label", `${run.name}: ${run.processors} processors over time`);
    });
    by("notes").replaceChildren(...runs.flatMap((run) => run.notes.map((text) => element("li", text))));
    if (this.view === null) this.fit(false);
    this.draw();
  }

  // Load the window of a run that goes on; `isNew` says that there is something new in it.
  async reload(isNew) {
    const before = this.runs?.[0]?.now ?? null;
    const canvas = this.charts[0]?.canvas;
    const header = await this.source.load(this.view, canvas?.clientWidth ?? innerWidth, canvas?.clientHeight ?? 300);
    const [run] = header.runs;
    const isFitted = this.isFitted;
    this.show([run, ...(this.runs ?? []).slice(1)]);
    if (isFitted) {
      this.fit(false);
    } else if (before !== null && this.view.to > before && run.now > before && this.view.from < before) {
      this.setView(this.view.from + run.now - before, this.view.to + run.now - before, false);
    }
    if (isNew) this.refresh();
  }

  // Load the table and the story again, once a second at most.
  refresh() {
    clearTimeout(this.later);
    this.later = setTimeout(() => {
      this.refreshed = performance.now();
      this.list().catch((error) => this.source.lost(error.message));
      if (this.opened !== null && !this.opened.hasEnded) this.open(0, this.opened.number, false);
    }, Math.max(0, (this.refreshed ?? -Infinity) + REFRESH_MS - performance.now()));
  }

  numbers(run) {
    const { started, submitted, ended } = run.job;
    const tick = run.tick_s;
    let waits = 0, turnarounds = 0, starts = 0, ends = 0;
    for (let i = 0; i < submitted.length; i++) {
      if (started[i] >= 0) { waits += started[i] - submitted[i]; starts++; }
      if (ended[i] >= 0) { turnarounds += ended[i] - submitted[i]; ends++; }
    }
    const texts = [`${run.totals.jobs} jobs`, `${run.processors} processors`];
    if (this.source.isLive) {
      return [...texts, `${run.totals.in_use} in use`, `${run.totals.running} running`, `${run.totals.queued} queued`].join(", ");
    }
    if (starts) texts.push(`mean wait ${duration((tick * waits) / starts)}`);
    if (ends) texts.push(`mean turnaround ${duration((tick * turnarounds) / ends)}`);
    if (run.utilization !== null) texts.push(`utilisation ${(100 * run.utilization).toFixed(1)} %`);
    return texts.join(", ");
  }

  makeCharts() {
    this.charts = this.runs.map((run, place) => {
      const head = element("h2"), numbers = element("p");
      numbers.className = "numbers";
      const canvas = element("canvas"), below = element("canvas");
      canvas.className = "gantt";
      canvas.tabIndex = 0;
      canvas.setAttribute("role", "application");
      canvas.setAttribute("aria-roledescription", "Gantt chart");
      below.className = "curves";
      below.setAttribute("role", "img");
      below.setAttribute("aria-label", "Processors in use and jobs waiting over time");
      const chart = { head, numbers, canvas, gantt: new Gantt(canvas), below, curves: new Curves(below) };
      this.listenTo(chart, place);
      return chart;
    });
    by("charts").replaceChildren(...this.charts.map(({ head, numbers, canvas, below }) =>
      element("section", "", head, numbers, canvas, below)));
    const names = this.runs.map((run, place) => {
      const option = element("option", run.name);
      option.value = place;
      return option;
    });
    by("run").replaceChildren(...names);
    by("run-label").hidden = this.runs.length < 2;
  }

  // Draw everything once, before the next frame.
  draw() {
    if (this.isDrawing) return;
    this.isDrawing = true;
    requestAnimationFrame(() => {
      this.isDrawing = false;
      for (const [place, { gantt, curves }] of this.charts.entries()) {
        gantt.draw(this.view, this.theme, this.lit);
        curves.draw(this.runs[place], this.view, this.theme, this.at);
      }
    });
  }

  span() {
    return [0, Math.max(1, ...this.runs.map((run) => run.end))];
  }

  setView(from, to, isAsked = true) {
    const [low, high] = this.span(), room = 0.25 * (high - low);
    const width = Math.min(Math.max(to - from, 1e-3), 1.5 * (high - low));
    const begin = Math.min(Math.max(from, low - room), high + room - width);
    this.view = { from: begin, to: begin + width };
    this.isFitted = false;
    if (isAsked) this.source.viewed?.(this);
    this.draw();
  }

  fit(isAsked = true) {
    const [low, high] = this.span();
    const room = 0.01 * (high - low);
    this.setView(low - room, high + room, isAsked);
    this.isFitted = true;
  }

  zoom(factor, at = (this.view.from + this.view.to) / 2) {
    this.setView(at - factor * (at - this.view.from), at + factor * (this.view.to - at));
  }

  pan(part) {
    const by = part * (this.view.to - this.view.from);
    this.setView(this.view.from + by, this.view.to + by);
  }

  light(number) {
    if (number === this.lit) return;
    this.lit = number;
    for (const line of by("table").querySelectorAll("tr[data-job]")) {
      line.classList.toggle("lit", Number(line.dataset.job) === number);
    }
    this.draw();
  }

  // Light up the next or previous job by its start, and say its name.
  step(place, direction) {
    const run = this.runs[place];
    const started = Array.from(run.job.started, (at, row) => [at, row]).filter(([at]) => at >= 0);
    started.sort(([one, a], [other, b]) => one - other || a - b);
    if (!started.length) return;
    const present = started.findIndex(([, row]) => run.job.number[row] === this.lit);
    const next = (present < 0 ? (direction > 0 ? 0 : started.length - 1) : present + direction + started.length) % started.length;
    const row = run.row(started[next][1]);
    this.light(row.number);
    by("spoken").textContent = `Job ${row.label} ${row.name}, ${row.state}, started ${moment(run, row.started)}, `
      + `${row.requested} processors. Enter opens its story.`;
  }

  listen() {
    const actions = {
      fit: () => this.fit(), now: () => this.now(), in: () => this.zoom(0.6), out: () => this.zoom(1 / 0.6),
      left: () => this.pan(-0.3), right: () => this.pan(0.3),
    };
    by("tools").addEventListener("click", (event) => actions[event.target.dataset?.act]?.());
    by("close").addEventListener("click", () => this.close());
    by("filters").addEventListener("submit", (event) => event.preventDefault());
    by("filters").addEventListener("input", () => {
      this.query = { group: by("group").value, text: by("text").value.trim(), offset: 0 };
      this.place = Number(by("run").value || 0);
      this.list();
    });
    by("before").addEventListener("click", () => this.turn(-PAGE));
    by("after").addEventListener("click", () => this.turn(PAGE));
    addEventListener("resize", () => { this.charts.forEach(({ gantt }) => gantt.show(gantt.run)); this.draw(); });
    addEventListener("keydown", (event) => { if (event.key === "Escape") this.close(); });
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
      this.theme = new Theme();
      this.draw();
    });
  }

  listenTo({ canvas, gantt }, place) {
    const spot = (event) => {
      const box = canvas.getBoundingClientRect();
      return gantt.under(this.view, event.clientX - box.left, event.clientY - box.top);
    };
    let drag = null;
    canvas.addEventListener("pointerdown", (event) => {
      drag = { x: event.clientX, y: event.clientY, view: this.view, rows: gantt.rows, moved: false };
      canvas.setPointerCapture(event.pointerId);
    });
    canvas.addEventListener("pointermove", (event) => {
      if (drag !== null && (drag.moved || Math.abs(event.clientX - drag.x) > 3)) {
        drag.moved = true;
        const by = ((drag.x - event.clientX) / gantt.width) * (drag.view.to - drag.view.from);
        this.setView(drag.view.from + by, drag.view.to + by);
        gantt.rows = shifted(drag.rows, (drag.y - event.clientY) / gantt.height);
        this.hideTip();
        return;
      }
      this.hover(place, spot(event), event);
    });
    canvas.addEventListener("pointerup", (event) => {
      const found = drag?.moved === false ? spot(event) : null;
      drag = null;
      if (found !== null) this.choose(place, found);
    });
    canvas.addEventListener("pointerleave", () => { this.at = null; this.hideTip(); this.light(null); this.draw(); });
    canvas.addEventListener("wheel", (event) => {
      if (!event.ctrlKey && !event.metaKey && document.activeElement !== canvas) return;
      event.preventDefault();
      const factor = Math.exp(0.0015 * Math.sign(event.deltaY || event.deltaX) * Math.min(200, Math.abs(event.deltaY || event.deltaX)));
      const found = spot(event);
      if (event.shiftKey) gantt.rows = zoomed(gantt.rows, factor, found ? (found.processor + 0.5) / gantt.run.processors : 0.5);
      else this.zoom(factor, found?.time);
      this.draw();
    }, { passive: false });
    canvas.addEventListener("keydown", (event) => {
      const keys = {
        ArrowLeft: () => this.pan(-0.15), ArrowRight: () => this.pan(0.15), "+": () => this.zoom(0.7), "=": () => this.zoom(0.7),
        "-": () => this.zoom(1 / 0.7), Home: () => this.fit(), End: () => this.now(),
        ArrowUp: () => { gantt.rows = shifted(gantt.rows, -0.15); }, ArrowDown: () => { gantt.rows = shifted(gantt.rows, 0.15); },
        n: () => this.step(place, 1), p: () => this.step(place, -1),
        Enter: () => { if (this.lit !== null) this.open(place, this.lit); },
      };
      if (event.altKey || event.ctrlKey || event.metaKey || !(event.key in keys)) return;
      event.preventDefault();
      keys[event.key]();
      this.draw();
    });
  }

  hover(place, found, event) {
    this.at = found?.time ?? null;
    const told = found === null ? null : this.charts[place].gantt.describe(found);
    this.light(told?.number ?? null);
    this.draw();
    if (told === null) {
      this.hideTip();
      return;
    }
    const tip = by("tip");
    tip.replaceChildren(...told.lines.map((line) => element("p", line)));
    tip.hidden = false;
    const { width, height } = tip.getBoundingClientRect();
    tip.style.left = `${Math.max(4, Math.min(event.clientX + 14, innerWidth - width - 8))}px`;
    tip.style.top = `${Math.max(4, Math.min(event.clientY + 16, innerHeight - height - 8))}px`;
  }

  async choose(place, found) {
    const told = this.charts[place].gantt.describe(found);
    const number = told ? told.number : await this.source.jobAt?.(found) ?? null;
    if (number !== null) this.open(place, number);
  }

  hideTip() {
    by("tip").hidden = true;
  }

  now() {
    const [, high] = this.span(), width = this.view.to - this.view.from;
    const now = Math.max(...this.runs.map((run) => run.now)) || high;
    this.setView(now - 0.8 * width, now + 0.2 * width);
  }

  async open(place, number, isNew = true) {
    const run = this.runs[place];
    const found = await this.source.job(place, number);
    if (found === null || (!isNew && this.opened === null)) return; // it was closed meanwhile
    const { row, story: told } = found;
    this.opened = { number, hasEnded: row.ended !== null };
    this.hideTip();
    by("story-head").textContent = `Job ${row.label}`;
    by("story-body").replaceChildren(...storyOf(run, row, told, this.theme));
    this.source.actions?.(by("actions"), row);
    by("story").hidden = false;
    if (isNew) {
      by("story-head").focus({ preventScroll: innerWidth > 760 });
      this.charts.forEach(({ gantt }) => gantt.show(gantt.run));
      this.draw();
    }
  }

  close() {
    this.opened = null;
    by("story").hidden = true;
    this.light(null);
    this.draw();
  }

  turn(by) {
    this.query.offset = Math.max(0, this.query.offset + by);
    this.list();
  }

  async list() {
    const { total, rows } = await this.source.jobs(this.place, this.query);
    const run = this.runs[this.place];
    fillTable(by("table"), run, rows, {
      open: (number) => this.open(this.place, number), light: (number) => this.light(number), lit: this.lit,
    });
    const { offset } = this.query;
    by("counted").textContent = total ? `${offset + 1} to ${offset + rows.length} of ${total}` : "no job";
    by("before").hidden = by("after").hidden = total <= PAGE;
    by("before").disabled = offset === 0;
    by("after").disabled = offset + rows.length >= total;
  }
}

function shifted([low, high], by) {
  const move = Math.min(Math.max(by * (high - low), -low), 1 - high);
  return [low + move, high + move];
}

function zoomed([low, high], factor, at) {
  const size = Math.min(1, Math.max(0.01, factor * (high - low)));
  const from = Math.min(Math.max(0, at - ((at - low) / (high - low)) * size), 1 - size);
  return [from, from + size];
}

// Ask the server to simulate the last hours under another scenario, and show both.
async function offerWhatIf(page) {
  const { scenarios } = await get("scenarios");
  by("scenario").replaceChildren(...scenarios.map((name) => element("option", name)));
  by("whatif").hidden = false;
  by("whatif-form").addEventListener("submit", async (event) => {
    event.preventDefault();
    const result = by("whatif-result");
    result.replaceChildren(element("p", "The simulation runs."));
    try {
      const answer = await post("whatif", { scenario: by("scenario").value, hours: Number(by("hours").value) });
      const header = decode(await answer.arrayBuffer());
      showWhatIf(result, header, page.theme);
    } catch (error) {
      result.replaceChildren(element("p", error.message));
    }
  });
}

function showWhatIf(result, header, theme) {
  const [{ heads, rows, title }] = header.tables;
  const charts = header.runs.map((run) => {
    const canvas = element("canvas"), gantt = new Gantt(canvas);
    canvas.setAttribute("role", "img");
    canvas.setAttribute("aria-label", `${run.name}: ${run.processors} processors over time`);
    gantt.show(run);
    return { canvas, gantt, run };
  });
  result.replaceChildren(textTable(heads, rows, title), ...charts.map(({ canvas, run }) => element("figure", "", element("h3", run.name), canvas)));
  const end = Math.max(...header.runs.map((run) => run.end));
  for (const { gantt } of charts) gantt.draw({ from: -0.01 * end, to: 1.01 * end }, theme, null);
}

async function startLive() {
  const source = new LiveSource(by("status"));
  try {
    const { actions, now } = await get("state");
    source.may = actions;
    const page = new Page(source);
    if (now > RECENT_S) page.view = { from: now - RECENT_S, to: now + 0.3 * RECENT_S };
    await page.reload(true);
    source.follow(page);
    document.title = by("title").textContent = `reshape ${page.runs[0].name}`;
    await offerWhatIf(page);
  } catch (error) {
    source.lost(error.message);
  }
}

// Show a file if the page has its data in it, and the run of a service else.
async function start() {
  const header = await embedded();
  if (header === null) {
    await startLive();
    return;
  }
  const page = new Page(new FileSource(header));
  document.title = by("title").textContent = header.title;
  for (const { title, heads, rows } of header.tables ?? []) {
    by("charts").before(element("h2", title), element("div", "", textTable(heads, rows, title)));
  }
  by("jobs").hidden = by("tools").hidden = !header.runs.length;
  if (!header.runs.length) return;
  page.show(header.runs);
  page.list();
}

start();
