// The constraint beside the conversation: its kind, its text, and what the server says of it.

import { ApiError, Raw, postJson } from "./api.js";
import { $, bytes, debounce, h, milliseconds, number } from "./dom.js";
import { Editor } from "./editor.js";
import { EXAMPLES } from "./examples.js";
import { placeOf, readJson } from "./json_places.js";

const KINDS = {
  none: { hint: "The model writes what it likes." },
  json: { label: "JSON Schema", hint: "The answer is JSON, valid under the schema." },
  pattern: { label: "Regular expression", hint: "The pattern matches the whole answer." },
  choice: { label: "Choices, one a line", hint: "The answer is one of the lines." },
  grammar: { label: "Grammar in Lark, EBNF or GBNF", hint: "The answer is a sentence of the grammar." },
  tools: {
    label: "Tools, as a JSON list",
    hint: "A call, once begun, is whole and valid under the tool's parameters.",
  },
};

const PAUSE_BEFORE_CHECK_MS = 300;

/** Emits `change` when the user edits it, and `checked` when the server has spoken. */
class Constraint extends EventTarget {
  kind = "none";
  texts = {};
  toolChoice = "auto";
  /** The last answer of `/formwork/v1/check`, or null. */
  report = null;

  /** The text of this kind's editor. The first example of a kind is its default. */
  get text() {
    return this.texts[this.kind] ?? "";
  }

  /** The request's fields, or `{error}` where the text can't be sent. */
  request() {
    const text = this.text;
    switch (this.kind) {
      case "none":
        return { fields: {} };
      case "pattern":
        return { fields: { structured_outputs: { regex: text } } };
      case "grammar":
        return { fields: { structured_outputs: { grammar: text } } };
      case "choice": {
        const choice = text.split("\n").filter((line) => line !== "");
        if (choice.length === 0)
          return { error: { message: "write at least one choice", line: 1, column: 1 } };
        return { fields: { structured_outputs: { choice } } };
      }
      default: {
        const { error } = readJson(text);
        if (error) return { error };
        const raw = new Raw(text);
        if (this.kind === "json") return { fields: { structured_outputs: { json: raw } } };
        return { fields: { tools: raw, tool_choice: this.toolChoice } };
      }
    }
  }
}

export const constraint = new Constraint();
for (const example of EXAMPLES) constraint.texts[example.kind] ??= example.text;

// Kept in this tab over a reload. A browser may forbid that: then nothing is kept.
const KEPT = "formwork-constraint";
const keep = () => {
  try {
    const { kind, texts, toolChoice } = constraint;
    sessionStorage.setItem(KEPT, JSON.stringify({ kind, texts, toolChoice }));
  } catch {
    // Forbidden or full.
  }
};
const restore = () => {
  try {
    const kept = JSON.parse(sessionStorage.getItem(KEPT));
    if (kept && kept.kind in KINDS) Object.assign(constraint, kept);
  } catch {
    // Forbidden, or written by another version.
  }
};

let editor;
let checking = null;

/** Connects the panel. */
export function startConstraint() {
  editor = new Editor($("editor"), "editor-text", () => {
    constraint.texts[constraint.kind] = editor.text;
    changed();
  });
  for (const radio of $("kinds").querySelectorAll("input")) {
    radio.addEventListener("change", () => show(radio.value));
  }
  $("tool-choice").addEventListener("change", (event) => {
    constraint.toolChoice = event.target.value;
    changed();
  });
  restore();
  $("tool-choice").value = constraint.toolChoice;
  show(constraint.kind);
}

/** Takes a kind and its text, as an example has them. */
export function load(kind, text) {
  if (text !== undefined) constraint.texts[kind] = text;
  show(kind);
}

function show(kind) {
  constraint.kind = kind;
  $("kinds").querySelector(`[value=${kind}]`).checked = true;
  $("kind-hint").textContent = KINDS[kind].hint;
  $("editor-slot").hidden = kind === "none";
  $("editor-label").textContent = KINDS[kind].label ?? "";
  $("tool-choice-row").hidden = kind !== "tools";
  editor.text = constraint.text;
  $("check").replaceChildren();
  changed();
}

