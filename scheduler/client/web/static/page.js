// The page: charts of one or several runs, the table of jobs, and the story of one job.

const RECENT_S = 6 * 3600; // what a live page shows at first

const endOf = (runs) => Math.max(1, ...runs.map((run) => run.end));

class Page {
  constructor(source) {
    this.source = source;
    this.view = null;
    this.lit = null; // number of the job that is lit up
    this.opened = null; // row of the job whose story is open
    this.at = null; // time below the pointer
    this.offset = 0; // of the jobs that are listed
    this.charts = [];
    this.theme = new Theme();
    by("tools").onclick = (event) => this.act(event.target.dataset.key, 0);
    by("close").onclick = () => this.close();
    by("filters").onsubmit = (event) => event.preventDefault();
    const turn = (offset) => {
      this.offset = Math.max(0, offset);
      this.list();
    };
    by("filters").oninput = () => turn(0);
    by("before").onclick = () => turn(this.offset - PAGE);
    by("after").onclick = () => turn(this.offset + PAGE);
    addEventListener("resize", () => this.show(this.runs));
    addEventListener("keydown", (event) => { if (event.key === "Escape") this.close(); });
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
      this.theme = new Theme();
      this.draw();
    });
  }

  // Show runs, which may be the same ones with newer data.
  show(runs) {
    this.runs = runs;
    if (runs.length !== this.charts.length) {
      this.charts = runs.map(() => new Chart());
      this.charts.forEach((chart, place) => this.listenTo(chart, place));
      by("charts").replaceChildren(...this.charts.map(({ section }) => section));
      by("run").replaceChildren(...runs.map(({ name }, value) => element("option", { value }, name)));
      by("run-label").hidden = runs.length < 2;
    }
    this.charts.forEach((chart, place) => chart.show(runs[place]));
    by("notes").replaceChildren(...runs.flatMap((run) => run.notes.map((text) => element("li", {}, text))));
    if (this.view === null) this.fit(false);
    this.draw();
  }

  // Load the window of a run that goes on; a view of the present moves with it.
  async load() {
    const before = this.runs?.[0].now ?? Infinity, header = await this.source.load(this.view);
    const { isFitted, view } = this, passed = header.runs[0].now - before;
    this.show(header.runs);
    if (isFitted) this.fit(false);
    else if (passed > 0 && view.from < before && before < view.to) {
      this.setView(view.from + passed, view.to + passed, false);
    }
  }

  // Load the table and the story again.
  async refresh() {
    await this.list();
    if (this.opened?.ended === null) await this.open(0, this.opened.number, false);
  }

  // Draw everything once, before the next frame.
  draw() {
    cancelAnimationFrame(this.frame);
    this.frame = requestAnimationFrame(() => {
      for (const chart of this.charts) chart.draw(this.view, this.theme, this.lit, this.at);
    });
  }

  setView(from, to, isAsked = true) {
    const end = endOf(this.runs), limits = [-0.25 * end, 1.25 * end];
    const [begin, then] = within(from, Math.max(to, from + 1e-3), ...limits);
    this.view = { from: begin, to: then };
    this.isFitted = false;
    if (isAsked) this.source.viewed?.();
    this.draw();
  }

  fit(isAsked = true) {
    const end = endOf(this.runs);
    this.setView(-0.01 * end, 1.01 * end, isAsked);
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
    const run = this.runs[place], { number, started } = run.jobs;
    const rows = started.map((at, row) => [at, row]).filter(([at]) => at !== null);
    rows.sort(([one, a], [other, b]) => one - other || a - b);
    if (!rows.length) return;
    const present = rows.findIndex(([, row]) => number[row] === this.lit);
    const next = present < 0 && direction < 0 ? -1 : present + direction;
    const row = run.row(rows.at(next % rows.length)[1]);
    this.light(row.number);
    by("spoken").textContent = `Job ${labelOf(row)} ${row.name}, ${row.state}, started ${moment(run, row.started)}, `
      + `${row.requested} processors. Enter opens its story.`;
  }

  // What a key does to a chart, or a button with this name.
  act(key, place) {
    const chart = this.charts[place], width = this.view.to - this.view.from;
    const now = Math.max(...this.runs.map((run) => run.now || run.end));
    const actions = {
      ArrowLeft: () => this.pan(-0.15),
      ArrowRight: () => this.pan(0.15),
      ArrowUp: () => chart.moveRows(-0.15),
      ArrowDown: () => chart.moveRows(0.15),
      "+": () => this.zoom(0.7),
      "=": () => this.zoom(0.7),
      "-": () => this.zoom(1 / 0.7),
      Home: () => this.fit(),
      End: () => this.setView(now - 0.8 * width, now + 0.2 * width),
      n: () => this.step(place, 1),
      p: () => this.step(place, -1),
      Enter: () => this.lit !== null && this.open(place, this.lit),
    };
    actions[key]?.();
    this.draw();
    return key in actions;
  }

  listenTo(chart, place) {
    const { canvas } = chart;
    let held = null, isDragged = false; // where the pointer is held down
    canvas.onpointerdown = (event) => {
      [held, isDragged] = [event, false];
      canvas.setPointerCapture(event.pointerId);
    };
    canvas.onpointermove = (event) => {
      const [x, y] = held === null ? [0, 0] : [held.clientX - event.clientX, held.clientY - event.clientY];
      isDragged ||= Math.hypot(x, y) > 3;
      if (held === null || !isDragged) {
        this.hover(chart, chart.under(event), event);
        return;
      }
      held = event;
      this.pan(x / chart.width);
      chart.moveRows(y / chart.height);
      by("tip").hidden = true;
    };
    canvas.onpointerup = async (event) => {
      const spot = held !== null && !isDragged ? chart.under(event) : null;
      held = null;
      if (spot === null) return;
      const number = (chart.describe(spot) ?? { number: await this.source.jobAt?.(spot) ?? null }).number;
      if (number !== null) this.open(place, number);
    };
    canvas.onpointerleave = () => this.hover(chart, null);
    canvas.onwheel = (event) => {
      if (!event.ctrlKey && !event.metaKey && document.activeElement !== canvas) return;
      event.preventDefault();
      const turned = event.deltaY || event.deltaX, spot = chart.under(event);
      const factor = Math.exp(0.0015 * Math.sign(turned) * Math.min(200, Math.abs(turned)));
      if (event.shiftKey) chart.zoomRows(factor, spot ? (spot.processor + 0.5) / chart.run.processors : 0.5);
      else this.zoom(factor, spot?.time);
      this.draw();
    };
    canvas.onkeydown = (event) => {
      if (!event.altKey && !event.ctrlKey && !event.metaKey && this.act(event.key, place)) event.preventDefault();
    };
  }

  // Light up what is at a place of a chart, and tell about it beside the pointer; null: nothing.
  hover(chart, spot, { clientX, clientY } = {}) {
    const told = spot && chart.describe(spot), tip = by("tip");
    this.at = spot?.time ?? null;
    this.light(told?.number ?? null);
    this.draw();
    tip.hidden = !told;
    if (!told) return;
    tip.replaceChildren(...told.lines.map((line) => element("p", {}, line)));
    const { width, height } = tip.getBoundingClientRect();
    tip.style.left = `${Math.max(4, Math.min(clientX + 14, innerWidth - width - 8))}px`;
    tip.style.top = `${Math.max(4, Math.min(clientY + 16, innerHeight - height - 8))}px`;
  }

  async open(place, number, isNew = true) {
    const { row, story } = await this.source.job(place, number);
    if (!isNew && this.opened === null) return; // it was closed meanwhile
    this.opened = row;
    by("tip").hidden = true;
    by("story-head").textContent = `Job ${labelOf(row)}`;
    by("story-body").replaceChildren(...storyOf(this.runs[place], row, story, this.theme));
    by("actions").replaceChildren(...(this.source.actions?.(row) ?? []));
    by("story").hidden = false;
    if (isNew) {
      by("story-head").focus({ preventScroll: innerWidth > 760 });
      this.draw();
    }
  }

  close() {
    this.opened = null;
    by("story").hidden = true;
    this.light(null);
    this.draw();
  }

  // Show a page of the jobs that the filters let through, in the columns that say something of them.
  async list() {
    const { offset } = this, place = Number(by("run").value), run = this.runs[place], group = by("group").value;
    const { total, rows } = await this.source.jobs(place, { group, text: by("text").value.trim(), offset });
    const isShown = (text) => rows.some((row) => !["", "-"].includes(text(run, row)));
    const others = Object.entries(COLUMNS).filter(([, text]) => !rows.length || isShown(text));
    const lines = rows.map((row) => {
      const ariaLabel = `Story of job ${labelOf(row)}`, className = row.number === this.lit ? "lit" : "";
      const story = button(labelOf(row), () => this.open(place, row.number), { ariaLabel });
      const cells = others.map(([name, text]) => element("td", { className: name }, text(run, row)));
      const onpointerenter = () => this.light(row.number), onpointerleave = () => this.light(null);
      const head = element("th", { scope: "row" }, story);
      const line = element("tr", { className, onpointerenter, onpointerleave }, head, ...cells);
      line.dataset.job = row.number;
      return line;
    });
    filled(by("table"), ["job", ...others.map(([name]) => name)], lines);
    by("counted").textContent = total ? `${offset + 1} to ${offset + rows.length} of ${total}` : "no job";
    by("before").hidden = by("after").hidden = total <= PAGE;
    by("before").disabled = offset === 0;
    by("after").disabled = offset + rows.length >= total;
  }
}

