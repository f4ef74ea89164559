// The answer token by token.

import { answers } from "./answers.js";
import { $, atMostEvery, h, milliseconds, number, percent, stats, visible } from "./dom.js";
import { drawDetail } from "./token.js";
import { bars } from "./plot.js";
import { askWhyNot } from "./whynot.js";

const DRAW_MS = 100;

let shown = null;
let selected = -1;
let isChosenByUser = false;

export function startWatch(runExample) {
  $("watch-example").addEventListener("click", runExample);
  $("watch-answer").addEventListener("change", (event) =>
    showAnswer(answers.list[Number(event.target.value)]),
  );
  $("watch-colour").addEventListener("change", () =>
    $("tokens")
      .querySelectorAll("[role=option]")
      .forEach((chip, at) => colour(chip, shown.trace[at])),
  );
  $("tokens").addEventListener("keydown", onKey);
  $("tokens").addEventListener("click", (event) => {
    const chip = event.target.closest("[role=option]");
    if (chip) select(Number(chip.dataset.at), true);
  });
  $("whynot-text").addEventListener("input", () => askWhyNot(shown, selected));
  answers.addEventListener("new", ({ detail }) => showAnswer(detail));
  answers.addEventListener("gone", () => {
    const last = answers.list.at(-1);
    if (last) return showAnswer(last);
    shown = null;
    $("watch-empty").hidden = false;
    $("watch-body").hidden = true;
  });
  answers.addEventListener("more", ({ detail }) => {
    if (detail === shown) drawSoon();
  });
}

/** Shows an answer from its first token on. */
export function showAnswer(answer) {
  shown = answer;
  selected = -1;
  isChosenByUser = false;
  $("watch-empty").hidden = true;
  $("watch-body").hidden = false;
  $("watch-answer").replaceChildren(
    ...answers.list.map((each, at) =>
      h(
        "option",
        { value: at },
        `${at + 1}. ${each.prompt.split("\n").at(-1) || "after a tool's result"}`.slice(0, 80),
      ),
    ),
  );
  $("watch-answer").value = String(answers.list.indexOf(answer));
  $("tokens").replaceChildren();
  $("detail").replaceChildren();
  $("whynot-text").value = "";
  draw();
}

const drawSoon = atMostEvery(DRAW_MS, () => {
  if (!$("watch").hidden) draw();
});

/** Draws what came while the view wasn't seen. */
export function seeWatch() {
  if (shown) draw();
}

function draw() {
  const { trace } = shown;
  const box = $("tokens");
  const chips = document.createDocumentFragment();
  for (let at = box.querySelectorAll("[role=option]").length; at < trace.length; at += 1) {
    chips.append(makeChip(trace[at], at));
    if (trace[at].token.includes("\n")) chips.append(h("span", { role: "none", class: "break" }));
  }
  box.append(chips);
  box.setAttribute("aria-busy", String(shown.isLive));
  drawTotals(trace);
  drawTimes();
  if (trace.length === 0) return;
  if (isChosenByUser) return;
  const best = shown.isLive ? 0 : mostChanged(trace);
  if (best !== selected) select(best, false);
}

/** The token whose probability the mask raised most: where a reader sees the most. */
function mostChanged(trace) {
  const gain = (entry) => (entry.is_forced ? 0 : entry.masked_probability - entry.probability);
  return trace.reduce((best, entry, at) => (gain(entry) > gain(trace[best]) + 1e-6 ? at : best), 0);
}

function makeChip(entry, at) {
  const chip = h(
    "span",
    {
      role: "option",
      id: `token-${at}`,
      class: "chip",
      tabindex: -1,
      "aria-selected": "false",
      "data-at": at,
      "aria-label": spoken(entry),
    },
    visible(entry.token) || "∅",
  );
  colour(chip, entry);
  return chip;
}