function changed() {
  constraint.report = null;
  keep();
  constraint.dispatchEvent(new Event("change"));
  const { error } = constraint.request();
  checking?.abort();
  if (error) return report({ enforced: false, error, warnings: [] });
  if (constraint.kind === "none") return report(null);
  editor.setError(0);
  checkSoon();
}

const checkSoon = debounce(async () => {
  const { fields } = constraint.request();
  if (!fields || constraint.kind === "none") return;
  checking?.abort();
  checking = new AbortController();
  try {
    report(await check(fields, undefined, checking.signal));
  } catch (error) {
    if (error.name === "AbortError") return;
    if (!(error instanceof ApiError)) throw error;
    report({ enforced: false, error: { message: error.message }, warnings: [], failed: true });
  }
}, PAUSE_BEFORE_CHECK_MS);

/** Asks the server what it makes of a constraint, and of a text under it. */
export function check(fields, text, signal) {
  return postJson("formwork/v1/check", text === undefined ? fields : { ...fields, text }, signal);
}

function report(report) {
  constraint.report = report;
  const box = $("check");
  editor.setError(0);
  if (!report) {
    box.replaceChildren();
  } else if (report.error) {
    const place = placeOfError(report.error);
    editor.setError(place?.line ?? 0);
    box.replaceChildren(problem("bad", report.error.message, place));
  } else {
    const size = report.num_states
      ? [
          `${number(report.num_states)} states`,
          bytes(report.bytes),
          `compiled in ${milliseconds(report.compile_ms)}`,
        ]
      : [];
    box.replaceChildren(
      h("p", { class: "good" }, ["Enforced", ...size].join(" · ")),
      ...report.warnings.map((warning) => problem("warn", warning, placeInMessage(warning))),
    );
  }
  constraint.dispatchEvent(new Event("checked"));
}

/** A message with a button that leads to its line. */
export function problem(kind, message, place) {
  return h(
    "p",
    { class: kind },
    place &&
      h(
        "button",
        { type: "button", class: "place", onclick: () => goTo(place) },
        `Line ${place.line}${place.column ? `, column ${place.column}` : ""}`,
      ),
    place && " ",
    message,
  );
}

function goTo(place) {
  if (!$("editor-text").checkVisibility?.()) $("tab-chat").click();
  editor.goTo(place.line, place.column);
}

/** Marks the line that a refused request names. Returns its place, or null. */
export function markRefusal(message) {
  const place = placeInMessage(message);
  if (place) editor.setError(place.line);
  return place;
}

function placeOfError(error) {
  if (error.line) return { line: error.line, column: error.column };
  return (error.pointer && placeOfPointer(error.pointer)) || placeInMessage(error.message);
}

function placeOfPointer(pointer) {
  if (constraint.kind === "json") return placeOf(constraint.text, pointer);
  return null;
}

/** The place that a message names: a pointer in backquotes, or a line and column. */
function placeInMessage(message) {
  const tool = /tools(?:\[|\.|\/)(\d+)/.exec(message);
  const pointer = /`(#[^`]*)`/.exec(message);
  if (constraint.kind === "tools") {
    const base = tool ? `/${tool[1]}` : "";
    const inner = pointer && tool ? `/function/parameters${pointer[1].slice(1)}` : "";
    return tool ? placeOf(constraint.text, base + inner) : null;
  }
  if (pointer && constraint.kind === "json") return placeOf(constraint.text, pointer[1]);
  const choice = /choice\[(\d+)\]/.exec(message);
  if (choice && constraint.kind === "choice") return { line: Number(choice[1]) + 1, column: 1 };
  const line = /\bline (\d+)(?:,? column (\d+))?/.exec(message);
  return line && constraint.kind !== "none" ? { line: Number(line[1]), column: Number(line[2] ?? 1) } : null;
}
