// The conversation: sends messages, shows answers as they come.

import { ApiError, BASE, encode, stream } from "./api.js";
import { answers } from "./answers.js";
import { constraint, load, markRefusal, problem } from "./constraint.js";
import { $, announce, atMostEvery, h, milliseconds } from "./dom.js";
import { EXAMPLES } from "./examples.js";

/** Pieces that come faster than this are shown together. */
const PAINT_MS = 30;

const messages = [];
let running = null;
/** Shows an answer in Watch: given by app.js. */
let watchAnswer = () => {};

export function startChat(showInWatch) {
  watchAnswer = showInWatch;
  $("composer").addEventListener("submit", (event) => {
    event.preventDefault();
    sendMessage($("message").value);
  });
  $("message").addEventListener("keydown", (event) => {
    if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
    event.preventDefault();
    $("composer").requestSubmit();
  });
  $("stop").addEventListener("click", () => running?.abort());
  $("new-chat").addEventListener("click", () => {
    clear();
    $("message").focus();
  });
  $("as-curl").addEventListener("click", showCurl);
  $("curl-close").addEventListener("click", () => $("curl").close());
  $("curl-copy").addEventListener("click", copyCurl);
  $("examples").replaceChildren(
    ...EXAMPLES.map((example) =>
      h(
        "li",
        {},
        h(
          "button",
          { type: "button", class: "example", onclick: () => runExample(example) },
          h("strong", {}, example.title),
          h("span", {}, example.about),
          h("q", {}, example.prompt.split("\n").at(-1)),
        ),
      ),
    ),
  );
}

/** Begins a new conversation with an example. */
export function runExample(example) {
  clear();
  load(example.kind, example.text);
  $("thinking").value = example.thinking ?? "";
  return sendMessage(example.prompt);
}

function clear() {
  running?.abort();
  running = null;
  busy(false);
  messages.length = 0;
  $("turns").replaceChildren();
  $("welcome").hidden = false;
}

/** The request's body, without what only this page needs. */
function body(conversation, fields) {
  const thinking = $("thinking").value;
  return {
    model: $("model").value,
    messages: conversation,
    temperature: Number($("temperature").value) || 0,
    max_tokens: Number($("max-tokens").value) || 256,
    ...(thinking && { chat_template_kwargs: { enable_thinking: thinking === "on" } }),
    ...fields,
  };
}

function sendMessage(text) {
  if (running || text.trim() === "") return;
  const { error } = constraint.request();
  $("welcome").hidden = true;
  $("message").value = "";
  messages.push({ role: "user", content: text });
  $("turns").append(
    h("li", { class: "turn user" }, h("h3", { class: "hidden" }, "You"), h("div", { class: "words" }, text)),
  );
  if (error) {
    const view = new AnswerView("");
    view.fail(`The constraint: ${error.message}`, error);
    messages.pop();
    $("message").value = text;
    return;
  }
  return answer(text);
}

/** Asks for the next turn and shows it. */
async function answer(prompt) {
  const { fields } = constraint.request();
  const view = new AnswerView(constraint.kind);
  const conversation = [...messages];
  const record = $("record").checked ? answers.add(prompt, fields) : null;
  const controller = new AbortController();
  running = controller;
  busy(true);
  announce("Answering");
  const request = {
    ...body(conversation, fields),
    stream: true,
    stream_options: { include_usage: true },
    include_warnings: true,
    ...(record && { include_trace: true }),
  };
  try {
    for await (const event of stream("v1/chat/completions", request, controller.signal)) {
      view.take(event);
      if (record) for (const choice of event.choices ?? []) answers.addTrace(record, choice.trace);
    }
    messages.push(view.message());
    view.end(record?.trace.length ? () => watchAnswer(record) : null, sendResult);
    announce(`Answer: ${view.spoken()}`);
  } catch (error) {
    if (error.name === "AbortError") {
      view.stopped();
      if (running === controller) messages.push(view.message());
      announce("Stopped");
    } else {
      const isRefused = error instanceof ApiError && error.status >= 400 && error.status < 500;
      view.fail(error.message, isRefused ? markRefusal(error.message) : null);
      if (isRefused) {
        messages.pop();
        if ($("message").value === "" && prompt) $("message").value = prompt;
      }
      if (!(error instanceof ApiError)) console.error(error);
    }
  } finally {
    if (record) answers.end(record);
    if (running === controller) {
      running = null;
      busy(false);
    }
  }
}

function busy(isBusy) {
  const stopHadFocus = document.activeElement === $("stop");
  $("send").disabled = isBusy;
  $("stop").hidden = !isBusy;
  $("log").setAttribute("aria-busy", String(isBusy));
  if (stopHadFocus && !isBusy) $("message").focus();
}

/** Gives a tool's result back to the model. */
function sendResult(id, result) {
  if (running) return;
  messages.push({ role: "tool", tool_call_id: id, content: result });
  $("turns").append(
    h(
      "li",
      { class: "turn user" },
      h("h3", { class: "hidden" }, "Result of the tool"),
      h("div", { class: "words" }, result),
    ),
  );
  return answer("");
}

