// How far a text fits a constraint, as `/formwork/v1/check` says it.

import { h, visible } from "./dom.js";
import { placeAt } from "./json_places.js";

/** Draws the answer about `text`, whose first `given` UTF-16 units were written by the model. */
export function drawFit(box, text, given, fit) {
  const end = Array.from(text).slice(0, fit.accepted_chars).join("").length;
  const fits = fit.is_prefix || fit.is_complete;
  const accepted = fits ? text.length : end;
  const from = Math.min(given, accepted);
  const parts = [
    sentence(text, accepted, fit, fits),
    text !== "" &&
      h(
        "pre",
        { class: "fit" },
        h("span", { class: "given" }, text.slice(0, from)),
        h("ins", {}, text.slice(from, accepted)),
        !fits && h("span", { class: "stop", "aria-hidden": "true" }, "▲"),
        !fits && h("del", {}, text.slice(accepted)),
      ),
    expected(fit, fits),
  ];
  box.replaceChildren(...parts.filter(Boolean));
}

function sentence(text, accepted, fit, fits) {
  if (fit.is_complete) return h("p", { class: "good" }, "A whole answer: it may end here.");
  if (fits) return h("p", { class: "good" }, "It fits so far. More must follow.");
  const { line, column } = placeAt(text, accepted);
  const next =
    accepted < text.length
      ? `“${Array.from(text.slice(accepted))[0].replace("\n", "⏎")}” can't follow`
      : "it can't end";
  return h("p", { class: "bad" }, `It stops fitting at line ${line}, column ${column}: ${next}.`);
}

/** A text in quotes without them, as code; all else as words. */
function described(what) {
  try {
    return h("code", {}, visible(JSON.parse(what)));
  } catch {
    return what;
  }
}

function expected(fit, fits) {
  if (fit.expected.length === 0) return null;
  return h(
    "div",
    { class: "expected" },
    h("span", {}, fits ? "May follow: " : "Expected: "),
    h("ul", {}, ...fit.expected.map((what) => h("li", {}, described(what)))),
  );
}
