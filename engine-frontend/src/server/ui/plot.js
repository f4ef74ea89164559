// Small plots as SVG. Shapes only: words and numbers stand beside them in HTML.

import { svg } from "./dom.js";

const WIDTH = 600;
const HEIGHT = 100;

function picture(label, ...shapes) {
  return svg(
    "svg",
    {
      viewBox: `0 0 ${WIDTH} ${HEIGHT}`,
      preserveAspectRatio: "none",
      role: "img",
      "aria-label": label,
      class: "picture",
    },
    ...shapes,
  );
}

/** One bar for each value, cut off above `most`. `classOf(at)` is a bar's class; a click selects. */
export function bars(values, most, label, classOf, onselect) {
  const step = WIDTH / Math.max(values.length, 24);
  return picture(
    label,
    ...values.map((value, at) => {
      const height = Math.min(HEIGHT, Math.max(2, (value / Math.max(most, 1e-9)) * HEIGHT));
      return svg("rect", {
        x: at * step + step * 0.1,
        y: HEIGHT - height,
        width: step * 0.8,
        height,
        class: classOf(at),
        onclick: () => onselect(at),
      });
    }),
  );
}

/** A line over the last `places` values, filled below. `most` is the value at the top. */
export function line(values, places, most, label) {
  const step = WIDTH / (places - 1);
  const start = places - values.length;
  const points = values.map((value, at) => [
    (start + at) * step,
    HEIGHT - 2 - (Math.min(value, most) / most) * (HEIGHT - 4),
  ]);
  const path = points.map(([x, y]) => `${x.toFixed(1)},${y.toFixed(1)}`).join(" ");
  if (points.length === 0) return picture(label);
  return picture(
    label,
    svg("polygon", {
      points: `${points[0][0].toFixed(1)},${HEIGHT} ${path} ${WIDTH},${HEIGHT}`,
      class: "area",
    }),
    svg("polyline", { points: path, class: "line" }),
  );
}
