// Where the data come from: a file has all of them, a server gives windows, pages and changes.

const API = "api/v1";
const NO_CONNECTION = "no connection; it is tried again";
const VIEW_MS = 30, LIST_MS = 1000; // between two requests for a window, and for the table

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

// A function that calls `act` at once, and once more after a pause if it is called meanwhile.
function paced(act, pause_ms) {
  let isAsked = false, isBusy = false;
  return async () => {
    isAsked = true;
    if (isBusy) return;
    isBusy = true;
    while (isAsked) {
      isAsked = false;
      await act();
      await new Promise((resolve) => setTimeout(resolve, pause_ms));
    }
    isBusy = false;
  };
}

class LiveSource {
  constructor(status) {
    this.status = status;
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

  lost(text) {
    this.status.textContent = text;
    this.status.className = "lost";
  }

  // Follow changes while the page is visible; `viewed` loads what another view needs.
  follow(page) {
    const or = (act) => () => act().catch((error) => this.lost(error.message));
    this.viewed = paced(or(() => page.load()), VIEW_MS);
    this.listed = paced(or(() => page.refresh()), LIST_MS);
    const turn = () => {
      this.stream?.close();
      this.stream = document.hidden ? null : this.open();
    };
    document.addEventListener("visibilitychange", turn);
    turn();
    let drawn = 0;
    setInterval(() => { // time goes on, a pixel or more at once
      const { from, to } = page.view, { now } = page.runs[0], pixel_s = (to - from) / innerWidth;
      const isShown = !document.hidden && this.isServed && from < now + pixel_s && now < to;
      if (!isShown || performance.now() - drawn < 1000 * pixel_s) return;
      drawn = performance.now();
      this.viewed();
    }, 1000);
  }

  open() {
    const stream = new EventSource(`${API}/events`);
    stream.onmessage = (event) => this.changed(JSON.parse(event.data));
    stream.onopen = async () => this.changed(await get("state").catch((error) => ({ fault: error.message })));
    stream.onerror = () => this.lost(stream.readyState === EventSource.CLOSED
      ? "reshape web was started again: open the link that it has printed" : NO_CONNECTION);
    return stream;
  }

  changed({ served, fault }) {
    this.isServed = served;
    this.status.className = fault || !served ? "lost" : "";
    this.status.textContent = fault || (served ? "live" : "the service does not run; this is its journal");
    this.viewed();
    this.listed();
  }

  // Buttons that change a job, if the server has the key of an administrator.
  actions(row) {
    const ofGroup = { queued: ["hold", "release", "cancel"], running: ["requeue", "cancel"], ended: [] };
    const names = ofGroup[groupOf(row)].filter((name) => this.may.includes(name));
    const act = (name) => post(`jobs/${row.number}/${name}`).catch((error) => this.lost(error.message));
    return names.map((name) => button(name, () => act(name)));
  }
}
