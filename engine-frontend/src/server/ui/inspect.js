// What the server says of the constraint, at length.

import { check, constraint, problem } from "./constraint.js";
import { $, bytes, debounce, h, milliseconds, number, stats } from "./dom.js";
import { drawFit } from "./fit.js";

let trying = null;

export function startInspect() {
  constraint.addEventListener("checked", draw);
  constraint.addEventListener("change", tryText);
  $("try-text").addEventListener("input", tryText);
  draw();
}

function draw() {
  const box = $("report");
  const report = constraint.report;
  if (constraint.kind === "none") {
    box.replaceChildren(
      h("p", { class: "hint" }, "No constraint: everything is allowed. Choose a kind to see more."),
    );
    return;
  }
  if (!report) {
    box.replaceChildren(h("p", { class: "hint" }, "Checking …"));
    return;
  }
  if (report.error) {
    box.replaceChildren(
      h(
        "p",
        { class: "bad" },
        wasGivenUp(report) ? "It could not be checked." : "It is refused: a request with it gets status 400.",
      ),
      h("p", {}, report.error.message),
    );
    return;
  }
  const list = h("dl", { class: "stats" });
  stats(list, [
    ["Kind", report.kind],
    ["States", number(report.num_states)],
    ["Memory", bytes(report.bytes)],
    ["Compiled in", milliseconds(report.compile_ms)],
  ]);
  box.replaceChildren(
    h("p", { class: "good" }, "All of it is enforced in every answer."),
    ...report.warnings.map((warning) => problem("warn", warning, null)),
    list,
    ...(report.keywords?.length
      ? [
          h("h3", {}, "Enforced"),
          h(
            "ul",
            { class: "words-list" },
            ...report.keywords.map((word) => h("li", {}, h("code", {}, word))),
          ),
        ]
      : []),
    ...text("The shortest answer", report.shortest),
    ...text("A sample", report.sample === report.shortest ? null : report.sample),
  );
}

/** True if the check failed or gave up: that says nothing of a request with the constraint. */
const wasGivenUp = ({ failed, error }) =>
  failed || /too large to be checked|too long to find for a check/.test(error.message);

function text(title, value) {
  if (value === null || value === undefined) return [];
  const use = h("button", { type: "button", class: "link", onclick: () => use_(value) }, "Test it");
  return [
    h("h3", {}, title, " ", use),
    h("pre", { class: "fit" }, value === "" ? "(the empty text)" : value),
  ];
}

function use_(value) {
  $("try-text").value = value;
  $("try-text").focus();
  tryText();
}

const tryText = debounce(async () => {
  const box = $("try-result");
  const text = $("try-text").value;
  trying?.abort();
  const { fields } = constraint.request();
  if (!fields || constraint.kind === "none" || (text === "" && constraint.report?.error)) {
    box.replaceChildren();
    return;
  }
  trying = new AbortController();
  try {
    const report = await check(fields, text, trying.signal);
    if (report.text) drawFit(box, text, 0, report.text);
    else box.replaceChildren();
  } catch (error) {
    if (error.name !== "AbortError") box.replaceChildren(h("p", { class: "bad" }, error.message));
  }
}, 300);
