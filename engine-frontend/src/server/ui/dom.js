// Elements made by name. Text always goes in as text nodes, never as HTML.

const SVG = "http://www.w3.org/2000/svg";

/** The element with this id. */
export const $ = (id) => document.getElementById(id);

/** Makes an element. `on...` attributes are listeners; `null`, `false` and `undefined` are left out. */
export function h(tag, attributes = {}, ...children) {
  return fill(document.createElement(tag), attributes, children);
}

/** Makes an SVG element. */
export function svg(tag, attributes = {}, ...children) {
  return fill(document.createElementNS(SVG, tag), attributes, children);
}

function fill(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else element.setAttribute(name, value === true ? "" : String(value));
  }
  element.append(
    ...children.flat().filter((child) => child !== null && child !== undefined && child !== false),
  );
  return element;
}

/** The terms and values of a description list. */
export function stats(list, entries) {
  list.replaceChildren(
    ...entries.map(([term, value]) => h("div", {}, h("dt", {}, term), h("dd", {}, value))),
  );
}

/** Calls `action` once `wait` ms have passed without another call. */
export function debounce(action, wait) {
  let timer = 0;
  return (...given) => {
    clearTimeout(timer);
    timer = setTimeout(() => action(...given), wait);
  };
}

/** Calls `action` at most once in `period` ms, and once more after the last call. */
export function atMostEvery(period, action) {
  let timer = 0;
  return () => {
    timer ||= setTimeout(() => {
      timer = 0;
      action();
    }, period);
  };
}

/** Tells a screen reader. */
export function announce(text) {
  $("announcer").textContent = text;
}

const count = new Intl.NumberFormat("en");
export const number = (value) => count.format(value);

/** A probability as text. Small ones keep two digits. */
export function percent(value) {
  if (value === null || value === undefined) return "–";
  const hundred = value * 100;
  if (hundred >= 99.95) return "100\u00a0%";
  if (hundred >= 10) return `${hundred.toFixed(1)}\u00a0%`;
  if (hundred >= 0.01) return `${hundred.toPrecision(2)}\u00a0%`;
  return value === 0 ? "0\u00a0%" : "<\u00a00.01\u00a0%";
}

export function milliseconds(value) {
  if (value >= 1000) return `${(value / 1000).toFixed(2)}\u00a0s`;
  return `${value >= 100 ? value.toFixed(0) : value.toFixed(value >= 10 ? 1 : 2)}\u00a0ms`;
}

export function bytes(value) {
  if (value < 1024) return `${value}\u00a0B`;
  return value < 1 << 20
    ? `${(value / 1024).toFixed(1)}\u00a0KiB`
    : `${(value / (1 << 20)).toFixed(1)}\u00a0MiB`;
}

/** Text with its white space made visible. */
export function visible(text) {
  return text.replaceAll(" ", "·").replaceAll("\n", "⏎").replaceAll("\t", "⇥").replaceAll("\r", "␍");
}
