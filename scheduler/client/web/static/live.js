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

const post = (path, body = {}) => ask(path, { method: "POST", body: JSON.stringify(body) });

const fileSource = ({ runs }) => ({
  async jobs(place, query) {
    const run = runs[place], all = Array.from(run.jobs.number, (_, row) => run.row(row));
    const rows = all.filter((row) => isMatch(row, query));
    return { total: rows.length, rows: rows.slice(query.offset, query.offset + PAGE) };
  },

  async job(place, number) {
    const run = runs[place];
    return { row: run.row(run.rowOf.get(number)), story: run.stories[number] ?? null };
  },
});

// A function that calls `act` at once, and once more after a pause if it is called meanwhile.
function paced(act, pause_ms) {
  let isAsked = false, before = Promise.resolve();
  return () => {
    if (isAsked) return;
    isAsked = true;
    before = before.then(() => {
      isAsked = false;
      return act();
    }).then(() => new Promise((resolve) => setTimeout(resolve, pause_ms)));
  };
}

class LiveSource {
  status = by("status");

  // The window of the run that a view needs: with a margin, so that moving shows something at once.
  async load(view) {
    const margin = view === null ? 0 : 0.25 * (view.to - view.from);
    const span = view === null ? "" : `from=${view.from - margin}&to=${view.to + margin}&`;
    const columns = Math.round(1.5 * innerWidth * (devicePixelRatio || 1));
    return decode(await (await ask(`window?${span}columns=${columns}`)).arrayBuffer());
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

  tell(textContent, className = "lost") {
    Object.assign(this.status, { textContent, className });
  }

  // Follow changes while the page is visible; `viewed` loads what another view needs.
  follow(page) {
    const or = (act) => () => act().catch((error) => this.tell(error.message));
    this.viewed = paced(or(() => page.load()), VIEW_MS);
    this.listed = paced(or(() => page.refresh()), LIST_MS);
    const turn = () => {
      this.stream?.close();
      if (!document.hidden) this.open();
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
    const stream = this.stream = new EventSource(`${API}/events`);
    stream.onmessage = (event) => this.changed(JSON.parse(event.data));
    stream.onopen = async () => this.changed(await get("state").catch((error) => ({ fault: error.message })));
    stream.onerror = () => this.tell(stream.readyState === EventSource.CLOSED
      ? "reshape web was started again: open the link that it has printed" : NO_CONNECTION);
  }

  changed({ served, fault }) {
    this.isServed = served;
    if (served && !fault) this.tell("live", "");
    else this.tell(fault || "the service does not run; this is its journal");
    this.viewed();
    this.listed();
  }

  // Buttons that change a job, if the server has the key of an administrator.
  actions(row) {
    const ofGroup = { queued: ["hold", "release", "cancel"], running: ["requeue", "cancel"], ended: [] };
    const names = ofGroup[groupOf(row)].filter((name) => this.may.includes(name));
    const act = (name) => post(`jobs/${row.number}/${name}`).catch((error) => this.tell(error.message));
    return names.map((name) => button(name, () => act(name)));
  }
}