/** One answer in the conversation. */
class AnswerView {
  constructor(kind) {
    this.content = "";
    this.reasoning = "";
    this.calls = [];
    this.finish = {};
    this.warnings = [];
    this.start = performance.now();
    this.words = h("div", { class: kind === "none" ? "words" : "words code" });
    this.thoughts = h("div", { class: "thoughts" });
    this.thinking = h(
      "details",
      { class: "thinking", open: true, hidden: true },
      h("summary", {}, "Thinking"),
      this.thoughts,
    );
    this.tools = h("div", {});
    this.notes = h("div", { class: "notes" });
    this.item = h(
      "li",
      { class: "turn answer live" },
      h("h3", { class: "hidden" }, "Answer"),
      this.thinking,
      this.words,
      this.tools,
      this.notes,
    );
    $("turns").append(this.item);
    this.paintSoon = atMostEvery(PAINT_MS, () => this.paint());
    this.follow(true);
  }

  take(event) {
    if (event.usage) this.usage = event.usage;
    if (event.warnings) this.warnings = event.warnings;
    for (const choice of event.choices ?? []) {
      const delta = choice.delta ?? {};
      this.reasoning += delta.reasoning_content ?? "";
      this.content += delta.content ?? "";
      for (const part of delta.tool_calls ?? []) this.takeCall(part);
      if (choice.finish_reason) this.finish = choice;
    }
    this.paintSoon();
  }

  paint() {
    const isFollowed = this.isAtEnd();
    this.thinking.hidden = this.reasoning === "";
    this.thoughts.textContent = this.reasoning.trim();
    this.words.textContent = this.content;
    this.tools.replaceChildren(
      ...this.calls.map(({ function: { name, arguments: given } }) =>
        h("p", { class: "call" }, h("span", { class: "tag" }, "call"), h("code", {}, `${name} ${given}`)),
      ),
    );
    this.follow(isFollowed);
  }

  takeCall(part) {
    const call = (this.calls[part.index] ??= {
      id: "",
      type: "function",
      function: { name: "", arguments: "" },
    });
    if (part.id) call.id = part.id;
    call.function.name += part.function?.name ?? "";
    call.function.arguments += part.function?.arguments ?? "";
  }

  message() {
    return { role: "assistant", content: this.content, ...(this.calls.length && { tool_calls: this.calls }) };
  }

  spoken() {
    return [
      this.content,
      ...this.calls.map((call) => `calls ${call.function.name} with ${call.function.arguments}`),
    ].join(" ");
  }

  end(watch, onResult) {
    const seconds = performance.now() - this.start;
    const { finish_reason: reason, structured_output_complete: isComplete } = this.finish;
    const facts = [
      this.usage && `${this.usage.completion_tokens} tokens`,
      milliseconds(seconds),
      reason && `ended by ${reason}`,
      isComplete === true && "complete under its constraint",
      isComplete === false && "not complete under its constraint",
      this.finish.structured_output_completed_by_budget && "closed early, since tokens ran short",
      this.finish.structured_output_repetition_closed && "a repeating string was closed",
    ].filter(Boolean);
    this.settle();
    this.notes.append(
      h(
        "p",
        { class: "facts" },
        facts.join(" · "),
        watch && " ",
        watch && h("button", { type: "button", class: "link", onclick: watch }, "Watch this answer"),
      ),
      ...this.warnings.map((warning) =>
        problem("warn", typeof warning === "string" ? warning : warning.message, null),
      ),
      ...this.calls.map((call) => resultForm(call, onResult)),
    );
    this.follow(true);
  }

  settle() {
    this.paint();
    this.item.classList.remove("live");
  }

  stopped() {
    this.settle();
    this.notes.append(h("p", { class: "facts" }, "Stopped."));
  }

  fail(message, place) {
    this.settle();
    const box = h("div", { role: "alert" });
    this.notes.append(box);
    box.append(problem("bad", message, place));
    this.follow(true);
  }

  isAtEnd() {
    const log = $("log");
    return log.scrollHeight - log.scrollTop - log.clientHeight < 60;
  }

  follow(should) {
    if (should) $("log").scrollTop = $("log").scrollHeight;
  }
}

function resultForm(call, onResult) {
  const input = h("input", {
    type: "text",
    "aria-label": `Result of ${call.function.name}`,
    placeholder: "Result of the call",
  });
  return h(
    "form",
    {
      class: "row result",
      onsubmit: (event) => {
        event.preventDefault();
        event.target.hidden = true;
        onResult(call.id, input.value);
      },
    },
    input,
    h("button", {}, "Give the result"),
  );
}

/** The command for the message in the composer, or for the last one sent. */
function curlCommand() {
  const { fields, error } = constraint.request();
  if (error) return `# The constraint can't be sent: line ${error.line}, ${error.message}`;
  const typed = $("message").value.trim();
  let conversation = [...messages];
  if (typed) conversation.push({ role: "user", content: $("message").value });
  else while (conversation.at(-1)?.role === "assistant") conversation.pop();
  if (conversation.length === 0)
    conversation = [{ role: "user", content: EXAMPLES.find((each) => each.kind === constraint.kind).prompt }];
  const json = encode(body(conversation, fields), 1).replaceAll("'", "'\\''");
  return `curl ${new URL("v1/chat/completions", BASE).href} \\\n  -H 'Content-Type: application/json' \\\n  -d '${json}'`;
}

function showCurl() {
  $("curl-text").value = curlCommand();
  $("curl-status").textContent = "";
  $("curl").showModal();
  $("curl-text").scrollTop = 0;
  $("curl-copy").focus();
}

async function copyCurl() {
  try {
    await navigator.clipboard.writeText($("curl-text").value);
    $("curl-status").textContent = "Copied.";
  } catch {
    $("curl-text").focus();
    $("curl-text").select();
    $("curl-status").textContent = "Selected: copy it with Ctrl+C (on a Mac with ⌘C).";
  }
}
