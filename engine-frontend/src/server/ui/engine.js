// The engine's load as plots, from `/metrics`, once a second while the view is seen.

import { getText } from "./api.js";
import { $, h, milliseconds, number, percent, stats } from "./dom.js";
import { line } from "./plot.js";

const PERIOD_MS = 1000;
const SECONDS_SHOWN = 60;

const GAUGES = [
  {
    title: "Running",
    unit: "requests",
    of: (now) => now["vllm:num_requests_running"] ?? 0,
    least: 4,
    show: number,
  },
  {
    title: "Waiting",
    unit: "requests",
    of: (now) => now["vllm:num_requests_waiting"] ?? 0,
    least: 4,
    show: number,
  },
  {
    title: "KV cache",
    unit: "in use",
    // The mean of the engine cores: of each there is one cache_config_info, which is 1.
    of: (now) => (now["vllm:kv_cache_usage_perc"] ?? 0) / (now["vllm:cache_config_info"] || 1),
    least: 0.01,
    show: percent,
  },
  {
    title: "Output",
    unit: "tokens per second",
    of: (now, before, seconds) => rate("vllm:generation_tokens_total", now, before, seconds),
    least: 10,
    show: (value) => number(Math.round(value)),
  },
  {
    title: "Between tokens",
    unit: "on average",
    of: (now, before) => latency(now, before),
    least: 1,
    show: (value) => (value ? milliseconds(value) : "–"),
  },
  {
    title: "Forced",
    unit: "of the constrained tokens",
    of: (now, before) => share(now, before),
    least: 0.1,
    show: percent,
  },
];

let timer = 0;
let isPaused = false;
let isSeen = false;
let before = null;
let beforeAt = 0;

export function startEngine() {
  for (const gauge of GAUGES) {
    gauge.values = [];
    gauge.value = h("strong", {}, "–");
    gauge.plot = h("div", { class: "plot" });
    gauge.most = h("span", { class: "hint" });
    const id = `gauge-${gauge.title.replaceAll(" ", "-")}`;
    $("gauges").append(
      h(
        "section",
        { class: "panel gauge", "aria-labelledby": id },
        h("h3", { id }, gauge.title),
        h("p", {}, gauge.value, " ", h("span", { class: "hint" }, gauge.unit)),
        gauge.plot,
        h("p", { class: "row spread hint" }, h("span", {}, `${SECONDS_SHOWN} s ago`), gauge.most),
      ),
    );
  }
  $("engine-pause").addEventListener("click", () => {
    isPaused = !isPaused;
    $("engine-pause").setAttribute("aria-pressed", String(isPaused));
    turn();
  });
  document.addEventListener("visibilitychange", turn);
}

/** Polls only while the view is seen. */
export function seeEngine(seen) {
  isSeen = seen;
  turn();
}

function turn() {
  clearTimeout(timer);
  before = null;
  if (isSeen && !isPaused && !document.hidden) poll();
}

async function poll() {
  clearTimeout(timer);
  try {
    const now = parse(await getText("metrics"));
    draw(now);
    $("engine-error").hidden = true;
  } catch (error) {
    $("engine-error").textContent = error.message;
    $("engine-error").hidden = false;
    before = null;
  }
  if (isSeen && !isPaused && !document.hidden) timer = setTimeout(poll, PERIOD_MS);
}

/** Prometheus text: the sum over labels of each name. */
function parse(text) {
  const sums = {};
  for (const row of text.split("\n")) {
    const match = /^([\w:]+)(?:\{.*\})? (\S+)/.exec(row);
    if (match) sums[match[1]] = (sums[match[1]] ?? 0) + Number(match[2]);
  }
  return sums;
}

function rate(name, now, before, seconds) {
  return seconds > 0 ? Math.max(0, gain(name, now, before) / seconds) : 0;
}

/** What a counter has gained since the poll before. */
const gain = (name, now, before) => (before ? (now[name] ?? 0) - (before[name] ?? 0) : 0);

function latency(now, before) {
  const count = gain("vllm:inter_token_latency_seconds_count", now, before);
  return count > 0 ? (1000 * gain("vllm:inter_token_latency_seconds_sum", now, before)) / count : 0;
}

function share(now, before) {
  const all = gain("formwork:structured_output_constrained_tokens_total", now, before);
  return all > 0 ? gain("formwork:structured_output_forced_tokens_total", now, before) / all : 0;
}

function draw(now) {
  const at = performance.now();
  const seconds = (at - beforeAt) / 1000;
  for (const gauge of GAUGES) {
    gauge.values.push(gauge.of(now, before, seconds));
    gauge.values.splice(0, gauge.values.length - SECONDS_SHOWN);
    const most = Math.max(gauge.least, ...gauge.values);
    const value = gauge.values.at(-1);
    gauge.value.textContent = gauge.show(value);
    gauge.most.textContent = `top ${gauge.show(most)}`;
    gauge.plot.replaceChildren(
      line(
        gauge.values,
        SECONDS_SHOWN,
        most,
        `${gauge.title}: ${gauge.show(value)} ${gauge.unit} now, ${gauge.show(Math.max(...gauge.values))} at most in the last minute`,
      ),
    );
  }
  before = now;
  beforeAt = at;
  const constrained = now["formwork:structured_output_constrained_tokens_total"] ?? 0;
  const forced = now["formwork:structured_output_forced_tokens_total"] ?? 0;
  const hits = now["formwork:structured_output_cache_hits_total"] ?? 0;
  const misses = now["formwork:structured_output_cache_misses_total"] ?? 0;
  stats($("engine-totals"), [
    ["Prompt tokens", number(now["vllm:prompt_tokens_total"] ?? 0)],
    ["Output tokens", number(now["vllm:generation_tokens_total"] ?? 0)],
    ["Under a constraint", number(constrained)],
    ["Forced", constrained ? `${number(forced)} (${percent(forced / constrained)})` : number(forced)],
    ["Answers", number(now["vllm:request_success_total"] ?? 0)],
    ["Grammars known", hits + misses ? percent(hits / (hits + misses)) : "–"],
  ]);
}