function spoken(entry) {
  const token =
    entry.token.trim() === ""
      ? visible(entry.token).replaceAll("·", "space ").replaceAll("⏎", "line break ") || "end"
      : entry.token;
  if (entry.is_forced) return `${token}, forced`;
  const before = `${token}, ${percent(entry.probability)}`;
  if (!entry.is_constrained) return before;
  const overruled = isOverruled(entry) ? ", the mask took the likeliest" : "";
  return `${before}, after the mask ${percent(entry.masked_probability)} among ${number(entry.num_allowed)}${overruled}`;
}

/** True if the mask took away what the model held most likely. */
const isOverruled = (entry) => entry.top.length > 0 && !entry.top[0].is_allowed;

const LEVELS = [0.1, 0.4, 0.7, 0.9];

function colour(chip, entry) {
  const value = entry[$("watch-colour").value] ?? 1;
  const level = LEVELS.filter((least) => value >= least).length;
  chip.className = entry.is_forced
    ? "chip forced"
    : `chip p${level}${isOverruled(entry) ? " overruled" : ""}`;
}

function select(at, isByUser) {
  const chip = $(`token-${at}`);
  if (!chip) return;
  isChosenByUser ||= isByUser;
  const before = $("tokens").querySelector("[aria-selected=true]");
  before?.setAttribute("aria-selected", "false");
  before?.setAttribute("tabindex", "-1");
  chip.setAttribute("aria-selected", "true");
  chip.setAttribute("tabindex", "0");
  if (isByUser) chip.focus();
  const bar = (which) => $("times").querySelectorAll("rect")[which]?.classList;
  bar(selected)?.remove("selected");
  bar(at)?.add("selected");
  selected = at;
  drawDetail($("detail"), shown.trace[at], at);
  askWhyNot(shown, selected);
}

function onKey(event) {
  const last = shown.trace.length - 1;
  const to = {
    ArrowRight: selected + 1,
    ArrowDown: selected + 1,
    ArrowLeft: selected - 1,
    ArrowUp: selected - 1,
    Home: 0,
    End: last,
  }[event.key];
  if (to === undefined || event.ctrlKey || event.altKey || event.metaKey) return;
  event.preventDefault();
  select(Math.max(0, Math.min(last, to)), true);
}

function drawTotals(trace) {
  const forced = trace.filter((entry) => entry.is_forced).length;
  const constrained = trace.filter((entry) => entry.is_constrained).length;
  const later = trace.slice(1).reduce((sum, entry) => sum + entry.step_ms, 0);
  const count = trace.length || 1;
  stats($("watch-totals"), [
    ["Tokens", number(trace.length)],
    ["Constrained", percent(constrained / count)],
    ["Forced", percent(forced / count)],
    ["First token after", milliseconds(trace[0]?.step_ms ?? 0)],
    ["Each further", milliseconds(later / Math.max(1, count - 1))],
  ]);
}

function drawTimes() {
  const times = shown.trace.map((entry) => entry.step_ms);
  if (times.length === 0) return $("times").replaceChildren();
  // The first step reads the prompt, and may wait for the grammar: it would dwarf all others.
  const sampled = shown.trace.slice(1).filter((entry) => !entry.is_forced);
  const sorted = sampled.map((entry) => entry.step_ms).sort((a, b) => a - b);
  const most = sorted.at(-1) ?? times[0];
  const middle = sorted[Math.floor(sorted.length / 2)] ?? times[0];
  const label = `After the first token: median ${milliseconds(middle)}, most ${milliseconds(most)}`;
  const classOf = (at) =>
    `${shown.trace[at].is_forced ? "forced" : "bar"}${at === selected ? " selected" : ""}`;
  $("times").replaceChildren(
    bars(times, most, label, classOf, (at) => select(at, true)),
    h(
      "p",
      { class: "hint" },
      `${label}. The first token's step reads the prompt: ${milliseconds(times[0])}. Forced tokens need no step.`,
    ),
  );
}
