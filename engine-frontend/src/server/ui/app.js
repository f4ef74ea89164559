// The page: its four views as tabs, and what they share.

import { getJson } from "./api.js";
import { runExample, startChat } from "./chat.js";
import { startConstraint } from "./constraint.js";
import { $, h } from "./dom.js";
import { seeEngine, startEngine } from "./engine.js";
import { EXAMPLES } from "./examples.js";
import { startInspect } from "./inspect.js";
import { seeWatch, showAnswer, startWatch } from "./watch.js";

const VIEWS = ["chat", "watch", "constraint", "engine"];
const tabs = VIEWS.map((view) => $(`tab-${view}`));

const viewInAddress = () => VIEWS.find((view) => location.hash === `#/${view}`);
const shownView = () => VIEWS.find((view) => !$(view).hidden);

function show(view) {
  VIEWS.forEach((each, at) => {
    const isShown = each === view;
    $(each).hidden = !isShown;
    tabs[at].setAttribute("aria-selected", String(isShown));
    tabs[at].tabIndex = isShown ? 0 : -1;
  });
  document.title = `${$(`tab-${view}`).textContent} · Formwork`;
  // No element has such an id, so that the browser leaves focus and scroll where they are.
  if (viewInAddress() !== view) history.replaceState(null, "", `#/${view}`);
  // One constraint, one editor: it goes to the view that shows it.
  if (view === "chat") $("chat-side").prepend($("constraint-panel"));
  if (view === "constraint") $("constraint-side").prepend($("constraint-panel"));
  if (view === "watch") seeWatch();
  seeEngine(view === "engine");
}

function onKey(event) {
  const at = tabs.indexOf(event.target);
  const to = { ArrowRight: at + 1, ArrowLeft: at - 1, Home: 0, End: tabs.length - 1 }[event.key];
  if (to === undefined) return;
  event.preventDefault();
  const tab = tabs[(to + tabs.length) % tabs.length];
  tab.focus();
  tab.click();
}

async function loadModels() {
  const { data } = await getJson("v1/models");
  $("model").replaceChildren(...data.map(({ id }) => h("option", {}, id)));
  $("model").disabled = false;
}

function fail(error) {
  $("page-error").textContent = `${error.message} Reload the page to try again.`;
  $("page-error").hidden = false;
}

tabs.forEach((tab, at) => {
  tab.addEventListener("click", () => show(VIEWS[at]));
  tab.addEventListener("keydown", onKey);
});
addEventListener("hashchange", () => show(viewInAddress() ?? shownView()));
startConstraint();
startChat((answer) => {
  show("watch");
  showAnswer(answer);
  $("tab-watch").focus();
});
startWatch(() => runExample(EXAMPLES.find((example) => example.title === "Extraction")));
startInspect();
startEngine();
show(viewInAddress() ?? "chat");
loadModels().catch(fail);