const tables = (header) => (header.tables ?? []).flatMap(({ title, heads, rows }) => [
  element("h2", {}, title), textTable(heads, rows, title),
]);

// Ask the server to simulate the last hours under another scenario, and show both.
async function offerWhatIf(theme) {
  const { scenarios } = await get("scenarios"), result = by("whatif-result");
  by("scenario").replaceChildren(...scenarios.map((name) => element("option", {}, name)));
  by("whatif").hidden = false;
  by("whatif-form").onsubmit = async (event) => {
    event.preventDefault();
    result.replaceChildren(element("p", {}, "The simulation runs."));
    try {
      const answer = await post("whatif", { scenario: by("scenario").value, hours: Number(by("hours").value) });
      const header = decode(await answer.arrayBuffer()), charts = header.runs.map(() => new Chart());
      result.replaceChildren(...tables(header), ...charts.map(({ section }) => section));
      const end = endOf(header.runs);
      charts.forEach((chart, i) => {
        chart.show(header.runs[i]);
        chart.draw({ from: -0.01 * end, to: 1.01 * end }, theme);
      });
    } catch (error) {
      result.replaceChildren(element("p", {}, error.message));
    }
  };
}

async function startLive() {
  const source = new LiveSource();
  try {
    const { actions, now } = await get("state"), page = new Page(source);
    source.may = actions;
    if (now > RECENT_S) page.view = { from: now - RECENT_S, to: now + 0.3 * RECENT_S };
    await page.load();
    source.follow(page);
    document.title = by("title").textContent = `reshape ${page.runs[0].name}`;
    await offerWhatIf(page.theme);
  } catch (error) {
    source.tell(error.message);
  }
}

function startFile(header) {
  document.title = by("title").textContent = header.title;
  by("charts").before(...tables(header));
  by("jobs").hidden = by("tools").hidden = !header.runs.length;
  if (!header.runs.length) return;
  const page = new Page(fileSource(header));
  page.show(header.runs);
  page.list();
}

// Show a file if the page has its data in it, and the run of a service else.
embedded().then((header) => (header === null ? startLive() : startFile(header)));
