// Where the data come from: a file has all of them, a server gives windows, pages and changes.

const API = "api/v1";
const NO_CONNECTION = "no connection; it is tried again";
const SOON_MS = 30; // between two requests for a window

async function ask(path, options = {}) {
  const answer = await fetch(`${API}/${path}`, options).catch(() => { throw new Error(NO_CONNECTION); });
  if (!answer.ok) throw new Error((await answer.text()).trim().replace(/^reshape: /, ""));
  return answer;
}

const get = async (path) => (await ask(path)).json();

async function post(path, body = {}) {
  const headers = { "Content-Type": "application/json" };
  return ask(path, { method: "POST", body: JSON.stringify(body), headers });
}

class FileSource {
  constructor(header) {
    this.header = header;
  }

  async jobs(place, query) {
    const run = this.header.runs[place];
    const rows = Array.from(run.jobs.number, (_, row) => run.row(row)).filter((row) => isMatch(row, query));
    return { total: rows.length, rows: rows.slice(query.offset, query.offset + PAGE) };
  }

  async job(place, number) {
    const run = this.header.runs[place];
    return { row: run.row(run.rowOf.get(number)), story: run.stories[number] ?? null };
  }
}

class LiveSource {
  constructor(status) {
    this.isLive = true;
    this.status = status;
    this.timer = null;
    this.stream = null;
    this.isNew = this.isAskedAgain = false;
  }

  // The window of the run that a view needs: with a margin, so that moving shows something at once.
  async load(view, width, height) {
    const margin = view === null ? 0 : 0.25 * (view.to - view.from);
    const span = view === null ? "" : `from=${view.from - margin}&to=${view.to + margin}&`;
    const columns = Math.round(1.5 * width * (devicePixelRatio || 1)), rows = Math.round(height);
    return decode(await (await ask(`window?${span}columns=${columns}&rows=${rows}`)).arrayBuffer());
  }

  async jobs(place, { group, text, offset }) {
    return get(`jobs?group=${group}&offset=${offset}&text=${encodeURIComponent(text)}`);
  }

  async job(place, number) {
    return get(`jobs/${number}`);
  }

  async jobAt({ time, processor }) {
    return (await get(`at?time=${time}&processor=${processor}`)).job;
  }

  // Load what is shown again, soon and once; `isNew`: the journal has changed, too.
  viewed(page, isNew = false) {
    this.isNew ||= isNew;
    this.isAskedAgain = true;
    this.timer ??= setTimeout(async () => {
      const before = this.isNew;
      this.isNew = this.isAskedAgain = false;
      try {
        await page.reload(before);
      } catch (error) {
        this.isNew ||= before;
        this.lost(error.message);
      }
      this.timer = null;
      if (this.isAskedAgain || this.isNew) this.viewed(page);
    }, SOON_MS);
  }

  lost(text) {
    this.status.textContent = text;
    this.status.className = "lost";
  }

  // Follow changes while the page is visible.
  follow(page) {
    const turn = () => {
      this.stream?.close();
      this.stream = document.hidden ? null : this.open(page);
    };
    document.addEventListener("visibilitychange", turn);
    turn();
    let drawn = 0;
    setInterval(() => { // time goes on, a pixel or more at once
      const { from, to } = page.view, { now } = page.runs[0], pixel_s = (to - from) / innerWidth;
      const isShown = !document.hidden && this.isServed && from < now + pixel_s && now < to;
      if (!isShown || performance.now() - drawn < 1000 * pixel_s) return;
      drawn = performance.now();
      this.viewed(page);
    }, 1000);
  }

  open(page) {
    const stream = new EventSource(`${API}/events`);
    stream.onmessage = (event) => this.changed(page, JSON.parse(event.data));
    stream.onopen = async () => this.changed(page, await get("state").catch((error) => ({ fault: error.message })));
    stream.onerror = () => this.lost(stream.readyState === EventSource.CLOSED
      ? "reshape web was started again: open the link that it has printed" : NO_CONNECTION);
    return stream;
  }

  changed(page, { served, fault }) {
    this.isServed = served;
    this.status.className = fault || !served ? "lost" : "";
    this.status.textContent = fault || (served ? "live" : "the service does not run; this is its journal");
    this.viewed(page, true);
  }

  // Buttons that change a job, if the server has the key of an administrator.
  actions(row) {
    const ofGroup = { queued: ["hold", "release", "cancel"], running: ["requeue", "cancel"], ended: [] };
    const names = ofGroup[groupOf(row)].filter((name) => this.may.includes(name));
    const act = (name) => post(`jobs/${row.number}/${name}`).catch((error) => this.lost(error.message));
    return names.map((name) => button(name, () => act(name)));
  }
}
