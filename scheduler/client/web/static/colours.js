// Colours of jobs and of the page, as texts and as pixels.

export const COLOURS = 12;
const LEVELS = 16;
const LIGHT = ["#4477aa", "#ee7733", "#228833", "#aa3377", "#66aadd", "#bb9933", "#44aa99",
  "#cc6677", "#8866bb", "#999933", "#5599cc", "#dd8866"];
const DARK = ["#5c93cc", "#f08a4b", "#48a858", "#c85a98", "#7fb8e6", "#cfae4e", "#57bfae",
  "#dc8090", "#a284d4", "#b3b34d", "#71aede", "#e69d80"];

// Colours of the present theme; `ground` and the others are those of page.css.
export class Theme {
  constructor() {
    const style = getComputedStyle(document.documentElement);
    const named = (name) => style.getPropertyValue(`--${name}`).trim();
    this.isDark = matchMedia("(prefers-color-scheme: dark)").matches;
    this.ground = named("ground");
    this.ink = named("ink");
    this.faint = named("faint");
    this.accent = named("accent");
    this.jobs = this.isDark ? DARK : LIGHT;
    const ground = rgb(this.ground), ink = rgb(this.ink);
    this.groundPixel = packed(ground);
    this.solid = this.jobs.map((text) => packed(rgb(text)));
    this.light = this.jobs.map((text) => packed(mixed(rgb(text), ground, 0.35)));
    this.deep = this.jobs.map((text) => packed(mixed(rgb(text), ink, 0.7)));
    this.image = Uint32Array.from({ length: 256 }, (_, value) => {
      const level = Math.floor(value / COLOURS) / LEVELS;
      return value < COLOURS ? this.groundPixel
        : packed(mixed(rgb(this.jobs[value % COLOURS]), ground, 0.15 + 0.85 * Math.min(1, level)));
    });
    this.rgbs = this.jobs.map(rgb);
    this.groundRgb = ground;
  }

  // Colour of a job that covers a part of a pixel.
  covered(colour, part) {
    return packed(mixed(this.rgbs[colour], this.groundRgb, 0.15 + 0.85 * Math.min(1, part)));
  }
}

export function colourOf(number) {
  return ((number % COLOURS) + COLOURS) % COLOURS;
}

function rgb(text) {
  const value = parseInt(text.slice(1), 16);
  return [value >> 16, (value >> 8) & 255, value & 255];
}

function mixed(one, other, part) {
  return one.map((value, i) => Math.round(part * value + (1 - part) * other[i]));
}

// A pixel of an ImageData as a number of 32 bits, little-endian as all browsers are.
function packed([red, green, blue]) {
  return ((255 << 24) | (blue << 16) | (green << 8) | red) >>> 0;
}
