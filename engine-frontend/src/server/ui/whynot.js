// "Why not?": a text of the user in place of a token, tried against the constraint.

import { check } from "./constraint.js";
import { $, debounce, h } from "./dom.js";
import { drawFit } from "./fit.js";

const THINKING_ENDS = "</think>";
let asking = null;

/** Tries the typed text at the selected token. Without a text it says what may stand there. */
export function askWhyNot(answer, at) {
  asking?.abort();
  if (!answer || at < 0) return;
  ask(answer, at);
}

const ask = debounce(async (answer, at) => {
  const box = $("whynot-result");
  const isConstrained = answer.trace.some((entry) => entry.is_constrained);
  if (!isConstrained) {
    box.replaceChildren(
      h("p", { class: "hint" }, "This answer had no constraint: anything might have followed."),
    );
    return;
  }
  const start = startOfAnswer(answer.trace);
  if (at < start) {
    box.replaceChildren(
      h("p", { class: "hint" }, "No constraint was in force at this token: anything might have followed."),
    );
    return;
  }
  const before = textOf(answer.trace.slice(start, at));
  const text = before + $("whynot-text").value;
  asking = new AbortController();
  try {
    const report = await check(answer.fields, text, asking.signal);
    if (report.text) drawFit(box, text, before.length, report.text);
    else box.replaceChildren(h("p", { class: "bad" }, report.error?.message ?? "The server can't say."));
  } catch (error) {
    if (error.name !== "AbortError") box.replaceChildren(h("p", { class: "bad" }, error.message));
  }
}, 200);

/** The first token under the constraint: thinking, and what closes it, is free. */
function startOfAnswer(trace) {
  const thought = trace.findLastIndex((entry) => entry.token === THINKING_ENDS);
  const first = trace.findIndex((entry, at) => at > thought && entry.is_constrained);
  return first < 0 ? trace.length : first;
}

function textOf(entries) {
  const bytes = entries.flatMap((entry) => entry.bytes);
  return new TextDecoder().decode(new Uint8Array(bytes), { stream: true });
}
