// Curves of a run below its Gantt chart, on the same axis of time.

import { gutter } from "./gantt.js";

const PANELS = [
  { name: "busy", label: "processors in use", tall: 54, top: (run) => run.processors, fill: "accent" },
  { name: "waiting", label: "jobs waiting", tall: 42, top: () => 0, fill: "faint" },
  { name: "gained", label: "seconds that resizes have saved ended jobs", tall: 42, top: () => 0, fill: "accent" },
];

export class Curves {
  constructor(canvas) {
    this.canvas = canvas;
  }

  draw(run, view, theme, at) {
    const { canvas } = this;
    const panels = PANELS.filter(({ name }) => name in run.curve);
    canvas.style.height = `${panels.reduce((sum, { tall }) => sum + tall + 12, 0)}px`;
    const scale = devicePixelRatio || 1;
    const width = canvas.clientWidth, height = canvas.clientHeight;
    canvas.width = Math.round(width * scale);
    canvas.height = Math.round(height * scale);
    const context = canvas.getContext("2d");
    context.setTransform(scale, 0, 0, scale, 0, 0);
    const left = gutter(), wide = Math.max(1, width - left);
    let top = 6;
    for (const panel of panels) {
      this.panel(context, run, view, theme, panel, { left, wide, top, tall: panel.tall });
      top += panel.tall + 12;
    }
    if (at !== null) {
      const x = left + ((at - view.from) / (view.to - view.from)) * wide;
      context.fillStyle = theme.ink;
      if (x >= left) context.fillRect(x, 0, 1, height);
    }
  }

  panel(context, run, view, theme, panel, { left, wide, top, tall }) {
    const { times, values } = run.curve[panel.name];
    const tick = run.tick_s;
    let most = panel.top(run);
    for (let i = 0; i < values.length; i++) most = Math.max(most, values[i] / 100);
    most = Math.max(most, 1);
    const x = (time) => left + ((time - view.from) / (view.to - view.from)) * wide;
    const y = (value) => top + tall * (1 - value / most);
    context.save();
    context.beginPath();
    context.rect(left, top - 1, wide, tall + 2);
    context.clip();
    context.beginPath();
    context.moveTo(times.length ? Math.max(left, x(times[0] * tick)) : left, top + tall);
    const stop = Math.min(x(run.now || run.end), left + wide);
    for (let i = 0; i < times.length; i++) {
      const from = Math.max(x(times[i] * tick), left);
      const to = i + 1 < times.length ? x(times[i + 1] * tick) : stop;
      if (to < left) continue;
      if (from > left + wide) break;
      context.lineTo(from, y(values[i] / 100));
      context.lineTo(to, y(values[i] / 100));
    }
    context.lineTo(Math.max(left, stop), top + tall);
    context.globalAlpha = 0.55;
    context.fillStyle = theme[panel.fill];
    context.fill();
    context.globalAlpha = 1;
    context.strokeStyle = theme[panel.fill];
    context.stroke();
    context.restore();
    context.fillStyle = theme.ink;
    context.font = "10px system-ui, sans-serif";
    context.textAlign = "right";
    context.textBaseline = "top";
    context.fillText(String(Math.round(most)), left - 8, top - 2);
    context.textBaseline = "bottom";
    context.fillText("0", left - 8, top + tall + 4);
    context.textAlign = "left";
    context.textBaseline = "top";
    context.fillText(panel.label, left + 4, top);
  }
}
