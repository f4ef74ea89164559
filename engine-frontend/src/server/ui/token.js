// What is known of one token of an answer.

import { h, milliseconds, number, percent, stats, visible } from "./dom.js";

/** Fills the panel beside the tokens. */
export function drawDetail(box, entry, at) {
  const list = h("dl", { class: "stats" });
  stats(list, [
    ["Before the mask", entry.is_forced ? "not computed" : percent(entry.probability)],
    ["After the mask", percent(entry.masked_probability)],
    ["Allowed tokens", number(entry.num_allowed)],
    ["Since the token before", milliseconds(entry.step_ms)],
  ]);
  box.replaceChildren(
    h(
      "p",
      { class: "token-name" },
      h("code", {}, visible(entry.token) || "∅"),
      h(
        "span",
        { class: "hint" },
        ` token ${at + 1}, number ${entry.token_id}, ${entry.bytes.length === 1 ? "1 byte" : `${entry.bytes.length} bytes`}`,
      ),
    ),
    h("p", { class: "hint" }, summary(entry)),
    list,
    ...(entry.top.length ? [likeliest(entry)] : []),
  );
}

function summary(entry) {
  if (entry.is_forced) return "Forced: nothing else was allowed, so no forward pass was needed.";
  if (!entry.is_constrained) return "Free: no constraint was in force here.";
  const away = entry.top.filter((other) => !other.is_allowed).length;
  if (away === 0)
    return "Chosen by the model among the allowed tokens. The mask took none of the ten likeliest.";
  return `Chosen by the model among the allowed tokens. The mask took ${away} of the ${entry.top.length} likeliest.`;
}

function likeliest(entry) {
  return h(
    "table",
    { class: "likeliest" },
    h("caption", {}, "The likeliest tokens before the mask"),
    h(
      "thead",
      {},
      h(
        "tr",
        {},
        h("th", { scope: "col" }, "Token"),
        h("th", { scope: "col" }, "Probability"),
        h("th", { scope: "col" }, "Mask"),
      ),
    ),
    h("tbody", {}, ...entry.top.map((other) => row(other, other.token_id === entry.token_id))),
  );
}

function row(other, isChosen) {
  const name = h(
    other.is_allowed ? "code" : "s",
    { class: other.is_allowed ? null : "code" },
    visible(other.token) || "∅",
  );
  const bar = h("span", { class: "meter", "aria-hidden": "true" });
  bar.style.setProperty("--share", other.probability);
  const state = isChosen ? "chosen" : other.is_allowed ? "allowed" : "taken away";
  return h(
    "tr",
    { class: isChosen ? "chosen" : other.is_allowed ? "" : "away" },
    h("td", {}, name),
    h("td", {}, bar, percent(other.probability)),
    h("td", {}, state),
  );
}
