// The data of a run that goes on: windows of it, pages of its jobs, and a stream of changes.

import { decode } from "./document.js";
import { element } from "./story.js";

const API = "api/v1";
const NO_CONNECTION = "no connection; it is tried again";
const SOON_MS = 30; // between two requests for a window

async function request(path, options = {}) {
  const answer = await fetch(`${API}/${path}`, options).catch(() => { throw new Error(NO_CONNECTION); });
  if (!answer.ok) throw new Error((await answer.text()).trim().replace(/^reshape: /, ""));
  return answer;
}

export async function get(path) {
  return (await request(path)).json();
}

export async function post(path, body = {}) {
  const options = { method: "POST", body: JSON.stringify(body), headers: { "Content-Type": "application/json" } };
  return request(path, options);
}

export class LiveSource {
  constructor(status) {
    this.isLive = true;
    this.status = status;
    this.timer = null;
    this.stream = null;
    this.isNew = this.wanted = false;
  }

  // The window of the run that a view needs: with a margin, so that moving shows something at once.
  async load(view, width, height) {
    const margin = view === null ? 0 : 0.25 * (view.to - view.from);
    const span = view === null ? "" : `from=${view.from - margin}&to=${view.to + margin}&`;
    const scale = devicePixelRatio || 1;
    const columns = Math.round(1.5 * width * scale), rows = Math.round(height);
    const answer = await request(`window?${span}columns=${columns}&rows=${rows}`);
    return decode(await answer.arrayBuffer());
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
    if (this.timer !== null) {
      this.wanted = true;
      return;
    }
    this.timer = setTimeout(async () => {
      const before = this.isNew;
      this.isNew = false;
      this.wanted = false;
      try {
        await page.reload(before);
      } catch (error) {
        this.isNew ||= before;
        this.lost(error.message);
      }
      this.timer = null;
      if (this.wanted || this.isNew) this.viewed(page);
    }, SOON_MS);
  }

  lost(text) {
    this.status.textContent = text;
    this.status.className = "lost";
  }

  // Follow changes while the page is visible.
  follow(page) {
    const open = () => {
      if (document.hidden || this.stream !== null) return;
      this.stream = new EventSource(`${API}/events`);
      this.stream.addEventListener("message", (event) => this.changed(page, JSON.parse(event.data)));
      this.stream.addEventListener("open", async () => {
        this.changed(page, await get("state").catch((error) => ({ fault: error.message })));
      });
      this.stream.addEventListener("error", () => this.lost(this.stream?.readyState === EventSource.CLOSED
        ? "reshape web was started again: open the link that it has printed" : NO_CONNECTION));
    };
    const close = () => {
      this.stream?.close();
      this.stream = null;
    };
    document.addEventListener("visibilitychange", () => (document.hidden ? close() : open()));
    open();
    let drawn = 0;
    setInterval(() => { // time goes on, a pixel or more at once
      const { from, to } = page.view, pixel_s = (to - from) / innerWidth;
      const isShown = !document.hidden && this.isServed && from < page.runs[0].now + pixel_s && page.runs[0].now < to;
      if (!isShown || performance.now() - drawn < 1000 * pixel_s) return;
      drawn = performance.now();
      this.viewed(page);
    }, 1000);
  }

  changed(page, state) {
    this.isServed = state.served;
    this.status.className = state.fault || !state.served ? "lost" : "";
    this.status.textContent = state.fault || (state.served ? "live" : "the service does not run; this is its journal");
    this.viewed(page, true);
  }

  // Buttons that change a job, if the server has the key of an administrator.
  actions(place, row) {
    const wanted = row.state === "PENDING" ? ["hold", "release", "cancel"] : row.ended === null ? ["requeue", "cancel"] : [];
    place.replaceChildren(...wanted.filter((name) => this.may.includes(name)).map((name) => {
      const button = element("button", name);
      button.type = "button";
      button.addEventListener("click", async () => {
        try {
          await post(`jobs/${row.number}/${name}`);
        } catch (error) {
          this.lost(error.message);
        }
      });
      return button;
    }));
  }
}
